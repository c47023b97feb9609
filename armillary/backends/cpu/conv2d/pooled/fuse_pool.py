"""fuse-pool: a convolution and the pooling that reads it become one kernel.

In: a module after fuse-ops. Out: where a kernel of a pooling reads the result of a convolution that nothing else reads,
and that is too large to stay near until it is read, both are one kernel, which goes through the image in bands of rows.
Invariant: the same operators on the same values; a kernel has at most one of each.

    %1 = fn (%p0, %p1, Primitive=1) { nn.relu(nn.contrib_conv2d_NCHWc(%p0, %p1)) };
    %2 = fn (%p0, Primitive=1) { nn.max_pool2d(%p0) };
    %2(%1(%x, %w))
    ->
    %1 = fn (%p0, %p1, Primitive=1) { nn.max_pool2d(nn.relu(nn.contrib_conv2d_NCHWc(%p0, %p1))) };
    %1(%x, %w)

Whether it pays: backends/cpu/conv2d/pooled/cost.py. The kernel: backends/cpu/conv2d/pooled/schedule.py.
"""

from __future__ import annotations

import math

from armillary.backends.cpu.conv2d.pooled.cost import MAX_WINDOW, band_rows
from armillary.backends.cpu.conv2d.pooled.space import pooled_of
from armillary.backends.cpu.graph._kernel_pairs import Pair, join_pairs
from armillary.ir import IRModule
from armillary.ops.nn.pool import has_empty_windows, normal
from armillary.relay.expr import typical_of
from armillary.relay.transform._rules import op_name, tensor
from armillary.target.cpu import CpuModel
from armillary.transform import define_pass

CONVOLUTIONS, POOLS = ("nn.contrib_conv2d_NCHWc",), ("nn.max_pool2d", "nn.avg_pool2d")


@define_pass("fuse-pool", opt_level=3)
def fuse_pool(module: IRModule, *, target: object = None) -> IRModule:  # whatever Target accepts
    """Put convolutions into the kernels of the poolings that read them."""
    return join_pairs(module, target, CONVOLUTIONS, POOLS, _pays)


def _pays(pair: Pair, cpu: CpuModel) -> bool:
    conv, pool = pair.inner, pair.outer
    data, weight = typical_of(pool.args[0]), tensor(conv.args[1])
    assert data is not None and weight is not None, "a convolution is of tensors"
    attrs = conv.attrs  # each Op has its own attrs class
    if attrs.groups != 1 or data.dtype != "float32" or len(data.shape) != 5:
        return False
    window = normal(op_name(pool), pool.attrs, 2, data)
    if max(window.kernel) > MAX_WINDOW or has_empty_windows(window):
        return False
    return band_rows(pooled_of(op_name(pool), pool.attrs, data, math.prod(weight.static[1:5])), cpu) > 0
