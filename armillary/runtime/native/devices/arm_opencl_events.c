/* How long kernels take on an OpenCL device, by its own clock.
 *
 * In: a switch; then launches. Out: seconds of all kernels since they were asked for last. Invariant: while nothing is
 * watched no times are noted, which costs a little on some drivers; a kernel that is watched runs alone, in a queue of its
 * own, after all that was asked for before it, and is waited for.
 */
#include <stdio.h>
#include <stdlib.h>

#include "arm_opencl.h"

static void forget_events(arm_cl_state *s) {
  for (int32_t i = 0; i < s->num_events; i++) (void)arm_cl()->clReleaseEvent(s->events[i]);
  s->num_events = 0;
}

int arm_cl_watch(int32_t id, int on, arm_error *error) {
  arm_cl_state *s = arm_cl_open(id, error);
  cl_int code;
  if (s == NULL) return -1;
  forget_events(s);
  if (on && s->watched == NULL) {
    s->watched = arm_cl()->clCreateCommandQueue(s->context, s->device, CL_QUEUE_PROFILING_ENABLE, &code);
    if (arm_cl_check(code, "making a queue that notes times", error) != 0) return -1;
  }
  s->is_watched = on;
  return 0;
}

/* The event of a launch; it is ours to release. */
static void note(arm_cl_state *s, cl_event event) {
  if (s->num_events == s->room_events) {
    int32_t room = s->room_events ? 2 * s->room_events : 64;
    cl_event *more = realloc(s->events, sizeof *more * (size_t)room);
    if (more == NULL) {
      (void)arm_cl()->clReleaseEvent(event); /* its time is not counted */
      return;
    }
    s->events = more;
    s->room_events = room;
  }
  s->events[s->num_events++] = event;
}

int arm_cl_launch_watched(arm_cl_state *s, cl_kernel kernel, const char *name, const size_t *all, const size_t *items,
                          arm_error *error) {
  cl_event event = NULL;
  char what[160];
  snprintf(what, sizeof what, "launching kernel %.100s", name);
  if (arm_cl_wait(s, what, error) != 0) return -1;
  cl_int code = arm_cl()->clFinish(s->queue);
  if (code == CL_SUCCESS)
    code = arm_cl()->clEnqueueNDRangeKernel(s->watched, kernel, 3, NULL, all, items, 0, NULL, &event);
  if (code == CL_SUCCESS) code = arm_cl()->clFlush(s->watched);
  if (code != CL_SUCCESS) return arm_cl_check(code, what, error);
  arm_cl_note(s, name, NULL);
  int status = arm_cl_wait_event(s, event, "running it alone", error);
  s->launched = 0;
  if (s->late != NULL) return status; /* which keeps the event */
  note(s, event);
  return status;
}

int arm_cl_elapsed(int32_t id, double *seconds, arm_error *error) {
  arm_cl_state *s = arm_cl_open(id, error);
  if (s == NULL) return -1;
  *seconds = 0;
  cl_int code = CL_SUCCESS;
  for (int32_t i = 0; i < s->num_events && code == CL_SUCCESS; i++) {
    cl_ulong start = 0, end = 0;
    code = arm_cl()->clGetEventProfilingInfo(s->events[i], CL_PROFILING_COMMAND_START, sizeof start, &start, NULL);
    if (code == CL_SUCCESS)
      code = arm_cl()->clGetEventProfilingInfo(s->events[i], CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
    *seconds += end > start ? (double)(end - start) * 1e-9 : 0;
  }
  forget_events(s);
  return arm_cl_check(code, "asking how long kernels took", error);
}
