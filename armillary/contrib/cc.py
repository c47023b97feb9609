"""Linking object files with a C compiler.

In: object files and a compiler command. Out: a shared library. Invariant: a failing compiler is a TargetError that
holds its command and its messages. See `ndk.py` for Android.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from armillary.config import setting
from armillary.errors import TargetError
from armillary.runtime.build_native import find_compiler

Linker = Callable[..., None]


def get_cc() -> list[str]:
    """The C compiler command of this machine; TargetError if there is none."""
    command = find_compiler(setting("ARMILLARY_CC"))
    if command is None:
        raise TargetError("no C compiler was found", hint="install gcc or clang, or: pip install armillary[cross]")
    return command


def create_shared(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Link objects (or compile C files) into a shared library."""
    files = [objects] if isinstance(objects, str) else [str(item) for item in objects]
    command = cc.split() if cc else get_cc()
    _run([*command, "-shared", "-fPIC", "-o", os.fspath(output), *files, *(options or ())])


def create_executable(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Link objects (or compile C files) into a program."""
    files = [objects] if isinstance(objects, str) else [str(item) for item in objects]
    _run([*(cc.split() if cc else get_cc()), "-o", os.fspath(output), *files, *(options or ())])


def cross_compiler(
    compile_func: str | Linker, options: Sequence[str] | None = None, output_format: str = "so"
) -> Linker:
    """A linker for another machine: `lib.export_library(path, fcompile=cross_compiler("aarch64-linux-gnu-gcc"))`."""
    base = list(options or ())

    def link(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: object) -> None:
        extra = [*base, *(options or ())]
        if isinstance(compile_func, str):
            create_shared(output, objects, extra, cc=compile_func)
        else:
            compile_func(output, objects, options=extra)

    link.output_format = output_format  # type: ignore[attr-defined]  # read by export_library
    return link


def _run(command: list[str]) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise TargetError(f"{Path(command[0]).name} cannot be run: {error}", hint="check its path") from error
    if result.returncode != 0:
        raise TargetError(f"`{' '.join(command[:8])} …` failed with {result.returncode}:\n{result.stderr[-4000:]}")


create_shared.output_format = "so"  # type: ignore[attr-defined]  # read by export_library
