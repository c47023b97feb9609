/* The system's OpenCL library, whose device is gone once `vanish` was called, and has no images where NO_IMAGES is set.
 *
 * In: the calls of the runtime. Out: those of the system's library (a dependency, so that what is not here is found there);
 * of a device that is gone CL_DEVICE_NOT_AVAILABLE, as a driver answers after a reset: from 1 on of what a queue is asked,
 * from 2 on of new objects too. What releases objects still reaches the driver.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_SUPPORT 0x1016 /* CL_DEVICE_IMAGE_SUPPORT */
#define GONE (-2) /* CL_DEVICE_NOT_AVAILABLE */

static int gone;
void vanish(int how_much);
void vanish(int how_much) { gone = how_much; }

static void *genuine(const char *name) { return dlsym(dlopen("libgenuine_opencl.so", RTLD_NOW | RTLD_LOCAL), name); }

/* As the functions of OpenCL, with pointers instead of its objects. */
#define CALL(name, parameters, arguments) \
  int name parameters; \
  int name parameters { \
    if (gone > 0) return GONE; \
    int (*call) parameters = (int(*) parameters)genuine(#name); \
    return call arguments; \
  }

#define MAKE(name, parameters, arguments) \
  void *name parameters; \
  void *name parameters { \
    if (gone > 1) { \
      if (code != NULL) *code = GONE; \
      return NULL; \
    } \
    void *(*call) parameters = (void *(*)parameters)genuine(#name); \
    return call arguments; \
  }

int clGetDeviceInfo(void *device, unsigned what, size_t size, void *to, size_t *used);
int clGetDeviceInfo(void *device, unsigned what, size_t size, void *to, size_t *used) {
  int (*call)(void *, unsigned, size_t, void *, size_t *) =
      (int (*)(void *, unsigned, size_t, void *, size_t *))genuine("clGetDeviceInfo");
  int code = call(device, what, size, to, used);
  if (what == IMAGE_SUPPORT && to != NULL && getenv("NO_IMAGES") != NULL) memset(to, 0, size);
  return code;
}

CALL(clEnqueueNDRangeKernel, (void *q, void *k, unsigned n, const size_t *o, const size_t *g, const size_t *l, unsigned c,
                              void *const *w, void **e), (q, k, n, o, g, l, c, w, e))
CALL(clEnqueueReadBuffer, (void *q, void *m, unsigned b, size_t o, size_t n, void *to, unsigned c, void *const *w, void **e),
     (q, m, b, o, n, to, c, w, e))
CALL(clEnqueueWriteBuffer, (void *q, void *m, unsigned b, size_t o, size_t n, const void *from, unsigned c, void *const *w,
                            void **e), (q, m, b, o, n, from, c, w, e))
CALL(clEnqueueCopyBuffer, (void *q, void *a, void *b, size_t i, size_t j, size_t n, unsigned c, void *const *w, void **e),
     (q, a, b, i, j, n, c, w, e))
CALL(clEnqueueFillBuffer, (void *q, void *m, const void *p, size_t s, size_t o, size_t n, unsigned c, void *const *w, void **e),
     (q, m, p, s, o, n, c, w, e))
CALL(clEnqueueMarkerWithWaitList, (void *q, unsigned c, void *const *w, void **e), (q, c, w, e))
CALL(clGetEventInfo, (void *event, unsigned what, size_t n, void *to, size_t *used), (event, what, n, to, used))
CALL(clFlush, (void *q), (q))
CALL(clFinish, (void *q), (q))
MAKE(clCreateBuffer, (void *c, unsigned long f, size_t n, void *host, int *code), (c, f, n, host, code))
MAKE(clCreateKernel, (void *p, const char *name, int *code), (p, name, code))
MAKE(clCreateProgramWithSource, (void *c, unsigned n, const char **s, const size_t *l, int *code), (c, n, s, l, code))
