/* Whole files in memory: read, or mapped.
 *
 * In: paths. Out: their bytes. Invariant: only regular files are read, and a pipe is not waited for.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arm_files.h"

int arm_file_read(const char *path, arm_blob *out, arm_error *error) {
  *out = (arm_blob){NULL, 0};
  struct stat info;
  int handle = open(path, O_RDONLY | O_NONBLOCK); /* a pipe would be waited for */
  if (handle >= 0 && (fstat(handle, &info) != 0 || !S_ISREG(info.st_mode))) {
    close(handle);
    return arm_fail(error, "%s: is not a regular file", path);
  }
  FILE *file = handle < 0 ? NULL : fdopen(handle, "rb");
  if (file == NULL) return arm_fail(error, "%s: cannot be opened", path);
  long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
  if (size < 0 || fseek(file, 0, SEEK_SET) != 0 || (int64_t)size > ARM_MAX_BYTES) {
    fclose(file);
    return arm_fail(error, "%s: is not a regular file", path);
  }
  out->data = arm_alloc((size_t)size);
  out->size = (size_t)size;
  int ok = out->data != NULL && fread(out->data, 1, out->size, file) == out->size;
  fclose(file);
  if (ok) return 0;
  arm_blob_free(out);
  return arm_fail(error, "%s: cannot be read", path);
}

int arm_file_map(const char *path, arm_blob *out, int *file, arm_error *error) {
  struct stat info;
  *out = (arm_blob){NULL, 0};
  *file = open(path, O_RDONLY | O_NONBLOCK);
  if (*file < 0) return arm_fail(error, "%s: cannot be opened", path);
  if (fstat(*file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, *file, 0);
    if (data != MAP_FAILED) *out = (arm_blob){data, (size_t)info.st_size};
  }
  if (out->data != NULL) return 0;
  close(*file);
  *file = -1;
  return arm_fail(error, "%s: is empty or not a regular file", path);
}

void arm_file_unmap(arm_blob *blob, int file) {
  if (blob->data != NULL) munmap(blob->data, blob->size);
  if (file >= 0) close(file);
  *blob = (arm_blob){NULL, 0};
}

void arm_blob_free(arm_blob *blob) {
  arm_free(blob->data);
  *blob = (arm_blob){NULL, 0};
}
