"""Direct convolution on blocked layouts (NCHW[v]c data, OIHW[i]i[o]o weights), with a register tile.

In: a fused function whose anchor is nn.contrib_conv2d_NCHWc (tag "conv2d_NCHWc") or its depthwise form. Out: for each
tile of the output - `rows` neighbouring columns times `vectors` blocks of output channels - one loop nest over the
reduction whose accumulators all stay in registers; the elementwise consumers run on the tile before it is stored.
Invariant: rows * vectors + vectors + 1 <= vector registers. The tile is chosen by `choose_tile`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary import te
from armillary.ops.nn_conv import result_dtype, window
from armillary.ops.nn_conv_blocked import output_shape
from armillary.schedules.cpu.common import fuse_all, lanes_of, static_extent
from armillary.schedules.cpu.default import schedule_injective, schedule_stage
from armillary.schedules.registry import Fused, implement
from armillary.target.cpu import CpuModel, cpu_model

FMA_CHAINS = 8  # latency 4 x 2 ports: fewer independent accumulators leave the FMA units idle


@dataclass(frozen=True)
class Tile:
    """`rows` output columns and `vectors` output-channel blocks held in registers together."""

    rows: int
    vectors: int


def choose_tile(width: int, chunks: int, registers: int) -> Tile:
    """The tile with the least estimated cycles per useful multiply-add for a row of `width` output columns.

    Per reduction step a tile issues rows * vectors FMAs (two per cycle) and rows + vectors loads (two per cycle); it
    cannot go faster than the FMA latency allows with rows * vectors chains. Columns computed past the end are waste.
    """
    best, best_cost = Tile(1, 1), float("inf")
    for vectors in (v for v in (1, 2, 3, 4, 5, 6, 8) if chunks % v == 0):
        for rows in range(1, min(width, registers) + 1):
            if rows * vectors + vectors + 1 > registers:
                break
            tiles = -(-width // rows)
            fma = max(rows * vectors, FMA_CHAINS) / 2
            loads = (rows + vectors) / 2
            cycles = max(fma, loads) + 0.05 * loads + 0.5
            cost = tiles * cycles / (width * vectors)
            if cost < best_cost - 1e-9:
                best, best_cost = Tile(rows, vectors), cost
    return best


def _inside(position: Any, size: Any, pads: tuple[int, int]) -> Any:
    """The condition that a tap of the window lies on the data."""
    before, after = pads
    tests = ([position >= before] if before else []) + ([position < size + before] if after else [])
    return te.all(*tests)


def direct_compute(attrs: Any, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The convolution without a padded copy: taps outside the data are left out of the sum."""
    win, dtype = window("nn.contrib_conv2d_NCHWc", attrs, 2), result_dtype(attrs, data)
    o_blocks, i_blocks, kh, kw, ci, _ = te.static_shape(weight)
    extents = {"ic_outer": i_blocks, "kh": kh, "kw": kw, "ic_inner": ci}
    axes = [te.reduce_axis((0, n), name=name) for name, n in extents.items()]
    places: list[Any] = [axis.var for axis in axes]  # Any: the operators of variables are installed by tir.build
    ico, ry, rx, ici = places
    (sy, sx), (dy, dx) = win.strides, win.dilation
    (top, _), (left, _) = win.pads

    def element(n: Any, ob: Any, y: Any, x: Any, oi: Any) -> Any:
        block = ico if attrs.groups == 1 else ob // (o_blocks // attrs.groups) * i_blocks + ico
        row, column = y * sy + ry * dy, x * sx + rx * dx
        lhs = data(n, block, row - top, column - left, ici).astype(dtype)
        # `likely` asks loop partition to peel the border tiles of a row; the test of rows stays outside the inner loops
        on_row, on_column = (_inside(at, data.shape[2 + a], win.pads[a]) for a, at in enumerate((row, column)))
        inside = te.all(on_row, te.likely(on_column))
        return te.sum(lhs * weight(ob, ico, ry, rx, ici, oi).astype(dtype), axis=axes, where=inside)

    made: te.Tensor = te.compute(output_shape(attrs, data, weight), element, name="conv2d", tag="conv2d_NCHWc")
    return made


@implement("nn.contrib_conv2d_NCHWc", family="cpu", name="direct_blocked", compute=direct_compute)
def direct_blocked(schedule: te.Schedule, fused: Fused) -> None:
    """Register-tiled direct convolution."""
    cpu = cpu_model(fused.workload.target)
    _schedule(schedule, fused, cpu, depthwise=False)


@implement("nn.contrib_depthwise_conv2d_NCHWc", family="cpu", name="depthwise_blocked")
def depthwise_blocked(schedule: te.Schedule, fused: Fused) -> None:
    """Depthwise convolution: one output-channel block per tile, as many columns as registers allow."""
    cpu = cpu_model(fused.workload.target)
    _schedule(schedule, fused, cpu, depthwise=True)


def _schedule(schedule: te.Schedule, fused: Fused, cpu: CpuModel, *, depthwise: bool) -> None:
    (conv,) = fused.anchor
    kept = schedule_injective(schedule, fused)
    output = fused.outputs[0]
    if len(fused.outputs) != 1 or len(output.op.axis) != len(conv.op.axis):
        for tensor in kept:
            schedule_stage(schedule, tensor, cpu)
        return
    for tensor in kept:
        if tensor.op is not conv.op and tensor.op is not output.op:
            schedule_stage(schedule, tensor, cpu)
    accumulator = conv
    if output.op is conv.op:
        accumulator = schedule.cache_write(conv, "local")
        output = fused.outputs[0]
    else:
        schedule[conv].set_scope("local")
    _tile_output(schedule, output, accumulator, cpu, depthwise)


def _tile_output(
    schedule: te.Schedule, output: te.Tensor, accumulator: te.Tensor, cpu: CpuModel, depthwise: bool
) -> None:
    stage = schedule[output]
    batch, chunk, height, width, block = stage.op.axis
    chunks, columns = static_extent(chunk), static_extent(width)
    wide = max(1, static_extent(block) // lanes_of(cpu, output.dtype))  # registers one block takes
    tile = choose_tile(columns, 1 if depthwise else chunks, max(4, cpu.vector_registers // wide))
    chunk_outer, chunk_inner = stage.split(chunk, factor=tile.vectors)
    width_outer, width_inner = stage.split(width, factor=tile.rows)
    stage.reorder(batch, chunk_outer, height, width_outer, chunk_inner, width_inner, block)
    stage.vectorize(block)
    stage.unroll(width_inner)
    stage.unroll(chunk_inner)
    stage.parallel(fuse_all(stage, [batch, chunk_outer, height]))
    schedule[accumulator].compute_at(stage, width_outer)
    inside = schedule[accumulator]
    _, chunk_tile, row_tile, width_tile, block_tile = inside.op.axis
    reduce_axes = list(inside.op.reduce_axis)
    if len(reduce_axes) == 4 and static_extent(reduce_axes[3]) == 1:  # plain layout: a loop over channels ends each tap
        reduce_axes = [*reduce_axes[1:3], reduce_axes[0], reduce_axes[3]]
    # columns outside channel blocks: one broadcast at a time is live beside the accumulators
    inside.reorder(row_tile, *reduce_axes, width_tile, chunk_tile, block_tile)
    inside.vectorize(block_tile)
    inside.unroll(width_tile)
    inside.unroll(chunk_tile)
    for axis in reduce_axes:
        if depthwise or axis.var.name == "kw":
            inside.unroll(axis)
