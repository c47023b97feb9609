"""Dense layers on blocks of four: pixels of weights in registers, for GPUs that read textures.

In: the schedule of a fused opencl.dense_pixels. Out: one kernel: a work-item sums four outputs, or a few blocks of
them, of some rows; neighbours along x have neighbouring outputs, so they read pixels side by side and share the data.
Invariant: what a work-item sums divides the result; no shared memory and no barrier.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.opencl.schedules.default import inline_injective, is_one_kernel, static_extent
from armillary.backends.opencl.schedules.texels import sum_in_registers
from armillary.backends.opencl.tiles import divisors
from armillary.backends.registry import Fused, implement

ROWS, BLOCKS, REGISTERS = 8, 4, 20  # of a work-item: rows, blocks of four outputs, vectors that it keeps
ITEMS, ACROSS = 128, 32  # of a work-group, and along the outputs
GROUP = 64  # work-items of a stage that is no sum


def own_tile(rows: int, blocks: int) -> tuple[int, int]:
    """Rows and blocks that a work-item sums: those with the fewest reads for each sum, whose vectors fit registers."""
    tiles = [(m, b) for m in divisors(rows, ROWS) for b in divisors(blocks, BLOCKS) if m * b + m + 4 * b <= REGISTERS]
    return min(tiles, key=lambda tile: ((tile[0] + 4 * tile[1]) / (tile[0] * tile[1]), tile[1]))


@implement("dense_pixels", family="opencl")
def dense_pixels(schedule: te.Schedule, fused: Fused) -> None:
    """One kernel with what follows the product, where that reads each sum for its own element; else one for each."""
    retained = inline_injective(schedule, fused)
    anchor, output = fused.anchor[0], fused.outputs[0]
    source = anchor.op
    assert isinstance(source, te.ComputeOp), "a contraction is computed"
    is_last = output.op is source
    if not is_one_kernel(schedule, fused, retained):
        for tensor in retained:
            _by_itself(schedule, tensor)
        return
    sums = anchor
    if is_last:
        sums = schedule.cache_write(anchor, "local")
    else:
        schedule[anchor].set_scope("local")
    sum_in_registers(schedule, sums, schedule[output], _bind(schedule[output]), unroll=False)


def _bind(stage: te.Stage) -> te.IterVar:
    """Work-items over rows and blocks of outputs; gives the last of their axes."""
    row, block, lane = stage.op.axis
    own = own_tile(static_extent(row), static_extent(block))
    (over_y, own_y), (over_x, own_x) = (stage.split(a, factor=n) for a, n in zip((row, block), own, strict=True))
    across = min(ACROSS, static_extent(block) // own[1])
    down = min(max(ITEMS // across, 1), static_extent(row) // own[0])
    (group_y, item_y), (group_x, item_x) = stage.split(over_y, factor=down), stage.split(over_x, factor=across)
    stage.reorder(group_y, group_x, item_y, item_x, own_y, own_x, lane)
    for tag, group, item in (("y", group_y, item_y), ("x", group_x, item_x)):
        stage.bind(group, te.thread_axis(f"blockIdx.{tag}"))
        stage.bind(item, te.thread_axis(f"threadIdx.{tag}"))
    stage.unroll(own_y)
    stage.unroll(own_x)
    stage.vectorize(lane)
    innermost: te.IterVar = item_x
    return innermost


def _by_itself(schedule: te.Schedule, tensor: te.Tensor) -> None:
    """A kernel for one stage: its pixels by work-items."""
    op = tensor.op
    assert isinstance(op, te.ComputeOp), "a stage of a dense layer is computed"
    if op.reduce_axis:
        sums = schedule.cache_write(tensor, "local")
        sum_in_registers(schedule, sums, schedule[tensor], _bind(schedule[tensor]), unroll=False)
        return
    stage = schedule[tensor]
    *axes, lane = stage.op.axis
    group, item = stage.split(stage.fuse(*axes), factor=GROUP)
    stage.bind(group, te.thread_axis("blockIdx.x"))
    stage.bind(item, te.thread_axis("threadIdx.x"))
    stage.vectorize(lane)
