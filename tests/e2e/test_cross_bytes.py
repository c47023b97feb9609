"""Quantised networks for AArch64 with dot products: exact under qemu, and their instructions in the objects."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulators import qemu_aarch64
from onnx import helper, numpy_helper
from quantized_networks import quantized_mobilenet, quantized_resnet

from armillary import relay
from armillary.base.config import setting
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, Function, Tuple, const
from armillary.transform import PassContext

NEEDED = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", "qemu-aarch64-static"
DOT, DOTS = "+v8.2a,+dotprod", {"sdot", "udot", "usdot", "sudot", "usmmla"}
RESNET_50 = partial(quantized_resnet, blocks=(3, 4, 6, 3), width=64, classes=1000)

pytestmark = pytest.mark.skipif(
    not setting("CI") and not all(map(shutil.which, NEEDED)), reason=f"needs {', '.join(NEEDED)}"
)


@pytest.fixture(scope="module")
def cross_runner(built_runner: Callable[..., Path]) -> Path:
    """armrun for AArch64."""
    return built_runner(["aarch64-linux-gnu-gcc"])


def _network(dtype: str, kind: str) -> Function:
    """A convolution (16 to 32 channels), its result as bytes, a dense layer that ends in int32; weights of `kind`."""
    rng = np.random.default_rng(11)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    some = np.array([-128, -127, -3, -1, 0, 2, 50, 126, 127]).astype(kind)
    one, none, zero = const(np.float32(1)), const(np.int32(0)), const(np.int32(low + 121))
    x = relay.var("x", shape=(1, 16, 9, 7), dtype=dtype)
    sums = relay.qnn.conv2d(
        x,
        const(rng.choice(some, (32, 16, 3, 3))),
        zero,
        none,
        one,
        one,
        kernel_size=(3, 3),
        channels=32,
        padding=(1, 1, 1, 1),
        strides=(2, 2),
    )
    scale = const((rng.uniform(0.2, 1, 32) / 1200).astype("float32"))
    middle = const(np.int32((int(low) + int(high)) // 2))
    bytes_ = relay.qnn.requantize(
        sums, scale, none, one, middle, axis=1, rounding="TOEVEN", compute_dtype="float32", out_dtype=dtype
    )
    weight = const(rng.choice(some, (24, 32 * 5 * 4)))
    return Function([x], relay.qnn.dense(relay.nn.batch_flatten(bytes_), weight, middle, none, one, one))


@pytest.mark.parametrize(
    ("features", "dtype", "weights", "wanted"),
    [
        (DOT, "int8", "int8", {"sdot"}),
        (DOT, "uint8", "int8", {"sdot"}),
        (DOT, "uint8", "uint8", {"udot"}),
        (f"{DOT},+i8mm", "uint8", "int8", {"usmmla", "sudot"}),
        ("+neon", "int8", "int8", set()),
    ],
)
def test_bytes_are_exact_and_by_dot_products(
    features: str, dtype: str, weights: str, wanted: set[str], cross_runner: Path, tmp_path: Path
) -> None:
    function = _network(dtype, weights)
    info = np.iinfo(dtype)
    some = np.array([info.min, info.min + 1, 0, 77, info.max - 1, info.max])
    value = np.random.default_rng(3).choice(some, (1, 16, 9, 7)).astype(dtype)
    library = _built(IRModule.from_expr(function), features)
    np.testing.assert_array_equal(_run(library, value, cross_runner, tmp_path), evaluate(function, [value]))
    assert set(_dots(library, tmp_path)) == wanted


@pytest.mark.parametrize(
    ("network", "shape", "dtype", "features"),
    [
        (partial(quantized_mobilenet, width=0.25, num_classes=10), (1, 32, 32, 3), "uint8", DOT),
        (quantized_resnet, (1, 3, 48, 48), "int8", DOT),
        pytest.param(quantized_mobilenet, (1, 64, 64, 3), "uint8", DOT, marks=pytest.mark.slow),
        pytest.param(RESNET_50, (1, 3, 64, 64), "int8", DOT, marks=pytest.mark.slow),
        pytest.param(RESNET_50, (1, 3, 64, 64), "int8", f"{DOT},+i8mm", marks=pytest.mark.slow),
    ],
)
def test_whole_networks_are_exact(
    network: Any, shape: tuple[int, ...], dtype: str, features: str, cross_runner: Path, tmp_path: Path
) -> None:
    info = np.iinfo(dtype)
    value = np.random.default_rng(5).integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    module = IRModule.from_expr(network(relay.var("x", shape=shape, dtype=dtype)))
    library = _built(module, features)
    found, expected = _run(library, value, cross_runner, tmp_path), evaluate(module, [value])
    assert len(np.unique(expected)) > 5, "most classes differ"
    if expected.dtype.kind == "f":  # a softmax of bytes
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    else:
        np.testing.assert_array_equal(found, expected)
    assert _dots(library, tmp_path).total() > 100


def _depthwise(x: Expr, kernel: int, stride: int, zero: int, out: str) -> Expr:
    """A depthwise convolution of 8 channels, requantised around 5 with a scale for each channel."""
    rng, one, none = np.random.default_rng(kernel), const(np.float32(1)), const(np.int32(0))
    weight = const(rng.choice(np.array([-128, -127, -1, 0, 3, 127], "int8"), (8, 1, kernel, kernel)))
    window: dict[str, Any] = {
        "kernel_size": (kernel, kernel),
        "strides": (stride, stride),
        "padding": (kernel // 2,) * 4,
    }  # Any: attributes
    scales = const((rng.uniform(0.2, 1, 8) / 300).astype("float32"))
    sums = relay.qnn.conv2d(x, weight, const(np.int32(zero)), none, one, scales, channels=8, groups=8, **window)
    kept = {"rounding": "TOEVEN", "compute_dtype": "float32", "out_dtype": out}
    made: Expr = relay.qnn.requantize(sums, scales, none, one, const(np.int32(5)), axis=1, **kept)
    return made


I8MM = "+v8.2a,+i8mm"


@pytest.mark.parametrize(
    ("features", "dtype", "weights", "instruction"),
    [
        (DOT, "int8", "int8", "sdot"),
        (DOT, "uint8", "uint8", "udot"),
        (I8MM, "int8", "int8", "smmla"),
        (I8MM, "uint8", "uint8", "ummla"),
        (I8MM, "uint8", "int8", "usmmla"),
    ],
)
def test_plain_convolutions_of_bytes_use_the_instruction_of_their_signs(
    features: str, dtype: str, weights: str, instruction: str, cross_runner: Path, tmp_path: Path
) -> None:
    rng, of_data, of_weights = np.random.default_rng(5), np.iinfo(dtype), np.iinfo(weights)
    x = relay.var("x", shape=(1, 16, 9, 7), dtype=dtype)
    weight = const(rng.integers(of_weights.min, of_weights.max, (32, 16, 3, 3), endpoint=True).astype(weights))
    options = {"kernel_size": (3, 3), "channels": 32, "padding": (1, 1), "out_dtype": "int32"}
    function = Function([x], relay.nn.conv2d(x, weight, **options))
    value = rng.integers(of_data.min, of_data.max, (1, 16, 9, 7), endpoint=True).astype(dtype)
    library = _built(IRModule.from_expr(function), features)
    np.testing.assert_array_equal(_run(library, value, cross_runner, tmp_path), evaluate(function, [value]))
    assert f"\t{instruction}\t" in _disassembled(library.lib.objects, tmp_path)


@pytest.mark.parametrize(("features", "instruction"), [("+neon", "smlal"), (DOT, "sdot"), (f"{DOT},+i8mm", "usdot")])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_depthwise_convolutions_are_exact(
    dtype: str, features: str, instruction: str, cross_runner: Path, tmp_path: Path
) -> None:
    """By 16-bit products where there are no dot products; results saturate as they are narrowed."""
    x = relay.var("x", shape=(1, 8, 11, 9), dtype=dtype)
    forms = (3, 1, 0, "uint8"), (3, 2, 7, "int8"), (5, 2, 3, "uint8")
    function = Function([x], Tuple([_depthwise(x, *form) for form in forms]))
    info = np.iinfo(dtype)
    value = np.random.default_rng(3).choice(np.array([info.min, 0, 1, 77, info.max]).astype(dtype), (1, 8, 11, 9))
    library = _built(IRModule.from_expr(function), features)
    text = _disassembled(library.lib.objects, tmp_path)
    assert f"\t{instruction}\t" in text and "fcvtns" in text and "sqxtun" in text
    found = _outputs(library, value, cross_runner, tmp_path)
    for got, wanted in zip(found, evaluate(function, [value]), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_floats_far_outside_saturate_and_nan_is_the_zero_point(dtype: str, cross_runner: Path, tmp_path: Path) -> None:
    """Of 4, 8 and 16 lanes; limits inside those of the type stay, and a far zero point."""
    x = relay.var("x", shape=(3, 16))
    info = np.iinfo(dtype)
    results = [relay.qnn.quantize(x, const(np.float32(0.5)), const(np.int32(z)), out_dtype=dtype) for z in (0, 9)]
    results.append(relay.cast(relay.cast(relay.round(relay.clip(x, 3.0, 90.0)), "int32"), dtype))
    part = relay.strided_slice(x, begin=(0, 0), end=(3, 4))
    results.append(relay.qnn.quantize(part, const(np.float32(0.5)), const(np.int32(-3)), out_dtype=dtype))
    function = Function([x], Tuple(results))
    some = [np.nan, np.inf, -np.inf, 3e38, -3e38, 0.25, 0.75, -0.25, 1.25, 2**31, -(2**31), info.max / 2, info.min / 2]
    value = np.resize(np.array(some, "float32"), (3, 16))
    library = _built(IRModule.from_expr(function), "+neon")
    for got, wanted in zip(_outputs(library, value, cross_runner, tmp_path), evaluate(function, [value]), strict=True):
        known = ~np.isnan(value[:, : got.shape[1]])
        np.testing.assert_array_equal(got[known], wanted[known])


def _qdq_model() -> Any:  # Any: an onnx.ModelProto
    """Float operators between QuantizeLinear and DequantizeLinear, as quantisers write them: two convolutions, Gemm."""
    rng, nodes, stored = np.random.default_rng(7), [], []

    def node(operator: str, *inputs: str, **attrs: Any) -> str:  # Any: ONNX attributes
        nodes.append(helper.make_node(operator, list(inputs), [f"v{len(nodes)}"], **attrs))
        return f"v{len(nodes) - 1}"

    def constant(value: Any) -> str:  # Any: an array or a number of numpy's
        stored.append(numpy_helper.from_array(np.asarray(value), f"c{len(stored)}"))
        return f"c{len(stored) - 1}"

    def steps(x: str, scale: float) -> str:
        both = constant(np.float32(scale)), constant(np.uint8(128))
        return node("DequantizeLinear", node("QuantizeLinear", x, *both), *both)

    def weight(*shape: int) -> str:
        scales = rng.uniform(0.002, 0.01, shape[0]).astype("float32")
        parts = rng.integers(-127, 128, shape).astype("int8"), scales, np.zeros(shape[0], "int8")
        return node("DequantizeLinear", *map(constant, parts), axis=0)

    y = steps("x", 0.02)
    y = steps(node("Relu", node("Conv", y, weight(16, 8, 3, 3), pads=[1] * 4)), 0.05)
    y = steps(node("Conv", y, weight(24, 16, 1, 1), strides=[2, 2]), 0.1)
    y = steps(node("Gemm", node("Flatten", y), weight(10, 24 * 9), transB=1), 0.5)
    given, made = (helper.make_tensor_value_info(n, 1, d) for n, d in (("x", (1, 8, 6, 6)), (y, None)))
    graph = helper.make_graph(nodes, "net", [given], [made], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_models_of_quantise_and_dequantise_use_dot_products(cross_runner: Path, tmp_path: Path) -> None:
    """Bit for bit what this machine computes, and every product of the network in dot products."""
    module, params = relay.frontend.from_onnx(_qdq_model())
    with PassContext(opt_level=3):
        library = relay.build(module, f"llvm -mtriple=aarch64-linux-gnu -mattr={DOT}", params=params)
        host = relay.build(module, "llvm", params=params)["default"]()
    value = np.random.default_rng(3).uniform(-2, 2, (1, 8, 6, 6)).astype("float32")
    host.set_input("x", value)
    host.run()
    expected = host.get_output(0).numpy()
    assert len(np.unique(expected)) > 5, "most classes differ"
    np.testing.assert_array_equal(_run(library, value, cross_runner, tmp_path), expected)
    with_dots = [code for code in library.lib.objects if _dots_of([code], tmp_path)]
    assert len(with_dots) == 3, "two convolutions and a dense layer"


def _built(module: IRModule, features: str) -> Any:  # Any: a library
    with PassContext(opt_level=3):
        return relay.build(module, f"llvm -mtriple=aarch64-linux-gnu -mattr={features}")


def _run(library: Any, value: np.ndarray[Any, Any], cross_runner: Path, tmp_path: Path) -> np.ndarray[Any, Any]:
    """The first output on the emulator of a processor that has everything."""
    return _outputs(library, value, cross_runner, tmp_path)[0]


def _outputs(library: Any, value: np.ndarray[Any, Any], cross_runner: Path, tmp_path: Path) -> list[Any]:
    path, out = tmp_path / "net.so", tmp_path / "out.npz"
    library.export_library(path)
    np.savez(tmp_path / "in.npz", x=value)
    emulator = ["timeout", "-s", "KILL", "300", *qemu_aarch64("-cpu", "max")]
    options = [f"--model={path}", f"--input={tmp_path / 'in.npz'}", f"--output={out}", "--run-count=1", "--dry-run=0"]
    done = subprocess.run([*emulator, str(cross_runner), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(out) as outputs:
        return [outputs[f"output_{k}"] for k in range(len(outputs.files))]


def _dots(library: Any, tmp_path: Path) -> Counter[str]:
    """How many dot products of which kind the objects have."""
    return _dots_of(library.lib.objects, tmp_path)


def _dots_of(objects: Sequence[bytes], tmp_path: Path) -> Counter[str]:
    text = _disassembled(objects, tmp_path)
    return Counter(name for word in text.split() if (name := word.split(".")[0]) in DOTS)


def _disassembled(objects: Sequence[bytes], tmp_path: Path) -> str:
    paths = [tmp_path / f"net{k}.o" for k in range(len(objects))]
    for at, code in zip(paths, objects, strict=True):
        at.write_bytes(code)
    return subprocess.run([NEEDED[1], "-d", *paths], capture_output=True, text=True, check=True).stdout
