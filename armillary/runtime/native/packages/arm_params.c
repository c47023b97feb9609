/* The params blob: named dense tensors, little endian (the layout is that of `armillary/artifact/__init__.py`).
 *
 * In: bytes. Out: one visit per array, with a tensor that points into the blob. Invariant: nothing is read outside the blob.
 */
#include "arm_internal.h"

#include <stdlib.h>
#include <string.h>

#define ARRAY_MAGIC UINT64_C(0xDD5E40F096B4A13F)

typedef struct { const unsigned char *next; size_t left; } cursor;

static int take(cursor *c, void *out, size_t size) {
  if (size > c->left) return -1;
  memcpy(out, c->next, size);
  c->next += size;
  c->left -= size;
  return 0;
}

static int skip(cursor *c, uint64_t size) {
  if (size > c->left) return -1;
  c->next += size;
  c->left -= (size_t)size;
  return 0;
}

int arm_param_head(const unsigned char *head, int32_t *ndim, arm_dtype *dtype) {
  uint64_t magic;
  int32_t device;
  memcpy(&magic, head, 8); /* then 8 bytes reserved, the device's type and number */
  memcpy(&device, head + 16, 4);
  memcpy(ndim, head + 24, 4);
  memcpy(dtype, head + 28, 4);
  if (magic != ARRAY_MAGIC || device != 1 || *ndim < 0 || *ndim > ARM_MAX_NDIM) return -1;
  return strcmp(arm_dtype_name(*dtype), "?") == 0 ? -1 : 0;
}

static int read_array(cursor *c, const char *name, arm_param_visit visit, void *context, arm_error *error) {
  unsigned char head[ARM_PARAM_HEAD];
  int32_t ndim;
  int64_t shape[ARM_MAX_NDIM], bytes, wanted;
  arm_dtype dtype;
  if (take(c, head, sizeof head)) return arm_fail(error, "params: truncated in the header of \"%.80s\"", name);
  if (arm_param_head(head, &ndim, &dtype) != 0)
    return arm_fail(error, "params: \"%.80s\" has a damaged header or an unknown type", name);
  if (take(c, shape, 8 * (size_t)ndim) || take(c, &bytes, 8))
    return arm_fail(error, "params: truncated in the shape of \"%.80s\"", name);
  if (arm_tensor_bytes(shape, ndim, dtype, &wanted) != 0 || wanted != bytes || (uint64_t)bytes > c->left)
    return arm_fail(error, "params: the size of \"%.80s\" does not fit its shape, or the data is truncated", name);
  arm_tensor value = {(void *)(uintptr_t)c->next, {1, 0}, ndim, dtype, shape, NULL, 0};
  if (visit(context, name, &value, error) != 0) return -1;
  return skip(c, (uint64_t)bytes);
}

/* Names are length-prefixed; `names` walks over them a second time, in step with the arrays. */
static int read_arrays(cursor *names, cursor *arrays, uint64_t count, arm_param_visit visit, void *context,
                       arm_error *error) {
  for (uint64_t i = 0; i < count; i++) {
    uint64_t length;
    if (take(names, &length, 8) || length > names->left) return arm_fail(error, "params: truncated in the names");
    char *name = arm_strdup((const char *)names->next, (size_t)length);
    if (name == NULL) return arm_fail(error, "params: out of memory");
    int status = strlen(name) == length ? read_array(arrays, name, visit, context, error)
                                        : arm_fail(error, "params: a name contains NUL");
    free(name);
    if (status != 0 || skip(names, length)) return -1;
  }
  return arrays->left == 0 ? 0 : arm_fail(error, "params: %zu bytes after the last array", arrays->left);
}

int arm_params_read(const void *blob, size_t size, arm_param_visit visit, void *context, arm_error *error) {
  cursor c = {blob, size};
  uint64_t magic, reserved, count, length, arrays;
  if (take(&c, &magic, 8) || take(&c, &reserved, 8) || take(&c, &count, 8) || magic != ARM_PARAMS_MAGIC)
    return arm_fail(error, "params: not a params blob (bad magic), or truncated");
  if (count > size / 8) return arm_fail(error, "params: claims %llu arrays", (unsigned long long)count);
  cursor names = c;
  for (uint64_t i = 0; i < count; i++)
    if (take(&c, &length, 8) || skip(&c, length)) return arm_fail(error, "params: truncated in the names");
  if (take(&c, &arrays, 8) || arrays != count) return arm_fail(error, "params: as many arrays as names are expected");
  return read_arrays(&names, &c, count, visit, context, error);
}
