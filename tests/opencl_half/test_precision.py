"""float32, float16 and float16 with float32 sums on OpenCL: what kernels compute in, and how far results are off.

Bounds are a few times what was measured (docs/decisions/opencl-half.md).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_half, needs_opencl

import armillary
from armillary import relay
from armillary.cli.main import main
from armillary.contrib import graph_executor
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Expr, Function, Var
from armillary.relay.op import OPS
from armillary.relay.walk import rewrite

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
X = RNG.standard_normal((1, 16, 14, 14)).astype("float32")
DEPTH = 256  # channels of the second convolution: a sum of 2304 terms


def options(sums: str) -> dict[str, Any]:
    return {
        "mixed_precision": True,
        "mixed_precision_ops": ["nn.conv2d", "nn.dense"],
        "mixed_precision_calculation_type": "float16",
        "mixed_precision_acc_type": sums,
    }


def network() -> armillary.IRModule:
    """Convolutions with long sums, a depthwise one, poolings, a dense layer and softmax."""

    def conv(data: Any, inputs: int, outputs: int, kernel: int, groups: int = 1) -> Any:
        shape = (outputs, inputs // groups, kernel, kernel)
        weight = relay.const((RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32"))
        pad = (kernel // 2, kernel // 2)
        return relay.nn.relu(
            relay.nn.conv2d(data, weight, padding=pad, groups=groups, channels=outputs, kernel_size=(kernel, kernel))
        )

    x = relay.var("x", shape=X.shape)
    y = conv(conv(conv(x, 16, DEPTH, 1), DEPTH, 32, 3), 32, 32, 3, groups=32)
    y = relay.nn.max_pool2d(y, (2, 2), (2, 2))
    y = relay.nn.batch_flatten(relay.nn.avg_pool2d(y, (7, 7)))
    weight = relay.const((RNG.standard_normal((10, 32)) / 4).astype("float32"))
    return armillary.IRModule.from_expr(relay.Function([x], relay.nn.dense(y, weight)))


NETWORK = network()


def source(library: Any) -> str:
    (module,) = [m for m in library.get_lib().imported_modules if m.type_key == "opencl"]
    return str(module.get_source())


def output(library: Any) -> Array:
    module = graph_executor.GraphModule(library["default"](armillary.opencl()))
    module.set_input("x", X)
    module.run()
    return np.asarray(module.get_output(0).numpy())


def in_float64(mod: armillary.IRModule) -> Array:
    """The reference in float64: the network with all types widened."""
    function = mod["main"]
    old, new = function.params[0], Var("x", relay.TensorType(X.shape, "float64"))

    def widen(expr: Expr) -> Expr | None:
        if isinstance(expr, Constant):
            return relay.const(np.asarray(expr.data).astype("float64"))
        return new if expr is old else None

    wide = armillary.IRModule.from_expr(Function([new], rewrite(function.body, widen)))
    return np.asarray(evaluate(wide, [X.astype("float64")]))


def error(got: Array, wanted: Array) -> float:
    return float(np.sqrt(((got - wanted) ** 2).mean() / (wanted**2).mean()))


def test_kernels_compute_in_half_or_with_sums_in_float() -> None:
    half = source(relay.build(apply_graph_transforms(NETWORK, options("float16")), "opencl"))
    wide = source(relay.build(apply_graph_transforms(NETWORK, options("float32")), "opencl"))
    assert "half_t conv2d_nchw[" in half and "float conv2d_nchw[" not in half
    assert "float conv2d_nchw[" in wide and "half_t conv2d_nchw[" not in wide
    assert "vload_half(" in wide and "__global half* restrict p1" in wide
    assert half.count("#pragma OPENCL EXTENSION cl_khr_fp16 : enable") == 1
    assert "half" not in source(relay.build(NETWORK, "opencl"))


def only_loads_halves() -> tuple[list[Array], Any]:
    """A product of halves with float32 sums and results: nothing in it has the type of a half."""
    x, w = relay.var("x", shape=(8, 4096), dtype="float16"), relay.var("w", shape=(8, 4096), dtype="float16")
    values = [np.random.default_rng(seed).uniform(-1, 1, (8, 4096)).astype("float16") for seed in (1, 2)]
    product = relay.nn.dense(x, w, out_dtype="float32")
    return values, relay.build(armillary.IRModule.from_expr(relay.Function([x, w], product)), "opencl")


def test_a_kernel_that_only_loads_halves_defines_how() -> None:
    """Every name that it uses, on a device with half and on one without."""
    text = source(only_loads_halves()[1])
    with_half, _, rest = text.partition("#else\n")
    without, _, rest = rest.partition("#endif\n")
    both = "".join(line for line in rest.splitlines(keepends=True) if line.startswith("#define"))
    kernels = rest.replace(both, "")
    used = set(re.findall(r"\b(?:convert_)?half_\w+", kernels))
    assert used and "__global half* restrict" in kernels and "half_t" not in used
    for branch in (with_half, without):
        defined = set(re.findall(r"#define (\w+)|(?:static inline|typedef) \w+ (\w+)", branch + both))
        assert used <= {name for names in defined for name in names}


@needs_opencl
def test_a_kernel_that_only_loads_halves_is_right() -> None:
    values, library = only_loads_halves()
    module = graph_executor.GraphModule(library["default"](armillary.opencl()))
    module.run(x=values[0], w=values[1])
    wanted = values[0].astype("float64") @ values[1].astype("float64").T
    np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["nn.contrib_conv2d_NCHWc", "opencl.conv2d_winograd", "ml.pair_probabilities"])
def test_operators_called_by_name_in_half_compute_in_float(name: str) -> None:
    """Without a word on sums: products of blocks, transforms, and iterations, which gave NaN in half."""
    op = OPS[name]
    sample = next(iter(op.sample_source()))
    types = [relay.TensorType(tuple(value.shape), "float16") for value in sample.inputs]
    params = [relay.var(f"x{k}", type_annotation=ty) for k, ty in enumerate(types)]
    body = Call(op, tuple(params), sample.attrs)
    text = source(relay.build(armillary.IRModule.from_expr(relay.Function(params, body)), "opencl"))
    assert "float" in text and not re.search(r"^ *half_t \w+\[", text, re.M)


@needs_opencl
@pytest.mark.parametrize("target", ["opencl", "opencl -device=adreno"])
@pytest.mark.parametrize(("sums", "bound"), [("float16", 4e-3), ("float32", 1.5e-3), ("", 1e-6)])
def test_results_are_as_near_as_the_types_allow(target: str, sums: str, bound: float) -> None:
    module = apply_graph_transforms(NETWORK, options(sums) if sums else None)
    library = relay.build(module, target)
    if "adreno" in target:
        assert ("half_read_image(" in source(library)) == bool(sums) and "image2d_t" in source(library)
    found = error(output(library), in_float64(NETWORK))
    print(f"error of {sums or 'float32'}: {found:.2e}")
    assert (1e-5 if sums else 0.0) < found < bound


@needs_half
def test_sums_of_many_halves_are_worse_in_half_than_in_float() -> None:
    """4096 products of about 1 add up to a number between whose neighbours lie 4, by way of 64 sums of 64."""
    x, w = relay.var("x", shape=(8, 4096), dtype="float16"), relay.var("w", shape=(8, 4096), dtype="float16")
    values = [np.random.default_rng(seed).uniform(0.5, 1.5, (8, 4096)).astype("float16") for seed in (1, 2)]
    wanted = values[0].astype("float64") @ values[1].astype("float64").T
    errors = []
    for sums in ("float16", "float32", ""):
        product = relay.nn.dense(x, w, out_dtype=sums) if sums else relay.nn.dense(x, w)
        library = relay.build(armillary.IRModule.from_expr(relay.Function([x, w], product)), "opencl")
        module = graph_executor.GraphModule(library["default"](armillary.opencl()))
        module.run(x=values[0], w=values[1])
        errors.append(float(np.abs(module.get_output(0).numpy() / wanted - 1).max()))
    assert errors[0] > 5e-4 > errors[2] and errors[1] < 1e-6


@needs_opencl
@pytest.mark.parametrize("target", ["opencl", "opencl -device=adreno"])
def test_bits_of_a_half_are_those_of_numpy(target: str) -> None:
    """By way of int16 and back, where a device has no half, too."""
    values = np.array([0.0, -0.0, 1.0, -2.5, 65504.0, 6e-8, np.inf, -np.inf] * 2, "float16")
    x = relay.var("x", shape=(16,), dtype="float16")
    bits = relay.reinterpret(x, "int16")
    back = relay.reinterpret(bits, "float16")
    function = relay.Function([x], relay.Tuple([bits, back]))
    library = relay.build(armillary.IRModule.from_expr(function), target)
    module = graph_executor.GraphModule(library["default"](armillary.opencl()))
    module.run(x=values)
    np.testing.assert_array_equal(module.get_output(0).numpy(), values.view("int16"))
    np.testing.assert_array_equal(module.get_output(1).numpy().view("int16"), values.view("int16"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.relay"
    path.write_text(
        "def @main(%x: Tensor[(5, 64), float32], %w: Tensor[(32, 64), float32]) {\n"
        "  %0 = nn.dense(%x, %w);\n  nn.relu(%0)\n}\n"
    )
    return path


@pytest.mark.parametrize("sums", ["float16", "float32"])
def test_the_command_chooses_the_type_of_sums(model: Path, tmp_path: Path, sums: str) -> None:
    words = "--mixed-precision --mixed-precision-ops nn.conv2d nn.dense --mixed-precision-calculation-type float16"
    package = tmp_path / "net.tar"
    command = ["compile", str(model), "-o", str(package), "--target", "opencl", *words.split()]
    assert main([*command, "--mixed-precision-acc-type", sums, "--dump-code", "cl"]) == 0
    text = (tmp_path / "net.tar.cl").read_text()
    kinds = set(re.findall(r"^ +(half_t|float)\d* sums\[", text, re.MULTILINE))
    assert kinds == {"half_t" if sums == "float16" else "float"}
