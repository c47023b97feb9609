/* SHA-256 (FIPS 180-4), HMAC (FIPS 198-1), random bytes.
 *
 * In: bytes in pieces. Out: 32 bytes. Invariant: nothing is allocated; comparing takes a time that tells nothing.
 * Where next: armrpc_frames.c, whose frames carry such tags.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "armrpc.h"

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
    0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
    0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void compress(uint32_t state[8], const unsigned char *block) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
           block[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t b = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t e1 = turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25), choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
    uint32_t e0 = turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22);
    uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    uint32_t first = s[7] + e1 + choice + K[i] + w[i];
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += first;
    s[0] = first + e0 + majority;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

void armrpc_sha256_begin(armrpc_sha256 *hash) {
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(hash->state, start, sizeof start);
  hash->size = 0;
}

void armrpc_sha256_add(armrpc_sha256 *hash, const void *data, size_t size) {
  const unsigned char *p = data;
  size_t filled = hash->size % 64;
  hash->size += size;
  if (filled) {
    size_t some = size < 64 - filled ? size : 64 - filled;
    if (some) memcpy(hash->block + filled, p, some);
    p += some;
    size -= some;
    if (filled + some < 64) return;
    compress(hash->state, hash->block);
  }
  for (; size >= 64; p += 64, size -= 64) compress(hash->state, p);
  if (size) memcpy(hash->block, p, size);
}

void armrpc_sha256_end(armrpc_sha256 *hash, unsigned char out[32]) {
  uint64_t bits = hash->size * 8;
  unsigned char rest[72] = {0x80};
  size_t zeros = (119 - hash->size % 64) % 64;
  for (int i = 0; i < 8; i++) rest[1 + zeros + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
  armrpc_sha256_add(hash, rest, zeros + 9);
  for (int i = 0; i < 32; i++) out[i] = (unsigned char)(hash->state[i / 4] >> (24 - i % 4 * 8));
}

void armrpc_hmac_begin(armrpc_hmac *mac, const void *key, size_t size) {
  unsigned char block[64] = {0}, pad[64];
  if (size > 64) {
    armrpc_sha256 hash;
    armrpc_sha256_begin(&hash);
    armrpc_sha256_add(&hash, key, size);
    armrpc_sha256_end(&hash, block);
  } else {
    memcpy(block, key, size);
  }
  for (int i = 0; i < 64; i++) pad[i] = block[i] ^ 0x36;
  armrpc_sha256_begin(&mac->inner);
  armrpc_sha256_add(&mac->inner, pad, 64);
  for (int i = 0; i < 64; i++) pad[i] = block[i] ^ 0x5c;
  armrpc_sha256_begin(&mac->outer);
  armrpc_sha256_add(&mac->outer, pad, 64);
}

void armrpc_hmac_add(armrpc_hmac *mac, const void *data, size_t size) { armrpc_sha256_add(&mac->inner, data, size); }

void armrpc_hmac_end(armrpc_hmac *mac, unsigned char out[32]) {
  armrpc_sha256_end(&mac->inner, out);
  armrpc_sha256_add(&mac->outer, out, 32);
  armrpc_sha256_end(&mac->outer, out);
}

int armrpc_equal(const void *a, const void *b, size_t size) {
  const volatile unsigned char *p = a, *q = b;
  unsigned char differ = 0;
  for (size_t i = 0; i < size; i++) differ |= p[i] ^ q[i];
  return differ == 0;
}

int armrpc_random(void *out, size_t size) {
  int source = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  ssize_t got = source < 0 ? -1 : read(source, out, size);
  if (source >= 0) close(source);
  return got == (ssize_t)size ? 0 : -1;
}

void armrpc_hex(const void *data, size_t size, char *out) {
  static const char digits[] = "0123456789abcdef";
  const unsigned char *p = data;
  for (size_t i = 0; i < size; i++) {
    *out++ = digits[p[i] >> 4];
    *out++ = digits[p[i] & 15];
  }
  *out = 0;
}
