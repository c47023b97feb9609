"""Which convolutions the product kernel computes: the estimated cycles of each way, in one unit.

In: types and attributes of a convolution of one group in plain layouts. Out: cycles of a large GPU. Invariant: the
product's cycles are those of gemm/tile.py; what backends/opencl/tiles.py counts in multiply-adds of a full device is
turned into cycles. Who asks: gemm/schedule.py, graph/winograd_conv2d.py, points.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from armillary.backends.opencl.gemm.tile import LANES, LANES_OF_PROCESSOR, PROCESSORS, Size, choose_tile, cost
from armillary.backends.opencl.tiles import FLOATS, Product
from armillary.backends.opencl.tiles import choose_tile as choose_direct
from armillary.backends.opencl.tiles import cost as direct_cost
from armillary.backends.workload import Workload
from armillary.relay.types import TensorType, tensor_fields

if TYPE_CHECKING:
    from armillary.ops.nn._windows import ConvAttrs

SINGLE_LOAD = 3  # cost of an element that is loaded alone, with a test of the border and its own index
TAPS = 1.3  # of 36 convolutions measured on an H200: cycles of those with taps, by estimate
MODEL = 1.9  # the same of what is counted in multiply-adds of a full device


def layout_objection(workload: Workload) -> str | None:
    """Why a convolution is not of plain layout, or not of floats."""
    attrs = workload.attrs
    if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW") != ("NCHW", "OIHW", "NCHW"):
        return f"its layouts are {attrs.data_layout} and {attrs.kernel_layout}"
    if any(str(field.dtype) not in FLOATS for ty in workload.types for field in tensor_fields(ty)):
        return "it is in neither float32 nor float16"
    return None


def load_of(attrs: ConvAttrs, weight: TensorType) -> int:
    """The cost of loading an element of the data: pixels are neighbours where each is read once."""
    is_plain = weight.static[2:] == (1, 1) and set(attrs.strides) == {1} and not any(attrs.padding)
    return 1 if is_plain else SINGLE_LOAD


def size_of(data: TensorType, weight: TensorType, result: TensorType, attrs: ConvAttrs) -> Size:
    """The product that a convolution is."""
    images, channels, *pixels = result.static
    load = load_of(attrs, weight)
    columns = images * math.prod(pixels)
    return Size(1, channels, columns, math.prod(weight.static[1:]), SINGLE_LOAD if columns % LANES else load)


def product_cycles(data: TensorType, weight: TensorType, result: TensorType, attrs: ConvAttrs) -> float:
    """Of the product kernel."""
    size = size_of(data, weight, result, attrs)
    return cost(size, choose_tile(size)) * (1.0 if size.load == 1 else TAPS)


def direct_cycles(data: TensorType, weight: TensorType, result: TensorType, attrs: ConvAttrs) -> float:
    """Of tiles of channels, rows and columns."""
    work = convolved(weight, result, attrs)
    tile = choose_direct(work)
    if tile is None:
        return math.inf
    return as_cycles(direct_cost(work, tile))


def convolved(weight: TensorType, result: TensorType, attrs: ConvAttrs) -> Product:
    """The extents of a convolution in plain layout."""
    images, channels, height, width = result.static
    strides, dilation = tuple(attrs.strides), tuple(attrs.dilation)
    taps = weight.static[2:]
    return Product(images, (channels, height, width), weight.static[1], taps, strides, dilation)  # type: ignore[arg-type]


def as_cycles(multiply_adds: float) -> float:
    """Multiply-adds of a full device as cycles."""
    return MODEL * multiply_adds / (PROCESSORS * LANES_OF_PROCESSOR)


def in_multiply_adds(cycles: float) -> float:
    """Cycles as multiply-adds of a full device."""
    return cycles * PROCESSORS * LANES_OF_PROCESSOR / MODEL
