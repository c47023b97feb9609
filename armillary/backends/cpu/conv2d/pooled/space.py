"""The sizes of a convolution and the pooling that reads it, from the operators.

In: attributes and types of the pooling, or a workload of both. Out: `Pooled`, which cost.py decides by; the nest of the
convolution, the explanation. Invariant: extents are numbers, none is a symbol; no tensor expression is imported.
Readers: the pass fuse-pool, the schedule of both together.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from armillary.backends.cpu.conv2d.direct.space import nest_of
from armillary.backends.cpu.conv2d.pooled.cost import Pooled, band_rows
from armillary.backends.cpu.cost.model import Nest, choose_tile, explained, tile_estimate
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Workload
from armillary.ops.nn._windows import extent
from armillary.ops.nn.pool import infer_pool, normal
from armillary.relay.types import TensorType
from armillary.target.cpu import CpuModel, cpu_model

if TYPE_CHECKING:
    from armillary.ops.nn._windows import PoolAttrs


def pooled_of(op: str, attrs: PoolAttrs, data: TensorType, steps: int) -> Pooled:
    """The sizes of a pooling over two axes of blocked data, each element of which a convolution sums in `steps`."""
    pool, result = normal(op, attrs, 2, data), infer_pool(op, attrs, 2, data)
    batch, chunks, height, width, block = data.static
    reach = extent(pool.kernel[0], pool.dilation[0])
    return Pooled(batch, chunks, block, height, width, result.static[2], reach, pool.strides[0], steps)


def sizes_of(workload: Workload) -> Pooled:
    """The sizes of a kernel of both."""
    data = workload.tensor(0)
    weight = workload.inner[0].tensor(1)
    return pooled_of(workload.op.name, workload.attrs, data, math.prod(weight.static[1:5]))


def banded_nest(workload: Workload, cpu: CpuModel) -> Nest:
    """The convolution as a product with the blocks of a task, by tiles of one line."""
    nest = nest_of(workload.inner[0], cpu)
    return replace(nest, chunks=sizes_of(workload).group, lines_per_image=1, has_rest=False, taps=(), part=0)


def explain(workload: Workload) -> Explanation:
    """The convolution's tile and what it is expected to take; no alternatives: the pass weighed them."""
    cpu = cpu_model(workload.target)
    nest = banded_nest(workload, cpu)
    tile = choose_tile(nest, cpu)
    name = f"convolution and pooling in bands of {band_rows(sizes_of(workload), cpu)} rows"
    return explained(name, f"{tile}", [replace(tile_estimate(nest, tile, cpu), name=name)], cpu)
