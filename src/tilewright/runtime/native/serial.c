/* The runtime of a host with no threads and no operating system: regions are plain loops.
 *
 * Build with -DTW_SERIAL -ffreestanding, instead of pool.c.  A board that has a timer defines
 * tw_now itself; this one, which always says 0, gives way to it.
 */
#include "tilewright_runtime.h"

void tw_parallel(tw_pool *pool, tw_body body, void *context, int64_t count, int64_t grain) {
  (void)pool;
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  int64_t begin = 0;
  for (; count - begin > grain; begin += grain) body(context, begin, begin + grain, 0);
  body(context, begin, count, 0);
}

int64_t tw_pool_threads(const tw_pool *pool) {
  (void)pool;
  return 1;
}

__attribute__((weak)) int64_t tw_now(void) { return 0; }
