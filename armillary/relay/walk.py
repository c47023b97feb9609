"""Iterative walks over the graph language that keep sharing.

In: an expression. Out: its nodes in post order, a rewritten expression, or the scope each node belongs to. Invariant:
nothing here recurses, a shared node is visited and rewritten once, and unchanged parts are returned as they are.
The generic walks of `armillary.base.node` do the same for every language; these know the graph's nodes and are faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ir import GlobalVar
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Loop, Tuple, TupleGetItem, Var, keep_device
from armillary.relay.op import Op

E = TypeVar("E", bound=Expr)
Rule = Callable[[Expr], Expr | None]


def _call_children(e: Call) -> Sequence[Expr]:
    return e.args if type(e.op) is Op or isinstance(e.op, GlobalVar) else (*e.args, e.op)


_CHILDREN: dict[type, Callable[..., Sequence[Expr]]] = {
    Call: _call_children,
    Tuple: lambda e: e.fields,
    TupleGetItem: lambda e: (e.tuple_value,),
    Let: lambda e: (e.value, e.var, e.body),
    If: lambda e: (e.cond, e.true_branch, e.false_branch),
    Loop: lambda e: (e.limit, e.going, *e.args, e.body),
    Function: lambda e: (*e.params, e.body),
}


_ADDED: set[type] = set()  # nodes that only the interpreter knows (relay/adt)
_EFFECTS: set[type] = set()  # those whose value depends on when they are computed
_OPENS: set[type] = set()  # those whose last child is a scope


def register(
    kind: type,
    inside: Callable[..., Sequence[Expr]],
    rebuild: Callable[..., Expr],
    opens: bool = False,
    has_effect: bool = False,
) -> None:
    """Tell the walks of a node's class: its children, how it is rebuilt, whether its last child is a scope."""
    _CHILDREN[kind], _REBUILD[kind] = inside, rebuild
    _ADDED.add(kind)
    if has_effect:
        _EFFECTS.add(kind)
    if opens:
        _OPENS.add(kind)


def is_interpreted(expr: Expr) -> bool:
    """Whether no kernel is made of a node: it is of a data type, a cell, a function that calls itself."""
    if isinstance(expr, Let) and isinstance(expr.value, Function):
        return any(e is expr.var for e in post_order(expr.value))
    return type(expr) in _ADDED


def has_effect(expr: Expr) -> bool:
    """Whether a node reads, makes or writes a cell."""
    return type(expr) in _EFFECTS


def opens_scope(expr: Expr) -> bool:
    """Whether the last child of a node is a scope, for which the others are bound."""
    return type(expr) in _OPENS


def children(expr: Expr) -> Sequence[Expr]:
    """The expressions directly inside: not operators and global names."""
    rule = _CHILDREN.get(type(expr))
    return rule(expr) if rule is not None else ()


def post_order(root: Expr, enter: Callable[[Expr], bool] | None = None) -> list[Expr]:
    """Every expression below `root` once, children first; `enter(e)` False keeps out of e's children.

    A function keeps the order that passes ask for, one after another: most of them change nothing.
    """
    if enter is not not_primitive or type(root) is not Function:
        return _walked(root, enter)
    try:
        inside: list[Expr] = root._inner_order  # type: ignore[attr-defined]
    except AttributeError:
        inside = _walked(root, enter)[:-1]  # with itself in it, a function would not end with its last use
        object.__setattr__(root, "_inner_order", inside)
    return [*inside, root]


def _walked(root: Expr, enter: Callable[[Expr], bool] | None) -> list[Expr]:
    if root is None:
        raise TypeMismatch("got None, wanted an expression")
    seen: set[int] = set()
    order: list[Expr] = []
    stack: list[Expr | None] = [root]  # behind None stands an expression whose children are in order
    while stack:
        expr = stack.pop()
        if expr is None:
            order.append(stack.pop())  # type: ignore[arg-type]
        elif id(expr) not in seen:
            seen.add(id(expr))
            inner = children(expr) if enter is None or enter(expr) else ()
            if inner:
                stack += (expr, None)
                stack += inner[::-1]
            else:
                order.append(expr)
    return order


def _same(new: Sequence[Expr], old: Sequence[Expr]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))


def _rebuild_call(e: Call, get: Callable[[Expr], Expr]) -> Expr:
    args = tuple(map(get, e.args))
    named = type(e.op) is Op or isinstance(e.op, GlobalVar)
    op = e.op if named else get(e.op)
    if op is e.op and _same(args, e.args):
        return e
    result = Call(op, args, e.attrs, e.span)
    return copy_type(result, e) if isinstance(op, GlobalVar) else result


def _rebuild_tuple(e: Tuple, get: Callable[[Expr], Expr]) -> Expr:
    fields = tuple(map(get, e.fields))
    return e if _same(fields, e.fields) else Tuple(fields, e.span)


def _rebuild_item(e: TupleGetItem, get: Callable[[Expr], Expr]) -> Expr:
    value = get(e.tuple_value)
    return e if value is e.tuple_value else TupleGetItem(value, e.index, e.span)


def _rebuild_let(e: Let, get: Callable[[Expr], Expr]) -> Expr:
    var, value, body = get(e.var), get(e.value), get(e.body)
    if _same((var, value, body), (e.var, e.value, e.body)):
        return e
    return Let(var, value, body, e.span) if isinstance(var, Var) else body


def _rebuild_if(e: If, get: Callable[[Expr], Expr]) -> Expr:
    new = (get(e.cond), get(e.true_branch), get(e.false_branch))
    return e if _same(new, (e.cond, e.true_branch, e.false_branch)) else If(*new, e.span)


def _rebuild_loop(e: Loop, get: Callable[[Expr], Expr]) -> Expr:
    body, limit, going, args = get(e.body), get(e.limit), get(e.going), tuple(map(get, e.args))
    if _same((body, limit, going, *args), (e.body, e.limit, e.going, *e.args)):
        return e
    return Loop(body, limit, going, args, e.states, e.trips, e.span)


def _rebuild_function(e: Function, get: Callable[[Expr], Expr]) -> Expr:
    params, body = tuple(map(get, e.params)), get(e.body)
    if body is e.body and _same(params, e.params):
        return e
    retained = tuple(p for p in params if isinstance(p, Var))
    return keep_device(Function(retained, body, e.ret_type, e.attrs, e.span, e.type_params), e)


_REBUILD: dict[type, Callable[..., Expr]] = {
    Call: _rebuild_call,
    Tuple: _rebuild_tuple,
    TupleGetItem: _rebuild_item,
    Let: _rebuild_let,
    If: _rebuild_if,
    Loop: _rebuild_loop,
    Function: _rebuild_function,
}


def map_children(expr: Expr, get: Callable[[Expr], Expr]) -> Expr:
    """`expr` with `get` applied to each direct child; `expr` itself when nothing changed."""
    rebuild = _REBUILD.get(type(expr))
    return rebuild(expr, get) if rebuild is not None else expr


def rewrite(
    root: Expr, rule: Rule, enter: Callable[[Expr], bool] | None = None, memo: dict[int, Expr] | None = None
) -> Expr:
    """Rebuild bottom-up: `rule` sees each node with its children already rewritten; None keeps it.

    `memo` maps the id of each old node to its new one, for rules that need to look.
    """
    memo = {} if memo is None else memo

    def get(expr: Expr) -> Expr:
        return memo.get(id(expr), expr)

    moved = {key for key, new in memo.items() if id(new) != key}  # what has another form now
    for expr in post_order(root, enter):
        is_unchanged = not moved or moved.isdisjoint(map(id, children(expr)))
        rebuilt = expr if is_unchanged else map_children(expr, get)
        changed = rule(rebuilt)
        result = memo[id(expr)] = rebuilt if changed is None else changed
        if result is not expr:
            moved.add(id(expr))
    return memo[id(root)]


def substitute(root: Expr, values: dict[int, Expr]) -> Expr:
    """`root` with the nodes whose ids are keys replaced."""
    memo = dict(values)
    for expr in post_order(root, lambda e: id(e) not in values):
        if id(expr) not in values:
            memo[id(expr)] = map_children(expr, lambda e: memo.get(id(e), e))
    return memo[id(root)]


def open_lets(order: Sequence[Expr], lets: Mapping[int, Let], then: Callable[[Expr], Expr] = lambda e: e) -> Expr:
    """The last of `order` (a post-order) with the variables of `lets` (by id) replaced by their values, once each.

    `then` is applied to every other rebuilt node.
    """
    memo: dict[int, Expr] = {}

    def get(expr: Expr) -> Expr:
        return memo.get(id(expr), expr)

    for expr in order:  # the value of a let comes before its variable, the body after
        if isinstance(expr, Var) and id(expr) in lets:
            memo[id(expr)] = get(lets[id(expr)].value)
        elif isinstance(expr, Let) and id(expr.var) in lets:
            memo[id(expr)] = get(expr.body)
        else:
            memo[id(expr)] = then(map_children(expr, get))
    return memo[id(order[-1])]


def copy_type(new: E, old: Expr) -> E:
    """Keep the inferred type of a node in the node that stands for it now."""
    if hasattr(old, "_type") and not hasattr(new, "_type"):
        object.__setattr__(new, "_type", old.checked_type)
    return new


def is_leaf(expr: Expr) -> bool:
    """Whether an expression computes nothing: a variable or a constant."""
    return isinstance(expr, Var | Constant)


def not_primitive(expr: Expr) -> bool:
    """For `enter`: stay out of functions that already became one kernel, or belong to a library."""
    if not isinstance(expr, Function):
        return True
    return not (expr.get_attr("Primitive", 0) or expr.get_attr("Composite") or expr.get_attr("Compiler"))


# --- scopes ---------------------------------------------------------------------------------------------------------


@record(frozen=False, eq=False)
class Scope:
    """A region evaluated as a unit: a function's body, a branch, or a let inside an expression."""

    root: Expr
    parent: Scope | None
    depth: int


def _common(a: Scope, b: Scope) -> Scope:
    while a is not b:
        if a.depth >= b.depth and a.parent is not None:
            a = a.parent
        elif b.parent is not None:
            b = b.parent
        else:
            break
    return a


def _uses(expr: Expr, scope: Scope) -> Iterator[tuple[Expr, Scope]]:
    match expr:
        case Function():
            yield expr.body, Scope(expr.body, scope, scope.depth + 1)
        case If():
            yield expr.cond, scope
            yield expr.true_branch, Scope(expr.true_branch, scope, scope.depth + 1)
            yield expr.false_branch, Scope(expr.false_branch, scope, scope.depth + 1)
        case Let():
            inner = scope if scope.root is expr else Scope(expr, scope, scope.depth + 1)
            yield expr.value, inner
            yield expr.var, inner
            if inner.root is expr:
                inner.root = expr.body
            yield expr.body, inner
        case _ if opens_scope(expr):
            *head, last = children(expr)
            yield from ((child, scope) for child in head)
            yield last, Scope(last, scope, scope.depth + 1)
        case _:
            yield from ((child, scope) for child in children(expr))


def scopes(root: Expr) -> tuple[dict[int, Scope], dict[tuple[int, int], Scope]]:
    """The scope of each node (the deepest that holds all its uses), and of each (node, branch number)."""
    top = Scope(root, None, 0)
    of: dict[int, Scope] = {id(root): top}
    inner: dict[tuple[int, int], Scope] = {}
    for expr in reversed(post_order(root)):
        if is_leaf(expr):
            continue
        for k, (child, scope) in enumerate(_uses(expr, of[id(expr)])):
            inner[id(expr), k] = scope
            have = of.get(id(child))
            of[id(child)] = scope if have is None else _common(have, scope)
    return of, inner


def users(order: Iterable[Expr]) -> dict[int, list[Expr]]:
    """For each node, those that use it."""
    result: dict[int, list[Expr]] = {}
    for expr in order:
        for child in children(expr):
            result.setdefault(id(child), []).append(expr)
    return result
