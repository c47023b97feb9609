"""Writing let-bound expressions as a script does: `let`, `if_scope`, `else_scope`, `ret`.

In: names and values, in order. Out: with `get`, one expression of nested lets. Invariant: a scope ends with exactly one
`ret`; an if has both its scopes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from armillary.errors import TypeMismatch
from armillary.relay.expr import Expr, If, Let, Tuple, Var, as_expr
from armillary.relay.types import Type


class _Scope:
    def __init__(self) -> None:
        self.bound: list[tuple[Var, Expr]] = []
        self.result: Expr | None = None


class ScopeBuilder:
    """`x = sb.let("x", value)`, `sb.ret(x)`, `sb.get()`."""

    def __init__(self) -> None:
        self._scopes = [_Scope()]
        self._pending: dict[int, tuple[Expr, Expr]] = {}  # by depth: condition and true branch of an open if

    def let(self, var: Any, value: object) -> Var:  # Any: a Var, a name, or (name, type)
        """Bind a value in the present scope."""
        if isinstance(var, tuple):
            name, annotation = var
            var = Var(name, annotation if isinstance(annotation, Type) else None)
        bound = Var(var) if isinstance(var, str) else var
        self._scopes[-1].bound.append((bound, as_expr(value)))
        return bound

    def ret(self, value: object) -> None:  # an expression, or a tuple of them
        """Set what the present scope is."""
        if self._scopes[-1].result is not None:
            raise TypeMismatch("a scope returns one value, and this one has one")
        self._scopes[-1].result = Tuple(tuple(map(as_expr, value))) if isinstance(value, tuple) else as_expr(value)

    @contextmanager
    def if_scope(self, cond: Expr) -> Iterator[None]:
        """The true branch."""
        self._scopes.append(_Scope())
        yield
        value = self._closed()
        self._pending[len(self._scopes)] = (cond, value)

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """The false branch; the if is then the value of the scope around it."""
        if len(self._scopes) not in self._pending:
            raise TypeMismatch("else_scope without an if_scope before it")
        self._scopes.append(_Scope())
        yield
        second = self._closed()
        cond, first = self._pending.pop(len(self._scopes))
        self.ret(If(cond, first, second))

    def get(self) -> Expr:
        """The whole expression."""
        if len(self._scopes) != 1 or self._pending:
            raise TypeMismatch("an if_scope has no else_scope")
        return self._value(self._scopes[0])

    def _closed(self) -> Expr:
        return self._value(self._scopes.pop())

    def _value(self, scope: _Scope) -> Expr:
        if scope.result is None:
            raise TypeMismatch("a scope ends with ret(value), and this one has none")
        value = scope.result
        for var, bound in reversed(scope.bound):
            value = Let(var, bound, value)
        return value
