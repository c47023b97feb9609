"""Where the sub-commands print: results to stdout, progress and errors to stderr.

In: text and tables. Out: rich output on a terminal, plain text in a pipe. Invariant: nothing but results goes to
stdout, so output can be piped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from armillary.errors import ArtifactError, Span
from armillary.ir import IRModule
from armillary.transform import PassInfo, PassInstrument

_PIPE_WIDTH = 200  # tables in a pipe are not folded to 80 columns
output = Console(soft_wrap=True, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
errors = Console(stderr=True, soft_wrap=True)


class Stages(PassInstrument):
    """A spinner that names the stage, and inside it the pass that is running."""

    needs_kernels: ClassVar[bool] = False

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("starting", total=None)
        self.stage = ""

    def start(self, stage: str) -> None:
        """Say that `stage` begins."""
        self.stage = stage
        self.progress.update(self.task, description=stage)

    def advance(self, stage: str, done: int, total: int) -> None:
        """Say how far a stage of the build has come."""
        self.stage = stage
        self.progress.update(self.task, description=f"{stage} {done}/{total}" if total > 1 else stage)

    def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
        """Name the pass."""
        self.progress.update(self.task, description=f"{self.stage}: {info.spec}")


@contextmanager
def stages() -> Iterator[Stages]:
    """Show progress on stderr while the block runs (nothing when stderr is no terminal)."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        yield Stages(progress)


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` (same suffix); renamed to `path` if the block succeeds, removed if not."""
    partial = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        if not path.parent.is_dir():
            raise ArtifactError(f"the folder {str(path.parent)!r} does not exist", span=Span(str(path)))
        yield partial
        partial.replace(path)
    except OSError as error:
        raise ArtifactError(f"cannot write: {error.strerror or error}", span=Span(str(path))) from None
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic(path) as partial:
        partial.write_text(text, "utf-8")
