"""combine-parallel-batch-matmul: batched products of the same left side as one.

In: a module. Out: one where at least `min_num_branches` nn.batch_matmul with the same first tensor, equal attributes
and equal batch sizes are one nn.batch_matmul and a slice for each. Invariant: each consumer reads what it read before.

    def @main(%x: Tensor[(2, 4, 5), float32], %v: Tensor[(2, 2, 5), float32], %w: Tensor[(2, 3, 5), float32]) {
      %0 = nn.batch_matmul(%x, %v);
      %1 = nn.batch_matmul(%x, %w);
      (%0, %1)
    }
    ->
    def @main(%x: Tensor[(2, 4, 5), float32], %v: Tensor[(2, 2, 5), float32], %w: Tensor[(2, 3, 5), float32]) {
      %0 = (%v, %w);
      %1 = concatenate(%0, axis=1);
      %2 = nn.batch_matmul(%x, %1);
      %3 = strided_slice(%2, begin=(0, 0, 0), end=(-1, -1, 2), strides=(1, 1, 1), slice_mode="size");
      %4 = strided_slice(%2, begin=(0, 0, 2), end=(-1, -1, 3), strides=(1, 1, 1), slice_mode="size");
      (%3, %4)
    }
"""

from __future__ import annotations

from collections.abc import Hashable

from armillary.ir import IRModule
from armillary.relay.expr import Call
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.transform.simplify._combine import ParallelBranch, combine_all
from armillary.transform import define_pass


@define_pass("combine-parallel-batch-matmul", opt_level=4)
def combine_parallel_batch_matmul(module: IRModule, *, min_num_branches: int = 3) -> IRModule:
    """Join sibling nn.batch_matmul calls."""
    return on_functions(module, lambda f: combine_all(f, _BATCH_MATMUL, min_num_branches))


def _key(expr: Call) -> Hashable | None:
    ty = tensor(expr.args[1])
    return None if ty is None else (ty.dtype, ty.shape[0], repr(expr.attrs))


def _weight_axis(expr: Call) -> int:
    return 1 if expr.attrs.transpose_b else 2


_BATCH_MATMUL = ParallelBranch("nn.batch_matmul", _key, _weight_axis, lambda e: 2, lambda attrs, _: attrs)
