"""Dense layers whose weights are mostly zero, as products with blocks: `bsr_dense.convert(func, params, (16, 1), 0.8)`.

In: a function, its parameters, the size of a block, the least part of zeros. Out: both, with `nn.sparse_dense` for the
layers that have so many zeros; the parameters are data, indices and indptr. Invariant: the results are the same.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.ops.misc.sparse import sparse_dense
from armillary.ops.nn.dense import dense
from armillary.relay.data_dep_optimization._parameters import New, Params, rewritten
from armillary.relay.data_dep_optimization.block_rows import BlockRows
from armillary.relay.expr import Call, Expr, Function


def blocks_of(matrix: Array, blocksize: tuple[int, int], sparsity_threshold: float) -> BlockRows | None:
    """A matrix as blocks; None where too many are not zero, or its sides are not whole blocks."""
    if matrix.shape[0] % blocksize[0] or matrix.shape[1] % blocksize[1]:
        return None
    result = BlockRows.of(matrix, blocksize)
    return result if 1 - result.density >= sparsity_threshold and len(result.data) else None


def named(rows: BlockRows, new: New) -> tuple[Expr, Expr, Expr]:
    """The parts of a matrix as parameters."""
    return new("data", rows.data), new("indices", rows.indices), new("indptr", rows.indptr)


@boundary("bsr_dense.convert", arguments=True)
def convert(
    func: Function,
    params: Params,
    blocksize: tuple[int, int],
    sparsity_threshold: float,
    filter_func: Callable[[Call], bool] | None = None,
) -> tuple[Function, dict[str, Array]]:
    """The function with sparse layers; `filter_func(call)` says which are asked for."""

    def rule(call: Call, weight: Array, new: New) -> Expr | None:
        if filter_func is not None and not filter_func(call):
            return None
        blocks = blocks_of(weight, blocksize, sparsity_threshold)
        return None if blocks is None else sparse_dense(call.args[0], *named(blocks, new))

    return rewritten("bsr_dense.convert", func, params, (dense.name,), rule)
