"""Functions by name: `register_func`, `get_global_func`; and `convert`.

In: Python functions and names. Out: the functions. Invariant: a name is taken once unless `override` is set; nothing is
found that was not registered in this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.base.aliases import AnyFunction
from armillary.base.boundary import boundary
from armillary.base.functions import FUNCTIONS
from armillary.base.lazy import deferred
from armillary.errors import ConfigError
from armillary.target.grammar import BUILD
from armillary.target.kinds import KINDS
from armillary.tir.build import convert as _as_expression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from armillary.relay.backend.lowering import LoweredOutput
    from armillary.relay.expr import Call, Expr
    from armillary.te import Tensor
with deferred():
    from armillary.driver.te_build import build as _build
    from armillary.relay.backend.lowering import lower_call as _lower_call
    from armillary.relay.transform.partition._place_values import devices_of_values as _devices_of_values

Function = AnyFunction


@boundary("register_func", arguments=True)
def register_func(func_name: str | Function, f: Function | None = None, override: bool = False) -> AnyFunction:
    """Register a function under a name; usable as a decorator, with or without the name (then `func_name` is it)."""
    if callable(func_name):
        return register_func(func_name.__name__, func_name, override)
    if not isinstance(func_name, str):
        raise ConfigError(f"a global function is named by a text, got {type(func_name).__name__}")

    def register(function: Function) -> Function:
        if func_name in FUNCTIONS and not override:
            raise ConfigError(f"the global function {func_name!r} is already registered", hint="pass override=True")
        if not callable(function):
            raise ConfigError(f"the global function {func_name!r} is {type(function).__name__}, wanted a function")
        FUNCTIONS[func_name] = function
        return function

    return register(f) if f is not None else register


@boundary("get_global_func", arguments=True)
def get_global_func(name: str, allow_missing: bool = False) -> Function | None:
    """The function of that name; None with `allow_missing` where there is none."""
    result = FUNCTIONS.get(name)
    kind = name.removeprefix(BUILD) if isinstance(name, str) and name.startswith(BUILD) else ""
    if result is None and kind in KINDS:
        return lambda module, target: _build(module, target=target)
    if result is None and not allow_missing:
        known = ", ".join(sorted(FUNCTIONS)) or "none"
        raise ConfigError(f"there is no global function {name!r}", hint=f"registered: {known}")
    return result


def list_global_func_names() -> list[str]:
    """The names of all registered functions."""
    return sorted(FUNCTIONS)


def remove_global_func(name: str) -> None:
    """Forget a function."""
    get_global_func(name)
    del FUNCTIONS[name]


def convert(value: object) -> Any:  # Any: numbers, sequences, mappings, functions, nodes
    """Numbers as expressions, in sequences (tuples then) and mappings too; what is neither stays as it is."""
    if isinstance(value, bool | int | float):
        return _as_expression(value)
    if isinstance(value, list | tuple):
        return tuple(convert(v) for v in value)
    if isinstance(value, dict):
        return {key: convert(v) for key, v in value.items()}
    return value


@register_func("relay.transform.RecoverVirtualDeviceMap")
@boundary("RecoverVirtualDeviceMap", arguments=True)
def _recover_virtual_device_map(module: object, expr: Expr) -> object:
    """The device of every expression below one, as scripts ask for it by this name."""
    del module
    return _devices_of_values(expr)


@register_func("relay.backend.lower_call")
@boundary("lower_call", arguments=True)
def _lower(call: Call, inputs: Sequence[Tensor], target: object) -> LoweredOutput:
    """What computes a call over tensors, by the name under which a build of the Relay era asked for it."""
    return _lower_call(call, inputs, target)
