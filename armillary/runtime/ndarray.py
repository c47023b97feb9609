"""NDArray: the runtime's tensor.

In: numpy arrays, nested lists, DLPack tensors. Out: a dense tensor on a device, and numpy or DLPack again.
Invariant: memory is C-contiguous, in this machine's order of bytes and (if ours) 64-byte aligned; what is read-only is
never written (`check_output`); `.numpy()` copies, DLPack does not.
What lies on another device than the CPU is a `DeviceArray`: its values are read and written as a whole, by copies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import byref
from typing import Any

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import aligned_copy, aligned_empty, array_of, in_native_order
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.errors import ExecutionError, TypeMismatch
from armillary.runtime.device import Device, ElsewhereDevice, cpu, require
from armillary.runtime.dlpack import describe, dtype_of_array, from_capsule, to_capsule
from armillary.runtime.native_library import CTensor, ErrorText, Handle, native


class ViewError(TypeMismatch, ValueError):
    """A view that does not lie inside the tensor it is of."""


_HOST = cpu()


class NDArray:
    """A tensor on a device."""

    __slots__ = ("_array", "_dtype", "_tensor", "device", "__weakref__")  # noqa: RUF023 - by meaning

    def __init__(self, array: Array, dtype: DType | None = None, device: Device | None = None) -> None:
        """Wrap a contiguous numpy array without copying; use `array()` for anything else.

        One of another machine's order of bytes is copied, value by value. Nothing can be written to such a copy, nor to
        an array that is read-only.
        """
        self.device = require(cpu() if device is None else device)
        if self.device.device_type != 1:
            message = f"NDArray wraps memory of the host, not of {self.device}"
            raise TypeMismatch(message, hint="use armillary.nd.array(value, device)")
        if not isinstance(array, np.ndarray) or not isinstance(dtype or DType("float32"), DType):
            message = (
                f"NDArray wraps a numpy array, with a DType, got {type(array).__name__} and {type(dtype).__name__}"
            )
            raise TypeMismatch(message, hint="use armillary.nd.array(value, device, dtype)")
        if not array.flags.c_contiguous:
            raise TypeMismatch("NDArray wraps contiguous arrays only", hint="use armillary.nd.array to copy")
        if not array.dtype.isnative:
            array = in_native_order(array)
            array.flags.writeable = False  # what is written there would never reach the caller's array
        self._array = array
        self._dtype = dtype or dtype_of_array(array)
        self._tensor: CTensor | None = describe(array, self._dtype)

    is_view = False  # each knows what it keeps alive

    def same_as(self, other: object) -> bool:
        """Whether `other` is this tensor, not one like it."""
        return self is other

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._array.shape if self._dtype.lanes == 1 else self._array.shape[:-1])

    @property
    def dtype(self) -> str:
        return self._dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._array.size // self._dtype.lanes

    @property
    def ctx(self) -> Device:
        """Old name of `device`."""
        return self.device

    @property
    def tensor(self) -> CTensor:
        """The native view, valid while this object lives."""
        if self._tensor is None:
            self._tensor = describe(self._array, self._dtype)
        return self._tensor

    @property
    def memory(self) -> Array:
        """A numpy view of the same memory (unlike `numpy()`)."""
        return self._array

    @property
    def is_writable(self) -> bool:
        """Whether the memory may be written to."""
        return bool(self._array.flags.writeable)

    @boundary("view", arguments=True, first=1)
    def view(self, shape: Sequence[int], dtype: str | None = None, relative_byte_offset: int = 0) -> NDArray:
        """A tensor over a part of this memory, `relative_byte_offset` bytes behind its first element.

        Raises a ValueError where the part would not lie inside this tensor.
        """
        kind, sizes = DType(dtype) if dtype is not None else self._dtype, tuple(int(n) for n in shape)
        if any(n < 0 for n in sizes):
            raise ViewError(f"a tensor cannot have the shape {sizes}")
        begin = int(relative_byte_offset)
        end, held = begin + math.prod(sizes) * kind.numpy.itemsize * kind.lanes, self._array.nbytes
        if begin < 0 or end > held:
            raise ViewError(
                f"a view of shape {sizes} and dtype {kind} would occupy bytes {begin} <= i_byte < {end}, "
                f"but the NDArray being viewed only contains {held} bytes"
            )
        return self._viewed(sizes, kind, begin, end)

    _create_view = view  # its name in Relay-era scripts

    def _viewed(self, sizes: tuple[int, ...], kind: DType, begin: int, end: int) -> NDArray:
        last = (kind.lanes,) if kind.lanes > 1 else ()
        part = self._array.reshape(-1).view(np.uint8)[begin:end].view(kind.numpy)
        return NDArray(part.reshape(*sizes, *last), kind, self.device)

    @boundary("numpy")
    def numpy(self) -> Array:
        """A numpy copy; ExecutionError where there is no memory for it."""
        return self._array.copy()

    asnumpy = numpy

    def host_copy(self) -> NDArray:
        """A tensor of the host with these values; who only wants its numbers waits for no native view of it."""
        result = NDArray.__new__(NDArray)
        result._array, result._dtype, result._tensor, result.device = self.numpy(), self._dtype, None, _HOST
        return result

    @boundary("copyto", arguments=True)
    def copyto(self, target: NDArray | Array | Device, mem_copy: bool = True) -> NDArray:
        """Copy into another array (numpy's, too) of the same shape, or to a device as a new array."""
        if isinstance(target, Device):
            copied: NDArray = array(self, target, self._dtype)
            return copied
        if not isinstance(target, NDArray | np.ndarray):
            message = f"cannot copy a tensor into {type(target).__name__}"
            raise TypeMismatch(message, hint="armillary.nd.empty makes one")
        if isinstance(target, DeviceArray):
            return target.copyfrom(self)
        _assign(target if isinstance(target, np.ndarray) else target.memory, self.memory)
        return target  # type: ignore[return-value]  # what was given

    @boundary("copyfrom", first=1)
    def copyfrom(self, source: object) -> NDArray:  # whatever numpy.asarray takes
        """Copy values in, converting the dtype (uint16 are the bits of bfloat16); shapes must be equal."""
        _assign(self._array, as_bits(_as_numpy(source), self._array.dtype))
        return self

    def __setitem__(self, index: Any, value: Any) -> None:  # Any: whatever numpy takes
        try:
            self._array[index] = as_bits(_as_numpy(value), self._array.dtype)
        except (ValueError, IndexError) as error:
            raise TypeMismatch(f"cannot assign to a tensor of shape {self.shape}: {error}") from error

    def __getitem__(self, index: Any) -> Any:  # Any: numpy's indexing
        return self._array[index]

    def __len__(self) -> int:
        if not self._array.ndim:
            raise TypeMismatch("a scalar tensor has no length")
        return int(self._array.shape[0])

    @boundary("numpy")
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


class DeviceArray(NDArray):
    """A tensor in the memory of a device."""

    __slots__ = ("_memory",)

    def __init__(self, shape: tuple[int, ...], dtype: DType, device: Device, at: int = 0, owner: object = None) -> None:
        """New memory, or that at the device address `at`, which belongs to `owner`."""
        self.device = require(device)
        self._dtype = dtype
        whole = _with_lanes(shape, dtype)
        self._array = np.broadcast_to(np.zeros((), dtype.numpy), whole)  # shape and dtype; one element of memory
        host = describe(np.empty(whole, dtype.numpy) if 0 in shape else self._array, dtype)
        self._memory = owner
        if not at:
            self._memory = allocated = _allocate(device, self._array.size * dtype.numpy.itemsize)
            at = allocated.pointer
        self._tensor = CTensor(at, device.native, host.ndim, host.dtype, host.shape, None, 0)

    @property
    def is_writable(self) -> bool:
        return True

    @property
    def memory(self) -> Array:
        """A copy on the host that nobody can write to; `copyfrom` writes to the device."""
        copied = self.numpy()
        copied.flags.writeable = False
        return copied

    @boundary("numpy")
    def numpy(self) -> Array:
        """A numpy copy; waits until the values are there."""
        result = NDArray(aligned_empty(self._array.shape, self._dtype.numpy), self._dtype)
        self._copy(self, result)
        return result.memory

    asnumpy = numpy

    @boundary("copyfrom", first=1)
    def copyfrom(self, source: object) -> DeviceArray:  # whatever numpy.asarray takes
        """Copy values in, converting the dtype; shapes must be equal."""
        if isinstance(source, DeviceArray) and source.dtype == self.dtype and source.shape == self.shape:
            self._copy(source, self)
            return self
        between = NDArray(aligned_empty(self._array.shape, self._dtype.numpy), self._dtype)
        _assign(between.memory, as_bits(_as_numpy(source), between.memory.dtype))
        self._copy(between, self)
        return self

    @staticmethod
    def _copy(source: NDArray, target: NDArray) -> None:
        error = ErrorText()
        error.check(native().arm_tensor_copy(byref(source.tensor), byref(target.tensor), *error.args))

    def __setitem__(self, index: Any, value: object) -> None:  # Any: whatever numpy takes
        values = self.numpy()
        try:
            values[index] = as_bits(_as_numpy(value), values.dtype)
        except (ValueError, IndexError) as error:
            raise TypeMismatch(f"cannot assign to a tensor of shape {self.shape}: {error}") from error
        self.copyfrom(values)

    def __getitem__(self, index: Any) -> Any:  # Any: numpy's indexing
        return self.memory[index]

    @boundary("numpy")
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # Any: numpy's protocol
        if copy is False:
            raise ValueError(f"the tensor lives on {self.device}; numpy needs a copy")
        return self.numpy().astype(dtype or self._array.dtype, copy=False)

    def __dlpack__(  # Any: numpy's protocol
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> object:
        raise BufferError(f"the tensor lives on {self.device}, which DLPack cannot share; pass its .numpy()")

    to_dlpack = __dlpack__

    def __repr__(self) -> str:
        return f"<armillary.nd.NDArray shape={self.shape}, {self.device}>\n{self.numpy()!r}"


def _with_lanes(shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """The shape of the numbers in a tensor: vectors have an axis more."""
    return (*shape, dtype.lanes) if dtype.lanes > 1 else shape


def _allocate(device: Device, size: int) -> Handle:
    error, where = ErrorText(), device.native
    pointer = native().arm_device_allocate(where, size, *error.args)
    if not pointer:
        error.check(-1, ExecutionError)
    return Handle(pointer, lambda memory: native().arm_device_release(where, memory))


def as_bits(values: Array, dtype: Any) -> Array:  # Any: a numpy dtype
    """The values; uint16 that go to bfloat16 are its bits, as numpy alone knows no such type."""
    is_bits = values.dtype.name == "uint16" and dtype.name == "bfloat16"
    return in_native_order(values).view(dtype) if is_bits else values


def check_output(value: NDArray, what: str) -> None:
    """Refuse a tensor as the place of a result where its memory is read-only."""
    if not value.is_writable:
        raise TypeMismatch(
            f"{what} cannot be written to memory that is read-only",
            hint="pass armillary.nd.empty(shape, dtype), or a writable array of this machine's order of bytes",
        )


def _as_numpy(value: object) -> Array:  # see `array`
    return value.memory if isinstance(value, NDArray) else array_of(value, "a tensor")


def _assign(target: Array, source: Array) -> None:
    if target.shape != source.shape:
        raise TypeMismatch(f"cannot copy a tensor of shape {source.shape} into one of shape {target.shape}")
    if source.dtype != target.dtype and not np.can_cast(source.dtype, target.dtype, "same_kind"):
        raise TypeMismatch(f"cannot copy {source.dtype} values into a tensor of {target.dtype}")
    if not target.flags.writeable:
        raise TypeMismatch("cannot copy a tensor into an array that is read-only")
    target[...] = source


@boundary("nd.empty", arguments=True)
def empty(shape: Sequence[int] | int, dtype: str = "float32", device: Device | None = None) -> NDArray:
    """An uninitialised tensor."""
    sizes = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if any(n < 0 for n in sizes):
        raise TypeMismatch(f"a tensor cannot have the shape {sizes}")
    if isinstance(device, ElsewhereDevice):
        return device.empty_elsewhere(sizes, DType(dtype))  # type: ignore[no-any-return]  # stands for an NDArray
    if device is not None and device.device_type != 1:
        return DeviceArray(sizes, DType(dtype), device)
    return NDArray(aligned_empty(_with_lanes(sizes, DType(dtype)), DType(dtype).numpy), DType(dtype), device)


@boundary("nd.array", arguments=True)
def array(value: object, device: Device | None = None, dtype: str | None = None) -> NDArray:  # numpy's array-likes
    """A new tensor with a copy of the values."""
    source = _as_numpy(value)
    wanted = DType(dtype) if dtype is not None else dtype_of_array(source)
    if wanted.is_custom and source.dtype != wanted.numpy:
        hint = "give its bits, or cast by a kernel: relay.Function([x], x.astype(dtype))"
        raise TypeMismatch(f"an array of {source.dtype} holds no values of {wanted}", hint=hint)
    if wanted.lanes > 1 and source.shape[-1:] != (wanted.lanes,):
        message = f"values of shape {source.shape} are no {wanted}"
        raise TypeMismatch(message, hint=f"the last axis holds the {wanted.lanes} lanes")
    result = empty(source.shape if wanted.lanes == 1 else source.shape[:-1], wanted, device)
    if isinstance(device, ElsewhereDevice):
        return result.copyfrom(source.astype(wanted.numpy, copy=False))
    if isinstance(result, DeviceArray):
        return result.copyfrom(source)
    result.memory[...] = source
    return result


@boundary("nd.from_numpy", arguments=True)
def from_numpy(value: Array) -> NDArray:
    """A tensor over the memory of a contiguous numpy array; a read-only copy where its bytes are in another order."""
    return NDArray(value)


@boundary("from_dlpack", arguments=True)
def from_dlpack(value: object) -> NDArray:  # an object with __dlpack__, or a capsule
    """A tensor over the memory of a DLPack producer; strided memory is copied."""
    capsule = value.__dlpack__() if hasattr(value, "__dlpack__") else value
    source, dtype = from_capsule(capsule)
    return NDArray(source if source.flags.c_contiguous else aligned_copy(source), dtype)


def owner_of_memory(tensor: NDArray) -> object:
    """What lives as long as the tensor or any view of its memory."""
    memory = None if isinstance(tensor, DeviceArray) else tensor.memory.base
    return tensor if memory is None else memory
