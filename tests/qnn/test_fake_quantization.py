"""Networks of (De)QuantizeLinear run in integers, within one step of ONNX Runtime, which does so too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from host_cpu import exact_session
from onnx import TensorProto, helper, numpy_helper

from armillary import relay
from armillary.backend import prepare
from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.binding import bind_params_by_name
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant
from armillary.relay.op import Op, get_op
from armillary.relay.transform.quantize.to_mixed_precision import to_mixed_precision
from armillary.relay.walk import post_order

Array = np.ndarray[Any, Any]
SEED = 20261122


class Net:
    """A network under construction: every tensor is quantised and dequantised as quantisers write it."""

    def __init__(self, dtype: str = "uint8", seed: int = SEED) -> None:
        self.rng, self.dtype = np.random.default_rng(seed), np.dtype(dtype)
        self.nodes: list[Any] = []
        self.weights: dict[str, Array] = {}
        self.inputs: dict[str, Array] = {}
        self.scale: dict[str, Array] = {}  # of dequantised tensors, by name
        self.step = 0.0  # of the tensor that was quantised last
        self.declared: list[Any] = []

    def name(self) -> str:
        return f"t{len(self.nodes)}_{len(self.weights)}"

    def constant(self, value: Any) -> str:
        name = self.name()
        self.weights[name] = np.asarray(value)
        return name

    def node(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        name = self.name()
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attrs))
        return name

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.rng.uniform(-1, 1, shape).astype(np.float32)
        self.declared.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return self.quantised(name, 2 / 255)

    def zero(self, unsigned: int = 128) -> Array:
        return np.array(unsigned if self.dtype == np.uint8 else unsigned - 128, self.dtype)

    def quantised(self, x: str, step: float, unsigned: int = 128) -> str:
        """QuantizeLinear, then DequantizeLinear."""
        self.step = step
        parameters = [self.constant(np.float32(step)), self.constant(self.zero(unsigned))]
        made = self.node("DequantizeLinear", self.node("QuantizeLinear", x, *parameters), *parameters)
        self.scale[made] = np.asarray(np.float32(step))
        return made

    def weight(self, *shape: int, axis: int | None = 0) -> str:
        """int8 values, with a scale for each index of the axis."""
        per = () if axis is None else (shape[axis],)
        scale = self.rng.uniform(0.002, 0.01, per).astype(np.float32)
        values = self.rng.integers(-127, 128, shape).astype(np.int8)
        attrs = {} if axis is None else {"axis": axis}
        parts = [self.constant(v) for v in (values, scale, np.zeros(per, np.int8))]
        made = self.node("DequantizeLinear", *parts, **attrs)
        self.scale[made] = scale
        return made

    def bias(self, x: str, w: str, count: int) -> str:
        """int32 in steps of both scales' product."""
        scale = np.broadcast_to(np.float32(self.scale[x] * self.scale[w]), (count,))
        steps = self.rng.integers(-3000, 3000, count).astype(np.int32)
        parts = [self.constant(v) for v in (steps, np.array(scale), np.zeros(count, np.int32))]
        return self.node("DequantizeLinear", *parts, axis=0)

    def model(self, output: str) -> Any:
        results = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        values = [numpy_helper.from_array(v, n) for n, v in self.weights.items()]
        graph = helper.make_graph(self.nodes, "net", self.declared, results, values)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CASES: dict[str, Callable[[Net], str]] = {}


def case(make: Callable[[Net], str]) -> Callable[[Net], str]:
    CASES[make.__name__] = make
    return make


@case
def convolution_with_bias(net: Net) -> str:
    x, w = net.input(1, 5, 9, 9), net.weight(7, 5, 3, 3)
    return net.quantised(net.node("Conv", x, w, net.bias(x, w, 7), pads=[1] * 4, strides=[2, 2]), 0.05)


@case
def convolution_of_one_scale_and_relu(net: Net) -> str:
    made = net.node("Conv", net.input(1, 5, 9, 9), net.weight(7, 5, 1, 1, axis=None))
    return net.quantised(net.node("Relu", made), 0.02, 0)


@case
def depthwise_convolution_and_clip(net: Net) -> str:
    x, w = net.input(1, 8, 9, 9), net.weight(8, 1, 3, 3)
    made = net.node("Conv", x, w, net.bias(x, w, 8), group=8, pads=[1] * 4)
    limits = [net.constant(np.float32(v)) for v in (0, 1)]
    return net.quantised(net.node("Clip", made, *limits), 0.02)


@case
def convolution_over_one_axis(net: Net) -> str:
    x, w = net.input(1, 5, 19), net.weight(7, 5, 3)
    return net.quantised(net.node("Conv", x, w, net.bias(x, w, 7), pads=[2, 1], dilations=[2]), 0.05)


@case
def matrix_product_with_bias(net: Net) -> str:
    x, w = net.input(4, 20), net.weight(6, 20)
    return net.quantised(net.node("Gemm", x, w, net.bias(x, w, 6), transB=1), 0.05)


@case
def product_with_weights_transposed(net: Net) -> str:
    return net.quantised(net.node("MatMul", net.input(2, 4, 20), net.weight(20, 6, axis=1)), 0.05)


@case
def product_of_two_activations(net: Net) -> str:
    return net.quantised(net.node("MatMul", net.input(2, 3, 4, 20), net.input(2, 3, 20, 5)), 0.05)


@case
def residual_sum(net: Net) -> str:
    return net.quantised(net.node("Add", net.input(1, 4, 5, 5), net.input(1, 4, 5, 5)), 2 / 255)


@case
def product_of_elements(net: Net) -> str:
    return net.quantised(net.node("Mul", net.input(1, 4, 5, 5), net.input(1, 4, 1, 1)), 2 / 255)


@case
def parts_of_different_scales(net: Net) -> str:
    parts = net.input(1, 4, 5, 5), net.quantised(net.node("Sigmoid", net.input(1, 3, 5, 5)), 1 / 256, 0)
    return net.quantised(net.node("Concat", *parts, axis=1), 2 / 255)


@case
def pools(net: Net) -> str:
    x = net.input(1, 4, 9, 9)
    largest = net.quantised(net.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), net.step)
    mean = net.node("AveragePool", largest, kernel_shape=[3, 3], strides=[2, 2])
    return net.quantised(mean, net.step)


@case
def global_pool_and_flatten(net: Net) -> str:
    mean = net.quantised(net.node("GlobalAveragePool", net.input(1, 4, 9, 9)), 0.002)
    return net.quantised(net.node("Flatten", mean), net.step)


@case
def moves(net: Net) -> str:
    shape = net.constant(np.array([1, 5, 20], np.int64))
    moved = net.quantised(net.node("Transpose", net.input(1, 4, 5, 5), perm=[0, 2, 3, 1]), net.step)
    return net.quantised(net.node("Reshape", moved, shape), net.step)


@case
def rows_of_a_table(net: Net) -> str:
    rows = net.constant(np.array([3, 0, 3, 7], np.int64))
    return net.quantised(net.node("Gather", net.weight(9, 6, axis=None), rows), 0.01)


@case
def border_and_nearest_resize(net: Net) -> str:
    pads = net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 0], np.int64))
    x = net.quantised(net.node("Pad", net.input(1, 2, 4, 4), pads), net.step)
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    made = net.node(
        "Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    return net.quantised(made, net.step)


@case
def weights_that_training_quantises(net: Net) -> str:
    """As PyTorch writes them: float weights that the graph quantises, and a float bias."""
    w = net.constant(net.rng.uniform(-1, 1, (7, 5, 3, 3)).astype(np.float32))
    parts = [net.constant(np.full(7, 1 / 127, np.float32)), net.constant(np.zeros(7, np.int8))]
    stored = net.node("DequantizeLinear", net.node("QuantizeLinear", w, *parts, axis=0), *parts, axis=0)
    bias = net.constant(net.rng.uniform(-1, 1, 7).astype(np.float32))
    made = net.node("Conv", net.input(1, 5, 9, 9), stored, bias)
    return net.quantised(net.node("Relu", made), 0.05, 0)


@case
def channels_last_with_a_border(net: Net) -> str:
    """As converters from TensorFlow write them: transpositions around a convolution whose weights are HWIO."""
    pads = net.constant(np.array([0, 1, 1, 0, 0, 1, 0, 0], np.int64))
    x = net.quantised(net.node("Pad", net.input(1, 9, 9, 5), pads), net.step)
    first = net.node("Transpose", x, perm=[0, 3, 1, 2])
    w = net.node("Transpose", net.weight(3, 3, 5, 7, axis=3), perm=[3, 2, 0, 1])
    return net.quantised(net.node("Transpose", net.node("Conv", first, w), perm=[0, 2, 3, 1]), 0.05)


@case
def depthwise_weights_of_another_shape(net: Net) -> str:
    shape = net.constant(np.array([6, 1, 3, 3], np.int64))
    w = net.node("Transpose", net.weight(3, 3, 6, 1, axis=2), perm=[2, 3, 0, 1])
    made = net.node("Conv", net.input(1, 6, 9, 9), net.node("Reshape", w, shape), group=6)
    return net.quantised(made, 0.02)


@case
def normalisation_and_sigmoid(net: Net) -> str:
    values = [net.constant(net.rng.uniform(0.5, 1.5, 5).astype(np.float32)) for _ in range(4)]
    x = net.quantised(net.node("BatchNormalization", net.input(1, 5, 9, 9), *values), 0.02)
    return net.quantised(net.node("Mul", x, net.node("Sigmoid", x)), 0.02)


@case
def softmax(net: Net) -> str:
    return net.quantised(net.node("Softmax", net.input(3, 4, 20), axis=-1), 1 / 256, 0)


def _ours(model: Any) -> IRModule:
    module, params = relay.frontend.from_onnx(model)
    module["main"] = bind_params_by_name(module["main"], params)
    return relay.transform.InferType()(module)


def _names(module: IRModule) -> set[str]:
    calls = [e.op for e in post_order(module["main"]) if isinstance(e, Call)]
    return {op.name for op in calls if isinstance(op, Op)}


FLOAT_PRODUCTS = {"nn.conv1d", "nn.conv2d", "nn.dense", "nn.batch_matmul"}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", CASES)
def test_a_quantised_operator_is_within_one_step_of_onnxruntime(name: str, dtype: str) -> None:
    net = Net(dtype)
    model = net.model(CASES[name](net))
    (want,) = exact_session(model).run(None, net.inputs)
    (got,) = prepare(model).run(net.inputs)
    assert got.shape == want.shape and got.dtype == want.dtype
    steps = np.abs(got.astype(np.float64) - want) / net.step
    assert steps.max() < 1.01 and (steps > 0.01).mean() < 0.1, f"seed {SEED}: {steps.max()} steps"


@pytest.mark.parametrize("name", CASES)
def test_integers_give_what_the_float_description_gives(name: str) -> None:
    """Against the graph as the file has it, evaluated in float: the same but where a value lies half-way."""
    net = Net()
    module = _ours(net.model(CASES[name](net)))
    changed = relay.transform.InferType()(relay.transform.FakeQuantizationToInteger(use_qat=True)(module))
    want, got = (evaluate(m["main"], net.inputs) for m in (module, changed))
    steps = np.abs(np.asarray(got, np.float64) - want) / net.step
    assert steps.max() < 1.01 and (steps > 0.01).mean() < 0.02, f"seed {SEED}: {steps.max()} steps"
    assert not _names(changed) & FLOAT_PRODUCTS


def test_weights_stay_bytes() -> None:
    net = Net()
    model = net.model(convolution_with_bias(net))
    changed = relay.transform.FakeQuantizationToInteger()(_ours(model))
    large = [e.data for e in post_order(changed["main"]) if isinstance(e, Constant) and e.data.size > 7]
    assert [data.dtype for data in large] == [np.dtype("int8")]


def _float_result() -> tuple[Net, IRModule]:
    net = Net()
    x, w = net.input(4, 20), net.weight(6, 20)
    return net, _ours(net.model(net.node("Gemm", x, w, net.bias(x, w, 6), transB=1)))


def test_a_result_that_stays_float_is_left_alone_without_use_qat() -> None:
    net, module = _float_result()
    assert "nn.dense" in _names(relay.transform.FakeQuantizationToInteger()(module))
    changed = relay.transform.FakeQuantizationToInteger(use_qat=True)(module)
    assert "nn.dense" not in _names(changed)
    want, got = (evaluate(m["main"], net.inputs) for m in (module, changed))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=f"seed {SEED}")


def _elementwise() -> IRModule:
    net = Net()
    return _ours(net.model(residual_sum(net)))


def test_operators_become_those_of_the_dialect_where_they_are_named() -> None:
    assert "qnn.add" not in _names(relay.transform.FakeQuantizationToInteger()(_elementwise()))
    assert "qnn.add" in _names(relay.transform.FakeQuantizationToInteger(optional_qnn_ops=["add"])(_elementwise()))


def test_what_has_no_rule_is_refused_on_demand() -> None:
    with pytest.raises(UnsupportedError, match="add has no rule"):
        relay.transform.FakeQuantizationToInteger(hard_fail=True)(_elementwise())
    with pytest.raises(ConfigError, match=r"no qnn operator for 'nn.conv9d'"):
        relay.transform.FakeQuantizationToInteger(optional_qnn_ops=["nn.conv9d"])(_elementwise())


def test_branches_read_what_is_dequantised_outside() -> None:
    net = Net()
    moved = net.node("Transpose", net.input(4, 6), perm=[1, 0])
    result = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [6, 4]) for name in ("r", "n")]
    yes, no = (
        helper.make_graph([helper.make_node(op_type, [moved], [r.name])], op_type, [], [r])
        for op_type, r in zip(("Relu", "Neg"), result, strict=True)
    )
    net.inputs["p"] = np.array(False)
    net.declared.append(helper.make_tensor_value_info("p", TensorProto.BOOL, []))
    model = net.model(net.node("If", "p", then_branch=yes, else_branch=no))
    for flag in (True, False):
        net.inputs["p"] = np.array(flag)
        (got,) = prepare(model).run(net.inputs)
        x = net.inputs["x0"].T
        assert np.abs(got - (np.maximum(x, 0) if flag else -x)).max() <= 0.51 * net.step, f"seed {SEED}"


@pytest.mark.parametrize(("dtype", "scale"), [("float16", 0.02), ("float32", 0.0)])
def test_other_floats_and_impossible_scales_stay_as_they_are(dtype: str, scale: float) -> None:
    data = relay.var("x", shape=(4,), dtype="int8")
    step, zero = relay.const(np.float32(scale)), relay.const(np.int32(0))
    real = relay.qnn.op.dequantize(data, step, zero, out_dtype=dtype)
    y = relay.qnn.op.quantize(relay.sigmoid(relay.reverse(real, axis=0)), step, zero)
    module = relay.transform.InferType()(IRModule.from_expr(relay.Function([data], y)))
    changed = relay.transform.FakeQuantizationToInteger(use_qat=True)(module)
    assert changed.astext() == module.astext()


@pytest.mark.parametrize(
    "name", ["convolution_with_bias", "matrix_product_with_bias", "product_with_weights_transposed"]
)
def test_mixed_precision_leaves_what_is_quantised_in_integers(name: str) -> None:
    net = Net()
    module = relay.frontend.from_onnx(net.model(CASES[name](net)))[0]
    mixed = relay.transform.ToMixedPrecision("float16", 2)(module)
    assert "float16" not in str(mixed)


def test_mixed_precision_converts_the_layer_behind_a_quantised_one() -> None:
    net = Net()
    made = CASES["matrix_product_with_bias"](net)
    factor = net.constant(np.ones((6, 3), np.float32))
    mixed = relay.transform.ToMixedPrecision("float16", 2)(
        relay.frontend.from_onnx(net.model(net.node("MatMul", net.node("Relu", net.node("Sigmoid", made)), factor)))[0]
    )
    dtypes = [expr.checked_type.dtype for expr in post_order(mixed["main"]) if _is_call(expr, "nn.dense")]
    assert dtypes == ["float32", "float16"]


def _is_call(expr: Any, name: str) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == name


@pytest.mark.parametrize("operator", ["nn.matmul", "nn.dense", "nn.batch_matmul", "nn.conv2d", "qnn.dense"])
@pytest.mark.parametrize("sums", ["", "float16", "float32"])
def test_mixed_precision_leaves_products_of_integers(operator: str, sums: str) -> None:
    """Their sums were float16: other numbers, and a type that what reads them does not take."""
    shapes = {"nn.batch_matmul": (3, 8, 8), "nn.conv2d": (1, 8, 3, 3)}
    shape = shapes.get(operator, (8, 8))
    a = relay.var("a", shape=shape, dtype="int8")
    b = relay.var("b", shape=(8, 8, 1, 1) if operator == "nn.conv2d" else shape, dtype="int8")
    scales = [relay.const(v) for v in (np.int32(1), np.int32(2), np.float32(0.5), np.float32(0.5))]
    more, wide = (scales, {}) if operator == "qnn.dense" else ([], {"out_dtype": "int32"})
    body = relay.nn.instance_norm(
        relay.cast(relay.reshape(get_op(operator)(a, b, *more, **wide), (1, 8, -1)), "float32"),
        *(relay.const(np.ones(8, np.float32)) for _ in range(2)),
    )
    module = relay.transform.InferType()(IRModule.from_expr(relay.Function([a, b], body)))
    forms = {operator: (0, sums, "float16")} if sums and not more else {}
    mixed = to_mixed_precision(module, mixed_precision_type="float16", missing_op_mode=2, conversions=forms)
    assert str(mixed) == str(module)
