/* A loop leaves other threads' graphs their CPUs. Prints how many threads of a pool of three took part in a loop of a
 * thread that is itself in a graph, and in one that it runs: alone, with one other thread in a graph, with two. */
#include "arm_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define THREADS 3
static _Atomic int taken_part[THREADS];
static arm_pool *pool;
static pthread_barrier_t inside;

static int taking_part(void) {
  int count = 0;
  for (int i = 0; i < THREADS; i++) count += atomic_load(&taken_part[i]);
  return count;
}

/* Each window lasts until all have come that can, or for five seconds if they do not. */
static int32_t stay(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  (void)data, (void)begin, (void)end;
  atomic_store(&taken_part[thread], 1);
  for (double start = arm_now(); taking_part() < vars[0] && arm_now() - start < 5;) continue;
  return 0;
}

static int threads_of_a_loop(int64_t wanted) {
  for (int i = 0; i < THREADS; i++) atomic_store(&taken_part[i], 0);
  if (arm_pool_run(pool, stay, NULL, &wanted, THREADS, THREADS) != 0) return -1;
  return taking_part();
}

static void *other(void *unused) {
  (void)unused;
  arm_pool_enter(pool);
  pthread_barrier_wait(&inside);
  pthread_barrier_wait(&inside);
  arm_pool_leave(pool);
  return NULL;
}

int main(void) {
  char error[256];
  pool = arm_pool_create(THREADS, 0, error, sizeof error);
  arm_pool_enter(pool);
  arm_pool_enter(pool); /* a graph that another one runs, in the same thread */
  for (int others = 0; others < THREADS; others++) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&inside, NULL, (unsigned)others + 1);
    for (int i = 0; i < others; i++) pthread_create(&threads[i], NULL, other, NULL);
    pthread_barrier_wait(&inside);
    printf("%d ", threads_of_a_loop(THREADS - others));
    pthread_barrier_wait(&inside);
    for (int i = 0; i < others; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&inside);
  }
  arm_pool_leave(pool);
  arm_pool_leave(pool);
  printf("%d\n", threads_of_a_loop(THREADS));
  arm_pool_destroy(pool);
  return 0;
}
