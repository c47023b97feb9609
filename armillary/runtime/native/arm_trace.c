/* What each thread does while a graph runs: the spans of time that it spends inside kernels.
 *
 * In: the bound calls of a run (arm_concurrent.c calls arm_bounds_trace in place of arm_bounds_run when its clock has a trace).
 * Out: rows of `arm_span`: the windows that threads ran, and after them the phases they are of, as the caller sees them,
 * fork and join included; phases that ran side by side share their time by what the threads spent in each.
 * Invariant: kernels, pool and windows are those of a plain run - the pool is given `window` as the kernel, which calls the
 * real one between two readings of the clock - and a run without a trace passes nothing of this file. Threads note in
 * memory of their own: a counter of all of them would cost 4 us a kernel on two cores 300 ns apart.
 */
#define _GNU_SOURCE /* posix_memalign */
#include "arm_graph.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const arm_loop *loop;
  arm_trace *trace;
  int32_t node, phase;
  double busy; /* seconds of all threads */
} traced;

int arm_trace_open(arm_trace *trace, arm_span *spans, int64_t capacity, int threads, arm_error *error) {
  size_t bytes = sizeof(arm_noted) * (size_t)threads;
  *trace = (arm_trace){spans, capacity / threads, 0, NULL, threads};
  if (posix_memalign((void **)&trace->noted, _Alignof(arm_noted), bytes) != 0)
    return arm_fail(error, "trace: out of memory for %d threads", threads);
  memset(trace->noted, 0, bytes);
  return 0;
}

int64_t arm_trace_close(arm_trace *trace) {
  int64_t total = 0, most = 0;
  for (int i = 0; i < trace->threads; i++)
    if (trace->noted[i].count > most) most = trace->noted[i].count;
  for (int i = 0; i < trace->threads && most <= trace->room; i++) {
    memmove(trace->spans + total, trace->spans + i * trace->room, (size_t)trace->noted[i].count * sizeof(arm_span));
    total += trace->noted[i].count;
  }
  free(trace->noted);
  return most > trace->room ? most * trace->threads : total;
}

/* `by`: the thread that notes, which may not be whom the span is of. */
static void note(arm_trace *trace, int64_t by, arm_span span) {
  if (by >= trace->threads) return; /* the pool has got more of them meanwhile */
  int64_t place = trace->noted[by].count++;
  if (place < trace->room) trace->spans[by * trace->room + place] = span;
}

static int32_t window(void *const *data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  const traced *call = (const void *)data;
  double start = arm_now() - call->trace->start;
  int32_t code = call->loop->run(call->loop->data, vars, begin, end, thread);
  note(call->trace, thread,
       (arm_span){start, arm_now() - call->trace->start, call->node, call->phase, (int32_t)thread, 0});
  return code;
}

/* What the threads spent in each call since a step began: their last spans, until one that is of an earlier step. */
static void add_up(traced *calls, int count, double start) {
  const arm_trace *trace = calls[0].trace;
  for (int i = 0; i < trace->threads; i++) {
    int64_t last = trace->noted[i].count < trace->room ? trace->noted[i].count : trace->room;
    for (const arm_span *span = trace->spans + i * trace->room + last; last > 0 && (--span)->begin >= start; last--)
      for (int k = 0; k < count; k++)
        if (calls[k].node == span->node) calls[k].busy += span->end - span->begin;
  }
}

/* The phases of a step one after another, each as long as its share of the work. */
static void note_phases(arm_trace *trace, const traced *calls, int count, double start, double end) {
  double all = 0, before = 0;
  for (int i = 0; i < count; i++) all += calls[i].busy;
  for (int i = 0; i < count; i++) {
    double from = start + (end - start) * (all > 0 ? before / all : (double)i / count);
    before += calls[i].busy;
    double to = start + (end - start) * (all > 0 ? before / all : (double)(i + 1) / count);
    note(trace, 0, (arm_span){from, to, calls[i].node, calls[i].phase, ARM_WHOLE_PHASE, count - 1 - i});
  }
}

int32_t arm_bounds_trace(const arm_bound *const *bounds, const int32_t *nodes, int count, arm_pool *pool, int max_threads,
                         arm_trace *trace, int *failed) {
  arm_loop loops[ARM_MAX_LOOPS], around[ARM_MAX_LOOPS];
  traced calls[ARM_MAX_LOOPS];
  int owners[ARM_MAX_LOOPS], num_loops, loop = 0;
  *failed = 0;
  if (bounds[0]->offload != NULL) {
    double begin = arm_now() - trace->start;
    int32_t code = arm_offload_run(bounds[0]->offload, bounds[0]->data, pool, max_threads);
    note(trace, 0, (arm_span){begin, arm_now() - trace->start, nodes[0], 0, 0, 0});
    note(trace, 0, (arm_span){begin, arm_now() - trace->start, nodes[0], 0, ARM_WHOLE_PHASE, 0});
    return code;
  }
  for (int k = 0; (num_loops = arm_bounds_step(bounds, count, k, loops, owners)) > 0; k++) {
    for (int i = 0; i < num_loops; i++) {
      calls[i] = (traced){&loops[i], trace, nodes[owners[i]], k, 0};
      around[i] = (arm_loop){window, (void *const *)(const void *)&calls[i], loops[i].vars, loops[i].extent};
    }
    double start = arm_now() - trace->start;
    int32_t code = arm_pool_run_loops(pool, around, num_loops, max_threads, &loop);
    add_up(calls, num_loops, start);
    note_phases(trace, calls, num_loops, start, arm_now() - trace->start);
    *failed = owners[loop];
    if (code != 0) return code;
  }
  return 0;
}
