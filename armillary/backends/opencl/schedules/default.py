"""The OpenCL schedule of any fused function.

In: a TE schedule of a fused function. Out: injective stages inlined into their readers; every remaining stage a kernel
of its own over a flat grid: a work-item for each element, which sums a reduction in a register, or a work-group for
each element of a long reduction of few elements, which sums by a tree. Invariant: works for every function; operators
that earn more have a file of their own here.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import te
from armillary.backends.opencl.extents import axis_extent, product, shape_of
from armillary.backends.opencl.tiles import FLOATS, GROUP
from armillary.backends.registry import Fused
from armillary.base.extent import bounds, typical
from armillary.base.node import post_order
from armillary.errors import ConfigError, UnsupportedError
from armillary.target.texture import PIXEL
from armillary.tir import build as T
from armillary.tir.expr import IterVar, ProducerLoad, Reduce
from armillary.transform import PassContext

MOST_ITEMS = 4096  # of a group, on any device
MANY_READERS = 3  # from which on a stage with a function call is stored
DEAR = 256  # nodes from which on an element that is read twice is stored
LONG_SUM, MOST_SHARED_SUMS = 512, 4096  # terms and elements of a reduction that work-groups share
TREE, BRANCHES = 64, 8  # work-items that share a reduction; of these, those that sum what the others have
GRID = 3  # directions of a grid
IMAGE_AXES = 5  # of a tensor in blocks of channels


def schedule_default(schedule: te.Schedule, fused: Fused) -> None:
    """Inline what is cheap to recompute, then give each remaining stage a grid."""
    retained = inline_injective(schedule, fused)
    if len(retained) > 1 and is_epilogue(schedule, retained[-2], retained[-1]):
        *retained, reduction, output = retained
        for tensor in retained:
            schedule_stage(schedule, tensor)
        if is_tree(reduction.op):
            reduce_by_tree(schedule, reduction, output)
            return
        item = bind_flat(schedule[output])
        assert item is not None, "an epilogue has axes"
        schedule[reduction].set_scope("local")
        schedule[reduction].compute_at(schedule[output], item)
        sum_pixels(schedule[reduction])
        return
    for tensor in retained:
        schedule_stage(schedule, tensor)


def is_epilogue(schedule: te.Schedule, reduction: te.Tensor, output: te.Tensor) -> bool:
    """Whether an output reads each element of a reduction for its own element: then the same work-item sums it."""
    source, op = reduction.op, output.op
    if not isinstance(source, te.ComputeOp) or not isinstance(op, te.ComputeOp) or len(source.body) > 1:
        return False
    if not isinstance(source.body[0], Reduce) or isinstance(op.body[0], Reduce) or len(op.body) > 1 or not op.axis:
        return False
    if is_long(source) and (not is_tree(source) or is_of_pixels(op) or len(op.axis) != len(source.axis)):
        return False
    readers = [
        reads_in_place(schedule, s.op, source) for s in schedule.stages if not s.is_inline and s.op is not source
    ]
    return all(places is None or (places and s is op) for s, places in readers)


def is_one_kernel(schedule: te.Schedule, fused: Fused, outputs: Sequence[te.Tensor]) -> bool:
    """Whether a contraction and what follows it are one kernel: each sum is read for its own element only."""
    source, output = fused.anchor[0].op, fused.outputs[0].op
    assert isinstance(source, te.ComputeOp), "a contraction is computed"
    is_last = output is source
    if len(outputs) != (1 if is_last else 2) or len(fused.outputs) != 1:
        return False
    return is_last or reads_in_place(schedule, output, source)[1] is True


def reads_in_place(schedule: te.Schedule, op: te.Operation, source: te.ComputeOp) -> tuple[te.Operation, bool | None]:
    """Whether a stage reads elements of `source`, also by way of inlined stages, at its own place only; None: none."""
    result: bool | None = None
    if op is source:
        return op, True
    if not isinstance(op, te.ComputeOp):
        return op, False if any(t.op is source for t in op.input_tensors) else None
    for load in (n for b in op.body for n in post_order(b) if isinstance(n, ProducerLoad)):
        producer = load.producer.op
        if producer is not source and not (isinstance(producer, te.ComputeOp) and schedule[producer].is_inline):
            continue
        _, inside = reads_in_place(schedule, producer, source)
        if inside is not None:
            result = inside and is_own_place(op, load) and result is not False
    return op, result


def is_long(op: te.ComputeOp) -> bool:
    """Whether a reduction has many terms and few elements, so that a work-group takes each."""
    elements, terms = (product(map(axis_extent, axes)) for axes in (op.axis, op.reduce_axis))
    return isinstance(terms, int) and terms >= LONG_SUM and typical(elements) <= MOST_SHARED_SUMS


def is_tree(op: te.Operation) -> bool:
    """Whether a reduction is one of a work-group for each element, whose places a grid has directions for."""
    if not isinstance(op, te.ComputeOp) or len(op.body) > 1 or not op.axis or not is_long(op):
        return False
    return sum(axis_extent(axis) != 1 for axis in op.axis[:-1]) < GRID


def is_own_place(op: te.ComputeOp, load: ProducerLoad) -> bool:
    """Whether an element is read for the element of the same place."""
    shape = shape_of(load.producer)
    return shape == tuple(map(axis_extent, op.axis)) and all(
        index is axis.var or extent == 1 for index, axis, extent in zip(load.indices, op.axis, shape, strict=True)
    )


def inline_injective(schedule: te.Schedule, fused: Fused) -> list[te.Tensor]:
    """Inline the injective stages but the outputs; give the tensors left, producers first."""
    outputs = {id(t.op) for t in fused.outputs}
    readers = _reader_counts(schedule)
    costs: dict[int, int] = {}
    retained = []
    for stage in schedule.stages:
        op = stage.op
        if isinstance(op, te.PlaceholderOp):
            continue
        cost = _cost(op, costs)
        if id(op) in outputs or not _can_inline(op, readers.get(id(op), 0), cost):
            retained.append(op.output(0))
        else:
            costs[id(op)] = cost
            stage.compute_inline()
    return retained


def _cost(op: te.Operation, inlined: dict[int, int]) -> int:
    if not isinstance(op, te.ComputeOp):
        return DEAR
    nodes = [n for b in op.body for n in post_order(b)]
    return len(nodes) + sum(inlined.get(id(n.producer.op), 0) for n in nodes if isinstance(n, ProducerLoad))


def _reader_counts(schedule: te.Schedule) -> dict[int, int]:
    """How often elements of a stage are read: by a reduction, many times."""
    counts: dict[int, int] = {}
    for stage in schedule.stages:
        op = stage.op
        if isinstance(op, te.ComputeOp):
            weight = MANY_READERS if isinstance(op.body[0], Reduce) else 1
            loads = [n for b in op.body for n in post_order(b) if isinstance(n, ProducerLoad)]
            for load in loads:
                counts[id(load.producer.op)] = counts.get(id(load.producer.op), 0) + weight
        elif isinstance(op, te.ExternOp | te.ScanOp):
            for tensor in op.input_tensors:
                counts[id(tensor.op)] = counts.get(id(tensor.op), 0) + 99
    return counts


def _can_inline(op: te.Operation, readers: int, cost: int) -> bool:
    if not isinstance(op, te.ComputeOp) or isinstance(op.body[0], Reduce) or len(op.body) > 1 or readers >= 99:
        return False
    return readers <= 1 or cost < DEAR


def schedule_stage(schedule: te.Schedule, tensor: te.Tensor) -> None:
    """A grid of its own for a stage."""
    op = tensor.op
    if not isinstance(op, te.ComputeOp):
        return
    if not isinstance(op.body[0], Reduce):
        bind_flat(schedule[tensor])
        return
    if is_tree(op):
        reduce_by_tree(schedule, tensor)
    elif len(op.body) == 1 and op.axis:
        reduce_in_register(schedule, tensor)
    else:
        bind_flat(schedule[tensor])


def bind_flat(stage: te.Stage, items: int = 0) -> IterVar | None:
    """All data axes as one, over groups of work-items (0: `opencl.group`); gives the axis of those of a group."""
    items = items or group_items()
    axes = list(stage.op.axis)
    if not axes:
        return None
    if is_of_pixels(stage.op):
        stage.vectorize(axes.pop())
    flat = stage.fuse(*axes) if len(axes) > 1 else axes[0]
    stage.reorder(flat, *stage.op.reduce_axis, *stage.op.axis[len(axes) :])
    most = bounds(product(map(axis_extent, axes)))[1]
    group, item = stage.split(flat, factor=max(1, min(items, most)))
    stage.bind(group, te.thread_axis("blockIdx.x"))
    stage.bind(item, te.thread_axis("threadIdx.x"))
    return item


def group_items() -> int:
    """Work-items of a group, as configured."""
    items: int = PassContext.current().get(GROUP)
    if not 1 <= items <= MOST_ITEMS:
        raise ConfigError(f"opencl.group={items}: a group has 1 to {MOST_ITEMS} work-items")
    return items


def reduce_in_register(schedule: te.Schedule, tensor: te.Tensor) -> None:
    """A work-item for each element, which sums in a register."""
    local = schedule.cache_write(tensor, "local")
    item = bind_flat(schedule[tensor])
    if item is not None:
        schedule[local].compute_at(schedule[tensor], item)
        sum_pixels(schedule[local])


def is_of_pixels(op: te.Operation) -> bool:
    """Whether a stage has the four channels of a block as its last axis, which are stored together."""
    if not isinstance(op, te.ComputeOp) or len(op.axis) < IMAGE_AXES or len(op.body) > 1:
        return False
    return axis_extent(op.axis[-1]) == PIXEL and str(op.output(0).dtype) in FLOATS


def sum_pixels(stage: te.Stage) -> None:
    """The four channels of a block are summed together."""
    if is_of_pixels(stage.op):
        *axes, lane = stage.op.axis
        stage.reorder(*axes, *stage.op.reduce_axis, lane)
        stage.vectorize(lane)


def reduce_by_tree(schedule: te.Schedule, tensor: te.Tensor, output: te.Tensor | None = None) -> None:
    """A work-group for each element: its work-items sum parts in registers, some of them a few parts each, one the
    rest, and computes the `output` of its element."""
    axes = list(schedule[tensor].op.reduce_axis)
    flat = schedule[tensor].fuse(*axes) if len(axes) > 1 else axes[0]
    parts = _factored(schedule, tensor, flat, TREE)
    branches = _factored(schedule, tensor, schedule[tensor].op.reduce_axis[0], BRANCHES)
    stage = schedule[tensor if output is None else output]
    last = stage.op.axis[-1]
    *groups, one = [axis for axis in stage.op.axis if axis_extent(axis) != 1 or axis is last]
    one, item = stage.split(one, factor=1)
    stage.reorder(*(axis for axis in stage.op.axis if axis is not last), one, item)
    for axis, tag in zip((*groups, one), "xyz", strict=False):
        stage.bind(axis, te.thread_axis(f"blockIdx.{tag}"))
    for part in (parts, branches):
        combined = schedule[part]
        sums = schedule.cache_write(part, "local")
        combined.set_scope("shared")
        combined.compute_at(stage, one)
        place = combined.fuse(*combined.op.axis)
        combined.bind(place, te.thread_axis("threadIdx.x"))
        schedule[sums].compute_at(combined, place)
    stage.bind(item, te.thread_axis("threadIdx.x"))
    if output is not None:
        schedule[tensor].set_scope("local")
        schedule[tensor].compute_at(stage, item)


def _factored(schedule: te.Schedule, tensor: te.Tensor, axis: te.IterVar, count: int) -> te.Tensor:
    """Split a reduction into `count` parts, which become a tensor that it sums."""
    _, part = schedule[tensor].split(axis, factor=count)
    result: te.Tensor = schedule.rfactor(tensor, part)
    return result


def static_extent(axis: IterVar) -> int:
    """The extent of an axis, which must be known."""
    extent = None if axis.dom is None else T.as_int(axis.dom.extent)
    if extent is None:
        hint = "fix the shape (freeze_shapes)"
        raise UnsupportedError(f"axis {axis.var.name}: OpenCL kernels need sizes that are known", hint=hint)
    return extent
