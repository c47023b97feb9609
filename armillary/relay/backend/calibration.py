"""`relay.analysis.get_calibration_data`: what goes in and out of each function that is meant for a library.

In: a partitioned module and arrays for `main`. Out: for each such function its inputs and outputs, as NDArrays.
Invariant: values are those of the reference interpreter; a function that is called more than once is refused, since it
would have several of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.aliases import Array
from armillary.base.lazy import deferred
from armillary.errors import UnsupportedError
from armillary.ir import GlobalVar, IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, Function, Tuple, TupleGetItem
from armillary.relay.infer import check_module
from armillary.relay.types import TupleType
from armillary.relay.walk import post_order

if TYPE_CHECKING:
    from armillary.runtime import NDArray

with deferred():
    from armillary import runtime


def get_calibration_data(mod: IRModule, data: Mapping[str, Array]) -> dict[GlobalVar, dict[str, list[NDArray]]]:
    """Inputs and outputs of each function with a Compiler, for these inputs of `main`."""
    check_module(mod)
    main: Function = mod["main"]
    calls = _calls(mod, main)
    values: list[Expr] = [part for call in calls.values() for e in (*call.args, call) for part in _parts(e)]
    module = mod.copy()
    module["main"] = Function(main.params, Tuple(tuple(values)))
    results = iter(evaluate(module, [np.asarray(_array(data[p.name_hint])) for p in main.params]))
    result: dict[GlobalVar, dict[str, list[NDArray]]] = {}
    for var, call in calls.items():
        inputs = [runtime.NDArray(np.asarray(next(results))) for arg in call.args for _ in _parts(arg)]
        result[var] = {"inputs": inputs, "outputs": [runtime.NDArray(np.asarray(next(results))) for _ in _parts(call)]}
    return result


def _array(value: Array) -> Array:
    return value.numpy() if hasattr(value, "numpy") else value


def _calls(mod: IRModule, main: Function) -> dict[GlobalVar, Call]:
    """The call of each function that is meant for a library."""
    result: dict[GlobalVar, Call] = {}
    for expr in post_order(main.body):
        if isinstance(expr, Call) and isinstance(expr.op, GlobalVar) and mod[expr.op].get_attr("Compiler"):
            if expr.op in result:
                raise UnsupportedError(f"get_calibration_data: @{expr.op.name_hint} is called more than once")
            result[expr.op] = expr
    return result


def _parts(expr: Expr) -> list[Expr]:
    ty = expr.checked_type
    return [TupleGetItem(expr, k) for k in range(len(ty.fields))] if isinstance(ty, TupleType) else [expr]
