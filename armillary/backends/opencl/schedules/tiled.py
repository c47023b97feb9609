"""Sums of products by tiles: both sides through shared memory, sums in registers.

In: the schedule of a fused contraction, and for some of its axes how many work-items and results of each lie along
them. Out: one kernel: a work-group computes a tile of the result, step by step over the terms; what follows the
contraction is done on the sums. Invariant: tiles divide the axes, so that all work-items of a group pass the same
barriers. Tiles: `backends/opencl/tiles.py`; users: `conv2d.py`, `products.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary import te
from armillary.backends.opencl.schedules.default import inline_injective, is_one_kernel, schedule_default
from armillary.backends.opencl.space import Tiling
from armillary.backends.registry import Fused
from armillary.base.record import record


@record(slots=True)
class Place:
    """`over` work-items with `own` results each along an axis, in the direction of the grid that `tag` names."""

    over: int
    own: int
    tag: str


Choose = Callable[[te.ComputeOp], tuple[Tiling, tuple[Place, ...]] | None]


def schedule_tiled(schedule: te.Schedule, fused: Fused, choose: Choose, *, shares: bool = True) -> None:
    """One kernel of tiles where the function allows it and `choose` finds a tile; else the default. `shares`: both
    sides go through shared memory."""
    retained = inline_injective(schedule, fused)
    anchor, output = fused.anchor[0], fused.outputs[0]
    source = anchor.op
    assert isinstance(source, te.ComputeOp), "a contraction is computed"
    is_last = output.op is source
    chosen = choose(source) if is_one_kernel(schedule, fused, retained) else None
    if chosen is None:
        schedule_default(schedule, fused)
        return
    tiling, places = chosen
    if is_last:
        tile_stage(schedule, anchor, tiling, places, shares=shares)
        return
    schedule[anchor].set_scope("local")
    threads = _bind_tiles(schedule[output], places)
    _schedule_sums(schedule, anchor, (schedule[output], threads[-1]), tiling, places if shares else ())


def tile_stage(
    schedule: te.Schedule, tensor: te.Tensor, tiling: Tiling, places: Sequence[Place], *, shares: bool = True
) -> None:
    """One contraction as a kernel of tiles, with nothing behind it; inputs that have a schedule lie in memory."""
    sums = schedule.cache_write(tensor, "local")
    threads = _bind_tiles(schedule[tensor], places)
    _schedule_sums(schedule, sums, (schedule[tensor], threads[-1]), tiling, places if shares else ())


def _bind_tiles(stage: te.Stage, places: Sequence[Place]) -> list[te.IterVar]:
    """Bind the loops of the output, the axes before those of the tile to the first direction; gives the thread axes."""
    axes = list(stage.op.axis)
    rest, axes = axes[: -len(places)], axes[-len(places) :]
    outer, virtual, threads, inner = [], [], [], []
    for axis, place in zip(axes, places, strict=True):
        block, within = stage.split(axis, factor=place.over * place.own)
        if axis is axes[-1]:  # neighbouring work-items have neighbouring elements: they read and write together
            one, part = stage.split(within, factor=place.over)
            virtual.append(one)
        else:
            part, one = stage.split(within, factor=place.own)
            inner.append(one)
        outer.append(block)
        threads.append(part)
    stage.reorder(*rest, *outer, *virtual, *threads, *inner)
    outer[0] = stage.fuse(*rest, outer[0]) if rest else outer[0]
    for axes_of, kind in ((outer, "block"), (threads, "thread")):
        for axis, place in zip(axes_of, places, strict=True):
            stage.bind(axis, te.thread_axis(f"{kind}Idx.{place.tag}"))
    for axis in virtual:  # sums that lie apart: as one loop of a work-item, what lies between would be summed too
        stage.bind(axis, te.thread_axis("vthread"))
    for axis in inner:
        stage.unroll(axis)
    return threads


def _schedule_sums(
    schedule: te.Schedule,
    sums: te.Tensor,
    at: tuple[te.Stage, te.IterVar],
    tiling: Tiling,
    places: Sequence[Place],
) -> None:
    """Sums of a work-item, some terms at a time, whose factors the group has loaded if there are `places`."""
    inside = schedule[sums]
    inside.compute_at(*at)
    first, *others = inside.op.reduce_axis
    step, one = inside.split(first, factor=tiling.tile.step)
    inside.reorder(step, one, *others, *inside.op.axis)
    terms = [one, *others] if places else [step, one, *others]
    for axis in (*terms, *inside.op.axis) if tiling.unroll else inside.op.axis:
        inside.unroll(axis)
    for side in inside.op.input_tensors if places else ():
        _share(schedule, side, sums, step, places)


def _share(schedule: te.Schedule, side: te.Tensor, sums: te.Tensor, at: te.IterVar, places: Sequence[Place]) -> None:
    """Load what a step reads: neighbouring work-items take neighbouring elements."""
    if isinstance(side.op, te.PlaceholderOp) or schedule[side].relations:  # a stage with loops of its own
        side = schedule.cache_read(side, "shared", [sums])
    else:
        schedule[side].set_scope("shared")
    stage = schedule[side]
    stage.compute_at(schedule[sums], at)
    rest = stage.fuse(*stage.op.axis)
    for place in reversed(places):  # the last axis lies along x
        rest, part = stage.split(rest, factor=place.over)
        stage.bind(part, te.thread_axis(f"threadIdx.{place.tag}"))
