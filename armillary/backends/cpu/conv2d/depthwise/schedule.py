"""Depthwise convolution on blocked layouts (NCHW[v]c data, OIHW1i[o]o weights), with a register tile.

In: a fused function whose anchor is nn.contrib_depthwise_conv2d_NCHWc. Out: for each tile of the output - `rows`
neighbouring columns times `vectors` blocks of channels - the sum over the window in registers, consumers on the tile.
The sums of a tile slide along a line of the data: each tap of a line of the window reads one new column; or they go
result by result, with the weights of a line held (cost.py: `goes_by_column`). A line of the window is spelled out; its
lines are where the code stays small (MAX_SPELLED), else they are a loop. Taps on the padding are left out: lines by a
test, columns when the code is made.
Invariant: sums, the columns that later taps read and the weights fit the registers (conv2d/depthwise/cost.py).
"""

from __future__ import annotations

import math

from armillary import te
from armillary.backends.cpu.conv2d.depthwise.cost import (
    DepthwiseNest,
    choose_depthwise,
    goes_by_column,
)
from armillary.backends.cpu.conv2d.depthwise.space import DEPTHWISE, depthwise_nest
from armillary.backends.cpu.conv2d.direct.schedule import lies_inside, schedule_in_tiles
from armillary.backends.cpu.conv2d.direct.space import IMAGE, has_wide_border, is_banded
from armillary.backends.cpu.cost.model import Tile
from armillary.backends.cpu.cost.vectors import LONG_SUM
from armillary.backends.cpu.loops import accumulators, fuse_all, in_bands, static_extent
from armillary.backends.cpu.space import chosen, tile_of
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.ops.nn.conv import Conv2DAttrs, result_dtype, window
from armillary.ops.nn.conv_blocked import output_shape
from armillary.target.cpu import CpuModel
from armillary.tir import build as T

MAX_SPELLED = 1536  # products of the different tiles of a line; of more the decoded instructions do not stay at hand
MAX_TILES = 12  # of a line that are spelled out where many reach into the padding


def depthwise_compute(attrs: Conv2DAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The depthwise convolution without a padded copy: taps outside the data are left out of the sum."""
    win, dtype = window("nn.contrib_depthwise_conv2d_NCHWc", attrs, 2), result_dtype(attrs, data)
    (_, blocks, _, _, ci) = map(T.as_int, data.shape)
    assert blocks is not None and ci is not None, "only batch and image have named sizes"
    o_blocks, _, kh, kw, _, co = te.static_shape(weight)
    multiplier = o_blocks * co // (blocks * ci)
    axes = [te.reduce_axis((0, n), name=name) for name, n in (("kh", kh), ("kw", kw))]
    places = [axis.var for axis in axes]  # the operators of variables are installed by tir.build
    ry, rx = places
    (sy, sx), (dy, dx) = win.strides, win.dilation
    (top, _), (left, _) = win.pads

    def element(n: te.Expr, ob: te.Expr, y: te.Expr, x: te.Expr, oi: te.Expr) -> te.Expr:
        block, lane = ob, oi
        if multiplier > 1 or ci != co:
            channel = (ob * co + oi) // multiplier
            block, lane = channel // ci, channel % ci
        row, column = y * sy + ry * dy, x * sx + rx * dx
        lhs = data(n, block, row - top, column - left, lane).astype(dtype)
        on_row, on_column = (lies_inside(at, data.shape[2 + a], win.pads[a]) for a, at in enumerate((row, column)))
        weighted = lhs * weight(ob, 0, ry, rx, 0, oi).astype(dtype)
        return te.sum(weighted, axis=axes, where=te.all(on_row, te.likely(on_column)))

    shape, tag = output_shape(attrs, data, weight), "depthwise_conv2d_NCHWc"
    result: te.Tensor = te.compute(shape, element, name=tag, tag=tag)
    return result


@implement("depthwise_blocked", family="cpu", compute=depthwise_compute)
def depthwise_blocked(schedule: te.Schedule, fused: Fused) -> None:
    """Depthwise convolution by register tiles."""
    schedule_in_tiles(schedule, fused, _tile_output)


def _tile_output(
    schedule: te.Schedule, output: te.Tensor, accumulator: te.Tensor, cpu: CpuModel, workload: Workload
) -> te.IterVar:
    """Tile the output, put the sum inside; threads share lines. Gives the loop of a tile."""
    return tile_depthwise(schedule, output, accumulator, cpu, workload, is_shared=True)


def tile_depthwise(
    schedule: te.Schedule,
    output: te.Tensor,
    accumulator: te.Tensor,
    cpu: CpuModel,
    workload: Workload,
    *,
    is_shared: bool,
) -> te.IterVar:
    """Tile the output, put the sum inside; gives the loop of a tile. `is_shared`: threads share its lines."""
    stage = schedule[output]
    batch, chunk, height, width, block = stage.op.axis
    nest = depthwise_nest(workload, cpu)
    tile = tile_of(chosen(workload, DEPTHWISE)) if is_shared else choose_depthwise(nest, cpu)
    tiles = -(-static_extent(width) // tile.rows)
    chunk_outer, chunk_inner = stage.split(chunk, factor=tile.vectors)
    width_outer, width_inner = stage.split(width, factor=tile.rows)
    lines = in_bands(stage, chunk_outer, height) if is_shared and is_banded(workload) else [chunk_outer, height]
    stage.reorder(batch, *lines, width_outer, chunk_inner, width_inner, block)
    if is_shared:
        stage.parallel(fuse_all(stage, [batch, *lines]))
    stage.vectorize(block)
    stage.unroll(width_inner)
    stage.unroll(chunk_inner)
    is_open = bool(
        workload.named & IMAGE
    )  # a loop inside a tile then, so that its versions by what is left test nothing
    is_spelled = not is_open and tiles <= MAX_TILES and has_wide_border(workload, tile.rows)
    if is_spelled:
        stage.unroll(width_outer)
    schedule[accumulator].compute_at(stage, width_outer)
    spells_lines = not is_open and _products(nest, tile, tiles, is_spelled=is_spelled) <= MAX_SPELLED
    for inner in accumulators(schedule, accumulator, _longest(workload)):
        _schedule_sum(inner, spells_lines=spells_lines, by_column=goes_by_column(nest, cpu))
    return width_outer


def _longest(workload: Workload) -> int:
    """Taps of a window after which a partial sum is put aside: so many that LONG_SUM of them can lie on the data."""
    size, kernel = (t.static[2:4] for t in workload.types[:2])  # type: ignore[attr-defined]
    most = [min(taps, extent) for taps, extent in zip(kernel, size, strict=True)]
    return LONG_SUM * int(math.prod(kernel)) // int(math.prod(most))


def _products(nest: DepthwiseNest, tile: Tile, tiles: int, *, is_spelled: bool) -> float:
    """Products in the code of a line's tiles, if the lines of the window are spelled out too."""
    different = tiles if is_spelled else min(tiles, 3)
    return nest.kernel[0] * nest.met[1] * nest.wide * tile.rows * tile.vectors * different


def _schedule_sum(inner: te.Stage, *, spells_lines: bool, by_column: bool) -> None:
    """One tile: lines of the window outside, then its columns - `by_column`: the results' -, all registers unrolled."""
    *blocks, _, chunk_tile, row_tile, width_tile, block_tile = inner.op.axis
    line, column = inner.op.reduce_axis
    inside = (width_tile, column) if by_column else (column, width_tile)
    inner.reorder(*blocks, row_tile, line, *inside, chunk_tile, block_tile)
    inner.vectorize(block_tile)
    for axis in (width_tile, chunk_tile, *([line] if spells_lines else []), column):
        inner.unroll(axis)
