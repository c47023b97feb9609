"""combine-parallel-dense: dense layers of the same data as one.

In: a module. Out: one where at least `min_num_branches` nn.dense of the same data are one nn.dense and a slice for
each. `to_batch` of the old system (a batched product instead of a wider one) is refused: the wider product is faster.

    def @main(%x: Tensor[(1, 4), float32], %v: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) {
      %0 = nn.dense(%x, %v);
      %1 = nn.dense(%x, %w);
      (%0, %1)
    }
    ->
    def @main(%x: Tensor[(1, 4), float32], %v: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) {
      %0 = (%v, %w);
      %1 = concatenate(%0);
      %2 = nn.dense(%x, %1);
      %3 = strided_slice(%2, begin=(0, 0), end=(-1, 2), strides=(1, 1), slice_mode="size");
      %4 = strided_slice(%2, begin=(0, 2), end=(-1, 3), strides=(1, 1), slice_mode="size");
      (%3, %4)
    }
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

from armillary.errors import UnsupportedError
from armillary.ir import IRModule
from armillary.relay.expr import Call
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.transform.simplify._combine import Sibling, combine_all
from armillary.transform import define_pass


@define_pass("combine-parallel-dense", opt_level=4)
def combine_parallel_dense(module: IRModule, *, min_num_branches: int = 3, to_batch: bool = False) -> IRModule:
    """Join sibling nn.dense calls."""
    if to_batch:
        raise UnsupportedError("combine-parallel-dense: to_batch is not supported", hint="leave it out")
    return on_functions(module, lambda f: combine_all(f, _DENSE, min_num_branches))


def _key(expr: Call) -> Hashable | None:
    weight = tensor(expr.args[1])
    return None if weight is None else (weight.dtype, repr(dataclasses.replace(expr.attrs, units=None)))


def _attrs(attrs: Any, outputs: int) -> object:  # Any: the operator's attrs
    return dataclasses.replace(attrs, units=outputs if attrs.units is not None else None)


_DENSE = Sibling("nn.dense", _key, lambda e: 0, lambda e: e.checked_type.ndim - 1, _attrs)  # type: ignore[attr-defined]
