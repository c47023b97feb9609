"""Giving variables their values before compilation.

In: a function or expression, and values by variable or by name. Out: the same with those variables replaced (and, for
a function, no longer parameters). Invariant: names that match no variable, or several, are refused; an array must fit
the variable's declared type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from armillary.base.boundary import boundary
from armillary.base.dtype import dtype_of
from armillary.errors import TypeMismatch
from armillary.ir import GlobalVar
from armillary.relay.expr import Call, Constant, Expr, Function, Var, const
from armillary.relay.infer import is_compatible
from armillary.relay.types import TensorType, Type
from armillary.relay.walk import rewrite, substitute


@boundary("bind", arguments=True)
def bind(expr: Expr, values: Mapping[Var | str, object]) -> Expr:  # Var or name -> expression, array or number
    """Replace variables; a function loses the parameters that are bound."""
    if isinstance(expr, Function):
        return _bind_function(expr, {p: values[p] for p in expr.params if p in values} | dict(_by_name(expr, values)))
    bindings = {id(v): _checked(v, value) for v, value in values.items() if isinstance(v, Var)}
    return substitute(expr, bindings)


@boundary("bind_params_by_name", arguments=True)
def bind_params_by_name(function: Function, params: Mapping[str, object]) -> Function:
    """Bind parameters to arrays by name; entries that name no parameter are ignored."""
    return _bind_function(function, _by_name(function, params))


def bind_types(function: Function, types: Sequence[Type]) -> Function:
    """The function with parameters of other types: those of values, for dimensions that were unknown."""
    for param, ty in zip(function.params, types, strict=True):
        if not is_compatible(ty, param.checked_type):
            raise TypeMismatch(f"%{param.name_hint}: got {ty}, wanted {param.checked_type}", span=param.span)
    return with_types(function, types)


def with_types(function: Function, types: Sequence[Type]) -> Function:
    """The function with parameters of these types; its result's type is found anew."""
    variables = [
        param if ty == param.type_annotation else Var(param.name_hint, ty, param.span)
        for param, ty in zip(function.params, types, strict=True)
    ]
    changed = {id(old): new for old, new in zip(function.params, variables, strict=True) if new is not old}
    if not changed:
        return function
    body = rewrite(substitute(function.body, dict(changed)), _untyped)
    return Function(tuple(variables), body, None, function.attrs, function.span)


def _untyped(expr: Expr) -> Expr | None:
    """A call of a global function without the type it had: its arguments are of other types now."""
    if not isinstance(expr, Call) or not isinstance(expr.op, GlobalVar):
        return None
    return Call(expr.op, expr.args, expr.attrs, expr.span)


def with_own_names(function: Function) -> Function:
    """The function with a name of its own for each parameter."""
    taken: set[str] = set()
    variables: list[Var] = []
    for number, param in enumerate(function.params):
        name = param.name_hint if param.name_hint not in taken else f"{param.name_hint}.{number}"
        taken.add(name)
        variables.append(param if name == param.name_hint else Var(name, param.checked_type, param.span))
    changed: dict[int, Expr] = {id(a): b for a, b in zip(function.params, variables, strict=True) if a is not b}
    if not changed:
        return function
    return Function(tuple(variables), substitute(function.body, changed), None, function.attrs, function.span)


def _by_name(
    function: Function, values: Mapping[Var | str, object] | Mapping[Var, object] | Mapping[str, object]
) -> dict[Var, object]:
    names: dict[str, Var] = {}
    for p in function.params:
        if p.name_hint in names and p.name_hint in values:
            raise TypeMismatch(f"two parameters are called %{p.name_hint}; binding by name is ambiguous")
        names[p.name_hint] = p
    return {names[name]: value for name, value in values.items() if isinstance(name, str) and name in names}


def _bind_function(function: Function, values: Mapping[Var, Any]) -> Function:
    if not values:
        return function
    bindings = {id(var): _checked(var, value) for var, value in values.items()}
    body = substitute(function.body, bindings)
    retained = tuple(p for p in function.params if id(p) not in bindings)
    return Function(retained, body, function.ret_type, function.attrs, function.span)


def _checked(var: Var, value: object) -> Expr:
    if isinstance(value, Expr) and not isinstance(value, Constant):
        return value
    constant = value if isinstance(value, Constant) else _as_declared(var, const(value))
    if var.type_annotation is not None and not is_compatible(constant.checked_type, var.type_annotation):
        raise TypeMismatch(f"%{var.name_hint}: got {constant.checked_type}, wanted {var.type_annotation}")
    return constant


def _as_declared(var: Var, constant: Constant) -> Constant:
    """Numbers in the dtype of their variable where that holds each of them: numpy's own dtypes are 64 bits wide."""
    ty = var.type_annotation
    if not isinstance(ty, TensorType) or ty.dtype == dtype_of(constant.data):
        return constant
    with np.errstate(all="ignore"):
        cast = constant.data.astype(ty.dtype.numpy)
    return Constant(cast) if np.array_equal(cast, constant.data) else constant
