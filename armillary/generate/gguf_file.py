"""The GGUF format: facts by name and tensors by name, whose bytes stay in the file.

In: a file of version 2 or 3, little-endian. Out: `read_header`: facts as Python values, and for each tensor its type,
shape and bytes. Invariant: nothing outside of the file is read, and no length that it names is believed before it is
compared with what is left of it. The format: magic, version, counts, facts (name, type, value), tensors (name, axes
from the innermost on, type, offset), then the data, all at multiples of `general.alignment`.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from pathlib import Path

import numpy as np

from armillary.base.aligned import Deferred
from armillary.base.record import record
from armillary.base.stored import FilePart, HeldFile
from armillary.errors import ModelError
from armillary.generate.safetensors import Json

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    20: "IQ4_NL",
    23: "IQ4_XS",
    28: "F64",
    30: "BF16",
}
_MOST_AXES, _DEEPEST = 4, 4


@record
class StoredTensor:
    """A tensor of the file: the name of its type, its shape from the outermost axis on, its bytes from `begin` on."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    file: HeldFile

    def rows(self, width: int) -> Deferred:
        """Its bytes, (rows, width): all axes but the innermost are rows."""
        count = math.prod(self.shape[:-1])
        if self.begin + count * width > os.fstat(self.file.handle).st_size:
            raise ModelError(f"{self.file.name}: a tensor of {count * width} bytes begins at {self.begin}, too late")
        return FilePart(self.file, self.begin, count * width).stored((count, width), np.dtype(np.uint8))


class _Reader:
    """Values at a place of the file that moves on."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def number(self, form: str) -> int | float | bool:
        (value,) = self.numbers(form, 1)
        return value

    def whole(self, form: str = "Q") -> int:
        return int(self.number(form))

    def numbers(self, form: str, count: int) -> tuple[int | float | bool, ...]:
        size = struct.calcsize(f"<{form}") * count
        self._need(size)
        values = struct.unpack_from(f"<{count}{form}", self.data, self.at)
        self.at += size
        return values

    def text(self) -> str:
        size = self.whole()
        self._need(size)
        value = self.data[self.at : self.at + size].decode("utf-8", "replace")
        self.at += size
        return value

    def value(self, kind: int, depth: int = 0) -> object:
        """A number, a text, or a list of such."""
        if kind == _STRING:
            return self.text()
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _ARRAY or depth == _DEEPEST:
            raise ValueError(f"a fact of type {kind} at byte {self.at}")
        inner, count = self.whole("I"), self.whole()
        if inner in _NUMBERS:
            return list(self.numbers(_NUMBERS[inner], count))
        self._need(8 * count)
        return [self.value(inner, depth + 1) for _ in range(count)]

    def _need(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise ValueError(f"{size} bytes at byte {self.at} of {len(self.data)}")


def read_header(path: Path) -> tuple[Json, dict[str, StoredTensor]]:
    """The facts and tensors of a file."""
    try:
        held = HeldFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), str(path))
        with mmap.mmap(held.handle, 0, access=mmap.ACCESS_READ) as data:
            return _parsed(_Reader(data), held)
    except (ValueError, OSError, struct.error) as error:
        raise ModelError(f"{path} cannot be read as GGUF: {error}") from None


def _parsed(reader: _Reader, held: HeldFile) -> tuple[Json, dict[str, StoredTensor]]:
    magic, version = reader.whole("I"), reader.whole("I")
    if magic != int.from_bytes(b"GGUF", "little"):
        raise ValueError(f"it begins with {magic.to_bytes(4, 'little')!r}")
    if version not in (2, 3):
        raise ValueError(f"version {version}, wanted 2 or 3, little-endian")
    tensors, count = reader.whole(), reader.whole()
    facts: Json = {}
    for _ in range(count):
        name = reader.text()
        facts[name] = reader.value(reader.whole("I"))
    entries = [_entry(reader) for _ in range(tensors)]
    step = int(facts.get("general.alignment") or 32)
    if step < 1:
        raise ValueError(f"general.alignment is {step}")
    begin = -(-reader.at // step) * step
    return facts, {name: StoredTensor(kind, shape, begin + at, held) for name, kind, shape, at in entries}


def _entry(reader: _Reader) -> tuple[str, str, tuple[int, ...], int]:
    name, axes = reader.text(), reader.whole("I")
    if axes > _MOST_AXES:
        raise ValueError(f"tensor {name!r} has {axes} axes")
    shape = tuple(int(n) for n in reversed(reader.numbers("Q", axes)))
    kind = reader.whole("I")
    return name, _TYPES.get(kind, f"number {kind}"), shape or (1,), reader.whole()
