"""The sizes of a convolution and the pooling that reads it, from the operators.

In: attributes and types of the pooling. Out: `Pooled`, which cost.py decides by. Invariant: extents are numbers, none
is a symbol. Readers: the pass fuse-pool, the schedule of both together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.backends.cpu.conv2d.pooled.cost import Pooled
from armillary.ops.nn._windows import extent
from armillary.ops.nn.pool import infer_pool, normal
from armillary.relay.types import TensorType

if TYPE_CHECKING:
    from armillary.ops.nn._windows import PoolAttrs


def pooled_of(op: str, attrs: PoolAttrs, data: TensorType, steps: int) -> Pooled:
    """The sizes of a pooling over two axes of blocked data, each element of which a convolution sums in `steps`."""
    pool, result = normal(op, attrs, 2, data), infer_pool(op, attrs, 2, data)
    batch, chunks, height, width, block = data.static
    reach = extent(pool.kernel[0], pool.dilation[0])
    return Pooled(batch, chunks, block, height, width, result.static[2], reach, pool.strides[0], steps)
