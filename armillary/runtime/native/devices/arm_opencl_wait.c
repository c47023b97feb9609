/* Waiting for an OpenCL device, for so long: a kernel that hangs is an error that names it.
 *
 * In: a device with launches in its queue; a limit in seconds. Out: 0 when all has ended. Invariant: whatever blocks waits
 * here first, so nothing blocks for ever; after a wait that took too long the device is asked nothing more until what it does
 * has ended. Each launch is noted where a limit was set, else the last one and the number of them are known.
 */
#define _POSIX_C_SOURCE 200809L
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arm_opencl.h"

#define USUAL 300.0  /* seconds for all kernels between two waits */
#define SPINS 2e-3   /* seconds of asking again and again: short networks are not slowed down */
#define PAUSE 1000000 /* nanoseconds between two questions, at most */

static double limit = USUAL;
static int is_exact;

void arm_opencl_limit_time(double seconds) {
  limit = seconds < 0 ? USUAL : seconds;
  is_exact = seconds > 0;
}

int arm_cl_notes_launches(void) { return is_exact; }

void arm_cl_note(arm_cl_state *s, const char *name, cl_event event) {
  pthread_mutex_lock(&s->lock);
  memcpy(s->last, name, sizeof s->last);
  s->launched++;
  if (event != NULL) {
    arm_cl_launched *place = &s->noted[s->num_noted % ARM_CL_NOTES];
    if (s->num_noted++ >= ARM_CL_NOTES) (void)arm_cl()->clReleaseEvent(place->event);
    place->event = event;
    memcpy(place->name, name, sizeof place->name);
  }
  pthread_mutex_unlock(&s->lock);
}

static cl_int status_of(cl_event event) {
  cl_int status = 1;
  cl_int code = arm_cl()->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
  return code == CL_SUCCESS ? status : code;
}

/* The status of an event that has ended (0, or an error below 0), or a number above 0 where it took too long. */
static cl_int wait_for(cl_event event) {
  double begin = arm_now();
  for (;;) {
    cl_int status = status_of(event);
    double spent = arm_now() - begin;
    if (status <= 0 || spent > limit) return status;
    double pause = spent * 1e9 / 64;
    struct timespec time = {0, pause < PAUSE ? (long)pause : PAUSE};
    if (spent < SPINS) sched_yield();
    else nanosleep(&time, NULL);
  }
}

static void forget_notes(arm_cl_state *s) {
  for (int32_t k = 0; k < s->num_noted && k < ARM_CL_NOTES; k++) (void)arm_cl()->clReleaseEvent(s->noted[k].event);
  s->num_noted = s->launched = 0;
}

/* The first launch that has not ended; NULL: unknown. */
static const char *culprit(const arm_cl_state *s) {
  int32_t first = s->num_noted > ARM_CL_NOTES ? s->num_noted - ARM_CL_NOTES : 0;
  for (int32_t k = first; k < s->num_noted; k++)
    if (status_of(s->noted[k % ARM_CL_NOTES].event) > 0) return s->noted[k % ARM_CL_NOTES].name;
  return NULL;
}

static int too_late(arm_cl_state *s, cl_event event, const char *what, arm_error *error) {
  pthread_mutex_lock(&s->lock);
  const char *name = culprit(s);
  int32_t count = s->launched;
  strcpy(s->late_name, name != NULL ? name : s->last);
  s->late = event;
  forget_notes(s);
  pthread_mutex_unlock(&s->lock);
  if (name != NULL || count <= 1)
    return arm_fail(error, "OpenCL: %s: %s: kernel %s did not end within %g s", s->name, what, s->late_name, limit);
  return arm_fail(error,
                  "OpenCL: %s: %s: kernel %s, or one of %d launched before it, did not end within %g s; with "
                  "ARMILLARY_DEVICE_TIMEOUT set each is watched",
                  s->name, what, s->late_name, count - 1, limit);
}

int arm_cl_is_free(arm_cl_state *s, arm_error *error) {
  pthread_mutex_lock(&s->lock);
  int is_late = s->late != NULL && status_of(s->late) > 0;
  if (s->late != NULL && !is_late) {
    (void)arm_cl()->clReleaseEvent(s->late);
    s->late = NULL;
  }
  pthread_mutex_unlock(&s->lock);
  if (!is_late) return 0;
  return arm_fail(error, "OpenCL: %s is still busy with kernel %s, which did not end within %g s; start the process again",
                  s->name, s->late_name, limit);
}

int arm_cl_wait(arm_cl_state *s, const char *what, arm_error *error) {
  cl_event marker = NULL;
  if (arm_cl_is_free(s, error) != 0) return -1;
  if (s->launched == 0 || limit == 0) return 0;
  cl_int code = arm_cl()->clEnqueueMarkerWithWaitList(s->queue, 0, NULL, &marker);
  if (code == CL_SUCCESS) code = arm_cl()->clFlush(s->queue);
  if (code == CL_SUCCESS) code = wait_for(marker);
  if (code > 0) return too_late(s, marker, what, error);
  if (marker != NULL) (void)arm_cl()->clReleaseEvent(marker);
  pthread_mutex_lock(&s->lock);
  forget_notes(s);
  pthread_mutex_unlock(&s->lock);
  return arm_cl_check_wait(s, code, what, error);
}

int arm_cl_wait_event(arm_cl_state *s, cl_event event, const char *what, arm_error *error) {
  cl_int code = limit == 0 ? CL_SUCCESS : wait_for(event);
  return code > 0 ? too_late(s, event, what, error) : arm_cl_check_wait(s, code, what, error);
}
