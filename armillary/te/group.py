"""Groups of stages that move together: `g = s.create_group(outputs=D, inputs=A); g.compute_at(s[E], axis)`.

In: a schedule, output and input tensors. Out: the stages on the paths between them. Invariant: a group is only a name
for its stages: moving it moves those that are at root, and the schedule records one directive for each, so replaying
needs no groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armillary.errors import ScheduleError
from armillary.te.operation import PlaceholderOp
from armillary.te.stage import Stage
from armillary.tir.expr import IterVar

if TYPE_CHECKING:
    from armillary.te.schedule import Schedule
    from armillary.te.tensor import Tensor


class StageGroup:
    """Stages that `compute_at` and `compute_root` move together; those attached to one another stay so.

    `group` is the group around it, `attach_stage` the stage in whose loop it is computed.
    """

    def __init__(self, stages: list[Stage]) -> None:
        self.stages = tuple(stages)
        self.group: StageGroup | None = None
        self.attach_stage: Stage | None = None
        self.num_child_stages = 0
        self._join()

    def _join(self) -> None:
        """Take its place among the groups of its stages: inside the one they share, around those of some of them."""
        own = {stage.group for stage in self.stages}
        shared = own.pop() if len(own) == 1 else None
        if shared is not None and set(shared.stages) > set(self.stages):
            self.group, self.num_child_stages = shared, len(self.stages)
            shared.num_child_stages -= len(self.stages) - 1
            for stage in self.stages:
                stage.group = self
            return
        children: dict[Stage | StageGroup, None] = {}
        for stage in self.stages:
            child: Stage | StageGroup = stage
            while child.group is not None:
                child = child.group
            children[child] = None
        for child in children:
            child.group = self
        self.num_child_stages = len(children)

    def compute_at(self, parent: Stage, axis: IterVar) -> None:
        """Compute the members that are at root inside a loop of their consumer `parent`."""
        if parent in self.stages:
            raise ScheduleError(f"compute_at on a group: {parent.key} is one of its stages")
        self.attach_stage = parent
        for stage in self.stages:
            if not stage.is_inline and (stage.attach is None or stage.attach[0] not in self.stages):
                stage.compute_at(parent, axis)

    def compute_root(self) -> None:
        """Compute members that are attached outside the group at root again."""
        self.attach_stage = None
        for stage in self.stages:
            if stage.attach is not None and stage.attach[0] not in self.stages:
                stage.compute_root()

    def __repr__(self) -> str:
        return f"StageGroup({', '.join(s.key for s in self.stages)})"


def create_group(
    schedule: Schedule, outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor], include_inputs: bool
) -> StageGroup:
    """The stages between `inputs` and `outputs`: outputs included, inputs if asked for."""
    ends, starts = _stages(schedule, outputs), set(_stages(schedule, inputs))
    order = schedule.in_order()
    after = set(starts)
    for stage in order:
        if any(source in after for source in schedule.sources(stage)):
            after.add(stage)
    missing = next((s for s in ends if s not in after or (s in starts and not include_inputs)), None)
    if missing is not None:
        raise ScheduleError(f"create_group: output {missing.key} does not depend on the inputs")
    operations, stack = set(ends), list(ends)
    while stack:
        for source in schedule.sources(stack.pop()):
            if source in after and source not in operations and (include_inputs or source not in starts):
                operations.add(source)
                stack.extend([source] if source not in starts else [])
    return StageGroup([s for s in order if s in operations and not isinstance(s.op, PlaceholderOp)])


def _stages(schedule: Schedule, tensors: object) -> list[Stage]:
    ends = list(tensors) if isinstance(tensors, tuple | list) else [tensors]
    if not ends:
        raise ScheduleError("create_group needs inputs and outputs")
    return [schedule[t] for t in ends]
