/* The timed simulator: when every instruction of a stream begins and is done, and why not earlier.
 * No data. */

#include "stream.h"

typedef struct tw_times { /* cycles; arrays of n, or [n][columns] */
  int64_t issue;           /* that the issuer takes for each instruction */
  int32_t serial;          /* one instruction after another, waits or not */
  int32_t channels;        /* memories of limited bandwidth */
  const int64_t *setup, *busy, *latency;
  const int64_t *transfer; /* [n][channels]: how long its bytes take through each of them */
  const uint64_t *banks;   /* those that it uses, of all memories together */
  const int32_t *need;     /* [n][queues]: what it waits for by itself, or -1; NULL: nothing */
} tw_times;

typedef struct tw_timeline { /* cycles; arrays of n */
  int64_t *begin, *leave, *end;
  /* Of the time that its queue's unit stood still before it began: until it was issued, until what
   * it waits for was there, until its banks were free. And how much longer than its own work it
   * took because others used the memory's bandwidth. */
  int64_t *issue, *wait, *bank, *bandwidth;
  int64_t *cause;          /* the instruction that it waited for last, or -1 */
  int32_t *given;          /* scratch: the instructions that gave what went through channels */
} tw_timeline;

typedef struct state {
  int64_t head[MOST_QUEUES], held[MOST_QUEUES], unit[MOST_QUEUES], finished[MOST_QUEUES];
  int64_t base[MOST_CHANNELS + 1], count[MOST_CHANNELS], taken[MOST_CHANNELS];
  int64_t channel[MOST_QUEUES]; /* when each memory's bandwidth is free */
  int64_t bank[64];             /* when each bank is */
  int32_t holder[64];
  int64_t entered, fetched, done, last;
} state;

enum { NEVER = -1 };

/* Instructions enter their queues in program order, each `issue` cycles after the one before at
 * best, and stop at the first whose queue is full, or at a barrier. */
static void fetch(const tw_sync *s, const tw_times *t, const tw_timeline *out, state *now,
                  const int64_t *members, const int64_t *first) {
  while (now->entered < s->n) {
    const int32_t q = s->queue[now->entered];
    if (now->held[q] >= s->depth[q]) break;
    if (s->barrier[now->entered]) {
      if (now->done < now->entered) break;
      if (now->last > now->fetched) now->fetched = now->last;
    }
    const int64_t room = now->head[q] + now->held[q] - s->depth[q];
    if (room >= 0 && out->begin[members[first[q] + room]] > now->fetched)
      now->fetched = out->begin[members[first[q] + room]]; /* that one's beginning made the room */
    now->fetched += t->issue;
    out->issue[now->entered] = now->fetched; /* until it begins: when it entered */
    now->held[q]++, now->entered++;
  }
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

static int64_t banks_free(const tw_times *t, const state *now, int64_t i, int32_t q) {
  int64_t at = 0;
  for (uint64_t left = t->banks[i]; left; left &= left - 1) {
    const int b = __builtin_ctzll(left);
    if (now->holder[b] != q && now->bank[b] > at) at = now->bank[b];
  }
  return at;
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Begins instruction i of queue q: at `start`, what it waits for being there at `ready`. */
static void begin(const tw_sync *s, const tw_times *t, const tw_timeline *out, state *now,
                  int64_t i, int32_t q, int64_t ready, int64_t start) {
  const int64_t free = now->unit[q], issued = most(out->issue[i], free);
  const int64_t *transfer = t->transfer + i * t->channels;
  int64_t from = start + t->setup[i], moved = 0;
  int32_t found[MOST_CHANNELS];
  for (int32_t c = 0; c < t->channels; c++)
    if (transfer[c]) from = most(from, now->channel[c]), moved = most(moved, transfer[c]);
  for (int32_t c = 0; c < t->channels; c++)
    if (transfer[c]) now->channel[c] = from + transfer[c];
  const int64_t work = t->setup[i] + most(t->busy[i], moved);
  const int64_t leave = most(start + work, moved ? from + moved : 0);
  out->issue[i] = issued - free;
  out->wait[i] = most(ready, issued) - issued;
  out->bank[i] = start - most(ready, issued);
  out->bandwidth[i] = leave - start - work;
  out->begin[i] = start, out->leave[i] = leave;
  now->finished[q] = out->end[i] = most(leave + t->latency[i], now->finished[q]);
  now->unit[q] = leave;
  for (uint64_t left = t->banks[i]; left; left &= left - 1)
    now->bank[__builtin_ctzll(left)] = leave, now->holder[__builtin_ctzll(left)] = q;
  for (int32_t k = t->serial ? 0 : tw_takes(s, i, found); k-- > 0;) now->taken[found[k]]++;
  for (int32_t k = tw_gives(s, i, found); k-- > 0;)
    out->given[now->base[found[k]] + now->count[found[k]]++] = (int32_t)i;
  now->last = most(now->last, out->end[i]);
  now->head[q]++, now->held[q]--, now->done++;
}

/* Times of all instructions. An instruction begins when the one before it has left the queue's
 * unit, and what it waits for and its banks are there; it takes setup + max(busy, transfer) cycles,
 * the transfer when the memories that it goes through are free, first come first served. Its
 * results, tokens and events are there `latency` cycles after it has left the unit, in the order of
 * the queue. Returns the last cycle, or -(i + 1) when instruction i can never begin. */
int64_t tw_events(const tw_sync *s, const tw_times *t, const tw_timeline *out,
                  const int64_t *members, const int64_t *first) {
  state now = {0};
  tw_channel_bases(s, now.base);
  for (int32_t b = 0; b < 64; b++) now.holder[b] = -1;
  for (int64_t i = 0; i < s->n; i++) out->end[i] = NEVER;
  while (now.done < s->n) {
    fetch(s, t, out, &now, members, first);
    int32_t best = -1;
    int64_t start = 0, ready = 0, cause = -1, last = -1;
    for (int32_t q = 0; q < s->queues; q++) {
      if (!now.held[q]) continue;
      const int64_t i = members[first[q] + now.head[q]], at = waited(s, t, out, &now, i, &last);
      if (at == NEVER) continue;
      const int64_t issued = most(out->issue[i], now.unit[q]);
      const int64_t able = most(most(at, issued), banks_free(t, &now, i, q));
      if (best < 0 || able < start) best = q, start = able, ready = at, cause = last;
    }
    if (best < 0) { /* every queue waits: name the first one's instruction */
      for (int32_t q = 0; q < s->queues; q++)
        if (now.held[q]) return -(members[first[q] + now.head[q]] + 1);
      return -(now.entered + 1);
    }
    const int64_t i = members[first[best] + now.head[best]];
    begin(s, t, out, &now, i, best, ready, start);
    out->cause[i] = cause;
  }
  return now.last;
}
