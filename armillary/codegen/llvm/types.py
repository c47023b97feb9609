"""How dtypes and constants are spelled in LLVM IR.

In: DTypes and Python numbers. Out: text. Invariant: a register type is what expressions use (bool is i1, int4 is i4,
bfloat16 and 8-bit floats are their bits); a memory type is what buffers hold (bool and int4 take one byte).
"""

from __future__ import annotations

import functools
import struct
from contextlib import nullcontext

import numpy as np

from armillary.base.dtype import DType
from armillary.errors import UnsupportedError

_LARGEST = float(np.finfo(np.float32).max)
_FLOATS = {16: "half", 32: "float", 64: "double"}


def is_raw(dtype: DType) -> bool:
    """Whether registers hold the bits of this float type, because LLVM has no arithmetic for it."""
    return dtype.code == "bfloat" or (dtype.code == "float" and dtype.bits < 16)


def vector(element: str, lanes: int) -> str:
    """The type of `lanes` elements; one lane is the element itself."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@functools.cache
def register_element(dtype: DType) -> str:
    """The register type of one lane."""
    if dtype.is_bool:
        return "i1"
    if dtype.is_int:
        return f"i{dtype.bits}"
    if dtype.code == "handle":
        return "ptr"
    if is_raw(dtype):
        return f"i{dtype.bits}"
    if dtype.code == "float" and dtype.bits in _FLOATS:
        return _FLOATS[dtype.bits]
    raise UnsupportedError(f"llvm: dtype {dtype} has no machine type")


@functools.cache
def register_type(dtype: DType) -> str:
    """The register type, lanes included."""
    return vector(register_element(dtype), dtype.lanes)


@functools.cache
def memory_element(dtype: DType) -> str:
    """The memory type of one lane: sub-byte types take a byte."""
    return "i8" if dtype.bits < 8 else register_element(dtype)


@functools.cache
def suffix(dtype: DType) -> str:
    """The type as LLVM intrinsic names spell it: v16f32, i32."""
    element = register_element(dtype)
    short = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}.get(element, element)
    return short if dtype.lanes == 1 else f"v{dtype.lanes}{short}"


def splat(element: str, text: str, lanes: int) -> str:
    """A constant in every lane."""
    return text if lanes == 1 else f"splat ({element} {text})"


def int_constant(value: int, dtype: DType) -> str:
    """An integer or truth constant, one copy per lane."""
    if dtype.is_bool:
        return splat("i1", "true" if value else "false", dtype.lanes)
    return splat(register_element(dtype), str(value), dtype.lanes)


def float_constant(value: float, dtype: DType) -> str:
    """A float constant; raw types give their bits."""
    element = dtype.element
    if is_raw(element):
        kind = np.uint8 if element.bits <= 8 else np.uint16
        bits = int(np.array(value).astype(element.numpy).view(kind))
        return splat(f"i{element.bits}", str(bits), dtype.lanes)
    if element.bits == 16:
        return splat("half", f"0xH{int(np.array(value, np.float16).view(np.uint16)):04X}", dtype.lanes)
    if element.bits == 32:
        with nullcontext() if abs(value) <= _LARGEST else np.errstate(over="ignore"):
            value = float(np.float32(value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return splat(_FLOATS[element.bits], f"0x{bits:016X}", dtype.lanes)
