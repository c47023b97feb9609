"""A plain ONNX model read without the onnx package: graph, nodes, initialisers, types of tensors.

In: the bytes of a ModelProto. Out: objects with the attributes of onnx's messages that importing reads, or None.
Invariant: a model that is damaged, or holds anything that is not in the tables below (functions, sub-graphs, sequences,
sparse tensors, numbers outside raw_data), is not read (None): the onnx package has the word, and its errors are what a
user sees. Source: the protobuf encoding; the field numbers of onnx.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from armillary.frontend.onnx.split import BYTES, FIXED32, FIXED64, VARINT, Unusual, varint

LONGEST = 1 << 19  # bytes: the onnx package reads longer ones faster
_SIGN = 1 << 63
Read = Callable[[bytes, int, int, int], Any]  # data, wire type, begin, end -> value


class Message:
    """What all messages have. An attribute that the file does not set has its default, from the class."""

    _fields: ClassVar[dict[int, tuple[str, Read, bool]]] = {}  # by number: attribute, reader, whether it is repeated
    _ignored: ClassVar[frozenset[int]] = frozenset()  # numbers of fields that say nothing about the computation

    def HasField(self, name: str) -> bool:  # noqa: N802  (protobuf's name)
        """Whether the file sets a field."""
        return name in self.__dict__

    @classmethod
    def read(cls, data: bytes, wire: int, begin: int, end: int) -> Any:  # Any: the message
        """The message at [begin, end)."""
        if wire != BYTES:
            raise Unusual
        result, values = cls(), dict[str, Any]()
        for number, kind, at, to in _fields_of(data, begin, end):
            if number in cls._ignored:
                continue
            if number not in cls._fields:
                raise Unusual
            name, read, is_repeated = cls._fields[number]
            value = read(data, kind, at, to)
            if is_repeated:
                values.setdefault(name, []).extend(value if isinstance(value, list) else (value,))
            elif name in values:
                raise Unusual
            else:
                values[name] = value
        result.__dict__.update(values)
        return result


def _fields_of(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, wire type, begin, end) of each field."""
    while at < end:
        tag, at = varint(data, at)
        wire, begin = tag & 7, at
        if wire == BYTES:
            length, begin = varint(data, at)
            at = begin + length
        elif wire == VARINT:
            at = varint(data, at)[1]
        elif wire in (FIXED32, FIXED64):
            at += 4 if wire == FIXED32 else 8
        else:
            raise Unusual
        if at > end:
            raise Unusual
        yield tag >> 3, wire, begin, at


def _int(data: bytes, wire: int, begin: int, _: int) -> int:
    if wire != VARINT:
        raise Unusual
    value = varint(data, begin)[0]
    return value - 2 * _SIGN if value >= _SIGN else value


def _float(data: bytes, wire: int, begin: int, _: int) -> float:
    if wire != FIXED32:
        raise Unusual
    return float(struct.unpack_from("<f", data, begin)[0])


def _bytes(data: bytes, wire: int, begin: int, end: int) -> bytes:
    if wire != BYTES:
        raise Unusual
    return data[begin:end]


def _text(data: bytes, wire: int, begin: int, end: int) -> str:
    try:
        return _bytes(data, wire, begin, end).decode()
    except UnicodeDecodeError:
        raise Unusual from None


def _ints(data: bytes, wire: int, begin: int, end: int) -> list[int]:
    """One number, or packed ones."""
    if wire != BYTES:
        return [_int(data, wire, begin, end)]
    values = []
    while begin < end:
        values.append(_int(data, VARINT, begin, end))
        begin = varint(data, begin)[1]
    if begin != end:
        raise Unusual
    return values


def _floats(data: bytes, wire: int, begin: int, end: int) -> list[float]:
    if wire != BYTES:
        return [_float(data, wire, begin, end)]
    if (end - begin) % 4:
        raise Unusual
    return list(struct.unpack_from(f"<{(end - begin) // 4}f", data, begin))


class _Entry(Message):
    _fields: ClassVar = {1: ("key", _text, False), 2: ("value", _text, False)}
    key = value = ""


class Tensor(Message):
    """TensorProto whose numbers are in raw_data or in another file."""

    _fields: ClassVar = {
        1: ("dims", _ints, True),
        2: ("data_type", _int, False),
        8: ("name", _text, False),
        9: ("raw_data", _bytes, False),
        13: ("external_data", _Entry.read, True),
        14: ("data_location", _int, False),
    }
    _ignored: ClassVar = frozenset({12, 16})  # doc_string, metadata_props
    name, raw_data, data_type, data_location = "", b"", 0, 0
    dims = external_data = float_data = int32_data = int64_data = double_data = uint64_data = ()


class Attribute(Message):
    """AttributeProto without graphs, types and sparse tensors."""

    _fields: ClassVar = {
        1: ("name", _text, False),
        2: ("f", _float, False),
        3: ("i", _int, False),
        4: ("s", _bytes, False),
        5: ("t", Tensor.read, False),
        7: ("floats", _floats, True),
        8: ("ints", _ints, True),
        9: ("strings", _bytes, True),
        10: ("tensors", Tensor.read, True),
        20: ("type", _int, False),
    }
    _ignored: ClassVar = frozenset({13})  # doc_string
    name, ref_attr_name, type, f, i, s, t = "", "", 0, 0.0, 0, b"", Tensor()
    floats = ints = strings = tensors = graphs = ()


class Node(Message):
    """A node, as ONNX's NodeProto has it."""

    _fields: ClassVar = {
        1: ("input", _text, True),
        2: ("output", _text, True),
        3: ("name", _text, False),
        4: ("op_type", _text, False),
        5: ("attribute", Attribute.read, True),
        7: ("domain", _text, False),
        8: ("overload", _text, False),
    }
    _ignored: ClassVar = frozenset({6, 9})  # doc_string, metadata_props
    name = op_type = domain = overload = ""
    input = output = attribute = ()


class _Dim(Message):
    _fields: ClassVar = {1: ("dim_value", _int, False), 2: ("dim_param", _text, False)}
    _ignored: ClassVar = frozenset({3})  # denotation
    dim_value, dim_param = 0, ""


class _Shape(Message):
    _fields: ClassVar = {1: ("dim", _Dim.read, True)}
    dim = ()


class _TensorType(Message):
    _fields: ClassVar = {1: ("elem_type", _int, False), 2: ("shape", _Shape.read, False)}
    elem_type, shape = 0, _Shape()


class _Type(Message):
    _fields: ClassVar = {1: ("tensor_type", _TensorType.read, False)}
    _ignored: ClassVar = frozenset({6})  # denotation
    tensor_type = _TensorType()

    def WhichOneof(self, _: str) -> str | None:  # noqa: N802  (protobuf's name)
        """The kind of the type."""
        return "tensor_type" if self.HasField("tensor_type") else None


class ValueInfo(Message):
    """ValueInfoProto of a tensor."""

    _fields: ClassVar = {1: ("name", _text, False), 2: ("type", _Type.read, False)}
    _ignored: ClassVar = frozenset({3, 4})  # doc_string, metadata_props
    name, type = "", _Type()


class Graph(Message):
    """A graph, as ONNX's GraphProto has it."""

    _fields: ClassVar = {
        1: ("node", Node.read, True),
        2: ("name", _text, False),
        5: ("initializer", Tensor.read, True),
        11: ("input", ValueInfo.read, True),
        12: ("output", ValueInfo.read, True),
    }
    _ignored: ClassVar = frozenset({10, 13, 14, 16})  # doc_string, value_info, quantization_annotation, metadata_props
    name = ""
    node: tuple[Node, ...] = ()
    initializer = sparse_initializer = input = output = ()


class _OperatorSet(Message):
    _fields: ClassVar = {1: ("domain", _text, False), 2: ("version", _int, False)}
    domain, version = "", 0


class PlainModel(Message):
    """A model, as ONNX's ModelProto has it."""

    _fields: ClassVar = {
        1: ("ir_version", _int, False),
        7: ("graph", Graph.read, False),
        8: ("opset_import", _OperatorSet.read, True),
    }
    _ignored: ClassVar = frozenset({2, 3, 4, 5, 6, 14})  # producer, its version, domain, version, doc_string, metadata
    ir_version, graph, functions = 0, Graph(), ()
    opset_import: tuple[_OperatorSet, ...] = ()


def plain_model(data: bytes) -> PlainModel | None:
    """Read a model; None where it is not plain."""
    if len(data) > LONGEST:
        return None
    try:
        result: PlainModel = PlainModel.read(data, BYTES, 0, len(data))
    except Unusual:
        return None
    return result
