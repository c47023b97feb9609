/* Callers that share one pool: jobs of one loop and of several, short, long and empty, with pauses in which workers park.
 * pool_stress THREADS CALLERS JOBS RECONFIGURATIONS: every iteration of every job runs once, or it ends with a message. */
#include "arm_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 3000, CALLERS = 16 };
static arm_pool *pool;
static int jobs;

static int32_t count(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  int *times = data[0];
  (void)thread;
  for (int64_t i = begin; i < end; i++) times[i]++;
  for (volatile int64_t k = 0; k < vars[0]; k++) {}
  return 0;
}

static void check(const int *times, const arm_loop *loop, int job) {
  for (int i = 0; i < MOST; i++) {
    if (times[i] == (i < loop->extent)) continue;
    printf("job %d: iteration %d of %d ran %d times\n", job, i, (int)loop->extent, times[i]);
    exit(1);
  }
}

static void *call(void *number) {
  unsigned seed = (unsigned)(size_t)number;
  int(*times)[MOST] = malloc(sizeof(int[ARM_MAX_LOOPS][MOST]));
  for (int job = 0; job < jobs; job++) {
    int num_loops = rand_r(&seed) % 2 ? 1 : 1 + rand_r(&seed) % ARM_MAX_LOOPS, failed = -1;
    int64_t wait = rand_r(&seed) % 3 ? 0 : rand_r(&seed) % 300;
    void *data[ARM_MAX_LOOPS];
    arm_loop loops[ARM_MAX_LOOPS];
    memset(times, 0, sizeof(int[ARM_MAX_LOOPS][MOST]));
    for (int k = 0; k < num_loops; k++) {
      data[k] = times[k];
      loops[k] = (arm_loop){count, &data[k], &wait, rand_r(&seed) % (rand_r(&seed) % 4 ? 40 : MOST)};
    }
    int most = 1 + rand_r(&seed) % 9, one_by_one = rand_r(&seed) % 4 == 0;
    if ((one_by_one ? arm_pool_run_steps : arm_pool_run_loops)(pool, loops, num_loops, most, &failed) != 0) exit(1);
    for (int k = 0; k < num_loops; k++) check(times[k], &loops[k], job);
    if (rand_r(&seed) % 200 == 0) usleep(rand_r(&seed) % 600);
  }
  free(times);
  return NULL;
}

int main(int argc, char **argv) {
  char error[200];
  pthread_t callers[CALLERS];
  if (argc != 5 || atoi(argv[2]) > CALLERS) return 2;
  pool = arm_pool_create(atoi(argv[1]), 0, error, sizeof error);
  jobs = atoi(argv[3]);
  for (int i = 0; i < atoi(argv[2]); i++) pthread_create(&callers[i], NULL, call, (void *)(size_t)(i + 1));
  for (int i = 0; i < atoi(argv[4]); i++) {
    usleep(20000);
    arm_pool_configure(pool, 1 + i % 6, 0, error, sizeof error);
  }
  for (int i = 0; i < atoi(argv[2]); i++) pthread_join(callers[i], NULL);
  arm_pool_destroy(pool);
  puts("ok");
  return 0;
}
