"""Products with few columns have terms in lanes, whatever the sizes, sides and followers; the passes agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from host_cpu import needs

from armillary import relay
from armillary.backends.cpu.cost.narrow import has_terms_in_lanes, narrow_tile
from armillary.driver.build import build
from armillary.ir import IRModule
from armillary.relay.transform.pipeline import optimize
from armillary.runtime import cpu
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu="
TARGETS = ("llvm", f"{X86}znver4", f"{X86}haswell")


def _normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def _run(function: Any, target: str = "llvm", **inputs: np.ndarray) -> np.ndarray:
    with PassContext(opt_level=3):
        graph = build(function, target)["default"](cpu(0))
    for name, value in inputs.items():
        graph.set_input(name, value)
    graph.run()
    return graph.get_output(0).numpy().copy()


@pytest.mark.parametrize("columns", [*range(1, 16)])
@pytest.mark.parametrize(("batch_a", "batch_b", "rows", "terms"), [(1, 1, 21, 200), (3, 1, 5, 96), (2, 2, 1, 515)])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_batched_product_of_few_columns(
    columns: int, batch_a: int, batch_b: int, rows: int, terms: int, transpose_b: bool
) -> None:
    a = _normal(1, batch_a, rows, terms)
    b = _normal(2, batch_b, *((columns, terms) if transpose_b else (terms, columns)))
    x, y = relay.var("a", shape=a.shape), relay.var("b", shape=b.shape)
    product = relay.nn.batch_matmul(x, y, transpose_b=transpose_b)
    expected = a.astype("float64") @ (b.swapaxes(1, 2) if transpose_b else b)
    got = _run(relay.Function([x, y], relay.nn.relu(product)), a=a, b=b)
    np.testing.assert_allclose(got, np.maximum(expected, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [(1,), (7,), (2, 3, 4), (40, 1), (1, 33)])
@pytest.mark.parametrize(("units", "terms"), [(1, 64), (3, 130), (7, 500), (10, 1024), (15, 4000)])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_dense_of_few_units(rows: tuple[int, ...], units: int, terms: int, constant: bool, target: str) -> None:
    needs(target)
    x, w, bias = _normal(3, *rows, terms), _normal(4, units, terms), _normal(5, units)
    data, weight = relay.var("x", shape=x.shape), relay.var("w", shape=w.shape)
    layer = relay.nn.dense(data, relay.const(w) if constant else weight) + relay.const(bias)
    function = relay.Function([data] if constant else [data, weight], relay.sigmoid(layer))
    got = _run(function, target, x=x, **({} if constant else {"w": w}))
    expected = 1 / (1 + np.exp(-(x.astype("float64") @ w.T + bias)))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_what_reads_the_product_in_another_shape() -> None:
    a, b = _normal(6, 1, 40, 300), _normal(7, 1, 5, 300)
    x, y = relay.var("a", shape=a.shape), relay.var("b", shape=b.shape)
    turned = relay.transpose(relay.nn.batch_matmul(x, y), axes=(0, 2, 1))
    got = _run(relay.Function([x, y], relay.nn.relu(turned)), a=a, b=b)
    np.testing.assert_allclose(got, np.maximum((a @ b.swapaxes(1, 2)).swapaxes(1, 2), 0), rtol=1e-4, atol=1e-4)


def test_nothing_beyond_a_row_is_used() -> None:
    """The last vector of a row is not full: what lies behind it in memory must not reach the sum."""
    a = _normal(8, 1, 6, 77)
    a[0, 1:] = np.nan
    b = _normal(9, 1, 3, 77)
    x, y = relay.var("a", shape=a.shape), relay.var("b", shape=b.shape)
    got = _run(relay.Function([x, y], relay.nn.batch_matmul(x, y)), a=a, b=b)
    np.testing.assert_allclose(got[0, 0], a[0, 0] @ b[0].T, rtol=1e-4, atol=1e-4)
    assert np.isnan(got[0, 1:]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_passes_leave_weights_whose_rows_a_kernel_reads(target: str) -> None:
    units, terms, rows = 3, 2048, 50
    assert has_terms_in_lanes(rows, units, terms, cpu_model(target))
    x = relay.var("x", shape=(1, rows, terms))
    module = IRModule.from_expr(relay.Function([x], relay.nn.dense(x, relay.const(_normal(10, units, terms)))))
    with PassContext(opt_level=3):
        text = str(optimize(module, target))
    assert "nn.dense(" in text
    assert "nn.contrib_dense_pack" not in text


def test_many_columns_and_short_sums_keep_columns_in_lanes() -> None:
    for target in TARGETS:
        cpu_of = cpu_model(target)
        assert not has_terms_in_lanes(500, 16, 5000, cpu_of)
        assert not has_terms_in_lanes(500, 7, cpu_of.lanes, cpu_of)
        assert not has_terms_in_lanes(500, 15, 64, cpu_of)


@pytest.mark.parametrize("target", TARGETS)
def test_tiles_fit_the_registers(target: str) -> None:
    cpu_of = cpu_model(target)
    for columns in range(1, 16):
        tile = narrow_tile(500, columns, 500, cpu_of)
        assert tile.rows * tile.columns + tile.rows + 1 < cpu_of.vector_registers
