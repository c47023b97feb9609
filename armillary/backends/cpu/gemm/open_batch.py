"""Products of two computed matrices over named sizes: register tiles whose rows, columns or sum are of open length.

In: a fused function anchored at nn.batch_matmul in float32, over tensors with named sizes. Out: blocks of columns of
the right-hand side (packed, or as they lie where whole vectors fill its rows), and for each register tiles of rows:
full ones without conditions, and a last one with a version for each count of rows. Invariant: the sum has no condition
on columns, as what is packed ends in whole vectors; only the last block's stores have one.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import PACKED, schedule_injective, schedule_stage
from armillary.backends.cpu.elementwise.register_transpose import transpose_tiles
from armillary.backends.cpu.loops import compute_in_tile, followers, fuse_all, keeps_shape, static_extent
from armillary.backends.registry import Fused, implement
from armillary.base.extent import Known
from armillary.ops.nn.dense import BatchMatmulAttrs
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.tir.extents import to_expr

MAX_ROWS, ROWS_IN_BLOCK = 8, 64  # of a tile; of what a thread takes at a time


def _vectors(columns: Known, lanes: int, cpu: CpuModel) -> int:
    """Vectors of a tile: as many as divide the columns, of open columns two."""
    widest = 4 if cpu.vector_registers > 16 else 2
    if not isinstance(columns, int):
        return 2
    return next((n for n in range(widest, 1, -1) if columns % (n * lanes) == 0), 1)


def _rows(vectors: int, cpu: CpuModel) -> int:
    sums = 24 if cpu.vector_registers > 16 else 10
    return min(MAX_ROWS, sums // vectors)


def _product(attrs: BatchMatmulAttrs, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The product by blocks of columns, over a packed right-hand side or one whose rows are whole vectors."""
    cpu = cpu_model(Target.current() or Target("llvm"))
    lanes = lanes_of(cpu, a.dtype)
    (batch_a, *left), (batch_b, *right) = te.extents(a), te.extents(b)
    rows, inner = left[::-1] if attrs.transpose_a else left
    columns = right[0] if attrs.transpose_b else right[1]
    batch = batch_b if batch_a == 1 else batch_a
    blocks = (columns + lanes - 1) // lanes
    lies_well = not attrs.transpose_b and isinstance(columns, int) and columns % lanes == 0

    def element_b(n: te.Expr, block: te.Expr, k: te.Expr, lane: te.Expr) -> te.Expr:
        at = block * lanes + lane
        if attrs.transpose_b:  # columns behind the last are copies of it: rows of the operand are read as vectors
            return b(n, te.min(at, to_expr(columns - 1)), k)
        return te.if_then_else(te.likely(at < to_expr(columns)), b(n, k, at), 0.0)

    packed_shape = [to_expr(d) for d in (batch_b, blocks, inner, lanes)]
    packed = te.compute(packed_shape, element_b, name="packed", tag=PACKED)
    k = te.reduce_axis((0, to_expr(inner)), name="k")

    def element(n: te.Expr, block: te.Expr, i: te.Expr, lane: te.Expr) -> te.Expr:
        at_a, at_b = 0 if batch_a == 1 else n, 0 if batch_b == 1 else n
        lhs = a(at_a, k, i) if attrs.transpose_a else a(at_a, i, k)
        rhs = b(at_b, k, block * lanes + lane) if lies_well else packed(at_b, block, k, lane)
        return te.sum(lhs * rhs, axis=k)

    shape = [to_expr(d) for d in (batch, blocks, rows, lanes)]
    product = te.compute(shape, element, name="product", tag="packed_product")
    result: te.Tensor = te.compute(
        [to_expr(d) for d in (batch, rows, columns)],
        lambda n, i, j: product(n, j // lanes, i, j % lanes),
        name="columns",
        tag="injective",
    )
    return result


@implement("open_batch_matmul", family="cpu", compute=_product)
def open_batch(schedule: te.Schedule, fused: Fused) -> None:
    """Threads share the batch and blocks of rows; a block of columns meets all tiles of these rows."""
    cpu = cpu_model(fused.workload.target)
    (anchor,) = fused.anchor
    (product,) = anchor.op.input_tensors
    retained = schedule_injective(schedule, fused)
    output = fused.outputs[0] if keeps_shape(fused) else anchor
    after = (
        [t for t in followers(schedule, product, retained) if t.op is not output.op]
        if output.op is not anchor.op
        else []
    )
    for tensor in retained:
        if tensor.op is not product.op and tensor.op is not output.op and tensor not in after:
            if tensor.op.tag == PACKED and tensor.op.name == "packed":
                _pack(schedule, tensor, fused.workload.attrs.transpose_b, cpu)
            else:
                schedule_stage(schedule, tensor, cpu)
    if output.op is anchor.op:
        schedule[anchor].compute_root()
    lanes = static_extent(product.op.axis[-1])
    vectors = _vectors(te.extents(anchor)[-1], lanes, cpu)
    rows = _rows(vectors, cpu)
    stage = schedule[output]
    *outer, row, column = stage.op.axis
    share, row = stage.split(row, factor=ROWS_IN_BLOCK // rows * rows)
    tile, row = stage.split(row, factor=rows)
    block, column = stage.split(column, factor=vectors * lanes)
    sub, vector = stage.split(column, factor=lanes)
    stage.reorder(*outer, share, block, tile, row, sub, vector)
    stage.vectorize(vector)
    stage.unroll(row)
    stage.unroll(sub)
    stage.parallel(fuse_all(stage, [*outer, share]))
    compute_in_tile(schedule, after, stage, tile)
    inside = schedule[product]
    inside.set_scope("local")
    inside.compute_at(stage, tile)
    batch, sub, row, vector = inside.op.axis
    inside.reorder(batch, *inside.op.reduce_axis, row, sub, vector)
    inside.vectorize(vector)
    inside.unroll(row)
    inside.unroll(sub)


def _pack(schedule: te.Schedule, tensor: te.Tensor, is_turned: bool, cpu: CpuModel) -> None:
    """Threads share the batch and the blocks; what lies the other way round is transposed in registers."""
    stage, lanes = schedule[tensor], lanes_of(cpu, tensor.dtype)
    batch, block, step, lane = stage.op.axis
    if is_turned and static_extent(step) % lanes == 0:
        transpose_tiles(schedule, tensor, 2, lanes, lanes)
    else:
        stage.vectorize(lane)
    stage.parallel(fuse_all(stage, [batch, block]))
