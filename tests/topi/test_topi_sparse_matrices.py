"""Products of sparse matrices as stages."""

from __future__ import annotations

from typing import Any

import numpy as np

import armillary
from armillary import nd, te, topi


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
