"""Products by the written kernel: nn.dense, nn.matmul, nn.batch_matmul, and nn.conv2d of one group.

In: the stages of a fused function anchored at a product. Out: its loops, one kernel with what is computed before and
after each element; where what follows moves elements (a transposition, say), the product goes to memory and the rest is
scheduled as by default. Invariant: few rows have a kernel of their own (few_rows.py), which reads weights once. Rows
of a convolution are its channels, its columns pixels, its terms channels and taps: nothing is laid out for it (no
im2col).
"""

from __future__ import annotations

from armillary import te
from armillary.backends.opencl.extents import shape_of
from armillary.backends.opencl.gemm.contraction import Contraction, contraction_of
from armillary.backends.opencl.gemm.convolution import load_of
from armillary.backends.opencl.gemm.few_rows import MOST_ROWS, few_rows
from armillary.backends.opencl.gemm.kernel import ProductKernel
from armillary.backends.opencl.gemm.tile import MOST_SUMS, SHARED_BYTES, SUMS_ADRENO, Size, choose_tile, objection
from armillary.backends.opencl.graph.apply_records import has_textures
from armillary.backends.opencl.schedules.rows import schedule_any
from armillary.backends.opencl.space import MIN_ROWS, PRODUCT, tiling_of
from armillary.backends.opencl.tiles import Tile
from armillary.backends.opencl.written.elements import Elements, Index, computed_between, is_in_place
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.base.extent import typical
from armillary.errors import ConfigError
from armillary.target.choice import stored_choice
from armillary.tir import expr as E
from armillary.tir import stmt as S


@implement("product", "conv2d_product", "low_bit_product", family="opencl")
def product(schedule: te.Schedule, fused: Fused) -> te.Schedule | S.PrimFunc | None:
    """A product with what is computed around it."""
    anchor, output = _summed(fused.anchor[0]), fused.outputs[0]
    work = contraction_of(anchor.op)
    loops: S.Stmt | None = None
    if work is not None and len(fused.outputs) == 1 and _is_one_kernel(anchor, output):
        elements = Elements(fused)

        def emit(indices: Index, total: E.Expr) -> S.Stmt:
            elements.held[anchor] = lambda _: total
            elements.forget()
            return elements.store(output, indices, elements.at(output, indices))

        is_packed = fused.workload.op.name in PACKED
        bits = fused.workload.attrs.bits if is_packed else 0
        if typical(work.sizes[1]) < (MOST_ROWS + 1 if is_packed else MIN_ROWS):
            has_images = has_textures(fused.workload.target) and fused.workload.op.name not in IN_BUFFERS
            loops = None if has_images else few_rows(elements, anchor, work, emit, bits)
        elif not is_packed:
            loops = ProductKernel(elements, anchor, work, tile_of(fused.workload, work)).loops(emit)
        if loops is not None:
            return elements.function(loops)
    return schedule_any(schedule, fused)


def _summed(anchor: te.Tensor) -> te.Tensor:
    """The stage that sums: a product of halves is summed in float, and its result stored as halves."""
    op = anchor.op
    is_narrowed = isinstance(op, te.ComputeOp) and isinstance(op.body[0], E.Cast) and len(op.input_tensors) == 1
    return op.input_tensors[0] if is_narrowed else anchor


def _is_one_kernel(product: te.Tensor, result: te.Tensor) -> bool:
    """Whether all that is around the product is computed element by element, what follows in its own place."""
    source, output = product.op, result.op
    assert isinstance(source, te.ComputeOp), "a contraction is computed"
    before = [t for t in source.input_tensors if not isinstance(t.op, te.PlaceholderOp)]
    if (
        computed_between(before, frozenset()) is None
        or computed_between([output.output(0)], frozenset([source])) is None
    ):
        return False
    return is_in_place(output, source, shape_of(source.output(0)))


def tile_of(workload: Workload, work: Contraction) -> Tile:
    """The tile that the call's choice names, which has to fit, else the model's."""
    choice = stored_choice(workload)
    stored = tiling_of(choice) if choice.algorithm == PRODUCT.name else None
    workload = workload.typical
    shared = max(workload.target.max_shared_memory_per_block, SHARED_BYTES)
    if stored is None:
        load = 1 if workload.op.name != "nn.conv2d" else load_of(workload.attrs, workload.tensor(1))
        batches, rows, columns, terms = map(typical, work.sizes)
        sums = SUMS_ADRENO if has_textures(workload.target) else MOST_SUMS
        return choose_tile(Size(batches, rows, columns, terms, load), shared, sums)
    reason = objection(stored.tile, shared)
    if reason:
        hint = "leave the choice to the model, or tune this call"
        raise ConfigError(f"{workload.op.name}: the choice {choice.algorithm} does not fit: {reason}", hint=hint)
    return stored.tile


PACKED = ("nn.low_bit_dense",)  # products whose weights become numbers where they are read
IN_BUFFERS = (*PACKED, "nn.narrow_dense")  # products whose weights are never images
