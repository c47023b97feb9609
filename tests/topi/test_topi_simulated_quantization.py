"""Quantisation in float to a type that is a value: against what real types give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary import nd, te, topi
from armillary.errors import TypeMismatch

RNG = np.random.default_rng(5)
SHAPE = (2, 6, 4)


def compiled(function: Any, axis: int) -> Any:
    data = te.placeholder(SHAPE, name="data")
    code = te.placeholder((), "int32", name="code")
    scale = te.placeholder((te.size_var("s"),), name="scale")
    zero = te.placeholder((te.size_var("z"),), "int32", name="zero")
    made = function(data, code, scale, zero, axis=axis)
    return armillary.build(te.create_schedule(made.op), [data, code, scale, zero, made], "llvm")


def ran(function: Any, data: np.ndarray, kind: str, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    code = np.array(topi.nn.SQNN_DTYPE_TO_CODE[kind], np.int32)
    result = nd.empty(SHAPE)
    function(*map(nd.array, (data, code, scale, zero)), result)
    return result.numpy()


@pytest.mark.parametrize(("axis", "length"), [(1, 6), (-1, 4), (0, 1)])
def test_one_function_serves_every_type(axis: int, length: int) -> None:
    quantize, dequantize = (compiled(f, axis) for f in (topi.nn.simulated_quantize, topi.nn.simulated_dequantize))
    scale = RNG.uniform(0.01, 0.1, length).astype(np.float32)
    zero = RNG.integers(-10, 10, length).astype(np.int32)
    where = [1, 1, 1]
    where[axis] = length
    steps, zeros = scale.reshape(where), zero.reshape(where)
    data = RNG.uniform(-9, 9, SHAPE).astype(np.float32)
    for kind in ("int8", "uint8", "int32"):
        ends = np.iinfo(kind)
        want = np.clip(np.round(data / steps) + zeros, ends.min, ends.max)
        got = ran(quantize, data, kind, scale, zero)
        np.testing.assert_array_equal(got, want.astype(np.float32))
        back = ran(dequantize, got, kind, scale, zero)
        np.testing.assert_allclose(back, (got - zeros) * steps, rtol=1e-6, atol=1e-6)
    for function in (quantize, dequantize):
        np.testing.assert_array_equal(ran(function, data, "disable", scale, zero), data)


def test_sizes_that_are_known_when_it_runs_are_scheduled() -> None:
    data, scale, zero = te.placeholder((2, 5)), te.placeholder((te.size_var("s"),)), te.placeholder((te.size_var("z"),))
    made = topi.nn.simulated_dequantize(data, 1, scale, zero)
    with armillary.target.Target("llvm"):
        s = topi.generic.schedule_injective(made)
    values, steps, zeros = np.arange(10, dtype="f").reshape(2, 5), np.full(5, 0.5, "f"), np.ones(1, "f")
    result = nd.empty((2, 5))
    armillary.build(s, [data, scale, zero, made], "llvm")(*map(nd.array, (values, steps, zeros)), result)
    np.testing.assert_allclose(result.numpy(), (values - 1) * 0.5)


def test_shapes_that_do_not_fit_are_refused() -> None:
    data = te.placeholder(SHAPE)
    with pytest.raises(TypeMismatch, match="the type is a tensor of 1 axes"):
        topi.nn.simulated_quantize(data, te.placeholder((1,), "int32"))
    with pytest.raises(TypeMismatch, match="have one axis, got 2"):
        topi.nn.simulated_dequantize(data, 1, te.placeholder((2, 2)))
