"""What is known of a tensor without its memory: shape, format, strides and offset in bytes, padding, valid region.

In: dimensions and a format or data type. Out: `TensorInfo`, whose strides grow with the padding that kernels ask for.
Invariant: all sizes are in bytes; padding grows until the memory is allocated, then it is fixed. Automatic padding is 4
elements around a plane and 32 more at the end of each row. Source: the architecture text, "Padding and border modes".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from armillary.base.boundary import bounded, bounded_methods
from armillary.base.record import record
from armillary.compute.core.layout import DataLayout, as_nchw
from armillary.compute.core.window import NUM_MAX_DIMENSIONS, Coordinates
from armillary.errors import ExecutionError, TypeMismatch

AUTO_PADDING, AUTO_ROW_PADDING = 4, 32


class DataType(Enum):
    """The type of an element. QASYMM8 are bytes that stand for (value - offset) * scale, see `QuantizationInfo`.

    QSYMM8_PER_CHANNEL are weights of convolutions, without an offset, with a scale for each output channel.
    """

    U8, S8, U16, S16, U32, S32 = "U8", "S8", "U16", "S16", "U32", "S32"
    F16, F32 = "F16", "F32"
    QASYMM8, QASYMM8_SIGNED, QSYMM8_PER_CHANNEL = "QASYMM8", "QASYMM8_SIGNED", "QSYMM8_PER_CHANNEL"

    @property
    def dtype(self) -> str:
        """The type as numpy names it."""
        return _DTYPES[self]

    @property
    def is_quantized(self) -> bool:
        """Whether values have a scale and an offset."""
        return self in (DataType.QASYMM8, DataType.QASYMM8_SIGNED, DataType.QSYMM8_PER_CHANNEL)


_DTYPES = {
    DataType.U8: "uint8",
    DataType.S8: "int8",
    DataType.U16: "uint16",
    DataType.S16: "int16",
    DataType.U32: "uint32",
    DataType.S32: "int32",
    DataType.F16: "float16",
    DataType.F32: "float32",
    DataType.QASYMM8: "uint8",
    DataType.QASYMM8_SIGNED: "int8",
    DataType.QSYMM8_PER_CHANNEL: "int8",
}


@record(slots=True)
class QuantizationInfo:
    """A stored value stands for (value - offset) * scale; `scales`: one for each channel instead."""

    scale: float = 1.0
    offset: int = 0
    scales: tuple[float, ...] = ()

    def __repr__(self) -> str:
        if self.scales:
            return f"QuantizationInfo(scales={self.scales})"
        return f"QuantizationInfo(scale={self.scale}, offset={self.offset})"

    def all_scales(self) -> tuple[float, ...]:
        """The scale, or those of all channels."""
        return self.scales or (self.scale,)


READ_BEHIND = 64  # bytes that vectors of a last row may read behind a tensor of another size: 15 pixels of four values


class Format(Enum):
    """What a pixel is. NV12, NV21, IYUV and YUV444 have several planes: `MultiImage`."""

    U8, S16, U16, S32, U32, F16, F32 = "U8", "S16", "U16", "S32", "U32", "F16", "F32"
    RGB888, RGBA8888, UV88, YUYV422, UYVY422 = "RGB888", "RGBA8888", "UV88", "YUYV422", "UYVY422"
    NV12, NV21, IYUV, YUV444 = "NV12", "NV21", "IYUV", "YUV444"

    @property
    def data_type(self) -> DataType:
        """The type of a channel."""
        return DataType[self.value] if self.value in DataType.__members__ else DataType.U8

    @property
    def num_channels(self) -> int:
        """Values of a pixel in one plane."""
        return _CHANNELS.get(self, 1)

    @property
    def planes(self) -> tuple[tuple[Format, int], ...]:
        """The planes of an image: their formats, and by what their sizes are divided."""
        return _PLANES.get(self, ((self, 1),))


_CHANNELS = {Format.RGB888: 3, Format.RGBA8888: 4, Format.UV88: 2, Format.YUYV422: 2, Format.UYVY422: 2}
_PLANES = {
    Format.NV12: ((Format.U8, 1), (Format.UV88, 2)),
    Format.NV21: ((Format.U8, 1), (Format.UV88, 2)),
    Format.IYUV: ((Format.U8, 1), (Format.U8, 2), (Format.U8, 2)),
    Format.YUV444: ((Format.U8, 1), (Format.U8, 1), (Format.U8, 1)),
}


class BorderMode(Enum):
    """What lies beside an image."""

    UNDEFINED, CONSTANT, REPLICATE = "undefined", "constant", "replicate"


@record(slots=True)
class BorderSize:
    """Elements that a kernel reads beside its own, on each side."""

    top: int = 0
    right: int = 0
    bottom: int = 0
    left: int = 0


PaddingSize = BorderSize
_NONE = BorderSize()


@bounded
class TensorShape(tuple[int, ...]):
    """Width, height, then planes and batches; without any a tensor is a scalar."""

    def __new__(cls, *extents: int) -> TensorShape:
        if len(extents) > NUM_MAX_DIMENSIONS or any(n < 1 for n in extents):
            raise TypeMismatch(f"a tensor's shape is up to {NUM_MAX_DIMENSIONS} positive sizes, got {extents}")
        return super().__new__(cls, map(int, extents))


@record(slots=True)
class ValidRegion:
    """Where a tensor's elements were computed: from `anchor` on, so many in each dimension."""

    anchor: Coordinates
    shape: tuple[int, ...]

    def start(self, dimension: int) -> int:
        """The first valid element."""
        return self.anchor[_dimension(dimension)]

    def end(self, dimension: int) -> int:
        """One past the last valid element; 1 behind the last dimension."""
        extent = self.shape[dimension] if _dimension(dimension) < len(self.shape) else 1
        return self.anchor[dimension] + extent


def _dimension(number: int) -> int:
    """The number of a dimension; TypeMismatch where no tensor has one of that number."""
    if not isinstance(number, int | np.integer) or not 0 <= number < NUM_MAX_DIMENSIONS:
        raise TypeMismatch(f"dimension {number!r:.40} of a tensor: they are numbered 0 to {NUM_MAX_DIMENSIONS - 1}")
    return int(number)


@bounded_methods("init", "init_auto_padding")
class TensorInfo:
    """`TensorInfo(640, 480, Format.U8)` or `TensorInfo(TensorShape(…), 1, DataType.F32)`; `TensorInfo()` waits.

    A `DataLayout` may be the last argument; NCHW otherwise.
    """

    def __init__(self, *given: int | TensorShape | Format | DataType | QuantizationInfo | DataLayout) -> None:
        self.is_resizable = True
        if given:
            self._set(given)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Only reached where there is no such attribute: nothing is known of a tensor before it is initialised."""
            if name.startswith("__") or "shape" in self.__dict__:
                raise AttributeError(f"TensorInfo has no attribute {name!r}")
            message = "the tensor has no information"
            raise ExecutionError(message, hint="call allocator().init(TensorInfo(…)) first")

    def is_initialised(self) -> bool:
        """Whether shape and type are known."""
        return "shape" in self.__dict__

    def _set(self, given: Sequence[int | TensorShape | Format | DataType | QuantizationInfo | DataLayout]) -> None:
        *sizes, kind = given
        self.quantization, self.layout = QuantizationInfo(), DataLayout.NCHW
        if isinstance(kind, DataLayout) and sizes:
            self.layout = kind
            *sizes, kind = sizes
        if isinstance(kind, QuantizationInfo) and sizes:
            self.quantization = kind
            *sizes, kind = sizes
        if isinstance(kind, Format):
            if len(kind.planes) > 1:
                raise TypeMismatch(f"{kind.name} has {len(kind.planes)} planes", hint="use a MultiImage")
            self.format: Format | None = kind
            self.data_type = kind.data_type
        elif isinstance(kind, DataType):
            self.format, self.data_type = None, kind
        else:
            raise TypeMismatch(f"the last argument of TensorInfo is a Format or a DataType, got {kind!r}")
        self.channels = self.format.num_channels if self.format is not None else 1
        if sizes and isinstance(sizes[0], TensorShape):
            message, most = sizes[1:], 1 << 16 if self.data_type is DataType.F32 else 1
            if len(message) > 1 or any(not isinstance(n, int) or not 1 <= n <= most for n in message):
                raise TypeMismatch(f"a tensor has 1 channel (of F32, 1 to {most}), got {message}")
            self.shape = sizes[0]
            self.channels = max([self.channels, *(n for n in message if isinstance(n, int))])
        else:
            self.shape = TensorShape(*(n for n in sizes if isinstance(n, int)))
        self.padding = PaddingSize()
        self.valid_region_value = ValidRegion(Coordinates(), self.shape)

    def __repr__(self) -> str:
        if not self.is_initialised():
            return "no information"
        return f"{'x'.join(map(str, self.shape)) or 'scalar'} {self.data_type.name}"

    def dimension(self, index: int) -> int:
        """The size of one dimension; 1 beyond the last."""
        return 1 if index >= len(self.shape) else self.shape[_dimension(index)]

    def tensor_shape(self) -> TensorShape:
        """The sizes along all axes, the innermost first."""
        return self.shape

    def num_dimensions(self) -> int:
        """How many dimensions there are."""
        return len(self.shape)

    def element_size(self) -> int:
        """Bytes of an element, all of its channels."""
        return int(np.dtype(self.data_type.dtype).itemsize) * self.num_channels()

    def num_channels(self) -> int:
        """Values of a pixel."""
        return self.channels

    def valid_region(self) -> ValidRegion:
        """Where elements were computed."""
        return self.valid_region_value

    def quantization_info(self) -> QuantizationInfo:
        """Scale and offset of a quantised type."""
        return self.quantization

    def data_layout(self) -> DataLayout:
        """Which dimension is width, height, channels."""
        return self.layout

    def set_data_layout(self, layout: DataLayout) -> TensorInfo:
        """Say which dimension is what; the sizes stay. Returns this object."""
        if not isinstance(layout, DataLayout):
            raise TypeMismatch(f"a layout is a DataLayout, got {layout!r}")
        self.layout = layout
        return self

    def in_nchw(self) -> TensorInfo:
        """The same image as (width, height, channels, batches): itself, unless its layout is another one."""
        if self.layout is DataLayout.NCHW:
            return self
        return TensorInfo(TensorShape(*as_nchw(self.layout, self.shape)), 1, self.data_type, self.quantization)

    def set_valid_region(self, region: ValidRegion) -> None:
        """Kernels say where their output is valid."""
        self.valid_region_value = region

    def has_padding(self) -> bool:
        """Whether there is any."""
        return self.padding != _NONE

    def num_planes(self) -> int:
        """How many planes of rows there are."""
        return math.prod(self.shape[2:])

    def plane_bytes(self) -> int:
        """Bytes of a plane, padding included."""
        return math.prod(self.padded()) * self.element_size()

    def padded(self) -> tuple[int, int]:
        """Elements of a row and rows of a plane, padding included."""
        pad = self.padding
        return self.dimension(0) + pad.left + pad.right, self.dimension(1) + pad.top + pad.bottom

    def strides_in_bytes(self) -> tuple[int, ...]:
        """The distance of neighbours in each dimension."""
        width, height = self.padded()
        size = self.element_size()
        strides = [size, size * width, size * width * height]
        for n in range(2, NUM_MAX_DIMENSIONS - 1):
            strides.append(strides[-1] * self.dimension(n))
        return tuple(strides)

    def total_size(self) -> int:
        """Bytes of the whole buffer."""
        strides = self.strides_in_bytes()
        return strides[2] * int(np.prod(self.shape[2:], dtype=np.int64))

    def offset_first_element_in_bytes(self) -> int:
        """Where the element at the origin is."""
        return self.offset_element_in_bytes(Coordinates())

    def offset_element_in_bytes(self, place: Coordinates) -> int:
        """Where an element is in the buffer."""
        strides, pad = self.strides_in_bytes(), self.padding
        origin = pad.top * strides[1] + pad.left * strides[0]
        return origin + sum(at * stride for at, stride in zip(place, strides, strict=False))

    def extend_padding(self, padding: PaddingSize) -> bool:
        """Ask for at least so much padding; whether it is there (memory that is allocated does not grow)."""
        have = self.padding
        wanted = PaddingSize(
            max(have.top, padding.top),
            max(have.right, padding.right),
            max(have.bottom, padding.bottom),
            max(have.left, padding.left),
        )
        if wanted != have and not self.is_resizable:
            return False
        self.padding = wanted
        return True

    def init(
        self,
        shape: TensorShape,
        kind: Format | DataType,
        strides_in_bytes: Sequence[int] = (),
        offset_first_element_in_bytes: int = 0,
        total_size_in_bytes: int = 0,
    ) -> None:
        """Set what the tensor is; with strides, offset and size in bytes its padding is what lies between them."""
        self._check_unallocated()
        self._set((shape, kind) if isinstance(kind, DataType) else (*shape, kind))
        if strides_in_bytes:
            self.padding = self._between(strides_in_bytes, offset_first_element_in_bytes, total_size_in_bytes)

    def _check_unallocated(self) -> None:
        if not self.is_resizable:
            raise ExecutionError("the tensor is allocated", hint="free it before it gets other information")

    def _between(self, strides: Sequence[int], offset: int, total: int) -> PaddingSize:
        """The padding that strides, an offset and a size leave; what no padding explains is refused."""
        size, row = self.element_size(), strides[1] if len(strides) > 1 else total
        planes = int(np.prod(self.shape[2:], dtype=np.int64))
        plane = strides[2] if len(strides) > 2 else total // planes
        top, left = divmod(offset, max(row, 1))
        sides = PaddingSize(
            top,
            row // size - self.dimension(0) - left // size,
            plane // max(row, 1) - self.dimension(1) - top,
            left // size,
        )
        numbers = (*strides, offset, total)
        is_whole = strides[0] == size and row % size == 0 and left % size == 0 and row > 0 and plane % row == 0
        if not is_whole or min(sides.right, sides.bottom) < 0 or total != plane * planes:
            message = f"strides, offset and size {numbers} do not hold {self!r}"
            raise TypeMismatch(message, hint="all are in bytes; a plane is whole rows, the size is whole planes")
        return sides

    def init_auto_padding(self, shape: TensorShape, kind: Format | DataType) -> None:
        """A shape with enough padding for every function: 4 elements around, 32 more at the end of a row."""
        self.init(shape, kind)
        self.extend_padding(PaddingSize(AUTO_PADDING, AUTO_PADDING + AUTO_ROW_PADDING, AUTO_PADDING, AUTO_PADDING))
