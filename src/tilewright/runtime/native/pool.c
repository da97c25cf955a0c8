/* A pool of threads that run the parallel regions of compiled models.
 *
 * One word, the gate, says everything: is a region open, which one, and how many workers are in it.
 *
 *   caller                                   worker
 *   takes the pool, or works alone           waits for an open gate: spins a while, then sleeps
 *   writes the region, opens the gate        enters: adds one to the gate if it is still open
 *   takes pieces until none is left          takes pieces until none is left
 *   closes the gate, waits for an empty one  leaves: takes one off the gate
 *
 * A worker that comes late finds the gate closed and goes on waiting.  So a region never waits for
 * a worker to wake up, only for one that is in the middle of a piece.
 *
 * A worker reads the region only between entering and leaving; the caller writes it only while the
 * gate is closed and empty.  The gate's atomic operations order the two.
 */
#define _GNU_SOURCE
#include "tilewright_runtime.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sched.h>
#include <stdio.h>
#endif

/* The gate's bits.  The region's number may wrap around: a worker that slept through that many
 * regions misses one, which costs nothing but its help. */
#define INSIDE 0x00000fffu /* workers in the region */
#define OPEN 0x00001000u   /* workers may enter */
#define STOP 0x00002000u   /* workers shall end */
#define NUMBER 0xffffc000u /* which region */
#define NEXT_NUMBER 0x00004000u

/* Long enough to bridge the serial steps of a model, short enough not to count as load. */
#define SPIN_NANOSECONDS 50000

/* Workers are moved at most this often, so that callers on different CPUs do not chase them. */
#define PLACE_NANOSECONDS 1000000

enum { CACHE_LINE = 64 };

typedef struct worker {
  pthread_t thread;
  tw_pool *pool;
  int64_t index;
  int cpu; /* the only one it may use; -1: any but the caller's */
} worker;

/* What different threads write at the same time lies on cache lines of its own. */
struct tw_pool {
  _Alignas(CACHE_LINE) _Atomic uint32_t gate;
  _Alignas(CACHE_LINE) _Atomic int64_t next; /* the next piece to take */

  _Alignas(CACHE_LINE) tw_body body; /* the region: its caller writes it, then opens the gate */
  void *context;
  int64_t count, grain, pieces;

  _Alignas(CACHE_LINE) atomic_bool taken; /* some caller has a region here */
  atomic_bool caller_sleeps;
  _Atomic int64_t sleepers; /* workers asleep, or about to be */
  pthread_mutex_t mutex;    /* held only to go to sleep and to wake up others */
  pthread_cond_t opened, emptied;

  int64_t threads;
  int64_t spin; /* nanoseconds to spin before sleeping */
  unsigned forks;
  int caller_cpu; /* the one that the workers keep off; -1: none yet */
  int64_t placed_at;
#ifdef __linux__
  cpu_set_t allowed; /* CPUs that whoever made the pool could use */
#endif
  worker workers[]; /* threads - 1 of them: the caller is the first thread */
};

/* The pool and index that this thread works under now. */
static _Thread_local struct {
  const tw_pool *pool;
  int64_t worker;
} here;

/* How often this process is a fork of a fork ...: a pool made before the last fork has lost its
 * threads.  Cheaper to look at than getpid(), which is a system call. */
static atomic_uint forks;

static void count_fork(void) { atomic_fetch_add(&forks, 1); }

static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

int64_t tw_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Tells the CPU that this thread only waits. */
static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ volatile("yield");
#endif
}

typedef struct spinner {
  int looks;
  int64_t end;
} spinner;

/* Waits a moment between two looks at the gate; false once it is time to sleep. */
static inline bool spin_on(const tw_pool *pool, spinner *spin) {
  relax();
  if (++spin->looks % 32 != 0) return pool->spin > 0;
  int64_t now = tw_now();
  if (spin->end == 0) spin->end = now + pool->spin;
  return now < spin->end;
}

/* ---- places -------------------------------------------------------------------------------- */

#ifdef __linux__

static int64_t find_cpus(tw_pool *pool) {
  CPU_ZERO(&pool->allowed);
  if (sched_getaffinity(0, sizeof pool->allowed, &pool->allowed) != 0) {
    return sysconf(_SC_NPROCESSORS_ONLN); /* more CPUs than a cpu_set_t holds */
  }
  return CPU_COUNT(&pool->allowed);
}

static void place_worker(tw_pool *pool, worker *w, int cpu) {
  cpu_set_t place = pool->allowed;
  if (cpu < 0) {
    CPU_CLR(pool->caller_cpu, &place);
  } else if (cpu == w->cpu) {
    return;
  } else {
    CPU_ZERO(&place);
    CPU_SET(cpu, &place);
  }
  w->cpu = cpu;
  pthread_setaffinity_np(w->thread, sizeof place, &place);
}

/* One worker for each CPU: worker n has the n-th, or the first if the caller sits on the n-th. */
static void place_one_each(tw_pool *pool) {
  int first = 0;
  while (!CPU_ISSET(first, &pool->allowed)) first++;
  for (int64_t i = 0, cpu = first; i < pool->threads - 1; i++) {
    do cpu++;
    while (!CPU_ISSET(cpu, &pool->allowed));
    place_worker(pool, &pool->workers[i], cpu == pool->caller_cpu ? first : (int)cpu);
  }
}

/* Keeps the workers off the caller's CPU.  Left alone, a kernel may wake a worker on the CPU of the
 * caller that woke it, and the two then take turns while another CPU idles: seen for seconds. */
static void place_workers(tw_pool *pool) {
  int cpu = sched_getcpu();
  if (cpu == pool->caller_cpu || pool->spin == 0) return;
  int64_t now = tw_now();
  if (now - pool->placed_at < PLACE_NANOSECONDS) return;
  pool->placed_at = now;
  pool->caller_cpu = cpu;
  if (CPU_COUNT(&pool->allowed) == pool->threads && CPU_ISSET(cpu, &pool->allowed)) {
    place_one_each(pool);
  } else {
    for (int64_t i = 0; i < pool->threads - 1; i++) place_worker(pool, &pool->workers[i], -1);
  }
}

#else

static int64_t find_cpus(tw_pool *pool) {
  (void)pool;
  return sysconf(_SC_NPROCESSORS_ONLN);
}

static void place_workers(tw_pool *pool) { (void)pool; }

#endif

/* ---- regions ------------------------------------------------------------------------------- */

static void run_alone(tw_body body, void *context, int64_t count, int64_t grain, int64_t worker) {
  int64_t begin = 0;
  for (; count - begin > grain; begin += grain) body(context, begin, begin + grain, worker);
  body(context, begin, count, worker);
}

static void take_pieces(tw_pool *pool, int64_t worker) {
  int64_t piece;
  while ((piece = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < pool->pieces) {
    int64_t begin = piece * pool->grain;
    int64_t left = pool->count - begin;
    pool->body(pool->context, begin, begin + (left < pool->grain ? left : pool->grain), worker);
  }
}

/* Opening the gate and then looking for sleepers, against a worker's counting itself among them and
 * then looking at the gate: in one total order, so that at least one of the two sees the other. */
static void open_gate(tw_pool *pool) {
  uint32_t gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
  atomic_store(&pool->gate, ((gate + NEXT_NUMBER) & NUMBER) | OPEN);
  int64_t sleepers = atomic_load(&pool->sleepers);
  if (sleepers == 0) return;
  /* Once the mutex was free, whoever missed the open gate is in pthread_cond_wait.  It is not held
     while waking them: each would wake up only to wait for it. */
  pthread_mutex_lock(&pool->mutex);
  pthread_mutex_unlock(&pool->mutex);
  int64_t useful = pool->pieces - 1;
  if (useful >= sleepers) {
    pthread_cond_broadcast(&pool->opened);
  } else {
    for (int64_t i = 0; i < useful; i++) pthread_cond_signal(&pool->opened);
  }
}

static void close_gate(tw_pool *pool) {
  if ((atomic_fetch_and(&pool->gate, ~OPEN) & INSIDE) == 0) return;
  spinner spin = {0};
  do {
    if ((atomic_load_explicit(&pool->gate, memory_order_acquire) & INSIDE) == 0) return;
  } while (spin_on(pool, &spin));
  pthread_mutex_lock(&pool->mutex);
  atomic_store(&pool->caller_sleeps, true);
  while (atomic_load(&pool->gate) & INSIDE) pthread_cond_wait(&pool->emptied, &pool->mutex);
  atomic_store(&pool->caller_sleeps, false);
  pthread_mutex_unlock(&pool->mutex);
}

static void run_together(tw_pool *pool, tw_body body, void *context, int64_t count, int64_t grain,
                         int64_t pieces) {
  pool->body = body;
  pool->context = context;
  pool->count = count;
  pool->grain = grain;
  pool->pieces = pieces;
  atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
  place_workers(pool);
  open_gate(pool);
  take_pieces(pool, 0);
  close_gate(pool);
}

void tw_parallel(tw_pool *pool, tw_body body, void *context, int64_t count, int64_t grain) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  int64_t pieces = count / grain + (count % grain != 0);
  bool nested = pool != NULL && here.pool == pool;
  if (nested || pool == NULL || pieces == 1 || pool->threads == 1 ||
      pool->forks != atomic_load_explicit(&forks, memory_order_relaxed)) {
    run_alone(body, context, count, grain, nested ? here.worker : 0);
    return;
  }
  const tw_pool *outer_pool = here.pool;
  int64_t outer_worker = here.worker;
  here.pool = pool;
  here.worker = 0;
  if (atomic_exchange_explicit(&pool->taken, true, memory_order_acquire)) {
    run_alone(body, context, count, grain, 0);
  } else {
    run_together(pool, body, context, count, grain, pieces);
    atomic_store_explicit(&pool->taken, false, memory_order_release);
  }
  here.pool = outer_pool;
  here.worker = outer_worker;
}

int64_t tw_pool_threads(const tw_pool *pool) { return pool == NULL ? 1 : pool->threads; }

/* ---- workers ------------------------------------------------------------------------------- */

/* Has anything happened since a worker saw the region `seen`?  A region that is over counts: where
 * one was, another will be, and it is worth spinning on. */
static bool is_news(uint32_t gate, uint32_t seen) {
  return (gate & STOP) || (gate & NUMBER) != seen;
}

static uint32_t wait_for_news(tw_pool *pool, uint32_t seen) {
  uint32_t gate;
  spinner spin = {0};
  do {
    gate = atomic_load_explicit(&pool->gate, memory_order_relaxed);
    if (is_news(gate, seen)) return gate;
  } while (spin_on(pool, &spin));
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->sleepers, 1);
  while (!is_news(gate = atomic_load(&pool->gate), seen)) {
    pthread_cond_wait(&pool->opened, &pool->mutex);
  }
  atomic_fetch_sub(&pool->sleepers, 1);
  pthread_mutex_unlock(&pool->mutex);
  return gate;
}

/* Enters the region that is open now, if any; *gate becomes what the gate was then. */
static bool enter(tw_pool *pool, uint32_t *gate) {
  while (*gate & OPEN) {
    if (atomic_compare_exchange_weak(&pool->gate, gate, *gate + 1)) return true;
  }
  return false;
}

static void leave(tw_pool *pool) {
  uint32_t gate = atomic_fetch_sub(&pool->gate, 1);
  bool last = (gate & (INSIDE | OPEN)) == 1;
  if (last && atomic_load(&pool->caller_sleeps)) {
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->emptied);
    pthread_mutex_unlock(&pool->mutex);
  }
}

static void *work(void *argument) {
  worker *me = argument;
  tw_pool *pool = me->pool;
  here.pool = pool;
  here.worker = me->index;
  uint32_t seen = 0;
  for (;;) {
    uint32_t gate = wait_for_news(pool, seen);
    if (gate & STOP) return NULL;
    if (enter(pool, &gate)) {
      take_pieces(pool, me->index);
      leave(pool);
    }
    seen = gate & NUMBER;
  }
}

/* ---- life ---------------------------------------------------------------------------------- */

static void stop_workers(tw_pool *pool, int64_t started) {
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_or(&pool->gate, STOP);
  pthread_cond_broadcast(&pool->opened);
  pthread_mutex_unlock(&pool->mutex);
  for (int64_t i = 0; i < started; i++) pthread_join(pool->workers[i].thread, NULL);
}

static int start_worker(tw_pool *pool, int64_t i) {
  worker *w = &pool->workers[i];
  *w = (worker){.pool = pool, .index = i + 1, .cpu = -1};
  int error = pthread_create(&w->thread, NULL, work, w);
#ifdef __linux__
  char name[16]; /* the longest that Linux keeps; seen in top -H, perf and gdb */
  snprintf(name, sizeof name, "tilewright-%d", (int)(i + 1) % 1000);
  if (error == 0) pthread_setname_np(w->thread, name);
#endif
  return error;
}

/* Signals are for the threads that the program made: its handlers do not expect to run here. */
static int start_workers(tw_pool *pool) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  int64_t started = 0;
  while (started < pool->threads - 1 && (error = start_worker(pool, started)) == 0) started++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error != 0) stop_workers(pool, started);
  return error;
}

static void free_pool(tw_pool *pool) {
  pthread_mutex_destroy(&pool->mutex);
  pthread_cond_destroy(&pool->opened);
  pthread_cond_destroy(&pool->emptied);
  free(pool);
}

tw_pool *tw_pool_create(int64_t threads) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  if (threads < 1 || threads > TW_MAX_THREADS) {
    errno = EINVAL;
    return NULL;
  }
  size_t bytes = sizeof(tw_pool) + (size_t)(threads - 1) * sizeof(worker);
  tw_pool *pool = aligned_alloc(CACHE_LINE, (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
  if (pool == NULL) return NULL;
  *pool = (tw_pool){.threads = threads, .forks = atomic_load(&forks), .caller_cpu = -1};
  /* With fewer CPUs than threads, whoever spins takes a CPU from one that has work. */
  pool->spin = threads <= find_cpus(pool) ? SPIN_NANOSECONDS : 0;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->opened, NULL);
  pthread_cond_init(&pool->emptied, NULL);
  int error = start_workers(pool);
  if (error == 0) return pool;
  free_pool(pool);
  errno = error;
  return NULL;
}

void tw_pool_destroy(tw_pool *pool) {
  if (pool == NULL) return;
  if (pool->forks != atomic_load(&forks)) {
    free(pool); /* in a fork: no threads to stop, and a mutex that one of them may have held */
    return;
  }
  stop_workers(pool, pool->threads - 1);
  free_pool(pool);
}
