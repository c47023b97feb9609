/* What each thread does while a graph runs: the spans of time that it spends inside kernels.
 *
 * In: the bound calls of a run (arm_graph.c calls arm_bound_trace in place of arm_bound_run when its clock has a trace).
 * Out: rows of `arm_span`: one for each phase as the caller sees it, fork and join included, and one for each window that a
 * thread ran. Invariant: kernels, pool and windows are those of a plain run - the pool is given `window` as the kernel,
 * which calls the real one between two readings of the clock - and a run without a trace passes nothing of this file.
 */
#include "arm_graph.h"

typedef struct {
  arm_phase_fn run;
  void *const *data;
  arm_trace *trace;
  int32_t node, phase;
} traced;

static void note(arm_trace *trace, arm_span span) {
  int64_t place = atomic_fetch_add_explicit(&trace->count, 1, memory_order_relaxed);
  if (place < trace->capacity) trace->spans[place] = span;
}

static int32_t window(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  const traced *call = (const void *)data;
  double start = arm_now() - call->trace->start;
  int32_t code = call->run(call->data, vars, begin, end, thread);
  note(call->trace, (arm_span){start, arm_now() - call->trace->start, call->node, call->phase, (int32_t)thread, 0});
  return code;
}

int32_t arm_bound_trace(const arm_bound *bound, arm_pool *pool, int max_threads, arm_trace *trace, int32_t node) {
  const arm_function *f = bound->function;
  for (int32_t k = 0; k < f->num_phases; k++) {
    traced call = {f->phases[k].run, bound->data, trace, node, k};
    double start = arm_now() - trace->start;
    int32_t code = arm_pool_run(pool, window, (void *const *)(const void *)&call, bound->vars, bound->extents[k],
                                max_threads);
    note(trace, (arm_span){start, arm_now() - trace->start, node, k, ARM_WHOLE_PHASE, 0});
    if (code != 0) return code;
  }
  return 0;
}
