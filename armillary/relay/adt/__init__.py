"""Algebraic data types of the graph language: constructors, matches, references.

Grammar, beside that of relay/expr.py:

    expr    = Constructor(label, inputs, belong_to) | Match(data, clauses, complete) | Clause(lhs, rhs)
            | RefCreate(value) | RefRead(ref) | RefWrite(ref, value)
    pattern = PatternWildcard | PatternVar(var) | PatternConstructor(constructor, patterns) | PatternTuple(patterns)

A clause is an expression only so that walks see what it binds. A call of a constructor makes a value; a module knows
the constructors of each type (`mod[GlobalTypeVar("List")]`). Invariant: importing this registers the nodes with the
walks, the printer, the interpreter and type inference, so programs without them pay nothing. Types: types.py and
solve.py here; text: text.py; values: evaluate.py; what programs find ready: prelude.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from armillary.base.node import FieldConverters, Node, node
from armillary.errors import Span, TypeMismatch
from armillary.relay import walk
from armillary.relay.adt.types import GlobalTypeVar
from armillary.relay.expr import Call, Expr, Var, call
from armillary.relay.types import Type


@node
class Constructor(Expr):
    """One form of a type: its label and the types of what it holds."""

    _converters: ClassVar[FieldConverters] = {"inputs": tuple}
    label: str
    inputs: tuple[Type, ...]
    belong_to: GlobalTypeVar
    span: Span | None = None

    @property
    def name_hint(self) -> str:
        """The label, under its Relay-era name."""
        return self.label

    @property
    def tag(self) -> int:
        """A number for the label and its type."""
        return zlib.crc32(f"{self.belong_to}.{self.label}".encode())

    def __call__(self, *args: object) -> Call:  # expressions, numbers
        """A value of this form."""
        return call(self, args)


class Pattern(Node):
    """What a value may look like."""

    __slots__ = ()


@node
class PatternWildcard(Pattern):
    """A pattern that matches any value and binds none."""


@node
class PatternVar(Pattern):
    """Anything, which the variable then stands for."""

    var: Var


@node
class PatternConstructor(Pattern):
    """A value of that form whose fields match."""

    _converters: ClassVar[FieldConverters] = {"patterns": lambda patterns: tuple(patterns or ())}
    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()


@node
class PatternTuple(Pattern):
    """A tuple whose fields match."""

    _converters: ClassVar[FieldConverters] = {"patterns": tuple}
    patterns: tuple[Pattern, ...]


@node
class Clause(Expr):
    """`rhs`, where a value looks like `lhs`."""

    lhs: Pattern
    rhs: Expr
    span: Span | None = None


@node
class Match(Expr):
    """The first clause whose pattern fits the data; `complete`: one always does."""

    _converters: ClassVar[FieldConverters] = {"clauses": tuple}
    data: Expr
    clauses: tuple[Clause, ...]
    complete: bool = True
    span: Span | None = None


@node
class RefCreate(Expr):
    """A cell that holds a value."""

    value: Expr
    span: Span | None = None


@node
class RefRead(Expr):
    """What a cell holds."""

    ref: Expr
    span: Span | None = None


@node
class RefWrite(Expr):
    """Put a value into a cell; the result is the empty tuple."""

    ref: Expr
    value: Expr
    span: Span | None = None


def pattern_vars(pattern: Pattern) -> Iterator[Var]:
    """The variables that a pattern binds, left to right."""
    if isinstance(pattern, PatternVar):
        yield pattern.var
    elif isinstance(pattern, PatternConstructor | PatternTuple):
        for inner in pattern.patterns:
            yield from pattern_vars(inner)


def map_pattern(pattern: Pattern, get: Callable[[Expr], Expr]) -> Pattern:
    """The pattern with other variables and constructors."""
    if isinstance(pattern, PatternVar):
        var = get(pattern.var)
        if not isinstance(var, Var):
            raise TypeMismatch(f"%{pattern.var.name_hint} is bound by a pattern, so it is replaced by variables only")
        return pattern if var is pattern.var else PatternVar(var)
    if not isinstance(pattern, PatternConstructor | PatternTuple):
        return pattern
    parts = tuple(map_pattern(p, get) for p in pattern.patterns)
    if all(a is b for a, b in zip(parts, pattern.patterns, strict=True)):
        return pattern
    return PatternTuple(parts) if isinstance(pattern, PatternTuple) else PatternConstructor(pattern.constructor, parts)


# --- what walks do with them ----------------------------------------------------------------------------------------


def _rebuilt_match(e: Match, get: Callable[[Expr], Expr]) -> Expr:
    data, clauses = get(e.data), tuple(map(get, e.clauses))
    if data is e.data and all(a is b for a, b in zip(clauses, e.clauses, strict=True)):
        return e
    return Match(data, tuple(c for c in clauses if isinstance(c, Clause)), e.complete, e.span)


def _rebuilt_clause(e: Clause, get: Callable[[Expr], Expr]) -> Expr:
    lhs, rhs = map_pattern(e.lhs, get), get(e.rhs)
    return e if lhs is e.lhs and rhs is e.rhs else Clause(lhs, rhs, e.span)


def _rebuilt_create(e: RefCreate, get: Callable[[Expr], Expr]) -> Expr:
    value = get(e.value)
    return e if value is e.value else RefCreate(value, e.span)


def _rebuilt_read(e: RefRead, get: Callable[[Expr], Expr]) -> Expr:
    ref = get(e.ref)
    return e if ref is e.ref else RefRead(ref, e.span)


def _rebuilt_write(e: RefWrite, get: Callable[[Expr], Expr]) -> Expr:
    ref, value = get(e.ref), get(e.value)
    return e if ref is e.ref and value is e.value else RefWrite(ref, value, e.span)


def _of_clause(e: Clause) -> Sequence[Expr]:
    return (*pattern_vars(e.lhs), e.rhs)


walk.register(Constructor, lambda e: (), lambda e, get: e)
walk.register(Match, lambda e: (e.data, *e.clauses), _rebuilt_match)
walk.register(Clause, _of_clause, _rebuilt_clause, opens=True)
walk.register(RefCreate, lambda e: (e.value,), _rebuilt_create, has_effect=True)
walk.register(RefRead, lambda e: (e.ref,), _rebuilt_read, has_effect=True)
walk.register(RefWrite, lambda e: (e.ref, e.value), _rebuilt_write, has_effect=True)
