"""The steps of Relay-era lowering, each to look at: loops over tensors, then the memory of tensors.

    bounds = te.schedule.InferBound(s)
    stages = te.schedule.ScheduleOps(s, bounds)  # ProducerRealize, ProducerStore, loop_scope
    function = te.schedule.SchedulePostProcToPrimFunc(args, stages, binds)  # buffers; then tir.transform.StorageFlatten

In: a schedule. Out: statements of `tir/blocks/producers.py`; from them a `PrimFunc` over N-dimensional buffers.
Invariant: one lowering (`te/lower.py`) makes the loops of both; what it makes at once is what these steps come to.
Memory whose address is taken (of `te.extern`, tensor intrinsics, scans, double buffers) cannot be a tensor: it stays a
buffer, and an attribute `buffer_bind_scope` says whose it is where it is an argument's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.base.boundary import boundary
from armillary.base.node import post_order
from armillary.errors import ScheduleError, TypeMismatch
from armillary.te.affine import to_expr
from armillary.te.bounds import Plan
from armillary.te.lower import Lowering
from armillary.te.operation import ComputeOp, PlaceholderOp, ScanOp
from armillary.te.schedule import Schedule
from armillary.te.stage import Stage
from armillary.te.storage import buffer_shape
from armillary.te.tensor import Tensor
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.blocks.producers import BIND_SCOPE, LOOP_SCOPE, ProducerRealize, ProducerStore
from armillary.tir.substitute import ExprMapper, map_stmt

_TRUE = E.IntImm(E.BOOL, 1)


@boundary("te.schedule.ScheduleOps", arguments=True)
def schedule_ops(schedule: Schedule, bounds: object = None, debug_keep_trivial_loop: bool = False) -> S.Stmt:
    """The loops of a schedule over tensors. `bounds` are those of InferBound, and are inferred again.

    Loops that run once are left out, whatever `debug_keep_trivial_loop` says.
    """
    del bounds, debug_keep_trivial_loop
    return _Staged(schedule).all()


@boundary("te.schedule.BuildProvide", arguments=True)
def build_provide(stage: Stage, bounds: object = None, debug_keep_trivial_loop: bool = False) -> S.Stmt:
    """The loops that compute one stage, without the stages that are attached to them."""
    del bounds, debug_keep_trivial_loop
    return _Staged(stage.schedule).provide(stage)


@boundary("te.schedule.MakePipeline", arguments=True)
def make_pipeline(
    stage: Stage, bounds: object = None, consumer: S.Stmt | None = None, debug_keep_trivial_loop: bool = False
) -> S.Stmt:
    """One stage's tensors exist, are computed, then `consumer` runs."""
    del bounds, debug_keep_trivial_loop
    staged = _Staged(stage.schedule)
    produced = staged.provide(stage)
    return staged.realized(stage, produced if consumer is None else S.seq(produced, consumer))


class _Staged(Lowering):
    """A lowering whose loops say which axis they are of; tensors are indexed from their beginning."""

    def __init__(self, schedule: Schedule) -> None:
        stages = schedule.stages
        inputs = [s.op.output(0) for s in stages if isinstance(s.op, PlaceholderOp)]
        results = [op.output(k) for op in schedule.outputs for k in range(op.num_outputs)]
        self.operands = [*inputs, *results]
        super().__init__(schedule, self.operands, {})
        self.placed = _by_address(schedule, self)
        self.relative &= self.placed
        own = {tensor: buffer for tensor, buffer in self.buffers.items() if tensor not in self.placed}
        self.tensors = {buffer: _original(schedule, tensor) for tensor, buffer in own.items()}
        read = {self.buffers[tensor] for tensor in (*inputs, *self.placed)}
        self.params = tuple(p for p in self.params if p in read)  # results are realized, too

    def all(self) -> S.Stmt:
        if any(stage.layout is not None for stage in self.schedule.stages):
            raise ScheduleError(
                "ScheduleOps: a stage has a layout of its own", hint="armillary.lower takes such stages"
            )
        body = self.over_tensors(self.function("main").body)
        for tensor in self.operands:
            if tensor in self.placed:
                first = tuple(T.const(0, n.dtype) for n in tensor.shape)
                whose = E.ProducerLoad(_original(self.schedule, tensor), first)
                body = S.AttrStmt(BIND_SCOPE, whose, body, self.buffers[tensor])
        return body

    def provide(self, stage: Stage) -> S.Stmt:
        plan = self.plan_of(stage)
        plan.attached = {}
        return self.over_tensors(self.statement(plan))

    def realized(self, stage: Stage, body: S.Stmt) -> S.Stmt:
        return self.over_tensors(self._allocated(self.plan_of(stage), body))

    def plan_of(self, stage: Stage) -> Plan:
        if stage not in self.plans:
            raise ScheduleError(f"stage {stage.key} has no loops: it is an input, or computed where it is read")
        return self.plans[stage]

    def exists(self, plan: Plan, tensor: Tensor, body: S.Stmt) -> S.Stmt:
        if tensor in self.placed:
            return super().exists(plan, tensor, body)
        shape = buffer_shape(plan, tensor)
        axes = plan.stage.op.axis
        is_whole = not axes or len(axes) != tensor.ndim or plan.stage.attach is None
        lows = [T.const(0, n.dtype) if is_whole else to_expr(plan.low[a], n.dtype) for a, n in zip(axes, shape)]
        bounds = tuple(E.Range.from_min_extent(low, size) for low, size in zip(lows, shape, strict=True))
        return ProducerRealize(_original(self.schedule, tensor), bounds, _TRUE, body, self.buffers[tensor].scope)

    def iteration(self, axis: E.IterVar, var: E.Var, extent: E.Expr, body: S.Stmt) -> S.Stmt:
        dom = E.Range.from_min_extent(T.const(0, extent.dtype), extent)
        return S.AttrStmt(LOOP_SCOPE, var, body, E.IterVar(dom, var, axis.kind, axis.thread_tag))

    def over_tensors(self, item: S.Stmt) -> S.Stmt:
        """Accesses of buffers that stand for tensors are accesses of these."""
        tensors = self.tensors

        def read(e: E.Expr) -> E.Expr | None:
            is_one = isinstance(e, E.BufferLoad) and e.buffer in tensors
            return E.ProducerLoad(tensors[e.buffer], e.indices) if is_one else None  # type: ignore[attr-defined]

        mapper = ExprMapper(read)

        def visit(s: S.Stmt) -> S.Stmt:
            mapped = map_stmt(s, mapper, visit)
            if isinstance(mapped, S.BufferStore) and mapped.buffer in tensors:
                return ProducerStore(tensors[mapped.buffer], mapped.value, mapped.indices)
            return mapped

        return visit(item)


def _original(schedule: Schedule, tensor: Tensor) -> Tensor:
    """The tensor that the script made, which a cache may have taken the place of."""
    stage = schedule.stage_map[tensor.op]
    before: Tensor = stage.origin_op.output(tensor.value_index)
    return before if before.shape == tensor.shape else tensor


def _by_address(schedule: Schedule, lowering: Lowering) -> set[Tensor]:
    """Tensors that something other than plain loops touches."""
    placed: set[Tensor] = set()
    for stage in schedule.stages:
        op, notes = stage.op, stage.notes.values()
        is_plain = isinstance(op, ComputeOp | PlaceholderOp) and not any(n.intrinsic or n.prefetch for n in notes)
        if is_plain and not stage.double_buffered:
            continue
        placed.update(op.outputs)
        if not is_plain:
            placed.update(schedule.source(stage, tensor) for tensor in op.input_tensors)
        if isinstance(op, ScanOp):
            placed.update([*op.state, *(schedule.source(stage, t) for t in (*op.init, *op.update))])
    taken = {lowering.buffers[tensor] for tensor in placed if tensor in lowering.buffers}
    return {tensor for tensor, buffer in lowering.buffers.items() if buffer in taken}


@boundary("te.schedule.SchedulePostProcToPrimFunc", arguments=True)
def function_of_stages(
    args: Sequence[object], stmt: S.Stmt, binds: Mapping[Tensor, S.Buffer] | None = None
) -> S.PrimFunc:
    """The function of these tensors and variables that ScheduleOps' loops are; `binds` has the buffers of some.

    What is realized is allocated, just its region, and indexed from where that begins.
    """
    used: set[object] = {item.producer for item in post_order(stmt) if isinstance(item, E.ProducerLoad | ProducerStore)}
    missing = [item.name for item in args if isinstance(item, Tensor) and item not in used]
    if missing:
        raise TypeMismatch(f"SchedulePostProcToPrimFunc: the loops do not use {missing[0]}")
    tensors = [item for item in args if isinstance(item, Tensor)]
    buffers: dict[Tensor, S.Buffer] = {t: S.Buffer(t.name, t.shape, t.dtype) for t in tensors}
    buffers.update(binds or {})
    buffers.update(_bound(stmt))
    post = _PostProc(buffers)
    params = (post.buffers[item] if isinstance(item, Tensor) else item for item in args)
    return S.PrimFunc(tuple(params), post.stmt(stmt), (("noalias", True),))  # type: ignore[arg-type]


def _bound(stmt: S.Stmt) -> dict[Tensor, S.Buffer]:
    """The memory of arguments whose addresses are taken."""
    result: dict[Tensor, S.Buffer] = {}
    while isinstance(stmt, S.AttrStmt) and stmt.key == BIND_SCOPE:
        assert isinstance(stmt.value, E.ProducerLoad) and isinstance(stmt.node, S.Buffer), "as ScheduleOps binds"
        result[stmt.value.producer] = stmt.node
        stmt = stmt.body
    return result


def _tensor(producer: object) -> Tensor:
    assert isinstance(producer, Tensor), "as ScheduleOps makes them"
    return producer


class _PostProc:
    """Buffers of tensors, and where the regions that they hold begin."""

    def __init__(self, buffers: dict[Tensor, S.Buffer]) -> None:
        self.buffers = buffers
        self.begins: dict[Tensor, tuple[E.Expr, ...]] = {}
        self.mapper = ExprMapper(self.read)

    def buffer(self, tensor: Tensor) -> S.Buffer:
        if tensor not in self.buffers:
            message = f"SchedulePostProcToPrimFunc: the loops use {tensor.name}, which is not among the arguments"
            raise TypeMismatch(message)
        return self.buffers[tensor]

    def place(self, tensor: Tensor, indices: Sequence[E.Expr]) -> tuple[E.Expr, ...]:
        begins = self.begins.get(tensor)
        return tuple(indices) if begins is None else tuple(map(T.sub, indices, begins))

    def read(self, e: E.Expr) -> E.Expr | None:
        if not isinstance(e, E.ProducerLoad):
            return None
        return E.BufferLoad(self.buffer(e.producer), self.place(e.producer, e.indices))

    def stmt(self, item: S.Stmt) -> S.Stmt:
        if isinstance(item, S.AttrStmt) and item.key in (LOOP_SCOPE, BIND_SCOPE):
            return self.stmt(item.body)
        if isinstance(item, ProducerRealize):
            return self.realize(item)
        if isinstance(item, ProducerStore):
            tensor, value = _tensor(item.producer), self.mapper(item.value)
            return S.BufferStore(self.buffer(tensor), value, self.place(tensor, tuple(map(self.mapper, item.indices))))
        return map_stmt(item, self.mapper, self.stmt)

    def realize(self, item: ProducerRealize) -> S.Stmt:
        tensor = _tensor(item.producer)
        if tensor in self.buffers:  # an argument: it has memory
            return self.stmt(item.body)
        extents = tuple(self.mapper(r.extent) for r in item.bounds)
        self.buffers[tensor] = S.Buffer(tensor.name, extents, tensor.dtype, item.storage_scope or "global")
        self.begins[tensor] = tuple(r.min for r in item.bounds)
        self.mapper.forget()
        body: S.Stmt = S.Allocate(self.buffers[tensor], self.stmt(item.body))
        return body if T.as_int(item.condition) == 1 else S.IfThenElse(item.condition, body)
