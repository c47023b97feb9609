"""What CPU schedules share: lanes, extents, fusing axes, and which expressions are dear to recompute.

In: axes, stages and bodies of te. Out: numbers and answers. Invariant: nothing here depends on an operator.
Users: the schedules of this directory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from armillary import te
from armillary.backends.cpu.cost.vectors import LONG_SUM, MIN_BAND, longest_part
from armillary.backends.registry import Fused
from armillary.base.node import Node, post_order
from armillary.target.cpu import CpuModel
from armillary.tir import build as T
from armillary.tir import stmt as S
from armillary.tir.expr import And, BufferLoad, Call, Div, Expr, IterVar, ProducerLoad, Select

UNKNOWN_EXTENT = 1 << 30
PLAIN_SUM = 432  # terms of a sum over a plain image that stays whole
WEIGHT_AXES = 6  # of the blocked weights of convolutions
MOST_CACHES = 2  # the locality of a request that leaves the first cache alone
BANDS = (4, 2)  # into which the rows of an image may be divided
CACHE_LINE = 16  # float32 of one cache line
Stages = dict[str, te.Tensor]  # by tag
_CHEAP_CALLS = frozenset(
    {
        "if_then_else",
        "likely",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "shift_left",
        "shift_right",
        "fabs",
        "abs",
    }
)


def is_power_of_two(extent: int) -> bool:
    """Whether an axis of this extent is one short vector."""
    return extent > 1 and extent & (extent - 1) == 0


def static_extent(axis: IterVar) -> int:
    """The extent of an axis; 1 << 30 for one of a named size, or of a loop that was split off one."""
    extent = None if axis.dom is None else T.as_int(axis.dom.extent)
    return UNKNOWN_EXTENT if extent is None else extent


def is_ragged(axis: IterVar, lanes: int) -> bool:
    """Whether the last vector of an axis may not be full."""
    extent = static_extent(axis)
    return extent % lanes != 0 or extent == UNKNOWN_EXTENT


def fuse_all(stage: te.Stage, axes: Sequence[IterVar]) -> IterVar:
    """The (adjacent) axes fused into one."""
    return axes[0] if len(axes) == 1 else stage.fuse(*axes)


def in_bands(stage: te.Stage, chunk: IterVar, row: IterVar) -> list[IterVar]:
    """Loops over channel blocks and rows, from the outside: rows in bands, so that threads share images by rows.

    A thread then has bands for all channels, and the next layer reads on the core that wrote.
    Divided by channels, half of what a 1x1 convolution reads lies in the other core's cache. One thread is as fast
    either way.
    """
    extent = static_extent(row)
    if extent == UNKNOWN_EXTENT:
        return [chunk, row]
    bands = next((n for n in BANDS if -extent % n <= 1 and extent >= n * MIN_BAND), 1)  # the last may lack a row
    if bands == 1:
        return [chunk, row]
    band, inside = stage.split(row, nparts=bands)
    return [band, chunk, inside]


def lane_axes(cpu: CpuModel) -> tuple[str, ...]:
    """The loops over the channels of a block, where those are lanes of one register that products take as they are."""
    return ("ic_inner",) if cpu.multiplies_lanes else ()


def is_expensive(body: Node) -> bool:
    """Whether computing it twice costs more than storing it once."""
    return any(isinstance(n, Div) or (isinstance(n, Call) and n.name not in _CHEAP_CALLS) for n in post_order(body))


def tests_of(item: Node) -> list[Expr]:
    """What a choice between two values asks, and by and by."""
    result: list[Expr] = []
    todo: list[Expr] = []
    if isinstance(item, Select):
        todo = [item.condition]
    elif isinstance(item, Call) and item.name == "if_then_else":
        todo = [item.args[0]]
    while todo:
        test = todo.pop()
        if isinstance(test, And):
            todo += [test.a, test.b]
        else:
            result.append(test)
    return result


def element_of(buffer: S.Buffer, *indices: te.ExprLike) -> Expr:
    """An element of a buffer, in the loops of an intrinsic."""
    return BufferLoad(buffer, tuple(T.convert(i) for i in indices))


def effect_of(name: str, *args: te.ExprLike) -> S.Stmt:
    """A call for its effect, there."""
    return S.Evaluate(T.call(name, *args, dtype="int32"))


def followers(schedule: te.Schedule, first: te.Tensor, outputs: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Those of `outputs` that depend on `first`: where it lives in registers at a tile, they must be computed too."""
    reached = {id(first.op)}
    for stage in schedule.stages:  # producers come first
        if isinstance(stage.op, te.ComputeOp):
            reads = (n.producer.op for b in stage.op.body for n in post_order(b) if isinstance(n, ProducerLoad))
            if any(id(op) in reached for op in reads):
                reached.add(id(stage.op))
    return [t for t in outputs if id(t.op) in reached and t.op is not first.op]


def keeps_shape(fused: Fused) -> bool:
    """Whether a function has one output, with an element for each of its anchor's: computed where that is."""
    return len(fused.outputs) == 1 and te.extents(fused.outputs[0]) == te.extents(fused.anchor[0])


def stored_or_fused(
    schedule: te.Schedule, fused: Fused, outputs: Sequence[te.Tensor]
) -> tuple[te.Tensor, list[te.Tensor]]:
    """The tensor whose loops compute the anchor, and those to be scheduled: `outputs`, or with the anchor.

    It is the output, or the anchor, stored first, if what reads it has another shape.
    """
    if keeps_shape(fused):
        return fused.outputs[0], list(outputs)
    (anchor,) = fused.anchor
    schedule[anchor].compute_root()
    return anchor, [s.op.output(0) for s in schedule.stages if any(s.op is t.op for t in (anchor, *outputs))]


def accumulator_of(schedule: te.Schedule, product: te.Tensor, output: te.Tensor) -> te.Tensor:
    """The sum in registers: of its own, where nothing follows it and it is what is written."""
    if output.op is not product.op:
        schedule[product].set_scope("local")
        return product
    result: te.Tensor = schedule.cache_write(product, "local")
    return result


def compute_in_tile(schedule: te.Schedule, tensors: Sequence[te.Tensor], stage: te.Stage, at: IterVar) -> None:
    """Compute elementwise stages at a loop of their reader, in registers, the last axis as a vector if it is one."""
    for tensor in tensors:
        inner = schedule[tensor]
        inner.set_scope("local")
        inner.compute_at(stage, at)
        if is_power_of_two(static_extent(inner.op.axis[-1])):
            inner.vectorize(inner.op.axis[-1])


def tagged_stages(last: te.Tensor, family: str) -> Stages:
    """The stages of a computation in several, by their tags without `family`; the last one under its whole tag."""
    result: Stages = {}
    todo = [last]
    while todo:
        op = todo.pop().op
        if isinstance(op, te.ComputeOp) and op.tag.startswith((f"{family}_", f"conv2d_{family}")):
            result[op.tag.removeprefix(f"{family}_")] = op.output(0)
            todo.extend(op.input_tensors)
    return result


def inline_others(schedule: te.Schedule, fused: Fused, own: Iterable[te.Tensor]) -> None:
    """Inline all but the outputs and the stages of the anchor's computation, of which the last is inlined too."""
    retained, outputs = {id(t.op) for t in own}, {id(t.op) for t in fused.outputs}
    last = fused.anchor[0].op
    for stage in schedule.stages:
        op = stage.op
        if isinstance(op, te.ComputeOp) and id(op) not in outputs and (id(op) not in retained or op is last):
            schedule[op].compute_inline()


def accumulators(schedule: te.Schedule, local: te.Tensor, longest: int = LONG_SUM) -> list[te.Stage]:
    """Split a sum into partial sums of at most `longest` terms, computed inside the sum of the partial sums.

    The rounding error of a plain sum of n terms grows with n, of blocks of b terms with b + n / b (Higham, The accuracy
    of floating point summation, 1993); adding a tile of partial sums costs nothing measurable from 32 terms on. Gives
    the stages to tile, outermost first: only the sum itself where it is short or nothing near `longest` divides it.
    Parts of one channel of a plain image would leave no loop inside the taps of a row: LLVM then keeps what columns
    read again in registers it does not have.
    """
    stage = schedule[local]
    if not local.dtype.is_float:
        return [stage]  # exact in any order
    first, *others = (static_extent(axis) for axis in stage.op.reduce_axis)
    step = longest_part(first, math.prod(others), longest)
    if not step:
        return [stage]
    if step == 1 and others[-1:] == [1] and first * math.prod(others) <= PLAIN_SUM:
        return [stage]
    outer, _ = stage.split(stage.op.reduce_axis[0], factor=step)
    partial = schedule.rfactor(local, outer)
    schedule[partial].set_scope("local")
    schedule[partial].compute_at(stage, stage.op.reduce_axis[0])
    return [stage, schedule[partial]]


def prefetch_weights(inside: te.Stage, steps: int, shared: Sequence[te.Sharer] = ()) -> None:
    """In a sum of products, ask for the weights `steps` later: those of the next group of outputs.

    The weight is the last tensor of the product, with the axes of the sum innermost but for one vector of outputs, so
    that one group follows another in memory. Behind the last group nothing is read: to ask is no access. They go to the
    second-level cache: a group is as large as the first one, and would drive out what is in use.
    The tiles that use the same weights share the asking: asked for by each, a line costs as many instructions as it
    has readers, and what is gained is lost.
    """
    weight = inside.op.input_tensors[-1]
    if not isinstance(weight.op, te.PlaceholderOp) or len(weight.shape) != WEIGHT_AXES:
        return
    *_, outer, inner = inside.op.reduce_axis
    if shared:
        inside.prefetch(weight, outer, steps // static_extent(inner), locality=MOST_CACHES, shared=shared)
    else:
        inside.prefetch(weight, inner, steps, locality=MOST_CACHES)
