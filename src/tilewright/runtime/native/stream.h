/* Streams of instructions for chips with several in-order queues: what the functions of stream.c,
 * waits.c and events.c have in common. Arrays in, arrays out; the Python side is
 * runtime/stream_functions.py. */

#ifndef TILEWRIGHT_STREAM_H
#define TILEWRIGHT_STREAM_H

#include <stdint.h>

enum { PART = 2, MOST_AXES = 16, MOST_QUEUES = 16, MOST_EVENTS = 64, MOST_CHANNELS = 16 * 16 + 64 };

/* What a queue does when an instruction reads what an earlier one of the same queue wrote: it
 * stands still until the result is there; or until so many cycles after that one began; or
 * nothing. */
enum { STALL, FORWARD, EXPOSED, HAZARDS };

/* Boxes of bytes, in the order of instructions. Byte start + sum(i[d] * steps[d]) is touched for
 * all i[d] < extents[d]. In normal form (tw_normalize) the last axis is a run of single bytes. */
typedef struct tw_boxes {
  int64_t count, axes;
  const int64_t *row;    /* the instruction */
  const int64_t *memory;
  int64_t *start;        /* bytes from the start of the memory */
  int64_t *extents;      /* [count][axes], outermost first */
  int64_t *steps;        /* [count][axes], bytes */
  const uint8_t *reads;
  const uint8_t *writes;
} tw_boxes;

/* Instructions in queues, and how they wait for each other. Instruction i takes a token of every
 * queue p in pops[i] before it begins and gives one to every queue q in pushes[i] when it is done;
 * likewise it waits for the events in awaits[i] and sets those in sets[i]. Before instruction i
 * with barrier[i], all that stand before it are done. A queue begins and finishes its instructions
 * in order. They enter it in program order, while it holds fewer than depth[q] that have not
 * begun. Of one queue's tokens for another at most `room` are there that are not taken (0: any
 * number): an instruction that has none for its own stands at the end of its queue's unit. */
typedef struct tw_sync {
  int64_t n;
  int32_t queues, events, room;
  const int32_t *queue; /* [n] */
  const int32_t *depth; /* [queues] */
  const uint32_t *pops, *pushes;
  const uint64_t *awaits, *sets;
  const uint8_t *barrier; /* PART: it is not fetched before either */
} tw_sync;

/* Tokens and events are channels: the k-th taken is the k-th given. Writes the numbers of the
 * channels that instruction i takes from, or gives to, and returns how many there are. */
static inline int32_t tw_takes(const tw_sync *s, int64_t i, int32_t *channels) {
  int32_t count = 0;
  for (int32_t p = 0; p < s->queues && s->pops[i] >> p; p++)
    if (s->pops[i] >> p & 1) channels[count++] = p * s->queues + s->queue[i];
  for (int32_t e = 0; e < s->events && s->awaits[i] >> e; e++)
    if (s->awaits[i] >> e & 1) channels[count++] = s->queues * s->queues + e;
  return count;
}

static inline int32_t tw_gives(const tw_sync *s, int64_t i, int32_t *channels) {
  int32_t count = 0;
  for (int32_t q = 0; q < s->queues && s->pushes[i] >> q; q++)
    if (s->pushes[i] >> q & 1) channels[count++] = s->queue[i] * s->queues + q;
  for (int32_t e = 0; e < s->events && s->sets[i] >> e; e++)
    if (s->sets[i] >> e & 1) channels[count++] = s->queues * s->queues + e;
  return count;
}

/* Whether there is room for what instruction i gives, if so much has been given to each channel and
 * taken from it. */
static inline int tw_has_room(const tw_sync *s, int64_t i, const int64_t *given,
                              const int64_t *taken) {
  for (int32_t q = 0; s->room && q < s->queues && s->pushes[i] >> q; q++) {
    const int32_t c = s->queue[i] * s->queues + q;
    if (s->pushes[i] >> q & 1 && given[c] - taken[c] >= s->room) return 0;
  }
  return 1;
}

/* Where the things given to each channel lie in one array of all: base[c] .. base[c + 1]. */
static inline void tw_channel_bases(const tw_sync *s, int64_t *base) {
  const int32_t channels = s->queues * s->queues + s->events;
  int32_t found[MOST_CHANNELS];
  for (int32_t c = 0; c <= channels; c++) base[c] = 0;
  for (int64_t i = 0; i < s->n; i++)
    for (int32_t k = tw_gives(s, i, found); k-- > 0;) base[found[k] + 1]++;
  for (int32_t c = 0; c < channels; c++) base[c + 1] += base[c];
}

#endif
