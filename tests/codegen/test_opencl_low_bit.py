"""Dense layers of weights in few bits on OpenCL devices: packages hold the bits, kernels make numbers of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.base.dtype import DType
from armillary.contrib import graph_executor
from armillary.ir import IRModule
from armillary.relay.expr import Call
from armillary.relay.op import get_op
from armillary.transform import PassContext

RNG = np.random.default_rng(4)
UNITS, TERMS, BLOCK = 48, 128, 32
GROUPS = TERMS // BLOCK


def network(rows: int, has_zeros: bool) -> tuple[Any, np.ndarray]:
    """MatMulNBits of four bits, and its weights (TERMS, UNITS) as numbers, computed from the integers by numpy."""
    values = RNG.integers(0, 16, (UNITS, GROUPS, BLOCK)).astype(np.uint8)
    drawn = RNG.integers(0, 16, (UNITS, GROUPS)).astype(np.uint8)
    zeros = drawn if has_zeros else np.full_like(drawn, 8)
    scales = (RNG.random((UNITS, GROUPS)) * 0.1).astype(np.float32)
    held = {"w": values[..., ::2] | values[..., 1::2] << 4, "s": scales.reshape(-1)}
    if has_zeros:
        held["z"] = (zeros[:, ::2] | zeros[:, 1::2] << 4).reshape(-1)
    sizes = {"K": TERMS, "N": UNITS, "bits": 4, "block_size": BLOCK}
    node = helper.make_node("MatMulNBits", ["x", *held], ["y"], domain="com.microsoft", **sizes)
    made = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, TERMS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, UNITS])],
        [numpy_helper.from_array(v, k) for k, v in held.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    real = (values.astype(np.float64) - zeros[..., None]) * scales[..., None]
    return helper.make_model(made, opset_imports=opsets, ir_version=8), real.reshape(UNITS, TERMS).T


@needs_opencl
@pytest.mark.parametrize("target", ["opencl", "opencl -device=adreno"])
@pytest.mark.parametrize(("rows", "has_zeros"), [(1, False), (1, True), (3, True), (16, False)])
def test_weights_of_four_bits_stay_so(rows: int, has_zeros: bool, target: str) -> None:
    model, weight = network(rows, has_zeros)
    module, params = relay.frontend.from_onnx(model)
    library = relay.build(module, target, params=params)
    held = sum(np.asarray(v).nbytes for v in library.get_params().values())
    assert held <= UNITS * (TERMS // 2 + GROUPS * (4 + 1)), "bits, scales and zeros, no weights in float32"
    x = RNG.standard_normal((rows, TERMS)).astype(np.float32)
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    graph.run(x=x)
    np.testing.assert_allclose(graph.get_output(0).numpy(), x @ weight, rtol=1e-4, atol=1e-4)


@needs_opencl
@pytest.mark.parametrize("target", ["opencl", "opencl -device=adreno"])
@pytest.mark.parametrize(
    ("rows", "terms", "units", "dtype"),
    [
        (1, 1024, 6, "float32"),
        (1, 640, 48, "float32"),
        (4, 512, 33, "float32"),
        (8, 96, 5, "float32"),
        (1, 256, 16384, "float32"),
        (1, 640, 48, "float16"),
        (3, 256, 33, "float16"),
    ],
)
def test_bytes_are_read_as_words_by_whichever_shares(
    rows: int, terms: int, units: int, dtype: str, target: str
) -> None:
    groups = terms // BLOCK
    values = RNG.integers(0, 16, (units, groups, BLOCK)).astype(np.uint8)
    scales = (RNG.random((units, groups)) * 0.1).astype(dtype)
    real = ((values.astype(np.float64) - 8) * scales[..., None]).reshape(units, terms)
    x = relay.var("x", shape=(rows, terms), dtype=dtype)
    held = (values[..., ::2] | values[..., 1::2] << 4).reshape(units, terms // 2)
    zero = relay.const(np.full((1, 1), 8, np.uint8))
    op = get_op("nn.low_bit_dense")
    attrs = op.make_attrs(named={"bits": 4, "group": BLOCK})
    dense = Call(op, (x, relay.const(held), relay.const(scales), zero), attrs)
    library = relay.build(IRModule.from_expr(relay.Function([x], dense)), target)
    (source,) = library.get_lib().descriptor.device_code.values()
    assert "uchar4" in source
    value = RNG.standard_normal((rows, terms)).astype(dtype)
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    graph.run(x=value)
    rounding = 1e-4 if dtype == "float32" else 1e-3  # half keeps 11 bits of a result
    wanted = value.astype(np.float64) @ real.T
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=rounding, atol=rounding)


@needs_opencl
@pytest.mark.parametrize(
    ("rows", "own_zeros", "units", "kernels"),
    [
        (1, (False, False, False), (64, 16, 16), 1),
        (2, (True, True, True), (33, 5, 8), 1),
        (1, (True, True, False), (64, 16, 16), 3),
        (1, (False, False), (64, 16), 2),
        (40, (False, False, False), (64, 16, 16), 3),
    ],
)
def test_three_layers_of_one_datum_are_one_kernel(
    rows: int, own_zeros: tuple[bool, ...], units: tuple[int, ...], kernels: int
) -> None:
    """Of few rows, where zeros are of one kind: queries, keys and values of a decoder's step."""
    op, x = get_op("nn.low_bit_dense"), relay.var("x", shape=(rows, TERMS))
    value = RNG.standard_normal((rows, TERMS)).astype(np.float32)
    results, wanted = [], []
    for count, own in zip(units, own_zeros, strict=True):
        weight = RNG.integers(0, 256, (count, TERMS // 2)).astype(np.uint8)
        scales = (RNG.random((count, GROUPS)) * 0.1).astype(np.float32)
        zeros = RNG.integers(0, 16, (count, GROUPS)).astype(np.uint8) if own else np.full((1, 1), 8, np.uint8)
        attrs = op.make_attrs(named={"bits": 4, "group": BLOCK})
        results.append(Call(op, (x, *map(relay.const, (weight, scales, zeros))), attrs))
        wanted.append(op.reference_rule(attrs, value, weight, scales, zeros))
    with PassContext(opt_level=3):
        library = relay.build(IRModule.from_expr(relay.Function([x], relay.Tuple(results))), "opencl")
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    graph.run(x=value)
    assert sum("low_bit_dense" in row.function for row in graph.module.profile()) == kernels
    for k, result in enumerate(wanted):
        np.testing.assert_allclose(graph.get_output(k).numpy(), result, rtol=1e-4, atol=1e-4)


@needs_opencl
@pytest.mark.parametrize("target", ["opencl", "opencl -device=adreno"])
@pytest.mark.parametrize(("rows", "dtype"), [(1, "float16"), (4, "bfloat16"), (40, "bfloat16")])
def test_weights_of_16_bits_stay_so(rows: int, dtype: str, target: str) -> None:
    weight = RNG.standard_normal((UNITS, TERMS)).astype(DType(dtype).numpy)
    x, value = relay.var("x", shape=(rows, TERMS)), RNG.standard_normal((rows, TERMS)).astype(np.float32)
    dense = Call(get_op("nn.narrow_dense"), (x, relay.const(weight)), None)
    library = relay.build(IRModule.from_expr(relay.Function([x], dense)), target)
    (source,) = library.get_lib().descriptor.device_code.values()
    assert "__local" in source, "a written kernel, not plain loops"
    assert sum(np.asarray(v).nbytes for v in library.get_params().values()) == weight.nbytes
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    graph.run(x=value)
    np.testing.assert_allclose(graph.get_output(0).numpy(), value @ weight.astype(np.float32).T, rtol=1e-4, atol=1e-4)
