/* Reading and writing .npz archives (zip without compression, what numpy.savez writes).
 *
 * In: bytes, or tensors. Out: one visit per member, or a file. Invariant: sizes and offsets are taken from the central
 * directory, checked against the bytes, and every member's CRC is verified.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arm_files.h"

static uint32_t get16(const unsigned char *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t get32(const unsigned char *p) { return get16(p) | get16(p + 2) << 16; }
static uint64_t get64(const unsigned char *p) { return get32(p) | (uint64_t)get32(p + 4) << 32; }
static void put16(unsigned char *p, uint32_t v) { p[0] = (unsigned char)v; p[1] = (unsigned char)(v >> 8); }
static void put32(unsigned char *p, uint32_t v) { put16(p, v); put16(p + 2, v >> 16); }

/* A field that is all ones in the record stands in the zip64 extra, in the order size, compressed size, offset. */
static int zip64(const unsigned char *extra, size_t length, uint64_t *fields[3]) {
  while (length >= 4) {
    size_t size = get16(extra + 2);
    if (size > length - 4) return -1;
    if (get16(extra) == 1) {
      const unsigned char *next = extra + 4;
      for (int i = 0; i < 3; i++) {
        if (*fields[i] != UINT32_MAX) continue;
        if (extra + 4 + size - next < 8) return -1;
        *fields[i] = get64(next);
        next += 8;
      }
    }
    extra += 4 + size;
    length -= 4 + size;
  }
  return 0;
}

static int read_named(const unsigned char *bytes, size_t size, const unsigned char *record, const char *name,
                      arm_member_visit visit, void *context, arm_error *error) {
  size_t name_length = get16(record + 28), extra_length = get16(record + 30);
  if (strlen(name) != name_length) return arm_fail(error, "npz: a name contains NUL");
  uint64_t stored = get32(record + 20), full = get32(record + 24), offset = get32(record + 42);
  uint64_t *fields[3] = {&full, &stored, &offset};
  if (zip64(record + 46 + name_length, extra_length, fields) != 0) return arm_fail(error, "npz: %s is damaged", name);
  if (get16(record + 10) != 0)
    return arm_fail(error, "npz: %s is compressed; write it with numpy.savez instead of savez_compressed", name);
  if (get16(record + 8) & 1) return arm_fail(error, "npz: %s is encrypted", name);
  if (offset > size || size - offset < 30 || get32(bytes + offset) != 0x04034B50 || stored != full)
    return arm_fail(error, "npz: %s is damaged", name);
  uint64_t start = offset + 30 + get16(bytes + offset + 26) + get16(bytes + offset + 28);
  if (start > size || full > size - start) return arm_fail(error, "npz: %s is truncated", name);
  if (arm_crc32(0, bytes + start, (size_t)full) != get32(record + 16))
    return arm_fail(error, "npz: %s is damaged (its checksum differs)", name);
  return visit(context, name, bytes + start, (size_t)full, error);
}

static int read_member(const unsigned char *bytes, size_t size, const unsigned char *record, size_t left,
                       arm_member_visit visit, void *context, arm_error *error) {
  size_t name_length = get16(record + 28), extra_length = get16(record + 30);
  if (name_length + extra_length > left - 46) return arm_fail(error, "npz: a name is damaged");
  char *name = arm_strdup((const char *)record + 46, name_length);
  if (name == NULL) return arm_fail(error, "npz: out of memory");
  int status = read_named(bytes, size, record, name, visit, context, error);
  free(name);
  return status;
}

int arm_zip_read(const unsigned char *bytes, size_t size, arm_member_visit visit, void *context, arm_error *error) {
  if (size < 22) return arm_fail(error, "npz: not an archive");
  size_t end = size - 22;
  while (end > 0 && size - end < 22 + 65535 && get32(bytes + end) != 0x06054B50) end--;
  if (get32(bytes + end) != 0x06054B50) return arm_fail(error, "npz: not an archive, or truncated");
  size_t count = get16(bytes + end + 10), at = get32(bytes + end + 16);
  for (size_t i = 0; i < count; i++) {
    if (at > end || end - at < 46 || get32(bytes + at) != 0x02014B50)
      return arm_fail(error, "npz: the directory is damaged");
    if (read_member(bytes, size, bytes + at, end - at, visit, context, error) != 0) return -1;
    at += 46 + get16(bytes + at + 28) + get16(bytes + at + 30) + get16(bytes + at + 32);
  }
  return 0;
}

/* The 26 bytes that a local header and a directory record share: version ... lengths of name and extra. */
static void common_fields(unsigned char *p, uint32_t crc, size_t size, size_t name_length) {
  memset(p, 0, 26);
  put16(p, 20);
  put16(p + 8, 0x21); /* 1980-01-01: the same outputs give the same file */
  put32(p + 10, crc);
  put32(p + 14, (uint32_t)size);
  put32(p + 18, (uint32_t)size);
  put16(p + 22, (uint32_t)name_length);
}

static int write_member(FILE *file, const arm_array *array, unsigned char *common) {
  char npy[1024], name[300];
  unsigned char head[30];
  int64_t bytes;
  size_t length = arm_npy_header(&array->tensor, npy, sizeof npy);
  if (length == 0 || arm_tensor_bytes(array->shape, array->tensor.ndim, array->tensor.dtype, &bytes) != 0) return -1;
  if ((uint64_t)bytes > UINT32_MAX - sizeof npy) return -1;
  int name_length = snprintf(name, sizeof name, "%s.npy", array->name);
  const unsigned char *data = arm_tensor_data(&array->tensor);
  uint32_t crc = arm_crc32(arm_crc32(0, npy, length), data, (size_t)bytes);
  common_fields(common, crc, length + (size_t)bytes, (size_t)name_length);
  put32(head, 0x04034B50);
  memcpy(head + 4, common, 26);
  int ok = fwrite(head, 1, 30, file) == 30 && fwrite(name, 1, (size_t)name_length, file) == (size_t)name_length &&
           fwrite(npy, 1, length, file) == length && fwrite(data, 1, (size_t)bytes, file) == (size_t)bytes;
  return ok ? 0 : -1;
}

static int write_record(FILE *file, const arm_array *array, const unsigned char *common, long offset) {
  unsigned char record[46] = {0};
  put32(record, 0x02014B50);
  put16(record + 4, 20);
  memcpy(record + 6, common, 26);
  put32(record + 42, (uint32_t)offset);
  int ok = fwrite(record, 1, 46, file) == 46 && fprintf(file, "%s.npy", array->name) > 0;
  return ok ? 0 : -1;
}

static int write_archive(FILE *file, const arm_array *arrays, int count, unsigned char (*common)[26], long *offsets) {
  for (int i = 0; i < count; i++) {
    offsets[i] = ftell(file);
    if (offsets[i] < 0 || offsets[i] > INT32_MAX || write_member(file, &arrays[i], common[i]) != 0) return -1;
  }
  long directory = ftell(file);
  for (int i = 0; i < count; i++)
    if (write_record(file, &arrays[i], common[i], offsets[i]) != 0) return -1;
  unsigned char end[22] = {0};
  put32(end, 0x06054B50);
  put16(end + 8, (uint32_t)count);
  put16(end + 10, (uint32_t)count);
  put32(end + 12, (uint32_t)(ftell(file) - directory));
  put32(end + 16, (uint32_t)directory);
  return fwrite(end, 1, 22, file) == 22 ? 0 : -1;
}

int arm_npz_write(const char *path, const arm_array *arrays, int count, arm_error *error) {
  arm_writer w;
  if (arm_write_open(&w, path, 0666, error) != 0) return -1;
  unsigned char(*common)[26] = arm_zalloc((size_t)count, 26);
  long *offsets = arm_zalloc((size_t)count, sizeof *offsets);
  int is_whole = common && offsets && count < 65535 && write_archive(w.stream, arrays, count, common, offsets) == 0;
  free(common);
  free(offsets);
  return arm_write_close(&w, path, is_whole, error);
}
