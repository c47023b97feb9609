/* What each thread does while a graph runs: the spans of time that it spends inside kernels.
 *
 * In: the bound calls of a run (arm_beside.c calls arm_bounds_trace in place of arm_bounds_run when its clock has a trace).
 * Out: rows of `arm_span`: the windows that threads ran, and after them the phases they are of, as the caller sees them,
 * fork and join included; phases that ran side by side share their time by what the threads spent in each.
 * Invariant: kernels, pool and windows are those of a plain run - the pool is given `window` as the kernel, which calls the
 * real one between two readings of the clock - and a run without a trace passes nothing of this file.
 */
#include "arm_graph.h"

typedef struct {
  const arm_loop *loop;
  arm_trace *trace;
  int32_t node, phase;
  _Atomic int64_t busy; /* ns of all threads */
} traced;

static void note(arm_trace *trace, arm_span span) {
  int64_t place = atomic_fetch_add_explicit(&trace->count, 1, memory_order_relaxed);
  if (place < trace->capacity) trace->spans[place] = span;
}

static int32_t window(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  traced *call = (void *)(uintptr_t)data;
  double start = arm_now() - call->trace->start;
  int32_t code = call->loop->run(call->loop->data, vars, begin, end, thread);
  double done = arm_now() - call->trace->start;
  atomic_fetch_add_explicit(&call->busy, (int64_t)((done - start) * 1e9), memory_order_relaxed);
  note(call->trace, (arm_span){start, done, call->node, call->phase, (int32_t)thread, 0});
  return code;
}

/* The phases of a step one after another, each as long as its share of the work. */
static void note_phases(arm_trace *trace, const traced *calls, int count, double start, double end) {
  int64_t all = 0, before = 0;
  for (int i = 0; i < count; i++) all += calls[i].busy;
  for (int i = 0; i < count; i++) {
    double from = start + (end - start) * (all > 0 ? (double)before / (double)all : (double)i / count);
    before += calls[i].busy;
    double to = start + (end - start) * (all > 0 ? (double)before / (double)all : (double)(i + 1) / count);
    note(trace, (arm_span){from, to, calls[i].node, calls[i].phase, ARM_WHOLE_PHASE, count - 1 - i});
  }
}

int32_t arm_bounds_trace(const arm_bound *const *bounds, const int32_t *nodes, int count, arm_pool *pool, int max_threads,
                         arm_trace *trace, int *failed) {
  arm_loop loops[ARM_MAX_LOOPS], around[ARM_MAX_LOOPS];
  traced calls[ARM_MAX_LOOPS];
  int owners[ARM_MAX_LOOPS], num_loops, loop = 0;
  for (int k = 0; (num_loops = arm_bounds_step(bounds, count, k, loops, owners)) > 0; k++) {
    for (int i = 0; i < num_loops; i++) {
      calls[i] = (traced){&loops[i], trace, nodes[owners[i]], k, 0};
      around[i] = (arm_loop){window, (void *const *)(const void *)&calls[i], loops[i].vars, loops[i].extent};
    }
    double start = arm_now() - trace->start;
    int32_t code = arm_pool_run_loops(pool, around, num_loops, max_threads, &loop);
    note_phases(trace, calls, num_loops, start, arm_now() - trace->start);
    *failed = owners[loop];
    if (code != 0) return code;
  }
  return 0;
}
