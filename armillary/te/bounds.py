"""Which part of each tensor its stage computes, and the loops that follow from it.

In: a schedule. Out: a `Plan` per stage with loops: minimum and extent of every axis, loop variables, guards. A stage at
root computes its whole tensor; one attached inside a consumer's loop computes what one iteration of that loop reads.
Invariant: extents never depend on loop variables; where a region cannot be told exactly a larger one is taken, at most
the whole dimension. Arithmetic: `te/affine.py`. Statements: `te/lower.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING

from armillary.base.dtype import DType
from armillary.errors import ScheduleError
from armillary.te.affine import ZERO, Atom, Linear, Space, to_expr
from armillary.te.inline import Inliner, loads_of
from armillary.te.operation import ComputeOp, ExternOp, PlaceholderOp, ScanOp
from armillary.te.relations import Guard, Sizes, derive_extents, derive_values, size_of, split_guards, unguarded
from armillary.te.scan import Step, stages_by_scan, update_of
from armillary.te.stage import Stage
from armillary.tir.expr import Expr, IterVar, ProducerLoad, Range, Var
from armillary.tir.stmt import LoopKind
from armillary.tir.substitute import substitute_expr

if TYPE_CHECKING:
    from armillary.te.schedule import Schedule

Span = tuple[Linear, Linear]
EMPTY: frozenset[Var] = frozenset()


@dataclass(slots=True, eq=False)
class Plan:
    """The loops of one stage. `path` are the loop variables around it, `chain` the loops' stages and positions."""

    stage: Stage
    scope: str = ""
    bodies: tuple[Expr, ...] = ()
    loads: list[ProducerLoad] = field(default_factory=list)
    low: Sizes = field(default_factory=dict)
    sizes: Sizes = field(default_factory=dict)
    leaves: Sizes = field(default_factory=dict)
    values: Sizes = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    path: frozenset[Var] = EMPTY
    chain: tuple[tuple[Stage, int], ...] = ()
    threads: dict[str, tuple[Var, Linear]] = field(default_factory=dict)
    attached: dict[IterVar, list[Plan]] = field(default_factory=dict)
    step: Step | None = None

    def loop_var(self, axis: IterVar) -> Var | None:
        """The variable of a loop; None when the loop runs once and is left out."""
        return next((a for a in self.leaves[axis].terms if isinstance(a, Var)), None)


def loop_ranges(schedule: Schedule) -> dict[IterVar, Range]:
    """The range of each axis of each stage, which `te.schedule.InferBound` gives."""
    steps = [stage.op.scan_axis for stage in schedule.stages if isinstance(stage.op, ScanOp)]
    plans = infer_bounds(schedule)[0]
    own = {var: axis.var for plan in plans for axis in plan.leaves if (var := plan.loop_var(axis)) is not None}

    def told(value: Linear, dtype: DType) -> Expr:
        """By the variables of the schedule's axes."""
        return substitute_expr(to_expr(value, dtype), own)

    return {axis: axis.dom for axis in steps if axis.dom is not None} | {
        axis: Range.from_min_extent(
            told(plan.low.get(axis, ZERO), axis.var.dtype), told(plan.sizes[axis], axis.var.dtype)
        )
        for plan in plans
        for axis in plan.sizes
    }


def infer_bounds(schedule: Schedule) -> tuple[list[Plan], Space]:
    """Plans of all stages with loops or statements, producers first."""
    return _Inference(schedule).run()


class _Inference:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.space = Space()
        self.inliner = Inliner(schedule)
        self.plans: dict[Stage, Plan] = {}
        self.readers: dict[Stage, list[tuple[Plan, ProducerLoad | None]]] = {}
        self.scans = stages_by_scan(schedule)
        self.steps: dict[Stage, Step] = {}

    def run(self) -> tuple[list[Plan], Space]:
        for stage in reversed(self.schedule.in_order()):
            if isinstance(stage.op, PlaceholderOp) or stage.is_inline:
                continue
            if stage not in self.readers and not self.schedule.is_output(stage):
                continue  # all its readers read something else now
            self.plans[stage] = self._plan(stage)
        plans = list(reversed(self.plans.values()))
        for plan in plans:
            if plan.stage.attach is not None:
                parent, axis = plan.stage.attach
                self.plans[parent].attached.setdefault(axis, []).append(plan)
        return plans, self.space

    def _plan(self, stage: Stage) -> Plan:
        plan = Plan(stage)
        if isinstance(stage.op, ComputeOp):
            plan.bodies = self.inliner.bodies(stage)
            plan.loads = loads_of(plan.bodies)
            for load in plan.loads:
                self._add_reader(load.producer.op, plan, load)
        elif isinstance(stage.op, ExternOp):
            for tensor in stage.op.inputs:
                self._read_by_extern(stage, plan, self.schedule.source(stage, tensor).op)
        elif isinstance(stage.op, ScanOp):
            self._scan(plan, stage.op)
        plan.scope = stage.scope
        if stage.attach is None and stage in self.scans:
            self._in_step(plan)
        elif stage.attach is None:
            self._at_root(plan)
        else:
            self._attach(plan)
        if isinstance(stage.op, ComputeOp):
            self._loops(plan)
        return plan

    def _add_reader(self, op: object, plan: Plan, load: ProducerLoad | None) -> None:
        producer = self.schedule.stage_map[op]  # type: ignore[index]
        self.readers.setdefault(producer, []).append((plan, load))

    def _read_by_extern(self, stage: Stage, plan: Plan, op: object) -> None:
        producer = self.schedule.stage_map[op]  # type: ignore[index]
        if producer.is_inline:
            raise ScheduleError(
                f"stage {producer.key} is inlined, but extern {stage.key} reads it from memory",
                hint="leave it at root",
            )
        self._add_reader(op, plan, None)

    def _at_root(self, plan: Plan) -> None:
        for axis in plan.stage.op.axis:
            plan.low[axis] = ZERO
            plan.sizes[axis] = self._extent(axis)

    def _scan(self, plan: Plan, op: ScanOp) -> None:
        """Make the time loop, and read the inits and updates."""
        stage = plan.stage
        first = size_of(op.init[0].shape[0], self.space)
        count = size_of(op.update[0].shape[0], self.space).minus(first)
        var = self.space.loop_var(op.scan_axis.var.name, op.scan_axis.var.dtype, count)
        plan.step = self.steps[stage] = Step(stage, var, first, count)
        for tensor in (*op.init, *op.update):
            self._read_by_extern(stage, plan, self.schedule.source(stage, tensor).op)

    def _in_step(self, plan: Plan) -> None:
        """A stage of a scan computes what one step needs: its row of an update, or what other such stages read."""
        stage = plan.stage
        step = plan.step = self.steps[self.scans[stage]]
        plan.path = fixed = frozenset((step.var,))
        if update_of(step.scan, self.schedule, stage) is not None:
            self._at_root(plan)
            plan.low[stage.op.axis[0]], plan.sizes[stage.op.axis[0]] = step.now, Linear(1)
            return
        spans: list[Span | None] | None = None
        for reader, load in self.readers.get(stage, ()):
            if load is None or self.scans.get(reader.stage) is not step.scan:
                raise ScheduleError(
                    f"stage {stage.key} is computed in the steps of {step.scan.key}, but {reader.stage.key} reads it "
                    "after them",
                    hint="let the scan return it, as the state of a second recurrence",
                )
            new = [self._span(i, self._environment(reader, fixed)) for i in load.indices]
            spans = new if spans is None else [self._union(a, b) for a, b in zip(spans, new, strict=True)]
        assert spans is not None, "stages without readers are skipped"
        for item, span in zip(stage.op.axis, spans, strict=True):
            plan.low[item], plan.sizes[item] = self._clip(item, span, fixed)

    def _extent(self, axis: IterVar) -> Linear:
        assert axis.dom is not None, "root axes have a range"
        return size_of(axis.dom.extent, self.space)

    # regions

    def _attach(self, plan: Plan) -> None:
        stage = plan.stage
        assert stage.attach is not None, "called for attached stages"
        parent, axis = stage.attach
        outer = self.plans.get(parent)
        if outer is None:
            raise ScheduleError(f"stage {stage.key} is computed at {parent.key}, which has no loops (it is inlined)")
        position = next((i for i, a in enumerate(parent.leaf) if a is axis), -1)
        if position < 0:
            message = (
                f"stage {stage.key} is computed at axis {axis.var.name}, which is no loop of {parent.key} any more"
            )
            raise ScheduleError(message, hint="compute it there after what reshapes the loops")
        if _is_tensorized(parent, position):
            raise ScheduleError(f"stage {stage.key} is computed at a loop of {parent.key} that is tensorized")
        loops = [v for a in parent.leaf[: position + 1] if (v := outer.loop_var(a)) is not None]
        plan.path = outer.path.union(loops)
        plan.chain = (*outer.chain, (parent, position))
        plan.threads = {**outer.threads, **_threads_of(outer, parent.leaf[: position + 1])}
        plan.scope = _scope(plan)
        fixed = plan.path
        if plan.scope == "shared":
            fixed = fixed.difference(v for t, (v, _) in plan.threads.items() if t.startswith("threadIdx"))
        spans = self._regions(plan, parent, position, fixed)
        for item, span in zip(stage.op.axis, spans, strict=True):
            plan.low[item], size = self._clip(item, span, fixed)
            plan.sizes[item] = self._rounded(plan.low[item], size, self._extent(item), stage.multiples.get(item, 1))

    def _rounded(self, low: Linear, size: Linear, whole: Linear, factor: int) -> Linear:
        """The size of a region as a multiple of a number, if the region begins and the dimension ends at multiples."""
        starts = (low.const, *low.terms.values(), whole.value if whole.value is not None else 1)
        if size.value is None or any(n % factor for n in starts):
            return size
        return Linear(-(-size.value // factor) * factor)

    def _regions(self, plan: Plan, parent: Stage, position: int, fixed: frozenset[Var]) -> list[Span | None]:
        stage = plan.stage
        spans: list[Span | None] | None = None
        environments: dict[Plan, dict[Var, Linear]] = {}
        cut: dict[Plan, dict[Var, Linear]] = {}
        moving = frozenset(v for v in self.space.high if v not in fixed)
        for reader, load in self.readers.get(stage, ()):
            inside = reader.stage is parent or any(s is parent and p >= position for s, p in reader.chain)
            if load is None or not inside:
                raise ScheduleError(
                    f"stage {stage.key} is computed at axis {parent.leaf[position].var.name} of {parent.key}, "
                    f"but stage {reader.stage.key} reads it outside that loop",
                    hint="compute it at a loop that encloses all its readers",
                )
            if reader not in environments:
                environments[reader] = self._environment(reader, fixed)
                cut[reader] = self._cut_axes(reader, moving)
            new = [
                self._fused_span(i, cut[reader], moving) or self._span(i, environments[reader]) for i in load.indices
            ]
            spans = new if spans is None else [self._union(a, b) for a, b in zip(spans, new, strict=True)]
        assert spans is not None, "stages without readers are skipped"
        return spans

    def _cut_axes(self, reader: Plan, moving: frozenset[Var]) -> dict[Var, Linear]:
        """The values of the reader's axes if it fuses some that move, so that they are quotients and remainders."""
        axes = (*reader.stage.op.axis, *reader.stage.op.reduce_axis)
        values = {a.var: reader.low[a].plus(reader.values[a]) for a in axes}
        return values if any(_is_cut(v, moving) for v in values.values()) else {}

    def _fused_span(self, index: Expr, values: dict[Var, Linear], moving: frozenset[Var]) -> Span | None:
        """The span of an index that counts over axes which the reader fuses, one after the other; else None.

        Each axis alone would range over its whole dimension: h * 7 + w, where h = x // 7 and w = x % 7.
        """
        value = self.space.evaluate(index, values) if values else None
        if value is None or _is_cut(value, moving):
            return None
        return self.space.interval(value, value.vars & moving)

    def _environment(self, reader: Plan, fixed: frozenset[Var]) -> dict[Var, Linear]:
        """Axes of the reader as values of the fixed loops plus one variable for all that moves."""
        space = self.space
        result: dict[Var, Linear] = {}
        for axis in (*reader.stage.op.axis, *reader.stage.op.reduce_axis):
            value = reader.low[axis].plus(reader.values[axis])
            moving = frozenset(v for v in value.vars if v in space.high and v not in fixed)
            result[axis.var] = self._moving(reader, axis, value, moving) if moving else value
        return result

    def _moving(self, reader: Plan, axis: IterVar, value: Linear, moving: frozenset[Var]) -> Linear:
        space = self.space
        still = Linear(value.const, {a: c for a, c in value.terms.items() if not _vars_of(a) & moving})
        rest = Linear(0, {a: c for a, c in value.terms.items() if _vars_of(a) & moving})
        span = space.interval(rest, moving)
        first, size = reader.low[axis], reader.sizes[axis]
        if span is None:
            return space.ranged(axis.var.name, ZERO, self._extent(axis).shifted(-1))
        low, high = span
        if first.value is not None and size.value is not None and still.value is not None and high.value is not None:
            high = Linear(min(high.value, first.value + size.value - 1 - still.value))
        elif not any(v in space.high for v in still.vars) and high.value is None:
            high = first.plus(size).shifted(-1).minus(still)
        step = gcd(*rest.terms.values()) if low.value is not None and high.value is not None else 1
        moved = space.ranged(axis.var.name, space.divide(low, Linear(step)), space.divide(high, Linear(step)))
        return still.plus(moved.scaled(step))

    def _span(self, index: Expr, environment: dict[Var, Linear]) -> Span | None:
        value = self.space.evaluate(index, environment)
        if value is None:
            return None
        return self.space.interval(value, self._ranged(value, environment))

    def _ranged(self, value: Linear, environment: dict[Var, Linear]) -> frozenset[Var]:
        fresh: set[Var] = set()
        for item in environment.values():
            fresh.update(a for a in item.terms if isinstance(a, Var) and a in self.space.fresh)
        return value.vars & fresh

    def _union(self, a: Span | None, b: Span | None) -> Span | None:
        if a is None or b is None:
            return None
        low, high = self._least(a[0], b[0]), self._least(a[1].scaled(-1), b[1].scaled(-1))
        return None if low is None or high is None else (low, high.scaled(-1))

    def _least(self, a: Linear, b: Linear) -> Linear | None:
        low, high = self.space.limits(a.minus(b))
        if high is not None and high <= 0:
            return a
        return b if low is not None and low >= 0 else None

    def _clip(self, axis: IterVar, span: Span | None, fixed: frozenset[Var]) -> tuple[Linear, Linear]:
        """The region inside the dimension, as minimum and extent."""
        whole = self._extent(axis)
        if span is None:
            return ZERO, whole
        low, high = span
        if low.value is not None:
            low = Linear(max(0, low.value))
        if high.value is not None and whole.value is not None:
            high = Linear(min(high.value, whole.value - 1))
        extent = high.minus(low).shifted(1)
        if any(v in self.space.high for v in extent.vars):
            bound = self.space.limits(extent)[1]
            if bound is None:
                return ZERO, whole
            extent = Linear(bound)
        if extent.value is not None and whole.value is not None and extent.value >= whole.value:
            return ZERO, whole
        if any(v in self.space.high and v not in fixed for v in low.vars):
            return ZERO, whole
        return low, Linear(max(extent.value, 0)) if extent.value is not None else extent

    # loops

    def _loops(self, plan: Plan) -> None:
        stage, space = plan.stage, self.space
        for axis in stage.op.reduce_axis:
            assert axis.dom is not None, "reduction axes have a range"
            plan.low[axis] = size_of(axis.dom.min, space)
            plan.sizes[axis] = self._extent(axis)
        plan.sizes = derive_extents(stage, plan.sizes, space)
        for axis in stage.leaf:
            plan.leaves[axis] = self._leaf(plan, axis)
        plan.values = derive_values(stage.relations, plan.leaves, plan.sizes, space)
        plan.guards = self._guards(plan)

    def _leaf(self, plan: Plan, axis: IterVar) -> Linear:
        size = plan.sizes[axis]
        notes = plan.stage.notes.get(axis)
        if notes is not None and notes.kind is LoopKind.VECTORIZED and size.value is None:
            raise ScheduleError(
                f"vectorize on stage {plan.stage.key}: the extent of axis {axis.var.name} is not constant",
                hint="split it by a constant factor first",
            )
        if notes is not None and notes.thread is not None:
            shared = plan.threads.get(notes.thread.thread_tag)
            if shared is not None:
                own_copy = axis.kind != "reduce" and self._has_own_copy(plan, axis, notes.thread.thread_tag)
                return ZERO if own_copy else Linear(0, {shared[0]: 1})
        elif size.value == 1 and (notes is None or not notes.pragmas):
            return ZERO
        return Linear(0, {self.space.loop_var(axis.var.name, axis.var.dtype, size): 1})

    def _has_own_copy(self, plan: Plan, axis: IterVar, tag: str) -> bool:
        """Whether each work-item of the loop around the stage computes the one element along an axis for itself.

        Otherwise they fill the memory together; refused where they are too few, or do not see what others store.
        """
        (_, count), size = plan.threads[tag], plan.sizes[axis]
        if size.value == 1 and not _sees(plan, tag):
            return True
        message = f"bind on stage {plan.stage.key}: axis {axis.var.name} is bound to {tag}, as is a loop around it"
        if not self.space.at_most(size, count):
            many = ", ".join(str(n.value) if n.value is not None else "unknown" for n in (size, count))
            hint = "split the axis by the number of work-items"
            raise ScheduleError(f"{message}, but their extents are {many}", hint=hint)
        if not _sees(plan, tag):
            what = "each group" if tag.startswith("blockIdx") else "each work-item"
            hint = f'set_scope("shared") on {plan.stage.key}' if tag.startswith("threadIdx") else "compute it at root"
            raise ScheduleError(
                f"{message}, but {what} has a copy of its own", hint=f"leave the axis unbound, or {hint}"
            )
        return False

    def _guards(self, plan: Plan) -> list[Guard]:
        stage, space = plan.stage, self.space
        wanted = split_guards(stage.relations, plan.values, plan.sizes, space)
        beyond = unguarded(stage)
        for axis in stage.leaf:
            notes = stage.notes.get(axis)
            shared = (
                plan.threads.get(notes.thread.thread_tag) if notes is not None and notes.thread is not None else None
            )
            if shared is not None and shared[1].key != plan.sizes[axis].key and plan.leaves[axis] is not ZERO:
                wanted.append((plan.leaves[axis], plan.sizes[axis]))
        for axis in stage.op.axis:
            value = plan.low[axis].plus(plan.values[axis])
            if axis not in beyond:
                wanted.append((value, self._extent(axis)))
            low = space.limits(value)[0]
            if low is None or low < 0:
                span = space.interval(value, value.vars)
                if span is None or (space.limits(span[0])[0] or 0) < 0:
                    wanted.append((value.scaled(-1), Linear(1)))
        retained: dict[object, Guard] = {}
        for value, extent in wanted:
            if not space.at_most(value, extent.shifted(-1)):
                retained.setdefault(value.minus(extent).key, (value, extent))
        return list(retained.values())


def _vars_of(atom: object) -> frozenset[Var]:
    return frozenset((atom,)) if isinstance(atom, Var) else atom.vars  # type: ignore[attr-defined]


def _threads_of(plan: Plan, leaves: Iterable[IterVar]) -> dict[str, tuple[Var, Linear]]:
    result = {}
    for axis in leaves:
        notes = plan.stage.notes.get(axis)
        if notes is not None and notes.thread is not None:
            var = plan.loop_var(axis)
            if var is not None:  # else it is a loop around the stage that has the thread
                result[notes.thread.thread_tag] = (var, plan.sizes[axis])
    return result


def _scope(plan: Plan) -> str:
    """Where an attached stage lives: what work-items fill together is shared by a group, unless the schedule says."""
    stage = plan.stage
    own = [n.thread.thread_tag for a in stage.leaf if (n := stage.notes.get(a)) is not None and n.thread is not None]
    if stage.scope or not plan.threads or not any(tag.startswith("threadIdx") for tag in own):
        return stage.scope
    return "shared" if all(tag.startswith("blockIdx") for tag in plan.threads) else "local"


def _sees(plan: Plan, tag: str) -> bool:
    """Whether work-items that differ along an axis of the grid share the memory of an attached stage."""
    return plan.scope == "shared" and tag.startswith("threadIdx")


def _is_tensorized(stage: Stage, position: int) -> bool:
    return any((n := stage.notes.get(a)) is not None and n.intrinsic is not None for a in stage.leaf[: position + 1])


def _is_cut(value: Linear, moving: frozenset[Var]) -> bool:
    """Whether it takes quotients or remainders of what moves."""
    return any(isinstance(term, Atom) and term.vars & moving for term in value.terms)
