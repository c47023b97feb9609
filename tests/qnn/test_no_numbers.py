"""NaN, quantised: the same in kernels, in constants that are folded, and by the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary.driver.build import build
from armillary.ops.qnn.quantize import quantize
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, Function, var
from armillary.relay.types import tensor_type
from armillary.transform import PassContext

X = np.array([[np.nan, 1.0, np.inf, -np.inf]] * 2, np.float32)
CASES = [("int8", 7), ("uint8", 7), ("int16", -3), ("int8", [7, -8, 0, 1]), ("uint8", [0, 0, 0, 0]), ("int32", 7)]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("own_type", [False, True])
def test_points_of_each_channel_move_the_limits(dtype: str, own_type: bool) -> None:
    limits = np.iinfo(dtype)
    zeros = np.array([limits.min, -1 if limits.min else 1, 3, min(limits.max, 32767)])
    points = zeros.astype(dtype if own_type else np.int32)
    data = np.concatenate([np.linspace(-600, 600, 301), np.linspace(-2e5, 2e5, 40), [0.5, 1.5, -0.5]])
    x = np.repeat(data.astype(np.float32)[:, None], 4, 1)
    given = var("x", tensor_type(x.shape))
    scale = Constant(np.full(4, 0.5, np.float32))
    function = Function((given,), quantize(given, scale, Constant(points), axis=1, out_dtype=dtype))
    wanted = np.clip(np.rint(x / np.float32(0.5)).astype(np.int64) + zeros, limits.min, limits.max)
    np.testing.assert_array_equal(evaluate(function, [x]), wanted)
    for level in (0, 3):
        with PassContext(opt_level=level):
            graph = build(function, "llvm")["default"]()
        graph.set_input("x", x)
        graph.run()
        np.testing.assert_array_equal(graph.get_output(0).numpy(), wanted)


@pytest.mark.parametrize(("dtype", "zero"), CASES, ids=str)
def test_no_number_is_the_zero_point(dtype: str, zero: Any) -> None:
    points = np.asarray(zero, np.int32)
    scales = Constant(np.full(points.shape, 0.5, np.float32))
    x = var("x", tensor_type(X.shape))

    def made(data: Any, *params: Any) -> Function:
        return Function(params, quantize(data, scales, Constant(points), axis=1, out_dtype=dtype))

    wanted = np.asarray(evaluate(made(x, x), [X]))
    least = np.iinfo(dtype).min
    assert wanted[0, 0] == (least if dtype == "int32" else points.reshape(-1)[0])
    assert wanted[0, 3] == least and wanted[0, 2] > 100
    for level in (0, 3):
        for function in (made(x, x), made(Constant(X))):
            with PassContext(opt_level=level):
                graph = build(function, "llvm")["default"]()
            if function.params:
                graph.set_input("x", X)
            graph.run()
            np.testing.assert_array_equal(graph.get_output(0).numpy(), wanted)
