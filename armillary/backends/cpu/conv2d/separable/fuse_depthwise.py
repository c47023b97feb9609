"""fuse-depthwise: a depthwise convolution and the 1x1 convolution that reads it become one kernel.

In: a module after fuse-ops. Out: where a kernel of a 1x1 convolution reads the result of a depthwise one that nothing
else reads, and that is too large to stay near until it is read, both are one kernel, which goes through the image in
bands of rows. Invariant: the same operators on the same values; a kernel has at most one of each.

    %1 = fn (%p0, %p1, Primitive=1) { nn.contrib_depthwise_conv2d_NCHWc(%p0, %p1) };
    %2 = fn (%p0, %p1, Primitive=1) { nn.relu(nn.contrib_conv2d_NCHWc(%p0, %p1)) };
    %2(%1(%x, %w), %v)
    ->
    %1 = fn (%p0, %p1, %p2, Primitive=1) { nn.relu(nn.contrib_conv2d_NCHWc(nn.contrib_depthwise…(%p0, %p1), %p2)) };
    %1(%x, %w, %v)

Whether it pays: cost.py. The kernel: schedule.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.backends.cpu.conv2d.separable.cost import band_rows, separable_of
from armillary.backends.cpu.graph._kernel_pairs import Pair, join_pairs
from armillary.ir import IRModule
from armillary.relay.expr import typical_of
from armillary.target.cpu import CpuModel
from armillary.transform import define_pass

if TYPE_CHECKING:
    from armillary.target.target import Target

DEPTHWISE, POINTWISE = ("nn.contrib_depthwise_conv2d_NCHWc",), ("nn.contrib_conv2d_NCHWc",)


@define_pass("fuse-depthwise", opt_level=3)
def fuse_depthwise(module: IRModule, *, target: Target | None = None) -> IRModule:
    """Put depthwise convolutions into the kernels of the 1x1 convolutions that read them."""
    return join_pairs(module, target, DEPTHWISE, POINTWISE, _pays)


def _pays(pair: Pair, cpu: CpuModel) -> bool:
    outer = pair.outer
    data, weight, result = (typical_of(e) for e in (*outer.args, outer))
    assert data is not None and weight is not None and result is not None, "a convolution is of tensors"
    attrs = outer.attrs  # each Op has its own attrs class
    is_pointwise = weight.shape[2:4] == (1, 1) and result.shape[2:4] == data.shape[2:4]
    if not is_pointwise or attrs.groups != 1 or set(attrs.strides) != {1} or result.dtype != "float32":
        return False
    return band_rows(separable_of(data, result), cpu) > 0
