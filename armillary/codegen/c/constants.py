"""Constants in C text: an array of the type that the values have, every number to its last bit.

In: a name and values. Out: lines that define the array, or a table of parameters by name. Invariant: what a C compiler
makes of the text has the bytes of the values; a number that is none (NaN) is one without its payload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from armillary.base.aliases import Array

_ROW = 16  # numbers in a line
_C_TYPES = {"float32": "float", "float64": "double", "bool": "uint8_t"}
_C_TYPES |= {f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_SUFFIXES = {"uint64_t": "ull", "int64_t": "ll", "float": "f"}
_LINKED = 'static const {} __attribute__((section(".rodata.armillary"), aligned(16)))'


def constant_array(name: str, value: Array, storage: str = "static const _Alignas(64) {}") -> str:
    """The definition of an array, of bytes where C has no type; `storage` stands before its name, {} is the type."""
    kind, flat = _C_TYPES.get(str(value.dtype)), np.ascontiguousarray(value).reshape(-1)
    if kind is None or flat.dtype.kind == "b":
        kind, flat = "uint8_t", flat.view(np.uint8)
    suffix = _SUFFIXES.get(kind, "u" if kind.startswith("u") else "")
    write = _float if flat.dtype.kind == "f" else _integer
    texts = [write(number, suffix) for number in flat.tolist()] or ["0"]
    rows = [", ".join(texts[k : k + _ROW]) for k in range(0, len(texts), _ROW)]
    body = ",\n  ".join(rows)
    return f"{storage.format(kind)} {name}[{max(1, flat.size)}] = {{\n  {body}\n}};\n"


def _integer(value: int, suffix: str) -> str:
    if value < -(2**31) + 1:  # C has no negative numbers, and 2**31 or 2**63 may be too large
        return f"(-{-value - 1:#x}{suffix} - 1)"
    return f"{value:#04x}{suffix}"


def _float(value: float, suffix: str) -> str:
    if math.isfinite(value):
        return value.hex() + suffix
    return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"


def linked_parameters(params: Mapping[str, Array]) -> str:
    """Parameters as C: an array of each, and a table `armillary_linked_params` of names, places and sizes in bytes."""
    arrays = [constant_array(f"constant_{k}", value, _LINKED) for k, value in enumerate(params.values())]
    rows = [f'  {{"{_escaped(name)}", constant_{k}, sizeof(constant_{k})}},' for k, name in enumerate(params)]
    head = "const struct {\n  const char *name;\n  const void *data;\n  size_t bytes;\n} armillary_linked_params[] = {"
    return "\n".join(["#include <stddef.h>\n", *arrays, head, *rows, "  {0, 0, 0}\n};\n"])


def _escaped(name: str) -> str:
    return "".join(c if c.isprintable() and c.isascii() and c not in '"\\?' else _octal(c) for c in name)


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())
