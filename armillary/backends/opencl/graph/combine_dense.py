"""combine-dense: dense layers of the same data as one, where the model of costs says it is faster.

In: a module. Out: one where two or more nn.dense of the same data are one nn.dense and a slice for each, and so three
or more nn.low_bit_dense of few rows (queries, keys and values of a decoder's step): one launch, which keeps memory
busier than three. Invariant: each consumer reads what it read before; other layers of few rows, which read weights and
little else, stay. The general pass (relay/transform/simplify/combine_parallel_dense.py) joins from three layers on, at
level 4.

    def @main(%x: Tensor[(128, 64), float32], %v: Tensor[(32, 64), float32], %w: Tensor[(32, 64), float32]) {
      %0 = nn.dense(%x, %v);
      %1 = nn.dense(%x, %w);
      (%0, %1)
    }
    ->
    def @main(%x: Tensor[(128, 64), float32], %v: Tensor[(32, 64), float32], %w: Tensor[(32, 64), float32]) {
      %0 = (%v, %w);
      %1 = concatenate(%0);
      %2 = nn.dense(%x, %1);
      %3 = strided_slice(%2, begin=(0, 0), end=(-1, 32), strides=(1, 1), slice_mode="size");
      %4 = strided_slice(%2, begin=(0, 32), end=(-1, 32), strides=(1, 1), slice_mode="size");
      (%3, %4)
    }
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from armillary.backends.opencl.gemm.tile import Size, choose_tile, cost
from armillary.backends.opencl.space import MIN_ROWS
from armillary.backends.opencl.tiles import FLOATS
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.transform.simplify._combine import ParallelBranch, combined, groups
from armillary.relay.transform.simplify.combine_parallel_dense import DENSE
from armillary.target.choice import stored_choice
from armillary.transform import define_pass

FEW_BITS = "nn.low_bit_dense"
GAIN = 0.9  # of the time of layers apart, below which they are joined: what follows one alone no longer fuses with it


@define_pass("combine-dense", opt_level=3)
def combine_dense(module: IRModule) -> IRModule:
    """Join sibling dense layers where one product is estimated to be faster."""
    return on_functions(module, _combined)


def _combined(function: Function) -> Expr | None:
    """Join until nothing is left to join; None where nothing was."""
    result: Expr | None = None
    current: Expr = function
    while isinstance(current, Function):
        siblings = [(calls, _FLOATS) for calls in groups(current, _FLOATS, 2) if _pays(calls)]
        siblings += [(calls, _FEW_BITS) for calls in groups(current, _FEW_BITS, 3)]
        if not siblings:
            break
        result = current = combined(current, *siblings[0])
    return result


def _key_few_bits(expr: Call) -> Hashable | None:
    """Layers of few rows and constant weights join where each has zeros of its own, or all have one."""
    data, parts = tensor(expr.args[0]), [part for part in expr.args[1:] if isinstance(part, Constant)]
    types = [tensor(part) for part in parts]
    if data is None or not all(isinstance(dim, int) for dim in data.shape) or len(parts) < 3:
        return None
    weight, scales, zeros = types
    if weight is None or scales is None or zeros is None or weight.shape[0] == 1:
        return None
    if data.size // data.static[-1] >= MIN_ROWS:
        return None
    zero = np.asarray(parts[2].data).tobytes() if zeros.shape == (1, 1) else b""
    return repr(expr.attrs), str(scales.dtype), zero


def _key(expr: Call) -> Hashable | None:
    size = _size(expr)
    return None if size is None or size.rows < MIN_ROWS or stored_choice(expr) else DENSE.key(expr)


def _size(expr: Call) -> Size | None:
    """The product that a dense layer of floats is; None where sizes are open, or of other types."""
    data, weight = map(tensor, expr.args)
    if data is None or weight is None or str(data.dtype) not in FLOATS or data.ndim < 2:
        return None
    sizes = (*data.shape, *weight.shape)
    if not all(isinstance(n, int) for n in sizes):
        return None
    return Size(1, math.prod(data.static[:-1]), weight.static[0], data.static[-1])


def _pays(calls: Sequence[Call]) -> bool:
    sizes = [size for size in map(_size, calls) if size is not None]
    one = Size(1, sizes[0].rows, sum(size.columns for size in sizes), sizes[0].terms)
    return cost(one, choose_tile(one)) < GAIN * sum(cost(size, choose_tile(size)) for size in sizes)


_FEW_BITS = ParallelBranch(FEW_BITS, _key_few_bits, DENSE.weight_axis, DENSE.output_axis, lambda attrs, outputs: attrs)
_FLOATS = ParallelBranch(DENSE.name, _key, DENSE.weight_axis, DENSE.output_axis, DENSE.attrs)
