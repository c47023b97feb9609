/* The CRC-32 of zip files: of packages, libraries and arrays.
 *
 * x86-64 folds 64 bytes at a time by products without carries (Gopal, Ozturk, Guilford, Wolrich, Feghali, Dixon and
 * Karakoyunlu, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009), AArch64 has an
 * instruction for eight bytes; others, and what is left over, take eight tables (Kounavis and Berry, "Novel table
 * lookup-based algorithms for high-performance CRC generation", 2008). On a Zen 4 15 and 2.5 GB/s of what is in L2.
 */
#include "arm_internal.h"

#include <string.h>

#define POLYNOMIAL UINT32_C(0xEDB88320)

static uint32_t table[8][256];
static _Atomic int is_made;

static void make_table(void) { /* by several threads at once, all write the same */
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ (value & 1 ? POLYNOMIAL : 0);
    table[0][i] = value;
  }
  for (uint32_t i = 0; i < 256; i++)
    for (int k = 1; k < 8; k++) table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 255];
  is_made = 1;
}

static uint32_t by_tables(uint32_t crc, const unsigned char *p, size_t size) {
  if (!is_made) make_table();
  for (; size >= 8; size -= 8, p += 8) {
    uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
    crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24] ^
          table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
  }
  for (; size > 0; size--, p++) crc = (crc >> 8) ^ table[0][(crc ^ *p) & 255];
  return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define FEATURE "pclmul"
#define STEP ((size_t)64) /* bytes */

/* x to the power of 544, 480 and of 160, 96 modulo the polynomial, bits reflected: what moves 64 bytes on, and 16. */
static const uint64_t BY_64[2] = {0x154442BD4, 0x1C6E41596}, BY_16[2] = {0x1751997D0, 0x0CCAA009E};

__attribute__((target("pclmul"))) static inline __m128i fold(__m128i sum, __m128i by, __m128i next) {
  __m128i low = _mm_clmulepi64_si128(sum, by, 0x00), high = _mm_clmulepi64_si128(sum, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Of whole steps, one at least. */
__attribute__((target("pclmul"))) static uint32_t by_steps(uint32_t crc, const unsigned char *p, size_t size) {
  const __m128i *next = (const __m128i *)p, *end = (const __m128i *)(p + size);
  const __m128i far = _mm_loadu_si128((const __m128i *)BY_64), near = _mm_loadu_si128((const __m128i *)BY_16);
  __m128i sums[4];
  unsigned char rest[16];
  for (int i = 0; i < 4; i++) sums[i] = _mm_loadu_si128(next++);
  sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128((int)crc));
  while (next < end)
    for (int i = 0; i < 4; i++) sums[i] = fold(sums[i], far, _mm_loadu_si128(next++));
  for (int i = 1; i < 4; i++) sums[i] = fold(sums[i - 1], near, sums[i]);
  _mm_storeu_si128((__m128i *)rest, sums[3]);
  return by_tables(0, rest, sizeof rest);
}
#elif defined(__aarch64__) && defined(__linux__)
#define FEATURE "crc"
#define STEP ((size_t)8)

static uint32_t by_steps(uint32_t crc, const unsigned char *p, size_t size) {
  for (uint64_t word; size > 0; size -= sizeof word, p += sizeof word) {
    memcpy(&word, p, sizeof word);
    __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  }
  return crc;
}
#endif

#if defined(FEATURE)
static int has_steps(void) { /* asked once: CPUID takes a virtual machine longer than 64 KiB take */
  static _Atomic int answer; /* 0: not asked; 1: no; 2: yes */
  if (answer == 0) answer = arm_cpu_lacks(FEATURE) ? 1 : 2;
  return answer == 2;
}
#endif

uint32_t arm_crc32(uint32_t crc, const void *data, size_t size) {
  const unsigned char *p = data;
  crc = ~crc;
#if defined(FEATURE)
  size_t steps = size / STEP * STEP;
  if (steps > 0 && has_steps()) {
    crc = by_steps(crc, p, steps);
    p += steps;
    size -= steps;
  }
#endif
  return ~by_tables(crc, p, size);
}

/* Of polynomials modulo the CRC's; bit 31 is the coefficient of 1. */
static uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (int bit = 31; bit >= 0; bit--) {
    if (a >> bit & 1) sum ^= b;
    b = (b >> 1) ^ (b & 1 ? POLYNOMIAL : 0);
  }
  return sum;
}

uint32_t arm_crc32_join(uint32_t first, uint32_t second, size_t second_size) {
  uint32_t shift = UINT32_C(1) << 31; /* x to the power of 8 second_size: as if as many zeros followed */
  for (uint32_t square = UINT32_C(1) << 23; second_size > 0; second_size >>= 1, square = product(square, square))
    if (second_size & 1) shift = product(shift, square);
  return product(shift, first) ^ second;
}
