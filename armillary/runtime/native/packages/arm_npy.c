/* .npy arrays: their bytes as tensors, and their headers.
 *
 * In: bytes, or a tensor. Out: a tensor that points into the bytes, or a header. Invariant: only little-endian, C-ordered
 * arrays of known types are accepted, and the data lies inside the bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arm_files.h"

static const struct { const char *descr; uint8_t code, bits; } descrs[] = {
    {"<f4", 2, 32}, {"<f8", 2, 64}, {"<f2", 2, 16}, {"|b1", 6, 8}, {"|i1", 0, 8}, {"<i2", 0, 16}, {"<i4", 0, 32},
    {"<i8", 0, 64}, {"|u1", 1, 8}, {"<u2", 1, 16}, {"<u4", 1, 32}, {"<u8", 1, 64}, {"<V2", 4, 16}, {"|V2", 4, 16}};
#define NUM_DESCRS ((int)(sizeof descrs / sizeof descrs[0]))

/* The text after `'key':` in numpy's header, which is a Python dict literal. */
static const char *header_value(const char *header, const char *key) {
  const char *found = strstr(header, key);
  if (found == NULL) return NULL;
  found += strlen(key);
  while (*found == ' ' || *found == ':') found++;
  return found;
}

static int parse_descr(const char *text, arm_dtype *out) {
  for (int i = 0; i < NUM_DESCRS; i++) {
    if (text[0] != '\'' || strncmp(text + 1, descrs[i].descr, 3) != 0 || text[4] != '\'') continue;
    *out = (arm_dtype){descrs[i].code, descrs[i].bits, 1};
    return 0;
  }
  return -1;
}

static int parse_shape(const char *text, arm_array *out) {
  if (*text++ != '(') return -1;
  for (;;) {
    while (*text == ' ' || *text == ',') text++;
    if (*text == ')') return 0;
    char *end;
    if (*text < '0' || *text > '9' || out->tensor.ndim == ARM_MAX_NDIM) return -1;
    long long dim = strtoll(text, &end, 10);
    if (dim < 0 || dim > ARM_MAX_BYTES) return -1;
    out->shape[out->tensor.ndim++] = dim;
    text = end;
    if (*text != ',' && *text != ')') return -1;
  }
}

int arm_npy_parse(const unsigned char *bytes, size_t size, const char *where, arm_array *out, arm_error *error) {
  if (size < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0 || bytes[6] < 1 || bytes[6] > 3)
    return arm_fail(error, "%s: not a .npy array", where);
  size_t start = bytes[6] == 1 ? 10 : 12;
  size_t length = bytes[8] | (size_t)bytes[9] << 8;
  if (start == 12) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
  char header[4096];
  if (length >= sizeof header || length > size - start) return arm_fail(error, "%s: the header is damaged", where);
  memcpy(header, bytes + start, length);
  header[length] = 0;
  const char *descr = header_value(header, "'descr'"), *order = header_value(header, "'fortran_order'");
  const char *shape = header_value(header, "'shape'");
  out->tensor = (arm_tensor){NULL, {1, 0}, 0, {0, 0, 0}, out->shape, NULL, 0};
  if (descr == NULL || order == NULL || shape == NULL || parse_shape(shape, out) != 0)
    return arm_fail(error, "%s: the header is damaged", where);
  if (parse_descr(descr, &out->tensor.dtype) != 0)
    return arm_fail(error, "%s: numpy type %.*s is not supported", where, (int)strcspn(descr, ","), descr);
  if (strncmp(order, "False", 5) != 0 && out->tensor.ndim > 1)
    return arm_fail(error, "%s: Fortran order is not supported; save numpy.ascontiguousarray(x)", where);
  int64_t wanted;
  if (arm_tensor_bytes(out->shape, out->tensor.ndim, out->tensor.dtype, &wanted) != 0 ||
      (uint64_t)wanted != size - start - length)
    return arm_fail(error, "%s: the data does not have the size that the header says", where);
  out->tensor.data = (void *)(uintptr_t)(bytes + start + length);
  return 0;
}

size_t arm_npy_header(const arm_tensor *tensor, char *out, size_t size) {
  const char *descr = NULL;
  for (int i = 0; i < NUM_DESCRS && descr == NULL; i++)
    if (arm_dtype_equal(tensor->dtype, (arm_dtype){descrs[i].code, descrs[i].bits, 1})) descr = descrs[i].descr;
  char shape[512];
  arm_shape_text(shape, sizeof shape, tensor->shape, tensor->ndim);
  if (tensor->ndim == 1) snprintf(shape, sizeof shape, "(%lld,)", (long long)tensor->shape[0]);
  int length = snprintf(out + 10, size - 10, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                        descr ? descr : "|u1", shape);
  size_t total = ((size_t)length + 11 + 63) / 64 * 64;
  if (length < 0 || total > size) return 0;
  memset(out + 10 + length, ' ', total - 10 - (size_t)length);
  out[total - 1] = '\n';
  memcpy(out, "\x93NUMPY\x01\x00", 8);
  out[8] = (char)((total - 10) & 255);
  out[9] = (char)((total - 10) >> 8);
  return total;
}
