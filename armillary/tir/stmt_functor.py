"""Walks over loops for users' passes: `post_order_visit`, `ir_transform`, `substitute`.

In: a statement (or expression) and functions of the user's. Out: nothing, or a rebuilt statement. Invariant: parts come
before what holds them; a statement whose parts did not change is returned itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from armillary.base.boundary import boundary
from armillary.base.node import Node, map_children, post_order
from armillary.tir.buffer_access import data_of
from armillary.tir.expr import Expr, Var
from armillary.tir.stmt import Buffer, PrimFunc, Stmt
from armillary.tir.substitute import REBUILD, map_stmt, substitute_expr
from armillary.tir.substitute import substitute as _substitute

__all__ = ["ir_transform", "post_order_visit", "pre_order_visit", "renew_defs", "substitute"]


def post_order_visit(stmt: Node, fvisit: Callable[[Node], object]) -> None:
    """Call a function for every node, parts first."""
    for item in post_order(stmt):
        fvisit(item)


def pre_order_visit(stmt: Node, fvisit: Callable[[Node], object]) -> None:
    """Call a function for every node, before its parts; False leaves the parts out."""
    stack: list[Node] = [stmt]
    while stack:
        item = stack.pop()
        if fvisit(item):
            parts = [v for n in item._fields for v in _nodes(getattr(item, n))]
            stack.extend(reversed(parts))


@boundary("renew_defs", arguments=True)
def renew_defs(func: PrimFunc) -> PrimFunc:
    """The same function over variables, buffers and axes of its own."""
    buffers = [item for item in post_order(func) if isinstance(item, Buffer)]
    renamed: dict[Node, Node] = {}
    for buffer in buffers:
        _renew(buffer, renamed)
    for buffer in buffers:
        fresh = renamed[buffer]
        assert isinstance(fresh, Buffer), "a buffer stays one"
        renamed[data_of(buffer)] = data_of(fresh)
    _renew(func, renamed)
    renewed = renamed[func]
    assert isinstance(renewed, PrimFunc), "a function stays one"
    return renewed


def _renew(root: Node, renewed: dict[Node, Node]) -> None:
    """Add what stands for each node under `root`."""
    for item in post_order(root):
        if item in renewed:
            continue
        if isinstance(item, Var):
            renewed[item] = Var(item.name, item.dtype)
            continue
        rebuilt = map_children(item, renewed.__getitem__)
        if rebuilt is item and isinstance(item, Buffer):
            rebuilt = Buffer(*(getattr(item, name) for name in item._fields))
        renewed[item] = rebuilt


def _nodes(value: object) -> Sequence[Node]:  # a field's value
    if isinstance(value, Node):
        return [value]
    return [v for v in value if isinstance(v, Node)] if isinstance(value, tuple) else []


@boundary("substitute")
def substitute(node: Any, vmap: Mapping[Var, Any]) -> Any:  # Any: a statement or an expression
    """Put expressions in the place of variables."""
    return substitute_expr(node, vmap) if isinstance(node, Expr) else _substitute(node, vmap)


@boundary("ir_transform")
def ir_transform(
    stmt: Stmt,
    preorder: Callable[[Any], Any] | None,
    postorder: Callable[[Any], Any] | None,
    only_enable: Sequence[str] | None = None,
) -> Stmt:
    """Rebuild statements and expressions: `preorder` may replace one (its parts are not asked then), `postorder` what
    is left with its new parts; None leaves it.

    `only_enable` names the classes that the functions are asked about, as "tir.For".
    """
    names = {name.removeprefix("tir.") for name in only_enable or ()}

    def asked(rule: Callable[[Any], Any] | None, item: object) -> Any:
        return rule(item) if rule is not None and (not names or type(item).__name__ in names) else None

    memo: dict[int, tuple[Expr, Expr]] = {}

    def expression(item: Expr) -> Expr:
        known = memo.get(id(item))
        if known is not None:
            return known[1]
        result: Expr | None = asked(preorder, item)
        if result is None:
            changed = REBUILD[type(item)](item, expression)
            last: Expr | None = asked(postorder, changed)
            result = changed if last is None else last
        memo[id(item)] = (item, result)
        return result

    def statement(item: Stmt) -> Stmt:
        result = asked(preorder, item)
        if result is not None:
            return result  # type: ignore[no-any-return]
        changed = map_stmt(item, expression, statement)
        last = asked(postorder, changed)
        return changed if last is None else last

    return statement(stmt)
