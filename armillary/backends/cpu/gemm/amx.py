"""Products of bytes or bfloat16 by matrix tiles (AMX): sixteen rows times sixteen columns, 64 bytes of terms at a time.

In: a fused function anchored at nn.contrib_dense_pack with weights in words, (units/16, k/4, 16, 4) of bytes or
(units/16, k/2, 16, 2) of bfloat16, or at nn.dense or nn.batch_matmul of such, whose right-hand side is packed so at run
time. Out: a schedule that computes panels of rows (amx_panels.py: which, and their loops) into a scratch buffer, from
which what follows the product is computed while they are in the first cache. Groups of columns are outside: their
weights stay near for all rows. Invariant: tiles are whole; rows that do not fill them, or do not lie one after another,
are copied first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from armillary import te
from armillary.backends.cpu.conv2d.amx.cost import DEPTH
from armillary.backends.cpu.cost.model import weight_bandwidth
from armillary.backends.cpu.elementwise.default import PACKED, schedule_injective, schedule_stage
from armillary.backends.cpu.gemm.amx_panel_cost import COLUMNS, Panel
from armillary.backends.cpu.gemm.amx_panels import Operands, emit_panel, rows_together
from armillary.backends.cpu.gemm.pack import pack_blocks
from armillary.backends.cpu.gemm.space import is_transposed
from armillary.backends.cpu.gemm.space_amx import is_packed, panel_of, sizes_of
from armillary.backends.cpu.loops import fuse_all, static_extent, stored_or_fused
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.base.dtype import DType
from armillary.ops._dot_operands import BYTES, dot_operands, join
from armillary.ops.nn.dense import BatchMatmulAttrs, DenseAttrs
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.tir import build as T
from armillary.tir import stmt as S

MIN_TASKS = 8  # groups of columns below which threads share rows, too
TAG = "tiled_product"


def _product(data: te.Tensor, weight: te.Tensor, batch: int | None = None) -> te.Tensor:
    """Sums over words, columns as (sixteens, one of them). The weight has words, or their numbers in a last axis."""
    *_, rows, _ = te.static_shape(data)
    has_words, width = DType(weight.dtype).bits == 32, _terms_per_operand(data)
    chunks, words, lanes = te.static_shape(weight)[-3:] if has_words else te.static_shape(weight)[:3]
    one_left, one_right = (te.static_shape(x)[0] == 1 for x in (data, weight))
    k = te.reduce_axis((0, words), name="k")

    def element(*index: te.Expr) -> te.ExprLike:
        *at, i, chunk, lane = index
        lead = (0,) * (len(data.shape) - 2) if batch is None else (0 if one_left else at[0],)
        left = join([data(*lead, i, k * width + part) for part in range(width)])
        where: Sequence[te.Index] = at if batch is None or not one_right else [0]
        right = weight(*where, chunk, k, lane) if has_words else join([weight(chunk, k, lane, n) for n in range(width)])
        return te.sum(dot_operands(left, right, width), axis=k)

    shape = (rows, chunks, lanes) if batch is None else (batch, rows, chunks, lanes)
    result: te.Tensor = te.compute(shape, element, name="tiles", tag=TAG)
    return result


def _terms_per_operand(data: te.Tensor) -> int:
    """How many numbers of an operand one word has."""
    return BYTES // DType(data.dtype).bytes


def _compute(attrs: object, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The product of whole blocks of rows with a packed weight, and what of it is asked for."""
    *batch, _ = te.static_shape(data)
    chunks = te.static_shape(weight)[0]
    return _in_columns(_product(_whole_rows(attrs, data, batch, chunks), weight), batch, chunks * COLUMNS)


def _compute_packing(attrs: DenseAttrs | BatchMatmulAttrs, data: te.Tensor, other: te.Tensor) -> te.Tensor:
    """The same with a right-hand side that is packed first, zeros beyond its columns and terms."""
    *batch, terms = te.static_shape(data)
    swapped = is_transposed(attrs, "b")
    columns = te.static_shape(other)[-2 if swapped else -1]
    width, whole = _terms_per_operand(data), _whole_terms(data)
    chunks, words = -(-columns // COLUMNS), whole // width

    def word(*index: te.Expr) -> te.Expr:
        *at, chunk, k, lane = index
        result: te.Expr = join([number(at, k * width + n, chunk * COLUMNS + lane) for n in range(width)])
        return result

    def number(at: list[te.Expr], k: te.Expr, column: te.Expr) -> te.Expr:
        value = other(*at, column, k) if swapped else other(*at, k, column)
        for test in [column < columns] * (columns % COLUMNS > 0) + [k < terms] * (terms < whole):
            value = te.if_then_else(te.likely(test), value, te.const(0, value.dtype))
        return value

    lead = te.static_shape(other)[:-2]
    packed = te.compute((*lead, chunks, words, COLUMNS), word, name="packed", tag=PACKED)
    if not lead:
        return _in_columns(_product(_whole_rows(attrs, data, batch, chunks), packed), batch, columns)
    count, rows = max(lead[0], batch[0]), _whole_rows(attrs, data, batch[1:], chunks, batch[0])
    return _in_columns(_product(rows, packed, count), batch[1:], columns, count)


def _in_columns(product: te.Tensor, batch: list[int], columns: int, count: int | None = None) -> te.Tensor:
    def element(*index: te.Expr) -> te.Expr:
        *at, j = index
        lead = () if count is None else (at.pop(0),)
        return product(*lead, _flat(at, batch), j // COLUMNS, j % COLUMNS)

    shape = (*batch, columns) if count is None else (count, *batch, columns)
    retained: te.Tensor = te.compute(shape, element, name="kept", tag="injective")
    return retained


def _flat(at: list[te.Expr], batch: list[int]) -> te.Expr:
    total = at[0]
    for index, extent in zip(at[1:], batch[1:], strict=True):
        total = total * extent + index
    return total


def _whole_rows(attrs: object, data: te.Tensor, batch: list[int], chunks: int, count: int | None = None) -> te.Tensor:
    """All rows one after another, in whole blocks, their terms in whole tiles: the data itself, or a copy.

    Behind the last row it is repeated, which nobody reads; behind the last term there are zeros.
    """
    rows, depth, terms = math.prod(batch), te.static_shape(data)[-1], _whole_terms(data)
    steps = terms * DType(data.dtype).bytes // DEPTH
    panel = panel_of(attrs, rows, chunks, steps, cpu_model(Target.current() or Target("llvm")))
    whole = -(-rows // panel.whole) * panel.whole
    if whole == rows == batch[-1] and terms == depth and isinstance(data.op, te.PlaceholderOp):
        return data

    def element(*index: te.Expr) -> te.Expr:
        *lead, i, k = index
        row = i if whole == rows else te.min(i, T.const(rows - 1, "int32"))
        at = []
        for extent in reversed(batch[1:]):
            at.append(row % extent)
            row = row // extent
        value = data(*lead, row, *reversed(at), k)
        return value if terms == depth else te.if_then_else(te.likely(k < depth), value, te.const(0, value.dtype))

    shape = (whole, terms) if count is None else (count, whole, terms)
    copied: te.Tensor = te.compute(shape, element, name="rows", tag=PACKED)
    return copied


def _whole_terms(data: te.Tensor) -> int:
    """The terms of its rows, to a multiple of a tile's."""
    deep = DEPTH // DType(data.dtype).bytes
    return -(-te.static_shape(data)[-1] // deep) * deep


def _intrinsic(panel: Panel, product: te.Tensor, is_prefetched: bool) -> te.TensorIntrin:
    """The sums of one panel."""
    data, weight = product.op.input_tensors
    terms, columns = te.static_shape(data)[-1], panel.columns
    has_words = DType(weight.dtype).bits == 32
    words = te.static_shape(weight)[-2 if has_words else 1]
    left = te.placeholder((panel.whole, terms), data.dtype, "left")
    width = _terms_per_operand(data)
    shape = (columns, words, COLUMNS) if has_words else (columns, words, COLUMNS, width)
    right = te.placeholder(shape, weight.dtype, "right")
    sums = _product(left, right)
    signs = tuple(int(x.dtype.startswith("int")) for x in (data, weight)) if width == BYTES else ()

    steps = terms * DType(data.dtype).bytes // DEPTH

    def emit(inputs: list[S.Buffer], outputs: list[S.Buffer]) -> S.Stmt:
        return emit_panel(panel, Operands(steps, width, signs, is_prefetched, *inputs, *outputs))

    return te.decl_tensor_intrin(sums.op, emit, f"tiles of {panel}")


@implement("packed_tiles", family="cpu", compute=_compute)
@implement("packing_tiles_dense", "packing_tiles", family="cpu", compute=_compute_packing)
def in_panels(schedule: te.Schedule, fused: Fused) -> None:
    """Panels of tiles, and behind each what follows the product, by vectors."""
    cpu = cpu_model(fused.workload.target)
    retained = schedule_injective(schedule, fused)
    product = next(t for t in retained if t.op.tag == TAG)
    output, retained = stored_or_fused(schedule, fused, retained)
    for tensor in retained:
        if tensor.op.tag == PACKED and tensor.op.name == "packed":
            pack_blocks(schedule, tensor, COLUMNS)
        elif tensor.op is not output.op and tensor.op is not product.op:
            schedule_stage(schedule, tensor, cpu)
    _share_out(schedule, product, schedule[output], fused.workload, cpu)


def _share_out(schedule: te.Schedule, product: te.Tensor, stage: te.Stage, workload: Workload, cpu: CpuModel) -> None:
    """Panels of rows inside groups of columns, these inside the rows that stay in L2; threads share the outer loops."""
    count, _, steps = sizes_of(workload)
    panel, axis = panel_of(workload.attrs, *sizes_of(workload), cpu), len(product.op.axis) - 3
    *outer, column = stage.op.axis
    lead, rows = outer[:axis], outer[axis:]
    groups, inner = stage.split(column, factor=panel.columns * COLUMNS)
    sub, lane = stage.split(inner, factor=COLUMNS)
    panels, row = stage.split(fuse_all(stage, rows), factor=panel.whole)
    together = rows_together(count, steps, panel, cpu)
    many = []
    if together < -(-count // panel.whole):
        far, panels = stage.split(panels, factor=together)
        many.append(far)
    stage.reorder(*lead, *many, groups, panels, row, sub, lane)
    stage.vectorize(lane)
    stage.unroll(sub)
    tasks = [*lead, *many, groups]
    is_enough = math.prod(map(static_extent, tasks)) >= MIN_TASKS
    at = fuse_all(stage, tasks if is_enough else [*tasks, panels])
    stage.parallel(at)
    schedule[product].compute_at(stage, panels if is_enough else at)
    is_prefetched = is_packed(workload) and weight_bandwidth(cpu) < cpu.memory.l2
    schedule[product].tensorize(schedule[product].op.axis[axis], _intrinsic(panel, product, is_prefetched))
