/* The params blob read from a file, each array right into the memory where it stays; CRC-32 on the way.
 *
 * In: a file descriptor and where the blob lies in it. Out: for each array a visit that says where to put it, the bytes
 * there, a visit that says it is complete; the CRC of the whole blob (polynomial 0xEDB88320, as in zlib and zip).
 * Invariant: at most one chunk is held besides the destinations; nothing outside the blob is read. arm_params.c reads the
 * same layout from memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arm_internal.h"

#define CHUNK ((size_t)256 << 10) /* stays in L2 between reading and summing */
#define LARGE ((size_t)1 << 20)   /* is worth a thread: half of the time goes into pages that are touched first */

/* ---- reading ---- */

typedef struct {
  int file;
  int64_t at;
  uint64_t left;
  uint32_t crc;
} source;

static int read_exactly(int file, void *out, size_t size, int64_t at) {
  for (size_t done = 0; done < size;) {
    ssize_t got = pread(file, (char *)out + done, size - done, (off_t)(at + (int64_t)done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return -1;
    done += (size_t)got;
  }
  return 0;
}

static int take(source *s, void *out, size_t size) {
  if (size > s->left) return -1;
  for (size_t done = 0; done < size;) {
    size_t part = size - done < CHUNK ? size - done : CHUNK;
    char *to = (char *)out + done;
    if (read_exactly(s->file, to, part, s->at) != 0) return -1;
    s->crc = arm_crc32(s->crc, to, part);
    s->at += (int64_t)part;
    s->left -= part;
    done += part;
  }
  return 0;
}

typedef struct { source from; void *out; size_t size; int status; } half;

static void *take_half(void *argument) {
  half *h = argument;
  h->status = take(&h->from, h->out, h->size);
  return NULL;
}

/* Half of a large array by a thread of its own, where there is a processor for it. */
static int take_values(source *s, void *out, size_t size) {
  pthread_t thread;
  size_t first = size / 2 / CHUNK * CHUNK;
  half second = {{s->file, s->at + (int64_t)first, size - first, 0}, (char *)out + first, size - first, 0};
  if (size < LARGE || size > s->left || arm_cpu_count() < 2 || pthread_create(&thread, NULL, take_half, &second) != 0)
    return take(s, out, size);
  int status = take(s, out, first);
  (void)pthread_join(thread, NULL);
  s->crc = arm_crc32_join(s->crc, second.from.crc, second.size);
  s->at = second.from.at;
  s->left -= second.size;
  return status != 0 ? status : second.status;
}

static int skip(source *s, uint64_t size) {
  char *chunk = malloc(CHUNK);
  int status = chunk == NULL || size > s->left ? -1 : 0;
  while (status == 0 && size > 0) {
    size_t part = size < CHUNK ? (size_t)size : CHUNK;
    status = take(s, chunk, part);
    size -= part;
  }
  free(chunk);
  return status;
}

/* All names in one block, each ending in NUL. */
static char *read_names(source *s, uint64_t count, arm_error *error) {
  size_t used = 0, room = 4096;
  char *names = malloc(room);
  for (uint64_t i = 0; i < count && names != NULL; i++) {
    uint64_t length;
    if (take(s, &length, 8) != 0 || length >= 1024 || length > s->left) {
      arm_fail(error, "params: truncated in the names, or a name is longer than 1023 bytes");
      free(names);
      return NULL;
    }
    if (used + length + 1 > room) {
      char *more = realloc(names, room = 2 * room + (size_t)length);
      if (more == NULL) free(names);
      names = more;
      if (names == NULL) break;
    }
    if (take(s, names + used, (size_t)length) != 0 || memchr(names + used, 0, (size_t)length) != NULL) {
      arm_fail(error, "params: a name is truncated or contains NUL");
      free(names);
      return NULL;
    }
    names[used + length] = 0;
    used += length + 1;
  }
  if (names == NULL) arm_fail(error, "params: out of memory for %llu names", (unsigned long long)count);
  return names;
}

static int read_array(source *s, const char *name, arm_param_place place, arm_param_placed placed, void *context,
                      arm_error *error) {
  unsigned char head[ARM_PARAM_HEAD];
  int64_t shape[ARM_MAX_NDIM], bytes;
  arm_tensor value = {NULL, {1, 0}, 0, {0, 0, 0}, shape, NULL, 0};
  void *where;
  if (take(s, head, sizeof head) != 0) return arm_fail(error, "params: truncated in the header of \"%.80s\"", name);
  if (arm_param_head(head, &value.ndim, &value.dtype) != 0)
    return arm_fail(error, "params: \"%.80s\" has a damaged header or an unknown type", name);
  if (take(s, shape, 8 * (size_t)value.ndim) != 0 || take(s, &bytes, 8) != 0)
    return arm_fail(error, "params: truncated in the shape of \"%.80s\"", name);
  int64_t wanted;
  if (arm_tensor_bytes(shape, value.ndim, value.dtype, &wanted) != 0 || wanted != bytes || (uint64_t)bytes > s->left)
    return arm_fail(error, "params: the size of \"%.80s\" does not fit its shape, or the data is truncated", name);
  if (place(context, name, &value, &where, error) != 0) return -1;
  if ((where != NULL ? take_values(s, where, (size_t)bytes) : skip(s, (uint64_t)bytes)) != 0)
    return arm_fail(error, "params: the values of \"%.80s\" cannot be read", name);
  return placed(context, error);
}

int arm_params_stream(int file, int64_t offset, uint64_t size, arm_param_place place, arm_param_placed placed,
                      void *context, uint32_t *crc, arm_error *error) {
  source s = {file, offset, size, 0};
  uint64_t head[3], arrays;
  if (take(&s, head, sizeof head) != 0 || head[0] != ARM_PARAMS_MAGIC)
    return arm_fail(error, "params: not a params blob (bad magic), or truncated");
  if (head[2] > size / 8) return arm_fail(error, "params: claims %llu arrays", (unsigned long long)head[2]);
  char *names = read_names(&s, head[2], error);
  if (names == NULL) return -1;
  int status = 0;
  if (take(&s, &arrays, 8) != 0 || arrays != head[2])
    status = arm_fail(error, "params: as many arrays as names are expected");
  const char *name = names;
  for (uint64_t i = 0; i < head[2] && status == 0; i++, name += strlen(name) + 1)
    status = read_array(&s, name, place, placed, context, error);
  free(names);
  if (status == 0 && s.left != 0)
    status = arm_fail(error, "params: %llu bytes after the last array", (unsigned long long)s.left);
  *crc = s.crc;
  return status;
}
