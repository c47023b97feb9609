/* Functions that kernels call by name, and that this process supplies: Python's, or those of a C program.
 *
 * In: a name and arguments, as a kernel wrote them on its stack. Out: 0 and a result, or ARM_PACKED_FAILED, whose text
 * arm_packed_failed gives. Invariant: a kernel has no other way out; its address stands behind the workspaces in the
 * kernel's data. A process without a handler fails every such call by name. The Python side: runtime/packed.py.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "arm_internal.h"

static _Atomic(arm_packed_fn) handler;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char told[1024]; /* of the last call that failed, on whichever thread */

void arm_packed_set(arm_packed_fn function) { handler = function; }

int32_t arm_packed_call(const char *name, const char *kinds, const int64_t *slots, int64_t *result) {
  char text[sizeof told];
  arm_packed_fn function = handler;
  text[0] = '\0';
  if (function != NULL && function(name, kinds, slots, result, text, sizeof text) == 0) return 0;
  if (function == NULL) (void)snprintf(text, sizeof text, "it calls the function %.200s, and nobody supplies functions here", name);
  pthread_mutex_lock(&lock);
  memcpy(told, text, sizeof told);
  pthread_mutex_unlock(&lock);
  return ARM_PACKED_FAILED;
}

int arm_packed_failed(const char *where, arm_error *error) {
  char text[sizeof told];
  pthread_mutex_lock(&lock);
  memcpy(text, told, sizeof text);
  pthread_mutex_unlock(&lock);
  text[sizeof text - 1] = '\0';
  return arm_fail(error, "%s: %s", where, text);
}
