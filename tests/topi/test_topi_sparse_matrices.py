"""Products of sparse matrices as stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary import nd, te, topi
from armillary.contrib import sparse
from armillary.errors import TypeMismatch


def test_a_product_of_blocks_is_computed_from_stages() -> None:
    weight = np.zeros((4, 6), np.float32)
    weight[:2, 3:], weight[2:, :3] = 1.5, -2.0
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    parts = [np.stack([weight[:2, 3:], weight[2:, :3]]), np.array([1, 0], np.int32), np.array([0, 1, 2], np.int32)]
    tensors: list[Any] = [te.placeholder(a.shape, str(a.dtype), name=f"p{n}") for n, a in enumerate([x, *parts])]
    y: Any = topi.nn.sparse_dense(*tensors)
    built: Any = armillary.build(te.create_schedule(y.op), [*tensors, y], "llvm")
    result = nd.array(np.zeros((2, 4), np.float32))
    built(*map(nd.array, [x, *parts]), result)
    np.testing.assert_allclose(result.numpy(), x @ weight.T)


@pytest.mark.parametrize("is_data", [True, False])
@pytest.mark.parametrize("has_bias", [True, False])
def test_one_side_of_a_dense_layer_may_be_in_compressed_rows(is_data: bool, has_bias: bool) -> None:
    rng = np.random.default_rng(1)
    x, w, bias = (rng.standard_normal(n).astype(np.float32) for n in ((3, 7), (5, 7), (5,)))
    thin = x if is_data else w
    thin[rng.random(thin.shape) < 0.6] = 0
    rows, columns = thin.nonzero()
    starts = np.searchsorted(rows, np.arange(len(thin) + 1)).astype(np.int32)
    parts = [thin[rows, columns], columns.astype(np.int32), starts]
    made: Any = sparse.placeholder(thin.shape, nonzeros=len(rows), dtype="float32", name="s")
    other = te.placeholder((w if is_data else x).shape, name="other")
    c = te.placeholder((5,), name="c")
    y: Any = topi.sparse.dense(*((made, other) if is_data else (other, made)), c if has_bias else None)
    given = [made.data, made.indices, made.indptr, other, *([c] if has_bias else [])]
    built: Any = armillary.build(te.create_schedule(y.op), [*given, y], "llvm")
    result = nd.array(np.zeros((3, 5), np.float32))
    built(*map(nd.array, [*parts, w if is_data else x, *([bias] if has_bias else [])]), result)
    np.testing.assert_allclose(result.numpy(), x @ w.T + (bias if has_bias else 0), rtol=1e-5, atol=1e-5)


def test_two_sparse_sides_or_a_bias_of_two_axes_are_refused() -> None:
    made: Any = sparse.placeholder((3, 7), nonzeros=4, dtype="float32")
    with pytest.raises(TypeMismatch, match="wanted one matrix in compressed rows and one tensor"):
        topi.sparse.dense(made, made)
    with pytest.raises(TypeMismatch, match="a bias of one dimension"):
        topi.sparse.dense(made, te.placeholder((5, 7)), te.placeholder((5, 1)))
