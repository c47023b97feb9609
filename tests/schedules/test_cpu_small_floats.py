"""Products of bfloat16 with sums in float32: matrix tiles, dot products of pairs, float32 where there are neither."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from runnable import targets

import armillary
from armillary import relay
from armillary.backends.cpu.cost.products16 import multiplies_bfloat16
from armillary.backends.cpu.gemm.amx_panel_cost import part_of, ranked
from armillary.backends.cpu.gemm.amx_panels import rows_together
from armillary.contrib.graph_executor import GraphModule
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, const
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

TILES, PAIRS, PLAIN = "llvm -mcpu=sapphirerapids", "llvm -mcpu=znver4", "llvm -mcpu=haswell"
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n2"
BFLOAT = ml_dtypes.bfloat16
SMALL = 2.0**-20  # how far float32 sums may be off, of the sum of the products' sizes: orders differ, and each rounds


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(BFLOAT)


def build(body: Expr, inputs: list[Any], target: str, strict: bool = True) -> Any:
    """The library; `strict`: operators stay in the types that they are written in."""
    with PassContext(3, config={"relay.strict_half": strict}):
        return relay.build(IRModule.from_expr(Function(inputs, body)), target)


def run(library: Any, **inputs: Any) -> np.ndarray[Any, Any]:
    graph = GraphModule(library["default"](armillary.cpu(0)))
    graph.run(**inputs)
    return np.asarray(graph.get_output(0).numpy())


def assert_product(got: Any, a: Any, b: Any) -> None:
    """Against float64."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert got.dtype == np.float32
    assert (np.abs(got - x @ y) <= SMALL * (np.abs(x) @ np.abs(y))).all()


def dense(x: Any, weight: Any) -> Expr:
    return relay.nn.dense(x, const(weight), out_dtype="float32")


@pytest.mark.parametrize("target", targets(TILES, PAIRS, PLAIN, "c"))
@pytest.mark.parametrize(
    ("shape", "units"),
    [
        ((1, 64), 32),
        ((3, 30), 17),
        ((4, 64), 16),
        ((5, 70), 48),
        ((33, 96), 20),
        ((2, 17, 64), 33),
        ((49, 7), 30),
        ((100, 160), 64),
        ((197, 192), 33),
        ((64, 33), 16),
    ],
)
def test_constant_weights_of_all_shapes(shape: tuple[int, ...], units: int, target: str) -> None:
    data, weight = numbers(*shape), numbers(units, shape[-1], seed=1)
    x = relay.var("x", shape=shape, dtype="bfloat16")
    library = build(dense(x, weight), [x], target)
    assert_product(run(library, x=data), data, weight.T)
    code = library.get_source("c" if target == "c" else "asm")
    rows = math.prod(shape[:-1])
    assert ("tdpbf16ps" in code) == (target == TILES and rows >= 4)
    assert ("vdpbf16ps" in code) == (target == PAIRS or (target == TILES and rows < 4))


@pytest.mark.parametrize("target", targets(TILES, PAIRS))
@pytest.mark.parametrize(("rows", "terms", "units"), [(128, 704, 64), (300, 320, 48), (2112, 1024, 32)])
def test_panels_of_rows_and_parts_of_a_sum(rows: int, terms: int, units: int, target: str) -> None:
    data, weight = numbers(rows, terms), numbers(units, terms, seed=2)
    x = relay.var("x", shape=data.shape, dtype="bfloat16")
    assert_product(run(build(dense(x, weight), [x], target), x=data), data, weight.T)


def test_the_shapes_of_that_test_have_them() -> None:
    cpu, found = cpu_model(TILES), []
    for rows, terms, units in ((128, 704, 64), (300, 320, 48), (2112, 1024, 32)):
        steps = terms // 32
        panel = ranked(rows, units // 16, steps, cpu)[0][0]
        panels = -(-rows // panel.whole)
        found.append((panels, divmod(steps, part_of(panel, steps)), rows_together(rows, steps, panel, cpu) < panels))
    assert [n for n, _, _ in found] == sorted(n for n, _, _ in found) and found[0][0] == 1 < found[1][0]
    assert found[0][1][1] > 0 and found[0][1][0] > 1  # whole parts, and a rest
    assert [far for *_, far in found] == [False, False, True]


@pytest.mark.parametrize("target", targets(TILES, PAIRS, PLAIN))
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "columns", "terms"), [(35, 20, 24), (64, 48, 64), (6, 17, 33)])
def test_batches_of_two_operands_that_are_computed(
    rows: int, columns: int, terms: int, transposed: bool, target: str
) -> None:
    a, b = numbers(3, rows, terms), numbers(3, terms, columns, seed=3)
    given = b.swapaxes(1, 2).copy() if transposed else b
    x, y = relay.var("x", shape=a.shape, dtype="bfloat16"), relay.var("y", shape=given.shape, dtype="bfloat16")
    result = relay.nn.batch_matmul(x, y, out_dtype="float32", transpose_b=transposed)
    library = build(result, [x, y], target)
    assert_product(run(library, x=a, y=given), a, b)
    assert ("tdpbf16ps" in library.get_source("asm")) == (target == TILES)


@pytest.mark.parametrize("target", targets(TILES, PAIRS))
def test_what_follows_is_computed_in_float32_and_rounded_once(target: str) -> None:
    data, weight, more = numbers(40, 64), numbers(48, 64, seed=4), numbers(40, 48, seed=5)
    bias = np.linspace(-1, 1, 48).astype(np.float32)
    x, r = relay.var("x", shape=data.shape, dtype="bfloat16"), relay.var("r", shape=more.shape, dtype="bfloat16")
    sums = relay.add(relay.add(dense(x, weight), const(bias)), relay.cast(r, dtype="float32"))
    library = build(relay.cast(relay.nn.relu(sums), dtype="bfloat16"), [x, r], target)
    got = run(library, x=data, r=more)
    wide = [v.astype(np.float64) for v in (data, weight, more)]
    want = np.maximum(wide[0] @ wide[1].T + bias + wide[2], 0)
    assert library.get_graph_json().count('"tvm_op"') == 1 and "vcvtneps2bf16" in library.get_source("asm")
    edge = np.abs(wide[0]) @ np.abs(wide[1]).T * SMALL + np.abs(want) * 2.0**-8  # half a step of bfloat16
    assert (np.abs(got.astype(np.float64) - want) <= edge).all()


@pytest.mark.parametrize("target", targets(TILES, PAIRS))
def test_infinities_and_nans_come_out(target: str) -> None:
    data, weight = numbers(20, 64), numbers(32, 64, seed=6)
    data[0, 3], data[1, 5], weight[0, 3] = np.inf, np.nan, 1
    x = relay.var("x", shape=data.shape, dtype="bfloat16")
    got = run(build(relay.cast(dense(x, weight), dtype="bfloat16"), [x], target), x=data)
    assert got[0, 0] == np.inf and np.isnan(got[1]).all() and np.isfinite(got[2:].astype(np.float32)).all()


def test_arm_multiplies_pairs() -> None:
    x = relay.var("x", shape=(20, 64), dtype="bfloat16")
    code = build(dense(x, numbers(48, 64)), [x], ARM).get_source("asm")
    assert "bfdot" in code and "fmla" not in code


@pytest.mark.parametrize(
    ("target", "rows", "columns", "terms", "packed", "wanted"),
    [
        (TILES, 128, 768, 768, True, True),
        (TILES, 4, 768, 768, True, True),
        (TILES, 3, 768, 768, True, False),
        (TILES, 128, 8, 768, True, False),
        (TILES, 128, 64, 128, False, True),
        (TILES, 64, 16, 3, True, False),
        (PAIRS, 128, 768, 768, True, True),
        (PAIRS, 2, 768, 768, True, False),
        (PAIRS, 16, 64, 1, True, False),
        (PLAIN, 128, 768, 768, True, False),
        (TILES + " -mattr=-amx-bf16", 128, 768, 768, True, False),
    ],
)
def test_products_are_in_bfloat16_where_that_takes_less_time(
    target: str, rows: int, columns: int, terms: int, packed: bool, wanted: bool
) -> None:
    assert multiplies_bfloat16(rows, columns, terms, cpu_model(target), packed) == wanted


@pytest.mark.parametrize("target", targets(TILES))
def test_few_rows_read_rounded_weights_and_many_multiply_them(target: str) -> None:
    one, many = (relay.var(name, shape=(rows, 512), dtype="float32") for name, rows in (("a", 1), ("b", 40)))
    weights = [np.random.default_rng(k).standard_normal((2048, 512)).astype(np.float32) for k in range(2)]
    body = relay.Tuple([relay.nn.dense(x, const(w)) for x, w in zip((one, many), weights, strict=True)])
    module = relay.transform.InferType()(IRModule.from_expr(Function([one, many], body)))
    mixed = relay.transform.ToMixedPrecision("bfloat16", keep_orig_output_dtype=True)(module)
    with PassContext(3):
        library = relay.build(mixed, target)
    text = library.get_source("relay")
    assert "Tensor[(128, 512, 16), bfloat16]" in text and "Tensor[(128, 256, 16, 2), bfloat16]" in text
    graph, rng = GraphModule(library["default"](armillary.cpu(0))), np.random.default_rng(9)
    given = {"a": rng.standard_normal((1, 512)), "b": rng.standard_normal((40, 512))}
    graph.run(**{name: value.astype(np.float32) for name, value in given.items()})
    for k, (value, weight) in enumerate(zip(given.values(), weights, strict=True)):
        edge = 2.0**-6 * (np.abs(value) @ np.abs(weight.T))  # two roundings of operands, one of the result
        assert (np.abs(graph.get_output(k).numpy() - value @ weight.T) <= edge).all()


@pytest.mark.parametrize("target", targets(TILES))
def test_a_network_in_float32_stays_so(target: str) -> None:
    x = relay.var("x", shape=(40, 64), dtype="float32")
    code = build(relay.nn.dense(x, const(np.ones((48, 64), np.float32))), [x], target, strict=False).get_source("asm")
    assert "bf16" not in code
