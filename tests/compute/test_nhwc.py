"""Layers whose tensors are in NHWC: the same as in NCHW, by numpy; graphs; what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary import compute
from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    DataLayout,
    DataLayoutDimension,
    DataType,
    FullyConnectedLayerInfo,
    PadStrideInfo,
    PoolingLayerInfo,
    PoolingType,
    Size2D,
    Tensor,
    TensorInfo,
    TensorShape,
)
from armillary.compute import graph as G
from armillary.errors import TypeMismatch
from tests.compute.nn_oracles import convolved, pooled, tensor

Array = np.ndarray[Any, Any]
NHWC, F32 = DataLayout.NHWC, DataType.F32


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _image(values: Array) -> Tensor:
    """An allocated tensor in NHWC of values in NCHW (or of kernels of single channels)."""
    turned = np.ascontiguousarray(np.moveaxis(values, -3, -1))
    made = Tensor()
    made.allocator().init(TensorInfo(TensorShape(*reversed(turned.shape)), 1, F32, NHWC))
    made.allocator().allocate()
    made.array()[...] = turned
    return made


def _given(function: Any, output: Tensor) -> Array:  # Any: a layer
    """What a layer gives, in NCHW."""
    assert output.info().data_layout() is NHWC
    output.allocator().allocate()
    function.run()
    return np.moveaxis(output.array(), -1, -3)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 30))])
@pytest.mark.parametrize("name", ["NEConvolutionLayer", "NEDepthwiseConvolutionLayer", "NEPoolingLayer"])
def test_layers_give_what_numpy_gives(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, channels, outputs = (int(n) for n in rng.integers(1, (3, 8, 8)))
    x = _floats(rng, batch, channels, *map(int, rng.integers(6, 12, 2)))
    rows, columns = map(int, rng.integers(2, 4, 2))
    info = PadStrideInfo(*map(int, rng.integers(1, 3, 2)), *map(int, rng.integers(0, 2, 4)))
    function, output = getattr(compute, name)(), Tensor()
    if name == "NEPoolingLayer":
        pool = PoolingLayerInfo(PoolingType.AVG, Size2D(columns, rows), info)
        function.configure(_image(x), output, pool)
        wanted = pooled(x.astype(float), pool)
    else:
        single = name == "NEDepthwiseConvolutionLayer"
        outputs = channels if single else outputs
        w, b = _floats(rng, outputs, 1 if single else channels, rows, columns), _floats(rng, outputs)
        function.configure(_image(x), _image(w[:, 0] if single else w), tensor(b), output, info)
        groups = channels if single else 1
        wanted = convolved(x.astype(float), w.astype(float), info, Size2D(), groups) + b[:, None, None]
    found = _given(function, output)
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["NEConvolutionLayer", "NEDirectConvolutionLayer", "NEDepthwiseConvolutionLayer"])
def test_biases_of_one_dimension_are_taken_whatever_layout_they_name(name: str) -> None:
    rng, single = np.random.default_rng(1), name == "NEDepthwiseConvolutionLayer"
    x, b = _floats(rng, 1, 4, 6, 5), _floats(rng, 4)
    w = _floats(rng, 4, 1 if single else 4, 3, 3)
    results = []
    for layout in (DataLayout.NCHW, NHWC):
        biases, function, output = tensor(b), getattr(compute, name)(), Tensor()
        biases.info().set_data_layout(layout)
        function.configure(_image(x), _image(w[:, 0] if single else w), biases, output, PadStrideInfo(1, 1, 1, 1))
        results.append(_given(function, output))
    np.testing.assert_array_equal(*results)


def test_layers_that_count_dimensions_take_them_by_number() -> None:
    a, b = (np.arange(n, dtype=np.float32).reshape(2, 2, 3, -1) for n in (48, 24))  # (n, h, w, c)
    tensors = [tensor(v) for v in (a, b)]
    for made in tensors:
        made.info().set_data_layout(NHWC)
    joined, output = compute.NEConcatenateLayer(), Tensor()
    joined.configure(tensors, output, 0)
    np.testing.assert_array_equal(np.moveaxis(_given(joined, output), -3, -1), np.concatenate([a, b], -1))


@pytest.mark.parametrize("trained", list(DataLayout))
def test_weights_of_a_product_are_in_the_order_that_they_were_trained_for(trained: DataLayout) -> None:
    rng = np.random.default_rng(0)
    x, w = _floats(rng, 1, 3, 4, 5), _floats(rng, 6, 60)
    function, output = compute.NEFullyConnectedLayer(), Tensor()
    info = FullyConnectedLayerInfo(weights_trained_layout=trained)
    function.configure(_image(x), tensor(w), None, output, info)
    output.allocator().allocate()
    function.run()
    order = (0, 1, 2, 3) if trained is DataLayout.NCHW else (0, 2, 3, 1)
    np.testing.assert_allclose(output.array().ravel(), w @ x.transpose(order).ravel(), rtol=2e-5, atol=1e-5)


def test_a_graph_in_either_layout_gives_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"x": (1, 3, 8, 6), "w": (4, 3, 3, 3), "d": (1, 4, 3, 3), "m": (4,), "v": (4,), "f": (5, 4 * 4 * 3)}
    for name, shape in arrays.items():
        np.save(tmp_path / f"{name}.npy", np.abs(_floats(rng, *shape)))
    load = {name: G.NumPyBinLoader(tmp_path / f"{name}.npy") for name in arrays}
    found = []
    for layout, shape in ((DataLayout.NCHW, TensorShape(6, 8, 3)), (NHWC, TensorShape(3, 6, 8))):
        graph, same = G.Graph(), PadStrideInfo(1, 1, 1, 1)
        graph << G.Target.NEON << G.Tensor(TensorInfo(shape, 1, F32, layout), load["x"])
        graph << G.ConvolutionLayer(3, 3, 4, load["w"], None, same)
        graph << G.ActivationLayer(ActivationLayerInfo(ActivationFunction.RELU))
        graph << G.DepthwiseConvolutionLayer(3, 3, load["d"], None, same)
        graph << G.BatchNormalizationLayer(load["m"], load["v"])
        graph << G.PoolingLayer(PoolingLayerInfo(PoolingType.MAX, 2, PadStrideInfo(2, 2)))
        graph << G.FullyConnectedLayer(5, load["f"], None) << G.Tensor(G.DummyAccessor(1))
        graph.run()
        found.append(graph.output().array().copy())
    np.testing.assert_allclose(found[1].ravel(), found[0].ravel(), rtol=1e-5)


def test_dimensions_are_found_by_their_meaning_and_layouts_do_not_mix() -> None:
    index, D = compute.get_data_layout_dimension_index, DataLayoutDimension
    assert [index(NHWC, d) for d in (D.CHANNEL, D.WIDTH, D.HEIGHT, D.BATCHES)] == [0, 1, 2, 3]
    assert [index(DataLayout.NCHW, d) for d in (D.WIDTH, D.HEIGHT, D.CHANNEL, D.BATCHES)] == [0, 1, 2, 3]
    image, kernels = _image(np.ones((1, 3, 8, 8), np.float32)), tensor(np.ones((4, 3, 3, 3), np.float32))
    layer, same = compute.NEConvolutionLayer(), PadStrideInfo(1, 1, 1, 1)
    message = "NEConvolutionLayer: weights has the layout NCHW, the input NHWC"
    assert layer.validate(image.info(), kernels.info(), None, None, same).error_description == message
    with pytest.raises(TypeMismatch, match=message):
        layer.configure(image, kernels, None, Tensor(), same)
    with pytest.raises(TypeMismatch, match="a layout is a DataLayout, got 'NHWC'"):
        kernels.info().set_data_layout("NHWC")  # type: ignore[arg-type]  # what is refused
