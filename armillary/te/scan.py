"""Recurrences: which stages a `te.scan` runs at each step, and the loops of its start.

In: a schedule, or the buffers of a scan. Out: for each stage that depends on a scan's state, the scan it belongs to;
the statement that copies the first states. Invariant: a stage belongs to a scan if it lies between its state and its
update; it is computed inside the time loop, as much of it as one step needs. Plans: `te/bounds.py`; the time loop:
`te/lower.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.errors import ScheduleError
from armillary.te.affine import Linear
from armillary.te.operation import ScanOp
from armillary.te.stage import Stage
from armillary.te.tensor import Tensor
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Expr, Var
from armillary.tir.stmt import Buffer, BufferStore, For, LoopKind, Stmt, seq

if TYPE_CHECKING:
    from armillary.te.schedule import Schedule


@dataclass(frozen=True)
class Step:
    """The time loop that a stage runs in: its scan, loop variable (from 0) and the first computed index."""

    scan: Stage
    var: Var
    first: Linear
    count: Linear

    @property
    def now(self) -> Linear:
        """The index along the time dimension that a step computes."""
        return self.first.plus(Linear(0, {self.var: 1}))


def scan_op(stage: Stage) -> ScanOp:
    """The operation of a scan's stage."""
    assert isinstance(stage.op, ScanOp), "called for scans"
    return stage.op


def stages_by_scan(schedule: Schedule) -> dict[Stage, Stage]:
    """The scan of each stage that reads a state, directly or through others, or computes an update."""
    result: dict[Stage, Stage] = {}
    for scan in schedule.in_order():
        if not isinstance(scan.op, ScanOp):
            continue
        states = {schedule.stage_map[s.op] for s in scan.op.state if s.op in schedule.stage_map}
        updates = [schedule.stage_map[schedule.source(scan, u).op] for u in scan.op.update]
        for stage in _between(schedule, updates, states):
            if result.setdefault(stage, scan) is not scan:
                raise ScheduleError(f"stage {stage.key} takes part in two scans, {result[stage].key} and {scan.key}")
    return result


def _between(schedule: Schedule, updates: list[Stage], states: set[Stage]) -> list[Stage]:
    """The updates, and whatever they read that reads a state."""
    depends = set(states)
    for stage in schedule.in_order():
        if any(source in depends for source in schedule.sources(stage)):
            depends.add(stage)
    result, stack = dict.fromkeys(updates), list(updates)
    while stack:
        for source in schedule.sources(stack.pop()):
            if source in depends and source not in states and source not in result:
                result[source] = None
                stack.append(source)
    return list(result)


def update_of(scan: Stage, schedule: Schedule, stage: Stage) -> int | None:
    """Which update of the scan a stage computes, if one."""
    sources = [schedule.source(scan, u) for u in scan_op(scan).update]
    return next((k for k, t in enumerate(sources) if t.op is stage.op), None)


def copy_start(target: Buffer, source: Buffer, start: Tensor) -> Stmt:
    """The first rows of a state, from its init."""
    variables = tuple(Var(f"i{k}", extent.dtype) for k, extent in enumerate(start.shape))
    indices: tuple[Expr, ...] = variables
    body: Stmt = BufferStore(target, BufferLoad(source, indices), indices)
    for var, extent in zip(reversed(variables), reversed(start.shape), strict=True):
        body = For(var, T.const(0, var.dtype), extent, LoopKind.SERIAL, body)
    return seq(body)
