"""The interpreter against numpy, and its refusals."""

from __future__ import annotations

import re
import time

import ml_dtypes
import numpy as np
import pytest

from armillary.errors import ExecutionError, ParseError
from armillary.tir.interpreter import interpret
from armillary.tir.parser import parse_expr, parse_function

MATMUL = """
func @matmul(A: Buffer[(28, 27), float32], B: Buffer[(27, 27), float32], C: Buffer[(28, 27), float32]) {
  for x in range(28) parallel {
    for y in range(27) {
      C[x, y] = 0.0
      for k in range(27) { C[x, y] = C[x, y] + A[x, k] * B[k, y] }
    }
  }
}
"""


def run(body: str, dtype: str, *arrays: np.ndarray, out: str = "") -> np.ndarray:
    n = len(arrays[0])
    params = ", ".join(f"{name}: Buffer[({n},), {dtype}]" for name, _ in zip("AB", arrays, strict=False))
    result = np.zeros(n, (arrays[0] if not out else np.zeros(0, out)).dtype)
    text = f"func @f({params}, C: Buffer[({n},), {out or dtype}]) {{ for i in range({n}) {{ C[i] = {body} }} }}"
    interpret(parse_function(text), *arrays, result)
    return result


def test_matmul_agrees_with_numpy_and_is_fast() -> None:
    generator = np.random.default_rng(1)
    a, b = generator.random((28, 27), np.float32), generator.random((27, 27), np.float32)
    c = np.zeros((28, 27), np.float32)
    start = time.thread_time()  # of the processor: other processes do not count
    interpret(parse_function(MATMUL), a, b, c)
    assert time.thread_time() - start < 1.0
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32"])
def test_integers_wrap(dtype: str) -> None:
    generator = np.random.default_rng(2)
    info = np.iinfo(dtype)
    a, b = (generator.integers(info.min, info.max, 50, dtype, endpoint=True) for _ in range(2))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run("A[i] * B[i] + A[i] - B[i]", dtype, a, b), a * b + a - b)


def test_divisions_round_as_named() -> None:
    a = np.array([-7, 7, -7, 7, 6, 0], np.int32)
    b = np.array([2, 2, -2, -2, 3, 5], np.int32)
    np.testing.assert_array_equal(run("A[i] // B[i]", "int32", a, b), a // b)
    np.testing.assert_array_equal(run("A[i] % B[i]", "int32", a, b), a % b)
    np.testing.assert_array_equal(run("truncdiv(A[i], B[i])", "int32", a, b), np.trunc(a / b).astype(np.int32))
    np.testing.assert_array_equal(run("truncmod(A[i], B[i])", "int32", a, b), np.fmod(a, b))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_every_float_operation_rounds(dtype: str) -> None:
    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(64).astype(dtype) for _ in range(2))
    got = run("A[i] * B[i] + A[i] / B[i]", dtype, a, b)
    np.testing.assert_array_equal(got, (a * b) + (a / b))


def test_bfloat16_rounds_each_operation() -> None:
    generator = np.random.default_rng(4)
    a, b = (generator.standard_normal(64).astype(ml_dtypes.bfloat16) for _ in range(2))
    np.testing.assert_array_equal(run("A[i] * B[i] + A[i]", "bfloat16", a, b), a * b + a)


def test_minimum_keeps_nan() -> None:
    a, b = np.array([np.nan, 1, 2], np.float32), np.array([1, np.nan, 3], np.float32)
    np.testing.assert_array_equal(run("min(A[i], B[i])", "float32", a, b), np.minimum(a, b))


def test_casts_truncate_and_wrap() -> None:
    a = np.array([-1.7, 1.7, 300.2, -200.0], np.float32)
    np.testing.assert_array_equal(run("int8(A[i])", "float32", a, out="int8"), a.astype(np.int32).astype(np.int8))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("C[4] = 0.0", "store out of bounds: C[4] at 4, the extent is 4"),
        ("C[0] = A[-1]", "load out of bounds: A[-1] at -1"),
        ("C[ramp(2, 1, 4)] = broadcast(0.0, 4)", "store out of bounds"),
        ('assert 1 > 2, "no"  C[0] = 0.0', "assertion failed: no"),
        ("C[0] = float32(1 // (n - n))", "integer division by zero"),
    ],
)
def test_faults_are_execution_errors(body: str, message: str) -> None:
    func = parse_function(f"func @f(A: Buffer[(4,), float32], C: Buffer[(4,), float32], n: int32) {{ {body} }}")
    with pytest.raises(ExecutionError, match=re.escape(message)):
        interpret(func, np.zeros(4, np.float32), np.zeros(4, np.float32), 1)


def test_symbolic_dimensions_come_from_the_arrays() -> None:
    func = parse_function("func @f[n: int32](A: Buffer[(n,), float32]) { for i in range(n) { A[i] = float32(i) } }")
    a = np.zeros(7, np.float32)
    interpret(func, a)
    np.testing.assert_array_equal(a, np.arange(7))


def test_wrong_arguments_are_refused() -> None:
    func = parse_function("func @f(A: Buffer[(4,), float32]) { A[0] = 1.0 }")
    with pytest.raises(ExecutionError, match=r"got shape \(5,\), wanted \(4,\)"):
        interpret(func, np.zeros(5, np.float32))
    with pytest.raises(ExecutionError, match="wanted a numpy array of float32"):
        interpret(func, np.zeros(4, np.float64))


@pytest.mark.parametrize("text", ["x +", "(x", "min(x)", "1.0 + x", "[1]", "x[0]", "99999999999", "(" * 5000])
def test_bad_text_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_expr(text)
