"""combine-parallel-conv2d: convolutions of the same data as one.

In: a module. Out: one where at least `min_num_branches` conv2d of the same data, with one group and equal kernel size,
strides, padding, dilation and layouts, are one conv2d and a slice for each. Invariant: each consumer reads what it read
before.

    def @main(%x: Tensor[(1, 2, 4, 4), float32], %v: Tensor[(2, 2, 1, 1), float32],
              %w: Tensor[(3, 2, 1, 1), float32]) {
      %0 = nn.conv2d(%x, %v);
      %1 = nn.conv2d(%x, %w);
      (%0, %1)
    }
    ->
    def @main(%x: Tensor[(1, 2, 4, 4), float32], %v: Tensor[(2, 2, 1, 1), float32],
              %w: Tensor[(3, 2, 1, 1), float32]) {
      %0 = (%v, %w);
      %1 = concatenate(%0);
      %2 = nn.conv2d(%x, %1);
      %3 = strided_slice(%2, begin=(0, 0), end=(-1, 2), strides=(1, 1), slice_mode="size");
      %4 = strided_slice(%2, begin=(0, 2), end=(-1, 3), strides=(1, 1), slice_mode="size");
      (%3, %4)
    }
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

from armillary.base.data_layout import layout
from armillary.ir import IRModule
from armillary.relay.expr import Call
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.transform.simplify._combine import ParallelBranch, combine_all
from armillary.transform import define_pass


@define_pass("combine-parallel-conv2d", opt_level=4, name="CombineParallelConv2D")
def combine_parallel_conv2d(module: IRModule, *, min_num_branches: int = 3) -> IRModule:
    """Join sibling conv2d calls."""
    return on_functions(module, lambda f: combine_all(f, _CONV2D, min_num_branches))


def _key(expr: Call) -> Hashable | None:
    weight = tensor(expr.args[1])
    attrs = expr.attrs
    plain = not any(layout(x).is_blocked for x in (attrs.data_layout, attrs.kernel_layout))
    if weight is None or attrs.groups != 1 or not plain or attrs.out_layout not in ("", attrs.data_layout):
        return None
    order = layout(attrs.kernel_layout)
    kernel = tuple(weight.shape[order.index(a)] for a in "HW")
    return kernel, weight.dtype, repr(dataclasses.replace(attrs, channels=None, kernel_size=None))


def _attrs(attrs: Any, outputs: int) -> object:  # Any: the operator's attrs
    return dataclasses.replace(attrs, channels=outputs if attrs.channels is not None else None)


_CONV2D = ParallelBranch(
    "nn.conv2d",
    _key,
    lambda e: layout(e.attrs.kernel_layout).index("O"),
    lambda e: layout(e.attrs.data_layout).index("C"),
    _attrs,
)
