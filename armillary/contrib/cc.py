"""Linking object files with a C compiler.

In: object files and a compiler command. Out: a shared library. Invariant: a failing compiler is a TargetError that
holds its command and its messages. See `ndk.py` for Android.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from armillary.artifact.library_sums import seal
from armillary.base.boundary import boundary
from armillary.base.c_compiler import archiver_of, as_command, need_compiler, run_compiler, write_archive
from armillary.base.config import setting
from armillary.base.files import MOST_MODEL_BYTES, read_regular, write_atomic
from armillary.codegen.object.elf_object import foreign_symbols
from armillary.codegen.object.registration import ADD
from armillary.codegen.toolchain import link_without_compiler
from armillary.errors import TargetError
from armillary.runtime.native_library import native
from armillary.target import Target
from armillary.target.target import host_target

Linker = Callable[..., None]


def get_cc() -> list[str]:
    """The C compiler command of this machine; TargetError if there is none."""
    return need_compiler(setting("ARMILLARY_CC"))


@boundary("create_shared", arguments=True)
def create_shared(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Link objects (or compile C files) into a shared library.

    Objects that `save("m.o")` wrote need no compiler, unless `cc`, `options` or ARMILLARY_CC name one. A library of
    such objects carries a checksum. One of objects for -system-lib is linked with this process' runtime. Raises
    ArtifactError for files that cannot be read, TargetError without a compiler.
    """
    files = _files(objects)
    is_ours = all(name.endswith(".o") for name in files)
    codes = [read_regular(name, MOST_MODEL_BYTES) for name in files] if is_ours else []
    linked = None if cc or options or not codes else link_without_compiler(codes, {}, host_target(Target("llvm")))
    if linked is not None:
        write_atomic(output, linked, 0o777)
    else:
        _link(output, [*files, *_runtime_of(codes)], ["-shared", "-fPIC"], options, cc)
    if any(b"armillary_descriptor" in code for code in codes):
        seal(Path(output))


def _runtime_of(codes: Sequence[bytes]) -> list[str]:
    """The runtime of this process, where objects register what they hold in the system library."""
    return [native()._name] if any(ADD in foreign_symbols([code]) for code in codes) else []


@boundary("create_staticlib", arguments=True)
def create_staticlib(
    output: str | os.PathLike[str],
    inputs: str | Sequence[str],
    options: Sequence[str] | None = None,
    ar: str | None = None,
) -> None:
    """Put objects into a static library (.a), by the archiver beside the C compiler unless `ar` names one."""
    archiver = as_command(ar) if ar else archiver_of(get_cc())
    if archiver is None:
        raise TargetError("no archiver was found", hint="install binutils, or name one: ar=")
    write_archive(archiver, [*_files(inputs), *(options or ())], Path(output))


@boundary("create_executable", arguments=True)
def create_executable(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Link objects (or compile C files) into a program."""
    _link(output, objects, [], options, cc)


@boundary("cross_compiler", arguments=True)
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


def _files(objects: str | Sequence[str]) -> list[str]:
    return [os.fspath(objects)] if isinstance(objects, str | os.PathLike) else [os.fspath(item) for item in objects]


def _link(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    flags: Sequence[str],
    options: Sequence[str] | None,
    cc: str | None,
) -> None:
    files = _files(objects)
    command = as_command(cc) if cc else get_cc()
    run_compiler([*command, *flags, *files, *(options or ())], Path(output))


create_shared.output_format = "so"  # type: ignore[attr-defined]  # read by export_library
create_staticlib.output_format = "a"  # type: ignore[attr-defined]
