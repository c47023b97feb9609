"""Pooling in blocked layouts (NCHW16c…): tiles of neighbouring outputs in registers, the window spelled out.

In: a fused function anchored at nn.max_pool2d or nn.avg_pool2d. Out: one parallel loop over images, channel blocks and
rows; in it some columns at a time, each a vector of channels that stays in a register while the window passes.
Of larger windows a row of columns is taken first, k + k elements for k * k.
Invariant: elements of a window that lie outside the data are left out, not read as padding; loop partition cuts off
the border tiles, so that the others test nothing. In the plain layout: pool/planes.py. Windows of a whole image (global
pooling) keep the default schedule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.cost.vectors import dividing
from armillary.backends.cpu.elementwise.default import schedule_default, schedule_injective
from armillary.backends.cpu.loops import (
    compute_in_tile,
    followers,
    fuse_all,
    in_bands,
    is_power_of_two,
    keeps_shape,
    static_extent,
)
from armillary.backends.cpu.pool.planes import empty_windows, is_parted, pools, spell_out
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.base.extent import Known, bounds
from armillary.ops.nn._windows import lowest, reduce_axes
from armillary.ops.nn.pool import Pool, infer_pool, mean_of, normal
from armillary.relay.types import TensorType
from armillary.tir import build as T

if TYPE_CHECKING:
    from armillary.ops.nn._windows import AveragePoolAttrs

BLOCKED = re.compile(r"NCHW\d+c")
MAX_ELEMENTS = 72  # of all windows of a tile
MAX_COLUMNS = 8  # of a tile: enough that columns of overlapping windows are loaded once
# the element first: whether it is NaN is then asked once, however many windows it lies in
larger = te.comm_reducer(lambda largest, element: te.max(element, largest), lowest, name="max")


def _applies(workload: Workload) -> str | None:
    """Blocked float32 of known shape, or bytes for their maximum."""
    (data,), attrs = workload.types, workload.attrs
    if not isinstance(data, TensorType) or not pools(workload.op.name, data) or not BLOCKED.fullmatch(attrs.layout):
        return "only float32, and maxima of bytes, in NCHW[n]c"
    if not all(isinstance(d, int) and d > 0 for d in data.shape):
        return "shapes are not known"
    return empty_windows(workload)


def element_along(
    pool: Pool, n: int, axis: te.IterVar, at: te.Expr, size: Known, count: Known
) -> tuple[te.Expr, list[te.Expr]]:
    """Where an element of the window of result `at` lies along spatial axis `n`, and what must hold for it to exist.

    The axis has `size` elements and `count` results.
    """
    position = at * pool.strides[n] + axis.var * pool.dilation[n] - pool.pads[n][0]
    last = (count - 1) * pool.strides[n] + (pool.kernel[n] - 1) * pool.dilation[n] - pool.pads[n][0]
    reaches_out = bounds(size - last)[0] <= 0
    return position, ([position >= 0] if pool.pads[n][0] else []) + (
        [position < T.convert(size)] if reaches_out else []
    )


def pool_compute(op: str, attrs: AveragePoolAttrs, x: te.Tensor) -> te.Tensor:
    """Sums or maxima of the elements of each window that exist; a mean divides in a stage of its own."""
    average = op == "nn.avg_pool2d"
    sizes = te.extents(x)
    type_of_data = TensorType(sizes, x.dtype)
    pool, counts = normal(op, attrs, 2, type_of_data), infer_pool(op, attrs, 2, type_of_data).known
    axes = reduce_axes(pool.kernel, ["ky", "kx"])
    combine = te.sum if average else larger

    def place(n: int, at: te.Expr) -> tuple[te.Expr, list[te.Expr]]:
        return element_along(pool, n, axes[n], at, sizes[2 + n], counts[2 + n])

    def element(b: te.Expr, ch: te.Expr, y: te.Expr, z: te.Expr, i: te.Expr) -> te.Expr:
        (row, rows), (column, columns) = place(0, y), place(1, z)
        return combine(x(b, ch, row, column, i), axis=axes, where=te.all(te.all(*rows), te.likely(te.all(*columns))))

    def down(b: te.Expr, ch: te.Expr, y: te.Expr, z: te.Expr, i: te.Expr) -> te.Expr:
        row, rows = place(0, y)
        return combine(x(b, ch, row, z, i), axis=axes[:1], where=te.all(*rows))

    def across(b: te.Expr, ch: te.Expr, y: te.Expr, z: te.Expr, i: te.Expr) -> te.Expr:
        column, columns = place(1, z)
        return combine(lines(b, ch, y, column, i), axis=axes[1:], where=te.likely(te.all(*columns)))

    if is_parted(pool):
        lines = te.compute((*counts[:3], *sizes[3:]), down, name="pool_lines", tag="pool_lines")
        windows: te.Tensor = te.compute(counts, across, name="pool_windows", tag="pool_windows")
    else:
        windows = te.compute(counts, element, name="pool_windows", tag="pool_windows")
    return mean_of(pool, attrs.count_include_pad, x, windows) if average else windows


@implement(
    Candidate("nn.avg_pool2d", "mean_blocks", _applies, sizes="any"),
    family="cpu",
    compute=partial(pool_compute, "nn.avg_pool2d"),
)
@implement(
    Candidate("nn.max_pool2d", "max_blocks", _applies, sizes="any"),
    family="cpu",
    compute=partial(pool_compute, "nn.max_pool2d"),
)
def pool_blocked(schedule: te.Schedule, fused: Fused) -> None:
    """A tile of columns at a time."""
    staged = windows_in_registers(schedule, fused)
    if staged is None:
        return
    windows, after = staged
    output = fused.outputs[0]
    stage = schedule[output]
    batch, chunk, row, *_ = stage.op.axis
    at = tile_windows(schedule, output, windows, after)
    lines = in_bands(stage, chunk, row)
    stage.reorder(batch, *lines, at)
    outer = fuse_all(stage, [batch, *lines])
    stage.parallel(outer)
    for columns in [s.op.output(0) for s in schedule.stages if s.op.name == "pool_lines"]:
        _schedule_lines(schedule, columns)
        schedule[columns].compute_at(stage, outer)


def windows_in_registers(schedule: te.Schedule, fused: Fused) -> tuple[te.Tensor, list[te.Tensor]] | None:
    """The stage of windows, whose results are registers, and what follows it in a tile of the output; all else is
    inlined but lines of windows. None: what follows is of another shape, and has the default schedule."""
    output = fused.outputs[0]
    if not keeps_shape(fused):
        schedule_default(schedule, fused)
        return None
    windows = next(s.op.output(0) for s in schedule.stages if s.op.name == "pool_windows")
    retained = schedule_injective(schedule, fused)
    if windows.op is output.op:
        windows = schedule.cache_write(windows, "local")
        output = fused.outputs[0]
    else:
        schedule[windows].set_scope("local")
    after = [t for t in followers(schedule, windows, retained) if t.op is not output.op]
    for tensor in retained:
        if tensor.op not in (windows.op, output.op) and tensor.op.name != "pool_lines" and tensor not in after:
            schedule[tensor].compute_inline()
    return windows, after


def tile_windows(
    schedule: te.Schedule, output: te.Tensor, windows: te.Tensor, after: Sequence[te.Tensor]
) -> te.IterVar:
    """Tile the columns of the output, put windows and what follows them into registers; gives the loop of a tile."""
    stage = schedule[output]
    *_, column, block = stage.op.axis
    at, inner = stage.split(column, factor=_columns(schedule[windows]))
    stage.unroll(inner)
    if is_power_of_two(static_extent(block)):
        stage.vectorize(block)
    compute_in_tile(schedule, after, stage, at)
    _schedule_windows(schedule[windows])
    schedule[windows].compute_at(stage, at)
    return at


def _schedule_lines(schedule: te.Schedule, columns: te.Tensor) -> None:
    """A row of columns, some at a time in registers."""
    local = schedule.cache_write(columns, "local")
    stage = schedule[columns]
    *_, column, block = stage.op.axis
    at, inner = stage.split(column, factor=_columns(schedule[local]))
    stage.unroll(inner)
    if is_power_of_two(static_extent(block)):
        stage.vectorize(block)
    schedule[local].compute_at(stage, at)
    _schedule_windows(schedule[local])


def _columns(windows: te.Stage) -> int:
    """Of a tile: all windows of it are spelled out; a divisor of the row if there is one near."""
    taps = 1
    for axis in windows.op.reduce_axis:
        taps *= static_extent(axis)
    width = static_extent(windows.op.axis[3])
    return dividing(min(width, MAX_COLUMNS, max(1, MAX_ELEMENTS // taps)), width)


def _schedule_windows(inside: te.Stage) -> None:
    *outer, column, block = inside.op.axis
    inside.reorder(*outer, *inside.op.reduce_axis, column, block)
    if is_power_of_two(static_extent(block)):
        inside.vectorize(block)
    inside.unroll(column)
    spell_out(inside)
