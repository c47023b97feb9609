"""Arithmetic operations of a schedule, counted from its expressions.

In: a te.Schedule. Out: how many additions, multiplications, comparisons and calls on numbers it computes. Invariant:
index arithmetic does not count, nor does what a schedule adds (caches, inlining is seen through stage by stage); an
extern operation cannot be counted and must state its operations by `cfg.add_flop`.
"""

from __future__ import annotations

import math

from armillary import te
from armillary.autotvm.errors import TuningError
from armillary.base.node import children
from armillary.te.operation import ComputeOp, ExternOp, ScanOp
from armillary.te.stage import static_extent
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import statements_inside
from armillary.tir.build import as_int

_ARITHMETIC = (E.Add, E.Sub, E.Mul, E.Div, E.FloorDiv, E.TruncDiv, E.Min, E.Max)
_TOLD = "state the operations in the template: cfg.add_flop(n)"


def compute_flop(schedule: te.Schedule) -> float:
    """Operations of all stages; TuningError where none can be found."""
    total = 0.0
    for operation in _operations(schedule):
        if isinstance(operation, ComputeOp):
            total += sum(_count(body) for body in operation.body) * _points(operation.axis)
        elif isinstance(operation, ExternOp | ScanOp):
            raise TuningError(f"the operations of {operation.name} cannot be counted", hint=_TOLD)
    if not total:
        raise TuningError("Cannot find float number operation in this operator", hint=_TOLD)
    return total


def loops_flop(item: S.Stmt, times: int = 1) -> float:
    """Operations of loops of known length without blocks; 0 where what they do is no arithmetic."""
    if isinstance(item, S.For):
        return loops_flop(item.body, times * (as_int(item.extent) or 1))
    if isinstance(item, S.BufferStore):
        return _count(item.value) * times
    return sum(loops_flop(part, times) for part in statements_inside(item))


def _operations(schedule: te.Schedule) -> list[te.Operation]:
    """Each operation that is computed; copies that the schedule made (caches) compute nothing of their own."""
    return [stage.op for stage in schedule.in_order()]


def _points(axes: tuple[te.IterVar, ...]) -> int:
    lengths = [static_extent(axis) for axis in axes]
    if None in lengths:
        raise TuningError("a stage has axes of unknown length", hint=_TOLD)
    return math.prod(length for length in lengths if length is not None)


def _count(root: E.Expr) -> float:
    """Operations on numbers in an expression: those whose operands are no indices."""
    match root:
        case E.Reduce(combiner, source, axis):
            inner = sum(_count(value) for value in source) + sum(_combined(r) for r in combiner.result)
            return inner * _points(axis)
        case E.Select(condition, true_value, false_value):
            return _count(condition) + max(_count(true_value), _count(false_value))
        case E.ProducerLoad() | E.BufferLoad():
            return 0.0
        case E.Cast(_, value) | E.Not(value):
            return _count(value)
        case E.Let(_, value, body):
            return _count(value) + _count(body)
        case E.Call(_, name, args):
            return sum(map(_count, args)) + (1.0 if root.dtype.is_float and name not in _FREE else 0.0)
    a, b = getattr(root, "a", None), getattr(root, "b", None)
    if not isinstance(a, E.Expr) or not isinstance(b, E.Expr):
        return 0.0
    own = 1.0 if isinstance(root, _ARITHMETIC) and (root.dtype.is_float or _is_data(root)) else 0.0
    return own + _count(a) + _count(b)


def _combined(root: E.Expr) -> float:
    """Operations of a reduction's step: its operands are data, also where they are integers."""
    parts = sum(_combined(part) for part in children(root) if isinstance(part, E.Expr))
    return parts + (1.0 if isinstance(root, _ARITHMETIC) else 0.0)


_FREE = frozenset({"if_then_else", "likely", "reinterpret"})


def _is_data(root: E.Expr) -> bool:
    """Whether an integer expression computes with elements of tensors: quantised arithmetic, no index."""
    todo: list[E.Expr] = [root]
    while todo:
        item = todo.pop()
        if isinstance(item, E.ProducerLoad):
            return True
        todo += [x for x in (getattr(item, n, None) for n in ("a", "b", "value")) if isinstance(x, E.Expr)]
    return False
