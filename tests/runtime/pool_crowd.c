/* Two threads of a pool, for twenty seconds at most, while a thread that is none of it spins on the worker's CPU.
 * Compiled with -Dsched_yield=counted_yield: prints how often the worker gave up its CPU (three times are enough), and
 * "wrong" if an iteration was not done. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arm_internal.h"

#define EXTENT 64

static _Atomic int is_over;
static _Atomic long given_up;
static pthread_t caller;

int counted_yield(void) {
  if (!pthread_equal(pthread_self(), caller)) atomic_fetch_add(&given_up, 1);
  return (int)syscall(SYS_sched_yield);
}

static void *spin(void *cpus) {
  pthread_setaffinity_np(pthread_self(), sizeof(cpu_set_t), cpus);
  while (!atomic_load(&is_over)) {
  }
  return NULL;
}

static int32_t kernel(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  (void)vars, (void)thread;
  for (int64_t i = begin; i < end; i++) {
    double x = (double)i;
    for (int k = 0; k < 2000; k++) x = x * 0.999 + 1;
    ((double *)data[0])[i] += x > 0;
  }
  return 0;
}

int main(void) {
  char error[256];
  double done[EXTENT] = {0}, jobs = 0;
  void *data[1] = {done};
  cpu_set_t allowed, second;
  caller = pthread_self();
  sched_getaffinity(0, sizeof allowed, &allowed);
  CPU_ZERO(&second);
  for (int cpu = 0, count = 0; cpu < CPU_SETSIZE && count < 2; cpu++)
    if (CPU_ISSET(cpu, &allowed) && ++count == 2) CPU_SET(cpu, &second);
  arm_pool *pool = arm_pool_create(2, 1, error, sizeof error); /* its worker is bound to the second CPU */
  pthread_t other;
  pthread_create(&other, NULL, spin, &second);
  for (double end = arm_now() + 20; atomic_load(&given_up) < 3 && arm_now() < end; jobs++)
    arm_pool_run(pool, kernel, data, NULL, EXTENT, 2);
  atomic_store(&is_over, 1);
  pthread_join(other, NULL);
  arm_pool_destroy(pool);
  for (int i = 0; i < EXTENT; i++)
    if (done[i] != jobs) return puts("wrong") < 0;
  printf("%ld\n", atomic_load(&given_up));
  return 0;
}
