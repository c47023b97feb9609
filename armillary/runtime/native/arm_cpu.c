/* What the processor has of the features that compiled code may ask for, and how many CPUs this process may use.
 *
 * In: a name in LLVM's spelling. Out: whether it is missing here. Invariant: a feature counts as there only if the system
 * saves its registers, too; a name that is not in the table, or another architecture, is never said to be missing. On
 * AArch64 the system tells (getauxval). Room for matrix tiles is what the system must be asked for: asking whether they
 * are missing does that.
 */
#define _GNU_SOURCE /* syscall, sched_getaffinity */
#include "arm_internal.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

int arm_cpu_count(void) {
#if defined(__linux__)
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
#else
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (int)count : 1;
#endif
}

#if defined(__x86_64__)
#include <cpuid.h>

enum { ECX1, EBX7, ECX7, EDX7, EAX71, EDX71, ECX_AMD, REGISTERS }; /* CPUID's leaves 1, 7, 7 (1) and 0x80000001 */
enum { TILES_OF_HALVES = 22, TILES = 24, TILES_OF_BYTES = 25 }; /* bits of EDX7 */
#define SSE_STATE 0u
#define AVX_STATE 0x06u    /* of XCR0: vectors of 256 bits are saved */
#define AVX512_STATE 0xE6u /* masks and vectors of 512 bits, too */

typedef struct { const char *name; int where, bit; unsigned state; } feature;

static const feature FEATURES[] = {
    {"sse3", ECX1, 0, SSE_STATE},
    {"pclmul", ECX1, 1, SSE_STATE},
    {"ssse3", ECX1, 9, SSE_STATE},
    {"sse4.1", ECX1, 19, SSE_STATE},
    {"sse4.2", ECX1, 20, SSE_STATE},
    {"movbe", ECX1, 22, SSE_STATE},
    {"popcnt", ECX1, 23, SSE_STATE},
    {"aes", ECX1, 25, SSE_STATE},
    {"lzcnt", ECX_AMD, 5, SSE_STATE},
    {"sse4a", ECX_AMD, 6, SSE_STATE},
    {"bmi", EBX7, 3, SSE_STATE},
    {"bmi2", EBX7, 8, SSE_STATE},
    {"adx", EBX7, 19, SSE_STATE},
    {"sha", EBX7, 29, SSE_STATE},
    {"gfni", ECX7, 8, SSE_STATE},
    {"avx", ECX1, 28, AVX_STATE},
    {"fma", ECX1, 12, AVX_STATE},
    {"fma4", ECX_AMD, 16, AVX_STATE},
    {"f16c", ECX1, 29, AVX_STATE},
    {"avx2", EBX7, 5, AVX_STATE},
    {"vaes", ECX7, 9, AVX_STATE},
    {"vpclmulqdq", ECX7, 10, AVX_STATE},
    {"avxvnni", EAX71, 4, AVX_STATE},
    {"avxifma", EAX71, 23, AVX_STATE},
    {"avxvnniint8", EDX71, 4, AVX_STATE},
    {"avxneconvert", EDX71, 5, AVX_STATE},
    {"avxvnniint16", EDX71, 10, AVX_STATE},
    {"avx512f", EBX7, 16, AVX512_STATE},
    {"avx512dq", EBX7, 17, AVX512_STATE},
    {"avx512ifma", EBX7, 21, AVX512_STATE},
    {"avx512cd", EBX7, 28, AVX512_STATE},
    {"avx512bw", EBX7, 30, AVX512_STATE},
    {"avx512vl", EBX7, 31, AVX512_STATE},
    {"avx512vbmi", ECX7, 1, AVX512_STATE},
    {"avx512vbmi2", ECX7, 6, AVX512_STATE},
    {"avx512vnni", ECX7, 11, AVX512_STATE},
    {"avx512bitalg", ECX7, 12, AVX512_STATE},
    {"avx512vpopcntdq", ECX7, 14, AVX512_STATE},
    {"avx512vp2intersect", EDX7, 8, AVX512_STATE},
    {"avx512fp16", EDX7, 23, AVX512_STATE},
    {"avx512bf16", EAX71, 5, AVX512_STATE},
};

static unsigned saved_state(unsigned ecx1) {
  unsigned low, high;
  if ((ecx1 >> 27 & 1) == 0) return 0; /* no OSXSAVE: XGETBV would trap */
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#define TILE_STATE 0x60000u /* of XCR0: matrix tiles and their setup are saved */
enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 }; /* of arch_prctl: the system makes room for tiles when it is asked */

/* Ask once for the process; every thread may then use tiles. `bit`: of EDX7, tiles or products of them. */
static int lacks_tiles(int bit) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (saved_state(c) & TILE_STATE) != TILE_STATE) return 1;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> bit & d >> TILES & 1) == 0) return 1;
  return syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) != 0;
}
#else
static int lacks_tiles(int bit) { return bit != 0; }
#endif

int arm_cpu_lacks(const char *name) {
  if (strcmp(name, "amx-tile") == 0) return lacks_tiles(TILES);
  if (strcmp(name, "amx-int8") == 0) return lacks_tiles(TILES_OF_BYTES);
  if (strcmp(name, "amx-bf16") == 0) return lacks_tiles(TILES_OF_HALVES);
  unsigned a, b, c, d, told[REGISTERS] = {0};
  if (__get_cpuid(1, &a, &b, &c, &d)) told[ECX1] = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    unsigned last = a;
    told[EBX7] = b, told[ECX7] = c, told[EDX7] = d;
    if (last >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) told[EAX71] = a, told[EDX71] = d;
  }
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) told[ECX_AMD] = c;
  unsigned state = saved_state(told[ECX1]);
  for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++) {
    const feature *f = &FEATURES[i];
    if (strcmp(f->name, name) == 0) return (told[f->where] >> f->bit & 1) == 0 || (state & f->state) != f->state;
  }
  return 0;
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

typedef struct { const char *name; unsigned long word; int bit; } feature;

static const feature FEATURES[] = { /* as <asm/hwcap.h> numbers them */
    {"neon", AT_HWCAP, 1},       {"crc", AT_HWCAP, 7},       {"lse", AT_HWCAP, 8},     {"fullfp16", AT_HWCAP, 10},
    {"rdm", AT_HWCAP, 12},       {"complxnum", AT_HWCAP, 14}, {"dotprod", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},
    {"fp16fml", AT_HWCAP, 23},   {"i8mm", AT_HWCAP2, 13},    {"bf16", AT_HWCAP2, 14},
};

int arm_cpu_lacks(const char *name) {
  for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++)
    if (strcmp(FEATURES[i].name, name) == 0) return (getauxval(FEATURES[i].word) >> FEATURES[i].bit & 1) == 0;
  return 0;
}
#else
int arm_cpu_lacks(const char *name) {
  (void)name;
  return 0;
}
#endif
