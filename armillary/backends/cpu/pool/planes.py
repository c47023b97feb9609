"""Pooling in the plain layout NCHW: vectors along the image, no condition in the window.

In: a fused function anchored at nn.avg_pool2d or nn.max_pool2d. Out: one parallel loop over images and channels, and
perhaps rows. It holds, for some rows of the output, what the rows of a window are together in each column, and the
output, whose vectors are every element of that, or with strides every other one. Short rows of large windows, with
stride 1, come from a padded copy of the image, laid flat, so that they leave no vector half empty: first the windows
that begin at any element, then the output, which leaves out those that end in the next row. Invariant: only elements at
borders are asked whether they lie outside. Blocked layouts need none of this: their lanes are channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.cost.vectors import dividing, lanes_of
from armillary.backends.cpu.elementwise.default import MIN_PARALLEL, PACKED, schedule_default, schedule_injective
from armillary.backends.cpu.loops import fuse_all, keeps_shape, static_extent
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.base.aliases import AnyFunction
from armillary.ops._deferred import T
from armillary.ops.nn._windows import lowest
from armillary.ops.nn.pool import Pool, has_empty_windows, infer_pool, mean_of, normal
from armillary.relay.types import TensorType
from armillary.target.cpu import cpu_model

if TYPE_CHECKING:
    from armillary.ops.nn._windows import AveragePoolAttrs

Windows = Callable[[te.Expr, te.Expr, te.Expr, te.Expr], te.Expr]  # of image b, channel ch, row y, column z
LANES = 16  # windows are computed in multiples of them
STAGES = ("pool_image", "pool_lines", "pool_windows", "pool_columns", "pool_rows")
COPY = 3  # elements of a window that are read in the time one of the lines between is written and read
MAX_SPELLED = 64  # elements of a window along one axis that are spelled out
MAX_IMAGE = 1 << 16  # elements of an image whose copy stays in the second-level cache
MAX_PIECES = 16  # vectors of a row that are spelled out
LONG_ROW = MAX_PIECES * LANES // 2  # elements, from which it is not spelled out: its border is among the columns
WIDE_FOR_PARTS = 56  # elements of a row, from which windows of many elements are faster by rows
MAX_COLUMNS = 1 << 11  # elements of the columns of windows, which stay in a quarter of the first-level cache


def _applies(workload: Workload) -> str | None:
    """NCHW float32 of known shape, or bytes for their maximum."""
    (data,), attrs = workload.types, workload.attrs
    if not isinstance(data, TensorType) or not pools(workload.op.name, data) or attrs.layout != "NCHW":
        return "only float32, and maxima of bytes, in NCHW"
    if not all(isinstance(d, int) and d > 0 for d in data.shape):
        return "shapes are not known"
    return empty_windows(workload)


def empty_windows(workload: Workload) -> str | None:
    """Windows that lie in the padding alone are for the loops that ask for each element."""
    pool = normal(workload.op.name, workload.attrs, 2, workload.types[0])  # type: ignore[arg-type]
    return "windows may lie in the padding alone" if has_empty_windows(pool) else None


def pools(op: str, data: TensorType) -> bool:
    """Whether numbers of that type are pooled in vectors: float32, and bytes where only their order counts."""
    return data.dtype == "float32" or (op == "nn.max_pool2d" and data.dtype in ("int8", "uint8"))


def _compute(op: str, attrs: AveragePoolAttrs, x: te.Tensor) -> te.Tensor:
    """The windows as sums or maxima of shifts; a mean divides them in the output."""
    average = op == "nn.avg_pool2d"
    pool = normal(op, attrs, 2, x)
    shape = infer_pool(op, attrs, 2, TensorType(te.static_shape(x), x.dtype)).static
    make = _flat_windows if _is_flat(pool, te.static_shape(x)[2:], shape[-1]) else _row_windows
    windows = make(pool, x, shape, te.sum if average else te.max, te.const(0 if average else lowest(x.dtype), x.dtype))
    result: te.Tensor = te.compute(shape, windows, name="pool", tag="pool")
    return mean_of(pool, attrs.count_include_pad, x, result) if average else result


def _is_flat(pool: Pool, image: tuple[int, ...], width: int) -> bool:
    """Whether windows come from a flat copy of the image rather than from rows of `width` results."""
    is_small = math.prod(image) <= MAX_IMAGE and width < WIDE_FOR_PARTS
    return is_small and pool.strides == (1, 1) and is_parted(pool)


def _image(pool: Pool, x: te.Tensor, rows: int, pitch: int, fill: te.Expr) -> te.Tensor:
    """A copy with `rows` rows of `pitch` elements, the padding and what is beyond it filled."""
    n, c, h, w = te.static_shape(x)
    (top, _), (left, _) = pool.pads

    def element(b: te.Expr, ch: te.Expr, y: te.Expr, z: te.Expr) -> te.Expr:
        row, column = y - top, z - left
        inside = te.all(row >= 0, row < h, te.likely(column >= 0), te.likely(column < w))
        return te.if_then_else(inside, x(b, ch, row, column), fill)

    result: te.Tensor = te.compute((n, c, rows, pitch), element, name="pool_image", tag=PACKED)
    return result


def _flat_windows(pool: Pool, x: te.Tensor, shape: tuple[int, ...], combine: AnyFunction, fill: te.Expr) -> Windows:
    """With stride 1: a window for every element of the flat image, along one axis after the other."""
    (n, c, oh, ow), (kh, kw), (dy, dx) = shape, pool.kernel, pool.dilation
    pitch = ow + (kw - 1) * dx
    length = _whole((oh - 1) * pitch + ow)
    lines = _whole(length + (kh - 1) * dy * pitch)  # the last vectors reach behind the image
    image = _image(pool, x, -(-(lines + (kw - 1) * dx) // pitch), pitch, fill)

    def element(b: te.Expr, ch: te.Expr, p: te.Expr) -> te.Expr:
        return image(b, ch, p // pitch, p % pitch)

    flat = _along(element, (n, c, lines), combine, kw, dx, "pool_lines")
    flat = _along(flat, (n, c, length), combine, kh, dy * pitch, "pool_windows")
    return lambda b, ch, y, z: flat(b, ch, y * pitch + z)


def _row_windows(pool: Pool, x: te.Tensor, shape: tuple[int, ...], combine: AnyFunction, fill: te.Expr) -> Windows:
    """For each row of the output what the rows of its windows are in each column, and of these the windows.

    What lies outside is the edge again, which a maximum may take twice; else it is put aside behind reading it.
    """
    (n, c, oh, ow), (dy, dx), (sy, sx) = shape, pool.dilation, pool.strides
    h, w = te.static_shape(x)[2:]
    (top, _), (left, _) = pool.pads
    ky, kx = _taps(pool)
    width = (ow - 1) * sx + (pool.kernel[1] - 1) * dx + 1
    is_inside, is_long = not left and width <= w, ow > LONG_ROW

    def columns(b: te.Expr, ch: te.Expr, y: te.Expr, z: te.Expr) -> te.Expr:
        row, where = y * sy + ky * dy - top, None
        if combine is te.max and dy == 1:
            row = _clamped(row, h)
        else:
            where = te.all(row >= 0, row < h)
        if is_inside or not is_long:
            value: te.Expr = combine(x(b, ch, row, z), axis=[ky], where=where)
            return value
        test = te.likely(te.all(z >= left, z < w + left))
        result: te.Expr = combine(te.if_then_else(test, x(b, ch, row, z - left), fill), axis=[ky], where=where)
        return result

    down = te.compute((n, c, oh, width if is_long and not is_inside else w), columns, name="pool_columns", tag=PACKED)

    def window(b: te.Expr, ch: te.Expr, y: te.Expr, z: te.Expr) -> te.Expr:
        column = z * sx + kx * dx
        if is_inside or is_long:
            rows: te.Expr = combine(down(b, ch, y, column), axis=[kx])
            return rows
        column = column - left
        value = down(b, ch, y, _clamped(column, w))
        if combine is not te.max or dx > 1:  # one question, of a whole vector
            value = te.select(T.equal((column + w) // w, 1), value, fill)
        result: te.Expr = combine(value, axis=[kx])
        return result

    rows = te.compute(shape, window, name="pool_rows", tag=PACKED)
    return lambda b, ch, y, z: rows(b, ch, y, z)


def _clamped(place: te.Expr, size: int) -> te.Expr:
    return te.min(te.max(place, 0), size - 1)


def _whole(length: int) -> int:
    """A length in whole vectors."""
    return -(-length // LANES) * LANES


def _taps(pool: Pool) -> tuple[te.IterVar, te.IterVar]:
    kh, kw = pool.kernel
    return te.reduce_axis((0, kh), name="ky"), te.reduce_axis((0, kw), name="kx")


def is_parted(pool: Pool) -> bool:
    """Whether windows are taken along one axis after the other: k + k elements for k * k, and a copy of the image."""
    kh, kw = pool.kernel
    return kh * kw > kh + kw + COPY


def _along(
    read: Callable[..., te.Expr], shape: tuple[int, ...], combine: AnyFunction, taps: int, step: int, name: str
) -> te.Tensor:
    """Windows of `taps` elements along the last axis, `step` apart."""
    k = te.reduce_axis((0, taps), name="k")
    result: te.Tensor = te.compute(
        shape, lambda *i: combine(read(*i[:-1], i[-1] + k * step), axis=[k]), name=name, tag=PACKED
    )
    return result


@implement(
    Candidate("nn.avg_pool2d", "mean_planes", _applies), family="cpu", compute=partial(_compute, "nn.avg_pool2d")
)
@implement(Candidate("nn.max_pool2d", "max_planes", _applies), family="cpu", compute=partial(_compute, "nn.max_pool2d"))
def pool_planes(schedule: te.Schedule, fused: Fused) -> None:
    """An image and channel at a time, or rows of it."""
    cpu = cpu_model(fused.workload.target)
    output = fused.outputs[0]
    if not keeps_shape(fused):
        schedule_default(schedule, fused)
        return
    stages = {s.op.name: s.op.output(0) for s in schedule.stages if isinstance(s.op, te.ComputeOp)}
    for tensor in schedule_injective(schedule, fused):
        if tensor.op is not output.op and tensor.op.name not in STAGES:
            schedule[tensor].compute_inline()
    stage, lanes = schedule[output], lanes_of(cpu, output.dtype)
    if "pool_rows" in stages:
        _schedule_rows(schedule, stage, stages["pool_columns"], stages["pool_rows"], lanes)
        return
    image, windows = stages["pool_image"], stages["pool_windows"]
    batch, channel, _, column = stage.op.axis
    at = fuse_all(stage, [batch, channel])
    if math.prod(te.static_shape(image)) >= MIN_PARALLEL:
        stage.parallel(at)
    _vectorize(stage, column, lanes)
    _vectorize(schedule[image], schedule[image].op.axis[-1], lanes)
    for tensor in (windows, stages["pool_lines"]):
        _schedule_windows(schedule, tensor, lanes)
        schedule[tensor].compute_at(stage, at)
    schedule[image].compute_at(stage, at)


def _schedule_rows(schedule: te.Schedule, stage: te.Stage, columns: te.Tensor, rows: te.Tensor, lanes: int) -> None:
    """Some rows of the output: the columns of their windows, then vectors of windows."""
    batch, channel, row, column = stage.op.axis
    height, width = static_extent(row), te.static_shape(columns)[-1]
    some = dividing(min(height, max(1, MAX_COLUMNS // width)), height)
    band, row = stage.split(row, factor=some)
    at = fuse_all(stage, [batch, channel, band])
    if math.prod(te.static_shape(columns)) >= MIN_PARALLEL:
        stage.parallel(at)
    place, vector = stage.split(column, factor=_piece(lanes, static_extent(column)))
    if static_extent(place) <= MAX_PIECES:
        stage.unroll(place)  # where they lie is known, and so is what lies outside
    stage.vectorize(vector)
    _schedule_windows(schedule, columns, _piece(lanes, width))
    schedule[columns].compute_at(stage, at)
    inside = schedule[rows]
    inside.set_scope("local")
    inside.compute_at(stage, place)
    *_, last = inside.op.axis
    inside.reorder(*inside.op.reduce_axis, last)
    inside.vectorize(last)
    spell_out(inside)


def _piece(lanes: int, extent: int) -> int:
    """Elements of a row in a vector: all lanes, and the last one has perhaps fewer; of a short row a divisor."""
    return lanes if extent >= lanes else dividing(lanes, extent)


def _schedule_windows(schedule: te.Schedule, windows: te.Tensor, lanes: int) -> None:
    """A vector of windows at a time, in a register while its elements pass."""
    accumulator = schedule.cache_write(windows, "local")
    whole = schedule[windows]
    piece, lane = whole.split(whole.op.axis[-1], factor=lanes)
    whole.vectorize(lane)
    inside = schedule[accumulator]
    inside.compute_at(whole, piece)
    *_, last = inside.op.axis
    inside.reorder(*inside.op.reduce_axis, last)
    inside.vectorize(last)
    spell_out(inside)


def spell_out(inside: te.Stage) -> None:
    """The elements of a window one by one, but for very long ones."""
    for axis in inside.op.reduce_axis:
        if static_extent(axis) <= MAX_SPELLED:
            inside.unroll(axis)


def _vectorize(stage: te.Stage, axis: te.IterVar, lanes: int) -> None:
    """Rows by vectors, each spelled out, so that it is known which of them have a border."""
    if static_extent(axis) >= lanes:
        pieces, axis = stage.split(axis, factor=lanes)
        if static_extent(pieces) <= MAX_PIECES:
            stage.unroll(pieces)
    stage.vectorize(axis)
