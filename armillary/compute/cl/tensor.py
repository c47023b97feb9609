"""Tensors in a device's memory.

In: information, then `allocate`. Out: `array_on_device()` for kernels; between `map()` and `unmap()`, the host's
`buffer()` and `array()`. Invariant: while a tensor is mapped the host's bytes are the tensor's, and kernels of the
device are refused; `unmap` brings them back. Strides and padding are those of the information, as on the host.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from armillary.base.aligned import aligned_empty
from armillary.base.dtype import DType
from armillary.compute.cl.scheduler import CLScheduler
from armillary.compute.runtime.tensor import Array, Bytes, MultiImage, Tensor
from armillary.errors import ExecutionError
from armillary.runtime.device import Device
from armillary.runtime.ndarray import DeviceArray

ALIGNMENT = 512  # devices take parts of memory as buffers, whose offsets are multiples of up to 4096 bits


class DeviceBytes:
    """Bytes of a device; a slice is a part of the same memory."""

    def __init__(self, whole: DeviceArray, offset: int, size: int) -> None:
        self._whole, self.offset, self.size = whole, offset, size

    def __getitem__(self, part: slice) -> DeviceBytes:
        begin, end, _ = part.indices(self.size)
        return DeviceBytes(self._whole, self.offset + begin, max(0, end - begin))

    def view(self, shape: tuple[int, ...], dtype: str, at: int = 0) -> DeviceArray:
        """An array over them."""
        address = self._whole.tensor.data + self.offset + at
        return DeviceArray(shape, DType(dtype), self._whole.device, address, self._whole)


class CLBufferAllocator:
    """Memory of the device that `CLScheduler` has."""

    def allocate(self, size: int, alignment: int = 64) -> Any:  # Any: stands for Bytes, see `DeviceBytes`
        """So many bytes."""
        del alignment
        return device_bytes(CLScheduler.get().use(), size)

    def free(self, memory: object) -> None:
        """The device takes it back when nobody uses it."""
        del memory


def device_bytes(device: Device, size: int) -> DeviceBytes:
    """New memory of a device."""
    return DeviceBytes(DeviceArray((max(1, size),), DType("uint8"), device), 0, size)


class OnDevice(Protocol):
    """A tensor, as kernels of a device see it."""

    def array_on_device(self) -> DeviceArray:
        """Its memory."""


class CLTensor(Tensor):
    """A tensor of the device; `map()` shows it to the host."""

    def __init__(self) -> None:
        super().__init__()
        self._mapped: Bytes | None = None
        self._device_memory: DeviceBytes | None = None

    def _size_in_group(self, size: int) -> int:
        return -(-size // ALIGNMENT) * ALIGNMENT

    def _take(self, size: int) -> None:
        self._device_memory = device_bytes(CLScheduler.get().use(), size)
        self._all().copyfrom(np.zeros(size, np.uint8))

    def free(self) -> None:
        """As `allocator().free`."""
        super().free()
        self._device_memory = self._mapped = None

    def _memory_on_device(self) -> DeviceBytes:
        if self._group is not None and self._is_allocated:
            result: Any = self._group.memory_of(self)  # Any: what CLBufferAllocator gave
            if not isinstance(result, DeviceBytes):
                message = f"{self.describe()} of a device is managed with memory of the host"
                raise ExecutionError(message, hint="set_allocator(CLBufferAllocator())")
            return result
        if self._device_memory is None:
            raise ExecutionError("the tensor has no memory", hint="call allocator().allocate() first")
        return self._device_memory

    def _all(self) -> DeviceArray:
        return self._memory_on_device().view((self._info.total_size(),), "uint8")

    def array_on_device(self) -> DeviceArray:
        """The memory as (planes, padded rows, padded columns)."""
        if self._mapped is not None:
            raise ExecutionError(f"{self.describe()} is mapped to the host", hint="unmap() it before a kernel runs")
        (width, height), channels = self._info.padded(), self._info.num_channels()
        planes = self._info.total_size() // (width * height * self._info.element_size())
        return self._memory_on_device().view((planes, height, width * channels), self._info.data_type.dtype)

    def flat_on_device(self) -> DeviceArray:
        """The first plane of the memory as (padded rows, padded columns)."""
        whole = self.array_on_device()
        return self._memory_on_device().view(whole.shape[1:], self._info.data_type.dtype)

    def read(self) -> Array:
        """The elements, brought to the host; waits for the device."""
        if self._mapped is not None:
            return self.array()
        self.map()
        try:
            return self.array()
        finally:
            self._mapped = None

    def write(self, values: Array) -> None:
        """Set all elements from the host."""
        if self._mapped is not None:
            self.array()[...] = values
            return
        self.map()
        try:
            self.array()[...] = values
        finally:
            self.unmap()

    def map(self, blocking: bool = True) -> None:
        """Show the bytes to the host, after all work that was enqueued (`blocking` or not)."""
        del blocking
        if self._mapped is not None:
            raise ExecutionError(f"{self.describe()} is mapped already", hint="unmap() it first")
        values = aligned_empty((self._info.total_size(),), np.dtype(np.uint8))
        values[...] = self._all().numpy()
        self._mapped = values

    def unmap(self) -> None:
        """Bring the host's bytes to the device."""
        if self._mapped is None:
            raise ExecutionError(f"{self.describe()} is not mapped", hint="map() it first")
        self._all().copyfrom(self._mapped)
        self._mapped = None

    def buffer(self) -> Bytes:
        """All bytes, padding included, while the tensor is mapped."""
        if self._mapped is None:
            raise ExecutionError(
                f"{self.describe()} is in the device's memory", hint="map() it for the host, then unmap()"
            )
        return self._mapped


class CLImage(CLTensor):
    """A tensor of a Format and two dimensions."""


class CLMultiImage(MultiImage):
    """An image of several planes, each a `CLImage`."""

    _plane_type = CLImage
