"""Sizes that data says come before what has them: the order that `bind_size` and `run_after` keep.

In: an expression, and for sizes that data says the call of `bind_size` that gives each its value. Out: the expression
in which every call that has such a size in its attributes, and every branch or loop that has one in its type, depends
on that call, by `run_after` where it did not. Invariant: what is computed is unchanged; an expression without such
sizes is given back as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from armillary.base.extent import sizes_of
from armillary.base.node import replace
from armillary.ops.shape.bind_size import run_after
from armillary.relay.analysis.bind_sizes import attr_sizes
from armillary.relay.expr import Call, Expr, If, Loop
from armillary.relay.op import has
from armillary.relay.op.facts import Fact
from armillary.relay.types import tensor_fields
from armillary.relay.walk import children, map_children, not_primitive, post_order

E = TypeVar("E", bound=Expr)
Names = frozenset[str]


def with_sizes_bound(root: E, binds: Mapping[str, Expr]) -> E:
    """The expression in which what has a size of `binds` (name to call of `bind_size`) runs behind that call."""
    if not binds:
        return root
    parts: list[Expr] = [*binds.values(), root]
    order = [e for part in parts for e in post_order(part, not_primitive)]
    memo: dict[int, Expr] = {}
    known: dict[int, Names] = {}  # the sizes that have their value where an expression has

    def get(expr: Expr) -> Expr:
        return memo.get(id(expr), expr)

    for expr in order:
        if id(expr) in memo:
            continue
        own = _own_sizes(expr) & binds.keys()
        here: Names = frozenset().union(*(known.get(id(child), frozenset()) for child in _always_run(expr)))
        known[id(expr)] = here | own
        missing = [] if has(expr, Fact.BINDS) else [get(binds[name]) for name in sorted(own - here)]
        memo[id(expr)] = _behind(missing, map_children(expr, get))
    return memo[id(root)]  # type: ignore[return-value]  # a function stays one


def _behind(binds: Sequence[Expr], expr: Expr) -> Expr:
    """The expression, run behind others; of a branch or a loop what it begins with is."""
    for bind in binds:
        match expr:
            case If():
                expr = replace(expr, cond=_behind((bind,), expr.cond))
            case Loop():
                expr = replace(expr, limit=_behind((bind,), expr.limit))
            case _:
                expr = run_after(bind, expr)
    return expr


def _always_run(expr: Expr) -> Sequence[Expr]:
    """The expressions inside, but for branches and bodies: what a region binds is not known behind it."""
    match expr:
        case If():
            return (expr.cond,)
        case Loop():
            return (expr.limit, expr.going, *expr.args)
    return children(expr)


def _own_sizes(expr: Expr) -> Names:
    """The sizes in the attributes of a call, or in the type of a branch or a loop."""
    match expr:
        case Call() if expr.attrs is not None:
            return frozenset(sizes_of(attr_sizes(expr.attrs)))
        case If() | Loop():
            return frozenset(sizes_of(d for ty in tensor_fields(expr.checked_type) for d in ty.shape))
    return frozenset()
