"""Primitives that add stages: cache_read, cache_write, rfactor.

In: a schedule and one of its tensors. Out: the tensor of the new stage. Invariant: bodies of other operations are not
rewritten; a stage holds redirects ("I read this copy for that tensor") and the stage map leads old operations to the
stage that computes them now. Per-stage primitives: `te/stage.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.errors import ScheduleError
from armillary.te.affine import Linear, Space, to_expr
from armillary.te.directives import Directive
from armillary.te.inline import rewriter
from armillary.te.operation import ComputeOp
from armillary.te.relations import Sizes, derive_extents, derive_values, relations_of, size_of, split_guards
from armillary.te.stage import Stage
from armillary.te.tensor import Tensor
from armillary.tir import build as T
from armillary.tir.expr import Expr, IntImm, IterVar, Range, Reduce, Var

if TYPE_CHECKING:
    from armillary.te.schedule import Schedule


def thread(tag: str) -> IterVar:
    """A new thread axis."""
    return IterVar(None, Var(tag), "thread", tag)


def _fresh_axes(tensor_axes: tuple[IterVar, ...], suffix: str) -> tuple[IterVar, ...]:
    return tuple(IterVar(a.dom, Var(a.var.name + suffix, a.var.dtype)) for a in tensor_axes)


def _check_scope(primitive: str, stage: Stage, scope: object) -> None:
    if not isinstance(scope, str):
        raise ScheduleError(f"{primitive} on stage {stage.key}: the scope is {scope!r}, wanted a name such as local")


def cache_read(schedule: Schedule, tensor: Tensor, scope: str, readers: object) -> Tensor:
    """A stage that copies `tensor` into `scope`; `readers` read the copy."""
    stage = schedule[tensor]
    _check_scope("cache_read", stage, scope)
    consumers = readers if isinstance(readers, tuple | list) else [readers]
    targets = [r if isinstance(r, Stage) else schedule[r] for r in consumers]
    if not targets:
        raise ScheduleError(f"cache_read of {tensor.name}: no readers given")
    canonical = stage.op.output(tensor.value_index)
    for target in targets:
        if not any(schedule.source(target, t) is canonical for t in target.op.input_tensors):
            raise ScheduleError(f"cache_read of {tensor.name}: stage {target.key} does not read it")
        if not isinstance(target.op, ComputeOp):
            raise ScheduleError(f"cache_read of {tensor.name}: reader {target.key} is not a te.compute")
    schedule.record(
        Directive(
            stage.key,
            "cache_read",
            (("scope", scope), ("readers", tuple(t.key for t in targets)), ("output", tensor.value_index)),
        )
    )
    axes = tuple(
        IterVar(Range.from_min_extent(IntImm(e.dtype, 0), e), Var(f"ax{k}", e.dtype))
        for k, e in enumerate(canonical.shape)
    )
    op = ComputeOp(f"{tensor.name}.{scope}", axes, (canonical(*(a.var for a in axes)),), stage.op.tag)
    stage_of_cache = schedule.add_stage(op, schedule.stages.index(stage) + 1)
    stage_of_cache.scope = scope
    for target in targets:
        for item in target.op.input_tensors:
            if schedule.source(target, item) is canonical:
                target.redirects[item] = op.output(0)
    return op.output(0)


def cache_write(schedule: Schedule, tensor: Tensor | list[Tensor] | tuple[Tensor, ...], scope: str) -> Any:
    """A stage in `scope` that computes what the tensor's stage did; that stage becomes a copy of it."""
    tensors = list(tensor) if isinstance(tensor, tuple | list) else [tensor]
    stages = {schedule[t] for t in tensors}
    if len(stages) != 1:
        raise ScheduleError("cache_write: the tensors are not outputs of one operation")
    (stage,) = stages
    _check_scope("cache_write", stage, scope)
    op = stage.op
    if not isinstance(op, ComputeOp):
        raise ScheduleError(f"cache_write on stage {stage.key}: it is not a te.compute")
    _check_plain("cache_write", stage)
    if stage.is_inline:
        raise ScheduleError(f"cache_write on stage {stage.key}: it is inlined")
    schedule.record(Directive(stage.key, "cache_write", (("scope", scope),)))
    axes = _fresh_axes(op.axis, ".c")
    move = rewriter({a.var: b.var for a, b in zip(op.axis, axes, strict=True)})
    cache = ComputeOp(f"{op.name}.{scope}", axes, _bodies(op.body, move), op.tag, op.attrs)
    cache.intrinsic = op.intrinsic
    copy = ComputeOp(op.name, op.axis, tuple(t(*(a.var for a in op.axis)) for t in cache.outputs), op.tag, op.attrs)
    stage_of_cache = schedule.add_stage(cache, schedule.stages.index(stage))
    stage_of_cache.scope, stage_of_cache.redirects = scope, stage.redirects
    stage.redirects = {}
    stage.reset(copy)
    schedule.stage_map[copy] = stage
    result = [cache.output(t.value_index) for t in tensors]
    return result if isinstance(tensor, tuple | list) else result[0]


def _bodies(bodies: tuple[Expr, ...], move: Any) -> tuple[Expr, ...]:
    """Moved bodies; those of a tuple reduction keep sharing one combiner and source."""
    first = bodies[0]
    if not isinstance(first, Reduce):
        return tuple(move(b) for b in bodies)
    moved = move(first)
    return tuple(Reduce(moved.combiner, moved.source, moved.axis, moved.condition, k) for k in range(len(bodies)))


def _check_plain(primitive: str, stage: Stage) -> None:
    has_intrinsic = isinstance(stage.op, ComputeOp) and stage.op.intrinsic is not None  # which leaves one note
    if stage.relations or len(stage.notes) > has_intrinsic:
        raise ScheduleError(
            f"{primitive} on stage {stage.key}: its loops were already scheduled",
            hint=f"call {primitive} before the stage's split, fuse and marks",
        )
    for other in stage.schedule.stages:
        if other.attach is not None and other.attach[0] is stage:
            raise ScheduleError(f"{primitive} on stage {stage.key}: stage {other.key} is computed inside its loops")


def rfactor(schedule: Schedule, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Any:
    """Two reductions from one: partial results per value of `axis`, then their combination."""
    stage = schedule[tensor]
    op = stage.op
    if not isinstance(op, ComputeOp) or not op.is_reduction:
        raise ScheduleError(f"rfactor on stage {stage.key}: it is not a reduction")
    stage._loop("rfactor", axis)
    if axis.kind != "reduce":
        raise ScheduleError(f"rfactor on stage {stage.key}: axis {axis.var.name} is not a reduction axis")
    position = factor_axis + len(op.axis) + 1 if factor_axis < 0 else factor_axis
    if not 0 <= position <= len(op.axis):
        raise ScheduleError(f"rfactor on stage {stage.key}: factor_axis {factor_axis} is out of range")
    first = op.body[0]
    assert isinstance(first, Reduce), "checked above"
    check_neutral("rfactor", stage, first)
    for other in schedule.stages:  # those at axes of the result stay where they are
        if other.attach is not None and other.attach[0] is stage and other.attach[1] not in op.axis:
            lost = other.attach[1].var.name
            raise ScheduleError(
                f"rfactor on stage {stage.key}: stage {other.key} is computed at axis {lost}, which it takes away",
                hint="rfactor before compute_at",
            )
    schedule.record(Directive(stage.key, "rfactor", (("axis", stage.key_of(axis)), ("factor_axis", factor_axis))))
    partial = _partial_op(stage, op, first, axis, position)
    stage_of_partial = schedule.add_stage(partial, schedule.stages.index(stage))
    stage_of_partial.redirects, stage.redirects = stage.redirects, {}
    stage.reset(_combining_op(op, first, partial, axis, position))
    schedule.stage_map[stage.op] = stage
    return partial.output(0) if partial.num_outputs == 1 else list(partial.outputs)


def check_neutral(what: str, stage: Stage, reduction: Reduce) -> None:
    """ScheduleError if parts of a reduction cannot begin with its initial value each."""
    combiner = reduction.combiner
    both = {
        **dict(zip(combiner.lhs, combiner.identity, strict=True)),
        **dict(zip(combiner.rhs, combiner.identity, strict=True)),
    }
    apply = rewriter(both)
    for result, identity in zip(combiner.result, combiner.identity, strict=True):
        combined = apply(result)
        if getattr(combined, "value", combined) != getattr(identity, "value", identity):
            raise ScheduleError(
                f"{what} on stage {stage.key}: the reduction has an initial value that is not neutral",
                hint="add the initial value in a te.compute after the reduction",
            )


def _partial_op(stage: Stage, op: ComputeOp, reduction: Reduce, axis: IterVar, position: int) -> ComputeOp:
    space = Space()
    roots = {a: size_of(_range(a).extent, space) for a in (*op.axis, *op.reduce_axis)}
    sizes = derive_extents(stage, roots, space)
    loops = [a for a in stage.leaf if a.kind == "reduce"]
    loop_axes = {a: _loop_axis(a, sizes, space, "data" if a is axis else "reduce") for a in loops}
    values = derive_values(
        relations_of(stage, reductions=True), {a: Linear(0, {loop_axes[a].var: 1}) for a in loops}, sizes, space
    )
    variables: dict[Var, Expr] = {}
    for root in op.reduce_axis:
        variables[root.var] = T.add(_range(root).min, to_expr(values[root], root.var.dtype))
    data = _fresh_axes(op.axis, "")
    variables.update({a.var: b.var for a, b in zip(op.axis, data, strict=True)})
    apply = rewriter(variables)
    guards = [
        T.likely(T.less(to_expr(v, axis.var.dtype), to_expr(e, axis.var.dtype)))
        for v, e in split_guards(relations_of(stage, reductions=True), values, sizes, space)
    ]
    condition = T.all_of(*guards, apply(reduction.condition))
    source = tuple(apply(s) for s in reduction.source)
    axes = (*data[:position], loop_axes[axis], *data[position:])
    rest = tuple(loop_axes[a] for a in loops if a is not axis)
    body: tuple[Expr, ...]
    if rest:
        body = tuple(Reduce(reduction.combiner, source, rest, condition, k) for k in range(len(source)))
    else:
        body = tuple(T.if_then_else(condition, s, i) for s, i in zip(source, reduction.combiner.identity, strict=True))
    return ComputeOp(f"{op.name}.rf", axes, body, op.tag, op.attrs)


def _range(axis: IterVar) -> Range:
    assert axis.dom is not None, "root axes have a range"
    return axis.dom


def _loop_axis(axis: IterVar, sizes: Sizes, space: Space, kind: str) -> IterVar:
    dtype = axis.var.dtype
    result = IterVar(
        Range.from_min_extent(IntImm(dtype, 0), to_expr(sizes[axis], dtype)), Var(axis.var.name, dtype), kind
    )
    space.low[result.var], space.high[result.var] = Linear(0), sizes[axis].shifted(-1)
    return result


def _combining_op(op: ComputeOp, reduction: Reduce, partial: ComputeOp, axis: IterVar, position: int) -> ComputeOp:
    extent = _range(partial.axis[position]).extent
    over = IterVar(
        Range.from_min_extent(IntImm(extent.dtype, 0), extent), Var(f"{axis.var.name}.v", axis.var.dtype), "reduce"
    )
    data = tuple(a.var for a in op.axis)
    indices = (*data[:position], over.var, *data[position:])
    source = tuple(t(*indices) for t in partial.outputs)
    condition = T.const(True)
    body = tuple(Reduce(reduction.combiner, source, (over,), condition, k) for k in range(len(source)))
    return ComputeOp(op.name, op.axis, body, op.tag, op.attrs)
