"""Reductions of rows on an OpenCL device in one kernel: normalisations, softmax, means; against numpy in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.relay.expr import Expr, Var
from tests.opencl_device import needs_opencl

pytestmark = needs_opencl
Values = NDArray[np.float32]
Wide = NDArray[np.float64]


def _run(inputs: Mapping[str, Values], result: Expr, variables: Sequence[Var]) -> tuple[Values, int]:
    """What the device computes, and in how many kernels."""
    module = armillary.IRModule.from_expr(relay.Function(list(variables), result))
    library = relay.build(module, "opencl")
    graph = graph_executor.GraphModule(library["default"](armillary.opencl(0)))
    for name, value in inputs.items():
        graph.set_input(name, value)
    graph.run()
    return graph.get_output(0).numpy(), library.get_lib().get_source().count("__kernel")


def _drawn(*shape: int) -> Values:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def _softmax(x: Wide, axis: int) -> Wide:
    powers = np.exp(x - x.max(axis, keepdims=True))
    result: Wide = powers / powers.sum(axis, keepdims=True)
    return result


def _normal(x: Wide, axis: int) -> Wide:
    result: Wide = (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)
    return result


CASES: dict[str, tuple[Callable[[Expr], Expr], Callable[[Wide], Wide]]] = {
    "softmax": (lambda x: relay.nn.softmax(x), lambda x: _softmax(x, -1)),
    "log_softmax": (lambda x: relay.nn.log_softmax(x), lambda x: np.log(_softmax(x, -1))),
    "mean": (lambda x: relay.mean(x, axis=-1, keepdims=True), lambda x: x.mean(-1, keepdims=True)),
    "max": (lambda x: relay.nn.relu(relay.max(x, axis=-1)), lambda x: np.maximum(x.max(-1), 0)),
    "first": (lambda x: relay.nn.softmax(x, axis=0), lambda x: _softmax(x, 0)),
    "both": (lambda x: relay.sum(x, axis=[-2, -1]), lambda x: x.sum((-2, -1))),
}


@pytest.mark.parametrize("shape", [(5, 768), (2, 7, 1000), (70, 50, 3)])
@pytest.mark.parametrize("name", CASES)
def test_rows_of_any_size(name: str, shape: tuple[int, ...]) -> None:
    make, truth = CASES[name]
    x = relay.var("x", shape=shape)
    value = _drawn(*shape)
    got, _ = _run({"x": value}, make(x), [x])
    wanted = truth(value.astype("float64"))
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 197, 768), (3, 49, 96), (130, 40)])
@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_normalisation_is_one_kernel(shape: tuple[int, ...], axis: int) -> None:
    x = relay.var("x", shape=shape)
    scale, shift = (relay.var(n, shape=(shape[axis],)) for n in ("scale", "shift"))
    result = relay.nn.layer_norm(x, scale, shift, axis=axis)
    values = {"x": _drawn(*shape), "scale": _drawn(shape[axis]), "shift": _drawn(1, shape[axis])[0]}
    got, kernels = _run(values, result, [x, scale, shift])
    along = [1] * len(shape)
    along[axis] = shape[axis]
    normal = _normal(values["x"].astype("float64"), axis)
    wanted = normal * values["scale"].reshape(along) + values["shift"].reshape(along)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-5)
    assert kernels == 1


def test_a_row_without_numbers_stays_without() -> None:
    x = relay.var("x", shape=(3, 64))
    value = _drawn(3, 64)
    value[1, 5] = np.nan
    got, _ = _run({"x": value}, relay.nn.softmax(x), [x])
    assert np.isnan(got[1]).all() and not np.isnan(got[[0, 2]]).any()
