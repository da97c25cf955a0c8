/* The contract between a compiled model and whatever runs it.
 *
 * A compiled model is one function, a tw_entry.  It gets everything through one tw_call and calls
 * back only tw_parallel and tw_now, so it runs alike under Python (pool.c), in a program of one's
 * own, and on a chip without an operating system (serial.c, built with -DTW_SERIAL).
 *
 * With TW_SERIAL this header needs a freestanding C11 compiler and nothing else.
 */
#ifndef TILEWRIGHT_RUNTIME_H
#define TILEWRIGHT_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tw_pool tw_pool;

/* A parallel region's body: does tasks [begin, end) of the region, which are one piece.
 *
 * worker, 0 <= worker < tw_pool_threads(pool), is the index of this worker's scratch.  No two
 * workers of one region share an index, but two regions that run at the same time do.  So scratch
 * belongs to a call: each call of a model has its own arena, and a worker's scratch lies there. */
typedef void (*tw_body)(void *context, int64_t begin, int64_t end, int64_t worker);

/* Runs body over the tasks [0, count), cut into pieces of `grain` tasks (the last may be shorter,
 * and a grain below 1 is 1), and returns when all are done.  The caller works too, as worker 0.
 *
 * The cut depends on count and grain alone, so a body may take begin / grain for its piece's number
 * and get the same sums with any number of threads.
 *
 * Everything runs here, in order, where there is nobody to share with or sharing could block: pool
 * is NULL, there is one piece, another thread is using the pool, or the process is a fork of the
 * one that made the pool.  A region inside a region of the same pool also runs here, under the
 * index of the worker that started it, so that scratch stays its own.  Never allocates or fails. */
void tw_parallel(tw_pool *pool, tw_body body, void *context, int64_t count, int64_t grain);

/* Threads of the pool, callers counted as one; 1 for NULL. */
int64_t tw_pool_threads(const tw_pool *pool);

/* Monotonic nanoseconds. */
int64_t tw_now(void);

/* What one call of a compiled model gets.  It may change nothing here. */
typedef struct tw_call {
  void *const *memories; /* base address of each memory of the plan: constants, one arena per
                            device, then inputs, then outputs */
  const int64_t *dims;   /* values of the model's symbolic dimensions */
  tw_pool *pool;         /* for tw_parallel; NULL: serial */
  /* Runs an operator that the caller supplies, by its number in the model's table; 0, or an error
     code that makes the step fail.  NULL when the model has none. */
  int32_t (*host_call)(void *host, int32_t function, void *const *buffers, const int64_t *dims);
  void *host;            /* handed to host_call, otherwise not looked at */
  int64_t *times;        /* NULL, or room for steps + 1 time stamps: before each, after the last */
} tw_call;

/* A compiled model: 0, or the failing step's number + 1.  It keeps no state between calls, so any
 * number of calls may run at the same time. */
typedef int32_t (*tw_entry)(const tw_call *call);

#ifndef TW_SERIAL

enum { TW_MAX_THREADS = 1024 };

/* Starts a pool of 1..TW_MAX_THREADS threads, the caller counted; NULL (and errno) on failure. */
tw_pool *tw_pool_create(int64_t threads);

/* Stops the threads and frees the pool.  No call may be using it, or use it afterwards. */
void tw_pool_destroy(tw_pool *pool);

/* Memory for arenas and constants, at an address divisible by 64; from 4 MiB on divisible by 2 MiB
 * and in huge pages where the system has them.  Its contents are not set.  NULL on failure. */
void *tw_allocate(size_t bytes);

/* Gives it back; bytes as asked for. */
void tw_release(void *memory, size_t bytes);

#endif

#ifdef __cplusplus
}
#endif

#endif
