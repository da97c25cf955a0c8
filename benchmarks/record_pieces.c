/* tw_parallel as many_cores.py has it: runs a region's pieces one after the other, and notes when
 * each begins and ends, which is where the next begins: what lies between them is theirs. Regions
 * within a region are a part of its pieces. */

#include <stdint.h>
#include <time.h>

typedef void (*tw_body)(void *context, int64_t begin, int64_t end, int64_t worker);

static int64_t *notes; /* region, begin and end of each piece, in nanoseconds */
static int64_t room, used, regions, depth;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void record_into(int64_t *place, int64_t pieces) {
  notes = place;
  room = pieces;
  used = regions = 0;
}

/* Negative if there was no room for all. */
int64_t recorded(void) { return used <= room ? used : -1; }

void record_parallel(void *pool, tw_body body, void *context, int64_t count, int64_t grain) {
  (void)pool;
  if (grain < 1) grain = 1;
  int64_t start = now();
  for (int64_t begin = 0; begin < count; begin += grain) {
    depth++;
    body(context, begin, begin + grain < count ? begin + grain : count, 0);
    depth--;
    if (depth) continue;
    int64_t *note = notes + 3 * used, end = now();
    if (used++ < room) note[0] = regions, note[1] = start, note[2] = end;
    start = end;
  }
  if (!depth) regions++;
}
