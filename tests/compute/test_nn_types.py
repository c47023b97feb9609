"""Layers on other types: F16 is computed in F32 and rounded once; weights may have a scale for each channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from armillary import compute
from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    DataType,
    NormalizationLayerInfo,
    PadStrideInfo,
    PoolingLayerInfo,
    PoolingType,
    Tensor,
)
from armillary.errors import TypeMismatch
from tests.compute.nn_oracles import convolved, requantized, tensor

Array = np.ndarray[Any, Any]
Configure = Callable[[Any, list[Tensor], Tensor], None]  # Any: one of the functions
IMAGE, TAPS, EACH, FEW = (2, 5, 9, 8), (6, 5, 3, 3), (5, 3, 3), (6,)
ONE = PadStrideInfo(1, 1, 1, 1)
CASES: dict[str, tuple[list[tuple[int, ...]], Configure]] = {
    "NEConvolutionLayer": ([IMAGE, TAPS, FEW], lambda f, t, out: f.configure(*t, out, ONE)),
    "NEDepthwiseConvolutionLayer": ([IMAGE, EACH], lambda f, t, out: f.configure(*t, None, out, ONE)),
    "NEFullyConnectedLayer": ([(3, 20), (7, 20), (7,)], lambda f, t, out: f.configure(*t, out)),
    "NEGEMM": ([(5, 20), (20, 7), (5, 7)], lambda f, t, out: f.configure(*t, out, 0.5, 2.0)),
    "NEPoolingLayer": (
        [IMAGE],
        lambda f, t, out: f.configure(*t, out, PoolingLayerInfo(PoolingType.AVG, 2, PadStrideInfo(2, 2))),
    ),
    "NEActivationLayer": (
        [IMAGE],
        lambda f, t, out: f.configure(*t, out, ActivationLayerInfo(ActivationFunction.LOGISTIC)),
    ),
    "NESoftmaxLayer": ([(4, 11)], lambda f, t, out: f.configure(*t, out)),
    "NENormalizationLayer": ([IMAGE], lambda f, t, out: f.configure(*t, out, NormalizationLayerInfo())),
    "NEPermute": ([IMAGE], lambda f, t, out: f.configure(*t, out, compute.PermutationVector(2, 0, 1))),
}


def _result(name: str, values: list[Array], kind: DataType) -> Array:
    function, output = getattr(compute, name)(), Tensor()
    CASES[name][1](function, [tensor(v, kind=kind) for v in values], output)
    assert output.info().data_type is kind
    output.allocator().allocate()
    function.run()
    return output.array().copy()


@pytest.mark.parametrize("name", CASES)
def test_halves_are_computed_in_float32_and_rounded_once(name: str) -> None:
    halves = [np.random.default_rng(n).standard_normal(s).astype(np.float16) for n, s in enumerate(CASES[name][0])]
    found = _result(name, halves, DataType.F16)
    wanted = _result(name, [v.astype(np.float32) for v in halves], DataType.F32)
    assert found.dtype == np.float16
    # Sums in another order may round to the neighbour where they lie half-way.
    np.testing.assert_allclose(
        found.astype(np.float64), wanted.astype(np.float16).astype(np.float64), rtol=1e-3, atol=1e-6
    )
    assert (found == wanted.astype(np.float16)).mean() > 0.98


def test_types_do_not_mix() -> None:
    halves, floats = tensor(shape=IMAGE, kind=DataType.F16), tensor(shape=TAPS)
    with pytest.raises(TypeMismatch, match="weights is F32, wanted F16"):
        compute.NEConvolutionLayer().configure(halves, floats, None, Tensor(), ONE)


@pytest.mark.parametrize("is_depthwise", [False, True])
@pytest.mark.parametrize("kind", [DataType.QASYMM8, DataType.QASYMM8_SIGNED])
def test_weights_with_a_scale_for_each_channel(kind: DataType, is_depthwise: bool) -> None:
    rng = np.random.default_rng(4)
    low, high = (0, 255) if kind is DataType.QASYMM8 else (-128, 127)
    x = rng.integers(low, high, IMAGE, endpoint=True)
    outputs = 5 if is_depthwise else 6
    w = rng.integers(-127, 128, EACH if is_depthwise else TAPS)
    b, scales = rng.integers(-500, 500, outputs), tuple(float(2.0**n * 0.9) for n in rng.integers(-6, 3, outputs))
    weights, output = Tensor(), tensor(shape=(2, outputs, 9, 8), kind=kind, scale=0.7, offset=3)
    info = compute.TensorInfo(compute.TensorShape(*reversed(w.shape)), 1, DataType.QSYMM8_PER_CHANNEL, _scales(scales))
    weights.allocator().init(info)
    weights.allocator().allocate()
    weights.array()[...] = w
    function = (compute.NEDepthwiseConvolutionLayer if is_depthwise else compute.NEConvolutionLayer)()
    function.configure(tensor(x, kind=kind, scale=0.5, offset=7), weights, tensor(b, kind=DataType.S32), output, ONE)
    output.allocator().allocate()
    function.run()
    taps = w[:, None] if is_depthwise else w
    sums = convolved(x - 7, taps, ONE, compute.Size2D(), 5 if is_depthwise else 1) + b[:, None, None]
    for n, scale in enumerate(scales):
        wanted = requantized(sums[:, n], (0.5, scale, 0.7), 3, low, high)
        assert np.array_equal(output.array()[:, n], wanted), (n, scale)
    info = compute.TensorInfo(
        compute.TensorShape(*reversed(w.shape)), 1, DataType.QSYMM8_PER_CHANNEL, _scales(scales[1:])
    )
    status = type(function).validate(tensor(x, kind=kind).info(), info, None, None, ONE)
    assert f"has {outputs - 1} scales of channels, wanted {outputs}" in status.error_description


def _scales(values: tuple[float, ...]) -> compute.QuantizationInfo:
    return compute.QuantizationInfo(scales=values)
