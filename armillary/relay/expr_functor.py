"""Visitors and mutators of Relay expressions, as user classes derive from them.

In: a class with methods such as `visit_call`. Out: what they return; `ExprVisitor` walks, `ExprMutator` rebuilds.
Invariant: each node is visited once; a node whose parts did not change is returned itself. Deep graphs are entered from
the bottom, so their depth costs no Python stack, unless a method of the user's decides where to go. Our own passes use
`relay/walk.py`.
"""

from __future__ import annotations

from typing import Any

from armillary.errors import UnsupportedError
from armillary.ir import GlobalVar
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Loop, Tuple, TupleGetItem, Var
from armillary.relay.op import Op
from armillary.relay.walk import map_children, post_order

_NAMES: dict[type, str] = {
    Call: "call",
    Constant: "constant",
    Function: "function",
    GlobalVar: "global_var",
    If: "if",
    Let: "let",
    Loop: "loop",
    Op: "op",
    Tuple: "tuple",
    TupleGetItem: "tuple_getitem",
    Var: "var",
}
_DATA_TYPES = {  # nodes of relay/adt, which only programs that have them import
    "Clause": "clause",
    "Constructor": "constructor",
    "Match": "match",
    "RefCreate": "ref_create",
    "RefRead": "ref_read",
    "RefWrite": "ref_write",
}
_STEP = 64  # nodes on the longest way that the Python stack takes at once


def _name_of(expr: object) -> str | None:
    """What methods for a node's class are called."""
    return _NAMES.get(type(expr)) or _DATA_TYPES.get(type(expr).__name__)


class ExprFunctor:
    """Calls the method of a node's class: `visit_call(call)`, `visit_var(var)`… and remembers what it returned."""

    def __init__(self) -> None:
        self.memo_map: dict[Any, Any] = {}  # Any: whatever the methods return
        self._depth = 0

    def visit(self, expr: object) -> Any:  # Any: an expression; what its method returns
        """The value of a node, computed once."""
        if expr in self.memo_map:
            return self.memo_map[expr]
        name = _name_of(expr)
        if name is None:
            raise UnsupportedError(f"{type(self).__name__} has no method for {type(expr).__name__}")
        self._depth += 1
        try:
            result = self.memo_map[expr] = getattr(self, f"visit_{name}")(expr)
        finally:
            self._depth -= 1
        return result

    def _unknown(self, expr: object) -> object:  # see visit
        name = _name_of(expr)
        raise UnsupportedError(f"{type(self).__name__} defines no visit_{name}", hint=f"add a method visit_{name}")

    visit_call = visit_constant = visit_function = visit_global_var = visit_if = visit_let = visit_loop = _unknown
    visit_op = visit_tuple = visit_tuple_getitem = visit_var = _unknown
    visit_clause = visit_constructor = visit_match = visit_ref_create = visit_ref_read = visit_ref_write = _unknown


class ExprVisitor(ExprFunctor):
    """Walks everything; override a method to look at nodes of a class, and call `super()` to go on below them."""

    def visit(self, expr: object) -> Any:  # Any: see ExprFunctor.visit
        if self._depth and self._depth % _STEP == 0 and isinstance(expr, Expr):
            for part in post_order(expr):
                ExprFunctor.visit(self, part)
        return super().visit(expr)

    def _below(self, expr: object) -> Any:  # Any: see ExprFunctor.visit
        if isinstance(expr, Call):
            self.visit(expr.op)
        if isinstance(expr, Expr):
            map_children(expr, self._seen)
        return None

    def _seen(self, part: Expr) -> Expr:
        self.visit(part)
        return part

    def _leaf(self, expr: object) -> Any:  # Any: see ExprFunctor.visit
        return None

    visit_call = visit_function = visit_if = visit_let = visit_loop = visit_tuple = visit_tuple_getitem = _below
    visit_clause = visit_match = visit_ref_create = visit_ref_read = visit_ref_write = _below
    visit_constructor = visit_constant = visit_global_var = visit_op = visit_var = _leaf


class ExprMutator(ExprFunctor):
    """Rebuilds what changed; override a method to return something else for nodes of a class."""

    def visit(self, expr: object) -> Any:  # Any: see ExprFunctor.visit
        if self._depth and self._depth % _STEP == 0 and isinstance(expr, Expr):
            for part in post_order(expr):
                ExprFunctor.visit(self, part)
        return super().visit(expr)

    def _rebuilt(self, expr: Any) -> Expr:  # Any: see ExprFunctor.visit
        return map_children(expr, self.visit)

    def _same(self, expr: object) -> Any:  # Any: see ExprFunctor.visit
        return expr

    visit_call = visit_function = visit_if = visit_let = visit_loop = visit_tuple = visit_tuple_getitem = _rebuilt
    visit_clause = visit_match = visit_ref_create = visit_ref_read = visit_ref_write = _rebuilt
    visit_constructor = visit_constant = visit_global_var = visit_op = visit_var = _same
