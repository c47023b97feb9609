"""Putting what a pattern matches into functions of their own.

In: a pattern, an expression, attributes for the functions, a check. Out: the expression with calls of functions that
have the attribute PartitionedFromPattern. Invariant: matches never overlap, the last in the graph goes first; a match
whose inner values are used elsewhere too is left alone. Patterns: relay/pattern/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from armillary.base.record import record
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, has_untyped
from armillary.relay.op import Op
from armillary.relay.walk import children, map_children, not_primitive, post_order, users

if TYPE_CHECKING:
    from armillary.relay.pattern import Bindings, Check


@record(slots=True)
class Separate:
    """A match: what each part of the pattern matched, and the expressions that belong to it, by id."""

    bindings: tuple[Bindings, ...]
    inside: dict[int, Expr]


def refusal(verdict: str | bool | None) -> str | None:
    """Why a predicate refuses, None where it accepts. Predicates answer None or a reason; older ones True or False."""
    if verdict is None or isinstance(verdict, str):
        return verdict
    return None if verdict else "the predicate of the library refuses it"


Matches = Callable[[Expr], "Sequence[Bindings]"]  # of a pattern below an expression, the outer ones first; or nothing


def separate_matches(
    match: Matches, order: Sequence[Expr], check: Check | None = None, any_root: bool = False
) -> dict[int, Separate]:
    """Matches that never overlap, by the id of their root; the last in post order is taken first.

    A match whose inner values are used elsewhere too is left alone, unless all those uses come together in its root
    again. `any_root` also takes what patterns match that say nothing of the root, such as a wildcard.
    """
    used_by = users(order)
    taken: set[int] = set()
    result: dict[int, Separate] = {}
    for root in reversed(order):
        bindings = match(root) if id(root) not in taken else ()
        inside = {key: e for each in bindings for key, e in _inner_nodes(each).items()}
        if bindings and any_root:
            inside[id(root)] = root
        if id(root) not in inside or inside.keys() & taken or _leaks(inside, root, used_by):
            continue
        if check is None or refusal(check(root)) is None:
            taken |= {key for key, e in inside.items() if not isinstance(e, Constant)}  # each match has its own copy
            result[id(root)] = Separate(tuple(bindings), inside)
    return result


def outline_matches(
    match: Matches, expr: Expr, attrs: dict[str, object] | None = None, check: Check | None = None
) -> Expr:
    """Put matches into functions with the given attributes, the last in the graph first; matches never overlap.

    What a wildcard or variable pattern matched becomes an argument; constants matched by is_constant go inside. A match
    whose inner values are used elsewhere too is left alone.
    """
    order = post_order(expr, not_primitive)
    position = {id(e): k for k, e in enumerate(order)}
    matches = separate_matches(match, order, check)
    groups = {key: sorted(each.inside.values(), key=lambda e: position[id(e)]) for key, each in matches.items()}
    return _with_groups(order, groups, attrs or {}) if groups else expr


def _leaks(inside: dict[int, Expr], root: Expr, used_by: dict[int, list[Expr]]) -> bool:
    """Whether a value other than the root's is used where the root is not; constants may be, they are copied."""
    inner = (e for e in inside.values() if e is not root and not isinstance(e, Constant))
    pending = [user for e in inner for user in used_by.get(id(e), ()) if id(user) not in inside]
    seen = {id(root)}
    while pending:
        at = pending.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        further = used_by.get(id(at), ())
        if not further or isinstance(at, Function | Let | If):
            return True
        pending.extend(further)
    return False


def _inner_nodes(bindings: Bindings) -> dict[int, Expr]:
    """The nodes a match puts inside its function, by id."""
    inside: dict[int, Expr] = {}
    for pattern, expr in bindings.items():
        if pattern.inside == "yes" or (pattern.inside == "constants" and isinstance(expr, Constant)):
            inside[id(expr)] = expr
        if pattern.ancestor is not None:
            inside |= _between(expr, bindings[pattern.ancestor])
    called = [e for e in inside.values() if isinstance(e, Function)]
    bodies = {id(part) for function in called for part in post_order(function) if part is not function}
    return {key: e for key, e in inside.items() if key not in bodies}


def _between(child: Expr, parent: Expr) -> dict[int, Expr]:
    """The calls on the ways from a dominated child up to its parent, which is not included."""
    pending, seen = [child], {id(child): child}
    while pending:
        for arg in children(pending.pop()):
            if id(arg) not in seen and arg is not parent and isinstance(arg, Call | Tuple):
                seen[id(arg)] = arg
                pending.append(arg)
    return seen


def _with_groups(order: list[Expr], groups: dict[int, list[Expr]], attrs: dict[str, object]) -> Expr:
    memo: dict[int, Expr] = {}
    for expr in order:
        members = groups.get(id(expr))
        rebuilt = (
            map_children(expr, lambda e: memo.get(id(e), e)) if members is None else _outlined(members, memo, attrs)
        )
        memo[id(expr)] = rebuilt
    return memo[id(order[-1])]


def _outlined(members: list[Expr], memo: dict[int, Expr], attrs: dict[str, object]) -> Expr:
    """A call of a function made of the members, which are in post order, the last being the result."""
    root, own = members[-1], {id(e) for e in members}
    typed = not has_untyped(root)
    inner: dict[int, Expr] = {id(e): e for e in members if isinstance(e, Constant | Function)}
    outside = [e for e in _depth_first(root, own) if id(e) not in own]
    params = [Var(f"p{k}", e.checked_type if typed else None) for k, e in enumerate(outside)]
    args = [memo.get(id(e), e) for e in outside]
    inner |= {id(e): param for e, param in zip(outside, params, strict=True)}
    for expr in members:
        if not isinstance(expr, Constant | Function):
            inner[id(expr)] = map_children(expr, lambda e: inner[id(e)])
    names = "".join(f"{name}_" for e in members for name in _labels(e))
    pairs = (*attrs.items(), ("PartitionedFromPattern", names))
    result_type = root.checked_type if typed else None
    return Call(Function(tuple(params), inner[id(root)], result_type, pairs), tuple(args), None, None)


def _depth_first(root: Expr, own: set[int]) -> list[Expr]:
    """What a match reads and is made of, in the order in which its text names them: first arguments first."""
    pending, seen, result = [root], set[int](), []
    while pending:
        at = pending.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        result.append(at)
        if id(at) in own and not isinstance(at, Constant | Function):
            pending.extend(reversed(children(at)))
    return result


def _labels(expr: Expr) -> list[str]:
    """What a node of a match, or those of a function in it, add to the name of the pattern."""
    match expr:
        case Call(op) if isinstance(op, Op):
            return [op.name]
        case Call():
            return ["FunctionCall"]
        case Function():
            return [name for e in post_order(expr.body) for name in _labels(e)]
        case Tuple():
            return ["Tuple"]
        case TupleGetItem(_, index):
            return [f"TupleGetItem{index}"]
        case _:
            return []
