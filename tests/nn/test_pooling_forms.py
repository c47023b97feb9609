"""MaxPool with its places and MaxUnpool in one, two and three dimensions: ONNX Runtime's answers, and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper
from opencl_device import HAS_DOUBLE, needs_opencl

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError, TypeMismatch
from armillary.ops.nn._windows import call

ort = pytest.importorskip("onnxruntime")
Array = np.ndarray[Any, Any]
LOWEST = np.finfo(np.float32).min  # what ONNX Runtime has for a window of padding
NODE = helper.make_node
OPENCL = ("opencl", "opencl -device=adreno")


def model(nodes: list[NodeProto], feeds: dict[str, Array], constants: dict[str, Array], opset: int = 18) -> Any:
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    weights = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [ValueInfoProto(name=n) for n in nodes[-1].output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run(made: Any, feeds: dict[str, Array], level: int = 3, target: str = "llvm") -> list[Array]:
    module, params = relay.frontend.from_onnx(made)
    with armillary.transform.PassContext(opt_level=level):
        library = relay.build(module, target=target, params=params)
    network = graph_executor.GraphModule(library["default"](armillary.device(target.split()[0], 0)))
    for name, value in feeds.items():
        network.set_input(name, value)
    network.run()
    return [network.get_output(k).numpy() for k in range(network.get_num_outputs())]


def both(nodes: list[NodeProto], feeds: dict[str, Array], constants: dict[str, Array], level: int) -> None:
    made = model(nodes, feeds, constants)
    wanted = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for got, want in zip(run(made, feeds, level), wanted, strict=True):
        if want.dtype.kind == "f":
            want = np.where(want == LOWEST, -np.inf, want).astype(want.dtype)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(30))
def test_maxima_and_places_are_onnx_runtimes(seed: int) -> None:
    rng = np.random.default_rng(900 + seed)
    rank = seed % 3 + 1
    kernel = rng.integers(1, 4, rank).tolist()
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": rng.integers(1, 4, rank).tolist(),
        "dilations": rng.integers(1, 3, rank).tolist(),
        "pads": [int(rng.integers(0, k)) for k in kernel * 2],
        "ceil_mode": int(rng.integers(0, 2)),
        "storage_order": int(rng.integers(0, 2)),
    }
    dtype = (np.float32, np.float64, np.int8, np.uint8)[seed % 4]
    x = rng.integers(0, 9, (2, 3, *rng.integers(5, 9, rank))).astype(dtype)  # many are equal
    both([NODE("MaxPool", ["x"], ["y", "i"], **attrs)], {"x": x}, {}, (0, 3)[seed % 2])


@pytest.mark.parametrize("seed", range(18))
def test_what_was_pooled_goes_back_to_where_it_was(seed: int) -> None:
    """SegNet's pairs: sizes that the windows do not divide, with padding, as constants or computed."""
    rng = np.random.default_rng(950 + seed)
    rank = seed % 3 + 1
    kernel = rng.integers(2, 4, rank).tolist()
    attrs = {"kernel_shape": kernel, "strides": kernel, "pads": [int(rng.integers(0, 2))] * rank * 2}
    x = rng.standard_normal((2, 2, *rng.integers(5, 10, rank))).astype(np.float32)
    nodes = [NODE("MaxPool", ["x"], ["p", "i"], **attrs), NODE("MaxUnpool", ["p", "i", "s"], ["y"], **attrs)]
    both(nodes, {"x": x}, {"s": np.array(x.shape)}, (0, 3)[seed % 2])


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 5, 5), (1, 1, 4, 5), (1, 1, 4, 4), (1, 1, 9, 7)])
def test_places_count_in_the_output_shape(shape: tuple[int, ...], is_constant: bool) -> None:
    nodes = [NODE("MaxUnpool", ["x", "i", "s"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    x, places = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2), np.array([[[[0, 3], [12, 8]]]])
    feeds = {"x": x} if is_constant else {"x": x, "i": places}
    both(nodes, feeds, {"s": np.array(shape), **({"i": places} if is_constant else {})}, 3)


def test_a_last_partial_window_is_unpooled_as_pytorch_does() -> None:
    """Five in windows of two, the last one partial (ceil_mode): ONNX Runtime asks for an output of six at least."""
    x = np.array([[[3, 1, 4, 1, 5]]], np.float32)
    attrs = {"kernel_shape": [2], "strides": [2]}
    nodes = [
        NODE("MaxPool", ["x"], ["p", "i"], ceil_mode=1, **attrs),
        NODE("MaxUnpool", ["p", "i", "s"], ["y"], **attrs),
    ]
    (got,) = run(model(nodes, {"x": x}, {"s": np.array([1, 1, 5])}), {"x": x})
    np.testing.assert_array_equal(got, [[[3, 0, 4, 0, 5]]])


@pytest.mark.parametrize("shape", [(1, 2, 5, 5), (2, 1, 5, 5), (1, 1, 2, 4), (1, 1, 5)])
def test_output_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    nodes = [NODE("MaxUnpool", ["x", "i", "s"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    feeds = {"x": np.ones((1, 1, 2, 2), np.float32), "i": np.zeros((1, 1, 2, 2), np.int64)}
    with pytest.raises(TypeMismatch, match=r"output_shape .* does not fit what is unpooled"):
        run(model(nodes, feeds, {"s": np.array(shape)}), feeds)


def test_places_are_not_counted_from_the_end() -> None:
    nodes = [NODE("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2], strides=[2])]
    feeds = {"x": np.ones((1, 1, 2), np.float32), "i": np.array([[[0, -1]]])}
    with pytest.raises(ArmillaryError, match="MaxUnpool: index -1"):
        run(model(nodes, feeds, {}), feeds)


# ---- NaN: larger than every number, as in PyTorch; ONNX Runtime drops it


def pooled(x: Array, kernel: int, stride: int, pad: int) -> tuple[Array, Array]:
    """The maxima of windows of data with one channel, and the places of the first of them: numpy's argmax finds NaN."""
    rank = x.ndim - 2
    places = np.arange(x.size).reshape(x.shape)
    counts = [(n + 2 * pad - kernel) // stride + 1 for n in x.shape[2:]]
    best, where = np.empty((1, 1, *counts), x.dtype), np.empty((1, 1, *counts), np.int64)
    for at in np.ndindex(*counts):
        window = tuple(slice(max(a * stride - pad, 0), a * stride - pad + kernel) for a in at)
        inside = x[(0, 0, *window)].reshape(-1)
        first = int(np.argmax(inside))
        best[(0, 0, *at)] = inside[first]
        where[(0, 0, *at)] = places[(0, 0, *window)].reshape(-1)[first]
    assert len(counts) == rank
    return best, where


def with_nan(rank: int, dtype: str, share: float) -> Array:
    rng = np.random.default_rng(rank)
    x = rng.standard_normal((1, 1, *(7, 6, 5)[:rank])).astype(dtype)
    x[rng.random(x.shape) < share] = np.nan
    x[rng.random(x.shape) < 0.1] = -np.inf
    return x


@pytest.mark.parametrize("target", ["llvm", *(pytest.param(t, marks=needs_opencl) for t in OPENCL)])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_nan_is_the_maximum_and_has_its_place(rank: int, share: float, target: str) -> None:
    for dtype, stride, level in (("float32", 1, 3), ("float16", 2, 3), ("float64", 2, 0)):
        if target != "llvm" and dtype == "float64" and not HAS_DOUBLE:
            continue
        x = with_nan(rank, dtype, share)
        attrs = {"kernel_shape": [3] * rank, "strides": [stride] * rank, "pads": [1] * 2 * rank}
        best, where = pooled(x, 3, stride, 1)
        got = run(model([NODE("MaxPool", ["x"], ["y", "i"], **attrs)], {"x": x}, {}), {"x": x}, level, target)
        np.testing.assert_array_equal(got[0], best)
        np.testing.assert_array_equal(got[1], where)
        alone = run(model([NODE("MaxPool", ["x"], ["y"], **attrs)], {"x": x}, {}), {"x": x}, level, target)
        np.testing.assert_array_equal(alone[0], best)


def test_one_dimension_is_called_as_two_and_three_are() -> None:
    for layout, rank in (("NCW", 1), ("NCHW", 2), ("NCDHW", 3)):
        x = relay.var("x", shape=(1, 1, *(6,) * rank))
        for size in (2, (2,), (2,) * rank):
            places = call("nn.max_pool_with_indices", x, pool_size=size, strides=size, layout=layout)[1]
            assert places.checked_type.shape == (1, 1, *(3,) * rank)
