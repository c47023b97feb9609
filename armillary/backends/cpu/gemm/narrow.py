"""Products with few columns: the terms of a sum lie along the lanes, and the lanes are added up at the end.

In: a fused function anchored at nn.dense, nn.matmul or nn.batch_matmul with fewer columns than a vector has lanes. Out:
one parallel loop over tiles of rows; a tile of rows x columns sums is in registers, a vector of terms each, and reads
both sides by whole vectors. A right-hand side that lies by rows is turned first. Long sums are sums of parts, each of
PART vectors, so that what a sum has lost does not grow with all its terms. Invariant: rows of the left side are
contiguous; the order of a sum is free (reduce.py).
Which products are computed so, and by what tile: backends/cpu/cost/narrow.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary import te
from armillary.backends.cpu.cost.narrow import narrow_tile
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import PACKED, schedule_injective, schedule_stage
from armillary.backends.cpu.gemm.space import row_axis
from armillary.backends.cpu.gemm.space_narrow import sizes_of
from armillary.backends.cpu.loops import followers, fuse_all, stored_or_fused
from armillary.backends.registry import Fused, implement
from armillary.target import Target
from armillary.target.cpu import cpu_model

LANE_STAGES = ("narrow_sums", "narrow_tail", "narrow_joined", "narrow_last", "narrow_ended", "lane_halves")  # of a tile
PART = 128  # vectors of terms


def _compute(attrs: object, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """A vector of partial sums for each element, its halves added up until two are left, and the product of these."""
    *batch_a, rows, terms = te.static_shape(a)
    batch_b, lies_well = te.static_shape(b)[:-2], getattr(attrs, "transpose_b", True)  # nn.dense: (units, inner)
    columns, right = te.static_shape(b)[-2 if lies_well else -1], b
    batch = tuple(max(x, y) for x, y in zip(batch_a, batch_b or (1,) * len(batch_a), strict=True))
    lanes = lanes_of(cpu_model(Target.current() or Target("llvm")), a.dtype)
    if not lies_well:
        right = _transposed(b, terms, lanes)
    whole, rest = divmod(terms, lanes)

    def left(at: Sequence[te.Expr], i: te.Expr, k: te.Expr) -> te.Expr:
        return a(*(0 if size == 1 else x for size, x in zip(batch_a, at, strict=False)), i, k)

    def across(at: Sequence[te.Expr], j: te.Expr, k: te.Expr) -> te.Expr:
        return right(*(0 if size == 1 else x for size, x in zip(batch_b, at, strict=False)), j, k)

    def term(index: Sequence[te.Expr], k: te.Expr) -> te.Expr:
        *at, i, j = index
        return left(at, i, k) * across(at, j, k)

    def last(side: Callable[..., te.Expr], *index: te.Expr) -> te.ExprLike:
        *at, line, lane = index
        return te.if_then_else(te.likely(lane < rest), side(at, line, whole * lanes + lane), 0.0)

    sums = _sums((*batch, rows, columns, lanes), whole, term)
    if rest:  # a vector of what is left over, zeros behind it
        main = sums
        lhs = te.compute((*batch, rows, lanes), lambda *i: last(left, *i), name="narrow_last", tag=PACKED)
        shape = (*batch, columns, lanes)
        rhs = te.compute(shape, lambda *i: last(across, *i), name="narrow_last", tag=PACKED) if lies_well else None

        def ended(*index: te.Expr) -> te.Expr:
            *at, i, j, lane = index
            other = across(at, j, whole * lanes + lane) if rhs is None else rhs(*at, j, lane)
            result: te.Expr = lhs(*at, i, lane) * other + main(*index)
            return result

        sums = te.compute((*batch, rows, columns, lanes), ended, name="narrow_ended", tag=PACKED)
    pairs = halved_to_two(sums)
    product: te.Tensor = te.compute((*batch, rows, columns), lambda *i: pairs(*i, 0) + pairs(*i, 1), name="product")
    return product


def _sums(shape: tuple[int, ...], whole: int, term: Callable[[Sequence[te.Expr], te.Expr], te.Expr]) -> te.Tensor:
    """Sums of `whole` vectors of terms, those of many as sums of parts; the last axis has the lanes."""
    lanes = shape[-1]

    def run(name: str, begin: int, steps: int) -> te.Tensor:
        step = te.reduce_axis((0, steps), name="step")
        result: te.Tensor = te.compute(
            shape, lambda *i: te.sum(term(i[:-1], (step + begin) * lanes + i[-1]), axis=step), name=name
        )
        return result

    count, tail = divmod(whole, PART)
    if count < 2:
        return run("narrow_sums", 0, whole)
    step, part = te.reduce_axis((0, PART), name="step"), te.reduce_axis((0, count), name="part")

    def partial(*index: te.Expr) -> te.Expr:
        *at, number, lane = index
        return te.sum(term(at, (number * PART + step) * lanes + lane), axis=step)

    parts = te.compute((*shape[:-1], count, lanes), partial, name="narrow_parts")
    sums: te.Tensor = te.compute(shape, lambda *i: te.sum(parts(*i[:-1], part, i[-1]), axis=part), name="narrow_sums")
    if not tail:
        return sums
    others = run("narrow_tail", count * PART, tail)
    joined: te.Tensor = te.compute(shape, lambda *i: sums(*i) + others(*i), name="narrow_joined", tag=PACKED)
    return joined


def _transposed(b: te.Tensor, terms: int, lanes: int) -> te.Tensor:
    """A right-hand side that lies by rows, by columns, each of whole vectors with zeros behind its end."""
    *batch, _, columns = te.static_shape(b)

    def element(*index: te.Expr) -> te.Expr:
        *at, j, k = index
        value = b(*at, k, j)
        return te.if_then_else(te.likely(k < terms), value, 0.0) if terms % lanes else value

    result: te.Tensor = te.compute((*batch, columns, -(-terms // lanes) * lanes), element, name="turned", tag=PACKED)
    return result


def halved_to_two(sums: te.Tensor) -> te.Tensor:
    """Vectors along the last axis, their halves added up until two elements are left."""
    lanes = te.static_shape(sums)[-1]
    while lanes > 2:
        lanes //= 2
        sums = _halved(sums, lanes)
    return sums


def _halved(sums: te.Tensor, lanes: int) -> te.Tensor:
    """The upper half of each vector added to the lower one."""

    def pair(*index: te.Expr) -> te.Expr:
        *at, lane = index
        return sums(*index) + sums(*at, lane + lanes)

    result: te.Tensor = te.compute((*te.static_shape(sums)[:-1], lanes), pair, name="lane_halves", tag=PACKED)
    return result


@implement("narrow_dense", "narrow_matmul", "narrow_batch_matmul", family="cpu", compute=_compute)
def narrow_columns(schedule: te.Schedule, fused: Fused) -> None:
    """Tiles of sums, their terms in lanes."""
    cpu = cpu_model(fused.workload.target)
    (product,) = fused.anchor
    output, retained = stored_or_fused(schedule, fused, schedule_injective(schedule, fused))
    own = {id(t.op) for t in retained if t.op.name in LANE_STAGES}
    sums = next(t for t in retained if t.op.name == "narrow_sums")
    after = [] if output.op is product.op else followers(schedule, sums, retained)
    inside = [t for t in retained if id(t.op) in own or (t in after and t.op is not output.op)]
    parts = [t for t in retained if t.op.name == "narrow_parts"]
    for tensor in retained:
        if tensor.op is not output.op and tensor not in (*inside, *parts):
            schedule_stage(schedule, tensor, cpu)
    stage, at_row = schedule[output], row_axis(fused.workload)
    tile = narrow_tile(*sizes_of(fused.workload), cpu)
    *outer, column = stage.op.axis
    row = outer.pop(at_row + 1)
    rows, row = stage.split(row, factor=tile.rows)
    columns, column = stage.split(column, factor=tile.columns)
    stage.reorder(*outer, rows, columns, row, column)
    stage.unroll(row)
    stage.unroll(column)
    stage.parallel(fuse_all(stage, [*outer, rows]))
    for tensor in inside:
        _in_registers(schedule[tensor], has_lanes=id(tensor.op) in own)
        schedule[tensor].compute_at(stage, columns)
    for tensor in parts:
        _in_registers(schedule[tensor], has_lanes=True)
        (part,) = sums.op.reduce_axis
        schedule[tensor].compute_at(schedule[sums], part)


def _in_registers(stage: te.Stage, has_lanes: bool) -> None:
    """A stage of a tile, spelled out: inside the steps of its sum columns, then rows, a vector each."""
    stage.set_scope("local")
    *rows, column = stage.op.axis[:-1] if has_lanes else stage.op.axis
    stage.reorder(*stage.op.reduce_axis, column, *rows, *stage.op.axis[len(rows) + 1 :])
    for axis in (column, *rows):
        stage.unroll(axis)
    if has_lanes:
        stage.vectorize(stage.op.axis[-1])
