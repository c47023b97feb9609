"""Bodies with inlined producers put in: what a stage with loops really computes.

In: a stage of a schedule. Out: its bodies over the tensors of other stages with loops, and which elements of them it
reads. Invariant: sharing is kept - an element of an inlined tensor that is read twice at the same indices is one node -
so chains of inlined stages stay linear in size. Users: `te/bounds.py`, `te/lower.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from armillary.te.operation import ComputeOp, parts
from armillary.te.stage import Stage
from armillary.te.tensor import Tensor
from armillary.tir import expr as E
from armillary.tir.expr import Expr, ProducerLoad, Reduce, Var
from armillary.tir.substitute import REBUILD

if TYPE_CHECKING:
    from armillary.te.schedule import Schedule

LoadRule = Callable[[Tensor, tuple[Expr, ...]], Expr]
_CONSTANTS = (E.IntImm, E.FloatImm, E.StringImm)


def rewriter(
    variables: Mapping[Var, Expr],
    load: LoadRule | None = None,
    place: Callable[[ProducerLoad], Expr] | None = None,
) -> Callable[[Expr], Expr]:
    """A memoised substitution of variables and of tensor elements.

    `load` sees a tensor and indices already substituted; `place` sees the element as it was.
    """
    memo: dict[Expr, Expr] = {}

    def apply(item: Expr) -> Expr:
        result = memo.get(item)
        if result is None:
            result = memo[item] = build(item)
        return result

    def build(item: Expr) -> Expr:
        kind = type(item)
        if kind is Var:
            return variables.get(item, item)  # type: ignore[call-overload, no-any-return]
        if kind in _CONSTANTS:
            return item
        if isinstance(item, ProducerLoad):
            if place is not None:
                return place(item)
            indices = tuple([apply(i) for i in item.indices])
            if load is not None:
                return load(item.producer, indices)
            same = not any(a is not b for a, b in zip(indices, item.indices, strict=True))
            return item if same else ProducerLoad(item.producer, indices)
        if isinstance(item, Reduce):
            return Reduce(
                reducer(item),
                tuple([apply(s) for s in item.source]),
                item.axis,
                apply(item.condition),
                item.value_index,
            )
        return REBUILD[kind](item, apply)

    def reducer(item: Reduce) -> E.CommReducer:
        old = item.combiner
        identity = tuple([apply(i) for i in old.identity])
        if not any(a is not b for a, b in zip(identity, old.identity, strict=True)):
            return old
        return E.CommReducer(old.lhs, old.rhs, old.result, identity)

    return apply


class Inliner:
    """Bodies of the stages of one schedule, producers inlined."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._memo: dict[tuple[Tensor, tuple[int, ...]], tuple[tuple[Expr, ...], Expr]] = {}

    def bodies(self, stage: Stage) -> tuple[Expr, ...]:
        """The bodies of a compute stage over tensors that have storage."""
        assert isinstance(stage.op, ComputeOp), "only compute stages have bodies"
        apply = rewriter({}, self._reader(stage))
        return tuple(apply(b) for b in stage.op.body)

    def _reader(self, stage: Stage) -> LoadRule:
        schedule = self.schedule

        def load(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
            source = schedule.source(stage, tensor)
            producer = schedule.stage_map[source.op]
            if not producer.is_inline:
                return ProducerLoad(source, indices)
            return self._inlined(producer, source, indices)

        return load

    def _inlined(self, stage: Stage, tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
        key = (tensor, tuple([id(i) for i in indices]))
        result = self._memo.get(key)
        if result is None:
            op = stage.op
            assert isinstance(op, ComputeOp), "only compute stages are inlined"
            variables = {a.var: i for a, i in zip(op.axis, indices, strict=True)}
            body = rewriter(variables, self._reader(stage))(op.body[tensor.value_index])
            result = self._memo[key] = (indices, body)  # the indices are kept alive, as their ids are the key
        return result[1]


def loads_of(bodies: tuple[Expr, ...]) -> list[ProducerLoad]:
    """The distinct tensor reads of bodies, combiners left out."""
    return [item for item in parts(bodies) if isinstance(item, ProducerLoad)]
