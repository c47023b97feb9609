"""ONNX tensors and types as numpy arrays and Relay types, with every size checked first.

In: TensorProto, SparseTensorProto, TypeProto, AttributeProto. Out: C-contiguous arrays (ml_dtypes for bfloat16, float8
and the 2- and 4-bit types), TensorTypes, Python values. Invariant: nothing is allocated before the declared size has
been compared with the bytes that are there; strings, complex numbers and 6-bit floats are refused with a reason.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import Deferred
from armillary.base.dtype import DType
from armillary.base.stored import FilePart, HeldFile
from armillary.errors import ModelError, Span, UnsupportedError
from armillary.frontend.onnx.proto import AttributeType, ElementType, onnx
from armillary.frontend.onnx.split import LARGE

if TYPE_CHECKING:
    from onnx import AttributeProto, SparseTensorProto, TensorProto

_EXTERNAL = 1  # TensorProto.DataLocation
_MOST_FILES = 64  # of external data that stay open; a process may have 1024
MAX_BYTES = 1 << 40  # no tensor of a network we could run is larger

DTYPES: dict[int, str] = {
    ElementType.FLOAT: "float32",
    ElementType.DOUBLE: "float64",
    ElementType.FLOAT16: "float16",
    ElementType.BFLOAT16: "bfloat16",
    ElementType.BOOL: "bool",
    ElementType.INT8: "int8",
    ElementType.INT16: "int16",
    ElementType.INT32: "int32",
    ElementType.INT64: "int64",
    ElementType.UINT8: "uint8",
    ElementType.UINT16: "uint16",
    ElementType.UINT32: "uint32",
    ElementType.UINT64: "uint64",
    ElementType.INT4: "int4",
    ElementType.UINT4: "uint4",
    ElementType.FLOAT8E4M3FN: "float8_e4m3fn",
    ElementType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    ElementType.FLOAT8E5M2: "float8_e5m2",
    ElementType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    ElementType.FLOAT4E2M1: "float4_e2m1fn",
    ElementType.FLOAT8E8M0: "float8_e8m0fnu",
    ElementType.UINT2: "uint2",
    ElementType.INT2: "int2",
}
ELEM_TYPES = {dtype: int(code) for code, dtype in DTYPES.items()}
_TYPED_FIELDS = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}


def elem_dtype(code: int, what: str, span: Span | None = None) -> DType:
    """The DType of an ONNX element type; `what` names its owner in the error."""
    if code in DTYPES:
        return DType(DTYPES[code])
    try:
        name = onnx.TensorProto.DataType.Name(code).lower()  # type: ignore[attr-defined, unused-ignore]
    except ValueError:
        raise ModelError(f"{what} has the unknown element type {code}", span=span) from None
    if code == 0:
        raise ModelError(f"{what} has no element type", span=span)
    raise UnsupportedError(
        f"{what} holds {name} values, which are not supported",
        span=span,
        hint="numbers and booleans only; cast it before export",
    )


def tensor_array(
    tensor: TensorProto, span: Span | None = None, file: Path | None = None, content: Array | None = None
) -> Array:
    """The array of a TensorProto. Raises ModelError on any disagreement.

    `file` is the model: external data lies beside it. `content` is the raw data (as bytes in an array) of a tensor that
    was read without it; the result is a view of it.
    """
    what = f"tensor {tensor.name!r}" if tensor.name else "a tensor"
    dtype = elem_dtype(tensor.data_type, what, span)
    shape = checked_shape(tensor.dims, dtype, what, span)
    count = math.prod(shape)
    if tensor.data_location == _EXTERNAL:
        content = np.frombuffer(_external_bytes(tensor, what, span, file), np.uint8)
    if content is not None or tensor.HasField("raw_data"):
        if content is None:  # protobuf copies the bytes at each look: look once, and keep a view of that copy
            content = np.frombuffer(tensor.raw_data, np.uint8)
        _expect_bytes(content.nbytes, count, dtype, what, span)
        if _is_as_in_memory(dtype):
            return content.view(dtype.numpy).reshape(shape)
        inline = onnx.TensorProto(data_type=tensor.data_type, dims=shape, raw_data=content.tobytes())
    else:
        field = _TYPED_FIELDS.get(dtype, "int32_data")
        have, want = len(getattr(tensor, field)), -(-count * _field_bits(dtype) // 8)
        if have != want:
            raise ModelError(f"{what}: shape {list(shape)} wants {want} values in {field}, got {have}", span=span)
        inline = tensor
    try:
        array = onnx.numpy_helper.to_array(inline)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{what}: its data cannot be read as {dtype}: {error}", span=span) from None
    return np.ascontiguousarray(array.astype(dtype.numpy, copy=False)).reshape(shape)


def stored_tensor(tensor: TensorProto, content: FilePart, span: Span | None = None) -> Array | Deferred:
    """`tensor_array` of a tensor whose raw data is `content`; its numbers stay in the file if they lie as in memory."""
    what = f"tensor {tensor.name!r}"
    dtype = elem_dtype(tensor.data_type, what, span)
    if not _is_as_in_memory(dtype) or tensor.data_location == _EXTERNAL:
        return tensor_array(tensor, span, None, content.read())
    shape = checked_shape(tensor.dims, dtype, what, span)
    _expect_bytes(content.nbytes, math.prod(shape), dtype, what, span)
    return content.stored(shape, dtype.numpy)


def _is_as_in_memory(dtype: DType) -> bool:
    return dtype.bits == 8 * dtype.numpy.itemsize and sys.byteorder == "little"


def _field_bits(dtype: DType) -> int:
    """Bits one value takes of a typed entry's 8: sub-byte values are packed, all others have an entry each."""
    return dtype.bits if dtype.bits < 8 and not dtype.is_bool else 8


def _expect_bytes(have: int, count: int, dtype: DType, what: str, span: Span | None) -> None:
    bits = 8 if dtype.is_bool else dtype.bits
    want = (count * bits + 7) // 8
    if have != want:
        raise ModelError(f"{what}: {count} values of {dtype} take {want} bytes, got {have}", span=span)


def checked_shape(dims: Any, dtype: DType, what: str, span: Span | None) -> tuple[int, ...]:  # Any: repeated field
    """Dimensions as ints; ModelError when one is negative or the whole is absurdly large."""
    shape = tuple(int(d) for d in dims)
    if any(d < 0 for d in shape):
        raise ModelError(f"{what} has a negative dimension: {list(shape)}", span=span)
    if len(shape) > 64 or math.prod(max(d, 1) for d in shape) * dtype.bytes > MAX_BYTES:
        raise ModelError(f"{what} is absurdly large: {list(shape)[:64]} of {dtype}", span=span)
    return shape


def stored_external(
    tensor: TensorProto, span: Span | None, file: Path | None, held: dict[Path, HeldFile]
) -> Array | Deferred:
    """`tensor_array` of a tensor with external data; many numbers stay in their file, which is opened once."""
    what, dtype = f"tensor {tensor.name!r}", elem_dtype(tensor.data_type, f"tensor {tensor.name!r}", span)
    path, offset, length = _external_place(tensor, what, span, file)
    is_open = path in held or len(held) < _MOST_FILES
    if length < LARGE or not is_open or not _is_as_in_memory(dtype):
        return tensor_array(tensor, span, file)
    shape = checked_shape(tensor.dims, dtype, what, span)
    _expect_bytes(length, math.prod(shape), dtype, what, span)
    if path not in held:
        held[path] = HeldFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), str(path))
    return FilePart(held[path], offset, length).stored(shape, dtype.numpy)


def is_external(tensor: TensorProto) -> bool:
    """Whether the numbers of a tensor lie in a file of their own."""
    return bool(tensor.data_location == _EXTERNAL)


def _external_place(tensor: TensorProto, what: str, span: Span | None, file: Path | None) -> tuple[Path, int, int]:
    """External data: a regular file beside the model, or beside what the model is a link to; where in it, and size."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if file is None:
        raise ModelError(
            f"{what} keeps its data in the file {location!r}, and the model's folder is not known",
            span=span,
            hint="pass the path of the model instead of its bytes",
        )
    path = (file.parent / location).resolve() if "\0" not in location else Path()
    roots = {file.parent.resolve(), file.resolve().parent}  # caches of downloads link both into one folder
    if not location or roots.isdisjoint(path.parents):
        raise ModelError(
            f"{what}: external data {location!r} lies outside the model's folder",
            span=span,
            hint="keep model and data in one folder",
        )
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
    except ValueError:
        raise ModelError(f"{what}: external data has an unreadable offset or length: {entries}", span=span) from None
    try:
        is_there = path.is_file()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"{what}: external data file {location[:60]!r}…: {reason}", span=span) from error
    if not is_there:
        message = f"{what}: external data file {location!r} is missing"
        raise ModelError(message, span=span, hint="copy it to where the model is")
    size = path.stat().st_size
    length = size - offset if length < 0 else length
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(f"{what}: external data [{offset}, +{length}] exceeds {location!r} ({size} bytes)", span=span)
    return path, offset, length


def _external_bytes(tensor: TensorProto, what: str, span: Span | None, file: Path | None) -> bytes:
    path, offset, length = _external_place(tensor, what, span, file)
    with path.open("rb") as stream:
        stream.seek(offset)
        data: bytes = stream.read(length)
    return data


def sparse_array(sparse: SparseTensorProto, span: Span | None = None, file: Path | None = None) -> Array:
    """The dense form of a sparse tensor (linear or coordinate indices)."""
    values = tensor_array(sparse.values, span, file)
    indices = tensor_array(sparse.indices, span, file)
    what = f"sparse tensor {sparse.values.name!r}"
    shape = checked_shape(sparse.dims, DType(values.dtype.name), what, span)
    count = math.prod(shape)
    if count * values.itemsize > max(1 << 28, 4096 * values.nbytes):
        raise UnsupportedError(f"{what}: its dense form {list(shape)} is too large", span=span)
    if indices.ndim == 2 and indices.shape == (values.size, len(shape)):
        limits = np.array(shape, dtype=np.int64)
        legal = bool(np.all((indices >= 0) & (indices < limits)))
        flat = np.ravel_multi_index(tuple(indices.T), shape) if legal and shape else np.zeros(values.size, np.int64)
    else:
        legal = indices.shape == (values.size,) and bool(np.all((indices >= 0) & (indices < count)))
        flat = indices
    if not legal:
        raise ModelError(f"{what}: indices of shape {indices.shape} do not fit {list(shape)}", span=span)
    dense = np.zeros(count, values.dtype)
    dense[flat] = values.reshape(-1)
    return dense.reshape(shape)


def attribute_value(attribute: AttributeProto, span: Span | None = None, file: Path | None = None) -> Any:
    """An attribute as a Python value: numbers, str, arrays, tuples of them; sub-graphs and types stay as they are."""
    reader = _ATTRIBUTES.get(attribute.type or _guess_type(attribute))
    if reader is None:
        raise ModelError(f"attribute {attribute.name!r} has the unknown type {attribute.type}", span=span)
    return reader(attribute, span, file)


def _guess_type(attribute: AttributeProto) -> int:
    """Models of IR version 1 leave the type out: take the field that is set."""
    kinds = AttributeType
    single = {"f": kinds.FLOAT, "i": kinds.INT, "s": kinds.STRING, "t": kinds.TENSOR, "g": kinds.GRAPH}
    for field, kind in single.items():
        if attribute.HasField(field):  # type: ignore[arg-type, unused-ignore]
            return int(kind)
    many = {"floats": kinds.FLOATS, "ints": kinds.INTS, "strings": kinds.STRINGS, "tensors": kinds.TENSORS}
    return int(next((kind for field, kind in many.items() if len(getattr(attribute, field))), kinds.INTS))


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


_Reader = Callable[[Any, Span | None, Path | None], Any]  # Any: an AttributeProto, and its value
_ATTRIBUTES: dict[int, _Reader] = {
    AttributeType.FLOAT: lambda a, s, d: float(a.f),
    AttributeType.INT: lambda a, s, d: int(a.i),
    AttributeType.STRING: lambda a, s, d: _text(a.s),
    AttributeType.TENSOR: lambda a, s, d: tensor_array(a.t, s, d),
    AttributeType.SPARSE_TENSOR: lambda a, s, d: sparse_array(a.sparse_tensor, s, d),
    AttributeType.FLOATS: lambda a, s, d: tuple(float(f) for f in a.floats),
    AttributeType.INTS: lambda a, s, d: tuple(int(i) for i in a.ints),
    AttributeType.STRINGS: lambda a, s, d: tuple(_text(t) for t in a.strings),
    AttributeType.TENSORS: lambda a, s, d: tuple(tensor_array(t, s, d) for t in a.tensors),
    AttributeType.GRAPH: lambda a, s, d: a.g,
    AttributeType.GRAPHS: lambda a, s, d: tuple(a.graphs),
    AttributeType.TYPE_PROTO: lambda a, s, d: a.tp,
    AttributeType.TYPE_PROTOS: lambda a, s, d: tuple(a.type_protos),
    AttributeType.SPARSE_TENSORS: lambda a, s, d: tuple(sparse_array(t, s, d) for t in a.sparse_tensors),
}
