"""What programs with data types mean: values of constructors, cells, and a step of the interpreter for each node.

In: a node and the frame of values (relay/evaluate.py). Out: what must be evaluated first, or nothing once the node's
value is stored. Invariant: a match stores the values of its pattern's variables in the frame that it is in; only the
chosen clause is evaluated. A cell is read when the node that reads it is evaluated, once for each call of its function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.base.node import Rules
from armillary.errors import Span, TypeMismatch, UnsupportedError
from armillary.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefCreate,
    RefRead,
    RefWrite,
)
from armillary.relay.evaluate import Frame, HeldValue, Task, Value
from armillary.relay.expr import Expr


class ConstructorValue(HeldValue):
    """A value of a data type: which form, and what it holds."""

    __slots__ = ("constructor", "fields", "tag")

    def __init__(self, tag: int, fields: Sequence[Value], constructor: Constructor) -> None:
        self.tag, self.fields, self.constructor = tag, tuple(fields), constructor

    def __repr__(self) -> str:
        inside = f"({', '.join(map(repr, self.fields))})" if self.fields else ""
        return f"{self.constructor.label}{inside}"


class RefValue(HeldValue):
    """A mutable cell, as `ref(x)` makes it."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


def construct(form: Value, fields: Sequence[Value], span: Span | None) -> ConstructorValue:
    """The value that a call of a constructor makes."""
    if not isinstance(form, Constructor):
        raise TypeMismatch("the called value is not a function", span=span)
    if len(fields) != len(form.inputs):
        raise TypeMismatch(f"{form.label}: got {len(fields)} fields, wanted {len(form.inputs)}", span=span)
    return ConstructorValue(form.tag, fields, form)


def mapped(value: Value, array: Callable[[Value], Value]) -> Value:
    """A value with what is neither a data type's nor a cell changed."""
    if isinstance(value, ConstructorValue):
        return ConstructorValue(value.tag, [mapped(f, array) for f in value.fields], value.constructor)
    return RefValue(mapped(value.value, array)) if isinstance(value, RefValue) else array(value)


def find_step(expr: Expr) -> Callable[..., list[Task]]:
    """The step of a node of this language."""
    step = _STEPS.get(type(expr))
    if step is None:
        raise TypeMismatch(f"cannot evaluate a {type(expr).__name__}")
    return step


def _fits(pattern: Pattern, value: Value, frame: Frame) -> bool:
    """Whether a value looks like a pattern, whose variables then have values."""
    if isinstance(pattern, PatternVar):
        frame.values[id(pattern.var)] = value
    if isinstance(pattern, PatternTuple):
        fields: Sequence[Value] = value
    elif isinstance(pattern, PatternConstructor):
        if not isinstance(value, ConstructorValue):
            raise TypeMismatch(f"a pattern {pattern.constructor.label} meets a value of no data type")
        if value.tag != pattern.constructor.tag:
            return False
        fields = value.fields
    else:
        return True
    return all(_fits(p, v, frame) for p, v in zip(pattern.patterns, fields, strict=True))


def _needs(expr: Expr, frame: Frame) -> list[Task]:
    return [] if id(expr) in frame.values else [(expr, frame)]


def _match(e: Match, frame: Frame) -> list[Task]:
    missing = _needs(e.data, frame)
    if missing:
        return missing
    value = frame.values[id(e.data)]
    chosen = next((c for c in e.clauses if _fits(c.lhs, value, frame)), None)
    if chosen is None:
        raise UnsupportedError(f"no clause of the match fits {value!r}", span=e.span)
    return _as(e, chosen.rhs, frame)


def _as(e: Expr, other: Expr, frame: Frame) -> list[Task]:
    missing = _needs(other, frame)
    if not missing:
        frame.values[id(e)] = frame.values[id(other)]
    return missing


def _constructor(e: Constructor, frame: Frame) -> list[Task]:
    frame.values[id(e)] = e
    return []


def _create(e: RefCreate, frame: Frame) -> list[Task]:
    missing = _needs(e.value, frame)
    if not missing:
        frame.values[id(e)] = RefValue(frame.values[id(e.value)])
    return missing


def _cell(ref: Expr, frame: Frame) -> RefValue:
    cell = frame.values[id(ref)]
    if not isinstance(cell, RefValue):
        raise TypeMismatch("what is read or written is not a cell")
    return cell


def _read(e: RefRead, frame: Frame) -> list[Task]:
    missing = _needs(e.ref, frame)
    if not missing:
        frame.values[id(e)] = _cell(e.ref, frame).value
    return missing


def _write(e: RefWrite, frame: Frame) -> list[Task]:
    missing = [*_needs(e.ref, frame), *_needs(e.value, frame)]
    if not missing:
        _cell(e.ref, frame).value = frame.values[id(e.value)]
        frame.values[id(e)] = ()
    return missing


def _clause(e: Clause, frame: Frame) -> list[Task]:
    return _as(e, e.rhs, frame)


_STEPS: Rules[[Frame], list[Task]] = {
    Match: _match,
    Clause: _clause,
    Constructor: _constructor,
    RefCreate: _create,
    RefRead: _read,
    RefWrite: _write,
}
