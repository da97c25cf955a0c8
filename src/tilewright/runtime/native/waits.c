/* How the instructions of a stream wait for each other: the fewest waits that are enough, one legal
 * order of all instructions, and what is known to be done when each begins. */

#include "stream.h"

#include <string.h>

static void join(int32_t *clock, const int32_t *other, int32_t queues) {
  for (int32_t p = 0; p < queues; p++)
    if (clock[p] < other[p]) clock[p] = other[p];
}

/* ---- placing waits --------------------------------------------------------------------------- */

typedef struct tw_links { /* what a target's queues can wait for each other with */
  int64_t n;
  int32_t queues;
  const int32_t *queue;   /* [n] */
  const uint32_t *tokens; /* [queues], bit q of tokens[p]: p and q have tokens */
  const uint8_t *idle;    /* [queues]: there is an instruction that does nothing */
  int32_t events;         /* whether any queue can wait for any other through events */
  int32_t barriers;       /* whether all queues can wait for each other */
} tw_links;

typedef struct tw_placed { /* what tw_place_waits finds */
  int32_t *need;     /* [n][queues]: what instruction i waits for in each queue, or -1 */
  int32_t *clock;    /* [n][queues]: the last of each queue known to be done when i begins */
  uint32_t *pops, *pushes, *events; /* bit p of events[i]: i waits for need[i][p] by an event */
  uint8_t *barrier;  /* which there are from the beginning as well */
  int32_t *relay;    /* [n][queues]: the queue in which an instruction that does nothing must stand
                        before i, to hand on that need[i][p] is done; else -1 */
} tw_placed;

static void learn(const tw_links *l, const tw_placed *out, int64_t i, int32_t p, int32_t j) {
  int32_t *mine = out->clock + i * l->queues;
  join(mine, out->clock + (int64_t)j * l->queues, l->queues);
  if (mine[p] < j) mine[p] = j;
}

/* The queues that i must wait for itself: whose needs nothing else implies. */
static uint32_t uncovered(const tw_links *l, const tw_placed *out, int64_t i) {
  const int32_t *need = out->need + i * l->queues, *mine = out->clock + i * l->queues;
  uint32_t left = 0;
  for (int32_t p = 0; p < l->queues; p++)
    if (p != l->queue[i] && need[p] > mine[p]) left |= 1u << p;
  for (int32_t p = 0; p < l->queues; p++)
    for (int32_t r = 0; r < l->queues && left >> p & 1; r++)
      /* by a wait for another queue, whose instruction came after it */
      if (r != p && left >> r & 1 && out->clock[(int64_t)need[r] * l->queues + p] >= need[p])
        left &= ~(1u << p);
  return left;
}

/* The queue through which i can learn that need[i][p] is done: one that is linked to both, best
 * with an instruction since then. -1 if there is none. */
static int32_t go_between(const tw_links *l, const int32_t *last, int32_t p, int32_t q, int32_t j) {
  int32_t best = -1;
  for (int32_t r = 0; r < l->queues; r++) {
    if (!(l->tokens[p] >> r & 1) || !(l->tokens[q] >> r & 1)) continue;
    if (last[r] > j) return r;
    if (best < 0 && l->idle[r]) best = r;
  }
  return best;
}

/* Has instruction i learn that need[i][p] is done through a queue between the two; 0 if there is
 * none. The last instruction of that queue waits for it, and i for that one. */
static int hand_on(const tw_links *l, const tw_placed *out, const int32_t *last, int64_t i,
                   int32_t p) {
  int32_t *need = out->need + i * l->queues;
  const int32_t j = need[p], r = go_between(l, last, p, l->queue[i], j), k = r < 0 ? -1 : last[r];
  if (r < 0) return 0;
  if (k <= j) {
    out->relay[i * l->queues + p] = r;
    learn(l, out, i, p, j);
    return 1;
  }
  if (out->clock[(int64_t)k * l->queues + p] < j) {
    int32_t *waits = out->need + (int64_t)k * l->queues + p;
    if (out->pops[k] >> p & 1) out->pushes[*waits] &= ~(1u << r); /* it waits for a later one */
    *waits = j;
    out->pops[k] |= 1u << p, out->pushes[j] |= 1u << r;
    learn(l, out, k, p, j);
  }
  if (need[r] < k) need[r] = k;
  if (out->clock[i * l->queues + r] >= k) learn(l, out, i, r, k);
  return 1;
}

/* The fewest waits that imply all needs, if each is put where it is needed: tokens where queues are
 * linked, else events, else barriers, else a token handed on by a third queue. Returns -1, or the
 * first instruction that cannot wait for what it needs, with the queue in *unlinked. */
int64_t tw_place_waits(const tw_links *l, const tw_placed *out, int32_t *unlinked) {
  const int32_t queues = l->queues;
  int32_t last[MOST_QUEUES], floor[MOST_QUEUES]; /* floor: what the last barrier waited for */
  for (int32_t q = 0; q < MOST_QUEUES; q++) last[q] = floor[q] = -1;
  for (int64_t i = 0; i < l->n; i++) {
    const int32_t q = l->queue[i];
    int32_t *mine = out->clock + i * queues;
    if (out->barrier[i]) memcpy(floor, last, sizeof floor);
    memcpy(mine, floor, queues * sizeof *mine);
    if (last[q] >= 0) learn(l, out, i, q, last[q]);
    uint32_t left = uncovered(l, out, i), others = left & ~l->tokens[q];
    if (others && !l->events && l->barriers) {
      out->barrier[i] = 1;
      memcpy(floor, last, sizeof floor);
      memcpy(mine, floor, queues * sizeof *mine);
      left = 0;
    } else if (others && !l->events) {
      for (int32_t p = 0; p < queues; p++) {
        *unlinked = p;
        if (others >> p & 1 && !hand_on(l, out, last, i, p)) return i;
      }
      left = uncovered(l, out, i);
    }
    for (int32_t p = 0; p < queues; p++) {
      if (!(left >> p & 1)) continue;
      const int32_t j = out->need[i * queues + p];
      if (l->tokens[q] >> p & 1)
        out->pops[i] |= 1u << p, out->pushes[j] |= 1u << q;
      else
        out->events[i] |= 1u << p;
      learn(l, out, i, p, j);
    }
    last[q] = (int32_t)i;
  }
  return -1;
}

/* Numbers the events of `count` waits of instruction taker[k] for giver[k], in the order of givers:
 * number[k], below `events`. An event is free again when the instruction that waited for it last
 * has begun for certain: before the giver is done, which sets it, and before the taker can begin to
 * wait, which would take it. previous[i] is the instruction before i in its queue, or -1. Returns
 * -1, or the first wait that gets none. */
int64_t tw_number_events(const tw_links *l, const int32_t *clock, const int32_t *previous,
                         int64_t count, const int64_t *giver, const int64_t *taker,
                         int32_t *number) {
  int64_t user[MOST_EVENTS];
  for (int32_t e = 0; e < l->events; e++) user[e] = -1;
  for (int64_t k = 0; k < count; k++) {
    const int64_t g = giver[k], t = taker[k], before = previous[t];
    number[k] = -1;
    for (int32_t e = 0; e < l->events && number[k] < 0; e++) {
      const int64_t u = user[e];
      if (u >= 0) {
        const int32_t p = l->queue[u];
        const int set = p == l->queue[g] ? u <= g : clock[g * l->queues + p] >= u;
        const int taken =
            p == l->queue[t] ? u < t : before >= 0 && clock[before * l->queues + p] >= u;
        if (!set || !taken) continue;
      }
      number[k] = e;
    }
    if (number[k] < 0) return k;
    user[number[k]] = t;
  }
  return -1;
}

/* ---- one legal order ------------------------------------------------------------------------- */

/* Runs the stream without time: one instruction after another, each as soon as its queue holds it
 * and what it waits for is there (need[i][p] of each queue among it, unless need is NULL); of
 * several that could be next, the one with the greatest priority. members are the instructions by
 * queue: those of q are first[q] .. first[q + 1]. Returns how many ran: n, unless the stream stops
 * for good. `order` takes them as they ran, heads[q] how many of each queue did, given[c] and
 * taken[c] what went through each channel, owing[q] the last of each queue if it finds no room for
 * what it gives (else -1), and *fetched how many instructions entered their queues. */
int64_t tw_interleave(const tw_sync *s, const int64_t *members, const int64_t *first,
                      const int32_t *need, const int64_t *priority, int64_t *order,
                      int64_t *heads, int64_t *given, int64_t *taken, int64_t *owing,
                      int64_t *fetched) {
  const int32_t channels = s->queues * s->queues + s->events;
  int64_t held[MOST_QUEUES], done = 0, in = 0;
  int32_t found[MOST_CHANNELS];
  for (int32_t q = 0; q < s->queues; q++) heads[q] = held[q] = 0, owing[q] = -1;
  for (int32_t c = 0; c < channels; c++) given[c] = taken[c] = 0;
  while (done < s->n) {
    while (in < s->n && held[s->queue[in]] < s->depth[s->queue[in]]) {
      if (s->barrier[in] && done < in) break;
      held[s->queue[in++]]++;
    }
    int64_t best = -1;
    for (int32_t q = 0; q < s->queues; q++) {
      if (!held[q] || owing[q] >= 0) continue;
      const int64_t i = members[first[q] + heads[q]];
      if (best >= 0 && priority[i] <= priority[best]) continue;
      int ready = 1;
      for (int32_t k = tw_takes(s, i, found); k-- > 0;)
        if (taken[found[k]] >= given[found[k]]) ready = 0;
      for (int32_t p = 0; need && p < s->queues; p++)
        if (p != q && first[p] + heads[p] < first[p + 1] &&
            members[first[p] + heads[p]] <= need[i * s->queues + p])
          ready = 0;
      if (ready) best = i;
    }
    if (best < 0) break;
    for (int32_t k = tw_takes(s, best, found); k-- > 0;) taken[found[k]]++;
    heads[s->queue[best]]++, held[s->queue[best]]--;
    owing[s->queue[best]] = order[done++] = best;
    for (int32_t q = 0; q < s->queues; q++) {
      if (owing[q] < 0 || !tw_has_room(s, owing[q], given, taken)) continue;
      for (int32_t k = tw_gives(s, owing[q], found); k-- > 0;) given[found[k]]++;
      owing[q] = -1;
    }
  }
  *fetched = in;
  return done;
}

/* ---- what is known to be done ---------------------------------------------------------------- */

enum { FINE, RACE, EVENT_SET_AGAIN, EVENT_TAKEN };

/* clock[i][p]: the last instruction of queue p that is done for certain when i begins, from the
 * waits alone; `order` is a legal order of all instructions. Checks that this covers need[i][p]
 * (unless need is NULL), and that an event is set only when what it was last set for has begun, and
 * that no other instruction can take it.
 * Returns FINE, or what is wrong: with instruction found[0], queue or event found[1], and
 * instruction found[2] that should be done. `given` has room for all that is given; base and taken
 * for a number of each channel (and one more). */
int64_t tw_clocks(const tw_sync *s, const int64_t *order, const int32_t *need, int32_t *clock,
                  int32_t *given, int64_t *base, int64_t *taken, int64_t *found) {
  const int32_t queues = s->queues, pairs = queues * queues;
  int32_t last[MOST_QUEUES], floor[MOST_QUEUES], channels[MOST_CHANNELS];
  int64_t count[MOST_CHANNELS], user[MOST_EVENTS]; /* user: who waited for an event last */
  tw_channel_bases(s, base);
  for (int32_t q = 0; q < MOST_QUEUES; q++) last[q] = floor[q] = -1;
  for (int32_t e = 0; e < s->events; e++) user[e] = -1;
  for (int32_t c = 0; c < pairs + s->events; c++) count[c] = taken[c] = 0;
  for (int64_t i = 0; i < s->n; i++) { /* barriers wait for what stands before them */
    if (s->barrier[i]) memcpy(floor, last, sizeof floor);
    memcpy(clock + i * queues, floor, queues * sizeof *clock);
    last[s->queue[i]] = (int32_t)i;
  }
  for (int32_t q = 0; q < queues; q++) last[q] = -1;
  for (int64_t t = 0; t < s->n; t++) {
    const int64_t i = order[t];
    const int32_t q = s->queue[i];
    int32_t *mine = clock + i * queues;
    if (last[q] >= 0) {
      join(mine, clock + (int64_t)last[q] * queues, queues);
      mine[q] = last[q];
    }
    for (int32_t k = tw_takes(s, i, channels); k-- > 0;) {
      const int32_t c = channels[k], j = given[base[c] + taken[c]++];
      const int64_t u = c >= pairs ? user[c - pairs] : -1;
      const int32_t p = u < 0 ? q : s->queue[u];
      found[0] = i, found[1] = c - pairs, found[2] = u;
      if (p != q && (last[q] < 0 || clock[(int64_t)last[q] * queues + p] < u)) return EVENT_TAKEN;
      join(mine, clock + (int64_t)j * queues, queues);
      if (mine[s->queue[j]] < j) mine[s->queue[j]] = j;
      if (c >= pairs) user[c - pairs] = i;
    }
    for (int32_t p = 0; need && p < queues; p++)
      if (p != q && need[i * queues + p] > mine[p]) {
        found[0] = i, found[1] = p, found[2] = need[i * queues + p];
        return RACE;
      }
    for (int32_t k = tw_gives(s, i, channels); k-- > 0;) {
      const int32_t c = channels[k];
      if (c >= pairs && count[c] > 0) {
        const int64_t u = user[c - pairs];
        found[0] = i, found[1] = c - pairs, found[2] = count[c] > taken[c] ? -1 : u;
        if (count[c] > taken[c] || (s->queue[u] != q && mine[s->queue[u]] < u))
          return EVENT_SET_AGAIN;
      }
      given[base[c] + count[c]++] = (int32_t)i;
    }
    last[q] = (int32_t)i;
  }
  return FINE;
}
