/* Writing files: whole or not at all, under names that nobody can prepare.
 *
 * In: a path, and what comes into the stream. Out: a file that takes the place of `path` when it is whole. Invariant:
 * what is written lies in a file that this process made (O_EXCL) beside the target; links at `path` stay links; what
 * fails leaves nothing behind. A pipe or a device is written to as it is. armillary/base/files.py does the same in Python.
 */
#define _GNU_SOURCE /* mkostemp, realpath */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arm_files.h"

static mode_t with_umask(mode_t mode) {
  mode_t mask = umask(0);
  umask(mask);
  return mode & ~mask;
}

int arm_write_open(arm_writer *w, const char *path, int mode, arm_error *error) {
  struct stat info;
  *w = (arm_writer){.stream = NULL};
  int is_there = stat(path, &info) == 0;
  if (is_there && !S_ISREG(info.st_mode)) { /* a device or a pipe; of a folder fopen says what it is */
    w->stream = fopen(path, "wbe");
    return w->stream != NULL ? 0 : arm_fail(error, "%s: cannot be created: %s", path, strerror(errno));
  }
  char *target = is_there ? realpath(path, NULL) : strdup(path);
  int is_short = target != NULL && strlen(target) + 14 <= sizeof w->part;
  if (is_short) {
    strcpy(w->target, target);
    sprintf(w->part, "%s.part-XXXXXX", target);
  }
  free(target);
  if (!is_short) return arm_fail(error, "the path of the output is too long");
  int handle = mkostemp(w->part, O_CLOEXEC);
  if (handle >= 0 && fchmod(handle, with_umask((mode_t)mode)) == 0) w->stream = fdopen(handle, "wb");
  if (w->stream != NULL) return 0;
  int status = arm_fail(error, "%s: cannot be created: %s", path, strerror(errno));
  if (handle >= 0) {
    close(handle);
    unlink(w->part);
  }
  return status;
}

int arm_write_close(arm_writer *w, const char *path, int is_whole, arm_error *error) {
  is_whole = fclose(w->stream) == 0 && is_whole;
  if (w->part[0] != '\0') {
    is_whole = is_whole && rename(w->part, w->target) == 0;
    if (!is_whole) unlink(w->part);
  }
  return is_whole ? 0 : arm_fail(error, "%s: cannot be written", path);
}

int arm_file_write(const char *path, const void *data, size_t size, int mode, arm_error *error) {
  arm_writer w;
  if (arm_write_open(&w, path, mode, error) != 0) return -1;
  return arm_write_close(&w, path, fwrite(data, 1, size, w.stream) == size, error);
}
