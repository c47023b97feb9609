"""TensorFlow's GraphDef: the nodes of a graph, read from the wire format of protocol buffers.

In: the bytes of a frozen graph. Out: `Node`s with inputs and attributes. Invariant: every length is checked against
what is left, so that a damaged file is an error; constants are views of the file where it stores them whole.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import ModelError, Span, UnsupportedError

Shape = tuple[int, ...] | None  # -1 for a size that is open, None for any rank
_TYPES = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 9: "int64"}
_TYPES |= {10: "bool", 14: "bfloat16", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64"}
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_VALUES = {5: "<f4", 6: "<f8", 7: "", 10: "", 11: "", 13: "", 16: "", 17: ""}  # fields of numbers; "": varints
_MOST_CONSTANT = 1 << 31  # elements of one whose bytes are not all in the file


@record
class DTypeOf:
    """A type among attributes."""

    name: str


Attr = bytes | int | float | bool | DTypeOf | Shape | Array | list["Attr"]


@record
class Node:
    """One operator; inputs are (name of a node, which of its results)."""

    name: str
    op: str
    inputs: tuple[tuple[str, int], ...]
    attrs: dict[str, Attr]


class _Message:
    """The fields of a message; `wrong` is raised for what is none."""

    def __init__(self, data: memoryview, file: str) -> None:
        self.data, self.file = data, file

    def wrong(self, what: str) -> ModelError:
        return ModelError(f"it is no graph of TensorFlow: {what}", span=Span(self.file), hint="a frozen GraphDef (.pb)")

    def varint(self, at: int) -> tuple[int, int]:
        value, shift = 0, 0
        while at < len(self.data) and shift < 70:
            byte = self.data[at]
            value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
            if byte < 128:
                return value, at
        raise self.wrong("a number ends early")

    def fields(self) -> Iterator[tuple[int, int | memoryview]]:
        at = 0
        while at < len(self.data):
            key, at = self.varint(at)
            kind = key & 7
            if kind == _VARINT:
                value, at = self.varint(at)
                yield key >> 3, value
                continue
            if kind not in (_EIGHT, _BYTES, _FOUR):
                raise self.wrong(f"a field of kind {kind}")
            size, at = self.varint(at) if kind == _BYTES else (8 if kind == _EIGHT else 4, at)
            if size > len(self.data) - at:
                raise self.wrong("a field ends early")
            yield key >> 3, self.data[at : at + size]
            at += size

    def parts(self, number: int) -> Iterator[_Message]:
        """Messages in a repeated field."""
        for field, value in self.fields():
            if field == number and isinstance(value, memoryview):
                yield _Message(value, self.file)

    def text(self) -> str:
        return bytes(self.data).decode("utf-8", "replace")


def read_graph(data: bytes | memoryview, file: str) -> list[Node]:
    """The nodes of a GraphDef; `file` is what errors call it."""
    message = _Message(memoryview(data), file)
    nodes = [_node(part) for part in message.parts(1)]
    if not nodes or not all(node.op and node.name for node in nodes):
        raise message.wrong("it has no nodes, or nodes without names")
    return nodes


def _node(message: _Message) -> Node:
    name = kind = ""
    inputs: list[tuple[str, int]] = []
    attrs: dict[str, Attr] = {}
    for number, value in message.fields():
        if not isinstance(value, memoryview):
            continue
        part = _Message(value, message.file)
        if number == 1:
            name = part.text()
        elif number == 2:
            kind = part.text()
        elif number == 3 and bytes(value[:1]) != b"^":  # what only waits for another is no input
            text, _, index = part.text().partition(":")
            inputs.append((text, int(index) if index.isdecimal() and len(index) < 6 else 0))
        elif number == 5:
            rows = dict(part.fields())
            key, content = rows.get(1), rows.get(2)
            if isinstance(key, memoryview) and isinstance(content, memoryview):
                attrs[bytes(key).decode("utf-8", "replace")] = _attr(_Message(content, message.file))
    return Node(name, kind, tuple(inputs), attrs)


def _attr(message: _Message) -> Attr:
    for number, value in message.fields():
        result = _single(message, number, value)
        if number == 1 and isinstance(value, memoryview):
            part = _Message(value, message.file)
            return [row for k, inner in part.fields() for row in _listed(part, k, inner)]
        if result is not None or number == 7:
            return result
    return None


def _single(message: _Message, number: int, value: int | memoryview) -> Attr:
    """An attribute by the field of AttrValue that holds it."""
    if isinstance(value, int):
        return {3: _signed(value), 5: bool(value)}.get(number, _type(value) if number == 6 else None)
    if number == 2:
        return bytes(value)
    if number == 4 and len(value) == 4:
        return float(struct.unpack("<f", value)[0])
    if number == 7:
        return _shape(_Message(value, message.file))
    return _tensor(_Message(value, message.file)) if number == 8 else None


def _listed(message: _Message, number: int, value: int | memoryview) -> list[Attr]:
    if isinstance(value, memoryview) and number in (3, 5, 6):  # packed
        at, rows = 0, _Message(value, message.file)
        result: list[Attr] = []
        while at < len(value):
            one, at = rows.varint(at)
            result.append(_single(message, number, one))
        return result
    if isinstance(value, memoryview) and number == 4 and len(value) % 4 == 0:
        return [float(x) for x in np.frombuffer(value, "<f4")]
    return [_single(message, number, value)]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _type(number: int) -> Attr:
    return DTypeOf(_TYPES.get(number, f"type {number}"))


def _shape(message: _Message) -> Shape:
    sizes = []
    for number, value in message.fields():
        if number == 3 and value:
            return None
        if number == 2 and isinstance(value, memoryview):
            rows = dict(_Message(value, message.file).fields())
            size = rows.get(1, 0)
            sizes.append(_signed(size) if isinstance(size, int) else -1)
    return tuple(sizes)


def _tensor(message: _Message) -> Attr:
    rows = list(message.fields())
    kind = next((v for n, v in rows if n == 1 and isinstance(v, int)), 0)
    name = _TYPES.get(kind, f"type {kind}")
    shape = next((_shape(_Message(v, message.file)) for n, v in rows if n == 2 and isinstance(v, memoryview)), ())
    if name not in _TYPES.values() or name == "string":
        return b""  # refused where it is read
    count, dtype = math.prod(shape or ()), DType(name).numpy
    if shape is None or min(shape, default=0) < 0 or count > _MOST_CONSTANT:
        raise message.wrong(f"a constant of the shape {shape}")
    content = next((v for n, v in rows if n == 4 and isinstance(v, memoryview)), None)
    if content is not None:
        if len(content) != count * dtype.itemsize:
            raise message.wrong(f"a constant {list(shape)} of {name} has {len(content)} bytes")
        return np.frombuffer(content, dtype).reshape(shape)
    values = [x for number, value in rows if number in _VALUES for x in _numbers(message, number, value)]
    if name in ("float16", "bfloat16"):
        array = np.array([int(x) & 0xFFFF for x in values], np.uint16).view(dtype)
    else:
        array = np.array(values).astype(dtype)
    if array.size > count:
        raise message.wrong(f"a constant {list(shape)} has {array.size} numbers")
    last = array[-1:] if array.size else np.zeros(1, dtype)  # the last one stands for all that follow
    return np.concatenate([array, np.broadcast_to(last, (count - array.size,))]).reshape(shape)


def _numbers(message: _Message, number: int, value: int | memoryview) -> list[float]:
    if isinstance(value, int):
        return [_signed(value)]
    form = _VALUES[number]
    if form:
        if len(value) % int(form[2]):
            raise message.wrong("numbers end early")
        result: list[float] = np.frombuffer(value, form).tolist()
        return result
    packed: list[float] = []
    at, rows = 0, _Message(value, message.file)
    while at < len(value):
        one, at = rows.varint(at)
        packed.append(_signed(one))
    return packed


def refuse_text(value: Attr, node: Node) -> Array:
    """A constant as an array; texts are refused."""
    if not isinstance(value, np.ndarray):
        raise UnsupportedError(f"Const {node.name!r}: texts or types of its own", span=Span(node.name))
    return value
