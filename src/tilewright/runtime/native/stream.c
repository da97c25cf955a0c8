/* Streams of instructions for chips with several in-order queues: what must wait for what,
 * whether the waits that are there suffice, and how long it all takes. Arrays in, arrays out; the
 * Python side is sim/engine.py and sim/events.py. All functions are linear in the instructions and
 * the memory cells they touch. */

#include <stdint.h>
#include <string.h>

enum { AXES = 5, MOST_QUEUES = 16 };

typedef struct tw_boxes {  /* what instructions touch, in the order of instructions */
  int64_t count;
  const int64_t *row;      /* the instruction */
  const int64_t *memory;
  const int64_t *start;    /* bytes */
  const int64_t *extents;  /* [count][AXES] */
  const int64_t *steps;    /* [count][AXES], bytes */
  const int64_t *width;    /* bytes of an element */
  const uint8_t *reads;
  const uint8_t *writes;
} tw_boxes;

typedef struct tw_cells {  /* one memory, in cells of `granule` bytes */
  int64_t count;
  int32_t *writer;         /* the last instruction that wrote each cell, or -1 */
  int32_t *readers;        /* [count][queues]: the last of each queue that read it, or -1 */
} tw_cells;

static void touch(const tw_boxes *b, int64_t k, int64_t granule, tw_cells *cells, int32_t queues,
                  const int32_t *queue, int32_t *need, int64_t from, int64_t to) {
  const int32_t i = (int32_t)b->row[k], q = queue[i];
  for (int64_t c = from / granule; c <= (to - 1) / granule; c++) {
    const int32_t w = cells->writer[c];
    if (w >= 0 && w != i && queue[w] != q && need[queue[w]] < w) need[queue[w]] = w;
    int32_t *readers = cells->readers + c * queues;
    if (b->writes[k]) {
      for (int32_t p = 0; p < queues; p++)
        if (p != q && readers[p] > need[p]) need[p] = readers[p];
      cells->writer[c] = i;
    }
    if (b->reads[k]) readers[q] = i;
  }
}

/* need[i][p]: the last instruction of queue p that must be done before instruction i may begin
 * (-1: none). Same-queue order is the queue's own business. Returns the number of the first
 * instruction that touches a byte outside of its memory, plus 1; else 0. */
int64_t tw_dependences(int64_t n, int32_t queues, const int32_t *queue, const tw_boxes *b,
                       int64_t granule, tw_cells *cells, int32_t *need) {
  for (int64_t k = 0; k < n * queues; k++) need[k] = -1;
  for (int64_t k = 0; k < b->count; k++) {
    const int64_t *e = b->extents + k * AXES, *s = b->steps + k * AXES;
    tw_cells *mine = cells + b->memory[k];
    for (int64_t v = 0; v < e[0]; v++)
     for (int64_t w = 0; w < e[1]; w++)
      for (int64_t x = 0; x < e[2]; x++)
       for (int64_t y = 0; y < e[3]; y++) {
        const int64_t from = b->start[k] + v * s[0] + w * s[1] + x * s[2] + y * s[3];
        if (s[4] == b->width[k]) {  /* contiguous along the last axis: one piece */
          const int64_t to = from + e[4] * b->width[k];
          if (from < 0 || (to - 1) / granule >= mine->count) return b->row[k] + 1;
          touch(b, k, granule, mine, queues, queue, need + b->row[k] * queues, from, to);
          continue;
        }
        for (int64_t z = 0; z < e[4]; z++) {
          const int64_t at = from + z * s[4], to = at + b->width[k];
          if (at < 0 || (to - 1) / granule >= mine->count) return b->row[k] + 1;
          touch(b, k, granule, mine, queues, queue, need + b->row[k] * queues, at, to);
        }
       }
  }
  return 0;
}

static void join(int32_t *clock, const int32_t *other, int32_t queues) {
  for (int32_t p = 0; p < queues; p++)
    if (clock[p] < other[p]) clock[p] = other[p];
}

/* The fewest waits that imply all needs: pops[i] has bit p if instruction i takes a token from
 * queue p, pushes[j] bit q if instruction j gives one to queue q when done. clock is [n][queues]
 * scratch: the last instruction of each queue known to be done when i begins. Tokens between two
 * queues are taken in the order they are given. Returns the number of waits between queues. */
int64_t tw_place_waits(int64_t n, int32_t queues, const int32_t *queue, const int32_t *need,
                       int32_t *clock, uint32_t *pops, uint32_t *pushes) {
  int32_t last[MOST_QUEUES];
  int64_t waits = 0;
  for (int32_t q = 0; q < queues; q++) last[q] = -1;
  memset(pops, 0, n * sizeof *pops);
  memset(pushes, 0, n * sizeof *pushes);
  for (int64_t i = 0; i < n; i++) {
    const int32_t q = queue[i];
    int32_t *mine = clock + i * queues;
    for (int32_t p = 0; p < queues; p++) mine[p] = -1;
    if (last[q] >= 0) {
      join(mine, clock + (int64_t)last[q] * queues, queues);
      mine[q] = last[q];
    }
    for (int32_t p = 0; p < queues; p++) {
      const int32_t j = need[i * queues + p];
      if (p == q || j <= mine[p]) continue;
      int implied = 0; /* by a wait for another queue, which itself came after j */
      for (int32_t r = 0; r < queues && !implied; r++) {
        const int32_t k = need[i * queues + r];
        if (r != p && r != q && k > mine[r] && clock[(int64_t)k * queues + p] >= j) implied = 1;
      }
      if (implied) continue;
      pops[i] |= 1u << p;
      pushes[j] |= 1u << q;
      waits++;
    }
    for (int32_t p = 0; p < queues; p++)
      if (pops[i] >> p & 1) {
        const int32_t j = need[i * queues + p];
        join(mine, clock + (int64_t)j * queues, queues);
        if (mine[p] < j) mine[p] = j;
      }
    last[q] = (int32_t)i;
  }
  return waits;
}

/* Whether given waits imply all needs. The k-th token taken is the k-th given. Writes to `found`
 * the instruction, the queue and the instruction it should have waited for. Returns 0: all is
 * well; 1: a need is not covered; 2: a token is taken that is given only later, or never. `given`
 * is [queues][queues][n] scratch, `taken` [queues][queues], `count` likewise. */
int32_t tw_check_waits(int64_t n, int32_t queues, const int32_t *queue, const int32_t *need,
                       const uint32_t *pops, const uint32_t *pushes, int32_t *clock,
                       int32_t *given, int64_t *count, int64_t *taken, int64_t *found) {
  int32_t last[MOST_QUEUES];
  for (int32_t q = 0; q < queues; q++) last[q] = -1;
  memset(count, 0, (size_t)queues * queues * sizeof *count);
  memset(taken, 0, (size_t)queues * queues * sizeof *taken);
  for (int64_t i = 0; i < n; i++) {
    const int32_t q = queue[i];
    int32_t *mine = clock + i * queues;
    for (int32_t p = 0; p < queues; p++) mine[p] = -1;
    if (last[q] >= 0) {
      join(mine, clock + (int64_t)last[q] * queues, queues);
      mine[q] = last[q];
    }
    for (int32_t p = 0; p < queues; p++) {
      if (!(pops[i] >> p & 1)) continue;
      const int64_t pair = (int64_t)p * queues + q, t = taken[pair]++;
      found[0] = i, found[1] = p, found[2] = -1;
      if (t >= count[pair]) return 2;
      const int32_t j = given[pair * n + t];
      join(mine, clock + (int64_t)j * queues, queues);
      if (mine[p] < j) mine[p] = j;
    }
    for (int32_t p = 0; p < queues; p++)
      if (p != q && need[i * queues + p] > mine[p]) {
        found[0] = i, found[1] = p, found[2] = need[i * queues + p];
        return 1;
      }
    for (int32_t r = 0; r < queues; r++)
      if (pushes[i] >> r & 1) {
        const int64_t pair = (int64_t)q * queues + r;
        given[pair * n + count[pair]++] = (int32_t)i;
      }
    last[q] = (int32_t)i;
  }
  return 0;
}

/* Times of all instructions, in cycles. An instruction enters its queue in program order, one a
 * cycle, when its queue holds fewer than `depth` that have not begun; it begins when the one before
 * it has left the unit and its tokens are there; it takes setup + max(busy, transfer) cycles, where
 * transfers of all queues share one channel, first come first served; its results and tokens are
 * there `latency` cycles after it has left the unit. Returns the last cycle, or -(i + 1) when
 * instruction i can never begin. `given` is [queues][queues][n] scratch for the times of tokens. */
int64_t tw_events(int64_t n, int32_t queues, const int32_t *queue, const int32_t *depth,
                  const uint32_t *pops, const uint32_t *pushes, const int64_t *setup,
                  const int64_t *busy, const int64_t *transfer, const int64_t *latency,
                  int64_t *given, int64_t *count, int64_t *taken, const int64_t *members,
                  const int64_t *first, int64_t *begin, int64_t *end) {
  int64_t head[MOST_QUEUES], unit[MOST_QUEUES];
  int64_t entered = 0, fetch = 0, channel = 0, last = 0, done = 0;
  memset(count, 0, (size_t)queues * queues * sizeof *count);
  memset(taken, 0, (size_t)queues * queues * sizeof *taken);
  int64_t arrived[MOST_QUEUES]; /* instructions that have entered each queue */
  for (int32_t q = 0; q < queues; q++) head[q] = unit[q] = arrived[q] = 0;
  while (done < n) {
    while (entered < n) { /* the fetch stops at the first whose queue is full */
      const int32_t q = queue[entered];
      if (arrived[q] - head[q] >= depth[q]) break;
      const int64_t room = arrived[q] - depth[q]; /* that one's beginning made the room */
      int64_t at = fetch;
      if (room >= 0 && begin[members[first[q] + room]] > at) at = begin[members[first[q] + room]];
      begin[entered] = fetch = at + 1; /* its arrival, until it begins */
      arrived[q]++;
      entered++;
    }
    int32_t best = -1;
    int64_t start = 0;
    for (int32_t q = 0; q < queues; q++) {
      if (head[q] >= arrived[q]) continue;
      const int64_t i = members[first[q] + head[q]];
      int64_t t = begin[i] > unit[q] ? begin[i] : unit[q];
      int ready = 1;
      for (int32_t p = 0; p < queues && ready; p++) {
        if (!(pops[i] >> p & 1)) continue;
        const int64_t pair = (int64_t)p * queues + q;
        if (taken[pair] >= count[pair]) ready = 0;
        else if (given[pair * n + taken[pair]] > t) t = given[pair * n + taken[pair]];
      }
      if (ready && (best < 0 || t < start)) best = q, start = t;
    }
    if (best < 0) { /* every queue waits for a token: name the first one's instruction */
      for (int32_t q = 0; q < queues; q++)
        if (head[q] < arrived[q]) return -(members[first[q] + head[q]] + 1);
    }
    const int64_t i = members[first[best] + head[best]++];
    for (int32_t p = 0; p < queues; p++)
      if (pops[i] >> p & 1) taken[(int64_t)p * queues + best]++;
    int64_t leave = start + setup[i] + busy[i];
    if (transfer[i] > 0) {
      const int64_t from = start + setup[i] > channel ? start + setup[i] : channel;
      channel = from + transfer[i];
      if (channel > leave) leave = channel;
    }
    begin[i] = start;
    end[i] = leave + latency[i];
    unit[best] = leave;
    for (int32_t r = 0; r < queues; r++)
      if (pushes[i] >> r & 1) {
        const int64_t pair = (int64_t)best * queues + r;
        given[pair * n + count[pair]++] = end[i];
      }
    if (end[i] > last) last = end[i];
    done++;
  }
  return last;
}
