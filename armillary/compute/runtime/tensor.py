"""Tensors and images with memory.

In: information, then `allocate`. Out: `buffer()`, all bytes with padding; `array()`, the elements as numpy sees them.
Invariant: information changes until the memory is allocated, and then no more; memory is 64-byte aligned. Memory of a
tensor that a memory group manages is the group's, there while it is acquired (`memory/manager.py`).
"""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from armillary.base.aligned import aligned
from armillary.compute.core.tensor_info import READ_BEHIND, Format, PaddingSize, TensorInfo
from armillary.compute.runtime.memory.manager import MemoryGroup
from armillary.errors import ExecutionError, TypeMismatch

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]  # Any: of a tensor's type


class TensorAllocator:
    """Gives a tensor its memory."""

    def __init__(self, owner: Tensor) -> None:
        self._owner = owner

    def init(self, info: TensorInfo) -> None:
        """Set what the tensor is."""
        self._owner.set_info(info)

    def allocate(self) -> None:
        """Allocate what the information says; twice is refused."""
        self._owner.allocate()

    def free(self) -> None:
        """Give the memory back; the information may change again."""
        self._owner.free()


class Tensor:
    """Information and memory; `allocator()` gives both."""

    def __init__(self) -> None:
        self._info = TensorInfo()
        self._memory: Bytes | None = None
        self._address = self._dense_address = 0  # of memory of its own; the second of memory without padding
        self._group: MemoryGroup | None = None
        self._is_allocated = False
        self._is_constant = False

    def mark_as_constant(self) -> None:
        """Say that the values stay: functions that are configured afterwards pack them at once."""
        self._is_constant = True

    def is_constant(self) -> bool:
        """Whether the values stay as they are."""
        return self._is_constant

    def describe(self) -> str:
        """The tensor in an error."""
        return f"the tensor {self._info!r}" if self.has_info() else "a tensor without information"

    def has_info(self) -> bool:
        """Whether it is known what the tensor is."""
        return self._info.is_initialised()

    def is_allocated(self) -> bool:
        """Whether `allocate` was called."""
        return self._is_allocated

    def join_group(self, group: MemoryGroup) -> None:
        """Take memory from a group from now on."""
        if self._group is not None or self._is_allocated:
            have = "belongs to a memory group" if self._group is not None else "is allocated"
            raise ExecutionError(f"{self.describe()} {have} already", hint="manage a tensor once, before allocate")
        self._group = group

    def allocator(self) -> TensorAllocator:
        """What initialises and allocates."""
        return TensorAllocator(self)

    def set_info(self, info: TensorInfo) -> None:
        """As `allocator().init`."""
        if not isinstance(info, TensorInfo):
            raise TypeMismatch(f"a {type(info).__name__} is no TensorInfo")
        if self._is_allocated:
            raise ExecutionError("the tensor is allocated", hint="free it before it gets other information")
        self._info = copy(info)
        self._info.is_resizable = True

    def info(self) -> TensorInfo:
        """What the tensor is; `info().init(…)` sets it."""
        return self._info

    def allocate(self) -> None:
        """As `allocator().allocate`."""
        if self._is_allocated:
            raise ExecutionError("the tensor is allocated already")
        size = self._info.total_size()
        self._info.is_resizable = False
        self._is_allocated = True
        if self._group is not None:
            self._group.finalize_memory(self, self._size_in_group(size))
        else:
            self._take(size)

    def _size_in_group(self, size: int) -> int:
        """What so many bytes take of a group's memory."""
        return size

    def _take(self, size: int) -> None:
        """Memory of its own, of zeros."""
        self._memory = aligned(np.zeros(size + READ_BEHIND, np.uint8))[:size]
        self._address = self._memory.ctypes.data
        self._dense_address = 0 if self._info.has_padding() else self._address

    def free(self) -> None:
        """As `allocator().free`."""
        if self._group is not None:
            raise ExecutionError(f"{self.describe()} has no memory of its own", hint="its memory group frees it")
        self._memory, self._is_allocated, self._address, self._dense_address = None, False, 0, 0
        self.info().is_resizable = True

    def buffer(self) -> Bytes:
        """All bytes, padding included."""
        if self._group is not None and self._is_allocated:
            return self._group.memory_of(self)
        if self._memory is None:
            raise ExecutionError("the tensor has no memory", hint="call allocator().allocate() first")
        return self._memory

    def address(self) -> int:
        """Where the first byte of the buffer is."""
        return self._address or self.buffer().ctypes.data

    def dense_address(self) -> int:
        """Where the elements lie one after another; 0 where there is padding."""
        return self._dense_address or (0 if self._info.has_padding() else self.address())

    def planes(self) -> Array:
        """The buffer as (planes, padded rows, padded columns)."""
        width, height = self.info().padded()
        return self.buffer().view(self.info().data_type.dtype).reshape(-1, height, width * self.info().num_channels())

    def array(self) -> Array:
        """The elements without padding, the first dimension last, channels of a pixel behind it; a view."""
        info, pad = self.info(), self.info().padding
        if info.num_channels() > 1:
            rows = self.planes()[0, pad.top : pad.top + info.dimension(1)]
            pixels = rows.reshape(info.dimension(1), -1, info.num_channels())
            return pixels[:, pad.left : pad.left + info.dimension(0)]
        inside = self.planes()[:, pad.top : pad.top + info.dimension(1), pad.left : pad.left + info.dimension(0)]
        return inside.reshape(shape_of(info)) if info.padding == PaddingSize() else _unfolded(inside, info)

    def read(self) -> Array:
        """The elements as `array()` has them, wherever they are: not to be written."""
        return self.array()

    def write(self, values: Array) -> None:
        """Set all elements, wherever they are."""
        self.array()[...] = values


def shape_of(info: TensorInfo) -> tuple[int, ...]:
    """A tensor's shape as numpy has it: the first dimension last."""
    return tuple(reversed(info.shape))


def _unfolded(inside: Array, info: TensorInfo) -> Array:
    """Planes with padding between their rows in the tensor's shape, as a view."""
    if len(info.shape) < 2:
        row: Array = inside[0, 0]
        return row if info.shape else row.reshape(())
    return inside.reshape(*reversed(info.shape[2:]), *inside.shape[1:]) if len(info.shape) > 2 else inside[0]


class Image(Tensor):
    """A tensor of a Format and two dimensions."""


class MultiImage:
    """An image of several planes, each an `Image`: NV12, NV21, IYUV, YUV444."""

    _plane_type: ClassVar[type[Tensor]] = Image

    def __init__(self) -> None:
        self._format: Format | None = None
        self._planes: tuple[Tensor, ...] = ()
        self._size = (0, 0)

    def init(self, width: int, height: int, format: Format) -> None:
        """Set size and format; sizes are even where planes have half of them."""
        if any(divisor == 2 for _, divisor in format.planes) and (width % 2 or height % 2):
            raise TypeMismatch(f"{format.name} has planes of half the size, {width}x{height} is odd")
        self._format, self._size = format, (width, height)
        self._planes = tuple(self._plane_type() for _ in format.planes)
        for image, (kind, divisor) in zip(self._planes, format.planes, strict=True):
            image.allocator().init(TensorInfo(width // divisor, height // divisor, kind))

    def format(self) -> Format:
        """What a pixel is."""
        if self._format is None:
            raise ExecutionError("the image has no information", hint="call init(width, height, format) first")
        return self._format

    def size(self) -> tuple[int, int]:
        """Width and height."""
        self.format()
        return self._size

    def plane(self, index: int) -> Tensor:
        """One plane of a picture of several."""
        self.format()
        return self._planes[index]

    def planes(self) -> tuple[Tensor, ...]:
        """All planes of the picture, in their order."""
        self.format()
        return self._planes

    def allocate(self) -> None:
        """Give all planes their memory."""
        for image in self.planes():
            image.allocator().allocate()
