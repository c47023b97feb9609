"""Ready-made instruments: what `PassContext(instruments=[…])` can watch, without writing a class.

In: passes, as `Pass.__call__` reports them. Out: times, texts, files, or an error that names the pass at fault.
Invariant: no instrument changes a module. Those that show texts see the loop passes of every kernel too
(`needs_kernels`), so a build under them lowers again what the cache holds. Your own: `pass_instrument`, or a subclass
of `transform.PassInstrument`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from armillary.base.boundary import boundary, bounded
from armillary.base.files import make_folder, write_atomic
from armillary.errors import ArmillaryError, InternalError
from armillary.ir import BaseFunc, IRModule
from armillary.transform import PassInfo, PassInstrument

Sink = Callable[[str, str], None]  # name of the pass, text of the module


@boundary("pass_instrument", arguments=True)
def pass_instrument(cls: type) -> type:  # a subclass of `cls` that is a PassInstrument
    """Class decorator: a class with some of the hooks becomes an instrument."""
    return type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__, "__module__": cls.__module__})


def _to_stdout(name: str, text: str) -> None:
    print(f"# after {name}\n{text}")


def _is_chosen(info: PassInfo, only: Sequence[str]) -> bool:
    return not only or not info.names.isdisjoint(only)


@bounded
class PassTimingInstrument(PassInstrument):
    """Measures each pass; `render()` gives a table, slowest first. A pass run inside another counts for both."""

    needs_kernels: ClassVar[bool] = False

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._starts: list[float] = []

    def enter_pass_ctx(self) -> None:
        self._starts.clear()  # what an error left behind

    def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
        self._starts.append(time.perf_counter())

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        self.seconds[info.name] = self.seconds.get(info.name, 0.0) + time.perf_counter() - self._starts.pop()

    def render(self) -> str:
        total = sum(self.seconds.values()) or 1.0
        rows = sorted(self.seconds.items(), key=lambda row: -row[1])
        return "\n".join(f"{name:32s} {1e3 * t:10.2f} ms {100 * t / total:5.1f} %" for name, t in rows)


@bounded
class PrintAfter(PassInstrument):
    """Hands the text of the module after each pass (or only the named ones) to `sink`, which prints by default."""

    def __init__(self, sink: Sink = _to_stdout, only: Sequence[str] = ()) -> None:
        self.sink, self.only = sink, tuple(only)

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        if _is_chosen(info, self.only):
            self.sink(info.name, module.astext(False))


@bounded
class PrintBefore(PassInstrument):
    """The same, before each pass."""

    def __init__(self, sink: Sink | None = None, only: Sequence[str] = ()) -> None:
        self.sink = sink or (lambda name, text: print(f"# before {name}\n{text}"))
        self.only = tuple(only)

    def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
        if _is_chosen(info, self.only):
            self.sink(info.name, module.astext(False))


PrintAfterAll = PrintAfter
PrintBeforeAll = PrintBefore


@bounded
class PrintChanges(PassInstrument):
    """Hands the text after those passes only that changed it to `sink`."""

    def __init__(self, sink: Sink = _to_stdout) -> None:
        self.sink = sink
        self._before: list[str] = []

    def enter_pass_ctx(self) -> None:
        self._before.clear()

    def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
        self._before.append(module.astext(False))

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        text = module.astext(False)
        if self._before.pop() != text:
            self.sink(info.name, text)


@bounded
class DumpIR(PassInstrument):
    """Writes the text after each pass to `<folder>/<number>_<pass>.txt`; `refresh` first removes such files."""

    def __init__(self, dump_dir: str | Path, refresh: bool = False) -> None:
        self.folder, self.refresh, self.count = Path(dump_dir), refresh, 0

    def enter_pass_ctx(self) -> None:
        make_folder(self.folder)
        for path in self.folder.glob("*.txt") if self.refresh else ():
            if re.fullmatch(r"\d{3,}_[\w.-]+\.txt", path.name):
                path.unlink()

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        name = re.sub(r"[^\w.-]", "_", info.name)
        path = self.folder / f"{self.count:03d}_{name}.txt"
        write_atomic(path, module.astext(False).encode())
        self.count += 1


class VerifyIR(PassInstrument):
    """Checks after each pass that every function is well formed; an error says which pass broke which function."""

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        for name, function in module.items():
            try:
                verify_function(function, module)
            except ArmillaryError as error:
                raise InternalError(
                    f"pass {info.name} left function {name!r} malformed: {error.message}",
                    hint=f"look at its input and output with PrintBefore and PrintAfter(only=[{info.name!r}])",
                ) from error


@boundary("verify_function", arguments=True)
def verify_function(function: BaseFunc, module: IRModule) -> None:
    """Raise unless a graph function or a loop function is well formed."""
    verifier = type(function)._verifier
    if verifier is not None:
        verifier(function, module)
