"""Quantisation whose type is an input, and defaults of requantisation that hold for a block."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import relay
from armillary.errors import TypeMismatch
from armillary.topi.nn.qnn import SQNN_CODE_TO_DTYPE, SQNN_DTYPE_TO_CODE

DATA = np.random.RandomState(5).uniform(-80, 80, (2, 5)).astype("float32")
SCALES, ZEROS = np.array([0.5, 0.25], "float32"), np.array([127, 123], "int32")


def _run(expr: relay.Expr, x: object, code: int | None = None) -> np.ndarray:
    run = relay.create_executor("graph").evaluate(relay.Function(relay.analysis.free_vars(expr), expr))
    return run(x=x).numpy() if code is None else run(x=x, code=np.int32(code)).numpy()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_one_program_simulates_every_type(dtype: str) -> None:
    x = relay.var("x", shape=DATA.shape)
    code = relay.var("code", shape=(), dtype="int32")
    scale, zero = relay.const(SCALES), relay.const(ZEROS)
    simulated = relay.qnn.simulated_quantize(x, scale, zero, axis=0, out_dtype=code)
    steps = _run(simulated, DATA, SQNN_DTYPE_TO_CODE[dtype])
    real = relay.qnn.quantize(x, scale, zero, axis=0, out_dtype=dtype)
    np.testing.assert_array_equal(steps, _run(real, DATA))
    back = _run(relay.qnn.simulated_dequantize(x, scale, zero, axis=0, in_dtype=code), steps, 1)
    np.testing.assert_allclose(back, (steps - ZEROS[:, None]) * SCALES[:, None], rtol=1e-6)
    assert SQNN_CODE_TO_DTYPE[SQNN_DTYPE_TO_CODE[dtype]] == dtype


def test_a_disabled_type_leaves_the_data_and_an_unknown_one_is_refused() -> None:
    x, scale, zero = relay.var("x", shape=DATA.shape), relay.const(0.5), relay.const(3)
    code = relay.var("code", shape=(), dtype="int32")
    off = relay.qnn.simulated_quantize(x, scale, zero, out_dtype=code)
    np.testing.assert_array_equal(_run(off, DATA, SQNN_DTYPE_TO_CODE["disable"]), DATA)
    assert relay.qnn.simulated_quantize(x, scale, zero, out_dtype="disable") is x
    with pytest.raises(TypeMismatch, match="simulated quantization to 'int5'"):
        relay.qnn.simulated_quantize(x, scale, zero, out_dtype="int5")
    with pytest.raises(TypeMismatch, match="axis 2 is out of range for 2 dimensions"):
        relay.qnn.simulated_quantize(x, relay.const(SCALES), zero, axis=2)


@pytest.mark.parametrize(("rounding", "want"), [("UPWARD", [0, -1, -1, -2]), ("TONEAREST", [-1, -1, -2, -2])])
def test_defaults_of_requantisation_hold_while_their_block_builds(rounding: str, want: list[int]) -> None:
    x = relay.var("x", shape=(4,), dtype="int32")
    body = relay.qnn.requantize(x, relay.const(1.0), relay.const(0), relay.const(16.0), relay.const(0))
    values = np.array([-8, -16, -24, -32], "int32")
    with relay.qnn.requantize_config(rounding=rounding):
        np.testing.assert_array_equal(_run(body, values), want)
    np.testing.assert_array_equal(_run(body, values), [0, -1, -1, -2])
    given = relay.qnn.requantize(
        x, relay.const(1.0), relay.const(0), relay.const(16.0), relay.const(0), rounding="UPWARD"
    )
    with relay.qnn.requantize_config(rounding=rounding):
        np.testing.assert_array_equal(_run(given, values), [0, -1, -1, -2])
    with pytest.raises(TypeMismatch, match="rounding 'DOWN'"), relay.qnn.requantize_config(rounding="DOWN"):
        pass


def test_leaky_relu_takes_its_slope_second() -> None:
    x = relay.var("x", shape=(1, 4), dtype="uint8")
    numbers = (relay.const(0.125), relay.const(60), relay.const(0.6), relay.const(17))
    got = _run(relay.qnn.leaky_relu(x, 0.9, *numbers), np.array([[255, 133, 0, 9]], "uint8"))
    real = (np.array([[255, 133, 0, 9]]) - 60) * 0.125
    want = np.clip(np.rint(np.where(real < 0, real * 0.9, real) / 0.6 + 17), 0, 255)
    assert np.abs(got.astype(int) - want).max() <= 1


def test_sums_of_wide_integers_do_not_wrap() -> None:
    x = relay.var("x", shape=(3,), dtype="int32")
    one, none = relay.const(1.0), relay.const(0)
    total = relay.qnn.add(x, x, one, none, one, none, one, none)
    values = np.array([2**31 - 1, -(2**31), 7], "int32")
    np.testing.assert_array_equal(_run(total, values), [2**31 - 1, -(2**31), 14])
    with pytest.raises(TypeMismatch, match="wanted at most 8 bits"):
        relay.qnn.mul(x, x, one, none, one, none, one, none).checked_type  # noqa: B018
