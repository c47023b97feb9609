/* What the processor has of the features that compiled code may ask for.
 *
 * In: a name in LLVM's spelling. Out: whether it is missing here. Invariant: a feature counts as there only if the system
 * saves its registers, too; a name that is not in the table, or another architecture, is never said to be missing.
 */
#include "arm_internal.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

enum { ECX1, EBX7, ECX_AMD, REGISTERS }; /* CPUID tells it in a register of leaf 1, 7 or 0x80000001 */
#define AVX_STATE 0x06u                  /* of XCR0: vectors of 256 bits are saved */
#define AVX512_STATE 0xE6u               /* masks and vectors of 512 bits, too */

typedef struct { const char *name; int where, bit; unsigned state; } feature;

static const feature FEATURES[] = {
    {"avx", ECX1, 28, AVX_STATE},         {"fma", ECX1, 12, AVX_STATE},         {"f16c", ECX1, 29, AVX_STATE},
    {"avx2", EBX7, 5, AVX_STATE},         {"avx512f", EBX7, 16, AVX512_STATE},  {"avx512dq", EBX7, 17, AVX512_STATE},
    {"avx512bw", EBX7, 30, AVX512_STATE}, {"avx512vl", EBX7, 31, AVX512_STATE}, {"fma4", ECX_AMD, 16, AVX_STATE},
};

static unsigned saved_state(unsigned ecx1) {
  unsigned low, high;
  if ((ecx1 >> 27 & 1) == 0) return 0; /* no OSXSAVE: XGETBV would trap */
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

int arm_cpu_lacks(const char *name) {
  unsigned a, b, c, d, told[REGISTERS] = {0};
  if (__get_cpuid(1, &a, &b, &c, &d)) told[ECX1] = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) told[EBX7] = b;
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) told[ECX_AMD] = c;
  unsigned state = saved_state(told[ECX1]);
  for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++) {
    const feature *f = &FEATURES[i];
    if (strcmp(f->name, name) == 0) return (told[f->where] >> f->bit & 1) == 0 || (state & f->state) != f->state;
  }
  return 0;
}
#else
int arm_cpu_lacks(const char *name) {
  (void)name;
  return 0;
}
#endif
