/* Checksums that stand at the end of a shared library, behind what the loader looks at.
 *
 * In: an open library. Out: whether it holds what was exported, and the CRC-32 of the parameters in it, which are read
 * later. Invariant: a library without them (linked by another tool, or stripped) is taken as it is if nothing stands behind
 * it; one whose sums do not fit is refused before the dynamic loader sees it. The Python twin: armillary/base/library_sums.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <elf.h>
#endif

#include "arm_internal.h"

#define MAGIC "ARMSUMS1"
#define CHUNK ((size_t)256 << 10)
#define PAGE 4096 /* what tools that move sections to the end of a library fill it up to */

typedef struct { /* little-endian, 48 bytes */
  char magic[8];
  uint64_t size; /* of the file without this */
  uint64_t params_at, params_size;
  uint32_t head_crc, params_crc; /* of everything but the parameters, of the parameters */
  uint32_t own_crc, zero;        /* of the fields before */
} sums;

static int read_exactly(int file, void *out, size_t size, uint64_t at) {
  for (size_t done = 0; done < size;) {
    ssize_t got = pread(file, (char *)out + done, size - done, (off_t)(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return -1;
    done += (size_t)got;
  }
  return 0;
}

static int add_range(int file, uint64_t begin, uint64_t end, uint32_t *crc) {
  char *chunk = malloc(CHUNK);
  int status = chunk == NULL ? -1 : 0;
  for (uint64_t at = begin; at < end && status == 0;) {
    size_t part = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
    status = read_exactly(file, chunk, part, at);
    if (status == 0) *crc = arm_crc32(*crc, chunk, part);
    at += part;
  }
  free(chunk);
  return status;
}

/* Whether all bytes are one: what a disk gives for a block that was never written. No linker ends a file so. */
static int is_filled(const sums *s) {
  const char *byte = (const char *)s;
  return memcmp(byte, byte + 1, sizeof *s - 1) == 0;
}

/* Whether these are sums, be they damaged: the magic but for a quarter of its bits, the size of the file, or their own sum,
 * or nothing but zeros. A library without sums is not checked at all, so damage must not make it look like one. */
static int were_sums(const sums *s, uint64_t size) {
  uint64_t magic, wanted;
  if (is_filled(s)) return 1;
  memcpy(&magic, s->magic, sizeof magic);
  memcpy(&wanted, MAGIC, sizeof wanted);
  return __builtin_popcountll(magic ^ wanted) <= 16 || s->size == size ||
         s->own_crc == arm_crc32(0, s, offsetof(sums, own_crc));
}

#if defined(__linux__)
static void extend(uint64_t *end, uint64_t at, uint64_t size) {
  uint64_t behind = at > UINT64_MAX - size ? UINT64_MAX : at + size;
  if (behind > *end) *end = behind;
}

/* Where the headers of a 64-bit library say that it ends; 0 if it is none, or if its headers cannot be read. */
static uint64_t end_of_library(int file) {
  Elf64_Ehdr head;
  if (read_exactly(file, &head, sizeof head, 0) != 0 || memcmp(head.e_ident, ELFMAG "\2\1", SELFMAG + 2) != 0) return 0;
  if (head.e_phentsize != sizeof(Elf64_Phdr) || (head.e_shnum > 0 && head.e_shentsize != sizeof(Elf64_Shdr))) return 0;
  uint64_t end = sizeof head;
  extend(&end, head.e_phoff, (uint64_t)head.e_phnum * sizeof(Elf64_Phdr));
  extend(&end, head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr));
  for (uint64_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (read_exactly(file, &segment, sizeof segment, head.e_phoff + i * sizeof segment) != 0) return UINT64_MAX;
    extend(&end, segment.p_offset, segment.p_filesz);
  }
  for (uint64_t i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    if (read_exactly(file, &section, sizeof section, head.e_shoff + i * sizeof section) != 0) return UINT64_MAX;
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL) extend(&end, section.sh_offset, section.sh_size);
  }
  return end;
}
#else
static uint64_t end_of_library(int file) { return (void)file, 0; }
#endif

/* Whether a library without sums ends where its headers say. One that had them does not if a part of them is left. */
static int ends_where_it_says(int file, uint64_t size) {
  uint64_t end = end_of_library(file);
  char rest[PAGE];
  if (end == 0 || end == size) return 1;
  if (end > size || size - end >= PAGE || size % PAGE != 0 || read_exactly(file, rest, size - end, end) != 0) return 0;
  for (uint64_t i = 0; i < size - end; ++i)
    if (rest[i] != 0) return 0;
  return 1;
}

int arm_sums_check(const char *path, int file, arm_params_sum *params, arm_error *error) {
  struct stat info;
  sums s;
  uint32_t crc = 0;
  *params = (arm_params_sum){0, 0};
  if (fstat(file, &info) != 0 || (uint64_t)info.st_size <= sizeof s) return 0;
  uint64_t size = (uint64_t)info.st_size - sizeof s;
  if (read_exactly(file, &s, sizeof s, size) != 0) return arm_fail(error, "%s: cannot be read", path);
  if (!were_sums(&s, size)) {
    if (ends_where_it_says(file, size + sizeof s)) return 0;
    return arm_fail(error, "%s: the library is damaged: it does not end where its headers say; export or copy it again", path);
  }
  if (memcmp(s.magic, MAGIC, sizeof s.magic) != 0 || s.own_crc != arm_crc32(0, &s, offsetof(sums, own_crc)) || s.size != size || s.params_at > size ||
      s.params_size > size - s.params_at)
    return arm_fail(error, "%s: the library is damaged: its checksums cannot be read; export or copy it again", path);
  if (add_range(file, 0, s.params_at, &crc) != 0 || add_range(file, s.params_at + s.params_size, size, &crc) != 0)
    return arm_fail(error, "%s: cannot be read", path);
  if (crc != s.head_crc)
    return arm_fail(error, "%s: the library is damaged: its CRC-32 is %08x, it records %08x; export or copy it again", path,
                    (unsigned)crc, (unsigned)s.head_crc);
  *params = (arm_params_sum){s.params_size > 0, s.params_crc};
  return 0;
}

int arm_params_sum_check(const arm_params_sum *wanted, uint32_t crc, arm_error *error) {
  if (!wanted->is_known || crc == wanted->crc) return 0;
  return arm_fail(error, "the parameters in the library are damaged: their CRC-32 is %08x, it records %08x", (unsigned)crc,
                  (unsigned)wanted->crc);
}
