"""Checking gradients against differences, and counting operators.

In: functions. Out: an AssertionError where a gradient differs from a central difference by more than the tolerances.
Invariant: differences are taken in the dtype of the inputs; float64 inputs are the ones worth checking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.base.boundary import boundary
from armillary.base.lazy import deferred
from armillary.errors import TypeMismatch
from armillary.ops.gradient.derive import gradient
from armillary.relay.expr import Call, Function
from armillary.relay.op import Array, Op
from armillary.relay.types import TensorType
from armillary.relay.walk import post_order

with deferred():
    from armillary.driver.executor import create_executor as _create_executor


def random_of_type(ty: TensorType, scale: float = 1.0, mean: float = 0.0) -> Array:
    """Normally distributed numbers of a tensor type."""
    return np.asarray(mean + np.random.standard_normal(ty.static) * scale).astype(ty.dtype.numpy)


@boundary("check_grad", arguments=True)
def check_grad(
    func: Function,
    inputs: Sequence[Array] | None = None,
    test_inputs: Sequence[Array] | None = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    scale: float | None = None,
    mean: float = 0.0,
    mode: str = "higher_order",
    target_devices: Any = None,
    executor_kind: str = "debug",
) -> None:
    """Compare the gradient of the sum of a function's results with central differences of step `eps`.

    `test_inputs` are those of `inputs` that are moved (all by default). float32 inputs are checked in float32, with
    the larger step and tolerances that its precision needs.
    """
    types = [p.checked_type for p in func.params]
    if inputs is None:
        default = 1.0 if scale is None else scale
        inputs = [random_of_type(_tensor(ty), default, mean) for ty in types]
    moved = inputs if test_inputs is None else test_inputs
    if any(x.dtype == np.float32 for x in moved):
        size = max(float(np.sqrt(np.mean(np.square(x)))) for x in moved if x.size)
        eps, atol, rtol = max(eps, 1e-2 * min(1.0, size)), max(atol, 5e-3), max(rtol, 5e-2)
    back = gradient(func, mode=mode)
    for target, device in target_devices or [(None, None)]:
        make = _create_executor(executor_kind, device=device, target=target or "llvm")
        forward, derived = make.evaluate(func), make.evaluate(back)
        _, grads = derived(*inputs)
        for x in moved:
            place = next(k for k, value in enumerate(inputs) if value is x)
            differences = _differences(forward, inputs, place, eps)
            np.testing.assert_allclose(grads[place].numpy(), differences, atol=atol, rtol=rtol)


def _tensor(ty: object) -> TensorType:
    if not isinstance(ty, TensorType):
        raise TypeMismatch(f"check_grad: a parameter is {ty}, wanted a tensor")
    return ty


def _total(result: Any) -> float:
    if isinstance(result, list | tuple) or not hasattr(result, "numpy"):
        return sum(_total(field) for field in result)
    return float(np.sum(result.numpy(), dtype="float64"))


def _differences(forward: Any, inputs: Sequence[Array], place: int, eps: float) -> Array:
    """The slope of the sum of the results along each element of one input."""
    base = np.array(inputs[place])
    result = np.zeros(base.shape, "float64")
    for at in np.ndindex(base.shape):
        totals = []
        for step in (eps, -eps):
            stepped = base.copy()
            stepped[at] += step
            totals.append(_total(forward(*(stepped if k == place else x for k, x in enumerate(inputs)))))
        result[at] = (totals[0] - totals[1]) / (2 * eps)
    return result


@boundary("count_ops", arguments=True)
def count_ops(expr: Any) -> dict[str, int]:  # Any: an expression or function
    """How often each operator is called."""
    counts: dict[str, int] = {}
    for e in post_order(expr):
        if isinstance(e, Call) and isinstance(e.op, Op):
            counts[e.op.name] = counts.get(e.op.name, 0) + 1
    return counts
