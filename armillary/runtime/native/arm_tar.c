/* Reading package tars: plain members with exact names, checksums verified.
 *
 * In: bytes. Out: one visit per member. Invariant: links, devices, paths, duplicates and long-name records are refused, so
 * nothing outside the package can be named.
 */
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

int arm_tar_read(const unsigned char *bytes, size_t size, arm_member_visit visit, void *context, arm_error *error) {
  static const char *const names[] = {"mod.so", "mod.json", "mod.params"};
  int seen[3] = {0, 0, 0};
  size_t at = 0;
  for (; size - at >= BLOCK && !is_zero(bytes + at);) {
    const unsigned char *block = bytes + at;
    uint64_t length;
    char name[101] = {0};
    int which = -1;
    memcpy(name, block, 100);
    if (!checksum_ok(block) || octal(block + 124, 12, &length) != 0)
      return arm_fail(error, "tar: a header is damaged");
    const char *plain = strncmp(name, "./", 2) == 0 ? name + 2 : name;
    at += BLOCK;
    if (block[156] == '5' && *plain == 0 && length == 0) continue; /* "./" itself */
    for (int i = 0; i < 3; i++)
      if (strcmp(plain, names[i]) == 0) which = i;
    if ((block[156] != '0' && block[156] != 0) || block[345] != 0 || which < 0 || seen[which]++)
      return arm_fail(error, "tar: unexpected member \"%.60s\"; a package holds mod.so, mod.json, mod.params", name);
    if (length > size - at) return arm_fail(error, "tar: %s is truncated", plain);
    if (visit(context, plain, bytes + at, (size_t)length, error) != 0) return -1;
    size_t padded = ((size_t)length + BLOCK - 1) / BLOCK * BLOCK;
    at = padded > size - at ? size : at + padded;
  }
  if (seen[0] && seen[1] && seen[2]) return 0;
  return arm_fail(error, "tar: not a package: mod.so, mod.json or mod.params is missing");
}
