"""What external libraries can do: patterns and predicates by the name of the library.

In: registrations, made where a library's manifest is imported: `register_pattern_table("acl", make_table)` and
`register_support("acl", "nn.max_pool2d", predicate)`. Out: the tables that merge-composite and annotate-target read.
Invariant: filled at import only. A pattern row is (name, pattern) or (name, pattern, check of the matched expression).
Checks and predicates answer None, or the reason why the library does not take the call (True and False are understood
too). Composites named "<library>.…" are always the library's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary.base.aliases import AnyFunction
from armillary.base.lazy import deferred
from armillary.errors import ConfigError, UnsupportedError
from armillary.relay.expr import Call, Function
from armillary.relay.op import Op
from armillary.relay.pattern.partition import refusal

Row = tuple[Any, ...]  # Any: (name, DFPattern) or (name, DFPattern, check)
TableMaker = Callable[[], Sequence[Row]]
Predicate = Callable[[Call], str | bool | None]
_PATTERNS: dict[str, TableMaker] = {}
_SUPPORT: dict[tuple[str, str], Predicate] = {}
_CLOSED: set[str] = set()  # libraries whose code generators know the operators of their rows alone
with deferred():
    from armillary.offload import (
        load as _load,  # a library that comes with the package registers itself when it is imported
    )


def register_pattern_table(compiler: str, table: TableMaker | None = None) -> AnyFunction:  # the maker, or a decorator
    """Set a library's patterns; usable as a decorator of a function that returns the rows."""

    def register(maker: TableMaker) -> TableMaker:
        _PATTERNS[compiler] = maker
        return maker

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> Sequence[Row]:
    """The rows of a library."""
    _load(compiler)
    if compiler not in _PATTERNS:
        known = ", ".join(sorted(_PATTERNS)) or "none"
        raise ConfigError(f"there is no pattern table for {compiler!r}", hint=f"registered: {known}")
    return _PATTERNS[compiler]()


def has_pattern_table(compiler: str) -> bool:
    """Whether a library has patterns; one that operators are annotated for by rules needs none."""
    _load(compiler)
    return compiler in _PATTERNS


def register_support(compiler: str, operator: str, predicate: Predicate | None = None) -> AnyFunction:
    """Say which calls of an operator a library takes; usable as a decorator of the predicate."""

    def register(rule: Predicate) -> Predicate:
        _SUPPORT[compiler, operator] = rule
        return rule

    return register if predicate is None else register(predicate)


def close_table(compiler: str) -> None:
    """Say that a library's code generator writes its rows and nothing else."""
    _CLOSED.add(compiler)


def refuse_without_row(compiler: str, call: Call) -> None:
    """UnsupportedError where a script says that a library takes a call which its code generator cannot write."""
    if not isinstance(call.op, Op) or compiler not in _CLOSED or (compiler, call.op.name) in _SUPPORT:
        return
    rule: Predicate | None = call.op.get_attr(f"target.{compiler}")
    if rule is not None and refusal(rule(call)) is None:
        message = f"register_op_attr says that {compiler} takes {call.op.name}, for which it has no row"
        raise UnsupportedError(message, span=call.span, hint="write one, see docs/offloading.md")


def why_not(compiler: str, call: Call) -> str | None:
    """None where a library takes a call of an operator or of a composite function, else the reason."""
    if isinstance(call.op, Function):
        own = str(call.op.get_attr("Composite", "")).startswith(compiler + ".")
        return None if own else f"the function is no composite of {compiler}"
    rule = predicate_of(compiler, call.op) if isinstance(call.op, Op) else None
    if rule is None:
        return f"{compiler} has no such operator"
    return refusal(rule(call))


def predicate_of(compiler: str, operator: Op) -> Predicate | None:
    """Which calls of an operator by itself a library takes; None where it takes none."""
    _load(compiler)
    own = _SUPPORT.get((compiler, operator.name))
    if own is not None or compiler in _CLOSED:
        return own
    script: Predicate | None = operator.get_attr(f"target.{compiler}")  # registered with register_op_attr
    return script


def is_supported(compiler: str, call: Call) -> bool:
    """Whether a library takes a call of an operator or of a composite function."""
    return why_not(compiler, call) is None
