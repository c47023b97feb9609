"""Put a tensor intrinsic in the place of a stage's inner loops.

In: the plan of a stage and the position of its tensorized loop. Out: the intrinsic's statements over the stage's
buffers. Invariant: the loops replaced cover exactly the intrinsic's shapes, and both compute the same kind of
expression; otherwise a ScheduleError says what differs. Declaring intrinsics: `te/tensor_intrin.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from armillary.base.node import Node, children
from armillary.errors import ScheduleError
from armillary.te.affine import Linear, to_expr
from armillary.te.bounds import Plan
from armillary.te.stage import Stage
from armillary.te.tensor import Tensor
from armillary.te.tensor_intrin import TensorIntrin
from armillary.tir import build as T
from armillary.tir.expr import Expr, IntImm, ProducerLoad, Reduce, Var
from armillary.tir.stmt import Buffer, Stmt

if TYPE_CHECKING:
    from armillary.te.lower import Lowering

Place = tuple[Buffer, Callable[..., tuple[Expr, ...]]]


def tensorized(lowering: Lowering, plan: Plan, start: int, first_reduce: int) -> Stmt:
    """The statement for the loops from `start` inwards; with the reset in front when they hold the whole reduction."""
    stage = plan.stage
    intrinsic: TensorIntrin = stage.notes[stage.leaf[start]].intrinsic
    _check_same_kind(stage, intrinsic, plan)
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
        if read in lowering.relative:
            producer = lowering.plans[lowering.schedule.stage_map[read.op]]
            starts = [s.minus(producer.low[a]) for s, a in zip(starts, producer.stage.op.axis, strict=True)]
        buffer = lowering.buffer_of(read, stage)
        places[intrinsic.places[tensor]] = _place(stage, intrinsic, tensor, buffer, starts, [n for _, n in spans])
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

    def indices(given: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*base[:lead], *(T.add(b, g) for b, g in zip(base[lead:], given, strict=True)))

    return buffer, indices


def _check_same_kind(stage: Stage, intrinsic: TensorIntrin, plan: Plan) -> None:
    if _kinds(plan.bodies[0]) != _kinds(intrinsic.op.body[0]):
        _refuse(stage, intrinsic, "the stage computes another expression than the intrinsic")


def _kinds(body: Expr) -> list[object]:
    """The kinds of nodes of an expression, indices left out."""
    stack: list[Node] = [*body.source, *body.combiner.result] if isinstance(body, Reduce) else [body]
    found: list[object] = [isinstance(body, Reduce)]
    while stack:
        item = stack.pop()
        found.append(
            (
                type(item),
                getattr(item, "dtype", None),
                getattr(item, "name", None) if not isinstance(item, Var) else None,
            )
        )
        if isinstance(item, ProducerLoad):
            continue
        stack.extend(children(item))
    return found
