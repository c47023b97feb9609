"""What a depthwise convolution on blocked layouts can choose from: the register tile.

In: a workload and a `CpuModel`. Out: the sizes that the model of costs asks for, the explanation. Invariant: no tensor
expression is imported; schedule.py makes the loops. Estimates: conv2d/depthwise/cost.py.
"""

from __future__ import annotations

from typing import Any

from armillary.backends.cpu.conv2d.depthwise.cost import (
    DepthwiseNest,
    choose_depthwise,
    depthwise_estimate,
    ranked_depthwise,
)
from armillary.backends.cpu.cost.model import explained, far
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Workload
from armillary.ops.nn.conv import window
from armillary.target.cpu import CpuModel, cpu_model


def depthwise_nest(workload: Workload, cpu: CpuModel) -> DepthwiseNest:
    """The sizes that the cost model asks for."""
    data: Any = workload.types[0]  # Any: tensor types, as inference has checked
    weight: Any = workload.types[1]
    result: Any = workload.op.infer_type(workload.attrs, workload.types)
    batch, chunks, height, width, block = result.static
    win, kernel = window(workload.op.name, workload.attrs, 2), weight.static[2:4]
    lanes = lanes_of(cpu, result.dtype)
    moved = data.nbytes + result.nbytes
    met = [
        _met(data.static[2 + a], result.static[2 + a], kernel[a], win.strides[a], win.dilation[a], win.pads[a][0])
        for a in range(2)
    ]
    return DepthwiseNest(
        width, batch * chunks * height, chunks, kernel, (met[0], met[1]), win.strides[1], win.dilation[1],
        wide=max(1, block // lanes), is_narrow=2 * block <= lanes, moved=moved / far(moved, cpu),
    )  # fmt: skip


def _met(size: int, outputs: int, taps: int, stride: int, step: int, before: int) -> float:
    """Taps of a window along one axis that lie on the data, the mean over the outputs."""
    starts = (place * stride - before for place in range(outputs))
    return sum(0 <= start + tap * step < size for start in starts for tap in range(taps)) / outputs


def explain_depthwise(workload: Workload) -> Explanation:
    """The register tile against the best with other numbers of vectors."""
    cpu = cpu_model(workload.target)
    nest = depthwise_nest(workload, cpu)
    tile = choose_depthwise(nest, cpu)
    others = {other.vectors: estimate for other, estimate in reversed(ranked_depthwise(nest, cpu))}
    rest = [estimate for vectors, estimate in others.items() if vectors != tile.vectors]
    return explained("depthwise convolution", f"{tile}", [depthwise_estimate(nest, tile, cpu), *rest], cpu)
