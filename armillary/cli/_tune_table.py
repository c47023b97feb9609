"""What `armc tune` says of tasks in the end: operations per second before and after, gain, trials, part of the network.

In: what is known of each task's trials. Out: lines of text. Invariant: the gain of a task is that of its kernel alone;
`of a run` is what all its calls together gain, before the network itself was timed.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.autotvm.task.task import TENSOR, Task
from armillary.autotvm.tuner.gains import Gains, Row

_HEAD = ("task", "calls", "default", "best GFLOP/s", "gain", "trials", "of a run")


def named(task: Task) -> str:
    """A task with the shapes of its operands."""
    tensors = [a for a in task.args if isinstance(a, tuple) and len(a) == 3 and a[0] == TENSOR]
    return f"{task.name}({', '.join('x'.join(map(str, shape)) for _, shape, _ in tensors)})"


def closing_table(gains: Gains) -> list[str]:
    """The lines of the table; none without trials."""
    rows = [_cells(row) for row in gains.rows()]
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    return [_line(cells, widths) for cells in (_HEAD, *rows)]


def _cells(row: Row) -> tuple[str, ...]:
    gain = f"{100 * (row.best / row.own - 1):+.1f} %" if row.own and row.best else "-"
    own, best = (f"{rate / 1e9:.1f}" if rate else "-" for rate in (row.own, row.best))
    return named(row.task), str(row.task.calls), own, best, gain, str(row.trials), f"{1e3 * row.gained:.3f} ms"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  ".join((cells[0].ljust(widths[0]), *rest))
