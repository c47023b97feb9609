"""Products of, and sums with, matrices that are given by their non-zero elements or blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import IRModule, relay
from armillary.errors import ArmillaryError

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
