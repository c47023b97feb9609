"""The CPU schedule of any fused function.

In: a TE schedule of a fused function. Out: injective stages inlined into their readers, every remaining stage as one
parallel loop over its outer axes with its last axis vectorised; reductions accumulate in a local (register) tile.
Invariant: works for every function; operators that earn more have a file of their own here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

from armillary import te
from armillary.backends.cpu.access import (
    MIN_EXTENT,
    contiguous_axis,
    crossing_axis,
    gathered_rows,
    period,
    reads_along,
    reduced_run,
    transposed_axis,
)
from armillary.backends.cpu.contiguous import axes_of_run, is_looked_up, rows_of_block
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.register_transpose import transpose_tiles
from armillary.backends.cpu.elementwise.repeated import keep_divided
from armillary.backends.cpu.loops import (
    CACHE_LINE,
    UNKNOWN_EXTENT,
    fuse_all,
    is_expensive,
    is_power_of_two,
    is_ragged,
    static_extent,
    tests_of,
)
from armillary.backends.cpu.reduce.reduce import reduce_in_lanes
from armillary.backends.registry import Fused, default_schedule
from armillary.base.node import post_order
from armillary.target.cpu import CpuModel, cpu_model
from armillary.te.inline import Inliner
from armillary.tir.expr import IntImm, ProducerLoad, Reduce, Var

PACKED = "packed"  # the tag of a copy that a schedule wants in memory
DEAR = 256  # nodes from which on an element that is read twice is stored: x = x + reverse(x) doubles with each step
MIN_ROWS = 4  # loops that are shared out by whole rows have at least as many
MAX_SIDE = 16  # elements of a tile's rows that can be transposed in registers
MIN_TILED = 1024  # elements below which a transposition by tiles is more code than it saves
SHORT_ROW = 8  # vectors: a longer row may end in a vector that is not full
MAX_WRITTEN_OUT, MAX_NODES = 32, 4096  # vectors of a row that are spelled out, and nodes of all of them
MAX_COLUMNS = 4  # vectors of sums that are made side by side
LONG_RUN = 64  # elements of a sum over several axes that are one run of memory, though the last is short
MIN_TILES = 4  # tiles of sums that threads share
MIN_TASKS = 16  # iterations of the outer loops that share the work well enough without the innermost one
MIN_PARALLEL = 8192  # scalar operations below which a fork-join costs more than it gives


@default_schedule("cpu")
def schedule_default(schedule: te.Schedule, fused: Fused) -> None:
    """Inline what is cheap to recompute, then schedule each remaining stage on its own."""
    cpu = cpu_model(fused.workload.target)
    retained = keep_transpositions(schedule, keep_divided(schedule, schedule_injective(schedule, fused)))
    rows = gathered_rows(schedule, retained[0]) if len(retained) == 1 else []  # else others may read them, too
    if rows:
        _schedule_gather(schedule, retained[0], rows, cpu)
        return
    for tensor in retained:
        schedule_stage(schedule, tensor, cpu)


def _schedule_gather(schedule: te.Schedule, tensor: te.Tensor, rows: Sequence[te.Tensor], cpu: CpuModel) -> None:
    """A map that takes its elements from rows: these are made whole, once for each of its own rows, and then read."""
    stage, lanes = schedule[tensor], lanes_of(cpu, tensor.dtype)
    *outer, last = stage.op.axis
    work = math.prod(static_extent(a) for a in stage.op.axis)
    at = fuse_all(stage, outer)
    if work >= MIN_PARALLEL:
        stage.parallel(at)
    if static_extent(last) >= lanes:
        _, vector = stage.split(last, factor=lanes)
        stage.vectorize(vector)
    for row in rows:
        row_stage = schedule[row]
        row_stage.compute_at(stage, at)
        if static_extent(row_stage.op.axis[-1]) >= lanes:
            _, vector = row_stage.split(row_stage.op.axis[-1], factor=lanes)
            row_stage.vectorize(vector)


def keep_transpositions(schedule: te.Schedule, outputs: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Store what a stage reads across memory, if that can be transposed by tiles and the stage as a whole cannot.

    Gives the stages that stay, producers first. A concatenation of blocked and plain channels is one: its elements
    would be collected one by one, at 39 cycles a vector; to transpose a part first takes 6.
    """
    result: list[te.Tensor] = []
    for tensor in outputs:
        op = tensor.op
        if isinstance(op, te.ComputeOp) and transposed_axis(schedule, op) is None and not reads_along(schedule, op):
            result += [part for part in _crossing_parts(schedule, op) if part not in result]
        result.append(tensor)
    for tensor in result:
        if schedule[tensor].is_inline:
            schedule[tensor].compute_root()
    return result


def _crossing_parts(schedule: te.Schedule, op: te.ComputeOp) -> list[te.Tensor]:
    """The inlined stages nearest to a stage that are transpositions of some size."""
    result: list[te.Tensor] = []
    stack, seen = [op], {id(op)}
    while stack:
        reads = (n.producer for b in stack.pop().body for n in post_order(b) if isinstance(n, ProducerLoad))
        for tensor in reads:
            source = tensor.op
            if id(source) in seen or not isinstance(source, te.ComputeOp) or not schedule[source].is_inline:
                continue
            seen.add(id(source))
            work = math.prod(static_extent(a) for a in source.axis)
            if work >= MIN_TILED and transposed_axis(schedule, source) is not None:
                result.append(source.output(0))
            else:
                stack.append(source)
    return result


def keep_row_values(schedule: te.Schedule, outputs: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Store what is dear and the same for a whole row: an inverse, a logarithm. Gives the stages that stay."""
    last = max((len(t.op.axis) for t in outputs), default=0)
    result = []
    for stage in schedule.stages:  # producers come first
        op = stage.op
        if isinstance(op, te.ComputeOp) and stage.is_inline and len(op.axis) < last and is_expensive(op.body[0]):
            stage.compute_root()
        if isinstance(op, te.ComputeOp) and not stage.is_inline:
            result.append(op.output(0))
    return result


def schedule_injective(schedule: te.Schedule, fused: Fused, stay: Sequence[te.Tensor] = ()) -> list[te.Tensor]:
    """Inline the injective stages but the outputs and those of `stay`; give the tensors left, producers first."""
    outputs = {id(t.op) for t in (*fused.outputs, *stay)}
    readers, in_place = _reader_counts(schedule), _read_in_place(schedule, outputs)
    costs: dict[int, int] = {}  # of the stages that were inlined, with all that was inlined into them
    retained = []
    for stage in schedule.stages:
        op = stage.op
        if isinstance(op, te.PlaceholderOp):
            continue
        cost = _cost(op, costs, id(op) in in_place)
        if id(op) in outputs or not _can_inline(op, readers.get(id(op), 0), cost):
            retained.append(op.output(0))
        else:
            costs[id(op)] = cost
            schedule[op].compute_inline()
    return retained


def _read_in_place(schedule: te.Schedule, outputs: Set[int]) -> Set[int]:
    """Stages of which one statement reads each element at one place only, and computes nothing expensive of it.

    It then computes the element once, for all that reads it: y * h + (1 - y) * c for a y = sigmoid(x). Chains of
    expensive steps are better cut: in one statement their operations wait for each other.
    """
    ends: dict[int, set[int]] = {}  # the stages that stay to which an element goes
    spoiled: set[int] = set()
    for stage in reversed(schedule.stages):  # readers come first
        op = stage.op
        if not isinstance(op, te.ComputeOp):
            continue
        stays = id(op) in outputs or op.tag == PACKED or isinstance(op.body[0], Reduce)
        own = {id(op)} if stays else ends.get(id(op), set())
        is_dear = isinstance(op.body[0], Reduce) or (not stays and id(op) in spoiled) or any(map(is_expensive, op.body))
        for load in (n for b in op.body for n in post_order(b) if isinstance(n, ProducerLoad)):
            ends.setdefault(id(load.producer.op), set()).update(own)
            if is_dear or not _is_own_place(op, load):
                spoiled.add(id(load.producer.op))
    return {one for one, all_ends in ends.items() if len(all_ends) == 1}.difference(spoiled)


def _is_own_place(op: te.ComputeOp, load: ProducerLoad) -> bool:
    """Whether an element is read for the element of the same place; where a size is known when it runs, it is not."""
    if not all(isinstance(extent, IntImm) for extent in load.producer.shape):
        return False
    shape = te.static_shape(load.producer)
    return shape == tuple(map(static_extent, op.axis)) and all(
        index is axis.var or extent == 1 for index, axis, extent in zip(load.indices, op.axis, shape, strict=True)
    )


def _cost(op: te.Operation, inlined: Mapping[int, int], is_in_place: bool) -> int:
    """Nodes an element takes to compute, `DEAR` and more if one of them is expensive and would be computed again."""
    if not isinstance(op, te.ComputeOp):
        return DEAR
    nodes = [n for b in op.body for n in post_order(b)]
    read = sum(inlined.get(id(n.producer.op), 0) for n in nodes if isinstance(n, ProducerLoad))
    return len(nodes) + read + (DEAR if not is_in_place and any(is_expensive(b) for b in op.body) else 0)


def _reader_counts(schedule: te.Schedule) -> dict[int, int]:
    counts: dict[int, int] = {}
    for stage in schedule.stages:
        if isinstance(stage.op, te.ComputeOp):
            reads = {id(n.producer.op) for b in stage.op.body for n in post_order(b) if isinstance(n, ProducerLoad)}
            weight = 2 if isinstance(stage.op.body[0], Reduce) else 1
            for op in reads:
                counts[op] = counts.get(op, 0) + weight
        elif isinstance(stage.op, te.ExternOp):
            for tensor in stage.op.inputs:
                counts[id(tensor.op)] = counts.get(id(tensor.op), 0) + 99
    return counts


def _can_inline(op: te.Operation, readers: int, cost: int) -> bool:
    if not isinstance(op, te.ComputeOp) or isinstance(op.body[0], Reduce) or op.tag == PACKED:
        return False
    return readers < 99 and (readers <= 1 or cost < DEAR)


def schedule_stage(schedule: te.Schedule, tensor: te.Tensor, cpu: CpuModel) -> None:
    """Parallel outer loops, vectorised last axis; reductions through a local tile."""
    op = tensor.op
    if not isinstance(op, te.ComputeOp):
        return
    if isinstance(op.body[0], Reduce):
        _schedule_reduction(schedule, tensor, cpu)
    else:
        _schedule_map(schedule, tensor, cpu)


def _schedule_map(schedule: te.Schedule, tensor: te.Tensor, cpu: CpuModel) -> None:
    stage = schedule[tensor]
    axes = list(stage.op.axis)
    if not axes:
        return
    lanes = lanes_of(cpu, tensor.dtype)
    inner = static_extent(axes[-1])
    work = math.prod(static_extent(a) for a in axes)
    is_transposed = work >= MIN_TILED and tensor.dtype.bits in (8, 32)
    if is_transposed and _transpose_in_tiles(schedule, tensor, min(lanes, MAX_SIDE), work):
        return
    repeated = period(schedule, stage.op, lanes)
    if repeated:
        axes[-1:] = stage.split(axes[-1], factor=repeated)
        inner = repeated
    elif len(axes) > 1 and inner < SHORT_ROW * lanes and inner % lanes:
        count = axes_of_run(schedule, tensor)
        rows = rows_of_block(schedule, tensor, count, lanes)
        if rows:
            _parallel(stage, _blocks_of_rows(stage, axes, count, rows, lanes), work)
            return
        inner = _fuse_run(stage, axes, count, lanes)
    if inner >= lanes and len(axes) < len(tensor.op.axis):
        axes[-1], vector = stage.split(axes[-1], factor=lanes)
        stage.vectorize(vector)
        if inner % lanes and math.prod(map(static_extent, axes[:-1])) >= MIN_ROWS:
            axes.pop()  # as in _vectorize_rows
    elif inner >= lanes:
        axes = _vectorize_rows(schedule, stage, axes, lanes)
    elif is_power_of_two(inner) or (inner > 1 and (cpu.memory.gathers or not is_looked_up(schedule, tensor))):
        stage.vectorize(axes.pop())
        if math.prod(map(static_extent, axes[:-1])) >= MIN_TASKS:
            axes.pop()  # as below
    elif math.prod(map(static_extent, axes[:-1])) >= MIN_TASKS:
        axes.pop()  # a loop of its own: fused, every element would cost divisions
    _parallel(stage, axes, work)


def _blocks_of_rows(stage: te.Stage, axes: list[te.IterVar], count: int, rows: int, lanes: int) -> list[te.IterVar]:
    """Rows shorter than a vector by blocks of whole vectors; gives the loops that threads may share."""
    length = rows * math.prod(map(static_extent, axes[-count:]))
    is_even = static_extent(axes[-count - 1]) % rows == 0
    outer, run = axes[: -count - 1], fuse_all(stage, axes[-count - 1 :])
    block, inside = stage.split(run, factor=length)
    sub, lane = stage.split(inside, factor=lanes)
    stage.unroll(sub)
    stage.vectorize(lane)
    return [*outer, block] if is_even else outer


def _fuse_run(stage: te.Stage, axes: list[te.IterVar], count: int, lanes: int) -> int:
    """Fuse the last axes, which are one run of `count` axes, until a row of them fills its vectors; gives its length.

    With the row go axes of length 1 behind it.
    """
    taken, inner = 1, static_extent(axes[-1])
    while taken < count and inner < SHORT_ROW * lanes and (inner == 1 or inner % lanes):
        taken += 1
        inner *= static_extent(axes[-taken])
    axes[-taken:] = [fuse_all(stage, axes[-taken:])]
    return inner


def _transpose_in_tiles(schedule: te.Schedule, tensor: te.Tensor, lanes: int, work: int) -> bool:
    """A map that reads along another axis than it writes: vectors as they are read, transposed in registers."""
    moved_axis = transposed_axis(schedule, tensor.op)
    if moved_axis is None:
        return False
    crossing, length = moved_axis
    position = next(i for i, axis in enumerate(tensor.op.axis) if axis is crossing)
    if all(static_extent(axis) == 1 for axis in tensor.op.axis[position + 1 :]):
        return False  # what is written lies along the same axis
    outer = transpose_tiles(schedule, tensor, position, length, lanes)
    _parallel(schedule[tensor], outer, work)
    return True


def _vectorize_rows(schedule: te.Schedule, stage: te.Stage, axes: list[te.IterVar], lanes: int) -> list[te.IterVar]:
    """The last axis by vectors; the loops that threads may share.

    Where the last vector of a row is not full, the loop over vectors stays a loop of its own, which loop-partition
    cuts. In a transposition a block of the axis that crosses the lanes runs inside: a cache line is used up at once.
    """
    crossing = crossing_axis(schedule, stage.op)
    rows, is_cut_short = axes[:-1], is_ragged(axes[-1], lanes)
    outer, vector = stage.split(axes[-1], factor=lanes)
    stage.vectorize(vector)
    if crossing is not None:
        position = next(i for i, axis in enumerate(rows) if axis is crossing)
        rows[position], inner = stage.split(crossing, factor=CACHE_LINE)
        stage.reorder(*rows, outer, inner, vector)
    has_rows = math.prod(static_extent(a) for a in rows) >= MIN_ROWS
    if has_rows and crossing is None and _is_cut(schedule, stage, static_extent(outer)):
        stage.unroll(outer)
        return rows
    return rows if is_cut_short and has_rows else [*rows, outer]


def _is_cut(schedule: te.Schedule, stage: te.Stage, vectors: int) -> bool:
    """Whether a place along the last axis decides what is read, as where rows are joined or have borders.

    Vector by vector that is known: a row of 36 + 1 elements takes 14 cycles rather than 100.
    """
    last, nodes = stage.op.axis[-1].var, [n for body in Inliner(schedule).bodies(stage) for n in post_order(body)]
    if vectors > MAX_WRITTEN_OUT or vectors * len(nodes) > MAX_NODES:
        return False
    tests = (test for n in nodes for test in tests_of(n))
    return any({n for n in post_order(test) if isinstance(n, Var)} == {last} for test in tests)


def _parallel(stage: te.Stage, axes: list[te.IterVar], work: int) -> None:
    if axes and work >= MIN_PARALLEL:
        stage.parallel(fuse_all(stage, _without_inner(axes)))


def _without_inner(axes: list[te.IterVar]) -> list[te.IterVar]:
    """The outer loops alone where sizes are open and these are enough to share: each iteration of fused loops finds its
    place by divisions, which take longer than its work where the divisors are known only when it runs."""
    extents = [static_extent(axis) for axis in axes]
    if UNKNOWN_EXTENT not in extents:
        return axes
    if extents[0] == UNKNOWN_EXTENT:
        extents[0] = 1  # most often a batch
    count = len(axes)
    while count > 1 and math.prod(extents[: count - 1]) >= MIN_TASKS > math.prod(extents[count:]):
        count -= 1
    return axes[:count]


def _schedule_reduction(schedule: te.Schedule, tensor: te.Tensor, cpu: CpuModel) -> None:
    op = tensor.op
    assert isinstance(op, te.ComputeOp), "only computes have reductions"
    work = math.prod(static_extent(a) for a in (*op.axis, *op.reduce_axis))
    contiguous = contiguous_axis(schedule, op, least=1) if work else None
    run = reduced_run(schedule, op, contiguous) if contiguous is not None else []
    is_long = math.prod(map(static_extent, run)) >= LONG_RUN
    if contiguous is not None and (is_long or static_extent(contiguous) >= MIN_EXTENT):
        contiguous = fuse_all(schedule[tensor], run)  # one vector that is not full at the end, not one a line
        reduce_in_lanes(schedule, tensor, contiguous, cpu, is_parallel=bool(op.axis) and work >= MIN_PARALLEL)
        return
    if not op.axis or len(op.body) > 1 or not work:
        _parallel(schedule[tensor], list(op.axis), work)
        return
    lanes = lanes_of(cpu, tensor.dtype)
    inner, count = static_extent(op.axis[-1]), axes_of_run(schedule, tensor)
    if inner % lanes and math.prod(map(static_extent, op.axis[-count:])) > inner:
        _reduce_run(schedule[tensor], count, lanes, work)
        return
    _reduce_columns(schedule, tensor, lanes, work)


def _reduce_columns(schedule: te.Schedule, tensor: te.Tensor, lanes: int, work: int) -> None:
    """A reduction across rows: sums of several vectors of columns in registers, so that a row is read in long pieces.

    With one vector each row gives one cache line, rows a page apart.
    """
    local = schedule.cache_write(tensor, "local")
    stage, inside = schedule[tensor], schedule[local]
    axes, (*own, last) = list(stage.op.axis), inside.op.axis
    inner, others = static_extent(axes[-1]), math.prod(map(static_extent, axes[:-1]))
    columns: list[tuple[te.Stage, te.IterVar]] = []
    is_one_vector = inner == lanes or (inner < lanes and is_power_of_two(inner))
    beside = _side_by_side(stage, axes, others) if is_one_vector else None
    if inner > lanes or (inner == lanes and beside is None):
        vectors = -(-inner // lanes)
        tiles = max(-(-vectors // MAX_COLUMNS), min(vectors, -(-MIN_TILES // others)))
        axes[-1], column = stage.split(axes[-1], factor=-(-vectors // tiles) * lanes)
        columns = [(stage, column), (inside, last)]
    elif is_one_vector:
        vector = axes.pop()
        if beside is not None:
            position, row = beside
            stage.reorder(*axes, row, vector)
            stage.unroll(row)
            inside.unroll(own[position])
            own.append(own.pop(position))
        stage.vectorize(vector)
        together = own[-1:] if beside is not None else []
        inside.reorder(*own[: len(own) - len(together)], *inside.op.reduce_axis, *together, last)
        inside.vectorize(last)
    if axes:
        at = fuse_all(stage, axes)
        inside.compute_at(stage, at)
        if work >= MIN_PARALLEL:
            stage.parallel(at)
    for one, column in columns:
        sub, vector = one.split(column, factor=lanes)
        if one is inside:
            inside.reorder(*inside.op.axis[:-1], *inside.op.reduce_axis, sub, vector)
        one.unroll(sub)
        one.vectorize(vector)


def _side_by_side(stage: te.Stage, axes: list[te.IterVar], others: int) -> tuple[int, te.IterVar] | None:
    """Split off rows whose sums are made at a time, as each of one vector waits for the one before; which, and them."""
    sizes = [static_extent(axis) for axis in axes[:-1]]
    for count in (MAX_COLUMNS, 2):
        position = next((n for n in range(len(sizes) - 1, -1, -1) if sizes[n] % count == 0), None)
        if position is not None and others >= count * MIN_TILES:
            axes[position], row = stage.split(axes[position], factor=count)
            return position, row
    return None


def _reduce_run(stage: te.Stage, count: int, lanes: int, work: int) -> None:
    """A reduction whose last `count` data axes are one run in memory: by vectors of the run, which may end inside one.

    The sums stay where they are stored: a register file of a part of a run would be as large as the axes it touches.
    """
    *outer, run = [*stage.op.axis[:-count], fuse_all(stage, stage.op.axis[-count:])]
    tiles, vector = stage.split(run, factor=lanes)
    stage.reorder(*outer, tiles, *stage.op.reduce_axis, vector)
    stage.vectorize(vector)
    _parallel(stage, [*outer, tiles], work)
