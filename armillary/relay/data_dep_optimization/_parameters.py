"""Rewriting calls whose weight is a parameter of known values or a constant.

In: a function, its parameters, a rule that sees a call and the values of its weight. Out: the function with the calls
that the rule gave instead, and its parameters: those that are still read and those that the rule named anew.
Invariant: a weight that two calls read may be rewritten in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from armillary.base.aliases import Array
from armillary.errors import TypeMismatch
from armillary.ops.shape.shape import transpose
from armillary.relay.analysis import free_vars
from armillary.relay.expr import Call, Constant, Expr, Function, Var, var
from armillary.relay.op import is_call
from armillary.relay.walk import post_order, rewrite

Params = Mapping[str, object]  # numpy arrays and runtime tensors
Rewritten = tuple[Function, dict[str, Array]]
New = Callable[[str, Array], Expr]  # an array as the next parameter (or constant) of a weight
Rule = Callable[[Call, Array, New], Expr | None]


def rewritten(what: str, function: object, params: Params, names: tuple[str, ...], rule: Rule) -> Rewritten:
    """The function and parameters with `rule` applied to calls of the named operators."""
    if not isinstance(function, Function) or not isinstance(params, Mapping):
        got = f"{type(function).__name__} and {type(params).__name__}"
        raise TypeMismatch(f"{what}: got {got}, wanted a relay function and its parameters by name")
    values = {name: np.asarray(v.numpy() if hasattr(v, "numpy") else v) for name, v in params.items()}
    added: dict[str, Array] = {}
    changed: dict[str, Expr] = {}

    def visit(call: Expr) -> Expr | None:
        if not isinstance(call, Call) or not is_call(call, *names):
            return None
        weight, is_transposed = call.args[1], False
        if is_call(weight, transpose.name):
            weight, is_transposed = weight.args[0], True
        array = weight.data if isinstance(weight, Constant) else None
        if isinstance(weight, Var):
            array = values.get(weight.name_hint)
        if array is None:
            return None
        axes = tuple(call.args[1].attrs.axes or ()) if is_transposed and isinstance(call.args[1], Call) else ()
        array = np.transpose(array, axes or None) if is_transposed else array
        name = weight.name_hint if isinstance(weight, Var) else ""

        def new(ending: str, held: Array) -> Expr:
            held = np.ascontiguousarray(held)
            if not name:
                return Constant(held)
            key = f"{name}.{ending}"
            if key not in changed:
                changed[key], added[key] = var(key, shape=held.shape, dtype=str(held.dtype)), held
            return changed[key]

        return rule(call, array, new)

    body = rewrite(function.body, visit)
    read = [v for v in post_order(body) if isinstance(v, Var)]
    retained = [p for p in function.params if p.name_hint not in values or any(p is v for v in read)]
    fresh = [v for v in free_vars(body) if not any(v is p for p in function.params)]
    result = Function(tuple(retained + fresh), body, function.ret_type, function.attrs, function.span)
    left = {p.name_hint for p in result.params}
    return result, {name: array for name, array in {**values, **added}.items() if name in left}
