"""FlatBuffers as TFLite writes them: tables, vectors and texts of a file.

In: bytes, the place of a table, the number of a field in the schema. Out: numbers, arrays, texts, further tables.
Invariant: every place is checked against the size of the file before it is read, so that a damaged file is an error
that names the byte; vectors are views of the file, which takes no memory. What the fields mean: schema.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.errors import ModelError, Span

_OFFSET = 4  # bytes of the distance from a field to what it names
_FIRST = 4  # bytes of a vtable before its fields


@record
class Flat:
    """The bytes of a file; `name` is what errors call it."""

    data: memoryview
    name: str

    def number(self, form: str, at: int) -> int | float | bool:
        """The number at a byte, by its letter of `struct`."""
        size = struct.calcsize(f"<{form}")
        if not 0 <= at <= len(self.data) - size:
            raise self.damaged(at, size)
        value: int | float | bool = struct.unpack_from(f"<{form}", self.data, at)[0]
        return value

    def place(self, at: int) -> int:
        """Where the thing lies that the field at a byte names."""
        return at + int(self.number("I", at))

    def bytes_at(self, at: int, size: int) -> memoryview:
        """`size` bytes from a byte on."""
        if not 0 <= at <= len(self.data) - size:
            raise self.damaged(at, size)
        return self.data[at : at + size]

    def damaged(self, at: int, size: int) -> ModelError:
        """The error about a place outside of the file."""
        message = f"a damaged TFLite file: {size} bytes at {at} are read, and it has {len(self.data)}"
        return ModelError(message, span=Span(self.name), hint="write or download it again")

    def root(self) -> Table:
        """The table that the file holds."""
        return Table(self, self.place(0))


@record
class Table:
    """One table: `at` is the byte where it begins. Fields are counted from 0; those that are absent have defaults."""

    flat: Flat
    at: int

    def place_of(self, number: int) -> int:
        """The byte where a field lies, or 0 where it is absent."""
        vtable = self.at - int(self.flat.number("i", self.at))
        size, entry = int(self.flat.number("H", vtable)), _FIRST + 2 * number
        offset = int(self.flat.number("H", vtable + entry)) if entry + 2 <= size else 0
        return self.at + offset if offset else 0

    def number(self, field: int, form: str, default: float = 0) -> int | float | bool:
        """A number by its letter of `struct`."""
        at = self.place_of(field)
        return self.flat.number(form, at) if at else default

    def whole(self, field: int, form: str = "i", default: int = 0) -> int:
        """A whole number."""
        return int(self.number(field, form, default))

    def _vector(self, field: int, itemsize: int) -> memoryview:
        at = self.place_of(field)
        if not at:
            return self.flat.data[:0]
        begin = self.flat.place(at)
        count = int(self.flat.number("I", begin))
        return self.flat.bytes_at(begin + _OFFSET, count * itemsize)

    def numbers(self, field: int, dtype: str) -> Array:
        """A vector of numbers; empty where the field is absent."""
        kind = np.dtype(dtype).newbyteorder("<")
        return np.frombuffer(self._vector(field, kind.itemsize), kind)

    def wholes(self, field: int) -> tuple[int, ...]:
        """A vector of 32-bit integers."""
        return tuple(map(int, self.numbers(field, "int32")))

    def has(self, field: int) -> bool:
        """Whether the field is in the table."""
        return self.place_of(field) != 0

    def raw(self, field: int) -> memoryview:
        """A vector of bytes."""
        return self._vector(field, 1)

    def text(self, field: int) -> str:
        """A text."""
        return bytes(self.raw(field)).decode("utf-8", "replace")

    def table(self, field: int) -> Table | None:
        """A table, or None where the field is absent."""
        at = self.place_of(field)
        return Table(self.flat, self.flat.place(at)) if at else None

    def tables(self, field: int) -> Sequence[Table]:
        """A vector of tables."""
        at = self.place_of(field)
        if not at:
            return []
        begin = self.flat.place(at)
        count = len(self._vector(field, _OFFSET)) // _OFFSET
        return [Table(self.flat, self.flat.place(begin + _OFFSET * (k + 1))) for k in range(count)]


_WIDTHS = {
    1: "bhiq",
    2: "BHIQ",
    3: "?efd",
    26: "BHIQ",
}  # letters of `struct` by type and width: int, unsigned, float, bool
_INDIRECT, _MAP = {6: 1, 7: 2, 8: 3}, 9


def flexible_numbers(flat: Flat) -> dict[str, float]:
    """The numbers of a FlexBuffers map by name: the options of operators of somebody's own.

    The last byte of such bytes is the width of the root, the one before its type; offsets count backwards.
    """
    end = len(flat.data)
    width, packed = int(flat.number("B", end - 1)), int(flat.number("B", end - 2))
    if packed >> 2 != _MAP or width not in (1, 2, 4, 8):
        raise ModelError(f"options of type {packed >> 2} of FlexBuffers, wanted a map", span=Span(flat.name))
    root = end - 2 - width
    at, size = root - _unsigned(flat, root, width), 1 << (packed & 3)
    count = _unsigned(flat, at - size, size)
    keys, key_size = at - 3 * size - _unsigned(flat, at - 3 * size, size), _unsigned(flat, at - 2 * size, size)
    flat.bytes_at(at, count * (size + 1))
    result = {}
    for k in range(count):
        place = keys + k * key_size
        begin = place - _unsigned(flat, place, key_size)
        name = bytes(flat.bytes_at(begin, end - begin)).partition(b"\0")[0].decode("utf-8", "replace")
        kind, item = int(flat.number("B", at + count * size + k)), at + k * size
        form, scale = kind >> 2, size
        if form in _INDIRECT:
            item, form, scale = item - _unsigned(flat, item, size), _INDIRECT[form], 1 << (kind & 3)
        if form in _WIDTHS:
            result[name] = float(flat.number(_WIDTHS[form][scale.bit_length() - 1], item))
    return result


def _unsigned(flat: Flat, at: int, width: int) -> int:
    if width not in (1, 2, 4, 8):
        raise ModelError(f"a number of {width} bytes in FlexBuffers", span=Span(flat.name))
    return int(flat.number("BHIQ"[width.bit_length() - 1], at))
