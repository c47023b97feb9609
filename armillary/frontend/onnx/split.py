"""An ONNX file read in two parts: the model without the contents of its large tensors, and those, each into its place.

In: a path. Out: the bytes of a ModelProto in which large initialisers lack their `raw_data`, and these by the number of
the initialiser, still in the file. Invariant: both parts together say what the file says; a file
whose wire format is unusual in any way (or damaged) is not split (None), and the parser of protobuf has the word.
Parsing a whole file holds the weights three times: the file, the message, and the copy that a look at `raw_data` makes.
Source: the protobuf encoding; the field numbers of ModelProto, GraphProto and TensorProto.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from armillary.base.record import record
from armillary.base.stored import FilePart, HeldFile
from armillary.errors import ModelError

LARGE = 1 << 14  # bytes of a tensor that is read apart
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_HEADER = 20  # two varints


class Unusual(Exception):
    """Not the plain encoding of a model."""


@record
class _Field:
    number: int
    wire: int
    start: int  # of the field in the file
    begin: int  # of its content
    end: int


@record
class SplitModel:
    """`proto`: the serialised model without what is in `large`, by the number of the initialiser."""

    proto: bytes
    large: dict[int, FilePart]


def split_model(path: Path) -> SplitModel | None:
    """Read a model file; None where it has to be read as a whole. OSError where it cannot be read."""
    held = HeldFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), str(path))
    status = os.fstat(held.handle)
    if not stat.S_ISREG(status.st_mode) or status.st_size < LARGE:
        return None
    try:
        return _split(held, status.st_size)
    except (Unusual, ModelError):  # an unusual file, or one that has become shorter
        return None


def _split(held: HeldFile, size: int) -> SplitModel:
    file = held.handle
    top = list(_fields(file, 0, size))
    graphs = [field for field in top if field.number == _MODEL_GRAPH]
    if len(graphs) != 1 or graphs[0].wire != BYTES:
        raise Unusual
    (graph,) = graphs
    pieces: list[bytes] = []
    large: dict[int, FilePart] = {}
    retained, number = graph.begin, 0
    for field in _fields(file, graph.begin, graph.end):
        if field.number != _GRAPH_INITIALIZER:
            continue
        raw = _large_content(file, field)
        if raw is not None:
            large[number] = FilePart(held, raw.begin, raw.end - raw.begin)
            rest = _read(held, field.begin, raw.start) + _read(held, raw.end, field.end)
            pieces += [_read(held, retained, field.start), _message(_GRAPH_INITIALIZER, rest)]
            retained = field.end
        number += 1
    pieces.append(_read(held, retained, graph.end))
    inside = _message(_MODEL_GRAPH, b"".join(pieces))
    return SplitModel(_read(held, 0, graph.start) + inside + _read(held, graph.end, size), large)


def _large_content(file: int, tensor: _Field) -> _Field | None:
    """The raw data of a tensor, if there is much of it."""
    if tensor.wire != BYTES:
        raise Unusual
    if tensor.end - tensor.begin < LARGE:
        return None
    fields = [field for field in _fields(file, tensor.begin, tensor.end) if field.number == _TENSOR_RAW_DATA]
    if len(fields) > 1 or any(field.wire != BYTES for field in fields):
        raise Unusual
    return next((field for field in fields if field.end - field.begin >= LARGE), None)


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


def _read(held: HeldFile, begin: int, end: int) -> bytes:
    data = bytearray(end - begin)
    held.read_into(memoryview(data), begin)
    return bytes(data)
