"""float16 where a device may have no arithmetic in half (cl_khr_fp16): texts that the preprocessor decides.

In: nothing. Out: types, loads and stores that mean half where the device computes in it, else float between loads from
memory and stores to it, which every device has. Invariant: memory holds half either way, so a package runs on both.
Without cl_khr_fp16 a value is rounded when it is stored, not after each operation, and what a group shares takes four
bytes. Who writes them: `expr.py`, `vector.py`, `texel.py`, `source.py`.
"""

from __future__ import annotations

import re

TYPE = "half_t"
MASK = "half_mask"  # of a vector: what `select` takes beside it
READ_IMAGE = "half_read_image"

_LANES = (2, 4, 8, 16)
TYPES = "\n".join(
    (
        "#if defined(ARMILLARY_HALF) || defined(cl_khr_fp16)",  # the first by our runtime
        "#pragma OPENCL EXTENSION cl_khr_fp16 : enable",
        "typedef half half_t;",
        *(f"typedef half{n} half_t{n}; typedef short{n} half_mask{n};" for n in _LANES),
        "#define half_read_image read_imageh",
        "#define half_load(at) (*(at))",
        "#define half_store(value, at) (*(at) = (value))",
        "#define half_load_run(n, at) vload##n(0, at)",
        "#define half_store_run(n, value, at) vstore##n(value, 0, at)",
        "#define half_load_aligned(n, at) (*(__global half##n*)(at))",
        "#define half_store_aligned(n, value, at) (*(__global half##n*)(at) = (value))",
        "#define half_guarded(n, test, at) ((test) ? *(__global half##n*)(at) : (half##n)(0))",
        *(f"#define convert_half_t{n} convert_half{n}" for n in _LANES),
        "static inline float half_number(ushort bits) { return (float)as_half(bits); }",
        *(
            f"static inline float{n} half_numbers_{n}(ushort{n} bits) {{ return convert_float{n}(as_half{n}(bits)); }}"
            for n in _LANES
        ),
        "#else",
        "typedef float half_t;",
        *(f"typedef float{n} half_t{n}; typedef int{n} half_mask{n};" for n in _LANES),
        "#define half_read_image read_imagef",
        "#define half_load(at) vload_half(0, at)",
        "#define half_store(value, at) vstore_half_rte(value, 0, at)",
        "#define half_load_run(n, at) vload_half##n(0, at)",
        "#define half_store_run(n, value, at) vstore_half##n##_rte(value, 0, at)",
        # One access of a word: NVIDIA's compiler makes of vloada_half and vstorea_half one for each element, and a
        # depthwise convolution of 16 results a work-item took 53 us, by words 26.
        "#define half_load_aligned(n, at) half_of_word_##n(*(const __global half_word_##n*)(at))",
        # The test is of the word: a conversion behind it does not wait for the load where it stands.
        "#define half_guarded(n, test, at) "
        "half_of_word_##n((test) ? *(const __global half_word_##n*)(at) : (half_word_##n)(0))",
        "#define half_store_aligned(n, value, at) half_store_aligned_##n(value, at)",
        *(
            f"typedef {word} half_word_{n};\n"
            f"static inline float{n} half_of_word_{n}({word} bits) {{ return vload_half{n}(0, (const half*)&bits); }}\n"
            f"static inline void half_store_aligned_{n}(float{n} value, __global half* at) {{\n"
            f"  {word} bits;\n  vstore_half{n}_rte(value, 0, (half*)&bits);\n  *(__global {word}*)at = bits;\n}}"
            for n, word in ((2, "uint"), (4, "uint2"), (8, "uint4"), (16, "uint8"))
        ),
        *(f"#define convert_half_t{n} convert_float{n}" for n in _LANES),
        "static inline float half_number(ushort bits) { return vload_half(0, (const half*)&bits); }",
        *(
            f"static inline float{n} half_numbers_{n}(ushort{n} bits) "
            f"{{ return vload_half{n}(0, (const half*)&bits); }}"
            for n in _LANES
        ),
        "#endif",
        "#define half_stored(at) (*(const __global ushort*)(at))",
    )
)
NAMES = frozenset(
    f"half_{name}"
    for name in (
        "t",
        "read_image",
        "load",
        "store",
        "load_run",
        "store_run",
        "load_aligned",
        "store_aligned",
        "guarded",
        "stored",
        "number",
    )
) | frozenset(f"half_{name}_{n}" for name in ("word", "of_word", "store_aligned", "numbers") for n in _LANES)
_NAMED = re.compile(rf"\b(?:convert_)?(?:{'|'.join(NAMES)})")
HELPERS = {
    "lane4h": "static inline half_t armillary_lane4h(half_t4 x, int lane) {\n"
    "  return lane == 0 ? x.s0 : lane == 1 ? x.s1 : lane == 2 ? x.s2 : x.s3;\n}\n",
    "maxh": "static inline half_t armillary_maxh(half_t a, half_t b) { return a > b || a != a ? a : b; }\n",
    "minh": "static inline half_t armillary_minh(half_t a, half_t b) { return a < b || a != a ? a : b; }\n",
    "half_bits": "static inline ushort armillary_half_bits(half_t x) {\n"
    "  ushort bits;\n  vstore_half_rte((float)x, 0, (half*)&bits);\n  return bits;\n}\n",
    "half_of": "static inline half_t armillary_half_of(ushort bits) {\n"
    "  return (half_t)vload_half(0, (half*)&bits);\n}\n",
}


def are_named_in(text: str) -> bool:
    """Whether the text of a kernel or helper needs TYPES before it."""
    return _NAMED.search(text) is not None


def load(address: str) -> str:
    """An element of memory."""
    return f"half_load({address})"


def stored(address: str) -> str:
    """The bits of an element of memory."""
    return f"half_stored({address})"


def number(bits: str, lanes: int = 1) -> str:
    """The float of bits."""
    return f"half_numbers_{lanes}({bits})" if lanes > 1 else f"half_number({bits})"


def store(value: str, address: str) -> str:
    """The statement that stores an element to memory."""
    return f"half_store({value}, {address});"


def load_run(lanes: int, address: str, *, aligned: bool) -> str:
    """Neighbours in memory."""
    return f"half_load_{'aligned' if aligned else 'run'}({lanes}, {address})"


def guarded(lanes: int, test: str, address: str) -> str:
    """Aligned neighbours in memory, or zeros."""
    return f"half_guarded({lanes}, {test}, {address})"


def store_run(lanes: int, value: str, address: str, *, aligned: bool) -> str:
    """The statement that stores neighbours to memory."""
    return f"half_store_{'aligned' if aligned else 'run'}({lanes}, {value}, {address});"
