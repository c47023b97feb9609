"""What names parts of a schedule: blocks, loops, numbers that were sampled.

In: a function's name and a block's or a loop's. Out: values that primitives take. Invariant: a block is known by its
name and a loop by its variable, so a handle stays right in a copy of the schedule; a sampled number is a variable that
the schedule has a value for, and any expression over such numbers is one.
"""

from __future__ import annotations

from armillary.base.record import record
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S

ExprRV = E.Var


@record(slots=True)
class BlockRV:
    """A block, by its name in a function."""

    function: str = "main"
    name: str = ""


_NOWHERE = build.var("nowhere")


@record(slots=True)
class LoopRV:
    """A loop, by its variable in a function."""

    function: str = "main"
    var: E.Var = _NOWHERE


@record(slots=True)
class StmtSRef:
    """The statement that a block or a loop is now."""

    stmt: S.Stmt

    def same_as(self, other: StmtSRef) -> bool:
        """Whether both are one statement."""
        return self.stmt is other.stmt


INLINE, ROOT = build.var("inline"), build.var("root")  # of loops that say: into the readers, nowhere else
