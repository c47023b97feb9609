"""Constants a hair off, infinite, or so large that their products are: what is recognised and folded, and what not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, helper, numpy_helper

from armillary import relay
from armillary.driver.build import build
from armillary.errors import TypeMismatch
from armillary.frontend import from_onnx
from armillary.relay.analysis import op_frequency
from armillary.relay.transform.pipeline import optimize
from armillary.runtime import cpu
from armillary.target import Target
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
Node = tuple[str, str, str]  # operator, inputs, output


def model(nodes: list[NodeProto], x: Array, constants: dict[str, Array]) -> ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    given = [helper.make_tensor_value_info("x", kind, x.shape)]
    held = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    result = helper.make_empty_tensor_value_info(nodes[-1].output[0])
    graph = helper.make_graph(nodes, "odd", given, [result], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(nodes: list[NodeProto], x: Array, constants: dict[str, Array], level: int = 3) -> Array:
    return run_model(model(nodes, x, constants), x, level)


def run_model(made: ModelProto, x: Array, level: int = 3) -> Array:
    module, params = from_onnx(made)
    with PassContext(opt_level=level):
        graph = build(module, "llvm", params=params)["default"](cpu(0))
    graph.set_input("x", x)
    graph.run()
    return np.asarray(graph.get_output(0).numpy())


DOTS = "llvm -mcpu=cascadelake"  # products of bytes; others take floats, which are exact


def optimized(nodes: list[NodeProto], x: Array, constants: dict[str, Array], target: str = "llvm") -> dict[str, int]:
    module, params = from_onnx(model(nodes, x, constants))
    with PassContext(opt_level=3):
        return dict(op_frequency(optimize(module, Target(target), params)["main"]))


def nodes_of(*rows: Node) -> list[NodeProto]:
    return [helper.make_node(op, inputs.split(), [output]) for op, inputs, output in rows]


ODD = np.array([-np.inf, -3, -0.5, -0.0, 0.0, 0.25, 4, np.inf, np.nan], np.float32)


def _elu(x: Array, a: float) -> Array:
    return np.where(x < 0, a * np.expm1(x), x)


FORMULAS: dict[tuple[str, float], Callable[[Array, float], Array]] = {
    **{("LeakyRelu", a): lambda x, a: np.where(x < 0, a * x, x) for a in (np.inf, -np.inf, -1.5)},
    **{("Elu", a): _elu for a in (np.inf, -np.inf, np.nan, -1.5)},
    **{("Celu", a): lambda x, a: np.maximum(0, x) + np.minimum(0, a * np.expm1(x / a)) for a in (-1.5, -0.1, 2.0)},
    ("Selu", np.inf): lambda x, a: np.where(x > 0, x, a * np.expm1(x)) * 1.05070102214813232421875,
}


@pytest.mark.parametrize(("op", "alpha"), FORMULAS)
def test_activations_of_odd_parameters(op: str, alpha: float) -> None:
    with np.errstate(all="ignore"):
        wanted = FORMULAS[op, alpha](ODD.astype(np.float64), alpha).astype(np.float32)
    found = run([helper.make_node(op, ["x"], ["y"], alpha=alpha)], ODD, {})
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(1,), (2, 1), (2, 9)])
def test_prelu_of_an_infinite_slope(shape: tuple[int, ...]) -> None:
    x, slope = np.stack([ODD, ODD])[None], np.full(shape, np.inf, np.float32)
    found = run([helper.make_node("PRelu", ["x", "s"], ["y"])], x, {"s": slope})
    np.testing.assert_array_equal(found, np.where(x < 0, -np.inf, x))


@pytest.mark.parametrize("activation", ["Elu", "LeakyRelu", "ThresholdedRelu"])
def test_recurrent_activations_of_odd_parameters(activation: str) -> None:
    """Without a state an RNN is its activation."""
    node = helper.make_node(
        "RNN", ["x", "w", "r"], ["y"], hidden_size=1, activations=[activation], activation_alpha=[np.inf]
    )
    x = np.array([[[-np.inf]], [[0.0]], [[2.0]]], np.float32).transpose(1, 0, 2)
    found = run([node], x, {"w": np.ones((1, 1, 1), np.float32), "r": np.zeros((1, 1, 1), np.float32)}).ravel()
    wanted = [0.0, 0.0, 0.0] if activation == "ThresholdedRelu" else [-np.inf, 0.0, 2.0]
    np.testing.assert_array_equal(found, wanted)


GELU = nodes_of(
    ("Div", "x root", "a"), ("Erf", "a", "b"), ("Add", "b one", "c"), ("Mul", "x c", "d"), ("Mul", "d half", "y")
)


@pytest.mark.parametrize("name", ["root", "one", "half"])
def test_gelu_by_a_hair(name: str) -> None:
    """A constant off by 6e-5 of itself, as far as bits of its low half go, is another function."""
    constants = {"root": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}
    x = np.linspace(-4, 4, 257, dtype=np.float32)
    assert optimized(GELU, x, constants).get("nn.gelu", 0) == 1
    constants[name] = np.float32(constants[name] * (1 + 6e-5))
    wanted = run(GELU, x, constants, level=0)
    np.testing.assert_allclose(run(GELU, x, constants), wanted, rtol=2e-6, atol=1e-6)


def test_gelu_of_rounded_constants_is_still_found() -> None:
    """The root as a factor, and constants rounded to the halves of a graph of halves."""
    scaled = nodes_of(
        ("Mul", "x root", "a"), ("Erf", "a", "b"), ("Add", "b one", "c"), ("Mul", "x half", "d"), ("Mul", "d c", "y")
    )
    for kind in (np.float32, np.float16):
        constants: dict[str, Array] = {"root": kind(0.70710678), "one": kind(1), "half": kind(0.5)}
        assert optimized(scaled, np.ones(9, kind), constants).get("nn.gelu", 0) == 1


def test_gelu_through_factors_that_overflow_stays() -> None:
    rows = (("Mul", "y small", "z"), ("Mul", "z large", "out"))
    nodes = [*GELU, *nodes_of(*rows)]
    constants = {"root": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}
    constants |= {"small": np.float32(1e-38), "large": np.float32(1e38)}
    x = np.array([1e-7, 1.0], np.float32)
    np.testing.assert_allclose(run(nodes, x, constants), run(nodes, x, constants, level=0), rtol=1e-5)


SOFTPLUS = nodes_of(
    ("Abs", "x", "a"),
    ("Neg", "a", "n"),
    ("Exp", "n", "e"),
    ("Add", "e one", "u"),
    ("Log", "u", "l"),
    ("Sub", "u last", "v"),
    ("Div", "e v", "q"),
    ("Mul", "l q", "p"),
    ("Equal", "u one", "c"),
    ("Where", "c e p", "w"),
    ("Relu", "x", "r"),
    ("Add", "r w", "s"),
    ("Tanh", "s", "y"),
)


@pytest.mark.parametrize("last", [1.0, 1.25])
def test_mish_by_a_hair(last: float) -> None:
    """The part that makes rounding good divides by the number that it should, or it is none."""
    constants = {"one": np.float32(1), "last": np.float32(last)}
    x = np.array([-3, -0.5, 0.25, 2.0], np.float32)
    power = np.exp(-np.abs(x.astype(np.float64)))
    wanted = np.tanh(np.maximum(x, 0) + np.log1p(power) * power / (power + 1 - last))
    np.testing.assert_allclose(run(SOFTPLUS, x, constants), wanted, rtol=1e-5)


def _chain(op: str, *values: float) -> tuple[list[NodeProto], dict[str, Array]]:
    rows = [(op, f"{'x' if k == 0 else f't{k - 1}'} c{k}", f"t{k}") for k in range(len(values))]
    return nodes_of(*rows), {f"c{k}": np.float32(v) for k, v in enumerate(values)}


@pytest.mark.parametrize("values", [(1e-30, 1e-30), (1e30, 1e-30), (1e-30, 1e-12), (3e38, 10.0), (1e-45, 1e20)])
def test_factors_whose_product_loses_something_stay_apart(values: tuple[float, ...]) -> None:
    nodes, constants = _chain("Mul", *values)
    x = np.array([1e-20, 0.5, 3.0, 1e20, 1e25], np.float32)
    np.testing.assert_array_equal(run(nodes, x, constants), run(nodes, x, constants, level=0))
    assert optimized(nodes, x, constants).get("multiply", 0) == 2


def test_usual_factors_are_one() -> None:
    nodes, constants = _chain("Mul", 3.0, 0.0, 0.125)
    assert optimized(nodes, np.ones(3, np.float32), constants).get("multiply", 0) == 1


@pytest.mark.parametrize(("weight", "factor"), [(1e38, 300.0), (2e38, 1e-3), (1e-38, 1e-3), (1e-30, 1e-30)])
@pytest.mark.parametrize("before", [True, False])
def test_factors_are_not_folded_beyond_the_range(weight: float, factor: float, before: bool) -> None:
    rows = [("Mul", "x f", "m"), ("MatMul", "m w", "y")] if before else [("MatMul", "x w", "m"), ("Mul", "m f", "y")]
    constants: dict[str, Array] = {"w": np.full((4, 3), weight, np.float32), "f": np.float32(factor)}
    x = np.array([[0.0, 0.0, 0.0, 0.0], [1e-3, 0.0, 0.0, 0.0], [0.5, -0.5, 0.0, 0.0]], np.float32)
    nodes = nodes_of(*rows)
    np.testing.assert_array_equal(run(nodes, x, constants), run(nodes, x, constants, level=0))
    assert optimized(nodes, x, constants).get("multiply", 0) == 1


def test_a_bias_is_not_folded_beyond_the_range() -> None:
    nodes = nodes_of(("MatMul", "x w", "m"), ("Add", "m b", "n"), ("Mul", "n f", "y"))
    constants = {"w": np.eye(3, dtype=np.float32), "b": np.full(3, 1e30, np.float32), "f": np.float32(1e15)}
    x = np.full((1, 3), -1e30, np.float32)
    np.testing.assert_array_equal(run(nodes, x, constants), np.zeros((1, 3), np.float32))


def test_usual_factors_are_folded_beside_weights_of_zeros() -> None:
    weight = np.zeros((4, 3), np.float32)
    weight[:, 1], weight[0, 2] = 0.5, 1e-39  # a channel of zeros, a usual one, and a denormal number
    nodes = nodes_of(("MatMul", "x w", "m"), ("Mul", "m f", "y"))
    x = np.ones((2, 4), np.float32)
    assert optimized(nodes, x, {"w": weight, "f": np.float32(3)}).get("multiply", 0) == 1
    assert optimized(nodes, x, {"w": weight[:, :2], "f": np.float32(3)}).get("multiply", 0) == 0


def _quantised(x: float, w: float, b: float, out: float) -> tuple[list[NodeProto], dict[str, Array]]:
    """A convolution of integers with a bias, written as real numbers; scales of the data, weight, bias and result."""
    nodes = nodes_of(
        ("QuantizeLinear", "x sx zx", "q"),
        ("DequantizeLinear", "q sx zx", "d"),
        ("DequantizeLinear", "w sw zw", "e"),
        ("DequantizeLinear", "b sb zb", "f"),
        ("Conv", "d e f", "c"),
        ("QuantizeLinear", "c so zx", "r"),
        ("DequantizeLinear", "r so zx", "y"),
    )
    rng = np.random.default_rng(5)
    constants: dict[str, Array] = {"sx": np.float32(x), "sw": np.float32(w), "sb": np.float32(b)}
    constants |= {"zx": np.uint8(120), "zw": np.int8(0), "zb": np.int32(0), "so": np.float32(out)}
    constants |= {"w": rng.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8)}
    constants |= {"b": rng.integers(-9000, 9000, 8).astype(np.int32)}
    return nodes, constants


@pytest.mark.parametrize(("bias", "is_integer"), [(1.0, True), (1 + 1e-7, True), (1 + 8e-6, False)])
def test_a_bias_of_another_scale_is_no_integer_of_the_sum(bias: float, is_integer: bool) -> None:
    nodes, constants = _quantised(0.02, 0.01, 0.02 * 0.01 * bias, 0.6)
    found = optimized(nodes, np.ones((1, 4, 6, 6), np.float32), constants, DOTS)
    assert found["cpu.conv2d_NCHWc_int8"] == 1 and found["add"] == (3 if is_integer else 4)


@pytest.mark.parametrize(("x", "w"), [(1e20, 1e25), (1e-25, 1e-25)])
def test_scales_whose_product_is_no_number_make_no_product_of_integers(x: float, w: float) -> None:
    nodes, constants = _quantised(x, w, 0.01, 0.6)
    found = optimized(nodes, np.ones((1, 4, 6, 6), np.float32), constants, DOTS)
    assert not any("int8" in name for name in found), found


def test_planes_spell_few_products_in_c() -> None:
    """gcc takes a time that grows with their square: 500 were 10 seconds."""
    x = relay.var("x", shape=(2, 2, 2, 12), dtype="float32")
    weight = relay.const(np.ones((6, 1, 3, 7), np.float32))
    body = relay.nn.conv2d(x, weight, padding=(3, 12, 4, 13), groups=2, channels=6, kernel_size=(3, 7))
    with PassContext(opt_level=3):
        source = build(relay.Function([x], body), "c").get_lib().get_source()
    assert "planes" in source and source.count("armillary_fmaf(planes") <= 256


@pytest.mark.parametrize(("op", "given"), [("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.01}), ("HardSigmoid", {})])
def test_numbers_that_are_not_given_are_of_float32_too(op: str, given: dict[str, float]) -> None:
    """The standard holds defaults as it holds what is given: in float32, also beside data of float64."""
    x = np.array([-1.0, 1.0])
    small, steep = float(np.float32(0.01)), float(np.float32(0.2))
    wanted = [-small, 1.0] if op == "LeakyRelu" else [0.5 - steep, 0.5 + steep]
    np.testing.assert_allclose(run([helper.make_node(op, ["x"], ["y"], **given)], x, {}), wanted, rtol=1e-15)


@pytest.mark.parametrize("op", ["MatMul", "Conv"])
def test_products_of_truth_values_are_refused(op: str) -> None:
    shape = (2, 2) if op == "MatMul" else (1, 1, 2, 2)
    node, weight = helper.make_node(op, ["x", "w"], ["y"]), np.ones(shape, np.bool_)
    with pytest.raises(TypeMismatch, match=r"wanted numbers|float|bool"):
        from_onnx(model([node], np.ones(shape, np.bool_), {"w": weight}))


@pytest.mark.parametrize(
    ("op", "domain", "epsilon"),
    [
        ("SimplifiedLayerNormalization", "", 1e-5),
        ("SkipSimplifiedLayerNormalization", "com.microsoft", 1e-12),
        ("SkipLayerNormalization", "com.microsoft", 1e-12),
    ],
)
def test_the_epsilon_that_is_not_given_is_that_of_the_operator(op: str, domain: str, epsilon: float) -> None:
    """As ONNX Runtime has it: small values tell them apart by a factor of three."""
    x = np.array([[[2e-3, 1e-3, 1e-3, 1e-3]]], np.float32)
    constants = {"zero": np.zeros_like(x), "scale": np.ones(4, np.float32)}
    inputs = ["x", "scale"] if op.startswith("Simpl") else ["x", "zero", "scale"]
    centred = x - (0 if "Simplified" in op else x.mean())
    wanted = centred / np.sqrt(np.mean(centred.astype(np.float64) ** 2) + epsilon)
    made = model([helper.make_node(op, inputs, ["y"], domain=domain)], x, constants)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    np.testing.assert_allclose(run_model(made, x), wanted, rtol=1e-4)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMean", "ReduceL2", "ReduceLogSumExp"])
def test_an_empty_list_of_axes_is_all_axes(op: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    wanted = run([helper.make_node(op, ["x"], ["y"])], x, {})
    node = helper.make_node(op, ["x"], ["y"])
    node.attribute.append(helper.make_attribute("axes", [], attr_type=AttributeProto.INTS))
    made = run([node], x, {})
    assert made.shape == (1, 1)
    np.testing.assert_array_equal(made, wanted)
