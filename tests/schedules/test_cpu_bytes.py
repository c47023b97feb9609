"""Products of bytes: words and dot products, matrix tiles, operands packed at run time; exact at extreme values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from runnable import targets

import armillary
from armillary import relay
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, Function, const
from armillary.transform import PassContext

VNNI, PAIRS = "llvm -mcpu=znver4", "llvm -mcpu=haswell"
TILES = "llvm -mcpu=sapphirerapids"
SIGNS = [(x, y) for x in ("uint8", "int8") for y in ("uint8", "int8")]


def extreme(dtype: str, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Whole rows of the largest and of the smallest value, the others random."""
    info = np.iinfo(dtype)
    values = np.random.default_rng(seed).integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    rows = values.reshape(-1, shape[-1])
    rows[0], rows[-1] = info.max, info.min
    return values


def product(x: np.ndarray[Any, Any], weight: Expr, zero: Expr, weight_zero: Expr, *inputs: Any) -> IRModule:
    data = relay.var("x", shape=x.shape, dtype=str(x.dtype))
    one = const(np.float32(1))
    return IRModule.from_expr(Function([data, *inputs], relay.qnn.dense(data, weight, zero, weight_zero, one, one)))


def check(module: IRModule, target: str, level: int = 3, **inputs: Any) -> Any:
    """Build, run and compare with the reference; gives the library."""
    with PassContext(level):
        library = relay.build(module, target)
    graph = GraphModule(library["default"](armillary.cpu(0)))
    graph.run(**inputs)
    np.testing.assert_array_equal(graph.get_output(0).numpy(), evaluate(module["main"], inputs))
    return library


@pytest.mark.parametrize("target", targets("llvm", VNNI, PAIRS, "c"))
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_constant_weights_of_all_signs_and_zero_points(x: str, y: str, target: str) -> None:
    data, weight = extreme(x, 5, 72), extreme(y, 48, 72, seed=1)
    low = np.iinfo(y).min
    for zero, weight_zero in ((0, 0), (7, low + 128), (-3, np.arange(low, low + 48))):
        zeros = const(np.int32(zero)), const(np.asarray(weight_zero, np.int32))
        check(product(data, const(weight), *zeros), target, x=data)


@pytest.mark.parametrize("target", targets(TILES, VNNI))
@pytest.mark.parametrize(
    "shape", [(1, 64), (3, 128), (4, 64), (16, 128), (31, 64), (49, 64), (2, 33, 128), (3, 5, 7, 64), (197, 192)]
)
@pytest.mark.parametrize("units", [16, 48, 96])
def test_shapes_that_fill_tiles_and_shapes_that_do_not(shape: tuple[int, ...], units: int, target: str) -> None:
    data, weight = extreme("uint8", *shape), extreme("int8", units, shape[-1], seed=2)
    library = check(product(data, const(weight), const(np.int32(121)), const(np.int32(0))), target, x=data)
    has_tiles = target == TILES and math.prod(shape[:-1]) >= 4
    assert ("tdpbusd" in library.get_source("asm")) == has_tiles
    assert ("vpdpbusd" in library.get_source("asm")) == (not has_tiles)


@pytest.mark.parametrize("target", targets(TILES))
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_tiles_of_all_signs(x: str, y: str, target: str) -> None:
    data, weight = extreme(x, 20, 128), extreme(y, 32, 128, seed=3)
    check(product(data, const(weight), const(np.int32(3)), const(np.int32(-5))), target, x=data)


@pytest.mark.parametrize("target", targets(TILES, VNNI, PAIRS))
@pytest.mark.parametrize(("rows", "terms", "units"), [(1, 30, 17), (6, 31, 8), (20, 65, 33), (9, 4, 5), (40, 64, 48)])
def test_lengths_that_are_no_multiples(rows: int, terms: int, units: int, target: str) -> None:
    data, weight = extreme("uint8", rows, terms), extreme("int8", units, terms, seed=4)
    check(product(data, const(weight), const(np.int32(9)), const(np.int32(0))), target, x=data)
    y = relay.var("y", shape=weight.shape, dtype="int8")
    check(product(data, y, const(np.int32(9)), const(np.int32(2)), y), target, x=data, y=weight)


@pytest.mark.parametrize("target", targets("llvm", VNNI))
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_zero_points_that_are_computed(x: str, y: str, target: str) -> None:
    data, weight = extreme(x, 6, 64), extreme(y, 32, 64, seed=5)
    zero, other = relay.var("a", shape=(), dtype=x), relay.var("b", shape=(32,), dtype=y)
    module = product(data, const(weight), zero, other, zero, other)
    check(module, target, x=data, a=np.asarray(np.iinfo(x).max, x), b=extreme(y, 2, 16, seed=6).reshape(-1))


@pytest.mark.parametrize("target", targets(TILES, VNNI, PAIRS))
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_batches_of_two_operands_that_are_computed(x: str, y: str, transposed: bool, target: str) -> None:
    a, b = extreme(x, 3, 35, 24), extreme(y, *((3, 20, 24) if transposed else (3, 24, 20)), seed=7)
    left, right = relay.var("a", shape=a.shape, dtype=x), relay.var("b", shape=b.shape, dtype=y)
    zeros = const(np.int32(5)), const(np.int32(-7))
    one = const(np.float32(1))
    result = relay.qnn.batch_matmul(left, right, *zeros, one, one, transpose_b=transposed)
    check(IRModule.from_expr(Function([left, right], result)), target, a=a, b=b)


@pytest.mark.parametrize("target", targets(TILES, VNNI, PAIRS))
@pytest.mark.parametrize("rows", [1, 40])
def test_what_follows_a_product_is_computed_in_its_kernel(rows: int, target: str) -> None:
    data, weight = extreme("uint8", rows, 64), extreme("int8", 64, 64, seed=8)
    x = relay.var("x", shape=data.shape, dtype="uint8")
    scales = np.linspace(1e-3, 2e-2, 64).astype(np.float32)
    one = const(np.float32(1))
    sums = relay.qnn.dense(x, const(weight), const(np.int32(128)), const(np.int32(0)), one, one)
    bytes_ = relay.qnn.requantize(
        sums,
        const(scales),
        const(np.int32(0)),
        const(np.float32(1.5)),
        const(np.int32(119)),
        axis=1,
        rounding="TOEVEN",
        compute_dtype="float32",
        out_dtype="uint8",
    )
    library = check(IRModule.from_expr(Function([x], bytes_)), target, x=data)
    if target != PAIRS:
        assert library.get_graph_json().count('"tvm_op"') == 1
        assert "int64" not in library.get_source("relay")


@pytest.mark.parametrize(
    ("cpu", "x", "instruction"),
    [
        ("cortex-a76", "uint8", "sdot"),
        ("cortex-a76", "int8", "sdot"),
        ("neoverse-n2", "uint8", "usmmla"),
        ("cortex-a72", "uint8", "mla"),
    ],
)
def test_products_of_arm_use_its_dot_products(cpu: str, x: str, instruction: str) -> None:
    data, weight = extreme(x, 20, 64), extreme("int8", 48, 64, seed=9)
    module = product(data, const(weight), const(np.int32(3)), const(np.int32(0)))
    with PassContext(3, config={"relay.qnn.product_in_float": False}):
        text = relay.build(module, f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}").get_source("asm")
    words = {line.split()[0] for line in text.splitlines() if line.split()}
    assert instruction in words and words & {"udot", "sdot", "usdot", "sudot"} <= {instruction}
