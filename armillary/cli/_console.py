"""Where the sub-commands print: results to stdout, progress and errors to stderr.

In: text and tables. Out: rich output on a terminal, plain text in a pipe. Invariant: nothing but results goes to
stdout, so output can be piped; rich is imported when something is shown with it, since that takes as long as the
passes of a small network.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, ClassVar, cast

from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.transform import PassInfo, PassInstrument

if TYPE_CHECKING:
    from rich.progress import Progress

with deferred():
    from rich import progress
    from rich.console import Console

_PIPE_WIDTH = 200  # tables in a pipe are not folded to 80 columns


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether somebody looks at a stream; there is none where a process was started without (`>&-`)."""
    return stream is not None and stream.isatty()


class _DeferredConsole:
    """Stands for a rich Console that is made when it is first used."""

    def __init__(self, **options: Any) -> None:  # Any: options of the Console
        self._options = options

    @cached_property
    def console(self) -> Console:
        result: Console = Console(soft_wrap=True, **self._options)
        return result

    def __getattr__(self, name: str) -> Any:  # Any: whatever a Console has
        return getattr(self.console, name)


_errors = _DeferredConsole(stderr=True)
output = cast("Console", _DeferredConsole(width=None if is_terminal(sys.stdout) else _PIPE_WIDTH))
errors = cast("Console", _errors)


def note(text: str) -> None:
    """A plain line on stderr."""
    if is_terminal(sys.stderr):
        errors.print(text, markup=False, highlight=False)
    else:
        print(text, file=sys.stderr)


def terminal_width() -> int | None:
    """Columns of the terminal that notes go to; None where they go elsewhere."""
    return errors.width if is_terminal(sys.stderr) else None


class Stages(PassInstrument):
    """A spinner that names the stage, and inside it the pass that is running."""

    needs_kernels: ClassVar[bool] = False

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress = progress
        self.task = progress.add_task("starting", total=None) if progress is not None else None
        self.stage = ""

    def _show(self, text: str) -> None:
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, description=text)

    def start(self, stage: str) -> None:
        """Say that `stage` begins."""
        self.stage = stage
        self._show(stage)

    def advance(self, stage: str, done: int, total: int) -> None:
        """Say how far a stage of the build has come."""
        self.stage = stage
        self._show(f"{stage} {done}/{total}" if total > 1 else stage)

    def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
        """Name the pass."""
        self._show(f"{self.stage}: {info.spec}")


@contextmanager
def stages() -> Iterator[Stages]:
    """Show progress on stderr while the block runs (nothing when stderr is no terminal)."""
    if not is_terminal(sys.stderr):
        yield Stages()
        return
    columns = (progress.SpinnerColumn(), progress.TextColumn("{task.description}"), progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=_errors.console, transient=True) as shown:
        yield Stages(shown)
