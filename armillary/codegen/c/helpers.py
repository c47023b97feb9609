"""Helper functions in C that expressions call: their text by name.

In: nothing. Out: `HELPERS`, name to the text of a static function or macro. Invariant: a helper that calls another
comes behind it, and a kernel's source holds those that it uses, once each. The expressions: `expr.py`.
"""

from __future__ import annotations

_HAS_FMA = "defined(__FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)"
HELPERS = {
    **{
        f"fma{f}": f"static inline {kind} armillary_fma{f}({kind} a, {kind} b, {kind} c) {{\n"
        f"#if {_HAS_FMA}\n  return fma{f}(a, b, c);\n#else\n  return a * b + c;\n#endif\n}}\n"
        for kind, f in (("float", "f"), ("double", ""))
    },
    "floordiv": "static inline int64_t armillary_floordiv(int64_t a, int64_t b) {\n"
    "  if (b == 0) return 0;\n  if (b == -1) return (int64_t)(0 - (uint64_t)a);\n"
    "  int64_t q = a / b, r = a % b;\n  return q - (r != 0 && (r < 0) != (b < 0));\n}\n",
    "floormod": "static inline int64_t armillary_floormod(int64_t a, int64_t b) {\n"
    "  if (b == 0 || b == -1) return 0;\n"
    "  int64_t r = a % b;\n  return r + (r != 0 && (r < 0) != (b < 0) ? b : 0);\n}\n",
    "truncdiv": "static inline int64_t armillary_truncdiv(int64_t a, int64_t b) {\n"
    "  return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;\n}\n",
    "truncmod": "static inline int64_t armillary_truncmod(int64_t a, int64_t b) {\n"
    "  return b == 0 || b == -1 ? 0 : a % b;\n}\n",
    "udiv": "static inline uint64_t armillary_udiv(uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }\n",
    "umod": "static inline uint64_t armillary_umod(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }\n",
    "prefetch": "#if defined(__GNUC__)\n"
    "#define ARMILLARY_PREFETCH(at, rw, locality) __builtin_prefetch(at, rw, locality)\n"
    "#else\n#define ARMILLARY_PREFETCH(at, rw, locality) ((void)(at))\n#endif\n",
    "maxf": "static inline float armillary_maxf(float a, float b) { return a > b || a != a ? a : b; }\n",
    "minf": "static inline float armillary_minf(float a, float b) { return a < b || a != a ? a : b; }\n",
    "max": "static inline double armillary_max(double a, double b) { return a > b || a != a ? a : b; }\n",
    "min": "static inline double armillary_min(double a, double b) { return a < b || a != a ? a : b; }\n",
    "modf": "static inline float armillary_modf(float a, float b) {\n"
    "  float r = fmodf(a, b);\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n}\n",
    "mod": "static inline double armillary_mod(double a, double b) {\n"
    "  double r = fmod(a, b);\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n}\n",
    "clz": "static inline int armillary_clz(uint64_t x, int bits) {\n"
    "  int n = bits;\n  while (x) { x >>= 1; --n; }\n  return n;\n}\n",
    "popcount": "static inline int armillary_popcount(uint64_t x) {\n"
    "  int n = 0;\n  while (x) { x &= x - 1; ++n; }\n  return n;\n}\n",
    "four_bytes": "static inline uint32_t armillary_four_bytes(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {\n"
    "  return a | (uint32_t)b << 8 | (uint32_t)c << 16 | (uint32_t)d << 24;\n}\n",
    "eight_bytes": "static inline uint64_t armillary_eight_bytes(uint8_t a, uint8_t b, uint8_t c, uint8_t d,\n"
    "                                             uint8_t e, uint8_t f, uint8_t g, uint8_t h) {\n"
    "  return armillary_four_bytes(a, b, c, d) | (uint64_t)armillary_four_bytes(e, f, g, h) << 32;\n}\n",
    "pack_bf16": "static inline uint32_t armillary_pack_bf16(uint16_t a, uint16_t b) {\n"
    "  return a | (uint32_t)b << 16;\n}\n",
    **{
        f"dot_{x}_{y}": f"static inline int32_t armillary_dot_{x}_{y}(uint32_t a, uint32_t b) {{\n"
        "  int32_t sum = 0;\n  for (int k = 0; k < 32; k += 8)\n"
        f"    sum += (int32_t)({x}8_t)(a >> k) * (int32_t)({y}8_t)(b >> k);\n  return sum;\n}}\n"
        for x in ("int", "uint")
        for y in ("int", "uint")
    },
    **{
        f"dot_{x}_{y}_long": f"static inline int32_t armillary_dot_{x}_{y}_long(uint64_t a, uint64_t b) {{\n"
        f"  return armillary_dot_{x}_{y}((uint32_t)a, (uint32_t)b)\n"
        f"    + armillary_dot_{x}_{y}((uint32_t)(a >> 32), (uint32_t)(b >> 32));\n}}\n"
        for x in ("int", "uint")
        for y in ("int", "uint")
    },
    "from_float16": "static inline float armillary_from_float16(uint16_t x) {\n"
    "  uint32_t m = x & 0x7fffu, bits = m << 13;\n  float y;\n  memcpy(&y, &bits, 4);\n  y *= 0x1p112f;\n"
    "  memcpy(&bits, &y, 4);\n  if (m >= 0x7c00u) bits = m << 13 | 0x7f800000u;\n"
    "  bits |= (uint32_t)(x & 0x8000u) << 16;\n  memcpy(&y, &bits, 4);\n  return y;\n}\n",
    "to_float16": "static inline uint16_t armillary_to_float16(float x) {\n"
    "  uint32_t bits, sign;\n  memcpy(&bits, &x, 4);\n  sign = bits >> 16 & 0x8000u;\n  bits &= 0x7fffffffu;\n"
    "  if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);\n"
    "  if (bits >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);\n"
    "  if (bits < 0x38800000u) {\n    float y;\n    memcpy(&y, &bits, 4);\n    y += 0.5f;\n    memcpy(&bits, &y, 4);\n"
    "    return (uint16_t)(sign | (bits - 0x3f000000u));\n  }\n"
    "  return (uint16_t)(sign | (((bits + 0xfffu + (bits >> 13 & 1u)) >> 13) - (112u << 10)));\n}\n",
    "from_bfloat16": "static inline float armillary_from_bfloat16(uint16_t x) {\n"
    "  uint32_t bits = (uint32_t)x << 16;\n  float y;\n  memcpy(&y, &bits, 4);\n  return y;\n}\n",
    "to_bfloat16": "static inline uint16_t armillary_to_bfloat16(float x) {\n"
    "  uint32_t bits;\n  memcpy(&bits, &x, 4);\n  if (x != x) return (uint16_t)((bits >> 16 & 0x8000u) | 0x7fc0u);\n"
    "  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);\n}\n",
    "dot_bf16": "static inline float armillary_dot_bf16(uint32_t a, uint32_t b) {\n"
    "  return armillary_from_bfloat16((uint16_t)a) * armillary_from_bfloat16((uint16_t)b)\n"
    "    + armillary_from_bfloat16((uint16_t)(a >> 16)) * armillary_from_bfloat16((uint16_t)(b >> 16));\n}\n",
}
