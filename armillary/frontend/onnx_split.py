"""An ONNX file read in two parts: the model without the contents of its large tensors, and those, each into its place.

In: a path. Out: the bytes of a ModelProto in which large initialisers lack their `raw_data`, and these by the number of
the initialiser, in aligned memory. Invariant: both parts together say what the file says; a file whose wire format is
unusual in any way (or damaged) is not split (None), and the parser of protobuf has the word. Parsing a whole file holds
the weights three times: the file, the message, and the copy that a look at `raw_data` makes.
Source: the protobuf encoding; the field numbers of ModelProto, GraphProto and TensorProto.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.aligned import Array, aligned_empty

LARGE = 1 << 14  # bytes of a tensor that is read apart
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_HEADER = 20  # two varints
_READ_AT_ONCE = 1 << 30  # the system refuses 2 GB and more


class Unusual(Exception):
    """Not the plain encoding of a model."""


@dataclass(frozen=True)
class _Field:
    number: int
    wire: int
    start: int  # of the field in the file
    begin: int  # of its content
    end: int


@dataclass(frozen=True)
class SplitModel:
    """`proto`: the serialised model without what is in `large` (bytes, by the number of the initialiser)."""

    proto: bytes
    large: dict[int, Array]


def split_model(path: Path) -> SplitModel | None:
    """Read a model file; None where it has to be read as a whole. OSError where it cannot be read."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size < LARGE:
            return None
        return _split(file, status.st_size)
    except Unusual:
        return None
    finally:
        os.close(file)


def _split(file: int, size: int) -> SplitModel:
    top = list(_fields(file, 0, size))
    graphs = [field for field in top if field.number == _MODEL_GRAPH]
    if len(graphs) != 1 or graphs[0].wire != BYTES:
        raise Unusual
    (graph,) = graphs
    pieces: list[bytes] = []
    large: dict[int, Array] = {}
    kept, number = graph.begin, 0
    for field in _fields(file, graph.begin, graph.end):
        if field.number != _GRAPH_INITIALIZER:
            continue
        raw = _large_content(file, field)
        if raw is not None:
            large[number] = _array(file, raw)
            rest = _read(file, field.begin, raw.start) + _read(file, raw.end, field.end)
            pieces += [_read(file, kept, field.start), _message(_GRAPH_INITIALIZER, rest)]
            kept = field.end
        number += 1
    pieces.append(_read(file, kept, graph.end))
    inside = _message(_MODEL_GRAPH, b"".join(pieces))
    return SplitModel(_read(file, 0, graph.start) + inside + _read(file, graph.end, size), large)


def _large_content(file: int, tensor: _Field) -> _Field | None:
    """The raw data of a tensor, if there is much of it."""
    if tensor.wire != BYTES:
        raise Unusual
    if tensor.end - tensor.begin < LARGE:
        return None
    found = [field for field in _fields(file, tensor.begin, tensor.end) if field.number == _TENSOR_RAW_DATA]
    if len(found) > 1 or any(field.wire != BYTES for field in found):
        raise Unusual
    return next((field for field in found if field.end - field.begin >= LARGE), None)


def _fields(file: int, at: int, end: int) -> Iterator[_Field]:
    """The fields of a message that lies at [at, end)."""
    while at < end:
        head = os.pread(file, _LONGEST_HEADER, at)
        tag, begin = varint(head, 0)
        number, wire = tag >> 3, tag & 7
        if wire == BYTES:
            length, begin = varint(head, begin)
        elif wire == VARINT:
            length = varint(head, begin)[1] - begin
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise Unusual
        field = _Field(number, wire, at, at + begin, at + begin + length)
        if field.end > end or number == 0:
            raise Unusual
        yield field
        at = field.end


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next thing starts."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise Unusual


def _message(number: int, content: bytes) -> bytes:
    head, size = bytearray([number << 3 | BYTES]), len(content)
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes(head) + bytes([size]) + content


def _read(file: int, begin: int, end: int) -> bytes:
    data = bytearray(end - begin)
    _read_into(file, memoryview(data), begin)
    return bytes(data)


def _array(file: int, field: _Field) -> Array:
    array = aligned_empty((field.end - field.begin,), np.uint8)
    _read_into(file, array.data, field.begin)
    array.flags.writeable = False
    return array


def _read_into(file: int, memory: memoryview, at: int) -> None:
    done = 0
    while done < len(memory):
        count = os.preadv(file, [memory[done : done + _READ_AT_ONCE]], at + done)
        if count == 0:  # the file has become shorter
            raise Unusual
        done += count
