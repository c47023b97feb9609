"""Operators as functions of tensor expressions agree with numpy, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import te, topi
from armillary.errors import TypeMismatch, UnsupportedError

SHAPE = (4, 6)
Array = np.ndarray[Any, Any]


def _softmax(a: Array) -> Array:
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


UNARY: dict[str, tuple[Callable[..., Any], Callable[[Array], Any]]] = {
    "exp": (topi.exp, np.exp),
    "tanh": (topi.tanh, np.tanh),
    "negative": (topi.negative, np.negative),
    "relu": (topi.nn.relu, lambda a: np.maximum(a, 0)),
    "softmax": (topi.nn.softmax, _softmax),
    "leaky_relu": (lambda a: topi.nn.leaky_relu(a, 0.1), lambda a: np.where(a > 0, a, a * np.float32(0.1))),
    "sum": (lambda a: topi.sum(a, axis=1), lambda a: a.sum(1)),
    "sum_all": (topi.sum, lambda a: a.sum()),
    "max": (lambda a: topi.max(a, 0, True), lambda a: a.max(0, keepdims=True)),
    "argmax": (lambda a: topi.argmax(a, axis=1), lambda a: a.argmax(1)),
    "transpose": (lambda a: topi.transpose(a, (1, 0)), np.transpose),
    "reshape": (lambda a: topi.reshape(a, (6, 4)), lambda a: a.reshape(6, 4)),
    "expand_dims": (lambda a: topi.expand_dims(a, 1), lambda a: a[:, None]),
    "concatenate": (lambda a: topi.concatenate((a, a), axis=1), lambda a: np.concatenate((a, a), 1)),
    "strided_slice": (lambda a: topi.strided_slice(a, [1, 0], [3, 6], [1, 2]), lambda a: a[1:3, 0:6:2]),
    "flip": (lambda a: topi.flip(a, 1), lambda a: np.flip(a, 1)),
    "pad": (lambda a: topi.nn.pad(a, (1, 0), (0, 2), 3.0), lambda a: np.pad(a, ((1, 0), (0, 2)), constant_values=3)),
    "full_like": (lambda a: topi.full_like(a, 2.5), lambda a: np.full_like(a, 2.5)),
    "operators": (lambda a: -(a * 2.0 + a) / 3 - 1, lambda a: -(a * 2 + a) / 3 - 1),
    "flatten": (topi.nn.flatten, lambda a: a),
}


def _run(result: te.Tensor, inputs: list[te.Tensor], values: list[Array]) -> Array:
    schedule = te.create_schedule(result.op)
    function = armillary.build(schedule, [*inputs, result], "llvm")
    shape = topi.get_const_tuple(result.shape)
    out = armillary.nd.array(np.zeros(shape, str(result.dtype)))
    function(*map(armillary.nd.array, values), out)
    found: Array = out.numpy()
    return found


@pytest.mark.parametrize("name", UNARY)
def test_one_tensor(name: str) -> None:
    function, reference = UNARY[name]
    value = np.random.default_rng(7).standard_normal(SHAPE).astype("float32")
    a = te.placeholder(SHAPE, name="a")
    np.testing.assert_allclose(_run(function(a), [a], [value]), reference(value), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "divide"])
def test_two_tensors_are_broadcast(name: str) -> None:
    rng = np.random.default_rng(8)
    x, y = rng.random((4, 1), "float32") + 1, rng.random((1, 6), "float32") + 1
    a, b = te.placeholder(x.shape, name="a"), te.placeholder(y.shape, name="b")
    np.testing.assert_allclose(_run(getattr(topi, name)(a, b), [a, b], [x, y]), getattr(np, name)(x, y), rtol=1e-6)


def test_convolution_dense_and_pooling() -> None:
    rng = np.random.default_rng(9)
    x, w = rng.random((1, 3, 5, 5), "float32"), rng.random((2, 3, 3, 3), "float32")
    data, kernel = te.placeholder(x.shape, name="data"), te.placeholder(w.shape, name="kernel")
    made = _run(topi.nn.conv2d(data, kernel, 1, 0, 1), [data, kernel], [x, w])
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), (1, 2))
    np.testing.assert_allclose(made[0], np.einsum("chwij,ocij->ohw", windows, w), rtol=1e-4)
    pooled = _run(topi.nn.pool2d(data, (2, 2), (1, 1), (1, 1), (0, 0, 0, 0), "max"), [data], [x])
    expected = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3)).max((-1, -2))
    np.testing.assert_array_equal(pooled, expected)
    m, n = rng.random((2, 4), "float32"), rng.random((3, 4), "float32")
    a, b = te.placeholder(m.shape, name="a"), te.placeholder(n.shape, name="b")
    np.testing.assert_allclose(_run(topi.nn.dense(a, b), [a, b], [m, n]), m @ n.T, rtol=1e-5)


def test_misuse_is_named() -> None:
    a, b = te.placeholder((2, 3)), te.placeholder((4, 5))
    with pytest.raises(TypeMismatch, match="add"):
        topi.add(a, b)
    with pytest.raises(TypeMismatch, match="expected a tensor, got str"):
        topi.exp("a")
    with pytest.raises(UnsupportedError, match="auto_scheduler_rewritten_layout"):
        topi.nn.dense(a, te.placeholder((4, 3)), auto_scheduler_rewritten_layout="x")
    with pytest.raises(AttributeError, match="no attribute 'exq'"):
        topi.exq(a)


def test_shapes_and_tags() -> None:
    n = te.var("n")
    assert topi.utils.get_const_tuple((te.placeholder((3,)).shape[0], n)) == (3, n)
    assert topi.tag.is_injective("broadcast")
    assert not topi.tag.is_broadcast("injective")


def _outputs(made: list[te.Tensor], inputs: list[te.Tensor], arrays: list[np.ndarray]) -> list[np.ndarray]:
    function = armillary.build(topi.generic.schedule_injective(made), [*inputs, *made], "llvm")
    results = [armillary.nd.array(np.zeros(topi.get_const_tuple(t.shape), str(t.dtype))) for t in made]
    function(*(armillary.nd.array(a) for a in arrays), *results)
    return [r.numpy() for r in results]


def test_argwhere_gives_as_many_rows_as_its_first_argument_has() -> None:
    data = np.random.default_rng(0).integers(0, 3, (4, 5)).astype("int32")
    wanted = np.argwhere(data)
    shape = te.placeholder(wanted.shape, "int32", "shape")
    condition = te.placeholder(data.shape, "int32", "condition")
    (found,) = _outputs([topi.argwhere(shape, condition)], [condition], [data])
    assert (found == wanted).all()
    with pytest.raises(TypeMismatch, match="3 columns for positions in a tensor of 2 axes"):
        topi.argwhere(te.placeholder((4, 3), "int32"), condition)


def test_einsum_dft_and_running_statistics_are_tensors_of_their_own() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
    x, y = te.placeholder((3, 4), name="x"), te.placeholder((3, 4), name="y")
    (found,) = _outputs([topi.einsum("ij,kj->ik", x, y)], [x, y], [a, b])
    np.testing.assert_allclose(found, a @ b.T, rtol=1e-5, atol=1e-6)
    real, imaginary = _outputs(topi.dft(x, y, False), [x, y], [a, b])
    np.testing.assert_allclose(real + 1j * imaginary, np.fft.fft(a + 1j * b), rtol=1e-5, atol=1e-5)
    vectors = [te.placeholder((4,), name=name) for name in ("gamma", "beta", "mean", "var")]
    made = topi.nn.batch_norm(x, *vectors, axis=1)
    assert made[1] is not vectors[2] and made[2] is not vectors[3]


def test_sort_is_a_function_and_argsort_gives_floats_as_it_always_did() -> None:
    x = te.placeholder((3, 4), name="x")
    assert topi.sort(x).dtype == "float32" and topi.argsort(x).dtype == "float32"
    with pytest.raises(TypeMismatch, match="valid_count is not supported"):
        topi.argsort(x, x)
