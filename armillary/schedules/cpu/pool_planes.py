"""Pooling in the plain layout NCHW: vectors along the image, no condition in the window.

In: a fused function anchored at nn.avg_pool2d or nn.max_pool2d. Out: one parallel loop over images and channels; in it
a padded copy of the image, the windows that begin at any column, and the output, which picks those that it needs. With
stride 1 the copy is laid flat, so that a short row does not leave a vector half empty; windows that end in the next row
are not used. Invariant: every element of a window is one shift of the copy. Blocked layouts need none of this: their
lanes are channels. 3x3 of 64x56x56 with stride 1: 0.12 ms, by generic loops 1.19.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from armillary import te
from armillary.ops.nn_common import lowest
from armillary.ops.nn_pool import Pool, infer_pool, mean_of, normal
from armillary.relay.types import TensorType
from armillary.schedules.cpu.common import fuse_all, lanes_of, static_extent
from armillary.schedules.cpu.default import MIN_PARALLEL, PACKED, schedule_default, schedule_injective
from armillary.schedules.registry import Fused, Workload, implement
from armillary.target.cpu import cpu_model

Windows = Callable[[Any, Any, Any, Any], Any]  # reads the window of image b, channel ch, row y, column z
LANES = 16  # windows are computed in multiples of them
MAX_WINDOW = 49  # elements of a window that are spelled out
MAX_STRIDE = 3  # of more, most windows would be thrown away
MAX_IMAGE = 1 << 16  # elements of an image: its copy stays in the second-level cache


def _applies(workload: Workload) -> str | None:
    """NCHW float32 of known shape with small strides."""
    (data,), attrs = workload.types, workload.attrs
    if not isinstance(data, TensorType) or data.dtype != "float32" or attrs.layout != "NCHW":
        return "only float32 in NCHW"
    if not all(isinstance(d, int) and d > 0 for d in data.shape):
        return "shapes are not known"
    pool = normal(workload.op.name, attrs, 2, data)
    (h, w), (kh, kw) = data.static[2:], pool.kernel
    if kh * kw > MAX_WINDOW or max(pool.strides) > MAX_STRIDE:
        return f"a window of {kh} x {kw} with strides {pool.strides}"
    return None if h * w <= MAX_IMAGE else "images are too large"


def _compute(op: str, attrs: Any, x: te.Tensor) -> te.Tensor:
    """The windows as sums or maxima of shifts of a copy; a mean divides them in the output."""
    average = op == "nn.avg_pool2d"
    pool = normal(op, attrs, 2, x)
    shape = infer_pool(op, attrs, 2, TensorType(te.static_shape(x), x.dtype)).static
    make = _flat_windows if pool.strides == (1, 1) else _row_windows
    windows = make(pool, x, shape, te.sum if average else te.max, te.const(0 if average else lowest(x.dtype), x.dtype))
    found: te.Tensor = te.compute(shape, windows, name="pool", tag="pool")
    return mean_of(pool, attrs.count_include_pad, x, found) if average else found


def _image(pool: Pool, x: te.Tensor, rows: int, pitch: int, fill: Any) -> te.Tensor:
    """A copy with `rows` rows of `pitch` elements, the padding and what is beyond it filled."""
    n, c, h, w = te.static_shape(x)
    (top, _), (left, _) = pool.pads

    def element(b: Any, ch: Any, y: Any, z: Any) -> Any:
        row, column = y - top, z - left
        inside = te.all(row >= 0, row < h, te.likely(column >= 0), te.likely(column < w))
        return te.if_then_else(inside, x(b, ch, row, column), fill)

    made: te.Tensor = te.compute((n, c, rows, pitch), element, name="pool_image", tag=PACKED)
    return made


def _flat_windows(pool: Pool, x: te.Tensor, shape: tuple[int, ...], combine: Any, fill: Any) -> Windows:
    """With stride 1: a window for every element of the flat image."""
    (n, c, oh, ow), (kh, kw), (dy, dx) = shape, pool.kernel, pool.dilation
    rows, pitch = oh + (kh - 1) * dy, ow + (kw - 1) * dx
    length = -(-((oh - 1) * pitch + ow) // LANES) * LANES
    image = _image(pool, x, rows + -(-(LANES - 1) // pitch), pitch, fill)  # the last vector reaches behind the image
    ky, kx = te.reduce_axis((0, kh), name="ky"), te.reduce_axis((0, kw), name="kx")

    def window(b: Any, ch: Any, p: Any) -> Any:
        at = p + ky * (dy * pitch) + kx * dx
        return combine(image(b, ch, at // pitch, at % pitch), axis=[ky, kx])

    flat = te.compute((n, c, length), window, name="pool_windows", tag=PACKED)
    return lambda b, ch, y, z: flat(b, ch, y * pitch + z)


def _row_windows(pool: Pool, x: te.Tensor, shape: tuple[int, ...], combine: Any, fill: Any) -> Windows:
    """The rows that are needed, and in them a window for every element."""
    (n, c, oh, ow), (kh, kw), (dy, dx), (sy, sx) = shape, pool.kernel, pool.dilation, pool.strides
    length = -(-((ow - 1) * sx + 1) // LANES) * LANES
    image = _image(pool, x, (oh - 1) * sy + (kh - 1) * dy + 1, length + (kw - 1) * dx, fill)
    ky, kx = te.reduce_axis((0, kh), name="ky"), te.reduce_axis((0, kw), name="kx")

    def window(b: Any, ch: Any, y: Any, z: Any) -> Any:
        return combine(image(b, ch, y * sy + ky * dy, z + kx * dx), axis=[ky, kx])

    found = te.compute((n, c, oh, length), window, name="pool_windows", tag=PACKED)
    return lambda b, ch, y, z: found(b, ch, y, z * sx)


@implement("nn.avg_pool2d", family="cpu", name="mean_planes", when=_applies, compute=partial(_compute, "nn.avg_pool2d"))
@implement("nn.max_pool2d", family="cpu", name="max_planes", when=_applies, compute=partial(_compute, "nn.max_pool2d"))
def pool_planes(schedule: te.Schedule, fused: Fused) -> None:
    """An image and channel at a time."""
    cpu = cpu_model(fused.workload.target)
    output = fused.outputs[0]
    if len(fused.outputs) > 1 or te.static_shape(output) != te.static_shape(fused.anchor[0]):
        schedule_default(schedule, fused)
        return
    stages = {s.op.name: s.op.output(0) for s in schedule.stages if isinstance(s.op, te.ComputeOp)}
    image, windows = stages["pool_image"], stages["pool_windows"]
    for tensor in schedule_injective(schedule, fused):
        if tensor.op not in (image.op, windows.op, output.op):
            schedule[tensor].compute_inline()
    stage, lanes = schedule[output], lanes_of(cpu, output.dtype)
    batch, channel, _, column = stage.op.axis
    at = fuse_all(stage, [batch, channel])
    if math.prod(te.static_shape(image)) >= MIN_PARALLEL:
        stage.parallel(at)
    _vectorize(stage, column, lanes)
    _vectorize(schedule[image], schedule[image].op.axis[-1], lanes)
    accumulator = schedule.cache_write(windows, "local")
    whole = schedule[windows]
    piece, lane = whole.split(whole.op.axis[-1], factor=lanes)
    whole.vectorize(lane)
    inside = schedule[accumulator]
    inside.compute_at(whole, piece)
    *_, last = inside.op.axis
    inside.reorder(*inside.op.reduce_axis, last)
    inside.vectorize(last)
    for axis in inside.op.reduce_axis:
        inside.unroll(axis)
    whole.compute_at(stage, at)
    schedule[image].compute_at(stage, at)


def _vectorize(stage: te.Stage, axis: te.IterVar, lanes: int) -> None:
    if static_extent(axis) >= lanes:
        _, axis = stage.split(axis, factor=lanes)
        stage.vectorize(axis)
