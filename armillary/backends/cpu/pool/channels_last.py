"""Pooling with channels last (NHWC): tiles of neighbouring outputs in registers, the window spelled out.

In: a fused function anchored at nn.max_pool2d or nn.avg_pool2d. Out: one parallel loop over images and rows; in it some
columns at a time, each one or two vectors of channels that stay in registers while the window passes and are divided
there, where it is a mean. Invariant: elements of a window that lie outside the data are left out, not read as padding;
loop partition cuts off the border tiles. Channels are whole vectors; others, windows of a whole image and those that
pool/blocked.py takes by rows keep the default schedule.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.cost.vectors import dividing, lanes_of
from armillary.backends.cpu.loops import compute_in_tile, fuse_all, static_extent
from armillary.backends.cpu.pool.blocked import MAX_COLUMNS, MAX_ELEMENTS, element_along, larger, windows_in_registers
from armillary.backends.cpu.pool.planes import empty_windows, is_parted, pools, spell_out
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.ops.nn._windows import reduce_axes
from armillary.ops.nn.pool import infer_pool, mean_of, normal
from armillary.relay.types import TensorType
from armillary.target.cpu import CpuModel, cpu_model

if TYPE_CHECKING:
    from armillary.ops.nn._windows import AveragePoolAttrs

PAIR = 32  # bytes of channels of a tile: where a vector has 16, two neighbours come by one instruction (Arm's ldp)
MAX_WINDOW = 25  # elements: longer windows are a loop


def _applies(workload: Workload) -> str | None:
    """NHWC of known shape whose channels are whole vectors, float32, or bytes for their maximum."""
    (data,), attrs = workload.types, workload.attrs
    if not isinstance(data, TensorType) or not pools(workload.op.name, data) or attrs.layout != "NHWC":
        return "only float32, and maxima of bytes, in NHWC"
    if not all(isinstance(d, int) and d > 0 for d in data.shape):
        return "shapes are not known"
    lanes = lanes_of(cpu_model(workload.target), data.dtype)
    if data.static[3] % lanes:
        return f"{data.static[3]} channels are no whole vectors of {lanes}"
    pool = normal(workload.op.name, attrs, 2, data)
    if math.prod(pool.kernel) > MAX_WINDOW or is_parted(pool):
        return f"a window of {'x'.join(map(str, pool.kernel))} is too large to be spelled out"
    return empty_windows(workload)


def pool_compute(op: str, attrs: AveragePoolAttrs, x: te.Tensor) -> te.Tensor:
    """Sums or maxima of the elements of each window that exist; a mean divides in a stage of its own."""
    average = op == "nn.avg_pool2d"
    type_of_data = TensorType(te.static_shape(x), x.dtype)
    pool, result = normal(op, attrs, 2, type_of_data), infer_pool(op, attrs, 2, type_of_data)
    axes = reduce_axes(pool.kernel, ["ky", "kx"])
    combine = te.sum if average else larger

    def element(b: te.Expr, y: te.Expr, z: te.Expr, ch: te.Expr) -> te.Expr:
        (row, rows), (column, columns) = (
            element_along(pool, n, axes[n], at, type_of_data.static[1 + n], result.static[1 + n])
            for n, at in enumerate((y, z))
        )
        return combine(x(b, row, column, ch), axis=axes, where=te.all(te.all(*rows), te.likely(te.all(*columns))))

    windows: te.Tensor = te.compute(result.static, element, name="pool_windows", tag="pool_windows")
    return mean_of(pool, attrs.count_include_pad, x, windows) if average else windows


@implement(
    Candidate("nn.avg_pool2d", "mean_channels_last", _applies),
    family="cpu",
    compute=partial(pool_compute, "nn.avg_pool2d"),
)
@implement(
    Candidate("nn.max_pool2d", "max_channels_last", _applies),
    family="cpu",
    compute=partial(pool_compute, "nn.max_pool2d"),
)
def pool_channels_last(schedule: te.Schedule, fused: Fused) -> None:
    """A tile of columns and channels at a time."""
    staged = windows_in_registers(schedule, fused)
    if staged is None:
        return
    windows, after = staged
    cpu, stage = cpu_model(fused.workload.target), schedule[fused.outputs[0]]
    batch, row, column, channel = stage.op.axis
    block = _block(static_extent(channel), lanes_of(cpu, windows.dtype), windows.dtype.bytes)
    columns, inner = stage.split(column, factor=_columns(schedule[windows], block, cpu))
    blocks, lane = stage.split(channel, factor=block)
    stage.reorder(batch, row, columns, blocks, inner, lane)
    stage.unroll(inner)
    stage.vectorize(lane)
    compute_in_tile(schedule, after, stage, blocks)
    inside = schedule[windows]
    inside.compute_at(stage, blocks)
    *outer, column, channel = inside.op.axis
    inside.reorder(*outer, *inside.op.reduce_axis, column, channel)
    inside.vectorize(channel)
    inside.unroll(column)
    spell_out(inside)
    stage.parallel(fuse_all(stage, [batch, row]))


def _block(channels: int, lanes: int, size: int) -> int:
    """Channels of a tile: two short vectors where there are pairs of them."""
    pair = PAIR // size
    return pair if pair > lanes and channels % pair == 0 else lanes


def _columns(windows: te.Stage, block: int, cpu: CpuModel) -> int:
    """Of a tile: its windows are spelled out; a third of the registers holds results, the rest what windows share."""
    taps = math.prod(static_extent(axis) for axis in windows.op.reduce_axis)
    width = static_extent(windows.op.axis[2])
    registers = cpu.vector_registers // 3 * lanes_of(cpu, windows.op.output(0).dtype) // block
    return dividing(min(width, MAX_COLUMNS, max(1, registers), max(1, MAX_ELEMENTS // taps)), width)
