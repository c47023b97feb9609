"""`topi.sparse.utils`: matrices drawn at random that are zero but for some blocks.

In: sizes, a density. Out: `BlockRows`, which has data, indices, indptr and `todense()`. Invariant: numbers come from
numpy's global generator, so that a script's seed holds.
"""

from __future__ import annotations

import numpy as np

from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.relay.data_dep_optimization.block_rows import BlockRows

__all__ = ["random_bsr_matrix"]


@boundary("topi.sparse.random_bsr_matrix", arguments=True)
def random_bsr_matrix(m: int, n: int, bs_r: int, bs_c: int, density: float, dtype: str) -> BlockRows:
    """An m by n matrix with blocks of bs_r by bs_c, of which about `density` are not zero."""
    if bs_r < 1 or bs_c < 1 or m % bs_r or n % bs_c:
        raise TypeMismatch(f"random_bsr_matrix: {m} by {n} is not made of blocks of {bs_r} by {bs_c}")
    if not 0 <= density <= 1:
        raise TypeMismatch(f"random_bsr_matrix: density {density}, wanted a number from 0 to 1")
    grid = (m // bs_r, n // bs_c)
    count = min(grid[0] * grid[1], int(density * m * n) // (bs_r * bs_c) + 1)
    chosen = np.sort(np.random.choice(grid[0] * grid[1], count, replace=False))
    row, column = np.divmod(chosen, grid[1])
    data = np.random.randn(count, bs_r, bs_c).astype(dtype)
    begins = np.searchsorted(row, np.arange(grid[0] + 1)).astype(np.int32)
    return BlockRows(data, column.astype(np.int32), begins, (m, n))
