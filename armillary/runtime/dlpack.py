"""DLPack, both ways, for every dtype we know (numpy alone does not exchange bfloat16 or float8).

In: a numpy array, or a foreign object with `__dlpack__`. Out: a capsule, or a numpy array over the foreign memory.
Invariant: the exporter's array lives until the consumer's deleter ran; the importer's memory until the last view died.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from ctypes import CFUNCTYPE, POINTER, c_int64, c_void_p, py_object
from typing import Any

import numpy as np

from armillary.artifact import type_code
from armillary.base.aliases import Array
from armillary.base.dtype import DType, dtype_of
from armillary.errors import TypeMismatch
from armillary.runtime.native_library import CDataType, CDevice, CTensor


class _Managed(ctypes.Structure):
    """DLPack's DLManagedTensor."""


_Deleter = CFUNCTYPE(None, POINTER(_Managed))
_Managed._fields_ = (("tensor", CTensor), ("context", c_void_p), ("deleter", _Deleter))

_api = ctypes.pythonapi
_capsule_new = ctypes.PYFUNCTYPE(py_object, c_void_p, ctypes.c_char_p, c_void_p)(("PyCapsule_New", _api))
_capsule_pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_capsule_valid = ctypes.PYFUNCTYPE(ctypes.c_int, py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_capsule_valid_raw = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_capsule_pointer_raw = ctypes.PYFUNCTYPE(c_void_p, c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_capsule_rename = ctypes.PYFUNCTYPE(ctypes.c_int, py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))

_NEW, _USED = b"dltensor", b"used_dltensor"
_exported: dict[int, tuple[_Managed, object, Array]] = {}  # context number -> what must live until the deleter runs
_numbers = itertools.count(1)


def _release_exported(managed: Any) -> None:  # Any: a ctypes pointer
    _exported.pop(managed.contents.context, None)


def _drop_unused(capsule: int) -> None:
    """Runs when a capsule dies: if nobody took the tensor, release it."""
    if _capsule_valid_raw(capsule, _NEW):
        managed = ctypes.cast(_capsule_pointer_raw(capsule, _NEW), POINTER(_Managed))
        managed.contents.deleter(managed)


_release = _Deleter(_release_exported)
_drop_capsule = ctypes.PYFUNCTYPE(None, c_void_p)(_drop_unused)


def type_of(dtype: DType) -> CDataType:
    """The DLPack type of a dtype (bool has a code of its own here)."""
    if dtype.is_bool:
        return CDataType(6, 8, 1)
    return CDataType(*type_code(dtype.storage))


_BY_CODE: dict[tuple[int, int], DType] = {(6, 8): DType("bool"), (1, 1): DType("bool")} | {
    (code.code, code.bits): DType(name)
    for name in (
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "int2",
        "int4",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint2",
        "uint4",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn",
    )
    for code in (type_of(DType(name)),)
}


def on_host(shape: Sequence[int], dtype: CDataType) -> CTensor:
    """A dense CTensor without data; it keeps its shape alive."""
    return CTensor(None, CDevice(1, 0), len(shape), dtype, (c_int64 * (len(shape) or 1))(*shape))


def describe(array: Array, dtype: DType) -> CTensor:
    """A CTensor over a numpy array, which must live as long as it does.

    The last axis of an array of vectors holds their lanes; the tensor has the others.
    """
    if not array.flags.c_contiguous and any(s % array.itemsize for s in array.strides):
        raise TypeMismatch("an array whose strides are no multiples of its element cannot be passed without copying")
    if dtype.lanes > 1 and array.shape[-1:] != (dtype.lanes,):
        raise TypeMismatch(f"an array of shape {array.shape} holds no {dtype}: its last axis are the lanes")
    ndim, step = array.ndim - (dtype.lanes > 1), array.itemsize * dtype.lanes
    tensor = on_host(array.shape[:ndim], type_of(dtype))
    tensor.data = array.__array_interface__["data"][0]  # a fifth of the time of `.ctypes`
    if not array.flags.c_contiguous:
        tensor.strides = (c_int64 * (ndim or 1))(*(s // step for s in array.strides[:ndim]))
    return tensor


def to_capsule(array: Array, dtype: DType) -> object:
    """Export a writable array as a "dltensor" capsule."""
    if not array.flags.writeable:
        raise BufferError("a read-only array cannot be exported through DLPack; copy it first")
    tensor, number = describe(array, dtype), next(_numbers)
    managed = _Managed(tensor, number, _release)
    _exported[number] = (managed, tensor, array)
    return _capsule_new(ctypes.addressof(managed), _NEW, ctypes.cast(_drop_capsule, c_void_p))


class _Owner:
    """Calls a foreign deleter when the last view of its memory is gone."""

    def __init__(self, managed: Any) -> None:  # Any: a ctypes pointer
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.contents.deleter:
            self._managed.contents.deleter(self._managed)


def from_capsule(capsule: object) -> tuple[Array, DType]:
    """Import a "dltensor" capsule as a numpy array over the same memory."""
    if not _capsule_valid(capsule, _NEW):
        raise TypeMismatch("not a DLPack capsule, or one that was used already")
    managed = ctypes.cast(_capsule_pointer(capsule, _NEW), POINTER(_Managed))
    tensor = managed.contents.tensor
    dtype = _BY_CODE.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1 or tensor.device.type != 1:
        where = f"code {tensor.dtype.code}, {tensor.dtype.bits} bits, {tensor.dtype.lanes} lanes"
        raise TypeMismatch(f"a DLPack tensor of {where} on device type {tensor.device.type} cannot be used here")
    _capsule_rename(capsule, _USED)
    return view(tensor, dtype, _Owner(managed)), dtype


def view(tensor: CTensor, dtype: DType, owner: object) -> Array:
    """A numpy array over a tensor's memory that keeps `owner` alive."""
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    itemsize = dtype.numpy.itemsize
    if 0 in shape or tensor.data is None:
        return np.empty(shape, dtype.numpy)
    strides = tuple(step * itemsize for step in tensor.strides[: tensor.ndim]) if tensor.strides else None
    if strides and any(stride < 0 for stride in strides):
        raise TypeMismatch("a DLPack tensor with negative strides cannot be used without copying")
    size = itemsize * math.prod(shape)
    if strides:
        size = itemsize + sum((n - 1) * s for n, s in zip(shape, strides))
    memory = (ctypes.c_uint8 * size).from_address(tensor.data + tensor.byte_offset)
    memory._owner = owner  # numpy keeps `memory`, which keeps the owner
    return np.ndarray(shape, dtype.numpy, memory, strides=strides)


def tensor_dtype(tensor: CTensor) -> DType:
    """The DType of a native tensor."""
    return _BY_CODE[tensor.dtype.code, tensor.dtype.bits]


def dtype_of_array(array: Array) -> DType:
    """The DType of a numpy array that the runtime can hold."""
    try:
        return dtype_of(array)
    except TypeMismatch as error:
        raise TypeMismatch(f"an array of {array.dtype} cannot be used by the runtime") from error
