"""Linking object files with a C compiler.

In: object files and a compiler command. Out: a shared library. Invariant: a failing compiler is a TargetError that
holds its command and its messages. See `ndk.py` for Android.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from armillary.base.c_compiler import as_command, need_compiler, run_compiler
from armillary.base.config import setting

Linker = Callable[..., None]


def get_cc() -> list[str]:
    """The C compiler command of this machine; TargetError if there is none."""
    return need_compiler(setting("ARMILLARY_CC"))


def create_shared(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Link objects (or compile C files) into a shared library."""
    _link(output, objects, ["-shared", "-fPIC"], options, cc)


def create_executable(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Link objects (or compile C files) into a program."""
    _link(output, objects, [], options, cc)


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


def _link(
    output: str | os.PathLike[str], objects: str | Sequence[str], flags: Sequence[str], options: Sequence[str] | None,
    cc: str | None,
) -> None:  # fmt: skip
    files = [objects] if isinstance(objects, str) else [str(item) for item in objects]
    command = as_command(cc) if cc else get_cc()
    run_compiler([*command, *flags, *files, *(options or ())], Path(output))


create_shared.output_format = "so"  # type: ignore[attr-defined]  # read by export_library
