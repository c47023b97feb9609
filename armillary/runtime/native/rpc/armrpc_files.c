/* The folder of a session: the only files that a client can name.
 *
 * In: relative paths and bytes from outside. Out: files in the folder. Invariant: no path leaves the folder - each part is
 * opened from the descriptor of the one before, none may be a link or ".." - and the files stay within MAX_BYTES together.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "armrpc.h"

#define MAX_BYTES ((int64_t)1 << 33)
#define MAX_FILES 4096
#define MAX_PATH 512
#define MAX_DEPTH 8

typedef struct { char name[MAX_PATH + 1]; int64_t size; } entry;
struct armrpc_files { int folder; entry *entries; int count, folders; };

armrpc_files *armrpc_files_open(const char *folder) {
  armrpc_files *files = arm_zalloc(1, sizeof *files);
  if (files == NULL) return NULL;
  files->folder = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (files->folder >= 0) return files;
  free(files);
  return NULL;
}

void armrpc_files_close(armrpc_files *files) {
  close(files->folder);
  free(files->entries);
  free(files);
}

static int refuse_path(const char *name, arm_error *error) {
  return arm_fail(error, "%.80s is no path inside the session's folder", name);
}

/* The descriptor of the folder that holds the last part, which `last` receives; the caller closes it. */
static int walk(armrpc_files *files, const char *name, int make, const char **last, arm_error *error) {
  char part[256];
  int depth = 0, folder = dup(files->folder);
  if (strlen(name) > MAX_PATH || strchr(name, '\\')) depth = MAX_DEPTH;
  for (const char *at = name; folder >= 0; depth++) {
    const char *slash = strchr(at, '/');
    size_t size = slash ? (size_t)(slash - at) : strlen(at);
    int is_dots = (size == 1 && at[0] == '.') || (size == 2 && at[0] == '.' && at[1] == '.');
    if (depth >= MAX_DEPTH || size == 0 || size >= sizeof part || is_dots) {
      close(folder);
      return refuse_path(name, error);
    }
    if (slash == NULL) {
      *last = at;
      return folder;
    }
    memcpy(part, at, size);
    part[size] = 0;
    if (make && mkdirat(folder, part, 0700) == 0) files->folders++;
    int inner = openat(folder, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    close(folder);
    folder = inner;
    at = slash + 1;
  }
  return arm_fail(error, "the device refuses: %s: %s", name, strerror(errno));
}

static int open_file(armrpc_files *files, const char *name, int flags, arm_error *error) {
  const char *last;
  struct stat info;
  int folder = walk(files, name, flags & O_CREAT, &last, error);
  if (folder < 0) return -1;
  int handle = openat(folder, last, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0700);
  close(folder);
  if (handle < 0) return arm_fail(error, "the device refuses: %s: %s", name, strerror(errno));
  if (fstat(handle, &info) == 0 && S_ISREG(info.st_mode)) return handle;
  close(handle);
  return arm_fail(error, "%s: this is no file", name);
}

int armrpc_files_handle(armrpc_files *files, const char *name, arm_error *error) {
  return open_file(files, name, O_RDONLY, error);
}

static int find(const armrpc_files *files, const char *name) {
  for (int i = 0; i < files->count; i++)
    if (strcmp(files->entries[i].name, name) == 0) return i;
  return -1;
}

static int has_room(const armrpc_files *files, const char *name, arm_error *error) {
  int folders = 0;
  for (const char *at = name; *at; at++) folders += *at == '/'; /* at most, that it makes */
  if (files->count + files->folders + folders < MAX_FILES) return 0;
  return arm_fail(error, "%s: a session may have %d files and folders", name, MAX_FILES);
}

static int add(armrpc_files *files, const char *name, arm_error *error) {
  entry *grown = realloc(files->entries, (size_t)(files->count + 1) * sizeof *grown);
  if (grown == NULL) return arm_fail(error, "out of memory");
  files->entries = grown;
  snprintf(grown[files->count].name, sizeof grown->name, "%s", name);
  grown[files->count].size = 0;
  return files->count++;
}

int armrpc_files_write(armrpc_files *files, const char *name, int64_t offset, const void *data, size_t size,
                       arm_error *error) {
  int at = find(files, name);
  int64_t before = offset && at >= 0 ? files->entries[at].size : 0, others = 0;
  if (offset != before)
    return arm_fail(error, "%s: pieces come in order; %lld bytes are there, the next begins at %lld", name,
                    (long long)before, (long long)offset);
  for (int i = 0; i < files->count; i++) others += i == at ? 0 : files->entries[i].size;
  if (others + offset + (int64_t)size > MAX_BYTES)
    return arm_fail(error, "%s: the files of a session may have %lld bytes in all", name, (long long)MAX_BYTES);
  if (at < 0 && has_room(files, name, error) != 0) return -1; /* before anything is made */
  int handle = open_file(files, name, O_WRONLY | O_CREAT | (offset ? 0 : O_TRUNC), error);
  if (handle < 0) return -1;
  int status = 0;
  for (size_t done = 0; status == 0 && done < size;) {
    ssize_t put = pwrite(handle, (const char *)data + done, size - done, (off_t)(offset + (int64_t)done));
    if (put > 0) done += (size_t)put;
    else if (errno != EINTR) status = arm_fail(error, "the device refuses: %s: %s", name, strerror(errno));
  }
  close(handle);
  if (at < 0) at = add(files, name, error); /* also where writing failed: it is there */
  if (at < 0) return -1;
  files->entries[at].size = offset + (int64_t)size;
  return status;
}

int armrpc_files_remove(armrpc_files *files, const char *name, arm_error *error) {
  const char *last;
  int folder = walk(files, name, 0, &last, error), at = find(files, name);
  if (folder < 0) return -1;
  int status = unlinkat(folder, last, 0);
  close(folder);
  if (status != 0) return arm_fail(error, "the device refuses: %s: %s", name, strerror(errno));
  if (at >= 0) files->entries[at] = files->entries[--files->count];
  return 0;
}

static int by_name(const void *a, const void *b) { return strcmp(((const entry *)a)->name, ((const entry *)b)->name); }

void armrpc_files_list(const armrpc_files *files, armrpc_text *out) {
  if (files->count) qsort(files->entries, (size_t)files->count, sizeof *files->entries, by_name);
  armrpc_put(out, "[");
  for (int i = 0; i < files->count; i++) {
    if (i) armrpc_put(out, ",");
    armrpc_put_string(out, files->entries[i].name);
  }
  armrpc_put(out, "]");
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind, (void)at;
  remove(path);
  return 0;
}

void armrpc_remove_folder(const char *folder) { nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
