/* A fork-join thread pool for kernels.
 *
 * A job is one loop [0, extent), or a few that do not depend on one another. Each is split statically into one range
 * per thread. A thread takes its own ranges in windows, loop after loop, and then helps with what others left, so a
 * worker that is late, slow (a LITTLE core) or descheduled does not hold up the rest. Windows get smaller towards the
 * end of a range, so that threads end together (Polychronopoulos and Kuck, "Guided self-scheduling", 1987): with four
 * equal ones SqueezeNet and MobileNet take 1 % longer on two threads.
 *
 * A cache line takes 100 to 400 ns from one core to another, so what a worker needs to begin is on one line, `job`, and
 * what it changes on another, its seat, which nobody else writes unless it is late: opening a job does not wait, and a
 * worker waits for two lines. The word of a range tells how much of it is taken, in which generation (an older one than
 * the job's: nothing yet), and in the first loop whether its worker has entered the job or is too late for it.
 * A worker touches a job only between its entering and its `done`. The caller closes the seats of those that have not
 * entered and waits for the others, so nobody waits for a worker that never came. Idle workers spin, then park.
 *
 * Threads of another library may spin on a worker's CPU. The kernel then takes it from the worker for some milliseconds,
 * and where that happens within a window the caller waits as long. A worker that has lost its CPU gives it up by itself
 * from then on, between two jobs and well before its time slice ends: while it is away, others do its share.
 *
 * Calls that run side by side each have a thread of their own, which computes too: a job leaves those their CPUs.
 */
#define _GNU_SOURCE
#include "arm_internal.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/resource.h>
#endif
#include <unistd.h>

#define MAX_THREADS 1024
#define CACHE_LINE 128 /* two lines: adjacent-line prefetchers couple pairs */
#define COUNT_BITS 16  /* of `open`: threads of the job; above them its generation */
#define TAKEN_BITS 20  /* of a word: units that are taken; above them two flags and 42 bits of generation, which last */
#define ENTERED (UINT64_C(1) << TAKEN_BITS)
#define CLOSED (UINT64_C(2) << TAKEN_BITS)
#define GENERATION_SHIFT (TAKEN_BITS + 2)
#define MOST_UNITS ((INT64_C(1) << TAKEN_BITS) - 1)
#define SPIN_SECONDS 200e-6 /* longer than most callers take between two runs; waking a worker costs 20 us and more */
#define LOOK_SECONDS 300e-6   /* between two looks at how often a worker has lost its CPU: a system call each */
#define LOOK_JOBS 64          /* and that many jobs, between which a worker that is late never waits */
#define OFTEN_SECONDS 500e-3  /* between two losses of a CPU that others want, too */
#define SLICE_SECONDS 1.1e-3  /* that a worker keeps a CPU that others want; the kernel lets it 1.4 to 3 ms */
#define CROWDED_SECONDS 50e-3 /* without losing the CPU, or waiting for it, until it is its own again */
#define AWAY_SECONDS 50e-6    /* a yield that took longer: somebody else ran */
#define WINDOW_SHARE 3 /* a window is this part of what is left of its range */
#define LEAST_SHARE 32 /* and at least this part of the range */
#define STACK_BYTES ((size_t)8 << 20)

typedef struct {
  arm_loop loop;
  int64_t share;       /* iterations of a thread's range; */
  int32_t rest, first; /* of so many threads, from `first` on, one more */
} split_loop;

typedef struct {
  _Atomic uint64_t open; /* generation and threads; written last */
  int64_t num_loops;
  split_loop loops[ARM_MAX_LOOPS]; /* the first one ends the cache line */
} job;

typedef struct {
  _Alignas(CACHE_LINE) _Atomic uint64_t done; /* generation of the last job that the thread has entered and left */
  _Atomic uint64_t taken[ARM_MAX_LOOPS];
} seat;

typedef struct { arm_pool *pool; int index; pthread_t thread; } worker;

struct arm_pool {
  _Alignas(CACHE_LINE) job job;
  _Alignas(CACHE_LINE) _Atomic int sleepers;
  _Atomic int stop;
  _Atomic int caller_cpu; /* where the caller was when it last started or woke workers */
  seat *seats;            /* of each thread; the caller's is the first */
  _Alignas(CACHE_LINE) _Atomic int64_t failure; /* the first: its loop, and below that 32 bits of code; 0: none */
  _Alignas(CACHE_LINE) _Atomic int busy;
  _Atomic int threads;
  _Atomic int callers; /* threads that have entered */
  uint64_t generation; /* of the last job */
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

typedef struct { int64_t begin, length, unit; } range;

static range range_of(const split_loop *loop, int count, int thread) {
  int64_t before = (count - loop->first) % count, end = before + thread, wrapped = end - count, longer = 0;
  if (before < loop->rest) longer += (end < loop->rest ? end : loop->rest) - before;
  if (wrapped > 0) longer += wrapped < loop->rest ? wrapped : loop->rest;
  int64_t length = loop->share + (end % count < loop->rest);
  return (range){thread * loop->share + longer, length, length / MOST_UNITS + 1};
}

/* A range's word at the beginning of a job, or as it is now if somebody has touched it in this job. */
static inline uint64_t in_job(uint64_t word, uint64_t generation) {
  return word >> GENERATION_SHIFT == generation ? word : generation << GENERATION_SHIFT;
}

/* Units of the next window of a range. */
static inline int64_t window_of(const range *part, int64_t taken) {
  int64_t units = (part->length + part->unit - 1) / part->unit, left = units - taken;
  int64_t window = (left + WINDOW_SHARE - 1) / WINDOW_SHARE, least = (units + LEAST_SHARE - 1) / LEAST_SHARE;
  if (window < least) window = least;
  return left < window ? left : window;
}

static void run_window(arm_pool *pool, int loop, const range *part, int64_t taken, int64_t window, int self) {
  const arm_loop *run = &pool->job.loops[loop].loop;
  int64_t begin = taken * part->unit, end = begin + window * part->unit, none = 0;
  if (end > part->length) end = part->length;
  int32_t code = run->run(run->data, run->vars, part->begin + begin, part->begin + end, self);
  if (code != 0) atomic_compare_exchange_strong(&pool->failure, &none, (int64_t)loop << 32 | (uint32_t)code);
}

static void take(arm_pool *pool, uint64_t generation, int count, int loop, int owner, int self) {
  const memory_order relaxed = memory_order_relaxed;
  const range part = range_of(&pool->job.loops[loop], count, owner);
  _Atomic uint64_t *place = &pool->seats[owner].taken[loop];
  for (;;) {
    uint64_t word = atomic_load_explicit(place, relaxed), now;
    int64_t taken, window;
    do {
      now = in_job(word, generation);
      taken = (int64_t)(now & (uint64_t)MOST_UNITS);
      window = window_of(&part, taken);
      if (window == 0) return;
    } while (!atomic_compare_exchange_weak_explicit(place, &word, now + (uint64_t)window, relaxed, relaxed));
    run_window(pool, loop, &part, taken, window, self);
  }
}

static void work(arm_pool *pool, uint64_t generation, int count, int self) {
  for (int i = 0; i < count; i++)
    for (int loop = 0; loop < pool->job.num_loops; loop++)
      take(pool, generation, count, loop, (self + i) % count, self);
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

/* Whether `open` is of a job that a worker has a part in and has not seen. */
static inline int is_new(uint64_t open, uint64_t seen, int index) {
  return open >> COUNT_BITS != seen && index < (int)(open & ((1 << COUNT_BITS) - 1));
}

/* How often the kernel has taken the CPU from this thread. */
static long times_preempted(void) {
#if defined(__linux__) && defined(RUSAGE_THREAD)
  struct rusage used;
  return getrusage(RUSAGE_THREAD, &used) == 0 ? used.ru_nivcsw : 0;
#else
  return 0;
#endif
}

/* What a worker knows of its CPU. */
typedef struct {
  long preempted;
  unsigned jobs;
  double looked, lost, resumed; /* when it was last looked at, found to be lost, and got back */
  double crowded_until;         /* 0 while nobody else wants it */
} crowd;

/* Between two jobs or turns of waiting: find out whether others want the CPU, and let them have it in time. */
static void give_way(crowd *known, double now) {
  if (now - known->looked > LOOK_SECONDS) {
    long preempted = times_preempted();
    known->looked = now;
    if (preempted != known->preempted) {
      known->preempted = preempted;
      if (now - known->lost < OFTEN_SECONDS) { /* a daemon takes it now and then */
        known->crowded_until = now + CROWDED_SECONDS;
        known->resumed = now - SLICE_SECONDS; /* since when it runs is not known */
      }
      known->lost = now;
    } else if (now > known->crowded_until) {
      known->crowded_until = 0;
    }
  }
  if (known->crowded_until == 0 || now - known->resumed < SLICE_SECONDS) return;
  sched_yield();
  known->resumed = arm_now();
  if (known->resumed - now > AWAY_SECONDS) known->crowded_until = known->resumed + CROWDED_SECONDS;
}

/* Wait until there is a job (or stop); spin first, then sleep. Returns what its `open` says. */
static uint64_t wait_for_job(arm_pool *pool, uint64_t seen, int index, crowd *known) {
  double deadline = 0;
  if (known->crowded_until != 0 || ++known->jobs % LOOK_JOBS == 0) give_way(known, arm_now());
  for (unsigned turn = 0;; turn++) {
    uint64_t open = atomic_load_explicit(&pool->job.open, memory_order_acquire);
    if (is_new(open, seen, index) || atomic_load_explicit(&pool->stop, memory_order_relaxed)) return open;
    relax();
    if (turn % 64 != 63) continue;
    double now = arm_now();
    if (deadline == 0) deadline = now + SPIN_SECONDS;
    give_way(known, now);
    if (now < deadline) continue;
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    if (!is_new(atomic_load(&pool->job.open), seen, index) && !atomic_load(&pool->stop))
      pthread_cond_wait(&pool->wake, &pool->lock); /* once: the job may be over by now, but the next one is near */
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
    keep_off_the_caller(pool);
    deadline = 0;
  }
}

/* Whether a worker is in time for a job: its word is then the job's, or still that of an older one. */
static int enter(seat *own, uint64_t generation) {
  uint64_t word = atomic_load_explicit(&own->taken[0], memory_order_relaxed), now;
  do {
    now = in_job(word, generation);
    if (word >> GENERATION_SHIFT > generation || (now & CLOSED)) return 0;
  } while (!atomic_compare_exchange_weak_explicit(&own->taken[0], &word, now | ENTERED, memory_order_acquire,
                                                  memory_order_relaxed));
  return 1;
}

static void *worker_main(void *argument) {
  worker *self = argument;
  arm_pool *pool = self->pool;
  seat *own = &pool->seats[self->index];
  uint64_t seen = 0;
  crowd known = {.preempted = times_preempted()};
  keep_off_the_caller(pool);
  for (;;) {
    uint64_t open = wait_for_job(pool, seen, self->index, &known);
    if (atomic_load(&pool->stop)) return NULL;
    seen = open >> COUNT_BITS;
    if (!enter(own, seen)) continue;
    work(pool, seen, (int)(open & ((1 << COUNT_BITS) - 1)), self->index);
    atomic_store_explicit(&own->done, seen, memory_order_release);
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
  atomic_store_explicit(&pool->caller_cpu, current_cpu(), memory_order_relaxed);
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

/* Open a job: what is left over of one loop and of the next goes to different threads. The caller's first window is
 * taken before anybody sees the job, so that nothing here waits for another core. */
static range open_job(arm_pool *pool, const arm_loop *loops, int num_loops, int count, int64_t *window) {
  uint64_t generation = ++pool->generation, now;
  int first = 0; /* thread to get one more */
  for (int k = 0; k < num_loops; k++) {
    int rest = (int)(loops[k].extent % count);
    pool->job.loops[k] = (split_loop){loops[k], loops[k].extent / count, rest, first};
    first = (first + rest) % count;
  }
  pool->job.num_loops = num_loops;
  range part = range_of(&pool->job.loops[0], count, 0);
  *window = window_of(&part, 0);
  now = in_job(0, generation) + (uint64_t)*window;
  atomic_store_explicit(&pool->seats[0].taken[0], now, memory_order_relaxed);
  atomic_store_explicit(&pool->job.open, generation << COUNT_BITS | (uint64_t)count, memory_order_release);
  return part;
}

static void wake_sleepers(arm_pool *pool) {
  if (atomic_load_explicit(&pool->sleepers, memory_order_relaxed) == 0) return;
  atomic_store_explicit(&pool->caller_cpu, current_cpu(), memory_order_relaxed);
  pthread_mutex_lock(&pool->lock);
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->lock);
}

/* Close the seats of workers that have not come, wait for the others. */
static void join(arm_pool *pool, int count) {
  uint64_t generation = pool->generation;
  for (int i = 1; i < count; i++) {
    seat *of = &pool->seats[i];
    uint64_t word = atomic_load_explicit(&of->taken[0], memory_order_relaxed), now;
    while (!((now = in_job(word, generation)) & ENTERED))
      if (atomic_compare_exchange_weak_explicit(&of->taken[0], &word, now | CLOSED, memory_order_relaxed,
                                                memory_order_relaxed))
        break;
    if (!(now & ENTERED)) continue;
    for (unsigned turn = 0; atomic_load_explicit(&of->done, memory_order_acquire) != generation; turn++) {
      relax();
      if (turn % 4096 == 4095) sched_yield(); /* a worker may have lost its CPU */
    }
  }
}

static _Thread_local int entered; /* times this thread has: one graph may run another */

void arm_pool_enter(arm_pool *pool) {
  if (pool != NULL && entered++ == 0) atomic_fetch_add_explicit(&pool->callers, 1, memory_order_relaxed);
}

void arm_pool_leave(arm_pool *pool) {
  if (pool != NULL && --entered == 0) atomic_fetch_sub_explicit(&pool->callers, 1, memory_order_relaxed);
}

/* How many of so many threads' CPUs belong to calls of other threads. */
static int others(const arm_pool *pool, int threads) {
  int callers = atomic_load_explicit(&pool->callers, memory_order_relaxed) - (entered > 0);
  int spare = atomic_load_explicit(&pool->threads, memory_order_relaxed) - threads; /* that this loop has no use for */
  return callers > spare ? callers - spare : 0;
}

int32_t arm_pool_run_loops(arm_pool *pool, const arm_loop *loops, int count, int max_threads, int *failed) {
  int threads = pool == NULL ? 1 : atomic_load_explicit(&pool->threads, memory_order_relaxed);
  int64_t extent = 0, window;
  for (int k = 0; k < count; k++) extent += loops[k].extent;
  if (threads > max_threads) threads = max_threads;
  if (threads > extent) threads = (int)extent;
  if (threads > 1) threads -= others(pool, threads);
  if (threads <= 1) return run_inline(loops, count, failed);
  if (atomic_exchange_explicit(&pool->busy, 1, memory_order_acquire)) return run_inline(loops, count, failed);
  int limit = atomic_load(&pool->threads); /* may have been configured down meanwhile */
  if (pool->started < limit - 1) start_workers(pool);
  if (threads > limit) threads = limit;
  range part = open_job(pool, loops, count, threads, &window);
  wake_sleepers(pool);
  if (window > 0) run_window(pool, 0, &part, 0, window, 0);
  atomic_thread_fence(memory_order_seq_cst);
  wake_sleepers(pool); /* one that parked while the job opened: the fence orders that against what is read here */
  work(pool, pool->generation, threads, 0);
  join(pool, threads);
  int64_t failure = atomic_load_explicit(&pool->failure, memory_order_relaxed);
  if (failure != 0) atomic_store_explicit(&pool->failure, 0, memory_order_relaxed);
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

int32_t arm_pool_run_steps(arm_pool *pool, const arm_loop *steps, int count, int max_threads, int *failed) {
  for (int k = 0; k < count; k++) {
    int loop = 0;
    int32_t code = arm_pool_run_loops(pool, &steps[k], 1, max_threads, &loop);
    if (code == 0) continue;
    *failed = k;
    return code;
  }
  return 0;
}

/* fork(): the child has only the forking thread, so each pool forgets its workers and starts new ones when used. */
static void before_fork(void) { pthread_mutex_lock(&pools_lock); }
static void after_fork_parent(void) { pthread_mutex_unlock(&pools_lock); }
static void after_fork_child(void) {
  for (arm_pool *pool = pools; pool != NULL; pool = pool->next) {
    atomic_store(&pool->job.open, 0);
    atomic_store(&pool->sleepers, 0);
    atomic_store(&pool->busy, 0);
    atomic_store(&pool->callers, entered > 0);
    atomic_store(&pool->stop, 0);
    pool->started = 0;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
  }
  pthread_mutex_init(&pools_lock, NULL);
}
static void register_fork_handlers(void) { pthread_atfork(before_fork, after_fork_parent, after_fork_child); }

static int allocate(arm_pool *pool, int threads, arm_error *error) {
  seat *seats = NULL;
  worker *workers = arm_zalloc((size_t)threads, sizeof(worker));
  if (workers == NULL || posix_memalign((void **)&seats, CACHE_LINE, sizeof(seat) * (size_t)threads) != 0) {
    free(workers);
    return arm_fail(error, "thread pool: out of memory for %d threads", threads);
  }
  memset(seats, 0, sizeof(seat) * (size_t)threads);
  free(pool->seats);
  free(pool->workers);
  pool->seats = seats;
  pool->workers = workers;
  atomic_store(&pool->job.open, 0); /* the last job is over, and new workers have no part in it */
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
  free(pool->seats);
  free(pool->workers);
  free(pool);
}
