"""Products of, and sums with, matrices that are given by their non-zero elements or blocks."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import IRModule, relay
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError, TypeMismatch
from armillary.relay.data_dep_optimization.block_rows import BlockRows

RNG = np.random.default_rng(5)
Node = Any  # Any: an expression, whose fields differ


def run(body: Node, variables: list[Node], values: list[Any], kind: str) -> Any:
    module = IRModule.from_expr(relay.Function(tuple(variables), body))
    return relay.create_executor(kind, mod=module).evaluate()(*values)


def mostly_zeros(rows: int, columns: int) -> Any:
    values = RNG.normal(size=(rows, columns)).astype(np.float32)
    return np.where(RNG.random((rows, columns)) < 0.3, values, np.float32(0))


def parts_of(matrix: Any, block: tuple[int, int] = (1, 1)) -> tuple[list[Node], list[Any]]:
    """(data, indices, indptr): elements, or blocks, that are not 0, row by row."""
    high, wide = block
    blocks = matrix.reshape(matrix.shape[0] // high, high, -1, wide).transpose(0, 2, 1, 3)
    rows, columns = np.nonzero(np.any(blocks != 0, (2, 3)))
    data = blocks[rows, columns]
    starts = np.searchsorted(rows, np.arange(len(blocks) + 1))
    arrays = [data.reshape(-1) if block == (1, 1) else data, columns.astype(np.int32), starts.astype(np.int32)]
    return [relay.var(f"p{n}", shape=a.shape, dtype=str(a.dtype)) for n, a in enumerate(arrays)], arrays


@pytest.mark.parametrize("kind", ["debug", "graph"])
@pytest.mark.parametrize("lhs", [False, True])
@pytest.mark.parametrize("block", [(1, 1), (2, 3)])
def test_products_are_those_of_the_matrix_written_out(kind: str, lhs: bool, block: tuple[int, int]) -> None:
    matrix, x = mostly_zeros(8, 12), RNG.normal(size=(5, 12)).astype(np.float32)
    parts, arrays = parts_of(matrix, block)
    data: Node = relay.var("x", shape=x.shape)
    body = relay.nn.sparse_dense(data, tuple(parts), sparse_lhs=lhs)
    want = matrix @ x.T if lhs else x @ matrix.T
    np.testing.assert_allclose(run(body, [data, *parts], [x, *arrays], kind).numpy(), want, rtol=1e-4, atol=1e-5)


def test_sums_and_transposes() -> None:
    matrix, x = mostly_zeros(6, 6), RNG.normal(size=(6, 6)).astype(np.float32)
    parts, arrays = parts_of(matrix)
    data: Node = relay.var("x", shape=x.shape)
    total = run(relay.nn.sparse_add(data, *parts), [data, *parts], [x, *arrays], "debug")
    np.testing.assert_allclose(total.numpy(), x + matrix, rtol=1e-6)
    got = run(relay.nn.sparse_transpose(*parts).astuple(), parts, arrays, "graph")
    for part, want in zip(got, parts_of(np.ascontiguousarray(matrix.T))[1], strict=True):
        np.testing.assert_array_equal(part.numpy(), want)


def test_what_is_no_sparse_matrix_is_told() -> None:
    x: Node = relay.var("x", shape=(5, 12))
    parts, _ = parts_of(mostly_zeros(8, 12))
    with pytest.raises(ArmillaryError, match=r"pass \(data, indices, indptr\)"):
        relay.nn.sparse_dense(x, parts[0])
    with pytest.raises(ArmillaryError, match="are no matrix"):
        relay.nn.sparse_dense(x, parts[0], parts[2], parts[1])
    with pytest.raises(ArmillaryError, match="whole blocks of 5"):
        relay.nn.sparse_dense(x, relay.var("d", shape=(2, 1, 5)), relay.var("i", shape=(2,), dtype="int32"), parts[2])


def _blocks(seed: int, rows: int, columns: int) -> np.ndarray:
    """A matrix of which a fifth of the blocks of (4, 1) is not zero."""
    random = np.random.default_rng(seed)
    used = random.random((rows // 4, columns)) < 0.2
    return (random.standard_normal((rows, columns)) * np.repeat(used, 4, axis=0)).astype("float32")


def _run(function: relay.Function, params: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    library = relay.build(function, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](armillary.cpu()))
    module.run(data=x)
    return module.get_output(0).numpy()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("is_constant", [False, True])
def test_sparse_convolutions_compute_the_same(layout: str, size: int, is_constant: bool) -> None:
    matrix = _blocks(size, 8, 6 * size * size)
    shape = (1, 6, 5, 7) if layout == "NCHW" else (1, 5, 7, 6)
    held = matrix.reshape(8, 6, size, size) if layout == "NCHW" else matrix.T.reshape(size, size, 6, 8)
    data, weight = relay.var("data", shape=shape), relay.var("weight", shape=held.shape)
    kernel = "OIHW" if layout == "NCHW" else "HWIO"
    y = relay.nn.conv2d(data, weight, padding=size // 2, data_layout=layout, kernel_layout=kernel)
    function, params = relay.Function([data, weight], relay.nn.relu(y)), {"weight": held}
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    before = _run(function, params, x)
    if is_constant:
        function, params = relay.bind_params_by_name(function, params), {}
    convert = relay.data_dep_optimization.bsr_conv2d.convert2
    sparse, made = convert(function, params, (4, 1), 0.6, layout, size)
    assert "nn.conv2d" in sparse.astext() and "scatter_nd" in sparse.astext()
    assert set(made) == (set() if is_constant else {"weight.data", "weight.indices", "weight.indptr"})
    np.testing.assert_allclose(_run(sparse, made, x), before, rtol=1e-4, atol=1e-5)
    same, kept = convert(function, params, (4, 1), 0.95, layout, size)  # not sparse enough
    assert armillary.ir.structural_equal(same, function) and kept.keys() == params.keys()


def test_sparse_and_transposed_dense_layers_compute_the_same() -> None:
    matrix = _blocks(3, 8, 12)
    data, w, t = relay.var("data", shape=(2, 12)), relay.var("w", shape=(8, 12)), relay.var("t", shape=(8, 5))
    y = relay.nn.dense(relay.nn.dense(data, w), relay.transpose(t, axes=(1, 0)))
    params = {"w": matrix, "t": np.random.default_rng(1).standard_normal((8, 5)).astype("float32")}
    function = relay.Function([data, w, t], y)
    x = np.random.default_rng(2).standard_normal((2, 12)).astype("float32")
    before = _run(function, params, x)
    optimizations = relay.data_dep_optimization
    sparse, made = optimizations.bsr_dense.convert(function, params, (4, 1), 0.6)
    assert "w.indptr" in made and "w" not in made
    flat, last = optimizations.simplify_fc_transpose.convert(sparse, made)
    assert last["t.T"].shape == (5, 8) and "t" not in last
    np.testing.assert_allclose(_run(flat, last, x), before, rtol=1e-4, atol=1e-5)
    asked, _ = optimizations.bsr_dense.convert(function, params, (4, 1), 0.6, filter_func=lambda call: False)
    assert armillary.ir.structural_equal(asked, function)


def test_a_weight_that_is_read_otherwise_too_stays_a_parameter() -> None:
    data, t = relay.var("data", shape=(2, 5)), relay.var("t", shape=(5, 5))
    y = relay.add(relay.nn.dense(data, relay.transpose(t)), relay.nn.dense(data, t))
    params = {"t": np.arange(25, dtype="float32").reshape(5, 5)}
    function, made = relay.data_dep_optimization.simplify_fc_transpose.convert(relay.Function([data, t], y), params)
    assert set(made) == {"t", "t.T"}
    x = np.ones((2, 5), "float32")
    np.testing.assert_allclose(_run(function, made, x), x @ params["t"] + x @ params["t"].T)


def test_random_blocks_are_a_matrix() -> None:
    random = importlib.import_module("armillary.topi.sparse.utils").random_bsr_matrix
    np.random.seed(0)
    made = random(8, 12, 4, 3, 0.3, "float32")
    assert made.data.shape == (3, 4, 3) and made.shape == made.todense().shape == (8, 12)
    again = BlockRows.of(made.todense(), (4, 3))
    np.testing.assert_array_equal(again.indptr, made.indptr)
    np.testing.assert_array_equal(again.todense(), made.todense())
    for bad, message in (((8, 12, 3, 3, 0.3), "not made of blocks"), ((8, 12, 4, 3, 2.0), "density 2.0")):
        with pytest.raises(TypeMismatch, match=message):
            random(*bad, "float32")


def test_misuse_of_sparse_weights_is_told() -> None:
    function = relay.Function([], relay.const(1.0))
    with pytest.raises(TypeMismatch, match="layout 'NCHWc' and kernel size 1"):
        relay.data_dep_optimization.bsr_conv2d.convert(function, {}, (4, 1), 0.5, "NCHWc")
    with pytest.raises(TypeMismatch, match="wanted a relay function and its parameters"):
        relay.data_dep_optimization.simplify_fc_transpose.convert(relay.const(1.0), {})
    data, parts = relay.var("data", shape=(1, 4, 4, 3)), [relay.var(n, shape=(1,)) for n in "abc"]
    with pytest.raises(TypeMismatch, match="kernel_size 2, wanted an odd number"):
        relay.nn.sparse_conv2d(data, *parts, layout="NHWC", kernel_size=2)
    with pytest.raises(TypeMismatch, match="in 'HWC'"):
        relay.nn.sparse_conv2d(data, *parts, layout="HWC")
