"""Put a tensor intrinsic in the place of a stage's inner loops.

In: the plan of a stage and the position of its tensorized loop. Out: the intrinsic's statements over the stage's
buffers. Invariant: the loops replaced cover exactly the intrinsic's shapes, and both compute the same expression of the
same elements; otherwise a ScheduleError says what differs. Declaring intrinsics: `te/tensor_intrin.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from armillary.base.node import Node, children
from armillary.errors import ScheduleError
from armillary.te.affine import ZERO, Linear, to_expr
from armillary.te.bounds import Plan
from armillary.te.stage import Stage
from armillary.te.tensor import Tensor
from armillary.te.tensor_intrin import TensorIntrin
from armillary.tir import build as T
from armillary.tir.expr import Expr, IntImm, IterVar, ProducerLoad, Reduce, Var
from armillary.tir.stmt import Buffer, Stmt

if TYPE_CHECKING:
    from armillary.te.lower import Lowering

Place = tuple[Buffer, Callable[..., tuple[Expr, ...]]]


def tensorized(lowering: Lowering, plan: Plan, start: int, first_reduce: int) -> Stmt:
    """The statement for the loops from `start` inwards; with the reset in front when they hold the whole reduction."""
    stage = plan.stage
    intrinsic: TensorIntrin = stage.notes[stage.leaf[start]].intrinsic
    inner = frozenset(v for a in stage.leaf[start:] if (v := plan.loop_var(a)) is not None)
    for value, _ in plan.guards:
        if value.vars & inner:
            _refuse(stage, intrinsic, "the loops it replaces have a remainder", "split by factors that divide")
    place = _places(lowering, plan, intrinsic, inner)
    outside = first_reduce < start
    if outside:
        return intrinsic.emit("update", place)
    return intrinsic.emit("body", place)


def reset(lowering: Lowering, plan: Plan, start: int) -> Stmt:
    """The statement that stores the identity for the loops from `start` inwards."""
    stage = plan.stage
    intrinsic: TensorIntrin = stage.notes[stage.leaf[start]].intrinsic
    inner = frozenset(v for a in stage.leaf[start:] if (v := plan.loop_var(a)) is not None)
    return intrinsic.emit("reset", _places(lowering, plan, intrinsic, inner))


def _refuse(stage: Stage, intrinsic: TensorIntrin, reason: str, hint: str = "") -> NoReturn:
    raise ScheduleError(f"tensorize on stage {stage.key} with {intrinsic.name}: {reason}", hint=hint)


def _places(lowering: Lowering, plan: Plan, intrinsic: TensorIntrin, inner: frozenset[Var]) -> dict[Buffer, Place]:
    stage, space = plan.stage, lowering.space
    known = {a.var: plan.low[a].plus(plan.values[a]) for a in (*stage.op.axis, *stage.op.reduce_axis)}
    places: dict[Buffer, Place] = {}
    begins: dict[Tensor, tuple[Tensor, list[Linear]]] = {}
    loads: dict[Tensor, list[ProducerLoad]] = {}
    for load in plan.loads:
        loads.setdefault(load.producer, []).append(load)
    wanted = intrinsic.op.input_tensors
    if len(loads) != len(wanted):
        _refuse(stage, intrinsic, f"the stage reads {len(loads)} tensors, the intrinsic {len(wanted)}")
    for tensor, (read, group) in zip(wanted, loads.items(), strict=True):
        spans = []
        for places_of in zip(*(load.indices for load in group), strict=True):
            parts = [_span(lowering, stage, intrinsic, space.evaluate(i, known), inner) for i in places_of]
            spans.append(
                _bounding_span(parts) or _refuse(stage, intrinsic, f"it reads {read.name} at unrelated places")
            )
        starts = [low for low, _ in spans]
        begins[tensor] = read, starts
        if read in lowering.relative:
            producer = lowering.plans[lowering.schedule.stage_map[read.op]]
            starts = [s.minus(producer.low[a]) for s, a in zip(starts, producer.stage.op.axis, strict=True)]
        buffer = lowering.buffer_of(read, stage)
        places[intrinsic.places[tensor]] = _place(stage, intrinsic, tensor, buffer, starts, [n for _, n in spans])
    _check_same(lowering, plan, intrinsic, inner, begins)
    for tensor, own in zip(intrinsic.op.outputs, stage.op.outputs, strict=True):
        values = [
            plan.values[a] if own in lowering.relative else plan.low[a].plus(plan.values[a]) for a in stage.op.axis
        ]
        spans = [_span(lowering, stage, intrinsic, v, inner) for v in values]
        buffer = lowering.buffers[own]
        places[intrinsic.places[tensor]] = _place(
            stage, intrinsic, tensor, buffer, [low for low, _ in spans], [n for _, n in spans]
        )
    return places


def _bounding_span(spans: list[tuple[Linear, int]]) -> tuple[Linear, int] | None:
    """What holds several spans, as first place and extent; None where the distance of two is no number."""
    first = spans[0][0]
    shifts = [low.minus(first).value for low, _ in spans]
    known = [s for s in shifts if s is not None]
    if len(known) < len(spans):
        return None
    ends = [shift + extent for shift, (_, extent) in zip(known, spans, strict=True)]
    return first.shifted(min(known)), max(ends) - min(known)


def _span(
    lowering: Lowering, stage: Stage, intrinsic: TensorIntrin, value: Linear | None, inner: frozenset[Var]
) -> tuple[Linear, int]:
    span = None if value is None else lowering.space.interval(value, inner)
    extent = None if span is None else span[1].minus(span[0]).value
    if span is None or extent is None:
        _refuse(stage, intrinsic, "the region that it would cover cannot be told")
    return span[0], extent + 1


def _place(
    stage: Stage, intrinsic: TensorIntrin, tensor: Tensor, buffer: Buffer, starts: list[Linear], extents: list[int]
) -> Place:
    shape = [e.value if isinstance(e, IntImm) else None for e in tensor.shape]
    lead = len(extents) - len(shape)
    if lead < 0 or extents[lead:] != shape or any(n != 1 for n in extents[:lead]):
        _refuse(
            stage,
            intrinsic,
            f"the loops cover {extents} of {buffer.name}, the intrinsic wants {shape}",
            "split so that the inner loops have the intrinsic's extents",
        )
    if tensor.dtype != buffer.dtype:
        _refuse(stage, intrinsic, f"{buffer.name} has {buffer.dtype}, the intrinsic wants {tensor.dtype}")
    base = [to_expr(s, e.dtype) for s, e in zip(starts, buffer.shape, strict=True)]

    def indices(positions: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*base[:lead], *(T.add(b, g) for b, g in zip(base[lead:], positions, strict=True)))

    return buffer, indices


class _Match:
    """Whether the body of a stage is that of an intrinsic, whose input starts at `starts` and whose axes are `inside`.

    Expressions are held against each other node by node, numbers included; indices by their normal forms, in which
    each axis of the intrinsic is how far the stage's axis is from where the region begins.
    """

    def __init__(self, lowering: Lowering, plan: Plan, starts: dict[Tensor, tuple[Tensor, list[Linear]]]) -> None:
        self.lowering, self.starts = lowering, starts
        stage = plan.stage
        self.known = {a.var: plan.low[a].plus(plan.values[a]) for a in (*stage.op.axis, *stage.op.reduce_axis)}
        self.inside: dict[Var, Linear] = {}
        self.same: dict[Var, Var] = {}  # the names of a combiner

    def holds(self, have: Node, want: Node) -> bool:
        """Whether the stage's expression is the intrinsic's."""
        pairs: list[tuple[Node, Node]] = [(have, want)]
        while pairs:
            one, other = pairs.pop()
            if isinstance(one, Reduce) and isinstance(other, Reduce):
                self.same |= dict(
                    zip((*one.combiner.lhs, *one.combiner.rhs), (*other.combiner.lhs, *other.combiner.rhs))
                )
                pairs += zip(one.combiner.result, other.combiner.result)
                pairs += [*zip(one.source, other.source), (one.condition, other.condition)]
            elif isinstance(one, ProducerLoad) and isinstance(other, ProducerLoad):
                if not self._reads_the_same(one, other):
                    return False
            elif isinstance(one, Var) and isinstance(other, Var):
                if self.same.get(one, one) is not other and not self._counts_the_same(one, other):
                    return False
            else:
                below, wanted = children(one), children(other)
                if type(one) is not type(other) or len(below) != len(wanted) or _own_fields(one) != _own_fields(other):
                    return False
                pairs += zip(below, wanted)
        return True

    def _reads_the_same(self, one: ProducerLoad, other: ProducerLoad) -> bool:
        producer, starts = self.starts.get(other.producer, (None, []))
        lead = len(one.indices) - len(other.indices)
        if producer is not one.producer or lead < 0:
            return False
        for place, start, wanted in zip(one.indices[lead:], starts[lead:], other.indices, strict=True):
            here = self.lowering.space.evaluate(place, self.known)
            there = self.lowering.space.evaluate(wanted, self.inside)
            if here is None or there is None or here.minus(start).key != there.key:
                return False
        return True

    def _counts_the_same(self, one: Var, other: Var) -> bool:
        """Whether an axis whose value is used, not as an index, begins at 0."""
        here, there = self.known.get(one), self.inside.get(other)
        return here is not None and there is not None and here.key == there.key


def _own_fields(item: Node) -> object:
    """What an expression says beside the expressions in it."""
    return tuple(getattr(item, name, None) for name in ("dtype", "name", "value") if not _is_node(item, name))


def _is_node(item: Node, name: str) -> bool:
    return isinstance(getattr(item, name, None), Node)


def _check_same(
    lowering: Lowering,
    plan: Plan,
    intrinsic: TensorIntrin,
    inner: frozenset[Var],
    starts: dict[Tensor, tuple[Tensor, list[Linear]]],
) -> None:
    """Refuse a stage that computes something else than the intrinsic, or the same of other elements."""
    stage, own, match = plan.stage, intrinsic.op, _Match(lowering, plan, starts)
    data = _moving(lowering, match.known, stage.op.axis, inner)
    reduced = _moving(lowering, match.known, stage.op.reduce_axis, inner)
    axes = [a for a in own.axis if T.as_int(_extent(a)) != 1]
    folded = [a for a in own.reduce_axis if T.as_int(_extent(a)) != 1]
    if len(data) == len(axes) and len(reduced) == len(folded):
        for order in itertools.permutations(reduced):
            zeros = {a.var: ZERO for a in (*own.axis, *own.reduce_axis)}
            match.inside = zeros | {a.var: v for a, v in zip((*axes, *folded), (*data, *order), strict=True)}
            if all(match.holds(have, want) for have, want in zip(plan.bodies, own.body)):
                return
    _refuse(stage, intrinsic, "the stage computes another expression than the intrinsic, or reads other elements")


def _moving(
    lowering: Lowering, known: dict[Var, Linear], axes: tuple[IterVar, ...], inner: frozenset[Var]
) -> list[Linear]:
    """How far each axis that the replaced loops move is from its first value there."""
    result = []
    for axis in axes:
        value = known[axis.var]
        ends = lowering.space.interval(value, inner)
        moved = value if ends is None else value.minus(ends[0])
        if moved.key != ZERO.key:
            result.append(moved)
    return result


def _extent(axis: IterVar) -> Expr:
    assert axis.dom is not None, "axes of a compute have a range"
    return axis.dom.extent
