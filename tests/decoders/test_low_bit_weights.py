"""Weights of 2, 4 and 8 bits stay what they are in a package, and products with them are as exact as in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_nodes
import pytest
from onnx import helper, numpy_helper

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import ConfigError
from armillary.frontend import from_onnx
from armillary.ops.decoder.low_bit_dense import packed
from armillary.ops.decoder.narrow_dense import drawn
from armillary.relay.transform._rules import call
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext


def _weights(
    rng: np.random.Generator, units: int, inner: int, bits: int, block: int, has_zeros: bool
) -> tuple[Any, ...]:
    """Integers (units, inner), scales and zeros (units, blocks)."""
    count = -(-inner // block)
    values = rng.integers(0, 1 << bits, (units, count * block)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (units, count)).astype(np.float32)
    zeros = np.full((units, count), 1 << (bits - 1), np.uint8)
    if has_zeros:
        zeros = rng.integers(0, 1 << bits, (units, count)).astype(np.uint8)
    return values, scales, zeros


def _truth(x: np.ndarray, values: np.ndarray, scales: np.ndarray, zeros: np.ndarray, block: int) -> tuple[Any, Any]:
    """The product in float64, and the sum of the magnitudes of its terms."""
    real = (values.astype(np.float64) - np.repeat(zeros, block, 1)) * np.repeat(scales.astype(np.float64), block, 1)
    real = real[:, : x.shape[-1]]
    return x.astype(np.float64) @ real.T, np.abs(x.astype(np.float64)) @ np.abs(real).T


def _n_bits(
    rng: np.random.Generator, rows: int, units: int, inner: int, bits: int, block: int, has_zeros: bool
) -> tuple[onnx.ModelProto, np.ndarray, tuple[Any, ...]]:
    parts = _weights(rng, units, inner, bits, block, has_zeros)
    values, scales, zeros = parts
    x = (rng.standard_normal((rows, inner)) * np.exp(rng.standard_normal((rows, inner)))).astype(np.float32)
    inputs = {"x": x, "w": packed(values, bits).reshape(units, -1, block * bits // 8), "s": scales}
    if has_zeros:
        inputs["z"] = packed(zeros, bits)
    named = {"K": inner, "N": units, "bits": bits, "block_size": block}
    return onnx_nodes.model("MatMulNBits", inputs, 1, constants=tuple(inputs)[1:], **named), x, parts


CASES = [
    (4, 16, True, 1, "llvm"),
    (4, 32, False, 7, "llvm"),
    (4, 128, True, 7, "llvm -mcpu=haswell"),
    (4, 32, False, 1, "c"),
    (8, 32, True, 7, "llvm"),
    (8, 256, False, 1, "llvm -mcpu=haswell"),
    (2, 16, True, 7, "llvm"),
    (2, 64, False, 1, "c"),
]


@pytest.mark.parametrize(("bits", "block", "has_zeros", "rows", "target"), CASES)
def test_products_are_as_exact_as_float32(bits: int, block: int, has_zeros: bool, rows: int, target: str) -> None:
    made, x, parts = _n_bits(np.random.default_rng(bits * block), rows, 50, 256, bits, block, has_zeros)
    truth, magnitude = _truth(x, *parts, block)
    (got,) = onnx_nodes.compiled(made, {"x": x}, target=target)
    assert (np.abs(got - truth) / magnitude).max() < 2.5e-7


def test_rows_that_are_no_whole_blocks_and_a_bias() -> None:
    rng = np.random.default_rng(1)
    made, x, parts = _n_bits(rng, 3, 24, 75, 4, 32, True)
    (got,) = onnx_nodes.compiled(made, {"x": x})
    truth, magnitude = _truth(x, *parts, 32)
    assert (np.abs(got - truth) / magnitude).max() < 3e-7


def test_integers_are_exact() -> None:
    rng = np.random.default_rng(2)
    made, x, (values, scales, zeros) = _n_bits(rng, 4, 32, 128, 4, 32, True)
    scales[:] = 0.5
    made.graph.initializer[1].CopyFrom(numpy_helper.from_array(scales, "s"))
    x = rng.integers(-(1 << 13), 1 << 13, x.shape).astype(np.float32)
    (got,) = onnx_nodes.compiled(made, {"x": x})
    np.testing.assert_array_equal(got, _truth(x, values, scales, zeros, 32)[0])


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_no_finite_number_is_not_hidden(odd: float) -> None:
    made, x, _ = _n_bits(np.random.default_rng(3), 2, 16, 64, 4, 32, False)
    x[1, 40] = odd
    (got,) = onnx_nodes.compiled(made, {"x": x})
    assert np.isfinite(got[0]).all() and not np.isfinite(got[1]).any()


@pytest.mark.parametrize(("bits", "bound"), [(24, 3e-7), (16, 6e-5), (8, 1.5e-2)])
def test_fewer_bits_of_activations_have_their_bound(bits: int, bound: float) -> None:
    made, x, parts = _n_bits(np.random.default_rng(4), 2, 64, 512, 4, 32, False)
    truth, magnitude = _truth(x, *parts, 32)
    with PassContext(opt_level=3, config={"low_bit.activation_bits": bits}):
        (got,) = onnx_nodes.compiled(made, {"x": x})
    error = (np.abs(got - truth) / magnitude).max()
    assert bound / 100 < error < bound or (bits == 24 and error < bound)


@pytest.mark.parametrize(("rows", "units", "inner", "bits", "block"), [(16, 48, 64, 4, 32), (50, 35, 192, 8, 64)])
@pytest.mark.parametrize("activation_bits", [16, 8])
def test_many_rows_share_expanded_weights(
    rows: int, units: int, inner: int, bits: int, block: int, activation_bits: int
) -> None:
    made, x, parts = _n_bits(np.random.default_rng(7), rows, units, inner, bits, block, True)
    want, size = _truth(x, *parts, block)
    module, params = from_onnx(made)
    with PassContext(opt_level=3, config={"low_bit.activation_bits": activation_bits}):
        library = relay.build(module, "llvm", params=params)
        few = relay.build(module, "llvm -mcpu=haswell", params=params)
    kernels = " ".join(library.kernels)
    assert ("tiles" in kernels) == cpu_model(Target("llvm")).has_bfloat16_tiles
    assert "tiles" not in " ".join(few.kernels)
    graph = library["default"](armillary.cpu())
    graph.set_input("x", x)
    graph.run()
    error = np.abs(graph.get_output(0).numpy() - want)
    if cpu_model(Target("llvm")).has_bfloat16_tiles:
        assert np.max(error / size) < {16: 6e-5, 8: 1.5e-2}[activation_bits]
    else:  # digits.py says how far a term may be off, by the greatest of its block
        real = (parts[0] - np.repeat(parts[2].astype(np.float64), block, 1)) * np.repeat(parts[1], block, 1)
        tops = np.repeat(np.abs(x).reshape(rows, -1, block).max(2), block, 1)
        assert (error <= tops @ np.abs(real).T * {16: 2**-15, 8: 1 / 254}[activation_bits] + 1e-6 * size).all()
    odd = x.copy()
    odd[3, 5] = np.nan
    graph.set_input("x", odd)
    graph.run()
    assert np.isnan(graph.get_output(0).numpy()).all(1).tolist() == [row == 3 for row in range(rows)]


def test_other_bits_of_activations_are_refused() -> None:
    made, x, _ = _n_bits(np.random.default_rng(5), 1, 16, 64, 4, 32, False)
    with pytest.raises(ConfigError, match="activation_bits is 12"), PassContext(config={"low_bit.activation_bits": 12}):
        onnx_nodes.compiled(made, {"x": x})


@pytest.mark.parametrize("form", ["int4 blocks", "uint4 blocks", "int8 columns", "uint8 one", "int8 rows, transposed"])
def test_dequantised_constants_stay_integers(form: str, tmp_path: Path) -> None:
    rng, (inner, units) = np.random.default_rng(6), (256, 96)
    kind = form.split()[0]
    low, high = (
        (-8, 8) if kind == "int4" else (0, 16) if kind == "uint4" else (-128, 128) if kind == "int8" else (0, 256)
    )
    values = rng.integers(low, high, (units, inner) if "transposed" in form else (inner, units))
    zero_low = max(low, -5)
    attrs: dict[str, int] = {"axis": 0, "block_size": 32} if "blocks" in form else {"axis": 0 if "rows" in form else 1}
    shape = (inner // 32, units) if "blocks" in form else () if "one" in form else (units,)
    scales = np.asarray(rng.uniform(0.01, 0.1, shape), np.float32)
    zeros = np.asarray(rng.integers(zero_low, 6, shape))
    store = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4, "int8": np.int8, "uint8": np.uint8}[kind]
    arrays = {"q": values.astype(store), "s": scales, "z": zeros.astype(store)}
    initial = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], **attrs)]
    if "transposed" in form:
        nodes.append(helper.make_node("Gemm", ["x", "w"], ["y"], transB=1))
    else:
        nodes.append(helper.make_node("MatMul", ["x", "w"], ["y"]))
    info = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", (3, inner)), ("y", (3, units)))]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], initial)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = rng.standard_normal((3, inner)).astype(np.float32)
    spread = [np.repeat(p, 32, 0) if "blocks" in form else p for p in (scales.astype(np.float64), zeros)]
    real = (values - spread[1]) * spread[0] if "rows" not in form else (values - zeros[:, None]) * spread[0][:, None]
    real = real.T if "transposed" in form else real
    module, _ = from_onnx(made)
    library = relay.build(module, "llvm")
    path = tmp_path / "package.tar"
    library.export_library(str(path))
    stored = sum(np.asarray(p.numpy() if hasattr(p, "numpy") else p).nbytes for p in library.get_params().values())
    assert stored < inner * units * (0.5 if "4" in kind else 1) + 4 * 2 * scales.size + 1024
    executor = armillary.contrib.graph_executor.GraphModule(library["default"](armillary.cpu()))
    executor.set_input("x", x)
    executor.run()
    got = executor.get_output(0).numpy()
    error = np.abs(got - x.astype(np.float64) @ real) / (np.abs(x).astype(np.float64) @ np.abs(real))
    assert error.max() < 3e-7


@pytest.mark.parametrize(("bits", "error"), [(24, 1e-6), (16, 2e-5), (8, 6e-3)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_prompts_over_16_bit_weights_are_as_good_as_their_rows(dtype: str, bits: int, error: float) -> None:
    rng = np.random.default_rng(bits)
    rows, weight = rng.standard_normal((35, 512)).astype(np.float32), drawn(dtype, 72, 512)
    data = relay.var("data", shape=rows.shape, dtype="float32")
    function = relay.Function([data], call("nn.narrow_dense", data, relay.const(weight)))
    with PassContext(opt_level=3, config={"low_bit.activation_bits": bits}):
        library = relay.build(function, "llvm")
    module = graph_executor.GraphModule(library["default"](armillary.cpu()))
    module.run(data=rows)
    want = rows.astype(np.float64) @ weight.astype(np.float64).T
    assert np.abs(module.get_output(0).numpy() - want).max() < error * np.abs(want).max()
