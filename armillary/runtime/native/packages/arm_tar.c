/* Reading package tars: plain members with exact names, checksums verified.
 *
 * In: bytes. Out: where the members lie. Invariant: links, devices, paths, duplicates and long-name records are refused, so
 * nothing outside the package can be named.
 */
#include <stdio.h>
#include <string.h>

#include "arm_files.h"

#define BLOCK 512

static int octal(const unsigned char *text, size_t length, uint64_t *out) {
  size_t i = 0;
  *out = 0;
  while (i < length && text[i] == ' ') i++;
  if (i == length || text[i] < '0' || text[i] > '7') return -1;
  for (; i < length && text[i] >= '0' && text[i] <= '7'; i++) *out = *out * 8 + (uint64_t)(text[i] - '0');
  return i == length || text[i] == ' ' || text[i] == 0 ? 0 : -1;
}

static int checksum_ok(const unsigned char *block) {
  uint64_t wanted, sum = 0;
  if (octal(block + 148, 8, &wanted) != 0) return 0;
  for (int i = 0; i < BLOCK; i++) sum += i >= 148 && i < 156 ? ' ' : block[i];
  return sum == wanted;
}

static int is_zero(const unsigned char *block) {
  for (int i = 0; i < BLOCK; i++)
    if (block[i] != 0) return 0;
  return 1;
}

static const char *const names[] = {"mod.so", "mod.json", "mod.params", "mod.crc32"};
#define OBJECT "mod.o" /* in the place of mod.so: linked where it is loaded */

/* The number of a member's name; -1: it is none. */
static int member_of(const char *name) {
  if (strcmp(name, OBJECT) == 0) return ARM_MOD_CODE;
  for (int i = 0; i <= ARM_MEMBERS; i++)
    if (strcmp(name, names[i]) == 0) return i;
  return -1;
}

/* Lines "<8 hex digits>  <member>", one for each other member. A package of functions has no graph and no parameters. */
int arm_member_sums(arm_member members[ARM_MEMBERS], const unsigned char *text, size_t size, arm_error *error) {
  char line[64];
  for (size_t at = 0; at < size;) {
    const unsigned char *end = memchr(text + at, '\n', size - at);
    size_t length = end ? (size_t)(end - text) - at : size - at;
    int which = -1, used = 0;
    unsigned crc;
    if (length >= sizeof line) break;
    memcpy(line, text + at, length);
    line[length] = 0;
    if (sscanf(line, "%8x  %n", &crc, &used) != 1 || used != 10) break;
    which = member_of(line + used);
    if (which < 0 || which == ARM_MEMBERS || members[which].has_crc) break;
    members[which].has_crc = 1;
    members[which].crc = (uint32_t)crc;
    at += length + 1;
  }
  if (!members[ARM_MOD_CODE].has_crc || members[ARM_MOD_JSON].has_crc != members[ARM_MOD_PARAMS].has_crc)
    return arm_fail(error, "mod.crc32 is damaged");
  return 0;
}

int arm_member_check(const arm_member *member, const char *name, uint32_t crc, arm_error *error) {
  if (!member->has_crc || crc == member->crc) return 0;
  return arm_fail(error, "member %s is damaged: its CRC-32 is %08x, the package records %08x", name, (unsigned)crc,
                  (unsigned)member->crc);
}

/* One header: the member it announces (its data begins a block later), or -1 for the folder itself, -2 for damage. */
static int read_header(const unsigned char *block, uint64_t *length, arm_error *error) {
  char name[101] = {0};
  memcpy(name, block, 100);
  if (!checksum_ok(block) || octal(block + 124, 12, length) != 0) {
    arm_fail(error, "tar: a header is damaged");
    return -2;
  }
  const char *plain = strncmp(name, "./", 2) == 0 ? name + 2 : name;
  if (block[156] == '5' && *plain == 0 && *length == 0) return -1; /* "./" itself */
  int which = (block[156] == '0' || block[156] == 0) && block[345] == 0 ? member_of(plain) : -1;
  if (which >= 0) return which;
  arm_fail(error, "tar: unexpected member \"%.60s\"; a package holds mod.so or mod.o, mod.json, mod.params", name);
  return -2;
}

/* Whether a tar ends at `at` as every tar does: a block of zeros, and nothing but zeros behind it. */
static int is_end(const unsigned char *bytes, size_t size, size_t at) {
  if (size - at < BLOCK) return 0;
  while (at < size && bytes[at] == 0) at++;
  return at == size;
}

int arm_tar_read(const unsigned char *bytes, size_t size, arm_member members[ARM_MEMBERS], arm_error *error) {
  arm_member found[ARM_MEMBERS + 1] = {{0}};
  size_t at = 0;
  while (size - at >= BLOCK && !is_zero(bytes + at)) {
    uint64_t length;
    int which = read_header(bytes + at, &length, error);
    if (which == -2) return -1;
    at += BLOCK;
    if (which == -1) continue;
    if (found[which].data != NULL) return arm_fail(error, "tar: member %s occurs twice", names[which]);
    if (length > size - at) return arm_fail(error, "tar: %s is truncated", names[which]);
    found[which].data = bytes + at;
    found[which].size = (size_t)length;
    size_t padded = ((size_t)length + BLOCK - 1) / BLOCK * BLOCK;
    at = padded > size - at ? size : at + padded;
  }
  if (!is_end(bytes, size, at)) return arm_fail(error, "tar: it is truncated, or a header is damaged");
  const arm_member *sums = &found[ARM_MEMBERS]; /* come last: where they are, nothing was cut off */
  int is_functions = sums->data != NULL && found[ARM_MOD_JSON].data == NULL && found[ARM_MOD_PARAMS].data == NULL;
  if (found[ARM_MOD_CODE].data == NULL ||
      (!is_functions && (found[ARM_MOD_JSON].data == NULL || found[ARM_MOD_PARAMS].data == NULL)))
    return arm_fail(error, "tar: not a package: mod.so (or mod.o), mod.json or mod.params is missing");
  if (sums->data != NULL && arm_member_sums(found, sums->data, sums->size, error) != 0) return -1;
  if (sums->data != NULL && found[ARM_MOD_JSON].has_crc != (found[ARM_MOD_JSON].data != NULL))
    return arm_fail(error, "mod.crc32 is damaged");
  for (int i = 0; i < ARM_MOD_PARAMS; i++)
    if (found[i].has_crc &&
        arm_member_check(&found[i], names[i], arm_crc32(0, found[i].data, found[i].size), error) != 0)
      return -1;
  memcpy(members, found, ARM_MEMBERS * sizeof *members);
  return 0;
}
