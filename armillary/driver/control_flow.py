"""Branches and loops of the run program.

In: the body of a fused main, and the builder of statements (program_codegen.py). Out: statements in run order, an If or
a Loop with its bodies, which end with a yield of their results. Invariant: a value is computed in the innermost body
that holds all its uses, so a branch that is not taken costs nothing, and what two branches share comes before both;
lets say nothing about that and are dissolved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import UnsupportedError
from armillary.program import nodes
from armillary.program.nodes import Statement, Yield
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Loop, Tuple, TupleGetItem, Var
from armillary.relay.types import TensorType, tensor_fields
from armillary.relay.walk import children, map_children, not_primitive, post_order

_LAST_SCALARS = (TensorType((), DType("int64")), TensorType((), DType("bool")))


class Builder(Protocol):
    """What this file needs of the program being built."""

    entries: dict[int, list[str]]  # names of values, by the id of an expression
    body: list[Statement]

    def visit(self, item: object) -> None:  # an expression
        """Append the statement of an expression whose arguments have values."""

    def results(self, types: Sequence[TensorType]) -> tuple[str, ...]:
        """New values of these types."""

    def statement_name(self, expr: Expr | None, word: str) -> str:
        """A name for the next statement."""

    def copied(self, value: str) -> str:
        """A copy of a value in memory of its own."""

    def shown(self, value: str) -> str:
        """The value whose memory another one shows."""


def emit(builder: Builder, body: Expr) -> Expr:
    """Build the statements of `body`; gives back the expression whose entries are the results."""
    plain = _without_lets(body)
    _Emitter(builder, plain).run(plain)
    return plain


def _without_lets(body: Expr) -> Expr:
    """Values in place of the variables that stand for them."""
    order = post_order(body, not_primitive)
    lets = {id(e.var): e.value for e in order if isinstance(e, Let) and not isinstance(e.value, Function)}
    memo: dict[int, Expr] = {}

    def get(expr: Expr) -> Expr:
        return memo.get(id(expr), expr)

    for expr in order:  # the value of a let comes before its variable
        if id(expr) in lets:
            memo[id(expr)] = get(lets[id(expr)])
        elif isinstance(expr, Let) and id(expr.var) in lets:
            memo[id(expr)] = get(expr.body)
        else:
            memo[id(expr)] = map_children(expr, get)
    return memo[id(body)]


# --- where values are computed ---------------------------------------------------------------------------------------


@record(frozen=False, eq=False)
class Region:
    """The program's own body, a branch, or the body of a loop."""

    parent: Region | None = None
    depth: int = 0

    def holds(self, other: Region) -> bool:
        """Whether `other` is this region or lies in it."""
        while other.depth > self.depth and other.parent is not None:
            other = other.parent
        return other is self


def _common(a: Region, b: Region) -> Region:
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None, "the outermost region holds all others"
        a = a.parent
    return a


def _regions(root: Expr) -> dict[int, Region]:
    """The innermost region that holds all uses of each expression; constants are the program's own."""
    top = Region()
    of: dict[int, Region] = {id(root): top}
    for expr in reversed(post_order(root, not_primitive)):
        here = of[id(expr)]
        if isinstance(expr, Constant):
            of[id(expr)] = top
        for child, own in _uses(expr):
            region = Region(here, here.depth + 1) if own else here
            of[id(child)] = _common(of[id(child)], region) if id(child) in of else region
    return of


def _uses(expr: Expr) -> Iterator[tuple[Expr, bool]]:
    """The expressions inside, and whether each has a region of its own."""
    match expr:
        case If():
            yield expr.cond, False
            yield expr.true_branch, True
            yield expr.false_branch, True
        case Function():
            if not_primitive(expr):
                yield expr.body, True
                yield from ((p, False) for p in expr.params)
        case _:
            yield from ((child, False) for child in children(expr))


# --- statements -------------------------------------------------------------------------------------------------------


class _Emitter:
    def __init__(self, builder: Builder, root: Expr) -> None:
        self.builder, self.of = builder, _regions(root)

    def run(self, root: Expr) -> None:
        """Statements for what `root` needs and has not yet, in an order that runs."""
        values = self.builder.entries
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if id(expr) in values:
                continue
            if ready:
                self._emit(expr)
                continue
            stack.append((expr, True))
            stack.extend((e, False) for e in reversed(self._needs(expr)) if id(e) not in values)

    def _needs(self, expr: Expr) -> list[Expr]:
        match expr:
            case If():
                return [expr.cond, *self._shared(expr, (expr.true_branch, expr.false_branch))]
            case Loop():
                return [expr.limit, expr.going, *expr.args, *self._shared(expr, (_body(expr).body,))]
            case Call():
                return list(expr.args)
            case Tuple() | TupleGetItem():
                return list(children(expr))
        return []

    def _shared(self, owner: Expr, insides: Sequence[Expr]) -> list[Expr]:
        """What the regions of `owner` use and do not compute: it must be there before."""
        here = self.of[id(owner)]
        shared = {id(e): e for inside in insides for e in post_order(inside, not_primitive)}
        return [e for e in shared.values() if not isinstance(e, Var | Function) and self.of[id(e)].holds(here)]

    def _emit(self, expr: Expr) -> None:
        match expr:
            case If():
                self._branch(expr)
            case Loop():
                self._loop(expr)
            case _:
                self.builder.visit(expr)

    def _branch(self, expr: If) -> None:
        builder = self.builder
        name = builder.statement_name(expr, "if")
        outputs = builder.results(tensor_fields(expr.checked_type))
        (condition,) = builder.entries[id(expr.cond)]
        then, otherwise = self._region(expr.true_branch), self._region(expr.false_branch)
        builder.body.append(nodes.If(condition, then, otherwise, outputs, name))
        builder.entries[id(expr)] = list(outputs)

    def _region(self, root: Expr, states: tuple[str, ...] = ()) -> tuple[Statement, ...]:
        """The statements of a body, its yield included; `states`: of the loop whose body it is."""
        builder = self.builder
        outside, around = set(builder.entries), builder.body
        builder.body = []
        self.run(root)
        results = list(builder.entries[id(root)])
        if states:
            results = [results[0], *(self._copied_state(v, k, states) for k, v in enumerate(results[1:]))]
        builder.body.append(Yield(tuple(results), builder.statement_name(None, "yield")))
        for key in set(builder.entries) - outside:  # what a body computes is not there outside, nor the next time
            del builder.entries[key]
        inside, builder.body = tuple(builder.body), around
        return inside

    def _copied_state(self, value: str, index: int, states: tuple[str, ...]) -> str:
        """A new state that is another's old one is copied: states are replaced one after another."""
        if index >= len(states) or self.builder.shown(value) not in (*states[:index], *states[index + 1 :]):
            return value
        return self.builder.copied(value)

    def _loop(self, expr: Loop) -> None:
        builder, body = self.builder, _body(expr)
        entries = builder.entries
        args = [entries[id(a)] for a in expr.args]
        first = [value for values in args[: expr.states] for value in values]
        (limit,), (going,) = entries[id(expr.limit)], entries[id(expr.going)]
        name = builder.statement_name(expr, "loop")
        outputs = builder.results((*tensor_fields(expr.checked_type), _LAST_SCALARS[1]))
        entries[id(body.params[0])], entries[id(body.params[1])] = [outputs[-2]], [outputs[-1]]
        used = 0
        for k, (param, values) in enumerate(zip(body.params[2:], args, strict=True)):
            is_state = k < expr.states
            entries[id(param)] = list(outputs[used : used + len(values)]) if is_state else values
            used += len(values) if is_state else 0
        inside = self._region(body.body, outputs[: len(first)])
        trips = expr.trips if isinstance(expr.trips, int) else -1  # then what the scans have rows for
        builder.body.append(nodes.Loop(limit, going, tuple(first), inside, outputs, trips, name))
        for param in body.params:
            del entries[id(param)]
        entries[id(expr)] = list(outputs[:-1])


def _body(loop: Loop) -> Function:
    if not isinstance(loop.body, Function):
        raise UnsupportedError(
            "the body of a loop is computed at run time", span=loop.span, hint="write the function itself"
        )
    return loop.body
