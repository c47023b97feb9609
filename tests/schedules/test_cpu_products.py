"""The CPU schedules of matrix products: every transposition, batch and remainder agrees with numpy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.driver.build import build
from armillary.runtime import cpu
from armillary.transform import PassContext


def compiled(function: Any, **inputs: np.ndarray) -> np.ndarray:
    with PassContext(opt_level=3):
        graph = build(function, "llvm")["default"](cpu(0))
    for name, value in inputs.items():
        graph.set_input(name, value)
    graph.run()
    return graph.get_output(0).numpy().copy()


def text_of(function: Any, target: str) -> str:
    """The loops of the one kernel that has a sum."""
    with PassContext(opt_level=3):
        text: str = build(function, target).get_lib().get_source("tir")
    return text


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("batch_a", "batch_b"), [(3, 3), (1, 3), (3, 1)])
@pytest.mark.parametrize(("m", "k", "n"), [(37, 20, 48), (4, 7, 8), (16, 33, 24), (3, 9, 16), (5, 6, 10)])
def test_batched_product(
    transpose_a: bool, transpose_b: bool, batch_a: int, batch_b: int, m: int, k: int, n: int
) -> None:
    a = normal(1, batch_a, *((k, m) if transpose_a else (m, k)))
    b = normal(2, batch_b, *((n, k) if transpose_b else (k, n)))
    x, y = relay.var("a", shape=a.shape), relay.var("b", shape=b.shape)
    product = relay.nn.batch_matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    expected = (a.swapaxes(1, 2) if transpose_a else a) @ (b.swapaxes(1, 2) if transpose_b else b)
    got = compiled(relay.Function([x, y], relay.nn.relu(product)), a=a, b=b)
    np.testing.assert_allclose(got, np.maximum(expected, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [(1,), (5,), (64,), (2, 9), (2, 3, 4), (21, 1), (19, 3), (2, 17, 5), (1, 3)])
@pytest.mark.parametrize("units", [16, 40, 1000, 13])
@pytest.mark.parametrize("constant", [True, False])
def test_dense(rows: tuple[int, ...], units: int, constant: bool) -> None:
    x, w = normal(3, *rows, 50), normal(4, units, 50)
    data, weight = relay.var("x", shape=x.shape), relay.var("w", shape=w.shape)
    layer = relay.nn.dense(data, relay.const(w) if constant else weight) + relay.const(normal(5, units))
    function = relay.Function([data] if constant else [data, weight], layer)
    got = compiled(function, x=x, **({} if constant else {"w": w}))
    np.testing.assert_allclose(got, x @ w.T + normal(5, units), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("mcpu", "outputs"), [("sapphirerapids", 1008), ("znver4", 1000)])
def test_outputs_fill_vectors_where_half_a_vector_takes_as_long(mcpu: str, outputs: int) -> None:
    data = relay.var("x", shape=(64, 50))
    layer = relay.nn.dense(data, relay.const(normal(4, 1000, 50))) + relay.const(normal(5, 1000))
    loops = text_of(relay.Function([data], layer), f"llvm -mtriple=x86_64-linux-gnu -mcpu={mcpu}")
    assert f"p1: Buffer[({outputs * 50},), float32]" in loops
    assert loops.count("func @") == 1
    assert "Buffer[(64000,), float32]) attrs" in loops, "what fills up the last block is not stored"


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("rows", "terms", "columns"), [(40, 16384, 48), (67, 10000, 20), (64, 20001, 16)])
def test_long_sums_are_packed_part_by_part(
    transpose_a: bool, transpose_b: bool, rows: int, terms: int, columns: int
) -> None:
    a, b = normal(1, 2, rows, terms), normal(2, 2, terms, columns)
    a, b = (a.swapaxes(1, 2).copy() if transpose_a else a), (b.swapaxes(1, 2).copy() if transpose_b else b)
    x, y = relay.var("a", shape=a.shape), relay.var("b", shape=b.shape)
    product = relay.nn.batch_matmul(x, y, transpose_a=transpose_a, transpose_b=transpose_b)
    function = relay.Function([x, y], relay.nn.relu(product))
    left, right = (a.swapaxes(1, 2) if transpose_a else a), (b.swapaxes(1, 2) if transpose_b else b)
    expected = np.maximum(left.astype("float64") @ right, 0)
    np.testing.assert_allclose(compiled(function, a=a, b=b), expected, rtol=1e-4, atol=2e-3)
    loops = text_of(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
    (size,) = re.findall(r"alloc packed: Buffer\[\((\d+),\)", loops)
    assert int(size) < 300 * 32, "a part of a few columns, not the whole right-hand side"


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("columns", [3, 5, 20, 33])
def test_a_row_of_one_tile_is_cut_in_registers(columns: int, constant: bool) -> None:
    a, b = normal(1, 300, 16), normal(2, 16, columns)
    x, y = relay.var("a", shape=a.shape), relay.var("b", shape=b.shape)
    function = relay.Function([x] if constant else [x, y], relay.nn.matmul(x, relay.const(b) if constant else y))
    got = compiled(function, a=a, **({} if constant else {"b": b}))
    np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-5)
    loops = text_of(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
    assert set(re.findall(r"\+ broadcast\(.*?, (\d+)\) \*", loops)) == {"8"}, "all products are of whole vectors"
    allocated = re.findall(r"alloc \w+: Buffer\[\((\d+),\), float32\]", loops)
    assert max(map(int, allocated)) < 300 * columns, "the product is not stored as wide as its vectors first"


@pytest.mark.parametrize("terms", [60, 300])
def test_rows_that_are_read_once_are_asked_for(terms: int) -> None:
    a, b = normal(1, 4003, terms), normal(2, terms, 15)
    x = relay.var("a", shape=a.shape)
    function = relay.Function([x], relay.nn.matmul(x, relay.const(b)))
    np.testing.assert_allclose(compiled(function, a=a), a @ b, rtol=1e-4, atol=1e-3)
    asked = re.findall(r"prefetch:int32\(p0\[", text_of(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"))
    assert len(asked) >= 1


@pytest.mark.parametrize("columns", [21, 40, 197, 200])
@pytest.mark.parametrize("rows", [5, 33])
def test_columns_that_fill_no_vectors(rows: int, columns: int) -> None:
    a, b, bias = normal(1, 3, rows, 20), normal(2, 3, 20, columns), normal(3, columns)
    x, y = relay.var("a", shape=a.shape), relay.var("b", shape=b.shape)
    product = relay.nn.batch_matmul(x, y, transpose_b=False)
    for made, expected in ((product, a @ b), (product + relay.const(bias), a @ b + bias)):
        np.testing.assert_allclose(compiled(relay.Function([x, y], made), a=a, b=b), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "terms"),
    [((20,), 3072), ((16,), 3072), ((1, 3, 7), 3072), ((3, 1, 8), 3072), ((17, 1), 3072), ((700,), 12288)],
    ids=["last-tile-not-full", "fewer-tiles-than-vectors", "short-lines", "one-row-lines", "rows-first", "row-blocks"],
)
def test_a_sum_too_long_for_the_second_cache_goes_part_by_part(rows: tuple[int, ...], terms: int) -> None:
    x, w, bias = normal(8, *rows, terms), normal(9, 384, terms), normal(10, 384)
    data = relay.var("x", shape=x.shape)
    function = relay.Function([data], relay.nn.relu(relay.nn.dense(data, relay.const(w)) + relay.const(bias)))
    np.testing.assert_allclose(compiled(function, x=x), np.maximum(x @ w.T + bias, 0), rtol=1e-4, atol=terms * 1e-6)
    loops = text_of(function, "llvm -mcpu=sapphirerapids")
    part, tile = re.search(rf"for k_outer\w* in range\({terms // 256}\)", loops), re.search(r"alloc \w+_rf: ", loops)
    assert part and tile and part.start() < tile.start()
    between = loops[part.end() : tile.start()]
    assert "for i" in between, "the tiles of rows are inside the parts of the sum"
    assert "prefetch" in loops


@pytest.mark.parametrize("rows", [(1024,), (1, 1536)])
def test_rows_too_many_for_the_second_cache_meet_all_columns_in_blocks(rows: tuple[int, ...]) -> None:
    x, w = normal(8, *rows, 768), normal(9, 400, 768)
    data = relay.var("x", shape=x.shape)
    function = relay.Function([data], relay.nn.relu(relay.nn.dense(data, relay.const(w))))
    np.testing.assert_allclose(compiled(function, x=x), np.maximum(x @ w.T, 0), rtol=1e-4, atol=1e-3)
    found = {int(n) for n in re.findall(r"range\((\d+)\)", text_of(function, "llvm -mcpu=sapphirerapids"))}
    blocks = {1024: 4, 1536: 6}[rows[-1]]
    tiles = rows[-1] // blocks // 8
    assert tiles in found, "the tiles of a block of rows are a loop of their own"


@pytest.mark.parametrize(("rows", "units"), [(2700, 64), (203, 208), (96, 208), (197, 192), (5000, 16)])
def test_few_columns_are_shared_out_by_blocks_of_rows(rows: int, units: int) -> None:
    x, w = normal(12, rows, 40), normal(13, units, 40)
    data = relay.var("x", shape=x.shape)
    function = relay.Function([data], relay.nn.dense(data, relay.const(w)))
    np.testing.assert_allclose(compiled(function, x=x), x @ w.T, rtol=1e-4, atol=1e-4)
    loops = text_of(function, "llvm -mcpu=sapphirerapids")
    (tasks,) = re.findall(r"in range\((\d+)\) parallel", loops)
    assert int(tasks) >= 8


@pytest.mark.parametrize(("rows", "units"), [(4096, 128), (4091, 60), (6000, 320)])
def test_many_more_rows_than_columns_meet_all_columns_in_short_blocks(rows: int, units: int) -> None:
    x, w = normal(12, rows, 72), normal(13, units, 72)
    data = relay.var("x", shape=x.shape)
    function = relay.Function([data], relay.nn.relu(relay.nn.dense(data, relay.const(w))))
    np.testing.assert_allclose(compiled(function, x=x), np.maximum(x @ w.T, 0), rtol=1e-4, atol=1e-4)
    loops = text_of(function, "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")
    (tasks,) = re.findall(r"in range\((\d+)\) parallel", loops)
    assert int(tasks) >= rows // 64, "a task has at most 64 rows"


def test_short_lines_read_a_group_of_weights_together() -> None:
    data = relay.var("x", shape=(1, 7, 7, 768))
    function = relay.Function([data], relay.nn.dense(data, relay.const(normal(11, 1536, 768))))
    assert re.search(
        r"for i3_outer in range\(32\) parallel \{\n +for i1 in", text_of(function, "llvm -mcpu=sapphirerapids")
    )


def test_a_product_whose_reader_has_another_shape_is_stored_first() -> None:
    a, b = normal(6, 2, 16, 8), normal(7, 2, 32, 8)
    x, y = relay.var("a", shape=a.shape), relay.var("b", shape=b.shape)
    product = relay.reshape(relay.nn.batch_matmul(x, y), (2, 512))
    got = compiled(relay.Function([x, y], relay.sum(product, axis=1)), a=a, b=b)
    np.testing.assert_allclose(got, (a @ b.swapaxes(1, 2)).sum((1, 2)), rtol=1e-4, atol=1e-4)
