"""How a stage walks memory: which axis moves a load by one element.

In: a stage's operation. Out: steps of indices, the reduction axis along which the data are contiguous, and the output
axis along which an input is while the last axis is not. Invariant: exact where it answers; None where an index is no
sum of multiples of the axes. Users: reduce.py, default.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from armillary import te
from armillary.backends.cpu.loops import UNKNOWN_EXTENT, static_extent
from armillary.base.node import Node, post_order
from armillary.te.affine import Linear, Space
from armillary.te.inline import rewriter
from armillary.tir.build import as_int
from armillary.tir.expr import Expr, FloorDiv, FloorMod, IterVar, ProducerLoad, Reduce, Var

MIN_EXTENT = 4  # shorter reductions are written out
STRETCHES = (16, 8, 4)  # lengths of the blocks of channels, longest first
MIN_STRETCH = 4
MIN_ROW_LOADS = 2  # of an element that is cheaper to store than to make twice
MOST_LOADS = 64  # of one stage that are looked at


def _space(axes: tuple[IterVar, ...]) -> Space:
    """Index arithmetic that knows the extents of these axes."""
    space = Space()
    for axis in axes:
        space.low[axis.var], space.high[axis.var] = Linear(0), Linear(static_extent(axis) - 1)
    return space


def _step(space: Space, index: Expr, axis: IterVar) -> int | None:
    """How far `index` moves when the axis moves by one; None when that is not constant."""
    value = space.evaluate(index, {})
    return None if value is None else _step_of(value, axis.var)


def _reads(indices: tuple[Expr, ...], variables: set[Var]) -> bool:
    return any(isinstance(n, Var) and n in variables for i in indices for n in post_order(i))


def _loads(
    schedule: te.Schedule, op: te.ComputeOp, stops: Callable[[ProducerLoad], bool] = lambda load: False
) -> list[ProducerLoad]:
    """What the elements of a stage read: the loads of its body, through inlined stages but where `stops` says.

    Paths through a chain of stages that each read twice double with each, so no more than MOST_LOADS and those of one
    stage are found.
    """
    loads: list[ProducerLoad] = []
    stack: list[Node] = list(op.body)
    while stack and len(loads) < MOST_LOADS:
        for load in post_order(stack.pop()):
            if not isinstance(load, ProducerLoad):
                continue
            source = load.producer.op
            if not isinstance(source, te.ComputeOp) or not _is_inlined(schedule, source) or stops(load):
                loads.append(load)
                continue
            apply = rewriter({a.var: i for a, i in zip(source.axis, load.indices, strict=True)})
            stack.append(apply(source.body[load.producer.value_index]))
    return [load for load in loads if load.indices]


def _is_inlined(schedule: te.Schedule, op: te.Operation) -> bool:
    stage = schedule.stage_map.get(op)
    return stage is not None and stage.is_inline


def contiguous_axis(schedule: te.Schedule, op: te.Operation, least: int = MIN_EXTENT) -> IterVar | None:
    """The reduction axis of at least `least` elements along which a load walks memory one by one.

    None where none does or a data axis does too.
    """
    if not isinstance(op, te.ComputeOp) or len(op.body) > 1 or not isinstance(op.body[0], Reduce):
        return None
    space, result = _space((*op.axis, *op.reduce_axis)), None
    reduced = {a.var for a in op.reduce_axis}
    for load in _loads(schedule, op):
        if not _reads(load.indices, reduced):
            continue  # a value for the whole row
        if op.axis and _walk(space, load, op.axis[-1]) == 1 and static_extent(op.axis[-1]) > 1:
            return None
        if result is None:
            result = next((a for a in op.reduce_axis if _walk(space, load, a) == 1), None)
    return result if result is not None and static_extent(result) >= least else None


def reduced_run(schedule: te.Schedule, op: te.ComputeOp, contiguous: IterVar) -> list[IterVar]:
    """The reduction axes that end with `contiguous` and are one run of memory for every load that they move."""
    axes = list(op.reduce_axis)
    if axes[-1] is not contiguous:
        return [contiguous]
    space, reduced = _space((*op.axis, *axes)), {a.var for a in axes}
    loads = [load for load in _loads(schedule, op) if _reads(load.indices, reduced)]
    run, length = [contiguous], static_extent(contiguous)
    if len(loads) >= MOST_LOADS or any(_moves_in_memory(space, load, (contiguous.var,), {}) != 1 for load in loads):
        return run
    for axis in reversed(axes[:-1]):
        if any(_moves_in_memory(space, load, (axis.var,), {}) != length for load in loads):
            break
        run.insert(0, axis)
        length *= static_extent(axis)
    return run


def _walk(space: Space, load: ProducerLoad, axis: IterVar) -> int | None:
    """How far an axis moves a load along its last axis, or, where it is cut into several axes, in memory."""
    step = _step(space, (_outer_indices(load) or load.indices)[-1], axis)
    return _moves_in_memory(space, load, (axis.var,), {}) if step is None else step


def crossing_axis(schedule: te.Schedule, op: te.Operation) -> IterVar | None:
    """The output axis along which some load is contiguous, while the last output axis moves it across memory."""
    if not isinstance(op, te.ComputeOp) or len(op.axis) < 2:
        return None
    space = _space(op.axis)
    for load in _loads(schedule, op):
        last = load.indices[-1]
        if _step(space, last, op.axis[-1]) != 0 or not _reads(load.indices[:-1], {op.axis[-1].var}):
            continue
        for axis in op.axis[:-1]:
            if _step(space, last, axis) == 1 and static_extent(axis) > 1:
                return axis
    return None


def period(schedule: te.Schedule, op: te.Operation, least: int) -> int:
    """After how many elements of the last axis, at least `least`, a load starts over: 100 for x % 100; 0 if none does.

    A loop over as many has contiguous loads, if the axis is a multiple of that.
    """
    if not isinstance(op, te.ComputeOp) or not op.axis:
        return 0
    last, result = op.axis[-1], 0
    for load in _loads(schedule, op):
        for n in (n for i in load.indices for n in post_order(i)):
            if isinstance(n, FloorDiv | FloorMod) and n.a is last.var and (size := as_int(n.b)) is not None:
                fits = least <= size < static_extent(last) and static_extent(last) % size == 0
                result = size if fits and (not result or size < result) else result
    return result


def gathered_rows(schedule: te.Schedule, tensor: te.Tensor) -> list[te.Tensor]:
    """Inlined stages, of several loads an element, whose rows a stage reads at places that it loads: a resize's rows.

    They have the stage's axes but the last, and are read twice or more in each place: stored, their elements are made
    once, by vectors, and not each time they are read, lane by lane.
    """
    op = tensor.op
    if not isinstance(op, te.ComputeOp) or len(op.axis) < 2 or isinstance(op.body[0], Reduce) or len(op.body) > 1:
        return []

    def is_row(load: ProducerLoad) -> bool:
        source = load.producer.op
        if not isinstance(source, te.ComputeOp) or len(source.axis) != len(op.axis):
            return False
        outer = zip(source.axis[:-1], op.axis[:-1], load.indices[:-1], strict=True)
        return all(
            static_extent(a) == static_extent(b) and (i is b.var or static_extent(b) == 1) for a, b, i in outer
        ) and any(isinstance(n, ProducerLoad) for n in post_order(load.indices[-1]))

    loads = _loads(schedule, op, is_row)
    if len(loads) >= MOST_LOADS:
        return []
    reads = Counter(load.producer.op for load in loads if is_row(load) and _is_inlined(schedule, load.producer.op))
    return [s.output(0) for s, n in reads.items() if n > 1 and len(_loads(schedule, s)) > MIN_ROW_LOADS]


def transposed_axis(schedule: te.Schedule, op: te.Operation) -> tuple[IterVar, int] | None:
    """The output axis along which a load is contiguous in aligned stretches, and their length.

    There the last output axis moves the load across memory. None where another load that reads along the last axis
    would then be the one to jump.
    """
    if not isinstance(op, te.ComputeOp) or len(op.axis) < 2 or len(op.body) > 1 or isinstance(op.body[0], Reduce):
        return None
    loads = _loads(schedule, op)
    if len(loads) >= MOST_LOADS:
        return None
    moved_axis = (
        (axis, min(length, static_extent(axis)))
        for axis in reversed(op.axis[:-1])
        for length in STRETCHES
        if static_extent(axis) >= MIN_EXTENT
        and static_extent(axis) >= min(length, MIN_STRETCH)
        and _crosses(loads, op.axis, axis, length)
    )
    return next(moved_axis, None)


def reads_along(schedule: te.Schedule, op: te.Operation) -> bool:
    """Whether loads are contiguous along aligned stretches of the last axis, as of blocks of channels brought last."""
    if not isinstance(op, te.ComputeOp) or not op.axis or len(op.body) > 1 or isinstance(op.body[0], Reduce):
        return False
    loads, extent = _loads(schedule, op), static_extent(op.axis[-1])
    lengths = [n for n in STRETCHES if extent % n == 0 and extent != UNKNOWN_EXTENT] if len(loads) < MOST_LOADS else []
    return any(all(_is_run(load, op.axis, length) for load in loads) for length in lengths)


def _is_run(load: ProducerLoad, axes: tuple[IterVar, ...], length: int) -> bool:
    """Whether a load stays in place, or moves by one, where the last axis moves inside a stretch of this length."""
    outer, inner, last = Var("outer", axes[-1].var.dtype), Var("inner", axes[-1].var.dtype), axes[-1]
    space = _space(axes)
    space.low[inner], space.high[inner] = Linear(0), Linear(length - 1)
    space.low[outer], space.high[outer] = Linear(0), Linear((static_extent(last) - 1) // length)
    environment = {last.var: Linear(0, {outer: length, inner: 1})}
    *rest, end = [_moves(space, index, (inner, last.var), environment) for index in load.indices] or [0]
    return end in (0, 1) and not any(step != 0 for step in rest)


def _crosses(loads: list[ProducerLoad], axes: tuple[IterVar, ...], axis: IterVar, length: int) -> bool:
    """Whether some load is contiguous along stretches of an axis, and none moves along the last axis instead."""
    outer, inner = Var("outer", axis.var.dtype), Var("inner", axis.var.dtype)
    space, last = Space(), axes[-1]
    for one in axes:
        space.low[one.var], space.high[one.var] = Linear(0), Linear(static_extent(one) - 1)
    space.low[inner], space.high[inner] = Linear(0), Linear(min(length, static_extent(axis)) - 1)
    space.low[outer], space.high[outer] = Linear(0), Linear((static_extent(axis) - 1) // length)
    place = Linear(0, {outer: length, inner: 1} if static_extent(axis) > length else {inner: 1})
    environment, result = {axis.var: place}, False
    for load in loads:
        indices = _outer_indices(load)
        if not indices:
            continue
        across = _moves(space, indices[-1], (last.var,), environment)
        along = _moves(space, indices[-1], (inner, axis.var), environment)
        if along not in (0, 1) or any(_moves(space, i, (inner, axis.var), environment) != 0 for i in indices[:-1]):
            along = _moves_in_memory(space, load, (inner, axis.var), environment)
        if along not in (0, 1):
            return False
        if along == 1 and across != 0:
            return False
        result = result or (along == 1 and _reads(indices[:-1], {last.var}))
    return result


def _outer_indices(load: ProducerLoad) -> tuple[Expr, ...]:
    """The indices of a load without those along trailing axes of length 1."""
    count = len(load.indices)
    while count and as_int(load.producer.shape[count - 1]) == 1:
        count -= 1
    return load.indices[:count]


def _moves_in_memory(
    space: Space, load: ProducerLoad, variables: tuple[Var, ...], environment: dict[Var, Linear]
) -> int | None:
    """`_moves` of the place in memory: of an axis that is cut into the last ones of what is read, x // 7 and x % 7."""
    flat = Linear(0)
    for index, extent in zip(load.indices, load.producer.shape, strict=True):
        value, size = space.evaluate(index, environment), as_int(extent)
        if value is None or size is None:
            return None
        flat = flat.scaled(size).plus(value)
    return _step_of(space.joined(flat), variables[0])


def _moves(space: Space, index: Expr, variables: tuple[Var, ...], environment: dict[Var, Linear]) -> int | None:
    """How far an index moves when the first variable moves by one; None when that is not known or not constant.

    The others are what it is called in the index itself.
    """
    value = space.evaluate(index, environment)
    if value is None:
        return None if _reads((index,), set(variables)) else 0
    return _step_of(value, variables[0])


def _step_of(value: Linear, variable: Var) -> int | None:
    """How far a value moves with a variable; None when that is not constant."""
    if any(not isinstance(atom, Var) and variable in atom.vars for atom in value.terms):
        return None
    return value.terms.get(variable, 0)
