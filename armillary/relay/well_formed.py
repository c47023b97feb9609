"""Checks that a function of the graph language is well formed.

In: a relay function and the module it stands in. Out: nothing. Raises ModelError (a variable is free, bound twice or
read outside its scope) or TypeMismatch (a node's type is not what its operator says). Invariant checked: the docstrings
of `relay/expr.py`; every type is derived again, so a pass that copies a type to another node is caught. Used by
`instrument.VerifyIR` after each pass, and as `relay.analysis.well_formed`.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.errors import ArmillaryError, InternalError, ModelError, TypeMismatch
from armillary.ir import BaseFunc, IRModule
from armillary.relay.analysis import free_vars
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Loop, Var
from armillary.relay.infer import infer_type, is_compatible
from armillary.relay.op import Op, is_primitive
from armillary.relay.types import FuncType
from armillary.relay.walk import children, opens_scope, post_order


def verify_function(function: BaseFunc, module: IRModule | None = None) -> None:
    """Raise unless `function` is well formed."""
    if not isinstance(function, Function):
        raise InternalError(f"expected a relay function, got {type(function).__name__}")
    loose = free_vars(function)
    if loose:
        raise ModelError(f"variable %{loose[0].name_hint} is read, but neither a parameter nor bound by a let")
    order = post_order(function)
    _check_bindings(order)
    infer_type(function, module)
    for expr in order:
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            _check_call(expr, expr.op)
        if is_primitive(expr):
            _check_primitive(expr)


def is_well_formed(item: Expr | IRModule) -> bool:
    """Whether an expression, or every relay function of a module, is well formed."""
    try:
        if isinstance(item, IRModule):
            for _, function in item.items():
                if isinstance(function, Function):
                    verify_function(function, item)
        else:
            verify_function(item if isinstance(item, Function) else Function(tuple(free_vars(item)), item))
    except ArmillaryError:
        return False
    return True


def _check_bindings(order: list[Expr]) -> None:
    """Each variable is bound at one place."""
    bound: set[int] = set()
    for expr in order:
        variables: Sequence[Expr] = expr.params if isinstance(expr, Function) else ()
        if isinstance(expr, Let) or opens_scope(expr):  # a clause binds what its pattern names
            variables = (expr.var,) if isinstance(expr, Let) else children(expr)[:-1]
        for var in (v for v in variables if isinstance(v, Var)):
            if id(var) in bound:
                raise ModelError(
                    f"variable %{var.name_hint} is bound twice", hint="each let, parameter and pattern has its own one"
                )
            bound.add(id(var))


def _check_call(expr: Call, op: Op) -> None:
    if op.attrs_class is not None and not isinstance(expr.attrs, op.attrs_class):
        raise TypeMismatch(f"{op.name}: its attributes are {expr.attrs!r}, wanted {op.attrs_class.__name__}")
    derived = op.infer_type(expr.attrs, [a.checked_type for a in expr.args])
    if not is_compatible(derived, expr.checked_type):
        raise TypeMismatch(f"{op.name}: the call is marked {expr.checked_type}, its operator gives {derived}")


def _check_primitive(function: Expr) -> None:
    """A kernel is straight-line: operators, tuples, its parameters and constants."""
    assert isinstance(function, Function), "is_primitive accepts functions only"
    for expr in post_order(function.body):
        if isinstance(expr, Let | If | Loop) or (isinstance(expr, Function) and not expr.get_attr("Composite")):
            raise ModelError(f"a primitive function holds a {type(expr).__name__}, which no kernel can be made of")
        if (
            not isinstance(expr, Var | Constant)
            and isinstance(expr.checked_type, FuncType)
            and not isinstance(expr, Function)
        ):
            raise ModelError("a primitive function computes a function")
