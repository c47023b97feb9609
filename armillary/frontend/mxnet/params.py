"""The `.params` files of MXNet: named arrays, written one after another.

In: the bytes of a file that `net.export`, `save_checkpoint`, `save_parameters` or `mx.nd.save` wrote, by any version
since 2015. Out: arrays by name; `arg:` and `aux:` in front of names are gone. Invariant: every count is checked against
what the file has left, so a damaged file is an error; sparse arrays are refused. See entry.py.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.errors import ModelError, Span, UnsupportedError

_LIST = 0x112
_FORM_1, _FORM_2, _FORM_3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA  # before these: a count of 32-bit sizes
_MOST_AXES = 32
_NAMES = "float32 float64 float16 uint8 int32 int8 int64 bool int16 uint16 uint32 uint64"
DTYPES = dict(enumerate(_NAMES.split())) | {12: "bfloat16"}


class _Reader:
    def __init__(self, data: bytes, path: str) -> None:
        self.data, self.path, self.at = memoryview(data), path, 0

    def wrong(self, what: str, hint: str = "") -> ModelError:
        return ModelError(f"{what}, at byte {self.at}", span=Span(self.path), hint=hint)

    def take(self, count: int) -> memoryview:
        if count > len(self.data) - self.at:
            raise self.wrong(f"it ends early: {count} bytes wanted, {len(self.data) - self.at} left")
        self.at += count
        return self.data[self.at - count : self.at]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def number(self, form: str) -> int:
        return self.numbers(form)[0]

    def shape(self, magic: int) -> tuple[int, ...] | None:
        """The shape of an array; None for one that was never set."""
        if magic == _FORM_1:
            axes, size = self.number("I"), "q"
        elif magic in (_FORM_2, _FORM_3):
            if self.number("i") > 0:  # a kind of storage
                raise UnsupportedError("a sparse array", span=Span(self.path), hint="array.tostype('default')")
            axes, size = self.number("i"), "q"
        else:
            axes, size = magic, "I"
        if not -1 <= axes <= _MOST_AXES:
            raise self.wrong(f"an array of {axes} axes", "is it a .params file of MXNet?")
        sizes = self.numbers(f"{max(axes, 0)}{size}")
        is_unset = axes < 0 or (axes == 0 and magic != _FORM_3)
        return None if is_unset else sizes

    def array(self) -> Array | None:
        shape = self.shape(self.number("I"))
        if shape is None:
            return None
        self.numbers("ii")  # the device it was on
        flag = self.number("i")
        if flag not in DTYPES or min(shape, default=0) < 0:
            raise self.wrong(f"an array of the type {flag} and the sizes {list(shape)}")
        dtype = DType(DTYPES[flag]).numpy
        data = self.take(math.prod(shape) * dtype.itemsize)
        return np.frombuffer(data, dtype).reshape(shape)


def read_params(data: bytes, path: str) -> dict[str, Array]:
    """The arrays of a file by name; `path` is what errors call it."""
    reader = _Reader(data, path)
    if len(data) < 8 or reader.number("Q") != _LIST:
        raise ModelError("it is no file of MXNet's parameters", span=Span(path), hint="net.export('net') writes them")
    reader.number("Q")
    arrays = [reader.array() for _ in range(_count(reader))]
    names = [bytes(reader.take(reader.number("Q"))).decode("utf-8", "replace") for _ in range(_count(reader))]
    if len(names) != len(arrays):
        raise reader.wrong(f"{len(arrays)} arrays and {len(names)} names", "save a dictionary of arrays")
    plain = (name.partition(":")[2] if name.startswith(("arg:", "aux:")) else name for name in names)
    return {name: array for name, array in zip(plain, arrays, strict=True) if array is not None}


def _count(reader: _Reader) -> int:
    count = reader.number("Q")
    if count > (len(reader.data) - reader.at) // 8:  # each takes more than that
        raise reader.wrong(f"it speaks of {count} entries")
    return count
