"""What scripts check their results with: arrays against arrays, gradients against differences.

In: arrays, functions of arrays, targets. Out: nothing where they agree, an AssertionError that says where they differ.
Invariant: a comparison of arrays of different shapes fails, also where numpy would broadcast them. Gradients of Relay
functions: `relay/testing/gradients.py`; where a network first goes wrong: `driver/doctor.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from armillary.base.aliases import AnyFunction, Array
from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.runtime import Device, cpu, device
from armillary.runtime.container import enabled

Key: TypeAlias = int | str
Arrays: TypeAlias = "Sequence[Array] | Mapping[str, Array]"
_TARGETS = ("llvm", "c", "opencl")


@boundary("assert_allclose", arguments=True)
def assert_allclose(
    actual: object,  # what numpy takes for an array, or an NDArray
    desired: object,
    rtol: float = 1e-7,
    atol: float = 1e-7,
    verbose: bool = True,
) -> None:
    """Fail unless the arrays have one shape and |actual - desired| <= atol + rtol * |desired| everywhere.

    NaN equals NaN, an infinity itself. Raises AssertionError, which says how many elements differ and by how much.
    """
    have, want = _values(actual), _values(desired)
    if have.shape != want.shape:
        raise AssertionError(f"shapes differ: actual {list(have.shape)}, desired {list(want.shape)}")
    np.testing.assert_allclose(have, want, rtol=rtol, atol=atol, verbose=verbose)


def _values(values: object) -> Array:
    return np.asarray(values.numpy() if hasattr(values, "numpy") else values)


@boundary("device_enabled", arguments=True)
def device_enabled(target: object) -> bool:
    """Whether code for a target (its text, or a Target) can be made and run here."""
    return enabled(str(target))


@boundary("enabled_targets", arguments=True)
def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that code can be made for and run here, each with a device of it."""
    return [(name, device(name) if name == "opencl" else cpu(0)) for name in _TARGETS if enabled(name)]


@boundary("check_numerical_grads", arguments=True)
def check_numerical_grads(
    function: AnyFunction,  # gives a number, or an array of one
    input_values: Arrays,
    grad_values: Arrays,
    function_value: float | None = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
    acceptable_fail_percentage: float | None = None,
) -> None:
    """Fail unless the gradients of a function of arrays to one number are its central differences of step `delta`.

    Inputs and gradients come as lists, or as dicts of keyword arguments. `function_value`, the value at the inputs, is
    checked if it is given. `acceptable_fail_percentage` of the elements may be off (0 by default).
    Raises AssertionError, TypeMismatch for gradients that do not fit the inputs.
    """
    values, grads = _as_dict(input_values), _as_dict(grad_values)
    if set(values) != set(grads):
        raise TypeMismatch(f"check_numerical_grads: gradients of {[*grads]}, inputs are {[*values]}")

    def value_at(moved: Mapping[Key, Array]) -> float:
        is_named = isinstance(input_values, Mapping)
        output = function(**{str(key): x for key, x in moved.items()}) if is_named else function(*moved.values())
        return float(np.sum(_values(output), dtype=np.float64))

    if function_value is not None:
        np.testing.assert_allclose(value_at(values), function_value, rtol=rtol, atol=atol)
    for name, base in values.items():
        if grads[name].shape != base.shape:
            message = f"check_numerical_grads: the gradient of {name!r} is {list(grads[name].shape)}"
            raise TypeMismatch(f"{message}, wanted {list(base.shape)}")
        gradient = np.zeros(base.shape)
        for at in np.ndindex(base.shape):
            gradient[at] = _slope(value_at, values, name, at, delta)
        off = np.abs(gradient - grads[name]) > atol + rtol * np.abs(gradient)
        if 100 * int(off.sum()) > (acceptable_fail_percentage or 0.0) * base.size:
            at = tuple(int(i) for i in np.argwhere(off)[0])
            message = f"{int(off.sum())} of {base.size} gradients of {name!r} differ, first at {at}"
            raise AssertionError(f"{message}: got {grads[name][at]:.6g}, differences give {gradient[at]:.6g}")


def _as_dict(arrays: Arrays) -> dict[Key, Array]:
    """Arrays by name, or by place."""
    items: Iterable[tuple[Key, Array]] = arrays.items() if isinstance(arrays, Mapping) else enumerate(arrays)
    return {key: np.asarray(value) for key, value in items}


def _slope(
    value_at: Callable[[Mapping[Key, Array]], float],
    values: Mapping[Key, Array],
    name: Key,
    at: tuple[int, ...],
    delta: float,
) -> float:
    totals = []
    for step in (delta, -delta):
        moved = values[name].copy()
        moved[at] += step
        totals.append(value_at({**values, name: moved}))
    return (totals[0] - totals[1]) / (2 * delta)
