"""Joining sibling contractions that read the same data into one.

In: a function, a description of what may be joined. Out: the function with the siblings' weights concatenated along
their output axis, one contraction, and a slice per sibling. What follows each sibling alike (a bias, a normalisation,
an activation) is joined too, in front of the slices: there it fuses with the contraction, and its factors can still
fold into the weights. Invariant: only siblings with equal attributes join, and only where there are at least
`min_num_branches`. The three passes combine_parallel_* describe their operator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from armillary.base.record import record
from armillary.relay.expr import Call, Expr, Function, known_of
from armillary.relay.op import Kind, Op, has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import call, concatenated, op_name
from armillary.relay.walk import Scope, not_primitive, post_order, scopes, substitute, users


@record
class ParallelBranch:
    """How an operator's calls join: `key` of attributes that must agree (None: this call may not), and two axes."""

    name: str
    key: Callable[[Call], Hashable | None]
    weight_axis: Callable[[Call], int]
    output_axis: Callable[[Call], int]
    attrs: Callable[[Any, int], object]  # Any: the operator's attrs, for the joined number of outputs


def groups(function: Function, kind: ParallelBranch, least: int) -> list[list[Call]]:
    """Calls that may join, at least so many together."""
    of = scopes(function)[0]
    groups_by_key: dict[Hashable, list[Call]] = {}
    for expr in post_order(function, not_primitive):
        if not isinstance(expr, Call) or op_name(expr) != kind.name or known_of(expr) is None:
            continue
        key = kind.key(expr)
        if key is not None:
            groups_by_key.setdefault((id(expr.args[0]), _scope(of, expr), key), []).append(expr)
    return [siblings for siblings in groups_by_key.values() if len(siblings) >= least and _independent(siblings)]


def combine(function: Function, kind: ParallelBranch, min_num_branches: int) -> Expr | None:
    """Join the siblings of one function, or None where there are none."""
    siblings = next(iter(groups(function, kind, min_num_branches)), None)
    return None if siblings is None else combined(function, siblings, kind)


def combined(function: Function, siblings: list[Call], kind: ParallelBranch) -> Expr:
    """Join calls of one function that may join."""
    ends, joined = _join(siblings, kind, users(post_order(function)))
    return substitute(function, {id(s): new for s, new in zip(ends, joined, strict=True)})


def combine_all(function: Function, kind: ParallelBranch, min_num_branches: int) -> Expr | None:
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


def _join(siblings: list[Call], kind: ParallelBranch, readers: dict[int, list[Expr]]) -> tuple[list[Call], list[Expr]]:
    """The last calls that were joined, and a slice for each."""
    first = siblings[0]
    axis = kind.output_axis(first)
    sizes = [s.checked_type.shape[axis] for s in siblings]  # type: ignore[attr-defined]
    columns = [[s.args[k] for s in siblings] for k in range(1, len(first.args))]
    weights = [_joined_weight(column, kind.weight_axis(first), sizes) for column in columns]
    joined = Call(first.op, (first.args[0], *weights), kind.attrs(first.attrs, sum(sizes)), first.span)
    while (step := _joined_tail(siblings, joined, axis, readers)) is not None:
        siblings, joined = step
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return siblings, [_part(joined, axis, start, size) for start, size in zip(starts, sizes, strict=True)]


def _joined_weight(parts: list[Expr], axis: int, sizes: list[object]) -> Expr:
    """One operand for all outputs: theirs one after another, or the one that holds for each output."""
    own = [ty is not None and ty.shape[axis] == size for ty, size in zip(map(known_of, parts), sizes, strict=True)]
    return concatenated(parts, axis) if all(own) else parts[0]


def _part(joined: Expr, axis: int, start: int, size: int) -> Expr:
    """What one sibling gave; written as Relay's own pass writes it, for scripts that compare programs."""
    begin, end = (*[0] * axis, start), (*[-1] * axis, size)
    return call("strided_slice", joined, begin=begin, end=end, strides=(1,) * (axis + 1), slice_mode="size")


def _joined_tail(
    siblings: list[Call], joined: Call, axis: int, readers: dict[int, list[Expr]]
) -> tuple[list[Call], Call] | None:
    """The only readers of the siblings, if they do the same with each, and that on the joined value."""
    tails = same_readers(siblings, readers)
    if tails is None:
        return None
    first = tails[0]
    args: list[Expr] = []
    for k in range(len(first.args)):
        column = [t.args[k] for t in tails]
        if all(a is s for a, s in zip(column, siblings, strict=True)):
            args.append(joined)
            continue
        other = _joined_argument(column, tails, axis)
        if other is None:
            return None
        args.append(other)
    call = Call(first.op, tuple(args), first.attrs, first.span)
    return (tails, call) if any(a is joined for a in args) and _fits(call, joined) else None


def same_readers(siblings: list[Call], readers: dict[int, list[Expr]]) -> list[Call] | None:
    """The only readers of the siblings, if they do the same with each."""
    tails = [_only_reader(s, readers) for s in siblings]
    result = [t for t in tails if t is not None]
    first = result[0] if len(result) == len(siblings) else None
    if first is None or len({id(t) for t in result}) < len(result):
        return None
    if any(
        t.op is not first.op or repr(t.attrs) != repr(first.attrs) or len(t.args) != len(first.args) for t in result
    ):
        return None
    return result


def _only_reader(expr: Call, readers: dict[int, list[Expr]]) -> Call | None:
    """The elementwise or broadcasting call of an operator that alone reads `expr`."""
    users = readers.get(id(expr), [])
    reader = users[0] if len(users) == 1 else None
    if not isinstance(reader, Call) or not isinstance(reader.op, Op) or reader.op.kind > Kind.BROADCAST:
        return None
    same = known_of(reader) is not None and known_of(expr) is not None
    return reader if same and reader.checked_type == expr.checked_type else None


def _joined_argument(column: list[Expr], tails: list[Call], axis: int) -> Expr | None:
    """The other operand for all: the one they share, or theirs along the joined axis; None if neither is possible."""
    types = [known_of(a) for a in column]
    ndim = len(tails[0].checked_type.shape)  # type: ignore[attr-defined]
    sizes = [t.checked_type.shape[axis] for t in tails]  # type: ignore[attr-defined]
    if any(t is None for t in types) or any(map(computed, column)):
        return None
    places = [axis - ndim + t.ndim for t in types if t is not None]
    extents = [t.shape[p] if t is not None and p >= 0 else 1 for t, p in zip(types, places, strict=True)]
    if all(a is column[0] for a in column) and extents[0] == 1:
        return column[0]
    if places[0] < 0 or len(set(places)) > 1 or extents != sizes:
        return None
    return concatenated(column, places[0])


def computed(expr: Expr) -> list[Call]:
    """The calls that an operand is made of besides moves and arithmetic: none, for a parameter of the network."""
    calls = [e for e in post_order(expr) if isinstance(e, Call)]
    return [e for e in calls if e.op.kind > Kind.BROADCAST and not has(e, Fact.REARRANGES)]


def _fits(call: Call, joined: Call) -> bool:
    return call.checked_type == joined.checked_type
