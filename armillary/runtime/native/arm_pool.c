/* A fork-join thread pool for kernels.
 *
 * A job is one loop [0, extent), or a few that do not depend on one another. Each is split statically into one range
 * per thread. A thread takes its own ranges in windows, loop after loop, and then helps with what others left, so a
 * worker that is late, slow (a LITTLE core) or descheduled does not hold up the rest. Windows get smaller towards the
 * end of a range, so that threads end together (Polychronopoulos and Kuck, "Guided self-scheduling", 1987): with four
 * equal ones SqueezeNet and MobileNet take 1 % longer on two threads.
 * A job opens and closes by one atomic word: active workers (bits 0-15), open (bit 16), generation.
 * A worker enters by adding 1 and may touch the job only if the word it got back was open; the caller closes the job
 * and waits for the count to fall to zero. So nobody waits for a worker that never came. Idle workers spin, then park.
 */
#define _GNU_SOURCE
#include "arm_internal.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 1024
#define CACHE_LINE 128 /* two lines: adjacent-line prefetchers couple pairs */
#define ACTIVE_MASK UINT64_C(0xFFFF)
#define OPEN_BIT (UINT64_C(1) << 16)
#define GENERATION (UINT64_C(1) << 17)
#define SPIN_SECONDS 200e-6 /* longer than most callers take between two runs; waking a worker costs 20 us and more */
#define WINDOW_SHARE 3 /* a window is this part of what is left of its range */
#define LEAST_SHARE 32 /* and at least this part of the range */
#define STACK_BYTES ((size_t)8 << 20)

typedef struct {
  _Atomic int64_t next;
  int64_t end, least;
  char pad[CACHE_LINE - 3 * sizeof(int64_t)];
} range;

typedef struct { arm_pool *pool; int index; pthread_t thread; } worker;

struct arm_pool {
  _Alignas(CACHE_LINE) _Atomic uint64_t state;
  _Alignas(CACHE_LINE) _Atomic int sleepers;
  _Alignas(CACHE_LINE) _Atomic int busy;
  _Alignas(CACHE_LINE) range *ranges; /* those of the first loop, a thread each, then those of the next */
  const arm_loop *loops;
  int num_loops, num_ranges; /* ranges of each loop */
  _Atomic int64_t failure;   /* of the first that failed: its loop, and below that 32 bits of code; 0: none */
  _Atomic int stop;
  _Atomic int caller_cpu; /* where the caller was when it opened the last job */
  _Atomic int threads;
  int bind, started;
  worker *workers;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  arm_pool *next;
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t pools_once = PTHREAD_ONCE_INIT;
static arm_pool *pools;

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

static void take(arm_pool *pool, int loop, range *part, int self) {
  const memory_order relaxed = memory_order_relaxed;
  const arm_loop *job = &pool->loops[loop];
  for (;;) {
    int64_t begin = atomic_load_explicit(&part->next, relaxed), end, none = 0;
    do {
      if (begin >= part->end) return;
      int64_t length = (part->end - begin + WINDOW_SHARE - 1) / WINDOW_SHARE;
      if (length < part->least) length = part->least;
      end = part->end - begin < length ? part->end : begin + length;
    } while (!atomic_compare_exchange_weak_explicit(&part->next, &begin, end, relaxed, relaxed));
    int32_t code = job->run(job->data, job->vars, begin, end, self);
    if (code != 0) atomic_compare_exchange_strong(&pool->failure, &none, (int64_t)loop << 32 | (uint32_t)code);
  }
}

static void work(arm_pool *pool, int self) {
  int count = pool->num_ranges;
  for (int i = 0; i < count; i++)
    for (int loop = 0; loop < pool->num_loops; loop++)
      take(pool, loop, &pool->ranges[loop * count + (self + i) % count], self);
}

static inline int current_cpu(void) {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

/* The kernel likes to wake a worker on its waker's CPU, where both would share it while another is idle (measured: 10 us
 * instead of 3 for two iterations of 2.5 us). A worker that finds itself there keeps off that CPU from then on. */
static void keep_off_the_caller(arm_pool *pool) {
#if defined(__linux__)
  cpu_set_t allowed;
  int cpu = atomic_load_explicit(&pool->caller_cpu, memory_order_relaxed);
  if (pool->bind || cpu < 0 || cpu >= CPU_SETSIZE || cpu != current_cpu()) return;
  if (sched_getaffinity(getpid(), sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  CPU_CLR(cpu, &allowed);
  if (CPU_COUNT(&allowed) > 0) (void)sched_setaffinity(0, sizeof allowed, &allowed);
#else
  (void)pool;
#endif
}

/* Wait until a job newer than `seen` is open (or stop); spin first, then sleep. Returns the state word. */
static uint64_t wait_for_job(arm_pool *pool, uint64_t seen) {
  double deadline = 0;
  for (unsigned turn = 0;; turn++) {
    uint64_t state = atomic_load_explicit(&pool->state, memory_order_acquire);
    if ((state & OPEN_BIT) && state / GENERATION != seen) return state;
    if (atomic_load_explicit(&pool->stop, memory_order_relaxed)) return state;
    relax();
    if (turn % 64 != 63) continue;
    double now = arm_now();
    if (deadline == 0) deadline = now + SPIN_SECONDS;
    if (now < deadline) continue;
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    state = atomic_load(&pool->state);
    if (!((state & OPEN_BIT) && state / GENERATION != seen) && !atomic_load(&pool->stop))
      pthread_cond_wait(&pool->wake, &pool->lock); /* once: the job may be over by now, but the next one is near */
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
    keep_off_the_caller(pool);
    deadline = 0;
  }
}

static void *worker_main(void *argument) {
  worker *self = argument;
  arm_pool *pool = self->pool;
  uint64_t seen = UINT64_MAX;
  keep_off_the_caller(pool);
  for (;;) {
    (void)wait_for_job(pool, seen);
    if (atomic_load(&pool->stop)) return NULL;
    uint64_t state = atomic_fetch_add_explicit(&pool->state, 1, memory_order_acq_rel);
    if (state & OPEN_BIT) {
      seen = state / GENERATION;
      if (self->index < pool->num_ranges) work(pool, self->index);
    }
    atomic_fetch_sub_explicit(&pool->state, 1, memory_order_release);
  }
}

static void pin(pthread_t thread, int index) {
#if defined(__linux__) && defined(__GLIBC__)
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == 0) return;
  int wanted = index % CPU_COUNT(&allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed) || wanted-- != 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)pthread_setaffinity_np(thread, sizeof one, &one);
    return;
  }
#else
  (void)thread;
  (void)index;
#endif
}

/* Start missing workers. Signals stay with the application's threads. Fewer than wanted is not an error. */
static void start_workers(arm_pool *pool) {
  sigset_t all, before;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int wanted = atomic_load(&pool->threads) - 1;
  while (pool->started < wanted) {
    worker *w = &pool->workers[pool->started];
    *w = (worker){pool, pool->started + 1, 0};
    if (pthread_create(&w->thread, &attributes, worker_main, w) != 0) break;
    if (pool->bind) pin(w->thread, w->index);
    pool->started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
}

static void stop_workers(arm_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  atomic_store(&pool->stop, 1);
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
  pool->started = 0;
  atomic_store(&pool->stop, 0);
}

static int32_t run_inline(const arm_loop *loops, int count, int *failed) {
  for (int k = 0; k < count; k++) {
    int32_t code = loops[k].extent > 0 ? loops[k].run(loops[k].data, loops[k].vars, 0, loops[k].extent, 0) : 0;
    if (code == 0) continue;
    *failed = k;
    return code;
  }
  return 0;
}

/* What is left over of one loop and of the next goes to different threads. */
static void split(arm_pool *pool, const arm_loop *loops, int num_loops, int count) {
  int first = 0; /* thread to get one more */
  for (int k = 0; k < num_loops; k++) {
    int64_t share = loops[k].extent / count, begin = 0;
    int rest = (int)(loops[k].extent % count);
    for (int i = 0; i < count; i++) {
      range *part = &pool->ranges[k * count + i];
      int64_t length = share + ((i - first + count) % count < rest);
      part->end = begin + length;
      part->least = (length + LEAST_SHARE - 1) / LEAST_SHARE;
      atomic_store_explicit(&part->next, begin, memory_order_relaxed);
      begin += length;
    }
    first = (first + rest) % count;
  }
  pool->loops = loops;
  pool->num_loops = num_loops;
  pool->num_ranges = count;
}

static void join(arm_pool *pool) {
  atomic_fetch_sub_explicit(&pool->state, OPEN_BIT, memory_order_acq_rel);
  for (unsigned turn = 0; atomic_load_explicit(&pool->state, memory_order_acquire) & ACTIVE_MASK; turn++) {
    relax();
    if (turn % 4096 == 4095) sched_yield(); /* a worker may have lost its CPU */
  }
}

int32_t arm_pool_run_loops(arm_pool *pool, const arm_loop *loops, int count, int max_threads, int *failed) {
  int threads = pool == NULL ? 1 : atomic_load_explicit(&pool->threads, memory_order_relaxed);
  int64_t extent = 0;
  for (int k = 0; k < count; k++) extent += loops[k].extent;
  if (threads > max_threads) threads = max_threads;
  if (threads > extent) threads = (int)extent;
  if (threads <= 1) return run_inline(loops, count, failed);
  if (atomic_exchange_explicit(&pool->busy, 1, memory_order_acquire)) return run_inline(loops, count, failed);
  int limit = atomic_load(&pool->threads); /* may have been configured down meanwhile */
  atomic_store_explicit(&pool->caller_cpu, current_cpu(), memory_order_relaxed);
  if (pool->started < limit - 1) start_workers(pool);
  atomic_store_explicit(&pool->failure, 0, memory_order_relaxed);
  split(pool, loops, count, threads < limit ? threads : limit);
  atomic_fetch_add(&pool->state, GENERATION + OPEN_BIT);
  if (atomic_load(&pool->sleepers) > 0) {
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
  }
  work(pool, 0);
  join(pool);
  int64_t failure = atomic_load_explicit(&pool->failure, memory_order_relaxed);
  atomic_store_explicit(&pool->busy, 0, memory_order_release);
  if (failure != 0) *failed = (int)(failure >> 32);
  return (int32_t)(uint32_t)failure;
}

int32_t arm_pool_run(arm_pool *pool, arm_phase_fn fn, void *const *data, const int64_t *vars, int64_t extent,
                     int max_threads) {
  const arm_loop loop = {fn, data, vars, extent};
  int failed;
  return arm_pool_run_loops(pool, &loop, 1, max_threads, &failed);
}

/* fork(): the child has only the forking thread, so each pool forgets its workers and starts new ones when used. */
static void before_fork(void) { pthread_mutex_lock(&pools_lock); }
static void after_fork_parent(void) { pthread_mutex_unlock(&pools_lock); }
static void after_fork_child(void) {
  for (arm_pool *pool = pools; pool != NULL; pool = pool->next) {
    atomic_store(&pool->state, 0);
    atomic_store(&pool->sleepers, 0);
    atomic_store(&pool->busy, 0);
    atomic_store(&pool->stop, 0);
    pool->started = 0;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
  }
  pthread_mutex_init(&pools_lock, NULL);
}
static void register_fork_handlers(void) { pthread_atfork(before_fork, after_fork_parent, after_fork_child); }

static int allocate(arm_pool *pool, int threads, arm_error *error) {
  size_t bytes = sizeof(range) * (size_t)threads * ARM_MAX_LOOPS;
  range *ranges = NULL;
  worker *workers = arm_zalloc((size_t)threads, sizeof(worker));
  if (workers == NULL || posix_memalign((void **)&ranges, CACHE_LINE, bytes) != 0) {
    free(workers);
    return arm_fail(error, "thread pool: out of memory for %d threads", threads);
  }
  memset(ranges, 0, bytes);
  free(pool->ranges);
  free(pool->workers);
  pool->ranges = ranges;
  pool->workers = workers;
  atomic_store(&pool->threads, threads);
  return 0;
}

arm_pool *arm_pool_create(int threads, int bind, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  arm_pool *pool = NULL;
  if (threads < 1 || threads > MAX_THREADS) {
    arm_fail(&error, "thread pool: %d threads; 1 to %d are possible", threads, MAX_THREADS);
    return NULL;
  }
  if (posix_memalign((void **)&pool, CACHE_LINE, sizeof *pool) != 0) {
    arm_fail(&error, "thread pool: out of memory");
    return NULL;
  }
  memset(pool, 0, sizeof *pool);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->wake, NULL);
  pool->bind = bind;
  if (allocate(pool, threads, &error) != 0) {
    free(pool);
    return NULL;
  }
  pthread_once(&pools_once, register_fork_handlers);
  pthread_mutex_lock(&pools_lock);
  pool->next = pools;
  pools = pool;
  pthread_mutex_unlock(&pools_lock);
  return pool;
}

static void acquire(arm_pool *pool) {
  while (atomic_exchange_explicit(&pool->busy, 1, memory_order_acquire)) sched_yield();
}

int arm_pool_configure(arm_pool *pool, int threads, int bind, char *err, size_t err_size) {
  arm_error error = {err, err_size};
  if (threads < 1 || threads > MAX_THREADS)
    return arm_fail(&error, "thread pool: %d threads; 1 to %d are possible", threads, MAX_THREADS);
  acquire(pool);
  stop_workers(pool);
  pool->bind = bind;
  int status = allocate(pool, threads, &error);
  atomic_store_explicit(&pool->busy, 0, memory_order_release);
  return status;
}

int arm_pool_threads(const arm_pool *pool) { return atomic_load(&pool->threads); }

void arm_pool_destroy(arm_pool *pool) {
  if (pool == NULL) return;
  acquire(pool);
  stop_workers(pool);
  pthread_mutex_lock(&pools_lock);
  for (arm_pool **link = &pools; *link != NULL; link = &(*link)->next) {
    if (*link != pool) continue;
    *link = pool->next;
    break;
  }
  pthread_mutex_unlock(&pools_lock);
  pthread_mutex_destroy(&pool->lock);
  pthread_cond_destroy(&pool->wake);
  free(pool->ranges);
  free(pool->workers);
  free(pool);
}
