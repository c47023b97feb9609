"""Matrices of which only the blocks with a number other than zero are kept, by rows of blocks (BSR).

In: a matrix and the size of a block. Out: `BlockRows`: the blocks from left to right and from top to bottom, the column
of each, and where each row of blocks begins. Invariant: `BlockRows.of(m, block).todense()` is `m`.
"""

from __future__ import annotations

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.errors import TypeMismatch


@record(slots=True, eq=False)
class BlockRows:
    """`data` is (blocks, rows, columns), `indices` (blocks,), `indptr` (rows of blocks + 1,)."""

    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]

    @staticmethod
    def of(matrix: Array, block: tuple[int, int]) -> BlockRows:
        """The blocks of a matrix; TypeMismatch where its sides are not whole blocks."""
        (rows, columns), (high, wide) = matrix.shape, block
        if high < 1 or wide < 1 or rows % high or columns % wide:
            raise TypeMismatch(f"a matrix of {rows} by {columns} is not made of blocks of {high} by {wide}")
        parts = matrix.reshape(rows // high, high, columns // wide, wide).transpose(0, 2, 1, 3)
        used = parts.any(axis=(2, 3))
        row, column = np.nonzero(used)
        begins = np.searchsorted(row, np.arange(rows // high + 1))
        blocks = np.ascontiguousarray(parts[row, column])
        return BlockRows(blocks, column.astype(np.int32), begins.astype(np.int32), (rows, columns))

    @property
    def density(self) -> float:
        """Which part of the matrix the blocks cover."""
        return self.data.size / max(1, self.shape[0] * self.shape[1])

    def todense(self) -> Array:
        """The matrix with its zeros."""
        (rows, columns), (_, high, wide) = self.shape, self.data.shape
        blocks = np.zeros((rows // high, columns // wide, high, wide), self.data.dtype)
        blocks[np.repeat(np.arange(rows // high), np.diff(self.indptr)), self.indices] = self.data
        return blocks.transpose(0, 2, 1, 3).reshape(rows, columns)

    toarray = todense
