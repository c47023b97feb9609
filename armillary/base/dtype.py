"""Scalar and vector data types as interned strings.

In: names such as "float32", "int8", "bool", "bfloat16", "float8_e4m3fn", "float32x16", "handle".
Out: `DType`, a `str` that also knows its code, bits and lanes, and its numpy form.
Invariant: `DType(s) is DType(s)`; a DType equals its name, so user code may compare with plain strings.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

from armillary.base.aliases import NumpyDtype
from armillary.base.lazy import deferred
from armillary.errors import TypeMismatch

with deferred():
    import ml_dtypes

_PATTERN = re.compile(r"^(int|uint|float|bfloat|bool|handle|void|string)(\d{0,9})(_[a-z0-9]+?)?(?:x([1-9]\d{0,8}))?$")
_HELD = "armillary"  # in the metadata of a numpy dtype: which type of a script's own the bits are of
_CUSTOM = re.compile(r"^(custom\[\w+\])([1-9]\d{0,2})(?:x([1-9]\d{0,8}))?$")
_SPECIAL = frozenset(
    {  # names numpy does not know; ml_dtypes, imported for the first of them, provides them
        "bfloat16",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn",
        "int4",
        "uint4",
        "int2",
        "uint2",
    }
)
_VARIANTS = {name for name in _SPECIAL if "_" in name}


class DType(str):
    """A scalar or vector type. `code` is int, uint, float, bfloat, bool, handle, void, string, custom[…]."""

    __slots__ = ("_wide", "bits", "code", "element", "lanes")
    _interned: ClassVar[dict[str, DType]] = {}
    bits: int
    code: str
    element: DType
    lanes: int
    _wide: dict[int, DType]  # of an element: its vectors, by lanes

    def __new__(cls, name: str) -> DType:
        try:
            result = cls._interned.get(name)
        except TypeError:  # no key of a dict: no text either
            result = None
        return result if result is not None else _intern(name)

    def with_lanes(self, lanes: int) -> DType:
        """The same scalar type with another number of lanes (>= 1)."""
        element = self.element
        if lanes == 1:
            return element
        result = element._wide.get(lanes)
        return result if result is not None else element._wide.setdefault(lanes, DType(f"{element!s}x{lanes}"))

    @property
    def is_float(self) -> bool:
        """A script's own type counts as one: its values are numbers, and not whole."""
        return self.code in ("float", "bfloat") or self.is_custom

    @property
    def is_custom(self) -> bool:
        """Whether a script says what its values mean (`target.datatype`): `custom[posites2]32`."""
        return self.code[0] == "c"

    @property
    def storage(self) -> DType:
        """The type whose bits memory holds: unsigned integers for a script's own type, else the type itself."""
        return DType(f"uint{self.bits}").with_lanes(self.lanes) if self.is_custom else self

    @property
    def is_int(self) -> bool:
        return self.code in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        return self.code == "bool"

    @property
    def bytes(self) -> int:
        """Bytes one value occupies in memory (sub-byte types take one byte each, unpacked)."""
        return max(1, (self.bits + 7) // 8) * self.lanes

    @property
    def numpy(self) -> NumpyDtype:  # Any: the scalar type is not known statically
        """The numpy dtype of one lane; raises TypeMismatch for handle, void and string."""
        element = str.__str__(self.storage.element)
        if self.is_custom:
            return np.dtype(element, metadata={_HELD: str.__str__(self.element)})
        if element in _SPECIAL:
            special: NumpyDtype = np.dtype(getattr(ml_dtypes, element))
            return special
        if self.code in ("handle", "void", "string"):
            raise TypeMismatch(f"dtype {self} has no array form")
        try:
            result: NumpyDtype = np.dtype(element)
        except TypeError:
            raise TypeMismatch(f"dtype {self} has no array form") from None
        return result

    def itemsize(self) -> int:
        """Bytes of an element, all lanes, under its Relay-era name."""
        return self.bytes

    @property
    def type_code(self) -> DataTypeCode:
        """The kind as a number (`DataTypeCode`); TypeMismatch of a type that has none."""
        if self.code not in _CODES:
            raise TypeMismatch(f"the dtype {self!s} has no type code")
        return _CODES[self.code]

    @property
    def min_value(self) -> int:
        """Smallest value of an integer or bool type."""
        return -(1 << (self.bits - 1)) if self.code == "int" else 0

    @property
    def max_value(self) -> int:
        """Largest value of an integer or bool type."""
        return (1 << (self.bits - 1)) - 1 if self.code == "int" else (1 << self.bits) - 1

    def has(self, number: float) -> bool:
        """Whether a number is one of this type's; floating-point types round, so they have all."""
        return self.is_float or (self.min_value <= number <= self.max_value and number == int(number))

    def __reduce__(self) -> tuple[object, ...]:
        return DType, (str.__str__(self),)


class DataTypeCode(IntEnum):
    """Kinds of types by the numbers that scripts and DLPack have for them; a bool is an unsigned integer."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    BFLOAT = 4


_CODES = {"int": DataTypeCode.INT, "uint": DataTypeCode.UINT, "bool": DataTypeCode.UINT, "float": DataTypeCode.FLOAT}
_CODES |= {"handle": DataTypeCode.HANDLE, "bfloat": DataTypeCode.BFLOAT}
_OTHER_NAMES = {"uint1": "bool", "float": "float32", "int": "int32", "uint": "uint32"}
_OLD_BEGINNINGS = {"e4m3_float8": "float8_e4m3fn", "e5m2_float8": "float8_e5m2"}  # of the Relay era, lanes behind them
_DEFAULT_BITS = {"bool": 1, "handle": 64, "void": 0, "string": 0}


def _intern(name: object) -> DType:
    if isinstance(name, np.dtype) or (isinstance(name, type) and issubclass(name, np.generic)):
        held = np.dtype(name)
        said: dict[str, str] = dict(held.metadata or {})
        return DType(said.get(_HELD, held.name))
    if not isinstance(name, str):
        raise TypeMismatch(f"a dtype is named by a text, got {type(name).__name__} {name!r}", hint="float32, int8 …")
    if name in _OTHER_NAMES:
        return DType(_OTHER_NAMES[name])
    current = _OLD_BEGINNINGS.get(name[:11])
    if current is not None:
        return DType(current + name[11:])
    own = _CUSTOM.match(name)
    match = _PATTERN.match(name) if own is None else None
    if own is not None:
        return _interned(name, *own.groups())
    if match is None or (match[3] and "".join(match.group(1, 2, 3)) not in _VARIANTS):
        raise TypeMismatch(f"unknown dtype {name!r}", hint="use names such as float32, int8, bool or float32x4")
    code, bits, _, lanes = match.groups()
    if bits == "" and code not in _DEFAULT_BITS:
        raise TypeMismatch(f"dtype {name!r} lacks its number of bits", hint=f"write {code}32")
    return _interned(name, code, bits, lanes)


def _interned(name: str, code: str, bits: str, lanes: str | None) -> DType:
    dtype = str.__new__(DType, name)
    object.__setattr__(dtype, "code", code)
    object.__setattr__(dtype, "bits", int(bits) if bits else _DEFAULT_BITS[code])
    object.__setattr__(dtype, "lanes", int(lanes) if lanes else 1)
    object.__setattr__(dtype, "element", dtype if dtype.lanes == 1 else DType(name.rsplit("x", 1)[0]))
    object.__setattr__(dtype, "_wide", {})
    return DType._interned.setdefault(name, dtype)


def dtype_of(value: Any) -> DType:  # Any: arrays, numpy dtypes and scalar classes all have a dtype
    """The DType of a numpy array or scalar, or of a numpy dtype or class."""
    return DType(np.dtype(getattr(value, "dtype", value)))
