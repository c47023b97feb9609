"""`relay.frontend.common`: what a converter that a script writes asks of the expressions it makes.

In: expressions, the module whose functions they call, parameters by name. Out: the expression with its type, its shape,
its value. Invariant: nothing is rewritten; what depends on an input has no value.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.analysis import free_vars
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, Expr, Function
from armillary.relay.infer import infer_type as infer
from armillary.relay.types import Dim, TensorType

__all__ = ["infer_shape", "infer_type", "infer_value"]


@boundary("frontend.common.infer_type", arguments=True)
def infer_type(node: Expr, mod: IRModule | None = None) -> Expr:
    """The expression, whose `checked_type` is known from now on."""
    infer(node, mod)
    return node


@boundary("frontend.common.infer_shape", arguments=True)
def infer_shape(inputs: Expr, mod: IRModule | None = None) -> tuple[Dim, ...]:
    """The shape of a tensor."""
    ty = infer(inputs, mod)
    if not isinstance(ty, TensorType):
        raise TypeMismatch(f"infer_shape: the expression is {ty}, wanted a tensor")
    return ty.shape


@boundary("frontend.common.infer_value", arguments=True)
def infer_value(input_val: Expr, params: Mapping[str, object], mod: IRModule | None = None) -> Array:
    """The numbers of a tensor that depends on parameters alone; `.numpy()` gives them too."""
    free = free_vars(input_val)
    missing = [v.name_hint for v in free if v.name_hint not in params]
    if missing:
        raise TypeMismatch(f"infer_value: the value of %{missing[0]} is not known", hint="pass it in params")
    values = [params[v.name_hint] for v in free]
    value = evaluate(Function(tuple(free), input_val), values, mod)
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeMismatch(f"infer_value: the expression is a {type(value).__name__}, wanted a tensor")
    return Constant(np.ascontiguousarray(value)).data
