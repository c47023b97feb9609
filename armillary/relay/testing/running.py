"""What tests of passes and operators use: type inference, one pass on an expression, random arrays.

In: expressions, passes. Out: expressions with types, as functions' bodies where an expression went in. Invariant: an
expression that is no function comes back as one. Attributes of operators for a while: temp_op_attr.py.
"""

from __future__ import annotations

import numpy as np

from armillary import transform
from armillary.base.boundary import boundary
from armillary.base.node import replace
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function
from armillary.relay.infer import infer_type
from armillary.relay.types import FuncType
from armillary.runtime import Device, cpu
from armillary.runtime.ndarray import NDArray


@boundary("run_opt_pass", arguments=True)
def run_opt_pass(
    expr: Expr,
    opt_pass: transform.Pass | list[transform.Pass] | tuple[transform.Pass, ...],
    import_prelude: bool = False,
) -> Expr:
    """Run passes over one expression, as `main` of a module."""
    del import_prelude
    module = IRModule.from_expr(expr)
    passes = opt_pass if isinstance(opt_pass, list | tuple) else [opt_pass]
    for each in passes:  # asked for by name: of any level, with what the context of the caller says
        module = each(module)
    entry: Function = module["main"]
    return entry if isinstance(expr, Function) else entry.body


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that tests run on here, and a device of each: the CPU."""
    return [("llvm", cpu(0))]


def run_infer_type(expr: Expr) -> Expr:
    """The expression after its types were inferred, a function with its result's; TypeMismatch where ill-typed."""
    ty = infer_type(expr)
    if not isinstance(expr, Function) or expr.ret_type is not None or not isinstance(ty, FuncType):
        return expr
    typed = replace(expr, ret_type=ty.ret_type)
    infer_type(typed)
    return typed


@boundary("rand", arguments=True)
def rand(dtype: str = "float32", *shape: int) -> NDArray:
    """An array of numbers from the standard normal distribution, from numpy's global generator."""
    return NDArray(np.asarray(np.random.standard_normal(shape)).astype(dtype))
