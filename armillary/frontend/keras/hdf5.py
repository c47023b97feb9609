"""Reading HDF5 files as Keras writes them: groups, attributes and datasets of format 0.

In: the bytes of a file. Out: `Group`s with `attributes`, members by name, datasets as arrays. Invariant: all that is
read is checked against the file's length; what is not read here - compressed or chunked data, groups of
newer formats - is a ModelError that says so. The format: the HDF5 File Format Specification, sections II to IV.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from armillary.base.aliases import Array, NumpyDtype
from armillary.base.json_types import JsonObject
from armillary.base.record import record
from armillary.errors import ModelError, Span

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_UNDEFINED = 0xFFFF_FFFF_FFFF_FFFF
_SPACE, _TYPE, _LAYOUT, _FILTERS, _ATTRIBUTE, _CONTINUATION, _TABLE = 0x01, 0x03, 0x08, 0x0B, 0x0C, 0x10, 0x11
_MOST_NODES = 1 << 20  # of all the structures that one walk visits: a damaged file may go round in circles


@record
class Type:
    """The type of elements: a numpy dtype, or texts of variable length."""

    dtype: NumpyDtype
    is_text: bool = False


class File:
    """A file: its bytes, and the group that everything is in."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name, self.visited = data, name, 0
        if data[:8] != _SIGNATURE:
            raise self.wrong("it is no HDF5 file")
        if data[8:9] not in (b"\x00", b"\x01"):
            raise self.wrong("its format is newer than 0 and 1", "save it with h5py's default, libver='earliest'")
        if tuple(data[13:15]) != (8, 8):
            raise self.wrong("its offsets do not have 8 bytes")
        start = 24 + (4 if data[8] == 1 else 0) + 32
        self.root = Group(self, self.number(start + 8, 8))

    def wrong(self, what: str, hint: str = "") -> ModelError:
        """An error about this file."""
        return ModelError(f"HDF5: {what}", span=Span(self.name), hint=hint)

    def part(self, at: int, size: int) -> bytes:
        """Bytes that must be there."""
        if not 0 <= at <= at + size <= len(self.data):
            raise self.wrong("it is damaged: something lies behind its end")
        return self.data[at : at + size]

    def number(self, at: int, size: int) -> int:
        """An unsigned number."""
        return int.from_bytes(self.part(at, size), "little")

    def visit(self) -> None:
        """Count a structure that is read."""
        self.visited += 1
        if self.visited > _MOST_NODES:
            raise self.wrong("it is damaged: its structures go round in circles")

    def text_at(self, at: int) -> str:
        """A text that ends with zero."""
        end = self.data.find(b"\0", at)
        if not 0 <= at <= end:
            raise self.wrong("it is damaged: a name has no end")
        return self.data[at:end].decode("utf-8", "replace")

    def heap_object(self, address: int, index: int) -> bytes:
        """An object of a global heap."""
        if self.part(address, 4) != b"GCOL":
            raise self.wrong("it is damaged: a heap is not where it should be")
        at, end = address + 16, address + self.number(address + 8, 8)
        while at + 16 <= end:
            self.visit()
            number, size = self.number(at, 2), self.number(at + 8, 8)
            if number == index:
                return self.part(at + 16, size)
            if number == 0:
                break
            at += 16 + -(-size // 8) * 8
        raise self.wrong("it is damaged: a heap lacks an object")


class Item:
    """What an object header describes."""

    def __init__(self, file: File, address: int) -> None:
        self.file = file
        self.messages = list(_messages(file, address))

    def first(self, kind: int) -> bytes | None:
        """The first message of a kind."""
        return next((data for kind_of_message, data in self.messages if kind_of_message == kind), None)

    @property
    def attributes(self) -> JsonObject:  # Any: a text, an array, or a list of texts
        """Values by name."""
        return dict(_attribute(self.file, data) for kind, data in self.messages if kind == _ATTRIBUTE)


class Group(Item):
    """Members by name: groups and datasets."""

    def members(self) -> dict[str, int]:
        """Addresses by name."""
        table = self.first(_TABLE)
        if table is None:
            raise self.file.wrong("an object is not a group of the old form")
        tree, heap = struct.unpack_from("<QQ", table)
        if self.file.part(heap, 4) != b"HEAP":
            raise self.file.wrong("it is damaged: names are not where they should be")
        names = self.file.number(heap + 24, 8)
        return {self.file.text_at(names + offset): address for offset, address in _entries(self.file, tree)}

    def find(self, path: str) -> int:
        """The address of a member, by names between slashes."""
        group = self
        *folders, last = [part for part in path.split("/") if part]
        for folder in folders:
            group = group.group(folder)
        members = group.members()
        if last not in members:
            raise self.file.wrong(f"there is no {path!r}")
        return members[last]

    def group(self, path: str) -> Group:
        """A group inside."""
        return Group(self.file, self.find(path))

    def array(self, path: str) -> Array:
        """A dataset inside."""
        return _dataset(Item(self.file, self.find(path)), path)


def _messages(file: File, address: int) -> Iterator[tuple[int, bytes]]:
    if file.number(address, 1) != 1:
        raise file.wrong("an object has a header of a newer format", "save it with h5py's default, libver='earliest'")
    blocks = [(address + 16, file.number(address + 8, 4))]
    left = file.number(address + 2, 2)
    while blocks and left > 0:
        at, size = blocks.pop(0)
        end = at + size
        while at + 8 <= end and left > 0:
            file.visit()
            left -= 1
            kind, length = file.number(at, 2), file.number(at + 2, 2)
            data = file.part(at + 8, length)
            if kind == _CONTINUATION:
                blocks.append((file.number(at + 8, 8), file.number(at + 16, 8)))
            else:
                yield kind, data
            at += 8 + length


def _entries(file: File, tree: int) -> Iterator[tuple[int, int]]:
    """(place of the name, address) of all members."""
    nodes = [tree]
    while nodes:
        file.visit()
        node = nodes.pop()
        kind, count = file.part(node, 4), file.number(node + 6, 2)
        if kind == b"TREE":
            nodes += [file.number(node + 32 + 16 * k, 8) for k in range(count)]
        elif kind == b"SNOD":
            for at in range(node + 8, node + 8 + 40 * count, 40):
                yield file.number(at, 8), file.number(at + 8, 8)
        else:
            raise file.wrong("it is damaged: a group has no table")


def _type(file: File, data: bytes) -> Type:
    kind, bits, size = data[0] & 15, data[1], int.from_bytes(data[4:8], "little")
    if kind == 9:
        return Type(np.dtype("V16"), is_text=True)
    order = ">" if bits & 1 else "<"
    if kind == 0 and size in (1, 2, 4, 8):
        return Type(np.dtype(f"{order}{'i' if bits & 8 else 'u'}{size}"))
    if kind == 1 and size in (2, 4, 8):
        return Type(np.dtype(f"{order}f{size}"))
    if kind == 3:
        return Type(np.dtype(f"S{size}"))
    if kind == 8:  # an enumeration, which is how booleans are kept
        return Type(np.dtype("<i1"))
    raise file.wrong(f"data of class {kind} with {size} bytes is not read here")


def _shape(data: bytes) -> tuple[int, ...]:
    version, rank = data[0], data[1]
    begin = 8 if version == 1 else 4
    return struct.unpack_from(f"<{rank}Q", data, begin)


def _attribute(file: File, data: bytes) -> tuple[str, Any]:  # Any: see Item.attributes
    version, sizes = data[0], struct.unpack_from("<HHH", data, 2)
    at = 9 if version == 3 else 8
    parts = []
    for size in sizes:
        parts.append(data[at : at + size])
        at += -(-size // 8) * 8 if version == 1 else size
    name = parts[0].split(b"\0")[0].decode("utf-8", "replace")
    kind, shape = _type(file, parts[1]), _shape(parts[2])
    return name, _value(file, kind, shape, data[at:])


def _value(file: File, kind: Type, shape: tuple[int, ...], data: bytes) -> Any:  # Any: see Item.attributes
    count = int(np.prod(shape, dtype=np.int64)) if shape else 1
    if kind.is_text:
        texts = []
        for at in range(0, 16 * count, 16):
            length, address, index = struct.unpack_from("<IQI", data, at)
            texts.append(file.heap_object(address, index)[:length].decode("utf-8", "replace") if length else "")
        return texts if shape else texts[0]
    values = np.frombuffer(data, kind.dtype, count)
    if kind.dtype.kind == "S":
        texts = [bytes(v).split(b"\0")[0].decode("utf-8", "replace") for v in values]
        return texts if shape else texts[0]
    return values.reshape(shape) if shape else values[0].item()


def _dataset(item: Item, path: str) -> Array:
    file = item.file
    layout, space, kind = item.first(_LAYOUT), item.first(_SPACE), item.first(_TYPE)
    if layout is None or space is None or kind is None:
        raise file.wrong(f"{path} is no dataset")
    shape, dtype = _shape(space), _type(file, kind).dtype
    if item.first(_FILTERS) is not None or layout[0] != 3 or layout[1] > 1:
        raise file.wrong(f"{path} is compressed or in pieces", "save the model without compression")
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if layout[1] == 0:
        data = layout[4 : 4 + size]
    else:
        (address,) = struct.unpack_from("<Q", layout, 2)
        data = b"" if address == _UNDEFINED else file.part(address, size)
    if len(data) != size:
        raise file.wrong(f"{path} has {len(data)} bytes, wanted {size}")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))
