"""A schedule as readable text: the loop nest of the moment.

In: a schedule. Out: text, one line per loop, attached stages inside the loops they are computed at. Invariant: showing
never fails: what makes a schedule impossible to lower is shown instead. Loops: `te/bounds.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.errors import ArmillaryError
from armillary.te.affine import Linear, to_expr
from armillary.te.bounds import Plan, infer_bounds
from armillary.te.operation import ComputeOp, ExternOp, ScanOp
from armillary.te.stage import Stage, static_extent
from armillary.tir.expr import IntImm, IterVar, Var
from armillary.tir.stmt import LoopKind

if TYPE_CHECKING:
    from armillary.te.schedule import Schedule


def show_schedule(schedule: Schedule) -> str:
    """The text of `print(schedule)`."""
    try:
        plans, _ = infer_bounds(schedule)
    except ArmillaryError as error:
        return f"# cannot be lowered: {error.message}\n" + "\n".join(_stage_line(s) for s in schedule.stages)
    lines = [f"inline {s.key}" for s in schedule.stages if s.is_inline]
    steps = [p for p in plans if p.step is not None and not isinstance(p.stage.op, ScanOp) and p.stage.attach is None]
    for plan in plans:
        if plan.stage.attach is None and plan not in steps:
            lines.extend(_plan_lines(plan, 0))
            inside = [p for p in steps if p.step is plan.step]
            lines.extend(line for p in inside for line in _plan_lines(p, 2))
    return "\n".join(lines)


def _stage_line(stage: Stage) -> str:
    return f"{stage.key}: {', '.join(_axis_text(stage, a, static_extent(a)) for a in stage.leaf)}"


def _axis_text(stage: Stage, axis: IterVar, extent: object) -> str:
    notes = stage.notes.get(axis)
    kind = "" if notes is None or notes.kind is LoopKind.SERIAL else f" {notes.kind.value}"
    if notes is not None and notes.thread is not None:
        kind = f" {notes.thread.thread_tag}"
    marks = "" if notes is None else "".join(f" {name}={value}" for name, value in notes.pragmas)
    intrinsic = f" tensorized by {notes.intrinsic.name}" if notes is not None and notes.intrinsic is not None else ""
    reduce = " (reduce)" if axis.kind == "reduce" else ""
    return f"for {axis.var.name} in {extent if extent is not None else '?'}{kind}{reduce}{marks}{intrinsic}"


def _size_text(size: Linear) -> str:
    text = to_expr(size, next(iter(size.vars)).dtype if size.vars else IntImm(Var("x").dtype, 0).dtype)
    return str(size.value) if size.value is not None else " ".join(sorted(v.name for v in size.vars)) or str(text)


def _plan_lines(plan: Plan, depth: int) -> list[str]:
    stage = plan.stage
    lines = []
    shape = f"[{', '.join(_size_text(plan.sizes[a]) for a in stage.op.axis)}]"
    scope = f" in {stage.scope}" if stage.scope else ""
    if isinstance(stage.op, ScanOp) and plan.step is not None:
        time = f"for {plan.step.var.name} in {_size_text(plan.step.count)}"
        return ["  " * depth + f"scan {stage.key}:", "  " * (depth + 1) + time]
    kind = "extern " if isinstance(stage.op, ExternOp) else "compute "
    lines.append("  " * depth + f"{kind}{stage.key}{shape}{scope}:")
    if isinstance(stage.op, ComputeOp):
        for axis in stage.leaf:
            depth += 1
            lines.append("  " * depth + _axis_text(stage, axis, _size_text(plan.sizes[axis])))
            for inner in plan.attached.get(axis, ()):
                lines.extend(_plan_lines(inner, depth + 1))
    return lines
