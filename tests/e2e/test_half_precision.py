"""Networks in float16 and bfloat16: computed in float32, with weights that stay halves where they are stored.

Where a processor multiplies bfloat16, operands may be rounded or not: tests/schedules/test_cpu_bfloat16.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from host_cpu import needs
from onnx import TensorProto, helper, numpy_helper

import armillary
from armillary import relay
from armillary.artifact import GraphSpec
from armillary.contrib import graph_executor
from armillary.target import Target
from armillary.target.cpu import cpu_model

ort = pytest.importorskip("onnxruntime")
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
WIDE = "llvm -mcpu=haswell"  # multiplies no halves
HALF = {"float16": (TensorProto.FLOAT16, np.float16), "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


def convolutions(kind: str, scaled: bool, ends: str | None = None) -> tuple[onnx.ModelProto, list[Array]]:
    """Three convolutions with relu behind each and, if `scaled`, a factor for each channel; `ends`: their type."""
    code, numpy = HALF[kind]
    weights = [(RNG.standard_normal((96, 96, 3, 3)) / 30).astype(numpy) for _ in range(3)]
    scales = [(1 + RNG.random((1, 96, 1, 1))).astype(numpy) for _ in range(3)]
    nodes = [helper.make_node("Cast", ["x"], ["v0"], to=code)] if ends else []
    value = "v0" if ends else "x"
    for k in range(3):
        nodes.append(helper.make_node("Conv", [value, f"w{k}"], [f"c{k}"], pads=[1] * 4))
        nodes += [helper.make_node("Mul", [f"c{k}", f"s{k}"], [f"m{k}"])] if scaled else []
        nodes.append(helper.make_node("Relu", [f"m{k}" if scaled else f"c{k}"], [f"r{k}"]))
        value = f"r{k}"
    last = {"to": TensorProto.FLOAT} if ends else {}
    nodes.append(helper.make_node("Cast" if ends else "Identity", [value], ["y"], **last))
    outside = TensorProto.FLOAT if ends else code
    given, made = (helper.make_tensor_value_info(name, outside, (1, 96, 28, 28)) for name in "xy")
    held = [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)]
    held += [numpy_helper.from_array(s, f"s{k}") for k, s in enumerate(scales)] if scaled else []
    graph = helper.make_graph(nodes, "halves", [given], [made], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return model, [
        w.astype("float64") * (s.astype("float64").reshape(-1, 1, 1, 1) if scaled else 1)
        for w, s in zip(weights, scales, strict=True)
    ]


def in_float64(x: Array, weights: list[Array]) -> Array:
    for w in weights:
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
        x = np.maximum(np.moveaxis(np.tensordot(windows, w, axes=((1, 4, 5), (1, 2, 3))), 3, 1), 0)
    return x


def multiplies(kind: str, target: str) -> bool:
    return kind == "bfloat16" and cpu_model(Target(target)).multiplies_bfloat16


def ways_of_reading(library: Any) -> tuple[int, int]:
    """How many weights are widened once, when the package is loaded, and how many convolutions read them as halves."""
    nodes = GraphSpec.from_json(library.graph_json).nodes
    widened = sum(n.is_load_time for n in nodes if "widen" in n.func_name)
    return widened, sum("conv2d" in n.func_name and "bf16" in n.func_name for n in nodes)


def built(model: onnx.ModelProto, target: str = "llvm", **config: Any) -> Any:
    module, params = relay.frontend.from_onnx(model)
    with armillary.transform.PassContext(opt_level=3, config={k.replace("__", "."): v for k, v in config.items()}):
        return relay.build(module, target=target, params=params)


def result(library: Any, **inputs: Array) -> Array:
    executor = graph_executor.GraphModule(library["default"](armillary.cpu()))
    executor.run(**inputs)
    made: Array = executor.get_output(0).numpy()
    return made


def error(y: Array, exact: Array) -> float:
    return float(np.sqrt(np.mean((y.astype("float64") - exact) ** 2)) / np.std(exact))


@pytest.mark.parametrize("scaled", [False, True])
def test_a_float16_network_is_as_near_to_float64_as_onnx_runtimes(scaled: bool) -> None:
    model, weights = convolutions("float16", scaled)
    x = RNG.standard_normal((1, 96, 28, 28)).astype("float16")
    exact = in_float64(x.astype("float64"), weights)
    theirs = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    ours = result(built(model), x=x)
    assert ours.dtype == np.float16
    assert error(ours, exact) <= 1.01 * error(theirs, exact)
    rounded = exact.astype("float16").astype("float64")  # nothing but the result is rounded
    assert error(ours, exact) <= 1.01 * error(rounded, exact)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_between_float32_ends_only_the_input_is_rounded(kind: str) -> None:
    model, weights = convolutions(kind, True, ends="float32")
    x = RNG.standard_normal((1, 96, 28, 28)).astype("float32")
    exact = in_float64(x.astype(HALF[kind][1]).astype("float64"), weights)
    assert error(result(built(model, WIDE), x=x), exact) < 1e-5


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("target", ["llvm", WIDE])
def test_packages_are_as_large_as_the_halves(kind: str, scaled: bool, target: str, tmp_path: Path) -> None:
    model, _ = convolutions(kind, scaled)
    library = built(model, target)
    library.export_library(tmp_path / "halves.tar")
    weights = 3 * 96 * 96 * 9 * 2
    assert (tmp_path / "halves.tar").stat().st_size < 1.15 * weights + 100_000  # code of a small network

    x = RNG.standard_normal((1, 96, 28, 28)).astype(HALF[kind][1])
    executor = graph_executor.GraphModule(
        armillary.runtime.load_module(str(tmp_path / "halves.tar"))["default"](armillary.cpu())
    )
    executor.run(x=x)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), result(library, x=x))
    widened, read_as_bfloat16 = ways_of_reading(library)
    assert widened + read_as_bfloat16 == 3
    assert kind == "bfloat16" or not read_as_bfloat16


@pytest.mark.parametrize(
    ("cpu", "ways"),
    [
        ("haswell", (3, 0)),  # multiplies no halves
        ("znver5", (3, 0)),  # Winograd's algorithm in float32 is faster than its dot products
        ("sapphirerapids", (0, 3)),  # has tiles of bfloat16
    ],
)
def test_weights_are_widened_where_float32_is_faster(cpu: str, ways: tuple[int, int]) -> None:
    model, _ = convolutions("bfloat16", False)
    assert ways_of_reading(built(model, f"llvm -mcpu={cpu}")) == ways


def rounding_model(kind: str) -> onnx.ModelProto:
    code, _ = HALF[kind]
    nodes = [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Sub", ["s", "x"], ["z"])]
    values = [helper.make_tensor_value_info(name, code, (64,)) for name in "xyz"]
    graph = helper.make_graph(nodes, "sums", values[:2], values[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_strict_half_rounds_after_every_operator(kind: str) -> None:
    numpy = HALF[kind][1]
    x, y = (100 * RNG.random(64)).astype(numpy), RNG.random(64).astype(numpy)
    strict = result(built(rounding_model(kind), relay__strict_half=True), x=x, y=y)
    np.testing.assert_array_equal(strict, (x + y) - x)
    assert np.any(strict != y)
    wide = (x.astype("float32") + y.astype("float32")) - x.astype("float32")
    np.testing.assert_array_equal(result(built(rounding_model(kind)), x=x, y=y), wide.astype(numpy))


SHAPES = {  # input channels, output channels, groups, kernel, dilation
    "two_groups": (16, 16, 2, 3, 1),
    "odd_groups": (24, 24, 3, 3, 1),
    "few_channels_each": (12, 24, 2, 3, 1),
    "depthwise": (8, 8, 8, 3, 1),
    "wide_groups": (48, 48, 2, 3, 1),
    "few_channels_dilated": (4, 16, 1, 3, 2),
    "few_channels_wide": (4, 16, 1, 18, 1),
}


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_strict_half_takes_every_convolution_with_constant_weights(kind: str, shape: str) -> None:
    channels, outputs, groups, kernel, dilation = SHAPES[shape]
    x = relay.var("x", shape=(1, channels, 20, 20))
    weight = RNG.standard_normal((outputs, channels // groups, kernel, kernel)).astype("float32")
    named = {"groups": groups, "channels": outputs, "kernel_size": (kernel, kernel), "dilation": (dilation, dilation)}
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.conv2d(x, relay.const(weight), **named)))
    half = relay.transform.ToMixedPrecision(kind, keep_orig_output_dtype=True)(relay.transform.InferType()(module))
    image = RNG.standard_normal((1, channels, 20, 20)).astype("float32")
    exact = result(relay.build(module, target="llvm"), x=image)
    for target in ("llvm", "llvm -mcpu=sapphirerapids"):  # the latter is built alone
        with armillary.transform.PassContext(opt_level=3, config={"relay.strict_half": True}):
            library = relay.build(half, target=target)
        if target == "llvm":
            assert error(result(library, x=image), exact) < 0.01


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 3, 8, 256])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=znver4", WIDE])
def test_products_read_halves_or_what_was_widened(kind: str, rows: int, target: str) -> None:
    needs(target)
    numpy = HALF[kind][1]
    w, x = RNG.standard_normal((200, 300)).astype(numpy), RNG.standard_normal((rows, 300)).astype("float32")
    data = relay.var("x", relay.TensorType(x.shape, "float32"))
    body = relay.nn.dense(relay.cast(data, kind), relay.const(w))
    module = armillary.IRModule.from_expr(relay.Function([data], relay.cast(body, "float32")))
    with armillary.transform.PassContext(opt_level=3, config={"cpu.parameters": 400}):  # far away
        library = relay.build(module, target=target)
    made, rounded = result(library, x=x), x.astype(numpy).astype("float64") @ w.astype("float64").T
    whole = x.astype("float64") @ w.astype("float64").T  # a cast is leave to round, where halves are multiplied
    assert error(made, rounded) < 1e-6 or (multiplies(kind, target) and error(made, whole) < 1e-6)
    kept = [p for p in library.params.values() if p.dtype.itemsize == 2]
    assert sum(p.size for p in kept) >= w.size
    widened = "widen" in " ".join(library.kernels)
    assert widened or rows < 256 or multiplies(kind, target), "many rows do not wait for the weight"
    assert not widened or rows > 1, "one row does"


def test_a_branch_does_not_widen_its_weight_at_each_run() -> None:
    w, x = RNG.standard_normal((128, 128)).astype("float16"), relay.var("x", shape=(64, 128))
    test = relay.greater(relay.sum(x), relay.const(np.float32(0)))
    body = relay.If(test, relay.nn.dense(x, relay.cast(relay.const(w), "float32")), x)
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(relay.Function([x], body), target="llvm")
    assert not [name for name in library.kernels if "widen" in name]
    ones = np.ones((64, 128), "float32")
    np.testing.assert_allclose(result(library, x=ones), ones @ w.T.astype("float32"), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(result(library, x=-ones), -ones)
