"""When a convolution to few channels has its input channels in lanes, and what that is expected to take.

In: a workload of nn.contrib_conv2d_NCHWc. Out: None or why not; the explanation. Invariant: no tensor expression is
imported; schedule.py makes the loops. Estimates: cost/narrow.py.
"""

from __future__ import annotations

import math

from armillary.backends.cpu.cost.model import Estimate, explained
from armillary.backends.cpu.cost.narrow import has_inputs_in_lanes, pixel_cycles, pixel_tile
from armillary.backends.explanation import Explanation
from armillary.backends.workload import Workload
from armillary.relay.types import TensorType
from armillary.target.cpu import cpu_model


def sizes_of(workload: Workload) -> tuple[int, int, int]:
    """Outputs, inputs and the taps of a window."""
    weight = workload.tensor(1)
    chunks, blocks, kh, kw, inside, outputs = weight.static
    return chunks * outputs, blocks * inside, kh * kw


def refuses(workload: Workload) -> str | None:
    """None, or why inputs in lanes are no gain; empty where nobody would expect them."""
    data, weight = workload.types
    cpu = cpu_model(workload.target)
    assert isinstance(data, TensorType) and isinstance(weight, TensorType), "inference has checked"
    outputs, inputs, taps = sizes_of(workload)
    is_other = workload.attrs.groups > 1 or any(str(ty.dtype) != "float32" for ty in (data, weight))
    if is_other or weight.static[0] > 1 or 2 * outputs > cpu.lanes:
        return ""
    if weight.static[4] != cpu.lanes:
        return f"blocks of {weight.static[4]} inputs do not fill vectors"
    result = workload.result
    if has_inputs_in_lanes(math.prod(result.static[2:4]), outputs, inputs, taps, cpu):
        return None
    return f"{outputs} channels of {inputs * taps} terms take no longer with outputs in lanes"


def explain(workload: Workload) -> Explanation:
    """The tile, and what it is expected to take."""
    cpu = cpu_model(workload.target)
    result = workload.result
    batch, _, height, width, _ = result.static
    cycles = batch * height * width * pixel_cycles(*sizes_of(workload), cpu)
    tile = f"{pixel_tile(width, result.static[4], cpu)}x{result.static[4]}"
    estimates = [Estimate(f"tile {tile}", cycles, "FMA units")]
    return explained("convolution with input channels in lanes", tile, estimates, cpu)
