/* Error text, checked sizes, aligned memory, dtypes, tensors. */
#define _GNU_SOURCE
#include "arm_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

int arm_abi_version(void) { return ARM_ABI_VERSION; }
const char *arm_version(void) { return ARM_VERSION; }

int arm_fail(arm_error *error, const char *format, ...) {
  if (error->text == NULL || error->size == 0) return -1;
  va_list args;
  va_start(args, format);
  vsnprintf(error->text, error->size, format, args);
  va_end(args);
  return -1;
}

int arm_mul(int64_t a, int64_t b, int64_t *out) {
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, out)) return -1;
  return 0;
}

void *arm_zalloc(size_t count, size_t size) { return calloc(count ? count : 1, size ? size : 1); }

char *arm_strdup(const char *text, size_t size) {
  char *copy = malloc(size + 1);
  if (copy == NULL) return NULL;
  memcpy(copy, text, size);
  copy[size] = 0;
  return copy;
}

double arm_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define LARGE ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)

void *arm_alloc(size_t size) {
  void *pointer = NULL;
  size_t align = size >= LARGE ? HUGE_PAGE : ARM_ALIGN;
  if (size > (size_t)ARM_MAX_BYTES) return NULL;
  size = (size + align - 1) / align * align;
  if (posix_memalign(&pointer, align, size ? size : align) != 0) return NULL;
#if defined(MADV_HUGEPAGE)
  if (align == HUGE_PAGE) (void)madvise(pointer, size, MADV_HUGEPAGE); /* a hint: fewer TLB misses on weights */
#endif
  return pointer;
}

void arm_free(void *pointer) { free(pointer); }

/* DLPack codes; the sub-byte types occupy a byte each here. */
static const struct { const char *name; uint8_t code, bits; } dtypes[] = {
    {"float32", 2, 32}, {"float64", 2, 64}, {"float16", 2, 16}, {"bfloat16", 4, 16}, {"bool", 6, 8},
    {"int2", 0, 2}, {"int4", 0, 4}, {"int8", 0, 8}, {"int16", 0, 16}, {"int32", 0, 32}, {"int64", 0, 64},
    {"uint2", 1, 2}, {"uint4", 1, 4}, {"uint8", 1, 8}, {"uint16", 1, 16}, {"uint32", 1, 32}, {"uint64", 1, 64},
    {"float8_e4m3fn", 10, 8}, {"float8_e4m3fnuz", 11, 8}, {"float8_e5m2", 12, 8}, {"float8_e5m2fnuz", 13, 8},
    {"float8_e8m0fnu", 14, 8}, {"float4_e2m1fn", 17, 4}};
#define NUM_DTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))

int arm_dtype_parse(const char *name, arm_dtype *out) {
  for (int i = 0; i < NUM_DTYPES; i++) {
    if (strcmp(dtypes[i].name, name) == 0) {
      *out = (arm_dtype){dtypes[i].code, dtypes[i].bits, 1};
      return 0;
    }
  }
  return -1;
}

static arm_dtype canonical(arm_dtype dtype) {
  if ((dtype.code == 6 || dtype.code == 1) && dtype.bits == 1) return (arm_dtype){6, 8, dtype.lanes};
  return dtype;
}

const char *arm_dtype_name(arm_dtype dtype) {
  dtype = canonical(dtype);
  for (int i = 0; i < NUM_DTYPES; i++)
    if (dtypes[i].code == dtype.code && dtypes[i].bits == dtype.bits && dtype.lanes == 1) return dtypes[i].name;
  return "?";
}

int arm_dtype_equal(arm_dtype a, arm_dtype b) {
  a = canonical(a);
  b = canonical(b);
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

int64_t arm_dtype_bytes(arm_dtype dtype) { return dtype.bits <= 8 ? 1 : dtype.bits / 8; }

int arm_tensor_bytes(const int64_t *shape, int32_t ndim, arm_dtype dtype, int64_t *out) {
  int64_t size = arm_dtype_bytes(dtype);
  if (ndim < 0 || ndim > ARM_MAX_NDIM) return -1;
  for (int i = 0; i < ndim; i++)
    if (arm_mul(size, shape[i], &size) != 0) return -1;
  if (size > ARM_MAX_BYTES) return -1;
  *out = size;
  return 0;
}

int arm_tensor_dense(const arm_tensor *tensor) {
  if (tensor->strides == NULL) return 1;
  int64_t expected = 1;
  for (int i = 0; i < tensor->ndim; i++)
    if (tensor->shape[i] == 0) return 1;
  for (int i = tensor->ndim - 1; i >= 0; i--) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != expected) return 0;
    expected *= tensor->shape[i];
  }
  return 1;
}

void *arm_tensor_data(const arm_tensor *tensor) {
  return tensor->data == NULL ? NULL : (char *)tensor->data + tensor->byte_offset;
}

int arm_overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
  uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return a != NULL && b != NULL && a_bytes > 0 && b_bytes > 0 && x < y + (uintptr_t)b_bytes && y < x + (uintptr_t)a_bytes;
}

void arm_shape_text(char *out, size_t size, const int64_t *shape, int32_t ndim) {
  size_t used = (size_t)snprintf(out, size, "(");
  for (int i = 0; i < ndim && used + 24 < size; i++)
    used += (size_t)snprintf(out + used, size - used, i ? ", %lld" : "%lld", (long long)shape[i]);
  if (used + 2 < size) snprintf(out + used, size - used, ")");
}
