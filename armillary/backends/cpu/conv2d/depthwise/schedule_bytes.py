"""Depthwise convolution of bytes (NCHW[c]c data, weights with four taps of a line together, or each alone).

In: a fused function whose anchor is cpu.depthwise_conv2d_NCHWc_int8. Out: for each band of rows of a block of
channels, a copy of its data with padding, which stays in L1; then for each tile of neighbouring columns the sums in
registers. Four columns of a block lie side by side: one load and one shuffle bring the four of each channel together,
one dot product multiplies them with their taps. Without such instructions the copy is int16, and products are added to
32 bits. Invariant: the same integers as tap by tap; nothing outside the copy is read. Floats: depthwise/schedule.py.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.conv2d.direct.operator_bytes import depthwise_compute, tap_counts
from armillary.backends.cpu.conv2d.direct.schedule import schedule_in_tiles
from armillary.backends.cpu.cost.vectors import dividing
from armillary.backends.cpu.loops import accumulators, fuse_all, static_extent
from armillary.backends.explanation import Explanation
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.ops.nn.conv import window
from armillary.target.cpu import CpuModel, cpu_model

COLUMNS = 8  # of a tile: the sums, the weights of a window and a few words fit any vector registers
MAX_LINES = 7  # of a window that are spelled out
COPIED = 16  # bytes that a turn of a copy's loop moves at least
SHARE = 0.5  # of L1 that a band's copy may take
MIN_BANDS = 4  # of an image, so that threads share it


def explain_depthwise_bytes(workload: Workload) -> Explanation:
    """The tile; nothing else was weighed."""
    columns, rows = _tile(workload, cpu_model(workload.target))
    how = "in 16 bits" if workload.tensor(1).static[4] == 1 else "by dot products of bytes"
    return Explanation(f"depthwise convolution {how}", f"{columns} columns, bands of {rows} rows")


def _tile(workload: Workload, cpu: CpuModel) -> tuple[int, int]:
    """Columns of a tile, and rows of a band."""
    data = workload.tensor(0)
    result = workload.result
    _, _, height, width, block = result.static
    win, (kh, kw) = window(workload.op.name, workload.attrs, 2), tap_counts(workload.attrs)
    line = (data.static[3] + sum(win.pads[1]) + kw) * block * (2 if workload.tensor(1).static[4] == 1 else 1)
    most = int(SHARE * cpu.l1) // line if cpu.l1 else 8
    rows = max(1, (most - (kh - 1) * win.dilation[0]) // win.strides[0])
    return dividing(min(COLUMNS, width), width), min(rows, -(-height // MIN_BANDS), height)


@implement(
    Candidate("cpu.depthwise_conv2d_NCHWc_int8", "depthwise_bytes", explain_rule=explain_depthwise_bytes),
    family="cpu",
    compute=depthwise_compute,
)
def depthwise_bytes(schedule: te.Schedule, fused: Fused) -> None:
    """Depthwise convolution of bytes, band by band."""
    (conv,) = fused.anchor
    schedule_in_tiles(schedule, fused, _tile_output, own=_copies(conv))


def _copies(conv: te.Tensor) -> list[te.Tensor]:
    """The padded copy that the sum reads."""
    return [t for t in conv.op.input_tensors if t.op.name == "data_pad"]


def _tile_output(
    schedule: te.Schedule, output: te.Tensor, accumulator: te.Tensor, cpu: CpuModel, workload: Workload
) -> te.IterVar:
    """Tile the output, put copy and sum inside; threads share bands. Gives the loop of a tile."""
    stage = schedule[output]
    batch, chunk, height, width, block = stage.op.axis
    columns, rows = _tile(workload, cpu)
    band, row = stage.split(height, factor=rows)
    width_outer, width_inner = stage.split(width, factor=columns)
    stage.reorder(batch, chunk, band, row, width_outer, width_inner, block)
    shared = fuse_all(stage, [batch, chunk, band])
    stage.parallel(shared)
    stage.vectorize(block)
    stage.unroll(width_inner)
    for copy in _copies(accumulator):
        padded = schedule[copy]
        padded.compute_at(stage, shared)
        padded.vectorize(padded.op.axis[-1])
        if static_extent(block) < COPIED:  # several columns a turn
            padded.unroll(padded.split(padded.op.axis[-2], factor=2 * COPIED // static_extent(block))[1])
    schedule[accumulator].compute_at(stage, width_outer)
    (inner,) = accumulators(schedule, accumulator)
    *outer, row_tile, width_tile, block_tile = inner.op.axis
    inner.reorder(*outer, row_tile, *inner.op.reduce_axis, width_tile, block_tile)
    inner.vectorize(block_tile)
    inner.unroll(width_tile)
    for axis in inner.op.reduce_axis:
        if static_extent(axis) <= MAX_LINES:
            inner.unroll(axis)
    return width_outer
