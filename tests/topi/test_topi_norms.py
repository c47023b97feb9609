"""Normalisations of topi, whose weights lie along the axes they normalise over, or along channels."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, topi
from armillary.errors import TypeMismatch

_RNG = np.random.default_rng(11)


def run(out: te.Tensor, inputs: list[te.Tensor], arrays: list[np.ndarray]) -> np.ndarray:
    """The output of a program."""
    function = armillary.build(te.create_schedule(out.op), [*inputs, out], "llvm")
    result = armillary.nd.empty(tuple(map(int, out.shape)), str(out.dtype))
    function(*map(armillary.nd.array, arrays), result)
    return result.numpy()


@pytest.mark.parametrize("name", ["instance_norm", "layer_norm"])
@pytest.mark.parametrize(
    ("shape", "axes", "weights"),
    [
        ((4, 16), (1,), (16,)),
        ((4, 6, 5), (1, 2), (6, 5)),
        ((2, 6, 6), (2,), (6,)),  # as many channels as elements: the weights go along the axis that is normalised
        ((2, 5, 6, 7), (2, 3), (6, 7)),
    ],
)
def test_weights_along_the_axes(
    name: str, shape: tuple[int, ...], axes: tuple[int, ...], weights: tuple[int, ...]
) -> None:
    data = te.placeholder(shape, name="data")
    gamma, beta = te.placeholder(weights, name="gamma"), te.placeholder(weights, name="beta")
    x, g, b = (_RNG.standard_normal(s).astype(np.float32) for s in (shape, weights, weights))
    made = getattr(topi.nn, name)(data, gamma, beta, axes, 1e-5)
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    row = tuple(n if k in axes else 1 for k, n in enumerate(shape))
    wanted = (x - mean) / np.sqrt(var + 1e-5) * g.reshape(row) + b.reshape(row)
    np.testing.assert_allclose(run(made, [data, gamma, beta], [x, g, b]), wanted, rtol=1e-4, atol=1e-5)


def test_weights_of_channels_and_others() -> None:
    data, gamma = te.placeholder((2, 5, 6, 7), name="data"), te.placeholder((5,), name="gamma")
    beta = te.placeholder((5,), name="beta")
    x, g, b = (_RNG.standard_normal(s).astype(np.float32) for s in ((2, 5, 6, 7), (5,), (5,)))
    got = run(topi.nn.instance_norm(data, gamma, beta, (2, 3)), [data, gamma, beta], [x, g, b])
    normal = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, normal * g.reshape(1, 5, 1, 1) + b.reshape(1, 5, 1, 1), rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeMismatch, match=r"gamma is \[5\], wanted \[2\] \(the axes\) or \[6\] \(channels\)"):
        topi.nn.instance_norm(te.placeholder((3, 6, 2)), gamma, beta, (2,))


def test_reorg_is_the_passthrough_layer_of_yolo() -> None:
    x = np.arange(2 * 4 * 4 * 4, dtype=np.float32).reshape(2, 4, 4, 4)
    data = te.placeholder(x.shape, name="data")
    made = topi.vision.reorg(data, 2)
    assert tuple(map(int, made.shape)) == (2, 16, 2, 2)
    wanted = np.zeros(x.size, np.float32)  # by the formula of the layer, element for element
    for at, (b, k, j, i) in enumerate(np.ndindex(x.shape)):
        channel, offset = k % 1, k // 1
        column, row = 2 * i + offset % 2, 2 * j + offset // 2
        wanted[at] = x.ravel()[column + 8 * (row + 8 * (channel + b))]
    np.testing.assert_array_equal(run(made, [data], [x]).ravel(), wanted)


def test_rms_norm_of_open_sizes() -> None:
    n = te.var("n")
    data, weight = te.placeholder((4, n), name="data"), te.placeholder((n,), name="weight")
    result = topi.nn.rms_norm(data, weight, axis=(1,))
    function = armillary.build(te.create_schedule(result.op), [data, weight, result], "llvm")
    x, w = np.random.rand(4, 6).astype("float32"), np.random.rand(6).astype("float32")
    out = armillary.nd.empty((4, 6))
    function(armillary.nd.array(x), armillary.nd.array(w), out)
    np.testing.assert_allclose(out.numpy(), x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w, 1e-5)
