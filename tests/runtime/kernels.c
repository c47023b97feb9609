/* Kernels written by hand to the ABI, so that the runtime is tested without the compiler. */
#include <stdint.h>
#define KERNEL __attribute__((visibility("default")))
typedef void *const *data_t;

/* out[i] = a[i] + b[i] over n symbolic elements */
KERNEL int64_t add__e0(const int64_t *vars) { return vars[0]; }
KERNEL int32_t add__p0(data_t data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  const float *a = data[0], *b = data[1];
  float *out = data[2];
  (void)vars, (void)thread;
  for (int64_t i = begin; i < end; i++) out[i] = a[i] + b[i];
  return 0;
}

/* Two phases over a (6, 8) tensor: row sums to the shared workspace, then out[i, j] = x[i, j] - sum[i]. */
KERNEL int32_t center__p0(data_t data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  const float *x = data[0];
  float *sums = data[2], *mine = (float *)((char *)data[3] + thread * 64);
  (void)vars;
  for (int64_t i = begin; i < end; i++) {
    mine[0] = 0;
    for (int64_t j = 0; j < 8; j++) mine[0] += x[i * 8 + j];
    sums[i] = mine[0];
  }
  return 0;
}
KERNEL int32_t center__p1(data_t data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  const float *x = data[0], *sums = data[2];
  float *out = data[1];
  (void)vars, (void)thread;
  for (int64_t i = begin; i < end; i++)
    for (int64_t j = 0; j < 8; j++) out[i * 8 + j] = x[i * 8 + j] - sums[i];
  return 0;
}

/* out[i] += 1: shows lost or repeated iterations */
KERNEL int32_t count__p0(data_t data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  int32_t *out = data[0];
  (void)vars, (void)thread;
  for (int64_t i = begin; i < end; i++) out[i]++;
  return 0;
}

/* out = x, where no element is negative */
KERNEL int32_t positive__p0(data_t data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  const float *x = data[0];
  float *out = data[1];
  (void)vars, (void)thread;
  for (int64_t i = begin * 8; i < end * 8; i++) {
    if (x[i] < 0) return 1;
    out[i] = x[i];
  }
  return 0;
}

KERNEL int32_t refuse__p0(data_t data, const int64_t *vars, int64_t begin, int64_t end, int64_t thread) {
  (void)data, (void)begin, (void)end, (void)thread;
  return vars[0] > 3 ? 2 : 0;
}
