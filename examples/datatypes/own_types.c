/* Two number types of a script's own, in C: what examples/datatypes/own_types.py compiles and gives to kernels.
 *
 * "brain": bfloat16 by hand, the upper half of a float, rounded to even. "posites2": posits (Gustafson) of 8, 16 or 32
 * bits with two bits of exponent, rounded to even; arithmetic is in double, which holds every posit32 and rounds each
 * result once more than a posit unit would where it has more than 53 bits. */
#include <math.h>
#include <stdint.h>
#include <string.h>

static float float_of(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static uint32_t bits_of(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

uint16_t FloatToBrain(float x) {
  uint32_t bits = bits_of(x);
  if (x != x) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
float BrainToFloat(uint16_t x) { return float_of((uint32_t)x << 16); }
#define BRAIN(name, expression) \
  uint16_t Brain##name(uint16_t a, uint16_t b) { \
    float x = BrainToFloat(a), y = BrainToFloat(b); return FloatToBrain(expression); }
BRAIN(Add, x + y)
BRAIN(Sub, x - y)
BRAIN(Mul, x * y)
BRAIN(Div, x / y)
BRAIN(Max, x > y ? x : y)
BRAIN(Min, x < y ? x : y)

/* A posit of n bits as a number: sign, regime (a run of equal bits), up to two bits of exponent, fraction. */
static double posit_value(uint32_t bits, int n) {
  uint32_t mask = n == 32 ? 0xffffffffu : (1u << n) - 1, top = 1u << (n - 1);
  bits &= mask;
  if (bits == 0) return 0.0;
  if (bits == top) return NAN;
  int negative = (bits & top) != 0, k = n - 2, run = 0, exponent = 0;
  if (negative) bits = (~bits + 1) & mask;
  int first = (bits >> k) & 1;
  while (k >= 0 && (int)((bits >> k) & 1) == first) run++, k--;
  k--; /* the bit that ends the run */
  int regime = first ? run - 1 : -run;
  for (int i = 0; i < 2; i++, k--) exponent = 2 * exponent + (k >= 0 ? (bits >> k) & 1 : 0);
  double fraction = 1.0, weight = 0.5;
  for (; k >= 0; k--, weight *= 0.5) if ((bits >> k) & 1) fraction += weight;
  double value = ldexp(fraction, 4 * regime + exponent);
  return negative ? -value : value;
}

/* The posit nearest to a number; of two, the one whose last bit is 0. Never zero or infinite where x is neither. */
static uint32_t posit_of(double x, int n) {
  uint32_t top = 1u << (n - 1), least = 1, most = top - 1;
  if (x == 0) return 0;
  if (x != x || isinf(x)) return top;
  double size = fabs(x);
  while (least < most) { /* positive posits are in the order of their bits: the largest that is not above */
    uint32_t middle = least + (most - least + 1) / 2;
    if (posit_value(middle, n) <= size) least = middle; else most = middle - 1;
  }
  if (least < top - 1 && posit_value(least, n) < size) {
    double low = posit_value(least, n), high = posit_value(least + 1, n);
    /* the boundary is the posit of one more bit between them */
    double half = n < 32 ? posit_value(2 * least + 1, n + 1) : low + (high - low) / 2;
    if (size > half || (size == half && (least & 1))) least++;
  }
  if (x > 0) return least;
  return n == 32 ? ~least + 1 : (~least + 1) & ((1u << n) - 1);
}

#define POSIT(n, type) \
  type FloatToPosit##n##es2(float x) { return (type)posit_of(x, n); } \
  type IntToPosit##n##es2(int x) { return (type)posit_of(x, n); } \
  float Posit##n##es2ToFloat(type x) { return (float)posit_value(x, n); } \
  int Posit##n##es2ToInt(type x) { return (int)posit_value(x, n); } \
  type Posit##n##es2Add(type a, type b) { return (type)posit_of(posit_value(a, n) + posit_value(b, n), n); } \
  type Posit##n##es2Sub(type a, type b) { return (type)posit_of(posit_value(a, n) - posit_value(b, n), n); } \
  type Posit##n##es2Mul(type a, type b) { return (type)posit_of(posit_value(a, n) * posit_value(b, n), n); } \
  type Posit##n##es2Div(type a, type b) { return (type)posit_of(posit_value(a, n) / posit_value(b, n), n); } \
  type Posit##n##es2Max(type a, type b) { return posit_value(a, n) > posit_value(b, n) ? a : b; } \
  type Posit##n##es2Sqrt(type a) { return (type)posit_of(sqrt(posit_value(a, n)), n); } \
  type Posit##n##es2Exp(type a) { return (type)posit_of(exp(posit_value(a, n)), n); } \
  type Posit##n##es2Tanh(type a) { return (type)posit_of(tanh(posit_value(a, n)), n); } \
  type MinPosit##n##es2(void) { return (type)(((type)1 << (n - 1)) + 1); }
POSIT(8, uint8_t)
POSIT(16, uint16_t)
POSIT(32, uint32_t)
