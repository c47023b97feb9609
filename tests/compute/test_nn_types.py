"""Layers on other types: F16 is computed in F32 and rounded once."""

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
from tests.compute.nn_oracles import tensor

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
