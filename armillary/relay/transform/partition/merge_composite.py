"""merge-composite: what matches a library's patterns becomes composite functions.

In: a module and rows of (name, pattern) or (name, pattern, check), or the name of a registered table. Out: the module
with each match in a function whose attribute `Composite` is the row's name, called in its place. Earlier rows go first;
`check(expression)` answers None, or why a match is left alone (or True, False). Invariant: a match's inner values are
used nowhere else, but for constants, of which each match has its own.

    def @main(%x: Tensor[(1, 2, 2, 2), float32], %w: Tensor[(2, 2, 1, 1), float32]) {
      %0 = nn.conv2d(%x, %w);
      %1 = nn.relu(%0);
      negative(%1)
    }
    ->
    def @main(%x: Tensor[(1, 2, 2, 2), float32], %w: Tensor[(2, 2, 1, 1), float32]) {
      %2 = fn (%p0: Tensor[(1, 2, 2, 2), float32], %p1: Tensor[(2, 2, 1, 1), float32], Composite="lib.conv2d",
               PartitionedFromPattern="nn.conv2d_nn.relu_") -> Tensor[(1, 2, 2, 2), float32] {
        %0 = nn.conv2d(%p0, %p1);
        nn.relu(%0)
      };
      %3 = %2(%x, %w);
      negative(%3)
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function
from armillary.relay.offload_tables import get_pattern_table
from armillary.relay.pattern import DFPattern, partition
from armillary.relay.transform._rules import on_functions
from armillary.transform import define_pass


@define_pass("merge-composite")
def merge_composite(module: IRModule, *, pattern_table: str | Sequence[Any] = ()) -> IRModule:  # Any: rows
    """Outline what matches the rows of a table."""
    rows = get_pattern_table(pattern_table) if isinstance(pattern_table, str) else pattern_table
    checked = [_row(row) for row in rows]

    def change(function: Function) -> Expr:
        result: Expr = function
        for name, pattern, check in checked:
            result = partition(pattern, result, {"Composite": name}, check)
        return result

    return on_functions(module, change)


def _row(row: Any) -> tuple[str, DFPattern, Any]:
    well_formed = isinstance(row, tuple | list) and 2 <= len(row) <= 3 and isinstance(row[0], str)
    check = row[2] if well_formed and len(row) == 3 else None
    if not well_formed or not isinstance(row[1], DFPattern) or not (check is None or callable(check)):
        raise ConfigError(f"merge-composite: expected (name, pattern) or (name, pattern, check), got {row!r}")
    return row[0], row[1], check
