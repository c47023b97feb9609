"""Schedules: how tensors are made. `s = te.create_schedule(C.op)`, then `s[C].split(…)`, `s.cache_write(C, "local")`.

In: output operations. Out: stages in dependence order, producers first. Invariant: primitives are checked when called
and recorded as directives (`s.directives()`); `print(s)` derives and shows the loops of that moment. Per-stage
primitives: `te/stage.py`. New stages (caches, rfactor): `te/dataflow.py`. Loops: `te/lower.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from armillary.base import slots
from armillary.base.boundary import boundary, bounded
from armillary.base.lazy import lazy_names
from armillary.errors import ScheduleError
from armillary.te import dataflow
from armillary.te.directives import Directive, apply_directives
from armillary.te.group import StageGroup, create_group
from armillary.te.operation import ComputeOp, ExternOp, Operation, ScanOp
from armillary.te.show import show_schedule
from armillary.te.stage import Stage
from armillary.te.tensor import Tensor
from armillary.text.html import source_html
from armillary.tir.expr import IterVar
from armillary.transform import PassContext, register_config_option

T = TypeVar("T")
KEEP_SCHEDULE_RECORD = register_config_option(
    "te.keep_schedule_record", bool, False, "schedules tell what they were before each primitive (schedule_record)"
)
__all__ = ["AutoInlineInjective", "Schedule", "Stage", "create_schedule"]


@bounded
class Schedule:
    """The stages of a computation. `outputs` are the operations asked for."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs = tuple(outputs)
        self.stages: list[Stage] = []
        self.stage_map: dict[Operation, Stage] = {}
        self.keeps_record = bool(PassContext.current().get(KEEP_SCHEDULE_RECORD))
        self.groups: list[StageGroup] = []
        self._directives: list[Directive] = []
        self._threads: dict[str, IterVar] = {}
        for op in in_order(self.outputs, producers):
            self.add_stage(op, len(self.stages))

    def __getitem__(self, item: object) -> Stage:
        """The stage of a tensor or operation."""
        op = item.op if isinstance(item, Tensor) else item
        result = self.stage_map.get(op) if isinstance(op, Operation) else None
        if result is None:
            name = getattr(item, "name", repr(item))
            raise ScheduleError(
                f"{name} is not part of this schedule", hint=f"its stages are: {', '.join(s.key for s in self.stages)}"
            )
        return result

    @boundary("Schedule.add_stage", arguments=True, first=1)
    def add_stage(self, op: Operation, position: int) -> Stage:
        """Add a stage of its own for `op` (used when caches are made)."""
        taken, key, count = {s.key for s in self.stages}, op.name, 1
        while key in taken:
            count += 1
            key = f"{op.name}#{count}"
        result = Stage(self, op, key)
        self.stages.insert(position, result)
        self.stage_map[op] = result
        return result

    def stage(self, key: str) -> Stage:
        """The stage of this key (the operation's name; `name#2` for the second of one name)."""
        for item in self.stages:
            if isinstance(key, str) and item.key == key:
                return item
        raise ScheduleError(f"no stage {key!r}", hint=f"the stages are: {', '.join(s.key for s in self.stages)}")

    def directives(self) -> tuple[Directive, ...]:
        """Everything the schedule was told, in order."""
        return tuple(self._directives)

    @property
    def primitive_record(self) -> list[str]:
        """The primitives in order, behind "vanilla"; empty where te.keep_schedule_record was off."""
        return ["vanilla", *(d.primitive for d in self._directives)] if self.keeps_record else []

    @property
    def schedule_record(self) -> list[Schedule]:
        """The schedule as it was before each of its primitives, and as it is; kept as `primitive_record` is."""
        message = self.directives()
        known = {
            n.intrinsic.name: n.intrinsic for s in self.stages for n in s.notes.values() if n.intrinsic is not None
        }
        count = len(message) + 1 if self.keeps_record else 0
        return [apply_directives(Schedule(self.outputs), message[:k], known) for k in range(count)]

    def record(self, directive: Directive) -> None:
        """Append a directive (called by primitives, after their checks)."""
        self._directives.append(directive)

    @boundary("Schedule.remember_thread", arguments=True, first=1)
    def remember_thread(self, thread: IterVar) -> None:
        """Know a thread axis by its tag."""
        self._threads.setdefault(thread.thread_tag, thread)

    def thread(self, tag: str) -> IterVar:
        """The thread axis of this tag; the same one each time."""
        return self._threads.setdefault(tag, dataflow.thread(tag))

    def is_output(self, stage: Stage) -> bool:
        """Whether the stage computes an output."""
        return any(self.stage_map[op] is stage for op in self.outputs)

    def source(self, reader: Stage, tensor: Tensor) -> Tensor:
        """The tensor that `reader` really reads for `tensor`, after caches and factoring."""
        if not isinstance(reader, Stage) or not isinstance(tensor, Tensor):
            raise ScheduleError(f"source: got {reader!r} and {tensor!r}, wanted a stage and a tensor")
        redirected = reader.redirects.get(tensor, tensor)
        stage = self.stage_map[redirected.op]
        return stage.op.output(redirected.value_index)

    def sources(self, reader: Stage) -> list[Stage]:
        """The stages that `reader` reads directly."""
        if not isinstance(reader, Stage):
            raise ScheduleError(f"sources: got {reader!r}, wanted a stage")
        return list(dict.fromkeys(self.stage_map[self.source(reader, t).op] for t in reader.op.input_tensors))

    def readers(self, producer: Stage) -> list[Stage]:
        """The stages that read `producer` directly."""
        return [stage for stage in self.stages if any(item is producer for item in self.sources(stage))]

    def reads_from(self, reader: Stage, producer: Stage) -> bool:
        """Whether `reader` depends on `producer`."""
        seen, stack = set(), self.sources(reader)
        while stack:
            item = stack.pop()
            if item is producer:
                return True
            if item not in seen:
                seen.add(item)
                stack.extend(self.sources(item))
        return False

    def in_order(self) -> list[Stage]:
        """All stages, producers before their readers."""
        return in_order(self.stages, self.sources)

    def cache_read(self, tensor: Tensor, scope: str, readers: object) -> Tensor:
        """A copy of `tensor` in `scope`, which the readers use instead."""
        return dataflow.cache_read(self, tensor, scope, readers)

    def cache_write(self, tensor: Tensor | list[Tensor] | tuple[Tensor, ...], scope: str) -> Any:
        """Compute the tensor in `scope`; its own stage becomes the copy to its old place."""
        return dataflow.cache_write(self, tensor, scope)

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Any:
        """Reduce over the other axes into a tensor with `axis` as a data axis; then over `axis`."""
        return dataflow.rfactor(self, tensor, axis, factor_axis)

    def create_group(
        self, outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor], include_inputs: bool = False
    ) -> StageGroup:
        """The stages between input and output tensors, to be moved together."""
        result = create_group(self, outputs, inputs, include_inputs)
        self.groups.append(result)
        return result

    def normalize(self) -> Schedule:
        """The schedule itself: its loops always start at zero."""
        return self

    def __str__(self) -> str:
        return show_schedule(self)

    def __reduce__(self) -> tuple[object, ...]:
        return _stored, (slots.save_schedule(self),)

    def _repr_html_(self) -> str:
        return source_html(show_schedule(self), "Schedule")


def _stored(text: str) -> Schedule:
    """The schedule of a pickle, which names this function."""
    return slots.read_schedule(text)


def create_schedule(ops: Operation | Tensor | Sequence[Operation | Tensor]) -> Schedule:
    """The plain schedule of one or more output operations (or tensors)."""
    operations: Sequence[object] = ops if isinstance(ops, tuple | list) else [ops]
    order = []
    for item in operations:
        op = item.op if isinstance(item, Tensor) else item
        if not isinstance(op, Operation):
            raise ScheduleError(f"te.create_schedule: got {op!r}, wanted operations", hint="write C.op")
        order.append(op)
    if not order:
        raise ScheduleError("te.create_schedule: no outputs given")
    return Schedule(tuple(dict.fromkeys(order)))


def AutoInlineInjective(schedule: Schedule) -> None:  # noqa: N802  (the name scripts use)
    """Inline every stage at root that is no output and no reduction, unless something asks for its storage."""
    for stage in schedule.stages:
        is_plain = isinstance(stage.op, ComputeOp) and not stage.op.is_reduction and not schedule.is_output(stage)
        is_free = stage.attach is None and not stage.is_inline and not stage.scope and not stage.double_buffered
        in_memory = any(isinstance(reader.op, ExternOp | ScanOp) for reader in schedule.readers(stage))
        if is_plain and is_free and not in_memory:
            stage.compute_inline()


AutoInlineElemWise = AutoInlineBroadcast = AutoInlineInjective


def producers(op: Operation) -> list[Operation]:
    """The operations whose results one reads."""
    return [tensor.op for tensor in op.input_tensors]


def in_order(roots: Sequence[T], sources: Callable[[T], Sequence[T]]) -> list[T]:
    """What `roots` need, producers first; iterative, as chains may be long."""
    done: dict[T, None] = {}
    stack = [(item, False) for item in reversed(roots)]
    while stack:
        item, ready = stack.pop()
        if ready:
            done.setdefault(item)
        elif item not in done:
            stack.append((item, True))
            stack.extend((source, False) for source in reversed(sources(item)) if source not in done)
    return list(done)


__getattr__, __dir__ = lazy_names(  # steps of lowering, under the names of Relay-era scripts
    __name__,
    {
        "InferBound": "armillary.te.bounds:loop_ranges",
        "ScheduleOps": "armillary.te.stages.realize:schedule_ops",
        "BuildProvide": "armillary.te.stages.realize:build_provide",
        "MakePipeline": "armillary.te.stages.realize:make_pipeline",
        "MergeNest": "armillary.tir.blocks.producers:merge_nest",
        "SchedulePostProcToPrimFunc": "armillary.te.stages.realize:function_of_stages",
        "Buffer": "armillary.tir.stmt:Buffer",
        **{name: f"armillary.te.stage:{name}" for name in ("Fuse", "Singleton", "Split")},
    },
)
