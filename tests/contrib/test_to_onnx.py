"""A Relay module written as an ONNX model computes the same, by ONNX Runtime and by our own importer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import armillary
from armillary import relay
from armillary.base.aliases import Array
from armillary.base.extent import size
from armillary.contrib.target.onnx import to_onnx
from armillary.errors import ConfigError, UnsupportedError
from armillary.ops.nn.gelu import gelu
from armillary.ops.nn.standardize import standardize
from armillary.relay.expr import Expr, Function

onnxruntime = pytest.importorskip("onnxruntime")
RANDOM = np.random.default_rng(3)
Made = Callable[..., Expr]


def _close(build: Made, *shapes: tuple[int, ...], opset: int = 11, dtype: str = "float32") -> onnx.ModelProto:
    names = [relay.var(f"x{k}", shape=shape, dtype=dtype) for k, shape in enumerate(shapes)]
    function = Function(names, build(*names))
    data = [RANDOM.uniform(-2, 2, shape).astype(dtype) for shape in shapes]
    model = to_onnx(armillary.IRModule.from_expr(function), {}, "net", opset_version=opset)
    got = _run(model, data)
    wanted = relay.create_executor("debug").evaluate(function)(*data)
    for a, b in zip(got, wanted if isinstance(wanted, list) else [wanted], strict=True):
        assert a.dtype == b.numpy().dtype and a.shape == b.numpy().shape
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)
    return model


def _run(model: onnx.ModelProto, data: list[Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {value.name: d for value, d in zip(session.get_inputs(), data, strict=True)}))


@pytest.mark.parametrize("opset", [11, 17])
def test_elements_shapes_and_sums(opset: int) -> None:
    def build(x: Expr, y: Expr) -> Expr:
        a = relay.clip(relay.tanh(x) * y + relay.abs(x), -1.0, 1.5)
        b = relay.expand_dims(relay.sum(a, axis=1), 1, 2)
        c = relay.squeeze(relay.transpose(b, (0, 2, 1, 3)), [1, 2])
        parts = relay.split(a, (1, 3), axis=2)
        joined = relay.concatenate([parts[1], relay.tile(parts[0], (1, 1, 2))], axis=2)
        cut = relay.strided_slice(a, [2, -1, 0], [0, -5, 3], [-1, -2, 1])
        stacked = relay.stack([c, c + relay.max(a, axis=(0, 1))], axis=0)
        return relay.Tuple([joined, cut, stacked, relay.mean(a, axis=0, keepdims=True, exclude=True), x])

    _close(build, (3, 4, 5), (4, 5), opset=opset)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_is_of_one_axis(opset: int, axis: int) -> None:
    _close(lambda x: relay.nn.softmax(x, axis=axis), (2, 3, 4), opset=opset)
    _close(lambda x: relay.nn.log_softmax(x, axis=axis), (2, 3, 4), opset=opset)


def _channels_last(x: Expr, w: Expr) -> Expr:
    return relay.nn.conv2d(x, w, padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")


WINDOWS: dict[str, tuple[Made, tuple[tuple[int, ...], ...]]] = {
    "conv": (lambda x, w: relay.nn.conv2d(x, w, (2, 1), (1, 0, 2, 1), (1, 2)), ((1, 3, 9, 8), (4, 3, 3, 2))),
    "conv last": (_channels_last, ((1, 6, 5, 3), (3, 3, 3, 4))),
    "groups": (lambda x, w: relay.nn.conv2d(x, w, groups=4, channels=4), ((1, 4, 5, 5), (4, 1, 3, 3))),
    "conv1d": (lambda x, w: relay.nn.conv1d(x, w, padding=(1,)), ((2, 3, 7), (4, 3, 3))),
    "transposed": (
        lambda x, w: relay.nn.conv2d_transpose(x, w, (2, 2), (1, 1), output_padding=(1, 0)),
        ((1, 3, 4, 5), (3, 4, 3, 3)),
    ),
    "max": (lambda x: relay.nn.max_pool2d(x, (3, 2), (2, 2), padding=(1, 0), ceil_mode=True), ((1, 2, 8, 7),)),
    "max last": (lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), ((1, 6, 4, 2),)),
    "mean": (lambda x: relay.nn.avg_pool2d(x, (3, 3), (1, 1), padding=(1, 1)), ((1, 2, 5, 5),)),
    "mean all": (lambda x: relay.nn.avg_pool2d(x, (3, 3), padding=(1, 1), count_include_pad=True), ((1, 2, 5, 5),)),
    "global": (lambda x: relay.nn.global_avg_pool2d(x), ((2, 3, 4, 5),)),
    "pad": (lambda x: relay.nn.pad(x, ((0, 0), (1, 2)), pad_value=3.0), ((2, 3),)),
    "reflect": (lambda x: relay.nn.pad(x, ((0, 0), (1, 2)), pad_mode="reflect"), ((2, 4),)),
    "nearest": (lambda x: relay.image.resize2d(x, (7, 6), method="nearest_neighbor"), ((1, 2, 4, 4),)),
    "align": (
        lambda x: relay.image.resize2d(x, (7, 6), coordinate_transformation_mode="align_corners"),
        ((1, 2, 4, 4),),
    ),
    "upsampling": (lambda x: relay.nn.upsampling(x, 2, 2, layout="NHWC"), ((1, 3, 4, 2),)),
    "lrn": (lambda x: relay.nn.lrn(x, 3, alpha=0.5), ((1, 5, 3, 3),)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    build, shapes = WINDOWS[name]
    _close(build, *shapes)


PRODUCTS: dict[str, tuple[Made, tuple[tuple[int, ...], ...]]] = {
    "dense": (lambda x, w: relay.nn.dense(x, w), ((2, 3), (4, 3))),
    "dense of three": (lambda x, w: relay.nn.dense(x, w), ((2, 5, 3), (4, 3))),
    "batches": (lambda x, w: relay.nn.batch_matmul(x, w), ((2, 5, 3), (2, 4, 3))),
    "matmul": (lambda x, w: relay.nn.matmul(x, w, transpose_a=True), ((3, 2), (3, 4))),
    "bias": (lambda x, b: relay.nn.bias_add(x, b, axis=1), ((2, 3, 4), (3,))),
    "norm": (
        lambda x, g, b, m, v: relay.nn.batch_norm(x, g, b, m, v * v, axis=3)[0],
        ((2, 4, 4, 3), (3,), (3,), (3,), (3,)),
    ),
    "layer norm": (lambda x, g, b: relay.nn.layer_norm(x, g, b), ((2, 3, 4), (4,), (4,))),
    "any": (lambda x, y: relay.any(relay.greater(x, y), axis=1), ((9, 2), (9, 2))),
    "all": (lambda x, y: relay.all(relay.greater(x, y), axis=(0, 2), keepdims=True), ((2, 9, 1), (2, 9, 1))),
    "gelu": (lambda x: gelu(x) + gelu(x, approximate="tanh"), ((9, 9),)),
    "unit": (lambda x: standardize(x, axis=(-1, 1), epsilon=1e-3), ((2, 3, 4),)),
    "unit, its mean stays": (lambda x: standardize(x, axis=(2,), epsilon=0.1, center=False), ((2, 3, 4),)),
    "prelu": (lambda x, a: relay.nn.prelu(x, a), ((1, 3, 2, 2), (3,))),
    "leaky": (lambda x: relay.nn.leaky_relu(x, 0.2), ((3, 3),)),
    "modulo": (lambda x, y: relay.floor_mod(x, y), ((3, 3), (3, 3))),
    "argmax": (lambda x: relay.argmax(x, axis=1), ((3, 4),)),
    "where": (lambda x, y: relay.where(relay.greater(x, y), x, relay.zeros_like(y)), ((3, 4), (3, 4))),
    "layout": (lambda x: relay.layout_transform(x, "NCHW", "NHWC"), ((1, 2, 3, 4),)),
    "reshape": (lambda x: relay.reshape(relay.nn.batch_flatten(x), (-1, 0)), ((2, 3, 4),)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_and_others(name: str) -> None:
    build, shapes = PRODUCTS[name]
    _close(build, *shapes, opset=13)


@pytest.mark.parametrize("mode", ["clip", "wrap", "fast"])
def test_rows_are_taken_as_relay_takes_them(mode: str) -> None:
    rows = np.array([[-1, 0], [7, 3]] if mode != "fast" else [[1, 0], [2, 3]], "int32")
    build = lambda x: relay.take(x, relay.const(rows), axis=0, mode=mode)  # noqa: E731
    _close(build, (4, 3), opset=12)
    if mode == "clip":
        with pytest.raises(UnsupportedError, match="opset 11 limits no integers"):
            _close(build, (4, 3), opset=11)


def test_parameters_and_a_file(tmp_path: Path) -> None:
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    weight, data = RANDOM.normal(size=(4, 3)).astype("float32"), RANDOM.normal(size=(2, 3)).astype("float32")
    module = armillary.IRModule.from_expr(Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    made = to_onnx(module, {"w": armillary.nd.array(weight)}, "net", path=tmp_path / "net.onnx")
    assert [value.name for value in made.graph.input] == ["x"] and made.graph.name == "net"
    read = onnx.load(str(tmp_path / "net.onnx"))
    np.testing.assert_allclose(_run(read, [data])[0], np.maximum(data @ weight.T, 0), rtol=1e-5, atol=1e-6)
    back, params = relay.frontend.from_onnx(read, {"x": (2, 3)})
    again = relay.create_executor("debug", back).evaluate()(data, **params)
    np.testing.assert_allclose(again.numpy(), np.maximum(data @ weight.T, 0), rtol=1e-5, atol=1e-6)


def test_open_dimensions_stay_open() -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    model = to_onnx(armillary.IRModule.from_expr(Function([x], relay.nn.relu(x) + relay.const(1.0))))
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for count in (1, 5):
        assert _run(model, [np.zeros((count, 3), "float32")])[0].shape == (count, 3)


def test_counts_over_open_sizes_are_refused() -> None:
    rows = size("rows")
    x = relay.var("x", shape=(rows, 3))
    with pytest.raises(UnsupportedError, match="to_onnx: tile by 2\\*rows, which is open here"):
        to_onnx(Function([x], relay.tile(x, (2 * rows, 1))))
    with pytest.raises(UnsupportedError, match="to_onnx: strided_slice to rows - 1, which is open here"):
        to_onnx(Function([x], relay.strided_slice(x, begin=(0,), end=(rows - 1,), axes=(0,))))


def test_what_has_no_form_is_refused() -> None:
    x = relay.var("x", shape=(4, 4))
    with pytest.raises(ConfigError, match="opset_version 9: wanted one from 11 to 17"):
        to_onnx(Function([x], x), opset_version=9)
    with pytest.raises(UnsupportedError, match="no rule for sort"):
        to_onnx(Function([x], relay.sort(x)))
    with pytest.raises(UnsupportedError, match="has no ONNX form"):
        to_onnx(Function([x], relay.If(relay.const(True), x, x + x)))
    y = relay.var("y", shape=(1, 3, 4, 4), dtype="int8")
    w = relay.var("w", shape=(2, 3, 1, 1), dtype="int8")
    with pytest.raises(UnsupportedError, match="ONNX has floats here"):
        to_onnx(Function([y, w], relay.nn.conv2d(y, w, out_dtype="int32")))
    z = relay.var("z", shape=(1, 8, 4, 4))
    with pytest.raises(UnsupportedError, match="the layout NCHW as NCHW8c"):
        to_onnx(Function([z], relay.layout_transform(z, "NCHW", "NCHW8c")))


def test_a_residual_block_of_a_network() -> None:
    def build(x: Expr, w: Expr, v: Expr, g: Expr, b: Expr, m: Expr, s: Expr, d: Expr) -> Expr:
        first = relay.nn.conv2d(x, w, (2, 2), (1, 1), channels=8, kernel_size=(3, 3))
        normal = relay.nn.relu(relay.nn.batch_norm(first, g, b, m, relay.exp(s), epsilon=1e-3)[0])
        second = relay.nn.conv2d(normal, v, padding=(1, 1), channels=8, kernel_size=(3, 3)) + normal
        pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.max_pool2d(second, (2, 2), (2, 2))))
        return relay.nn.softmax(relay.nn.dense(pooled, d) / relay.const(8.0))

    per_channel = ((8,),) * 4
    model = _close(build, (1, 3, 16, 16), (8, 3, 3, 3), (8, 8, 3, 3), *per_channel, (5, 8))
    assert len(model.graph.node) < 20


def test_biases_are_the_convolutions_own_where_nothing_else_reads_them() -> None:
    weight, bytes_ = RANDOM.uniform(-1, 1, (8, 3, 3, 3)).astype("float32"), RANDOM.integers(-9, 9, (8, 8, 1, 1))
    bias, more = (RANDOM.uniform(-1, 1, (8, 1, 1)).astype("float32") for _ in range(2))
    steps = relay.const(RANDOM.uniform(0.1, 0.2, 8).astype("float32"))

    def build(x: Expr) -> Expr:
        first = relay.nn.conv2d(x, relay.const(weight)) + relay.const(bias) + relay.const(more)
        kernel = relay.qnn.dequantize(relay.const(bytes_.astype("int8")), steps, relay.const(np.int32(0)), axis=0)
        second = relay.nn.conv2d(relay.nn.relu(first), kernel) + relay.const(more)
        third = relay.nn.conv2d(second, kernel)
        return relay.Tuple([third + relay.const(bias), third + relay.const(np.float32(2)) + relay.const(bias)])

    nodes = _close(build, (1, 3, 8, 8), opset=13).graph.node
    assert [len(node.input) for node in nodes if node.op_type == "Conv"] == [3, 3, 2]
    assert sum(node.op_type == "Add" for node in nodes) == 3
