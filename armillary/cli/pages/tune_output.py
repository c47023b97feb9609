"""What `armc tune` shows: while a task is tuned its line, in the end a table of all of them.

In: what is known of each task's trials, how many columns the terminal has. Out: on stderr a line that moves (elsewhere
than on a terminal one line when the task is done), and the lines of the table. Invariant: what does not fit is left
out, the least wanted first. The gain of a task is that of its kernel alone; `saved` is what all its calls together gain
in a run, before the network itself was timed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from armillary.autotvm.task.task import TENSOR, Task
from armillary.autotvm.tuner.callback import ProgressBar
from armillary.autotvm.tuner.gains import Gains, Row
from armillary.autotvm.tuner.tuner import Tuner
from armillary.base.lazy import deferred
from armillary.cli._console import is_terminal

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

with deferred():
    from rich import progress
    from rich.console import Console

# Columns of a terminal from which on there is room for: the whole text, a bar, the time left, the gain, the time spent.
_LONG, _BAR, _LEFT, _GAIN, _SPENT = 150, 105, 78, 64, 50


@contextmanager
def shown(trials: int, prefix: str, gains: Gains) -> Iterator[Any]:  # Any: a callback
    """Show the line of a task while the block runs."""
    if not is_terminal(sys.stderr):
        yield ProgressBar(trials, prefix, "G", sys.stderr, is_live=False)
        return
    console = Console(stderr=True)
    with progress.Progress(*columns(console.width), console=console) as bar:
        row = bar.add_task(_escaped(prefix), total=trials)
        current = 0.0

        def callback(tuner: Tuner, inputs: object, results: Any) -> None:
            nonlocal current
            good = [r for r in results if not r.error_no]
            current = tuner.task.flop / good[-1].mean if good else current
            text = line(console.width, prefix, current, tuner.best_flops, gains)
            bar.update(row, completed=tuner.trials, description=_escaped(text))

        yield callback


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


def columns(width: int) -> list[ProgressColumn]:
    """What stands in the line on a terminal of so many columns."""
    result: list[ProgressColumn] = [progress.TextColumn("{task.description}")]
    if width >= _BAR:
        result.append(progress.BarColumn(None))
    result.append(progress.MofNCompleteColumn())
    if width >= _SPENT:
        result.append(progress.TimeElapsedColumn())
    if width >= _LEFT:
        result += [progress.TextColumn("left"), progress.TimeRemainingColumn()]
    return result


def line(width: int, prefix: str, current: float, best: float, gains: Gains) -> str:
    """What stands before the number of trials; rates in operations per second."""
    if width >= _BAR:
        gain = gains.summary() if width >= _LONG else gains.brief()
        return f"{prefix} Current/Best: {current / 1e9:7.2f}/{best / 1e9:7.2f} GFLOPS, {gain}"
    rates = f"{prefix}{current / 1e9:.1f}/{best / 1e9:.1f} GFLOPS"
    return f"{rates}, {gains.brief()}" if width >= _GAIN else rates


_HEAD = ("task", "calls", "default", "best GFLOP/s", "gain", "trials", "saved")
_GAP = "  "
_LEAST = 16  # columns for the name of a task, however narrow the terminal is


def named(task: Task) -> str:
    """A task with the shapes of its operands."""
    tensors = [a for a in task.args if isinstance(a, tuple) and len(a) == 3 and a[0] == TENSOR]
    return f"{task.name}({', '.join('x'.join(map(str, shape)) for _, shape, _ in tensors)})"


def closing_table(gains: Gains, columns: int | None = None) -> list[str]:
    """The lines of the table, names cut to fit so many columns; none without trials."""
    rows = [_cells(row) for row in gains.rows()]
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    if columns is not None:
        over = sum(widths) + len(_GAP) * (len(widths) - 1) - columns
        widths[0] = max(min(_LEAST, widths[0]), widths[0] - max(0, over))
    return [_line(cells, widths) for cells in (_HEAD, *rows)]


def _cells(row: Row) -> tuple[str, ...]:
    gain = f"{100 * (row.best / row.own - 1):+.1f} %" if row.own and row.best else "-"
    own, best = (f"{rate / 1e9:.1f}" if rate else "-" for rate in (row.own, row.best))
    return named(row.task), str(row.task.calls), own, best, gain, str(row.trials), f"{1e3 * row.gained:.3f} ms"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    name = cells[0] if len(cells[0]) <= widths[0] else f"{cells[0][: widths[0] - 1]}…"
    return _GAP.join((name.ljust(widths[0]), *rest))
