"""Parameters as one blob: the Relay-era form of named arrays.

In: arrays by name. Out: the blob, written piece by piece, and the arrays back as views of it. Invariant: what was
written reads back equal; a damaged or hostile blob raises ArtifactError before anything of its claimed size is made.
The C twin: `runtime/native/packages/arm_params.c`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import Deferred, in_native_order
from armillary.base.boundary import boundary
from armillary.base.dtype import DType, dtype_of
from armillary.errors import ArtifactError, TypeMismatch

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_NDIM = 32
MAX_BYTES = 1 << 42  # one tensor, or one plan: 4 TiB


def tensor_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of a dense tensor; ArtifactError above the limit."""
    size = DType(dtype).bytes
    for dim in shape:
        size *= dim
    if size > MAX_BYTES or size < 0:
        raise ArtifactError(f"a {dtype} tensor of shape {list(shape)} takes {size} bytes; the limit is {MAX_BYTES}")
    return size


_LIST_MAGIC = 0xF7E58D4F05049CB7
_ARRAY_MAGIC = 0xDD5E40F096B4A13F
_ARRAY_HEAD = struct.Struct("<QQiiiBBH")
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 1}
_FLOAT8_CODES = {  # DLPack 1.1
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
    "float4_e2m1fn": 17,
}
_NAMES = {
    **{(0, bits): f"int{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (4, 16): "bfloat16",
    (1, 1): "bool",
    (6, 8): "bool",
    (6, 1): "bool",
    **{(code, 4 if "4_" in name else 8): name for name, code in _FLOAT8_CODES.items()},
}


def type_code(dtype: str) -> tuple[int, int, int]:
    """(code, bits, lanes) of a dtype in the params blob."""
    kind = DType(dtype)
    element = str.__str__(kind.element)
    code = _FLOAT8_CODES.get(element, _CODES.get(kind.code, -1))
    if code < 0:
        raise TypeMismatch(f"dtype {dtype} cannot be stored in a params blob")
    return code, kind.bits, kind.lanes


@boundary("save_param_dict", arguments=True)
def save_params(params: Mapping[str, Array | Deferred]) -> bytes:
    """Write named arrays as a params blob; the order of the mapping is kept."""
    out = io.BytesIO()
    write_params(out.write, params)
    return out.getvalue()


def params_size(params: Mapping[str, Array | Deferred]) -> int:
    """Bytes of the blob that `write_params` writes."""
    names = sum(8 + len(name.encode("utf-8")) for name in params)
    return 32 + names + sum(_ARRAY_HEAD.size + 8 * (len(v.shape) + 1) + v.nbytes for v in map(_held, params.values()))


def _held(value: object) -> Array | Deferred:  # array-likes
    return value if isinstance(value, Deferred) else in_native_order(np.asarray(value))


def write_params(write: Callable[[Buffer], object], params: Mapping[str, Array | Deferred]) -> None:
    """Write a params blob piece by piece (Any: bytes, or a view of memory that nobody writes to)."""
    write(struct.pack("<QQQ", _LIST_MAGIC, 0, len(params)))
    for name in params:
        encoded = name.encode("utf-8")
        write(struct.pack("<Q", len(encoded)) + encoded)
    write(struct.pack("<Q", len(params)))
    for value in map(_held, params.values()):
        code, bits, lanes = type_code(dtype_of(value))
        write(_ARRAY_HEAD.pack(_ARRAY_MAGIC, 0, 1, 0, len(value.shape), code, bits, lanes))
        write(struct.pack(f"<{len(value.shape) + 1}q", *value.shape, value.nbytes))
        for piece in value.pieces() if isinstance(value, Deferred) else (value,):
            write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)


@boundary("load_params", arguments=True)
def load_params(blob: bytes | bytearray | memoryview) -> dict[str, Array]:
    """Read a params blob. The arrays are read-only views of `blob` (which may be an mmap) and may be unaligned."""
    cursor = _Cursor(memoryview(blob).cast("B"))
    magic, _, count = cursor.unpack("<QQQ")
    if magic != _LIST_MAGIC:
        raise ArtifactError(f"params: bad magic {magic:#x}; expected {_LIST_MAGIC:#x}", hint="is this a .params file?")
    if count > len(cursor.data) // 8:
        raise ArtifactError(f"params: claims {count} arrays in {len(cursor.data)} bytes")
    names = [_read_name(cursor) for _ in range(count)]
    if cursor.unpack("<Q") != (count,) or len(set(names)) != count:
        raise ArtifactError("params: the lists of names and arrays do not agree, or a name occurs twice")
    result = {name: _read_array(cursor, name) for name in names}
    if cursor.position != len(cursor.data):
        raise ArtifactError(f"params: {len(cursor.data) - cursor.position} bytes after the last array")
    return result


class _Cursor:
    """A bounds-checked position in a blob."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> memoryview:
        if size < 0 or size > len(self.data) - self.position:
            raise ArtifactError(f"params: truncated: {size} bytes wanted at byte {self.position} of {len(self.data)}")
        self.position += size
        return self.data[self.position - size : self.position]

    def unpack(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))


def _read_name(cursor: _Cursor) -> str:
    (length,) = cursor.unpack("<Q")
    try:
        return str(cursor.take(length), "utf-8")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"params: a name is not UTF-8 (byte {cursor.position})") from error


def _read_array(cursor: _Cursor, name: str) -> Array:
    magic, _, device, _, ndim, code, bits, lanes = cursor.unpack(_ARRAY_HEAD.format)
    if magic != _ARRAY_MAGIC or device != 1:
        raise ArtifactError(f"params[{name!r}]: bad array header (magic {magic:#x}, device {device})")
    if not 0 <= ndim <= MAX_NDIM or (code, bits) not in _NAMES or lanes != 1:
        raise ArtifactError(f"params[{name!r}]: unusable type (code {code}, bits {bits}, lanes {lanes}) or ndim {ndim}")
    *shape, nbytes = cursor.unpack(f"<{ndim + 1}q")
    dtype = DType(_NAMES[code, bits])
    if any(dim < 0 for dim in shape) or tensor_bytes(tuple(shape), dtype) != nbytes:
        raise ArtifactError(f"params[{name!r}]: shape {shape} of {dtype} does not take {nbytes} bytes")
    return np.frombuffer(cursor.take(nbytes), dtype=np.uint8).view(dtype.numpy).reshape(shape)
