"""Random parameters for a network: initialisers by name, and create_workload.

In: a function whose free variables are "data" and parameters. Out: its module and the parameters' values. Invariant:
equal seeds draw equal values. By the end of a name: weight is drawn by Xavier, bias, beta and moving_mean are 0, gamma
and moving_var are 1.
"""

from __future__ import annotations

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import bounded
from armillary.errors import TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Function, Var
from armillary.relay.infer import check_module
from armillary.relay.types import TensorType
from armillary.runtime.ndarray import NDArray, array


class Initializer:
    """Fills an array in place, by the name of the parameter."""

    def __call__(self, name: str, array: Array) -> None:
        """Choose by the end of the name."""
        for ends, fill in (
            (("weight",), self._init_weight),
            (("bias", "beta", "mean"), self._init_zero),
            (("gamma", "var"), self._init_one),
        ):
            if name.endswith(ends):
                fill(name, array)
                return
        self._init_default(name, array)

    def _init_weight(self, name: str, array: Array) -> None:
        raise TypeMismatch(f"{type(self).__name__} does not say how to fill {name!r}")

    def _init_default(self, name: str, array: Array) -> None:
        raise TypeMismatch(
            f"no rule for the parameter {name!r}",
            hint="names end in weight, bias, gamma, beta, mean or var",
        )

    def _init_zero(self, name: str, array: Array) -> None:
        array[...] = 0

    def _init_one(self, name: str, array: Array) -> None:
        array[...] = 1


@bounded
class Xavier(Initializer):
    """Uniform or gaussian weights whose spread keeps the variance of activations."""

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        if rnd_type not in ("uniform", "gaussian") or factor_type not in ("avg", "in", "out"):
            raise TypeMismatch(f"Xavier: unknown rnd_type {rnd_type!r} or factor_type {factor_type!r}")
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)

    def _init_weight(self, name: str, array: Array) -> None:
        if array.ndim < 2:
            raise TypeMismatch(f"Xavier: {name!r} needs at least 2 dimensions, got {array.shape}")
        area = float(np.prod(array.shape[2:]))
        fan_in, fan_out = array.shape[1] * area, array.shape[0] * area
        factor = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}[self.factor_type]
        if "depthwise" in name:
            factor = area
        scale = float(np.sqrt(self.magnitude / factor))
        if self.rnd_type == "uniform":
            array[...] = np.random.uniform(-scale, scale, size=array.shape)
        else:
            array[...] = np.random.normal(0, scale, size=array.shape)


class Constant(Initializer):
    """Weights of one value; without a value their sum is 1."""

    def __init__(self, value: float | None = None) -> None:
        self.value = value

    def _init_weight(self, name: str, array: Array) -> None:
        array[...] = 1 / max(1, array.size) if self.value is None else self.value

    _init_default = _init_weight


def create_workload(
    net: Function, initializer: Initializer | None = None, seed: int = 0
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module of a network and values for every parameter but "data"."""
    if not (initializer is None or callable(initializer)):
        raise TypeMismatch(f"create_workload: initializer is {initializer!r}, wanted an Initializer")
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 1 << 32:
        raise TypeMismatch(f"create_workload: seed is {seed!r}, wanted a whole number from 0 to 2**32 - 1")
    module = IRModule.from_expr(net)
    check_module(module)  # types of weights that their readers tell
    fill = Xavier() if initializer is None else initializer
    np.random.seed(seed)
    params: dict[str, NDArray] = {}
    for param in module["main"].params:
        if param.name_hint == "data":
            continue
        params[param.name_hint] = _filled(param, fill)
    return module, params


def _filled(param: Var, fill: Initializer) -> NDArray:
    ty = param.checked_type
    if not isinstance(ty, TensorType):
        raise TypeMismatch(f"parameter {param.name_hint!r} is not a tensor but {ty}")
    values = np.zeros(ty.static, ty.dtype.numpy)
    try:
        fill(param.name_hint, values)
    except TypeError as error:
        message = f"create_workload: initializer {fill!r} does not take a name and an array: {error}"
        raise TypeMismatch(message) from error
    return array(values)
