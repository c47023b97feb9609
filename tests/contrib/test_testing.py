"""`armillary.testing`: comparisons that scripts end with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
import armillary.testing
from armillary.errors import TypeMismatch

X = np.float32([1, 2, 3])


def test_close_arrays_agree_of_whatever_kind() -> None:
    armillary.testing.assert_allclose(armillary.nd.array(X), X)
    armillary.testing.assert_allclose([1.0, np.nan], np.array([1.0 + 1e-8, np.nan]))
    armillary.testing.assert_allclose(X + 1e-3, X, rtol=1e-3)


@pytest.mark.parametrize(
    ("actual", "desired", "message"),
    [
        (X, X[:1], r"shapes differ: actual \[3\], desired \[1\]"),
        (np.ones(3), 1.0, "shapes differ"),
        (X, X + 1e-3, "Mismatched elements: 3 / 3"),
    ],
)
def test_what_differs_is_said(actual: Any, desired: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        armillary.testing.assert_allclose(actual, desired)


def test_targets_that_run_here() -> None:
    found = dict(armillary.testing.enabled_targets())
    assert found["llvm"] == armillary.cpu(0)
    assert armillary.testing.device_enabled("llvm -mcpu=native") and not armillary.testing.device_enabled("cuda")


def _cubes(x: np.ndarray, y: np.ndarray) -> float:
    return float((x**3).sum() + (x * y).sum())


def test_gradients_are_compared_with_differences() -> None:
    y = np.float64([0.5, -1.0, 2.0])
    x = X.astype(np.float64)
    check = armillary.testing.check_numerical_grads
    check(_cubes, [x, y], [3 * x**2 + y, x], function_value=_cubes(x, y))
    check(_cubes, {"x": x, "y": y}, {"x": 3 * x**2 + y, "y": x})
    wrong = 3 * x**2 + y
    wrong[1] *= 2
    with pytest.raises(AssertionError, match=r"1 of 3 gradients of 0 differ, first at \(1,\): got 22"):
        check(_cubes, [x, y], [wrong, x])
    check(_cubes, [x, y], [wrong, x], acceptable_fail_percentage=40)
    with pytest.raises(TypeMismatch, match=r"wanted \[3\]"):
        check(_cubes, [x, y], [wrong[:2], x])
    with pytest.raises(TypeMismatch, match="gradients of"):
        check(_cubes, [x, y], [x])


def test_modules_of_the_ir_package_are_there_under_their_old_names() -> None:
    from armillary.ir.expr import GlobalVar, Range
    from armillary.ir.instrument import PassTimingInstrument, pass_instrument
    from armillary.ir.module import IRModule
    from armillary.ir.op import Op
    from armillary.ir.transform import PassContext, Sequential

    assert IRModule is armillary.IRModule and PassContext is armillary.transform.PassContext
    assert Sequential is armillary.ir.transform.Sequential and GlobalVar is armillary.ir.GlobalVar
    assert Range is armillary.ir.Range and Op is armillary.ir.Op
    assert pass_instrument is armillary.instrument.pass_instrument
    assert PassTimingInstrument is armillary.ir.instrument.PassTimingInstrument
