"""Linking for Android, by the NDK's clang or without an NDK.

In: object files; the compiler command from ARMILLARY_CC or `cc=`. Out: a shared library for a phone. Invariant: without
a compiler that is named our own linker writes it, which reads objects of 64-bit machines; this machine's compiler would
make a library that no phone loads. Linking by a compiler: cc.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from armillary.base.config import setting
from armillary.base.files import MOST_MODEL_BYTES, read_regular, write_atomic
from armillary.codegen.object.elf_machines import MACHINES
from armillary.codegen.toolchain import link_without_compiler
from armillary.contrib import cc as host
from armillary.errors import TargetError
from armillary.target import Target


def create_shared(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Link a shared library with the NDK's compiler, or objects of 64-bit machines without one."""
    compiler = cc or setting("ARMILLARY_CC")
    if compiler:
        host.create_shared(output, objects, [*(options or ()), "-lm"], cc=compiler)
        return
    linked = None if options else _linked([objects] if isinstance(objects, str) else objects)
    if linked is None:
        hint = "set ARMILLARY_CC, for example to …/linux-x86_64/bin/aarch64-linux-android28-clang of the NDK"
        raise TargetError("the Android compiler is not known", hint=hint)
    write_atomic(output, linked, 0o777)


def _linked(files: Sequence[str]) -> bytes | None:
    """The library of objects by our own linker; None for other files, and for machines that it does not know."""
    if not all(str(name).endswith(".o") for name in files):
        return None
    codes = [read_regular(name, MOST_MODEL_BYTES) for name in files]
    numbers = {int.from_bytes(code[18:20], "little") for code in codes}  # e_machine
    known = [name for name, machine in MACHINES.items() if {machine.number} == numbers]
    return link_without_compiler(codes, {}, Target(f"llvm -mtriple={known[0]}-linux-android")) if known else None


create_shared.output_format = "so"  # type: ignore[attr-defined]  # read by export_library, as is:
create_shared.system = "android"  # type: ignore[attr-defined]  # of targets that are linked without this, too
