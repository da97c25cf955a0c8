/* A pool of threads that run the parallel regions of compiled models.
 *
 * A region is so many pieces, of which each thread has a share.  A thread takes the pieces of its
 * own share, one at a time, and then what is left of the others'.  The region is over when all are
 * done.
 *
 *   caller                                       worker
 *   takes the pool, or works alone               waits for a new region: spins a while, then sleeps
 *   writes the region, and counts it             takes pieces until none is left
 *   takes pieces until none is left              counts those that it did in `done`
 *   waits until the others are done
 *
 * Shares keep the cores apart: where these are far from each other, a cache line takes a quarter of
 * a microsecond from one to the other, and one counter for all pieces went back and forth for each.
 * A share is also the same part of the work in one region as in the next, whose operands then lie
 * in the caches of the core that made them.
 *
 * So a region never waits for a worker to wake up, nor for one that lost its CPU on the way to a
 * piece or from it: only for one that is in the middle of a piece.  Where that takes far longer
 * than the region does, something else runs on the worker's CPU.  The worker then rests, since the
 * next regions would wait for it again: one call in a thousand takes milliseconds, and not one in a
 * hundred.  Regions that are long themselves rather wait: their work is worth a worker's share.
 *
 * The region's fields are read only by who has a piece of it, and written only when all pieces of
 * the last one are done.  A piece is never of a region that is over, however long a worker slept
 * before it took it: what is taken of a share stands beside the number of the region, and of one
 * that is over all is taken.  No thread ever waits for a lock.
 */
#define _GNU_SOURCE
#include "tilewright_runtime.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#endif

/* Long enough to bridge the serial steps of a model, short enough not to count as load. */
#define SPIN_NANOSECONDS 50000

/* Workers are moved at most this often, so that callers on different CPUs do not chase them. */
#define PLACE_NANOSECONDS 1000000

/* A worker is late when the caller waits for it this much, and so many times what it worked itself.
 * It then rests so many times as long as the wait was, up to the longest. */
#define LATE_NANOSECONDS 200000
#define LATE_TIMES 20
#define REST_TIMES 16
#define REST_NANOSECONDS 100000000

enum { CACHE_LINE = 64 };

/* A region's number, of which the pool has no second, lies above the number of its pieces, or of
 * those that were taken of a share. */
enum { PIECE_BITS = 16, MOST_PIECES = (1 << PIECE_BITS) - 1 };

typedef struct worker {
  pthread_t thread;
  tw_pool *pool;
  int64_t index;
  int cpu;      /* the only one it may use; -1: any but the caller's */
  bool suspect; /* the caller's note: it had a piece when the caller began to sleep */
  _Alignas(CACHE_LINE) _Atomic uint64_t taken; /* of its share: the last region, and how many */
  atomic_bool busy;                            /* has pieces that are not counted yet */
  _Atomic int64_t rest_until;                  /* takes no piece before this time; 0: it may */
} worker;

/* What different threads write at the same time lies on cache lines of its own. */
struct tw_pool {
  _Alignas(CACHE_LINE) _Atomic uint64_t region; /* its number, and of how many pieces it is */
  _Atomic uint32_t regions;                     /* how many there were; it may wrap around */
  _Atomic uint32_t stop;                        /* workers shall end */
  tw_body body;                                 /* the region's fields */
  void *context;
  int64_t count, grain;

  _Alignas(CACHE_LINE) _Atomic uint64_t taken; /* of the caller's share */
  int64_t due;                                 /* so many pieces workers will have done */

  _Alignas(CACHE_LINE) _Atomic int64_t done; /* pieces that workers did, in all regions */
  _Atomic int64_t awaited;                   /* a sleeping caller waits for so many; -1: none */
  _Atomic uint32_t finished;                 /* changes when a sleeping caller shall look again */

  _Alignas(CACHE_LINE) atomic_bool in_use; /* some caller has a region here */
  _Atomic int64_t sleepers;                /* workers asleep, or about to be */

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

/* Waits a moment between two looks; false once it is time to sleep. */
static inline bool spin_on(const tw_pool *pool, spinner *spin) {
  relax();
  if (++spin->looks % 32 != 0) return pool->spin > 0;
  int64_t now = tw_now();
  if (spin->end == 0) spin->end = now + pool->spin;
  return now < spin->end;
}

/* ---- sleeping ------------------------------------------------------------------------------ */

/* Sleeps while *word is `seen`, and at most so long (below 0: no limit); or wakes up for no reason.
 * Whoever changes the word and then calls wake() is never missed. */
static void sleep_on(_Atomic uint32_t *word, uint32_t seen, int64_t nanoseconds);

static void wake(_Atomic uint32_t *word, int64_t threads);

#ifdef __linux__

static void sleep_on(_Atomic uint32_t *word, uint32_t seen, int64_t nanoseconds) {
  struct timespec limit = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, nanoseconds < 0 ? NULL : &limit, NULL, 0);
}

static void wake(_Atomic uint32_t *word, int64_t threads) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads < INT_MAX ? (int)threads : INT_MAX, NULL,
          NULL, 0);
}

#else

static pthread_mutex_t sleeping = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;

static void sleep_on(_Atomic uint32_t *word, uint32_t seen, int64_t nanoseconds) {
  struct timespec limit;
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += nanoseconds / 1000000000;
  limit.tv_nsec += nanoseconds % 1000000000;
  if (limit.tv_nsec >= 1000000000) {
    limit.tv_sec++;
    limit.tv_nsec -= 1000000000;
  }
  pthread_mutex_lock(&sleeping);
  if (atomic_load(word) == seen) {
    if (nanoseconds < 0) {
      pthread_cond_wait(&woken, &sleeping);
    } else {
      pthread_cond_timedwait(&woken, &sleeping, &limit);
    }
  }
  pthread_mutex_unlock(&sleeping);
}

static void wake(_Atomic uint32_t *word, int64_t threads) {
  (void)word;
  (void)threads;
  pthread_mutex_lock(&sleeping);
  pthread_cond_broadcast(&woken);
  pthread_mutex_unlock(&sleeping);
}

#endif

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

/* Where a thread is in taking pieces of a region: in which share, and how many it has seen. */
typedef struct taker {
  uint64_t region;
  int64_t share, shares;
} taker;

/* The first piece of a thread's share.  The caller's, which is the first, is never empty. */
static int64_t begin_of_share(const tw_pool *pool, uint64_t region, int64_t thread) {
  int64_t pieces = region & MOST_PIECES;
  return (thread * pieces + pool->threads - 1) / pool->threads;
}

/* Takes a piece of a thread's share: its number, and that there is one. */
static bool take_of_share(tw_pool *pool, uint64_t region, int64_t thread, int64_t *piece) {
  int64_t begin = begin_of_share(pool, region, thread);
  uint64_t none = region & ~(uint64_t)MOST_PIECES;
  uint64_t all = none + (uint64_t)(begin_of_share(pool, region, thread + 1) - begin);
  _Atomic uint64_t *taken = thread == 0 ? &pool->taken : &pool->workers[thread - 1].taken;
  uint64_t seen = atomic_load_explicit(taken, memory_order_relaxed);
  for (;;) {
    uint64_t now = seen < none ? none : seen; /* the share was of an earlier region */
    if (now >= all) return false;
    if (atomic_compare_exchange_weak(taken, &seen, now + 1)) {
      *piece = begin + (int64_t)(now - none);
      return true;
    }
  }
}

/* Takes a piece: its number, and that there is one.  The region's fields may be read from then on,
 * until the piece is counted as done. */
static bool take_piece(tw_pool *pool, taker *from, int64_t *piece) {
  for (; from->shares < pool->threads; from->shares++) {
    if (take_of_share(pool, from->region, from->share, piece)) return true;
    if (++from->share == pool->threads) from->share = 0;
  }
  return false;
}

static void run_piece(const tw_pool *pool, int64_t piece, int64_t worker) {
  int64_t begin = piece * pool->grain;
  int64_t left = pool->count - begin;
  pool->body(pool->context, begin, begin + (left < pool->grain ? left : pool->grain), worker);
}

/* In one total order, counting a region and then looking for sleepers, against a worker's counting
 * itself among them and then looking at the count: one of the two sees the other. */
static uint64_t open_region(tw_pool *pool, int64_t pieces) {
  uint64_t last = atomic_load_explicit(&pool->region, memory_order_relaxed) >> PIECE_BITS;
  uint64_t region = (last + 1) << PIECE_BITS | (uint64_t)pieces;
  atomic_store_explicit(&pool->region, region, memory_order_release);
  atomic_fetch_add(&pool->regions, 1);
  int64_t sleepers = atomic_load(&pool->sleepers), useful = pieces - 1;
  if (sleepers > 0) wake(&pool->regions, useful < sleepers ? useful : sleepers);
  return region;
}

/* Workers that have pieces now. */
static void note_suspects(tw_pool *pool) {
  for (int64_t i = 0; i < pool->threads - 1; i++) {
    worker *w = &pool->workers[i];
    w->suspect = atomic_load_explicit(&w->busy, memory_order_relaxed);
  }
}

/* Those that kept the caller waiting are left alone for a while. */
static void let_suspects_rest(tw_pool *pool, int64_t now, int64_t waited) {
  int64_t rest = waited < REST_NANOSECONDS / REST_TIMES ? waited * REST_TIMES : REST_NANOSECONDS;
  for (int64_t i = 0; i < pool->threads - 1; i++) {
    worker *w = &pool->workers[i];
    if (w->suspect) atomic_store_explicit(&w->rest_until, now + rest, memory_order_relaxed);
  }
}

/* Waits for the pieces that workers have; the caller began its own then. */
static void wait_for_others(tw_pool *pool, int64_t begun) {
  if (atomic_load_explicit(&pool->done, memory_order_acquire) == pool->due) return;
  int64_t worked = tw_now() - begun;
  spinner spin = {0};
  while (spin_on(pool, &spin)) {
    if (atomic_load_explicit(&pool->done, memory_order_acquire) == pool->due) return;
  }
  note_suspects(pool);
  int64_t start = tw_now();
  atomic_store(&pool->awaited, pool->due);
  for (;;) {
    uint32_t seen = atomic_load(&pool->finished);
    if (atomic_load(&pool->done) == pool->due) break;
    sleep_on(&pool->finished, seen, -1);
  }
  atomic_store(&pool->awaited, -1);
  int64_t now = tw_now(), waited = now - start;
  bool late = waited > LATE_NANOSECONDS && waited / LATE_TIMES > worked;
  if (late && pool->spin > 0) let_suspects_rest(pool, now, waited);
}

static void run_together(tw_pool *pool, tw_body body, void *context, int64_t count, int64_t grain,
                         int64_t pieces) {
  pool->body = body;
  pool->context = context;
  pool->count = count;
  pool->grain = grain;
  place_workers(pool);
  taker from = {.region = open_region(pool, pieces)};
  int64_t begun = tw_now(), own = 0;
  for (int64_t piece; take_piece(pool, &from, &piece); own++) run_piece(pool, piece, 0);
  pool->due += pieces - own;
  wait_for_others(pool, begun);
}

void tw_parallel(tw_pool *pool, tw_body body, void *context, int64_t count, int64_t grain) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  int64_t pieces = count / grain + (count % grain != 0);
  if (pieces > MOST_PIECES) {
    grain *= pieces / MOST_PIECES + 1;
    pieces = count / grain + (count % grain != 0);
  }
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
  if (atomic_exchange_explicit(&pool->in_use, true, memory_order_acquire)) {
    run_alone(body, context, count, grain, 0);
  } else {
    run_together(pool, body, context, count, grain, pieces);
    atomic_store_explicit(&pool->in_use, false, memory_order_release);
  }
  here.pool = outer_pool;
  here.worker = outer_worker;
}

int64_t tw_pool_threads(const tw_pool *pool) { return pool == NULL ? 1 : pool->threads; }

/* ---- workers ------------------------------------------------------------------------------- */

/* Waits until there were more regions than `seen`: how many.  One that is over counts: where one
 * was, another will be, and it is worth spinning on. */
static uint32_t wait_for_region(tw_pool *pool, uint32_t seen) {
  uint32_t regions;
  spinner spin = {0};
  do {
    regions = atomic_load_explicit(&pool->regions, memory_order_relaxed);
    if (regions != seen) return regions;
  } while (spin_on(pool, &spin));
  atomic_fetch_add(&pool->sleepers, 1);
  while ((regions = atomic_load(&pool->regions)) == seen) sleep_on(&pool->regions, seen, -1);
  atomic_fetch_sub(&pool->sleepers, 1);
  return regions;
}

static bool may_work(const worker *me) {
  return atomic_load_explicit(&me->rest_until, memory_order_relaxed) == 0;
}

static void take_pieces(tw_pool *pool, worker *me) {
  taker from = {.region = atomic_load(&pool->region), .share = me->index};
  int64_t own = 0;
  for (int64_t piece; may_work(me) && take_piece(pool, &from, &piece); own++) {
    if (own == 0) atomic_store_explicit(&me->busy, true, memory_order_relaxed);
    run_piece(pool, piece, me->index);
  }
  if (own == 0) return;
  atomic_store_explicit(&me->busy, false, memory_order_relaxed);
  int64_t done = atomic_fetch_add(&pool->done, own) + own;
  if (done == atomic_load(&pool->awaited)) {
    atomic_fetch_add(&pool->finished, 1);
    wake(&pool->finished, 1);
  }
}

/* Sleeps as long as the worker shall rest, if at all. */
static void rest(tw_pool *pool, worker *me) {
  int64_t until = atomic_load_explicit(&me->rest_until, memory_order_relaxed);
  if (until == 0) return;
  int64_t now;
  while (atomic_load(&pool->stop) == 0 && (now = tw_now()) < until) {
    sleep_on(&pool->stop, 0, until - now);
  }
  atomic_store_explicit(&me->rest_until, 0, memory_order_relaxed);
}

static void *work(void *argument) {
  worker *me = argument;
  tw_pool *pool = me->pool;
  here.pool = pool;
  here.worker = me->index;
  for (uint32_t seen = 0;;) {
    seen = wait_for_region(pool, seen);
    rest(pool, me);
    if (atomic_load(&pool->stop) != 0) return NULL;
    take_pieces(pool, me);
  }
}

/* ---- life ---------------------------------------------------------------------------------- */

static void stop_workers(tw_pool *pool, int64_t started) {
  atomic_store(&pool->stop, 1);
  atomic_fetch_add(&pool->regions, 1);
  wake(&pool->stop, started);
  wake(&pool->regions, started);
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
  atomic_init(&pool->awaited, -1);
  /* With fewer CPUs than threads, whoever spins takes a CPU from one that has work. */
  pool->spin = threads <= find_cpus(pool) ? SPIN_NANOSECONDS : 0;
  int error = start_workers(pool);
  if (error == 0) return pool;
  free(pool);
  errno = error;
  return NULL;
}

void tw_pool_destroy(tw_pool *pool) {
  if (pool == NULL) return;
  bool forked = pool->forks != atomic_load(&forks); /* then there are no threads to stop */
  if (!forked) stop_workers(pool, pool->threads - 1);
  free(pool);
}
