"""What depends on constants and on sizes alone, and is worth a kernel of its own: it runs when sizes are bound.

In: the expressions of a function in post order. Out: the values that readers which depend on inputs take from memory:
floats of a few operators. Invariant: functions without named sizes have none (their constants are folded); positions,
and comparisons of them, which a processor computes about as fast as it reads them, stay in their readers. Who runs it:
driver/load_time.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.relay.analysis.bind_sizes import attr_sizes
from armillary.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from armillary.relay.op import Op, has
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType
from armillary.relay.walk import children

FEWEST = 3  # operators of a value that is worth a kernel
_OF_RUNS = (Fact.BINDS, Fact.COMPARES, Fact.RUNS_AFTER, Fact.DYNAMIC)


class OfSizes:
    """Of the expressions that depend on no input: whether sizes are in them, and how many operators they take."""

    def __init__(self, order: Sequence[Expr], is_outside: Callable[[Expr], bool]) -> None:
        self.early: dict[int, tuple[bool, int]] = {}
        for expr in order:
            if is_outside(expr):
                self._add(expr)

    def _add(self, expr: Expr) -> None:
        parts = [id(child) for child in children(expr) if not isinstance(child, Constant | Op)]
        is_call = isinstance(expr, Call) and isinstance(expr.op, Op)
        if not (is_call or isinstance(expr, Tuple | TupleGetItem)) or any(part not in self.early for part in parts):
            return
        has_sizes, count = any(self.early[part][0] for part in parts), sum(self.early[part][1] for part in parts)
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            if expr.op.stateful or any(has(expr, fact) for fact in _OF_RUNS):
                return
            has_sizes, count = has_sizes or any(True for _ in attr_sizes(expr.attrs)), count + 1
        self.early[id(expr)] = has_sizes, count

    def is_apart(self, value: Expr, reader: Expr) -> bool:
        """Whether a value is computed in a kernel that does not join its reader's, which depends on inputs."""
        has_sizes, count = self.early.get(id(value), (False, 0))
        if not has_sizes or count < FEWEST or id(reader) in self.early:
            return False
        ty = value.checked_type
        return isinstance(ty, TensorType) and ty.dtype.is_float
