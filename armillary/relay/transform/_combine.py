"""Joining sibling contractions that read the same data into one.

In: a function, a description of what may be joined. Out: the function with the siblings' weights concatenated along
their output axis, one contraction, and a slice per sibling. Invariant: only siblings with equal attributes join, and
only where there are at least `min_num_branches`. The three passes combine_parallel_* describe their operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

from armillary.relay.expr import Call, Expr, Function, Tuple
from armillary.relay.transform._rules import call, op_name, tensor
from armillary.relay.walk import Scope, not_primitive, post_order, scopes, substitute


@dataclasses.dataclass(frozen=True)
class Sibling:
    """How an operator's calls join: `key` of attributes that must agree (None: this call may not), and two axes."""

    name: str
    key: Callable[[Call], Hashable | None]
    weight_axis: Callable[[Call], int]
    output_axis: Callable[[Call], int]
    attrs: Callable[[Any, int], Any]  # Any: the operator's attrs, for the joined number of outputs


def combine(function: Function, kind: Sibling, min_num_branches: int) -> Expr | None:
    """Join the siblings of one function, or None where there are none."""
    of = scopes(function)[0]
    found: dict[Hashable, list[Call]] = {}
    for expr in post_order(function, not_primitive):
        if not isinstance(expr, Call) or op_name(expr) != kind.name or tensor(expr) is None:
            continue
        key = kind.key(expr)
        if key is not None:
            found.setdefault((id(expr.args[0]), _scope(of, expr), key), []).append(expr)
    for siblings in found.values():
        if len(siblings) >= min_num_branches and _independent(siblings):
            joined = _join(siblings, kind)
            return substitute(function, {id(s): new for s, new in zip(siblings, joined, strict=True)})
    return None


def combine_all(function: Function, kind: Sibling, min_num_branches: int) -> Expr | None:
    """Join until nothing is left to join."""
    result: Expr | None = None
    current: Expr = function
    while isinstance(current, Function) and (joined := combine(current, kind, min_num_branches)) is not None:
        result = current = joined
    return result


def _scope(of: dict[int, Scope], expr: Expr) -> int:
    return id(of[id(expr)])


def _independent(siblings: list[Call]) -> bool:
    """No sibling's weight depends on another sibling."""
    ids = {id(s) for s in siblings}
    return not any(id(e) in ids for s in siblings for e in post_order(s.args[1]))


def _join(siblings: list[Call], kind: Sibling) -> list[Expr]:
    first = siblings[0]
    axis = kind.output_axis(first)
    sizes = [s.checked_type.shape[axis] for s in siblings]  # type: ignore[attr-defined]
    weight = call("concatenate", Tuple(tuple(s.args[1] for s in siblings)), axis=kind.weight_axis(first))
    joined = Call(first.op, (first.args[0], weight), kind.attrs(first.attrs, sum(sizes)), first.span)
    parts: list[Expr] = []
    start = 0
    for size in sizes:
        parts.append(call("strided_slice", joined, begin=(start,), end=(start + size,), strides=(1,), axes=(axis,)))
        start += size
    return parts
