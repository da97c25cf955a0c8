/* What the instructions of a stream do to memory: which must wait for which, what is read before
 * anything has written it, and whose data are read when instructions run in another order. All
 * functions are linear in the cells that instructions touch; a cell is a piece of memory that each
 * touches wholly or not at all. */

#include "stream.h"

#include <string.h>

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    const int64_t r = a % b;
    a = b, b = r;
  }
  return a < 0 ? -a : a;
}

/* One box in normal form: steps positive, descending and none that repeats what others reach. */
static void normalize(int64_t axes, int64_t *start, int64_t *extents, int64_t *steps) {
  int64_t e[MOST_AXES], s[MOST_AXES], count = 1;
  e[0] = extents[axes - 1], s[0] = 1;
  for (int64_t d = 0; d < axes - 1; d++) {
    int64_t extent = extents[d], step = steps[d], at = count;
    if (extent == 1 || step == 0) continue;
    if (step < 0) *start += (extent - 1) * step, step = -step;
    for (; at > 1 && s[at - 1] > step; at--) s[at] = s[at - 1], e[at] = e[at - 1];
    s[at] = step, e[at] = extent, count++;
  }
  int64_t last = 0; /* an axis that continues the one inside of it becomes part of it */
  for (int64_t d = 1; d < count; d++) {
    if (s[d] % s[last] == 0 && e[last] * s[last] >= s[d]) {
      e[last] += (e[d] - 1) * (s[d] / s[last]);
    } else {
      last++;
      s[last] = s[d], e[last] = e[d];
    }
  }
  for (int64_t d = 0; d < axes; d++) {
    const int64_t from = axes - 1 - d;
    extents[d] = from <= last ? e[from] : 1;
    steps[d] = from <= last ? s[from] : 0;
  }
}

/* Brings all boxes to normal form, in place. Their last axis is the bytes of an element. Writes for
 * each memory the greatest number of bytes that divides all starts, runs and steps in it: the size
 * of its cells. */
void tw_normalize(tw_boxes *b, int64_t *granules) {
  for (int64_t k = 0; k < b->count; k++) {
    int64_t *e = b->extents + k * b->axes, *s = b->steps + k * b->axes;
    int64_t *granule = granules + b->memory[k];
    normalize(b->axes, b->start + k, e, s);
    *granule = gcd(*granule, gcd(b->start[k], e[b->axes - 1]));
    for (int64_t d = 0; d < b->axes - 1; d++) *granule = gcd(*granule, s[d]);
  }
}

/* ---- the cells of a box, run by run ---------------------------------------------------------- */

typedef struct walk {
  int64_t axes, at, run; /* bytes: where the next run begins, how long each is */
  const int64_t *extents, *steps;
  int64_t index[MOST_AXES];
} walk;

static inline walk walk_box(const tw_boxes *b, int64_t k) {
  walk w = {b->axes - 1, b->start[k], b->extents[k * b->axes + b->axes - 1],
            b->extents + k * b->axes, b->steps + k * b->axes, {0}};
  return w;
}

/* Goes on to the next run; 0 after the last. */
static inline int next_run(walk *w) {
  for (int64_t d = w->axes - 1; d >= 0; d--) {
    w->at += w->steps[d];
    if (++w->index[d] < w->extents[d]) return 1;
    w->at -= w->extents[d] * w->steps[d];
    w->index[d] = 0;
  }
  return 0;
}

typedef struct tw_cut { /* how a memory is cut into cells */
  int64_t count, granule;
  const int64_t *bounds; /* [count + 1]: where cells begin; NULL: each has `granule` bytes */
} tw_cut;

static int64_t cell_of(const tw_cut *cut, int64_t byte) {
  if (!cut->bounds) return byte / cut->granule;
  int64_t low = 0, high = cut->count;
  if (byte >= cut->bounds[high]) return high;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (cut->bounds[middle] <= byte) low = middle;
    else high = middle;
  }
  return low;
}

static int64_t first_byte(const tw_cut *cut, int64_t cell) {
  return cut->bounds ? cut->bounds[cell] : cell * cut->granule;
}

/* The cells of a run that lie in the memory: *first to *last. */
static inline void run_cells(const walk *w, const tw_cut *cut, int64_t *first, int64_t *last) {
  *first = w->at < 0 ? 0 : cell_of(cut, w->at);
  *last = w->at + w->run <= 0 ? -1 : cell_of(cut, w->at + w->run - 1);
  if (*last >= cut->count) *last = cut->count - 1;
}

/* ---- dependences ----------------------------------------------------------------------------- */

typedef struct tw_cells {  /* one memory */
  tw_cut cut;
  int32_t *writer;         /* the last instruction that wrote each cell, or -1 */
  int32_t *readers;        /* [count][queues]: the last of each queue that read it, or -1 */
} tw_cells;

typedef struct tw_needs { /* what tw_dependences finds */
  int32_t *others;  /* [n][queues] */
  int32_t *own;     /* [n][HAZARDS] */
  const uint8_t *hazard; /* [n]: how the queue itself treats a read of what instruction i wrote */
} tw_needs;

static void touch(const tw_cells *cells, int64_t c, int32_t i, int64_t queues,
                  const int32_t *queue, int reads, int writes, const tw_needs *needs) {
  const int32_t q = queue[i], w = cells->writer[c];
  int32_t *need = needs->others + (int64_t)i * queues;
  if (w >= 0 && queue[w] != q && need[queue[w]] < w) need[queue[w]] = w;
  if (w >= 0 && w != i && queue[w] == q && reads) {
    int32_t *own = needs->own + (int64_t)i * HAZARDS + needs->hazard[w];
    if (*own < w) *own = w;
  }
  int32_t *readers = cells->readers + c * queues;
  if (writes) {
    for (int32_t p = 0; p < queues; p++)
      if (p != q && readers[p] > need[p]) need[p] = readers[p];
    cells->writer[c] = i;
  }
  if (reads) readers[q] = i;
}

/* others[i][p]: the last instruction of another queue p that must be done before instruction i may
 * begin (-1: none). own[i][h]: the last instruction of its own queue whose results it reads, of
 * those that the queue treats as hazard[...] == h. A queue does things in order, so what is
 * overwritten in it is its own business. */
void tw_dependences(int64_t n, int64_t queues, const int32_t *queue, const tw_boxes *b,
                    const tw_cells *memories, const tw_needs *needs) {
  for (int64_t k = 0; k < n * queues; k++) needs->others[k] = -1;
  for (int64_t k = 0; k < n * HAZARDS; k++) needs->own[k] = -1;
  for (int64_t k = 0; k < b->count; k++) {
    const tw_cells *cells = memories + b->memory[k];
    const int32_t i = (int32_t)b->row[k];
    walk w = walk_box(b, k);
    do {
      int64_t c, last;
      run_cells(&w, &cells->cut, &c, &last);
      for (; c <= last; c++)
        touch(cells, c, i, queues, queue, b->reads[k], b->writes[k], needs);
    } while (next_run(&w));
  }
}

/* ---- who reads what an instruction wrote ----------------------------------------------------- */

typedef struct tw_uses {
  int32_t *use;   /* [n]: the first later instruction that reads what instruction i wrote */
  int32_t *limit; /* [n]: the first that must stay behind it, for any reason */
} tw_uses;

/* What cell c says of instruction i, which touches it: backwards, after all that follow it. */
static void look_ahead(const tw_cells *cells, int64_t c, int32_t i, int writes,
                       const tw_uses *uses) {
  const int32_t reader = cells->readers[c], writer = cells->writer[c];
  if (writer < uses->limit[i]) uses->limit[i] = writer;
  if (!writes) return;
  if (reader < uses->use[i]) uses->use[i] = reader;
  if (reader < uses->limit[i]) uses->limit[i] = reader;
}

static void touch_before(const tw_cells *cells, int64_t c, int32_t i, int reads, int writes,
                         int32_t none) {
  if (writes) cells->writer[c] = i, cells->readers[c] = none;
  if (reads) cells->readers[c] = i;
}

/* Both are n where there is no such instruction. The cells' writer and reader (of one queue) are
 * the next of each, n at first. */
void tw_first_uses(int64_t n, const tw_boxes *b, const int64_t *first, const tw_cells *memories,
                   const tw_uses *uses) {
  for (int64_t i = 0; i < n; i++) uses->use[i] = uses->limit[i] = (int32_t)n;
  for (int64_t i = n - 1; i >= 0; i--)
    for (int pass = 0; pass < 3; pass++) /* it looks ahead; it writes; it has read */
      for (int64_t k = first[i]; k < first[i + 1]; k++) {
        const tw_cells *cells = memories + b->memory[k];
        walk w = walk_box(b, k);
        do {
          int64_t c, last;
          run_cells(&w, &cells->cut, &c, &last);
          for (; c <= last; c++) {
            if (pass == 0) look_ahead(cells, c, (int32_t)i, b->writes[k], uses);
            else touch_before(cells, c, (int32_t)i, pass == 2 && b->reads[k],
                              pass == 1 && b->writes[k], (int32_t)n);
          }
        } while (next_run(&w));
      }
}

/* ---- shadow memory --------------------------------------------------------------------------- */

typedef struct tw_shadow { /* one memory */
  tw_cut cut;
  int32_t *writer; /* the instruction that wrote each cell last; -1: there from the beginning;
                      -2: nothing did */
} tw_shadow;

static inline uint64_t mixed(uint64_t x) {
  x ^= x >> 31, x *= 0x9e3779b97f4a7c15u, x ^= x >> 29, x *= 0xbf58476d1ce4e5b9u;
  return x ^ x >> 32;
}

/* Visits a box: a number that tells whose data it reads, and in *bare the first byte that nothing
 * has written (or -1); `writers`, if given, takes the writer of every cell read. */
static uint64_t visit(const tw_boxes *b, int64_t k, const tw_shadow *memories, int64_t *bare,
                      int32_t *writers) {
  const tw_shadow *cells = memories + b->memory[k];
  uint64_t digest = 0;
  walk w = walk_box(b, k);
  *bare = -1;
  do {
    int64_t c, last;
    run_cells(&w, &cells->cut, &c, &last);
    for (; c <= last; c++) {
      const int32_t writer = cells->writer[c];
      if (b->reads[k]) {
        digest += mixed((uint64_t)c << 32 ^ (uint32_t)writer);
        if (writer == -2 && *bare < 0) *bare = first_byte(&cells->cut, c);
        if (writers) *writers++ = writer;
      }
      if (b->writes[k]) cells->writer[c] = (int32_t)b->row[k];
    }
  } while (next_run(&w));
  return digest;
}

/* Runs the instructions of `order` on shadow memory; the boxes of instruction i are first[i] ..
 * first[i + 1]. digests[k] tells whose data box k reads. Stops at the first box that reads what
 * nothing has written, where `check` says so and exact[k] that every byte of it is read for
 * certain, or at the first whose digest is not the `expected` one; returns it, or -1 if there is
 * none. found[0] is the byte that nothing has written, or -1. */
int64_t tw_shadow_run(const tw_boxes *b, const tw_shadow *memories, int64_t count,
                      const int64_t *order, const int64_t *first, const uint8_t *exact,
                      int64_t check, const uint64_t *expected, uint64_t *digests, int64_t *found) {
  for (int64_t t = 0; t < count; t++)
    for (int64_t k = first[order[t]]; k < first[order[t] + 1]; k++) {
      digests[k] = visit(b, k, memories, found, NULL);
      if (check && found[0] >= 0 && exact[k]) return k;
      found[0] = -1;
      if (expected && digests[k] != expected[k]) return k;
    }
  return -1;
}

/* Runs the instructions of `order` until box k, and writes who wrote each cell that it reads, and
 * where those cells begin. */
void tw_writers(const tw_boxes *b, const tw_shadow *memories, const int64_t *order,
                const int64_t *first, int64_t k, int32_t *writers, int64_t *bytes) {
  const tw_shadow *cells = memories + b->memory[k];
  int64_t bare;
  for (int64_t t = 0;; t++)
    for (int64_t m = first[order[t]]; m < first[order[t] + 1]; m++) {
      visit(b, m, memories, &bare, m == k ? writers : NULL);
      if (m != k) continue;
      walk w = walk_box(b, k);
      do {
        int64_t c, last;
        run_cells(&w, &cells->cut, &c, &last);
        for (; c <= last; c++) *bytes++ = first_byte(&cells->cut, c);
      } while (next_run(&w));
      return;
    }
}

/* ---- data ------------------------------------------------------------------------------------ */

enum { MOST_OPERANDS = 32 };

typedef struct tw_code { /* instructions as functions of their fields and operands */
  int64_t fields, operands;  /* how many there are at most */
  const int32_t *site;       /* [n] */
  const int64_t *values;     /* [n][fields] */
  const int64_t *addresses;  /* [n][operands], bytes from the start of a memory */
  const int64_t *memory;     /* [sites][operands] */
  const int64_t *functions;  /* [sites] */
  const int64_t *lists;      /* [sites][operands], of micro-operations, or 0 */
} tw_code;

/* Runs `count` instructions in the given order (NULL: as they stand) on memories at these bases. */
void tw_run_stream(const tw_code *code, int64_t count, const int64_t *order,
                   const int64_t *bases) {
  typedef void (*function)(const int64_t *fields, char *const *operands, const int64_t *lists);
  char *operands[MOST_OPERANDS] = {0};
  for (int64_t t = 0; t < count; t++) {
    const int64_t i = order ? order[t] : t, s = code->site[i];
    const int64_t *memory = code->memory + s * code->operands;
    for (int64_t o = 0; o < code->operands; o++)
      operands[o] = (char *)(intptr_t)(bases[memory[o]] + code->addresses[i * code->operands + o]);
    ((function)(intptr_t)code->functions[s])(code->values + i * code->fields, operands,
                                                    code->lists + s * code->operands);
  }
}
