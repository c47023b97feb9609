"""When the values of a run program are alive, counted in steps: its statements in the order in which they stand.

In: a program. Out: a `Step` for each statement, bodies included, and the first and last step of each slot that
statements write. Invariant: a value that a loop reads from outside lives until the loop ends, and the outputs of a
branch or loop from before its bodies to behind them. Calls that run at the same time are a concurrent group: neighbours
in one body that do not read one another's results. What a member reads or writes lives while any of them runs, so that
the runtime, which looks at the places alone (runtime/native/arm_concurrent.c), may give a group to the threads as one
job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.base.record import record
from armillary.program.nodes import BEFORE_RUNS, Call, Loop, Move, Program, Statement, Value, bodies, reads, writes

MOST = 8  # calls of a group: ARM_MAX_LOOPS of the runtime
Span = tuple[int, int]  # of steps, both included


@record(frozen=False, slots=True)
class Step:
    """A statement, the last step inside it, the loops around it (outermost first), and its concurrent group."""

    statement: Statement
    last: int
    loops: tuple[Span, ...]
    group: Span


def steps_of(program: Program) -> list[Step]:
    """The statements of a program in the order of their steps."""
    walk = _Walk({v.name: v for v in program.values})
    walk.body(program.body, ())
    return walk.steps


class _Walk:
    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values
        self.steps: list[Step] = []
        self.makers: dict[
            str, frozenset[int]
        ] = {}  # the calls whose results a value shows: behind views and joins, too

    def body(self, statements: Sequence[Statement], loops: tuple[Span, ...]) -> None:
        members: list[int] = []
        for statement in statements:
            members = self.statement(statement, loops, members)

    def statement(self, statement: Statement, loops: tuple[Span, ...], members: list[int]) -> list[int]:
        """Append the steps of a statement; gives the members of the group that may go on behind it."""
        index, inside = len(self.steps), loops
        self.steps.append(Step(statement, index, loops, (index, index)))
        parts = bodies(statement)
        if isinstance(statement, Loop):
            inside = (*loops, (index, index + _count(statement.body)))
        for part in parts:
            self.body(part, inside)
        self.steps[index].last = len(self.steps) - 1
        sources = frozenset[int]().union(*(self.makers.get(name, frozenset()) for name in reads(statement)))
        if self._runs_before(statement):
            return members
        if isinstance(statement, Move) and statement.kind in ("view", "join"):
            self.makers[statement.output] = sources
            return members
        self.makers.update(dict.fromkeys(writes(statement), frozenset((index,))))
        if not isinstance(statement, Call):
            return []
        if len(members) == MOST or not sources.isdisjoint(members):
            members = []
        members = [*members, index]
        for step in self.steps[members[0] :]:
            step.group = (members[0], index)
        return members

    def _runs_before(self, statement: Statement) -> bool:
        return any(self.values[name].storage.lifetime in BEFORE_RUNS for name in writes(statement))


def _count(body: Sequence[Statement]) -> int:
    return sum(1 + sum(map(_count, bodies(statement))) for statement in body)


def lifetimes(program: Program) -> dict[int, Span]:
    """The first and the last step in which each slot is alive that a statement writes."""
    steps, slots = steps_of(program), {v.name: v.storage.slot for v in program.values}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, step in enumerate(steps):
        for slot in (slots[name] for name in reads(step.statement)):
            if slot in first:
                again = [end for begin, end in step.loops if first[slot] <= begin]  # read in each iteration
                last[slot] = max(last[slot], index, *again)
        for slot in (slots[name] for name in writes(step.statement)):
            first.setdefault(slot, index)
            last[slot] = max(last.get(slot, 0), step.last)
    return {slot: (steps[begin].group[0], steps[last[slot]].group[1]) for slot, begin in first.items()}
