"""Matrix products on the CPU: packed dense, and plain dense and batched products by a register tile.

In: a fused function anchored at nn.dense, nn.matmul, nn.batch_matmul or nn.contrib_dense_pack. Out: a schedule whose
innermost loops are full register tiles. Invariant: as for conv2d_blocked: the accumulators of a tile fit the registers.
"""

from __future__ import annotations

import math

from armillary import te
from armillary.relay.types import TensorType
from armillary.schedules.cpu.common import fuse_all, lanes_of, static_extent
from armillary.schedules.cpu.conv2d_blocked import choose_tile
from armillary.schedules.cpu.default import schedule_injective, schedule_stage
from armillary.schedules.registry import Fused, Workload, implement
from armillary.target.cpu import cpu_model

MIN_TASKS = 8  # parts below which rows are shared out among threads too


def _columns_are_contiguous(workload: Workload) -> str | None:
    """The right-hand side must be stored with its columns contiguous for vector loads."""
    transposed = getattr(workload.attrs, "transpose_b", False)
    return "the right-hand side is transposed" if transposed else None


def _block(workload: Workload) -> int:
    """Columns stored side by side: the block of a packed weight, else all."""
    weight = workload.types[1]
    if workload.op.name == "nn.contrib_dense_pack" and isinstance(weight, TensorType):
        return weight.static[-1]
    return 1 << 30


@implement("nn.contrib_dense_pack", family="cpu", name="packed_tile")
@implement("nn.matmul", family="cpu", name="matmul_tile", when=_columns_are_contiguous)
@implement("nn.batch_matmul", family="cpu", name="batch_matmul_tile", when=_columns_are_contiguous)
def matmul_tile(schedule: te.Schedule, fused: Fused) -> None:
    """Rows x vectors register tile; the reduction is the loop around it."""
    cpu = cpu_model(fused.workload.target)
    (product,) = fused.anchor
    kept = schedule_injective(schedule, fused)
    output = fused.outputs[0]
    plain = len(fused.outputs) == 1 and len(output.op.axis) == len(product.op.axis) >= 2
    for tensor in kept:
        if not plain or (tensor.op is not product.op and tensor.op is not output.op):
            schedule_stage(schedule, tensor, cpu)
    if not plain:
        return
    accumulator = product
    if output.op is product.op:
        accumulator = schedule.cache_write(product, "local")
    else:
        schedule[product].set_scope("local")
    stage = schedule[output]
    *outer, row, column = stage.op.axis
    lanes = min(lanes_of(cpu, output.dtype), _block(fused.workload))
    columns, rows = static_extent(column), static_extent(row)
    vectors = max(1, columns // lanes)
    wide = (8, 6, 5, 4, 3, 2, 1) if rows == 1 else (4, 3, 2, 1)  # one row needs many vectors to hide the FMA latency
    tile = choose_tile(rows, next(v for v in wide if vectors % v == 0), cpu.vector_registers)
    row_outer, row_inner = stage.split(row, factor=tile.rows)
    column_outer, column_inner = stage.split(column, factor=min(columns, tile.vectors * lanes))
    column_sub, vector = stage.split(column_inner, factor=min(columns, lanes))
    stage.reorder(*outer, column_outer, row_outer, row_inner, column_sub, vector)
    stage.vectorize(vector)
    stage.unroll(row_inner)
    stage.unroll(column_sub)
    tasks = math.prod(static_extent(axis) for axis in outer) * -(-columns // (tile.vectors * lanes))
    if tasks >= MIN_TASKS:  # a serial loop over rows can be split where the last tile is not full; a fused one cannot
        stage.parallel(fuse_all(stage, [*outer, column_outer]))
        at = row_outer
    else:
        at = fuse_all(stage, [*outer, column_outer, row_outer])
        stage.parallel(at)
    schedule[accumulator].compute_at(stage, at)
    inside = schedule[accumulator]
    *_, inner_row, inner_column = inside.op.axis
    sub, lane = inside.split(inner_column, factor=min(columns, lanes))
    inside.reorder(*inside.op.reduce_axis, inner_row, sub, lane)
    inside.vectorize(lane)
    inside.unroll(inner_row)
    inside.unroll(sub)
