"""Matrix products on the CPU by a register tile; right-hand sides computed at run time are packed first.

In: a fused function anchored at nn.dense, nn.matmul, nn.batch_matmul or nn.contrib_dense_pack. Out: a schedule whose
innermost loops are full register tiles over a right-hand side in blocks of columns, contiguous for each row of it
(constant weights come so from alter-op-layout). Invariant: as for conv2d_blocked: the accumulators of a tile fit the
registers.
"""

from __future__ import annotations

import math
from typing import Any

from armillary import te
from armillary.relay.types import TensorType
from armillary.schedules.cpu.common import fuse_all, lanes_of, static_extent
from armillary.schedules.cpu.conv2d_blocked import choose_tile
from armillary.schedules.cpu.default import PACKED, schedule_injective, schedule_stage
from armillary.schedules.registry import Fused, Workload, implement
from armillary.target.cpu import cpu_model

MIN_TASKS = 8  # parts below which rows are shared out among threads too


PAGE, L1_WAYS = 4096, 8
MIN_ROWS = 4  # rows below which packing the right-hand side costs more than it gives


def _is_transposed(attrs: Any, side: str) -> bool:
    """Whether an operand is stored with its last two axes swapped; nn.dense always has (units, inner)."""
    return bool(getattr(attrs, f"transpose_{side}", side == "b"))


def _can_pack(workload: Workload) -> str | None:
    """Enough rows to pay for packing, and whole blocks of columns."""
    data, other = workload.types
    if not isinstance(data, TensorType) or not isinstance(other, TensorType) or data.dtype != "float32":
        return "only float32 is packed"
    rows = data.static[-1 if _is_transposed(workload.attrs, "a") and data.ndim > 1 else -2] if data.ndim > 1 else 1
    columns = other.static[-2 if _is_transposed(workload.attrs, "b") else -1]
    if columns % 8:
        return f"{columns} columns are no multiple of 8"
    return None if rows >= MIN_ROWS else f"{rows} rows are too few to pay for packing"


def packed_product(attrs: Any, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The product over a copy of the right-hand side in blocks of 16 (or 8) columns."""
    shape_a, shape_b = te.static_shape(a), te.static_shape(b)
    swap_a, swap_b = _is_transposed(attrs, "a") and hasattr(attrs, "transpose_a"), _is_transposed(attrs, "b")
    rows, inner = (shape_a[-1], shape_a[-2]) if swap_a else (shape_a[-2], shape_a[-1])
    columns = shape_b[-2] if swap_b else shape_b[-1]
    block = 16 if columns % 16 == 0 else 8
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]

    def element_b(*index: Any) -> Any:
        *batch, chunk, k, lane = index
        column = chunk * block + lane
        return b(*batch, column, k) if swap_b else b(*batch, k, column)

    packed = te.compute((*batch_b, columns // block, inner, block), element_b, name="packed", tag=PACKED)
    k = te.reduce_axis((0, inner), name="k")

    def element(*index: Any) -> Any:
        *batch, i, j = index
        at_a = [0 if size == 1 else x for size, x in zip(batch_a, batch, strict=False)]
        at_b = [0 if size == 1 else x for size, x in zip(batch_b, batch, strict=False)]
        lhs = a(*at_a, k, i) if swap_a else a(*at_a, i, k)
        return te.sum(lhs * packed(*at_b, j // block, k, j % block), axis=k)

    batch = tuple(max(x, y) for x, y in zip(batch_a, batch_b or (1,) * len(batch_a), strict=True))
    product: te.Tensor = te.compute((*batch, rows, columns), element, name="product", tag="packed_product")
    return product


def _block(workload: Workload) -> int:
    """Columns stored side by side in the packed right-hand side."""
    weight = workload.types[1]
    if not isinstance(weight, TensorType):
        return 1 << 30
    if workload.op.name == "nn.contrib_dense_pack":
        return weight.static[-1]
    columns = weight.static[-2 if _is_transposed(workload.attrs, "b") else -1]
    return 16 if columns % 16 == 0 else 8


def _row_limit(product: te.Tensor) -> int:
    """Rows a tile may read at once: rows whose distance is a multiple of a page share one set of the L1 cache."""
    inner = math.prod(static_extent(axis) for axis in product.op.reduce_axis)
    return L1_WAYS if inner * product.dtype.bytes % PAGE == 0 else 1 << 30


@implement("nn.contrib_dense_pack", family="cpu", name="packed_tile")
@implement("nn.dense", family="cpu", name="packing_dense", when=_can_pack, compute=packed_product)
@implement("nn.matmul", family="cpu", name="packing_matmul", when=_can_pack, compute=packed_product)
@implement("nn.batch_matmul", family="cpu", name="packing_batch_matmul", when=_can_pack, compute=packed_product)
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
    tile = choose_tile(min(rows, _row_limit(product)), next(v for v in wide if vectors % v == 0), cpu.vector_registers)
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
