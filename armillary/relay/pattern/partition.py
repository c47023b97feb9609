"""Putting what a pattern matches into functions of their own.

In: a pattern, an expression, attributes for the functions, a check. Out: the expression with calls of functions that
have the attribute PartitionedFromPattern. Invariant: matches never overlap, the last in the graph goes first; a match
whose inner values are used elsewhere too is left alone. Patterns: relay/pattern/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, has_untyped
from armillary.relay.op import Op
from armillary.relay.types import Type
from armillary.relay.walk import children, map_children, not_primitive, post_order, users

if TYPE_CHECKING:
    from armillary.relay.pattern import Bindings, Check


def refusal(verdict: str | bool | None) -> str | None:
    """Why a predicate refuses, None where it accepts. Predicates answer None or a reason; older ones True or False."""
    if verdict is None or isinstance(verdict, str):
        return verdict
    return None if verdict else "the predicate of the library refuses it"


def outline_matches(
    match: Callable[[Expr], Bindings | None],
    expr: Expr,
    attrs: dict[str, object] | None = None,
    check: Check | None = None,
) -> Expr:
    """Put matches into functions with the given attributes, the last in the graph first; matches never overlap.

    `match` says which pattern matched what below an expression, or None where it does not match.

    What a wildcard or variable pattern matched becomes an argument; constants matched by is_constant go inside. A match
    whose inner values are used elsewhere too is left alone.
    """
    order = post_order(expr, not_primitive)
    position = {id(e): k for k, e in enumerate(order)}
    used_by = users(order)
    taken: set[int] = set()
    groups: dict[int, list[Expr]] = {}
    for root in reversed(order):
        bindings = match(root) if id(root) not in taken else None
        inside = _inner_nodes(bindings) if bindings is not None else {}
        if id(root) not in inside or inside.keys() & taken or _leaks(inside, root, used_by):
            continue
        if check is None or refusal(check(root)) is None:
            taken |= {key for key, e in inside.items() if not isinstance(e, Constant)}  # each match has its own copy
            groups[id(root)] = sorted(inside.values(), key=lambda e: position[id(e)])
    return _with_groups(order, groups, attrs or {}) if groups else expr


def _leaks(inside: dict[int, Expr], root: Expr, used_by: dict[int, list[Expr]]) -> bool:
    """Whether a value other than the root's is used outside; constants may be, they are copied."""
    inner = (e for e in inside.values() if e is not root and not isinstance(e, Constant))
    return any(id(user) not in inside for e in inner for user in used_by.get(id(e), ()))


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
    inner: dict[int, Expr] = {id(e): e for e in members if isinstance(e, Constant | Function)}
    params: list[Var] = []
    args: list[Expr] = []

    def local(expr: Expr) -> Expr:
        if id(expr) not in inner:
            params.append(Var(f"p{len(params)}", _type_if_known(expr)))
            args.append(memo.get(id(expr), expr))
            inner[id(expr)] = params[-1]
        return inner[id(expr)]

    for expr in members:
        if not isinstance(expr, Constant | Function):
            inner[id(expr)] = map_children(expr, local)
    names = "".join(f"{name}_" for e in members for name in _labels(e))
    pairs = (*attrs.items(), ("PartitionedFromPattern", names))
    root = members[-1]
    return Call(Function(tuple(params), inner[id(root)], _type_if_known(root), pairs), tuple(args), None, None)


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


def _type_if_known(expr: Expr) -> Type | None:
    """The type of an expression; None below variables that have none yet."""
    return None if has_untyped(expr) else expr.checked_type
