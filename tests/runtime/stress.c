/* Stress for the C runtime: what `make sanitize` runs under the sanitizers.
 *
 * Several threads run regions on one pool, with regions inside them, and with pauses of all
 * lengths, so that workers spin, sleep and are woken; pools come and go.  Ends with 1 if a task was
 * lost.
 */
#define _GNU_SOURCE
#include "tilewright_runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLERS = 4, REGIONS = 300, INNER = 5 };

typedef struct region {
  tw_pool *pool;
  int64_t *outer; /* per task: not atomic, so that a task done twice at once is a race */
  int64_t *inner; /* per worker: not atomic either */
} region;

static void inner_body(void *context, int64_t begin, int64_t end, int64_t worker) {
  ((int64_t *)context)[worker] += end - begin;
}

static void outer_body(void *context, int64_t begin, int64_t end, int64_t worker) {
  region *r = context;
  (void)worker;
  for (int64_t i = begin; i < end; i++) r->outer[i]++;
  tw_parallel(r->pool, inner_body, r->inner, INNER, 2);
}

static void wait_nanoseconds(long nanoseconds) {
  struct timespec t = {0, nanoseconds};
  nanosleep(&t, NULL);
}

static void *call_many(void *pool) {
  for (int64_t n = 0; n < REGIONS; n++) {
    int64_t count = n * 7 % 97, grain = n % 5 + 1, pieces = (count + grain - 1) / grain;
    int64_t outer[97] = {0}, inner[TW_MAX_THREADS] = {0}, done = 0, nested = 0;
    region r = {pool, outer, inner};
    tw_parallel(pool, outer_body, &r, count, grain);
    for (int64_t i = 0; i < count; i++) done += outer[i] == 1;
    for (int64_t i = 0; i < tw_pool_threads(pool); i++) nested += inner[i];
    if (done != count || nested != pieces * INNER) {
      printf("region %d: %d of %d tasks done once, %d of %d inside\n", (int)n, (int)done,
             (int)count, (int)nested, (int)(pieces * INNER));
      exit(1);
    }
    if (n % 50 == 0) wait_nanoseconds(n * 2000);
  }
  return NULL;
}

/* A region whose workers lose their CPU in the middle of a piece, as it seems to the caller. */
static void late_body(void *context, int64_t begin, int64_t end, int64_t worker) {
  for (int64_t i = begin; i < end; i++) ((int64_t *)context)[i]++;
  if (worker > 0) wait_nanoseconds(20000000);
  for (int64_t until = tw_now() + 5000; tw_now() < until;) continue;
}

/* They are left to rest, and can be stopped meanwhile. */
static void call_with_late_workers(void) {
  enum { CALLS = 100 };
  int64_t tasks[64] = {0};
  tw_pool *pool = tw_pool_create(2);
  for (int n = 0; n < CALLS; n++) tw_parallel(pool, late_body, tasks, 64, 1);
  tw_pool_destroy(pool);
  for (int i = 0; i < 64; i++) {
    if (tasks[i] == CALLS) continue;
    printf("task %d was done %d times in %d regions\n", i, (int)tasks[i], CALLS);
    exit(1);
  }
}

int main(void) {
  call_with_late_workers();
  for (int64_t threads = 1; threads <= 9; threads++) {
    tw_pool *pool = tw_pool_create(threads);
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call_many, pool);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    tw_pool_destroy(pool);
  }
  for (int i = 0; i < 200; i++) tw_pool_destroy(tw_pool_create(i % 5 + 1));
  for (size_t bytes = 0; bytes < 40u << 20; bytes = bytes * 3 + 1) {
    char *memory = tw_allocate(bytes);
    for (size_t i = 0; i < bytes; i++) memory[i] = (char)i;
    tw_release(memory, bytes);
  }
  return 0;
}
