"""What operators' rules use at times, imported when a rule first uses it: the tensor and the loop language, operators.

In: nothing. Out: `te`, and of the loop language `T` (constructors), `E` (expressions), `S` (statements), which look
like those modules; for tables `scalar`, `reduction` and `erf`: functions of theirs by name; `by_name`: an operator.
Invariant: importing an operator imports neither language: a build whose kernels are all in the cache needs none, and
they are a tenth of its start.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.aliases import AnyFunction
from armillary.base.lazy import deferred
from armillary.relay.expr import Call
from armillary.relay.op import get_op

with deferred():
    from armillary import te as te
    from armillary.tir import build as T
    from armillary.tir import expr as E
    from armillary.tir import stmt as S
    from armillary.tir.intrinsics import erf as erf

__all__ = ["E", "S", "T", "by_name", "erf", "reduction", "scalar", "te"]


def scalar(name: str) -> AnyFunction:  # Any: expressions
    """`T.<name>`, for a table that is made when an operator is imported."""
    return lambda *arguments: getattr(T, name)(*arguments)


def by_name(name: str) -> Callable[..., Call]:
    """The operator of that name, for rules that few models need; its file is imported when it is first called."""
    return lambda *args, **attrs: get_op(name)(*args, **attrs)


def reduction(name: str) -> AnyFunction:  # Any: expressions
    """`te.<name>`, likewise."""
    return lambda *arguments, **named: getattr(te, name)(*arguments, **named)
