/* The functions that compiled code may call, by name: this process's, and those of the C library that are in every build.
 *
 * In: a name. Out: an address, or NULL. Invariant: what the process has comes first, so that a library that was loaded
 * before its code is found; the table stands for programs that are linked statically, where the loader knows no names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arm_object.h"

typedef void (*function)(void);
typedef struct { const char *name; function address; } row;

#define ONE(name) {#name, (function)name}
#define BOTH(name) ONE(name), ONE(name##f)

static const row rows[] = {
    BOTH(exp),   BOTH(exp2),  BOTH(log),   BOTH(log2),  BOTH(log10), BOTH(log1p),     BOTH(expm1),    BOTH(sqrt),
    BOTH(sin),   BOTH(cos),   BOTH(tan),   BOTH(asin),  BOTH(acos),  BOTH(atan),      BOTH(sinh),     BOTH(cosh),
    BOTH(tanh),  BOTH(asinh), BOTH(acosh), BOTH(atanh), BOTH(floor), BOTH(ceil),      BOTH(trunc),    BOTH(rint),
    BOTH(round), BOTH(erf),   BOTH(pow),   BOTH(atan2), BOTH(fmod),  BOTH(nearbyint), BOTH(copysign), BOTH(hypot),
    BOTH(fma),   BOTH(ldexp), BOTH(fmin),  BOTH(fmax),  BOTH(fabs),  BOTH(nextafter), ONE(memcpy),    ONE(memset),
    ONE(memmove), ONE(memcmp), ONE(abort),
};

void *arm_process_symbol(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);
  for (size_t i = 0; found == NULL && i < sizeof rows / sizeof *rows; i++) {
    union { function address; void *pointer; } as = {rows[i].address};
    if (strcmp(rows[i].name, name) == 0) found = as.pointer;
  }
  return found;
}
