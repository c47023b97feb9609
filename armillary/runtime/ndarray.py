"""NDArray: the runtime's tensor.

In: numpy arrays, nested lists, DLPack tensors. Out: a dense tensor on a device, and numpy or DLPack again.
Invariant: memory is C-contiguous, writable and (if ours) 64-byte aligned; `.numpy()` copies, DLPack does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.base.aligned import aligned_copy, aligned_empty
from armillary.base.dtype import DType
from armillary.errors import TypeMismatch
from armillary.runtime.device import Device, ElsewhereDevice, cpu, require
from armillary.runtime.dlpack import Array, describe, dtype_of_array, from_capsule, to_capsule
from armillary.runtime.native_library import CTensor


class NDArray:
    """A tensor on a device."""

    __slots__ = ("_array", "_dtype", "_tensor", "_keep", "device", "__weakref__")  # noqa: RUF023 - by meaning

    def __init__(self, array: Array, dtype: DType | None = None, device: Device | None = None) -> None:
        """Wrap a contiguous, writable numpy array without copying; use `array()` for anything else."""
        self.device = require(device or cpu())
        if not array.flags.c_contiguous:
            raise TypeMismatch("NDArray wraps contiguous arrays only", hint="use armillary.nd.array to copy")
        self._array = array
        self._dtype = dtype or dtype_of_array(array)
        self._tensor, self._keep = describe(array, self._dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._array.shape)

    @property
    def dtype(self) -> str:
        return self._dtype

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._array.size

    @property
    def ctx(self) -> Device:
        """Old name of `device`."""
        return self.device

    @property
    def tensor(self) -> CTensor:
        """The native view, valid while this object lives."""
        return self._tensor

    @property
    def memory(self) -> Array:
        """A numpy view of the same memory (unlike `numpy()`)."""
        return self._array

    def numpy(self) -> Array:
        """A numpy copy."""
        return self._array.copy()

    asnumpy = numpy

    def copyto(self, target: NDArray | Array | Device, mem_copy: bool = True) -> NDArray:
        """Copy into another array (numpy's, too) of the same shape, or to a device as a new array."""
        if isinstance(target, Device):
            return array(self._array, target)
        if not isinstance(target, NDArray | np.ndarray):
            told = f"cannot copy a tensor into {type(target).__name__}"
            raise TypeMismatch(told, hint="armillary.nd.empty makes one")
        _assign(target if isinstance(target, np.ndarray) else target.memory, self._array)
        return target  # type: ignore[return-value]  # what was given

    def copyfrom(self, source: Any) -> NDArray:  # Any: whatever numpy.asarray takes
        """Copy values in, converting the dtype; shapes must be equal."""
        _assign(self._array, _as_numpy(source))
        return self

    def __setitem__(self, index: Any, value: Any) -> None:  # Any: whatever numpy takes
        try:
            self._array[index] = _as_numpy(value)
        except (ValueError, IndexError) as error:
            raise TypeMismatch(f"cannot assign to a tensor of shape {self.shape}: {error}") from error

    def __getitem__(self, index: Any) -> Any:  # Any: numpy's indexing
        return self._array[index]

    def __len__(self) -> int:
        if not self._array.ndim:
            raise TypeMismatch("a scalar tensor has no length")
        return int(self._array.shape[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # Any: numpy's protocol
        if copy is False and (dtype is None or np.dtype(dtype) == self._array.dtype):
            return self._array
        return self._array.astype(dtype or self._array.dtype, copy=True)

    def __dlpack__(  # Any: numpy's protocol
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> object:
        """A DLPack capsule over this memory (or over a copy)."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor lives on {self.device}, not on DLPack device {dl_device}")
        source = self._array.copy() if copy else self._array
        if self._dtype.code == "bfloat" or "_" in self._dtype or self._dtype.bits in (2, 4):
            return to_capsule(source, self._dtype)
        return source.__dlpack__(**({} if max_version is None else {"max_version": max_version}))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device.device_type, self.device.device_id)

    to_dlpack = __dlpack__

    def __repr__(self) -> str:
        return f"<armillary.nd.NDArray shape={self.shape}, {self.device}>\n{self._array!r}"


def _as_numpy(value: Any) -> Array:  # Any: see `array`
    if isinstance(value, NDArray):
        return value.memory
    try:
        result = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise TypeMismatch(f"cannot make a tensor from {type(value).__name__}: {error}") from error
    return result


def _assign(target: Array, source: Array) -> None:
    if target.shape != source.shape:
        raise TypeMismatch(f"cannot copy a tensor of shape {source.shape} into one of shape {target.shape}")
    if source.dtype != target.dtype and not np.can_cast(source.dtype, target.dtype, "same_kind"):
        raise TypeMismatch(f"cannot copy {source.dtype} values into a tensor of {target.dtype}")
    if not target.flags.writeable:
        raise TypeMismatch("cannot copy a tensor into an array that is read-only")
    target[...] = source


def empty(shape: Sequence[int] | int, dtype: str = "float32", device: Device | None = None) -> NDArray:
    """An uninitialised tensor."""
    sizes = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if any(n < 0 for n in sizes):
        raise TypeMismatch(f"a tensor cannot have the shape {sizes}")
    if isinstance(device, ElsewhereDevice):
        return device.empty_elsewhere(sizes, DType(dtype))  # type: ignore[no-any-return]  # stands for an NDArray
    return NDArray(aligned_empty(sizes, DType(dtype).numpy), DType(dtype), device)


def array(value: Any, device: Device | None = None, dtype: str | None = None) -> NDArray:  # Any: numpy's array-likes
    """A new tensor with a copy of the values."""
    source = _as_numpy(value)
    wanted = DType(dtype) if dtype is not None else dtype_of_array(source)
    result = empty(source.shape, wanted, device)
    if isinstance(device, ElsewhereDevice):
        return result.copyfrom(source.astype(wanted.numpy, copy=False))
    result.memory[...] = source
    return result


def from_numpy(value: Array) -> NDArray:
    """A tensor over the memory of a contiguous, writable numpy array."""
    return NDArray(value)


def from_dlpack(value: Any) -> NDArray:  # Any: an object with __dlpack__, or a capsule
    """A tensor over the memory of a DLPack producer; strided memory is copied."""
    capsule = value.__dlpack__() if hasattr(value, "__dlpack__") else value
    source, dtype = from_capsule(capsule)
    return NDArray(source if source.flags.c_contiguous else aligned_copy(source), dtype)
