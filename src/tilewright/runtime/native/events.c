/* The timed simulator: when every instruction of a stream begins and is done, and why not earlier.
 * No data. */

#include "stream.h"

#include <stdlib.h>

typedef struct tw_times { /* cycles; arrays of n, or [n][columns] */
  int64_t issue;           /* that the issuer takes for each instruction */
  int64_t ahead, burst;    /* instructions that there is room for until they enter their queues,
                              and that are fetched together; 0: all are there from the beginning */
  int32_t source;          /* the channel that they are fetched through; -1: not a limited one */
  int64_t fetch, rest;     /* of that channel, for a burst, and for the last one */
  int64_t arrival;         /* from then until a burst is there */
  int32_t serial;          /* one instruction after another, waits or not */
  int32_t channels;        /* memories of limited bandwidth */
  const int64_t *setup, *busy, *latency;
  const int64_t *transfer; /* [n][channels]: how long its bytes take through each of them */
  const uint64_t *banks;   /* those that it uses, of all memories together */
  const int32_t *need;     /* [n][queues]: what it waits for by itself, or -1; NULL: nothing */
  const int32_t *own;      /* [n][HAZARDS]: whose results it reads in its own queue, or -1 */
  const int64_t *forward;  /* after it has begun, until others of its queue can use its results */
} tw_times;

typedef struct tw_timeline { /* cycles; arrays of [cores][n] */
  int64_t *begin, *leave, *end;
  /* Of the time that its queue's unit stood still before it began: until it was issued, until what
   * it waits for was there, until results of its own queue were, until its banks were free. And how
   * much longer than its own work it took because others used the memory's bandwidth. */
  int64_t *issue, *wait, *result, *bank, *bandwidth;
  int64_t *cause;          /* the instruction that it waited for last, or -1 */
  int32_t *given;          /* scratch: the instructions that gave what went through channels, those
                              of each core behind those of the one before */
  int64_t *usable;         /* scratch: when others of its queue can use its results */
  int64_t *entry;          /* scratch: when it has come; then, when it entered its queue */
} tw_timeline;

typedef struct state { /* of a core */
  int64_t head[MOST_QUEUES], held[MOST_QUEUES], finished[MOST_QUEUES], forwarded[MOST_QUEUES];
  int64_t active[MOST_QUEUES]; /* the instruction that has begun and not got its bandwidth, or -1 */
  int64_t owing[MOST_QUEUES];  /* the one that has left and found no room for its tokens, or -1 */
  int64_t opened[MOST_QUEUES], opener[MOST_QUEUES]; /* when the last one that had to wait for room
                                  found it, and by whom; -1: the last one found room at once */
  int64_t unit[MOST_QUEUES];   /* when the unit is free; while one is active, when it is set up */
  int64_t base[MOST_CHANNELS + 1], count[MOST_CHANNELS], taken[MOST_CHANNELS];
  int64_t freed[MOST_CHANNELS], freer[MOST_CHANNELS]; /* when a token was taken last, and by whom */
  int64_t *channel[MOST_QUEUES]; /* when each memory's bandwidth is free: cores that have a memory
                                    in common have that in common */
  int64_t free[MOST_QUEUES];
  int64_t bank[64];             /* when each bank is */
  int32_t holder[64];
  int64_t entered, issued; /* instructions in their queues; when the last of them got there */
  int64_t fetched, fetching; /* instructions that are fetched; when the last one has been */
  int64_t done, last;
} state;

enum { NEVER = -1, NOTHING = -1, FETCHES = -2 };
#define UNKNOWN INT64_MAX

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Instructions enter their queues in program order, each `issue` cycles after the one before at
 * best, when they have been fetched, and stop at the first whose queue is full, or at a barrier. */
static void enter(const tw_sync *s, const tw_times *t, const tw_timeline *out, state *now,
                  const int64_t *members, const int64_t *first) {
  while (now->entered < s->n) {
    const int64_t i = now->entered;
    const int32_t q = s->queue[i];
    if (now->held[q] >= s->depth[q]) break;
    int64_t at = now->issued;
    if (t->burst) {
      if (now->fetched <= i) break;
      at = most(at, out->entry[i]);
    }
    if (s->barrier[i]) {
      if (now->done < i) break;
      at = most(at, now->last);
    }
    const int64_t room = now->head[q] + now->held[q] - s->depth[q];
    if (room >= 0) at = most(at, out->begin[members[first[q] + room]]); /* which made the room */
    out->entry[i] = now->issued = at + t->issue;
    now->held[q]++, now->entered++;
  }
}

/* When the next instructions can be fetched; NEVER if that is not known yet. */
static int64_t next_fetch(const tw_sync *s, const tw_times *t, const tw_timeline *out,
                          const state *now) {
  const int64_t gone = now->fetched + t->burst - t->ahead; /* that must have made room for them */
  if (!t->burst || now->fetched >= s->n || now->entered < gone) return NEVER;
  if (s->barrier[now->fetched] == PART) {
    if (now->done < now->fetched) return NEVER;
    return most(now->last, now->fetching);
  }
  return gone <= 0 ? now->fetching : most(now->fetching, out->entry[gone - 1]);
}

static void fetch(const tw_sync *s, const tw_times *t, const tw_timeline *out, state *now,
                  int64_t at) {
  const int64_t left = s->n - now->fetched, count = left < t->burst ? left : t->burst;
  if (t->source >= 0) {
    at = most(at, *now->channel[t->source]) + (now->fetched + count < s->n ? t->fetch : t->rest);
    *now->channel[t->source] = at;
  }
  now->fetching = at;
  for (int64_t k = 0; k < count; k++) out->entry[now->fetched++] = at + t->arrival;
}

/* When what instruction i waits for is there, the last of it from *cause; NEVER if it is not yet
 * known. */
static int64_t waited(const tw_sync *s, const tw_times *t, const tw_timeline *out,
                      const state *now, int64_t i, int64_t *cause) {
  int32_t found[MOST_CHANNELS];
  int64_t at = 0;
  *cause = -1;
  if (t->serial) return i == now->done ? now->last : NEVER;
  for (int32_t k = tw_takes(s, i, found); k-- > 0;) {
    const int32_t c = found[k];
    if (now->taken[c] >= now->count[c]) return NEVER;
    const int32_t j = out->given[now->base[c] + now->taken[c]];
    if (out->end[j] > at) at = out->end[j], *cause = j;
  }
  for (int32_t p = 0; t->need && p < s->queues; p++) {
    const int32_t j = t->need[i * s->queues + p];
    if (j < 0 || p == s->queue[i]) continue;
    if (out->end[j] == NEVER) return NEVER;
    if (out->end[j] > at) at = out->end[j], *cause = j;
  }
  return at;
}

/* When the results of its own queue that instruction i reads are there. */
static int64_t results(const tw_times *t, const tw_timeline *out, int64_t i) {
  const int32_t stall = t->own[i * HAZARDS + STALL], forward = t->own[i * HAZARDS + FORWARD];
  int64_t at = 0;
  if (stall >= 0) at = most(at, out->end[stall]);
  if (forward >= 0) at = most(at, out->usable[forward]);
  return at;
}

static int64_t banks_free(const tw_times *t, const state *now, int64_t i, int32_t q) {
  int64_t at = 0;
  for (uint64_t left = t->banks[i]; left; left &= left - 1) {
    const int b = __builtin_ctzll(left);
    if (now->holder[b] != q && now->bank[b] > at) at = now->bank[b];
  }
  return at;
}

/* Instruction i, the next of queue q, begins at `start`, what it waits for being there at
 * `ready`. When it leaves the unit is known once it has the bandwidth that it needs. */
static void begin(const tw_sync *s, const tw_times *t, const tw_timeline *out, state *now,
                  int64_t i, int32_t q, int64_t ready, int64_t start) {
  const int64_t free = now->unit[q], issued = most(out->entry[i], free);
  const int64_t waited = most(ready, issued), read = most(results(t, out, i), waited);
  int32_t found[MOST_CHANNELS];
  out->issue[i] = issued - free;
  out->wait[i] = waited - issued;
  out->result[i] = read - waited;
  out->bank[i] = start - read;
  out->begin[i] = start;
  now->forwarded[q] = out->usable[i] = most(start + t->forward[i], now->forwarded[q]);
  now->active[q] = i;
  now->unit[q] = start + t->setup[i];
  for (uint64_t left = t->banks[i]; left; left &= left - 1)
    now->bank[__builtin_ctzll(left)] = UNKNOWN, now->holder[__builtin_ctzll(left)] = q;
  for (int32_t k = t->serial ? 0 : tw_takes(s, i, found); k-- > 0;) {
    now->taken[found[k]]++;
    now->freed[found[k]] = start, now->freer[found[k]] = i;
  }
  now->head[q]++, now->held[q]--;
}

/* Instruction i of queue q has left the unit, and finds room for the tokens that it gives: it is
 * done `latency` later. */
static void give(const tw_sync *s, const tw_times *t, const tw_timeline *out, state *now, int64_t i,
                 int32_t q, int64_t at) {
  int32_t found[MOST_CHANNELS];
  now->finished[q] = out->end[i] = most(at + t->latency[i], now->finished[q]);
  for (int32_t k = tw_gives(s, i, found); k-- > 0;)
    out->given[now->base[found[k]] + now->count[found[k]]++] = (int32_t)i;
  now->last = most(now->last, out->end[i]);
  now->owing[q] = -1;
  now->done++;
}

/* When the instruction that queue q owes tokens of has room for them, made last by *opener; NEVER
 * if that is not known yet. */
static int64_t room(const tw_sync *s, const state *now, int32_t q, int64_t *opener) {
  const int64_t i = now->owing[q];
  int32_t found[MOST_CHANNELS];
  int64_t at = now->unit[q];
  *opener = -1;
  if (!tw_has_room(s, i, now->count, now->taken)) return NEVER;
  for (int32_t k = tw_gives(s, i, found); k-- > 0;)
    if (now->freed[found[k]] > at) at = now->freed[found[k]], *opener = now->freer[found[k]];
  return at;
}

/* The instruction that queue q has begun is set up: it moves its bytes when the memories are free,
 * and leaves. */
static void finish(const tw_sync *s, const tw_times *t, const tw_timeline *out, state *now,
                   int32_t q) {
  const int64_t i = now->active[q], *transfer = t->transfer + i * t->channels;
  int64_t from = now->unit[q], moved = 0;
  for (int32_t c = 0; c < t->channels; c++)
    if (transfer[c]) from = most(from, *now->channel[c]), moved = most(moved, transfer[c]);
  for (int32_t c = 0; c < t->channels; c++)
    if (transfer[c]) *now->channel[c] = from + transfer[c];
  const int64_t own = now->unit[q] + most(t->busy[i], moved);
  const int64_t leave = most(own, moved ? from + moved : 0);
  out->bandwidth[i] = leave - own;
  out->leave[i] = leave;
  now->unit[q] = leave;
  now->active[q] = -1;
  for (uint64_t left = t->banks[i]; left; left &= left - 1)
    now->bank[__builtin_ctzll(left)] = leave;
  now->opener[q] = -1;
  if (s->room && !t->serial)
    now->owing[q] = i;
  else
    give(s, t, out, now, i, q, leave);
}

typedef struct choice { /* what happens next: a queue's next instruction begins, goes on, or gives
                          its tokens; or, if the queue is FETCHES, one more is fetched */
  int32_t queue;
  int64_t at, ready, cause;
} choice;

static choice next_choice(const tw_sync *s, const tw_times *t, const tw_timeline *out,
                          const state *now, const int64_t *members, const int64_t *first) {
  choice best = {FETCHES, next_fetch(s, t, out, now), 0, -1};
  if (best.at == NEVER) best = (choice){NOTHING, UNKNOWN, 0, -1};
  for (int32_t q = 0; q < s->queues; q++) {
    choice c = {q, now->unit[q], 0, -1};
    if (now->owing[q] >= 0) {
      c.at = room(s, now, q, &c.cause);
      if (c.at == NEVER) continue;
    } else if (now->active[q] < 0) {
      if (!now->held[q]) continue;
      const int64_t i = members[first[q] + now->head[q]];
      c.ready = waited(s, t, out, now, i, &c.cause);
      if (c.ready == NEVER) continue;
      if (now->opener[q] >= 0 && now->opened[q] > c.ready)
        c.ready = now->opened[q], c.cause = now->opener[q];
      c.at = most(most(c.ready, out->entry[i]), most(c.at, banks_free(t, now, i, q)));
      c.at = most(c.at, results(t, out, i));
    }
    if (c.at < best.at) best = c;
  }
  return best;
}

/* Does what comes next on a core: one event. */
static void advance(const tw_sync *s, const tw_times *t, const tw_timeline *out, state *now,
                    const int64_t *members, const int64_t *first, const choice *c) {
  if (c->queue == FETCHES) {
    fetch(s, t, out, now, c->at);
    return;
  }
  if (now->owing[c->queue] >= 0) {
    if (c->cause >= 0) now->opened[c->queue] = c->at, now->opener[c->queue] = c->cause;
    give(s, t, out, now, now->owing[c->queue], c->queue, c->at);
    return;
  }
  if (now->active[c->queue] >= 0) {
    finish(s, t, out, now, c->queue);
    return;
  }
  const int64_t i = members[first[c->queue] + now->head[c->queue]];
  begin(s, t, out, now, i, c->queue, c->ready, c->at);
  out->cause[i] = c->cause;
}

typedef struct core {
  state now;
  tw_timeline out;
  choice next; /* what happens next, if it is not done */
} core;

static void look_ahead(const tw_sync *s, const tw_times *t, core *c, const int64_t *members,
                       const int64_t *first) {
  enter(s, t, &c->out, &c->now, members, first);
  c->next = (choice){NOTHING, UNKNOWN, 0, -1};
  if (c->now.done < s->n) c->next = next_choice(s, t, &c->out, &c->now, members, first);
}

static void start(const tw_sync *s, const tw_times *t, const tw_timeline *out, core *all, int32_t k,
                  uint64_t shared) {
  state *now = &all[k].now;
  const int64_t at = k * s->n;
  tw_channel_bases(s, now->base);
  for (int32_t b = 0; b < 64; b++) now->holder[b] = -1;
  for (int32_t q = 0; q < s->queues; q++) now->active[q] = now->owing[q] = now->opener[q] = -1;
  for (int32_t c = 0; c < t->channels; c++)
    now->channel[c] = (shared >> c & 1 ? all[0].now.free : now->free) + c;
  all[k].out = (tw_timeline){
      out->begin + at, out->leave + at, out->end + at, out->issue + at, out->wait + at,
      out->result + at, out->bank + at, out->bandwidth + at, out->cause + at,
      out->given + k * now->base[s->queues * s->queues + s->events],
      out->usable + at, out->entry + at};
  for (int64_t i = 0; i < s->n; i++) all[k].out.end[i] = NEVER;
}

/* Times of all instructions, where `cores` cores run them at the same time, each with queues of its
 * own, and the memories of the bits of `shared` are one for all. An instruction begins when the one
 * before it has left the queue's unit, and what it waits for, results of its queue and its banks
 * are there; it takes setup + max(busy, transfer) cycles, the transfer when the memories that it
 * goes through are free, first come first served; of those that come in the same cycle, those of
 * the core with the least number, of which what is fetched first, then the queue with the least
 * number. Its results, tokens and events are there `latency` cycles after it has left the unit and
 * found room for its tokens, in the order of the queue, in which none begins before that. Returns
 * the last cycle, -1 when the stream stops for good, or -2 when there is no memory. */
int64_t tw_events(const tw_sync *s, const tw_times *t, const tw_timeline *out,
                  const int64_t *members, const int64_t *first, int64_t cores, uint64_t shared) {
  core *all = calloc((size_t)cores, sizeof *all);
  if (!all) return -2;
  for (int32_t k = 0; k < cores; k++) {
    start(s, t, out, all, k, shared);
    look_ahead(s, t, &all[k], members, first);
  }
  for (int64_t left = cores * s->n; left > 0;) {
    core *best = all;
    for (int32_t k = 1; k < cores; k++)
      if (all[k].next.at < best->next.at) best = &all[k];
    if (best->next.queue == NOTHING) break;
    left += best->now.done;
    advance(s, t, &best->out, &best->now, members, first, &best->next);
    left -= best->now.done;
    look_ahead(s, t, best, members, first);
  }
  int64_t last = 0;
  for (int32_t k = 0; k < cores; k++)
    last = all[k].now.done < s->n || last < 0 ? -1 : most(last, all[k].now.last);
  free(all);
  return last;
}

/* Runs `count` streams that lie one behind the other: stream p has the instructions bounds[p] to
 * bounds[p + 1], which `members` and what they wait for number from 0, and queues of the depths
 * s->depth[p][queues]. `issuing` [count][7] says how each is issued and fetched, as tw_times from
 * `issue` to `arrival` does. Tokens, events, banks and `out` are of the longest, and used for each.
 * Writes the last cycle of every stream, or -1, to `found`; returns 0. */
int64_t tw_streams(const tw_sync *s, const tw_times *t, const tw_timeline *out,
                   const int64_t *members, const int64_t *first, int64_t count,
                   const int64_t *bounds, const int64_t *issuing, int64_t *found) {
  for (int64_t p = 0; p < count; p++) {
    const int64_t at = bounds[p], *issue = issuing + 7 * p;
    tw_sync sync = *s;
    sync.n = bounds[p + 1] - at;
    sync.queue = s->queue + at;
    sync.depth = s->depth + p * s->queues;
    tw_times times = *t;
    times.issue = issue[0], times.ahead = issue[1], times.burst = issue[2];
    times.source = (int32_t)issue[3];
    times.fetch = issue[4], times.rest = issue[5], times.arrival = issue[6];
    times.setup += at, times.busy += at, times.latency += at, times.forward += at;
    times.transfer += at * t->channels;
    times.need += at * s->queues;
    times.own += at * HAZARDS;
    found[p] = tw_events(&sync, &times, out, members + at, first + p * (s->queues + 1), 1, 0);
  }
  return 0;
}
