/* Kernels of the tests of remote sessions: one that works, one that does not end, one that crashes. */
#include <stdint.h>

#define KERNEL(name) \
  __attribute__((visibility("default"))) int32_t name(void *const *data, const int64_t *vars, int64_t begin, \
                                                      int64_t end, int64_t thread)

KERNEL(add__p0) {
  const float *a = data[0], *b = data[1];
  float *c = data[2];
  (void)vars, (void)thread;
  for (int64_t i = begin; i < end; i++) c[i] = a[i] + b[i];
  return 0;
}

KERNEL(scale__p0) {
  float *x = data[0];
  double factor;
  (void)thread;
  __builtin_memcpy(&factor, &vars[0], sizeof factor);
  for (int64_t i = begin; i < end; i++) x[i] = (float)(x[i] * factor);
  return 0;
}

KERNEL(spin__p0) {
  (void)data, (void)vars, (void)begin, (void)end, (void)thread;
  for (volatile int go = 1; go;) {}
  return 0;
}

KERNEL(crash__p0) {
  (void)data, (void)vars, (void)begin, (void)end, (void)thread;
  *(volatile int *)8 = 1;
  return 0;
}
