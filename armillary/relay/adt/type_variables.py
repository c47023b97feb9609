"""The type variables of a type or of an expression: all, those that a function binds, those that nothing binds.

In: a type, or an expression with the types that are written in it. Out: lists without repetition, in the order in which
they are first met. Invariant: a variable is its name (see relay/adt/types.py), so one that a function binds anywhere is
bound everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.adt.types import TypeVar, parts
from armillary.relay.expr import Expr, Function, Var
from armillary.relay.types import FuncType, Type
from armillary.relay.walk import post_order

Item = Type | Expr


@boundary("all_type_vars", arguments=True)
def all_type_vars(expr: Item, mod: IRModule | None = None) -> list[Type]:
    """Every type variable."""
    del mod  # variables are found in what is written
    return list(dict.fromkeys(v for v, _ in _met(expr)))


@boundary("bound_type_vars", arguments=True)
def bound_type_vars(expr: Item, mod: IRModule | None = None) -> list[Type]:
    """The parameters of polymorphic functions and of their types."""
    del mod
    return list(dict.fromkeys(v for v, is_bound in _met(expr) if is_bound))


@boundary("free_type_vars", arguments=True)
def free_type_vars(expr: Item, mod: IRModule | None = None) -> list[Type]:
    """Type variables that no function binds."""
    bound = bound_type_vars(expr, mod)
    return [v for v in all_type_vars(expr, mod) if v not in bound]


def _met(item: Item) -> Iterator[tuple[Type, bool]]:
    """Type variables with whether they stand where a function binds them."""
    if isinstance(item, Type):
        yield from _inside(item)
    elif isinstance(item, Expr):
        for e in post_order(item):
            if isinstance(e, Function):
                yield from ((v, True) for v in e.type_params)
            written = e.type_annotation if isinstance(e, Var) else e.ret_type if isinstance(e, Function) else None
            if written is not None:
                yield from _inside(written)
    else:
        raise TypeMismatch(f"expected a type or a relay expression, got {type(item).__name__}")


def _inside(ty: Type) -> Iterator[tuple[Type, bool]]:
    if isinstance(ty, TypeVar):
        yield ty, False
    if isinstance(ty, FuncType):
        yield from ((v, True) for v in ty.type_params or ())
    for part in parts(ty):
        yield from _inside(part)
