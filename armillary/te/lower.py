"""From a schedule to loops over N-dimensional buffers.

In: a schedule, the arguments (tensors, then perhaps variables) and a name. Out: a `tir.PrimFunc` on which no TIR pass
has run. Invariant: a stage at root has a buffer of its tensor's shape; an attached stage a buffer of just its region,
allocated inside the loop it is attached to and indexed from the region's start. Guards (`likely`) stand as far out as
their variables allow. Regions and loop variables: `te/bounds.py`. Passes that come after: `tir/lower.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from armillary.base.boundary import boundary
from armillary.base.imported import IMPORTS
from armillary.base.node import post_order, replace
from armillary.errors import ScheduleError, TypeMismatch
from armillary.te.affine import ZERO, Linear, to_expr
from armillary.te.bounds import Plan, infer_bounds
from armillary.te.index_map import IndexMap, moved, physical_shape
from armillary.te.inline import rewriter
from armillary.te.operation import ComputeOp, ExternOp, PlaceholderOp, ScanOp
from armillary.te.prefetch import Request, Spread, request_further, request_region
from armillary.te.relations import Guard, Sizes, derive_values, relations_of, split_guards, unguarded
from armillary.te.scan import copy_start, update_of
from armillary.te.stage import Notes, Stage
from armillary.te.storage import buffer_shape
from armillary.te.tensor import Tensor
from armillary.te.tensorize import reset, tensorized
from armillary.te.threads.reduction import SharedReduction, shared_axes, threads_first
from armillary.tir import build as T
from armillary.tir.expr import INT32, And, BufferLoad, Expr, IterVar, ProducerLoad, Reduce, Var
from armillary.tir.foreign.addresses import with_addresses
from armillary.tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    PrimFunc,
    Stmt,
    seq,
)
from armillary.tir.substitute import rename_buffers

if TYPE_CHECKING:
    from armillary.te.schedule import Schedule


@boundary("te.lower_schedule", arguments=True)
def lower_schedule(
    schedule: Schedule, args: Sequence[Any], name: str = "main", binds: Mapping[Tensor, Buffer] | None = None
) -> PrimFunc:
    """The loops of a schedule as a function of `args` (tensors and variables); `binds` has the buffers of some.

    A stage that is an argument is computed at root, wherever it was put: all of it is asked for.
    """
    with _arguments_at_root(schedule, args):
        return Lowering(schedule, args, binds or {}).function(name)


@contextmanager
def _arguments_at_root(schedule: Schedule, args: Sequence[object]) -> Iterator[None]:
    """Arguments at root, and with them what they read from the loops in which they stood."""
    stages = [schedule.stage_map.get(item.op) for item in args if isinstance(item, Tensor)]
    moved = [s for s in stages if s is not None and (s.is_inline or s.attach is not None)]
    for stage in moved:
        if stage in stages:
            warnings.warn(f"stage {stage.key} is an argument, so it is computed at root", stacklevel=4)
        together = stage.attach and [s for s in schedule.sources(stage) if s.attach and s.attach[0] is stage.attach[0]]
        moved += [s for s in together or () if s not in moved]
    placed = [(s, s.is_inline, s.attach) for s in moved]
    for stage in moved:
        stage.is_inline, stage.attach = False, None
    try:
        yield
    finally:
        for stage, is_inline, attach in placed:
            stage.is_inline, stage.attach = is_inline, attach


class Lowering:
    """State of one lowering: buffers of tensors, plans of stages."""

    def __init__(self, schedule: Schedule, args: Sequence[Tensor], binds: Mapping[Tensor, Buffer]) -> None:
        self.schedule, self.binds = schedule, binds
        plans, self.space = infer_bounds(schedule)
        self.plans = {p.stage: p for p in plans}
        self.buffers: dict[Tensor, Buffer] = {}
        self.relative: set[Tensor] = set()
        self.params = tuple(self._param(a) for a in args)
        for plan in sorted(plans, key=lambda p: not isinstance(p.stage.op, ScanOp)):  # updates write into scans
            self._own_buffers(plan)

    def function(self, name: str) -> PrimFunc:
        roots = [p for p in self.plans.values() if p.stage.attach is None]
        outside = [p for p in roots if p.step is None or isinstance(p.stage.op, ScanOp)]
        body = seq(*(self.statement(p) for p in outside)) if outside else Evaluate(T.const(0))
        for plan in reversed(roots):
            body = self._allocated(plan, body)
        attrs: tuple[tuple[str, object], ...] = (("global_symbol", name), ("noalias", True))
        imported = IMPORTS.join(self._imports())
        attrs = (*attrs, ("import_llvm", imported)) if imported else attrs
        layouts = {buffer: new for t, buffer in self.buffers.items() if (new := self._in_layout(t, buffer)) is not None}
        if not layouts:
            return PrimFunc(self.params, body, attrs)
        params = tuple(layouts[p][0] if isinstance(p, Buffer) and p in layouts else p for p in self.params)
        return PrimFunc(params, moved(body, layouts), attrs)

    def _imports(self) -> list[str]:
        """The modules of LLVM IR that loops import: a loop may be gone when its code is made."""
        notes = (note for stage in self.schedule.stages for note in stage.notes.values())
        pragmas = (pragma for note in notes for pragma in note.pragmas)
        return list(dict.fromkeys(str(value) for key, value in pragmas if key == "pragma_import_llvm"))

    def _in_layout(self, tensor: Tensor, buffer: Buffer) -> tuple[Buffer, IndexMap, tuple[int, ...]] | None:
        """The buffer in the layout that the stage was given, with the map and the shape before it."""
        stage = self.schedule.stage_map.get(tensor.op)
        if stage is None or stage.layout is None or stage.op is not tensor.op:
            return None
        if stage.attach is not None:
            raise ScheduleError(f"transform_layout on stage {stage.key}: it is computed inside another stage's loop")
        shape = tuple(T.as_int(n) or 0 for n in tensor.shape)
        return replace(buffer, shape=physical_shape(stage.layout)), stage.layout, shape

    def _param(self, item: object) -> Buffer | Var:
        if isinstance(item, Var):
            return item
        if not isinstance(item, Tensor):
            raise TypeMismatch(f"lower: argument {item!r} is neither a tensor nor a variable")
        if item.op not in self.schedule.stage_map:
            return self.binds.get(item) or Buffer(item.name, item.shape, item.dtype)  # an argument that nothing reads
        stage = self.schedule.stage_map[item.op]
        tensor = stage.op.output(item.value_index)
        if tensor in self.buffers:
            raise TypeMismatch(f"lower: tensor {item.name} is given twice as an argument")
        self.buffers[tensor] = self.binds.get(item) or Buffer(item.name, tensor.shape, tensor.dtype)
        return self.buffers[tensor]

    def _own_buffers(self, plan: Plan) -> None:
        stage = plan.stage
        attached = stage.attach is not None
        if isinstance(stage.op, ScanOp):
            self._own_states(plan, stage.op)
            return
        for tensor in stage.op.outputs:
            if tensor in self.buffers:
                continue
            if self.schedule.is_output(stage) and not self.schedule.readers(stage):
                raise TypeMismatch(f"lower: output {tensor.name} is not among the arguments")
            shape = buffer_shape(plan, tensor)
            scope = plan.scope or "global"
            self.buffers[tensor] = Buffer(tensor.name, shape, tensor.dtype, scope)
            if attached:
                self.relative.add(tensor)

    def _own_states(self, plan: Plan, op: ScanOp) -> None:
        """A scan's buffer is also that of its state, which steps read, and of its update, which they write."""
        for tensor, state, update in zip(op.outputs, op.state, op.update, strict=True):
            if tensor not in self.buffers:
                scope = plan.stage.scope or "global"
                self.buffers[tensor] = Buffer(tensor.name, tensor.shape, tensor.dtype, scope)
            self.buffers[state] = self.buffers[self.schedule.source(plan.stage, update)] = self.buffers[tensor]

    def _scan(self, plan: Plan, op: ScanOp) -> Stmt:
        """The first states, then the time loop."""
        stage, step = plan.stage, plan.step
        assert step is not None, "bounds make the step of a scan"
        starts = []
        for tensor, init in zip(op.outputs, op.init, strict=True):
            source = self.schedule.source(stage, init)
            starts.append(copy_start(self.buffers[tensor], self.buffer_of(source, stage), init))
        inside = [p for p in self.plans.values() if p.step is step and p is not plan and p.stage.attach is None]
        body = seq(*(self.statement(p) for p in inside))
        count = to_expr(step.count, step.var.dtype)
        return seq(*starts, For(step.var, T.const(0, step.var.dtype), count, LoopKind.SERIAL, body))

    def _allocated(self, plan: Plan, body: Stmt) -> Stmt:
        params = set(self.params)
        scan = plan.step.scan if plan.step is not None else plan.stage
        if scan is not plan.stage and update_of(scan, self.schedule, plan.stage) is not None:
            return body  # the scan's own buffer
        for tensor in reversed(plan.stage.op.outputs):
            buffer = self.buffers[tensor]
            if buffer not in params:
                if plan.stage.double_buffered:
                    body = AttrStmt("double_buffer_scope", T.const(1), body, buffer)
                body = self.exists(plan, tensor, body)
        return body

    def exists(self, plan: Plan, tensor: Tensor, body: Stmt) -> Stmt:
        """`body`, while the tensor of a stage has memory."""
        return Allocate(self.buffers[tensor], body)

    def iteration(self, axis: IterVar, var: Var, extent: Expr, body: Stmt) -> Stmt:
        """One iteration of the loop over an axis of a stage."""
        return body

    def statement(self, plan: Plan) -> Stmt:
        """Everything one stage does."""
        op = plan.stage.op
        if isinstance(op, ExternOp):
            return self._extern(plan.stage, op)
        if isinstance(op, ScanOp):
            return self._scan(plan, op)
        assert isinstance(op, ComputeOp), "bounds refuse other operations"
        return Nest(self, plan, op).build()

    def _extern(self, stage: Stage, op: ExternOp) -> Stmt:
        mapping = dict(zip(op.output_placeholders, (self.buffers[t] for t in op.outputs), strict=True))
        for buffer, tensor in zip(op.input_placeholders, op.inputs, strict=True):
            mapping[buffer] = self.buffer_of(self.schedule.source(stage, tensor), stage)
        return rename_buffers(with_addresses(op.body, mapping), mapping)

    def buffer_of(self, tensor: Tensor, reader: Stage) -> Buffer:
        """The buffer of a tensor; TypeMismatch when it is an input that was not given."""
        result = self.buffers.get(tensor)
        if result is None:
            if isinstance(tensor.op, PlaceholderOp):
                raise TypeMismatch(f"lower: stage {reader.key} reads {tensor.name}, which is not among the arguments")
            raise ScheduleError(f"stage {reader.key} reads {tensor.name}, which is not computed")
        return result

    def place(
        self, tensor: Tensor, indices: tuple[Expr, ...], values: Mapping[Var, Linear], move: Callable[[Expr], Expr]
    ) -> tuple[Expr, ...]:
        """Indices into the tensor's buffer: substituted, and counted from the region's start."""
        if tensor not in self.relative:
            return tuple([move(i) for i in indices])
        plan = self.plans[self.schedule.stage_map[tensor.op]]
        result = []
        for axis, index in zip(plan.stage.op.axis, indices, strict=True):
            low = plan.low[axis]
            value = self.space.evaluate(index, values)
            if value is None:
                result.append(T.sub(move(index), to_expr(low, index.dtype)))
            else:
                result.append(to_expr(value.minus(low), index.dtype))
        return tuple(result)


def _guarded(conditions: list[Expr], body: Stmt) -> Stmt:
    for condition in reversed(conditions):
        body = IfThenElse(condition, body)
    return body


def _store_together(buffers: list[Buffer], results: list[Expr], target: tuple[Expr, ...]) -> Stmt:
    """Stores of a tuple reduction: all results are computed before the first is stored."""
    if len(buffers) == 1:
        return BufferStore(buffers[0], results[0], target)
    names = [Var(f"{b.name}.next", r.dtype) for b, r in zip(buffers, results, strict=True)]
    body = seq(*(BufferStore(b, v, target) for b, v in zip(buffers, names, strict=True)))
    for var, result in zip(reversed(names), reversed(results), strict=True):
        body = LetStmt(var, result, body)
    return body


class Nest:
    """The loops of one compute stage, with the stages attached inside them."""

    def __init__(self, lowering: Lowering, plan: Plan, op: ComputeOp) -> None:
        self.lowering, self.plan, self.op = lowering, plan, op
        self.stage, self.space = plan.stage, lowering.space
        self.leaf = plan.stage.leaf
        self.shared = shared_axes(plan.stage) if op.is_reduction else []
        if self.shared:
            self.leaf = threads_first(self, self.shared)
        self.first_reduce = next((i for i, a in enumerate(self.leaf) if a.kind == "reduce"), len(self.leaf))

    def build(self) -> Stmt:
        plan, leaf = self.plan, self.leaf
        levels = [*self.levels(plan.guards, plan.leaves), *self.reduction_guards()]
        start = next((i for i, a in enumerate(leaf) if self.notes(a).intrinsic is not None), len(leaf))
        if self.shared and start == len(leaf):
            return SharedReduction(self, self.shared).build()
        if start < len(leaf):
            body = tensorized(self.lowering, plan, start, self.first_reduce)
            if any(level >= start for _, level in self.reduction_guards()):
                where = f"tensorize on stage {self.stage.key}"
                raise ScheduleError(f"{where}: its reduction has a condition inside the tensorized loops")
        else:
            body = _guarded([g for g, level in levels if level >= len(leaf)], self._innermost())
        if self.op.is_reduction and self.first_reduce == len(leaf):
            body = seq(self._init(plan.values), body)
        for position in reversed(range(start)):
            axis = leaf[position]
            body = _guarded([g for g, level in levels if level == position], body)
            body = self.with_attached(axis, body)
            body = self.loop(axis, plan.leaves[axis], body)
            if self.op.is_reduction and position == self.first_reduce:
                body = seq(self._init_nest(start), body)
        return _guarded([g for g, level in levels if level < 0], body)

    def notes(self, axis: IterVar) -> Notes:
        return self.stage.notes.get(axis) or _PLAIN

    def levels(self, guards: list[Guard], leaves: Sizes) -> list[tuple[Expr, int]]:
        """Each guard as a condition, with the position of the innermost loop that it needs."""
        result = []
        for value, extent in guards:
            needed = [i for i, a in enumerate(self.leaf) if a in leaves and leaves[a].vars & value.vars]
            result.append((_condition(value, extent), max(needed, default=-1)))
        return result

    def reduction_guards(self) -> list[tuple[Expr, int]]:
        """The condition of a reduction, conjunct by conjunct, each just inside the innermost loop that it needs."""
        first = self.plan.bodies[0]
        if not isinstance(first, Reduce):
            return []
        apply = self.mover(self.plan.values)
        guards = []
        for conjunct in _conjuncts(apply(first.condition)):
            names = {n for n in post_order(conjunct) if isinstance(n, Var)}
            needed = [i for i, a in enumerate(self.leaf) if self.plan.leaves[a].vars & names]
            guards.append((conjunct, max(needed, default=self.first_reduce)))
        return [(condition, max(level, self.first_reduce)) for condition, level in guards]

    def loop(self, axis: IterVar, value: Linear, body: Stmt) -> Stmt:
        var = next((a for a in value.terms if isinstance(a, Var)), None)
        notes = self.notes(axis)
        if var is None or (notes.thread is not None and notes.thread.thread_tag in self.plan.threads):
            return body
        extent = to_expr(self.plan.sizes[axis], axis.var.dtype)
        tag = notes.thread.thread_tag if notes.thread is not None else ""
        body = self.lowering.iteration(axis, var, extent, body)
        return For(var, T.const(0, axis.var.dtype), extent, notes.kind, body, tag, tuple(notes.pragmas))

    def with_attached(self, axis: IterVar, body: Stmt) -> Stmt:
        requests = self.notes(axis).prefetch
        for request in requests:
            body = seq(self._prefetch(request, axis), body) if request.tensor.op is not self.op else body
        plans = self.plan.attached.get(axis, [])
        for plan in reversed(plans):
            body = seq(self.lowering.statement(plan), body)
        for request in requests:  # what is written is asked for before it is computed
            body = seq(self._prefetch(request, axis), body) if request.tensor.op is self.op else body
        for plan in reversed(plans):
            body = self.lowering._allocated(plan, body)
        return body

    def _prefetch(self, request: Request, axis: IterVar) -> Stmt:
        is_own, source = request.tensor.op is self.op, self.lowering.schedule.source(self.stage, request.tensor)
        load = next((x for x in self.plan.loads if x.producer is source), None)
        if load is None and not is_own:
            raise ScheduleError(f"prefetch on stage {self.stage.key}: it does not read {request.tensor.name}")
        position = next(i for i, a in enumerate(self.leaf) if a is axis)
        if not is_own and any(
            p.stage.op is source.op for a in self.leaf[position + 1 :] for p in self.plan.attached.get(a, ())
        ):
            message = f"prefetch on stage {self.stage.key}: {source.op.name} is computed inside axis {axis.var.name}"
            raise ScheduleError(message, hint="ask for what lies in memory before the loop begins")
        corners = []
        for is_last in (False, True):
            leaves = dict(self.plan.leaves)
            for inner in self.leaf[position + 1 :]:
                leaves[inner] = self.plan.sizes[inner].shifted(-1) if is_last else ZERO
            leaves[axis] = leaves[axis].shifted(request.offset)
            values = derive_values(self.stage.relations, leaves, self.plan.sizes, self.space)
            corners.append(self._written(request.tensor, values) if load is None else self.mover(values)(load))
        first, last = corners
        if request.spread is not None:
            return request_further(first, self._further(request.spread, axis), request)
        return request_region(first, last, request, self._sharing_tile(request))

    def _further(self, spread: Spread, axis: IterVar) -> Expr:
        """How many elements on an iteration of a loop asks; loops inside it are at their start."""
        inner = self.leaf[next(i for i, a in enumerate(self.leaf) if a is axis) + 1 :]
        leaves = {**self.plan.leaves, **dict.fromkeys(inner, ZERO)}
        values = derive_values(self.stage.relations, leaves, self.plan.sizes, self.space)
        total = ZERO
        for term in spread.terms:
            value = Linear(term.shift)
            for a, times in term.of:
                at = self.plan.leaves[a] if a is axis else self.plan.low[a].plus(values[a])
                value = value.plus(at.scaled(times))
            total = total.plus(self.space.divide(value, Linear(term.parts)).scaled(term.by))
        return to_expr(total, axis.var.dtype)

    def _sharing_tile(self, request: Request) -> Expr | None:
        """Which of the tiles that share a request this one is, by where its elements start."""
        tile: Expr | None = None
        for sharer in request.shared:
            along = T.floordiv(to_expr(self.plan.low[sharer.axis], sharer.axis.var.dtype), sharer.step)
            tile = along if tile is None else T.add(T.mul(tile, sharer.count), along)
        return tile

    def _written(self, tensor: Tensor, values: Sizes) -> Expr:
        return BufferLoad(self.lowering.buffers[tensor], self.target(values))

    # element statements

    def mover(self, values: Sizes) -> Callable[[Expr], Expr]:
        """A rewriter of bodies for these axis values: axes become loop variables, tensors buffers."""
        lowering = self.lowering
        known = {a.var: self.plan.low[a].plus(values[a]) for a in (*self.op.axis, *self.op.reduce_axis)}
        shown = {v: to_expr(x, v.dtype) for v, x in known.items()}

        def place(item: ProducerLoad) -> Expr:
            buffer = lowering.buffer_of(item.producer, self.stage)
            return BufferLoad(buffer, lowering.place(item.producer, item.indices, known, apply))

        apply = rewriter(shown, place=place)
        return apply

    def target(self, values: Sizes) -> tuple[Expr, ...]:
        """Where this stage's element is stored."""
        attached = self.op.output(0) in self.lowering.relative
        result = []
        for axis in self.op.axis:
            value = values[axis] if attached else self.plan.low[axis].plus(values[axis])
            result.append(to_expr(value, axis.var.dtype))
        return tuple(result)

    def _innermost(self) -> Stmt:
        values = self.plan.values
        apply = self.mover(values)
        target = self.target(values)
        buffers = [self.lowering.buffers[t] for t in self.op.outputs]
        first = self.plan.bodies[0]
        if not isinstance(first, Reduce):
            return seq(*(BufferStore(b, apply(e), target) for b, e in zip(buffers, self.plan.bodies, strict=True)))
        combiner = first.combiner
        variables: dict[Var, Expr] = {v: BufferLoad(b, target) for v, b in zip(combiner.lhs, buffers, strict=True)}
        variables.update({v: apply(s) for v, s in zip(combiner.rhs, first.source, strict=True)})
        combine = rewriter(variables)
        results = [combine(r) for r in combiner.result]
        return _store_together(buffers, results, target)

    def _init(self, values: Sizes) -> Stmt:
        first = self.plan.bodies[0]
        assert isinstance(first, Reduce), "only reductions start with an identity"
        apply = self.mover(values)
        target = self.target(values)
        buffers = [self.lowering.buffers[t] for t in self.op.outputs]
        return seq(*(BufferStore(b, apply(e), target) for b, e in zip(buffers, first.combiner.identity, strict=True)))

    def _init_nest(self, stop: int) -> Stmt:
        """Loops over the data axes that stand inside the first reduction loop, storing the identity."""
        plan, space = self.plan, self.space
        leaves: Sizes = {}
        inner: list[int] = []
        for position, axis in enumerate(self.leaf):
            if axis.kind == "reduce":
                leaves[axis] = ZERO
            elif position < self.first_reduce or plan.loop_var(axis) is None or self._shares_thread(axis):
                leaves[axis] = plan.leaves[axis]
            else:
                var = space.loop_var(f"{axis.var.name}.init", axis.var.dtype, plan.sizes[axis])
                leaves[axis] = Linear(0, {var: 1})
                inner.append(position)
        values = derive_values(self.stage.relations, leaves, plan.sizes, space)
        if stop < len(self.leaf):
            return self._init_by_intrinsic(stop)
        levels = self.levels(self._init_guards(values), {a: v for a, v in leaves.items() if a.kind != "reduce"})
        body = self._init(values)
        for position in reversed(inner):
            axis = self.leaf[position]
            body = _guarded([g for g, level in levels if level == position], body)
            body = self.loop(axis, leaves[axis], body)
        return body

    def _init_by_intrinsic(self, start: int) -> Stmt:
        """The reset of the tensor intrinsic, inside the data loops between the first reduction loop and it."""
        body = reset(self.lowering, self.plan, start)
        for axis in reversed(self.leaf[self.first_reduce : start]):
            if axis.kind != "reduce":
                body = self.loop(axis, self.plan.leaves[axis], body)
        return body

    def _shares_thread(self, axis: IterVar) -> bool:
        """Whether a loop around the stage runs over the same threads, so that the axis has no loop of its own."""
        thread = self.notes(axis).thread
        return thread is not None and thread.thread_tag in self.plan.threads

    def _init_guards(self, values: Sizes) -> list[Guard]:
        """The guards that concern data axes, for other loop variables."""
        plan, space = self.plan, self.space
        wanted = split_guards(relations_of(self.stage, reductions=False), values, plan.sizes, space)
        beyond = unguarded(self.stage)
        for axis in self.op.axis:
            value = plan.low[axis].plus(values[axis])
            assert axis.dom is not None, "data axes have a range"
            extent = space.evaluate(axis.dom.extent, {})
            if extent is not None and axis not in beyond:
                wanted.append((value, extent))
            if (space.limits(value)[0] or 0) < 0:
                wanted.append((value.scaled(-1), Linear(1)))
        retained = {v.minus(e).key: (v, e) for v, e in wanted if not space.at_most(v, e.shifted(-1))}
        return list(retained.values())

    stored, guarded = staticmethod(_store_together), staticmethod(_guarded)


_PLAIN = Notes()


def _condition(value: Linear, extent: Linear) -> Expr:
    dtype = next(iter(value.vars)).dtype if value.vars else INT32
    if extent.value == 1 and all(c < 0 for c in value.terms.values()):
        return T.likely(T.greater_equal(to_expr(value.scaled(-1), dtype), 0))
    return T.likely(T.less(to_expr(value, dtype), to_expr(extent, dtype)))


def _conjuncts(condition: Expr) -> list[Expr]:
    """The parts of a conjunction; none when it is the constant true."""
    if isinstance(condition, And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [] if getattr(condition, "value", None) == 1 else [condition]
