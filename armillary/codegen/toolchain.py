"""C compilers and linkers: find one for a target, compile C, link shared libraries.

In: a target, objects or C source. Out: a file, written whole or not at all. Invariant: where nobody names a compiler,
objects for x86-64 and AArch64 are linked by our own linker (`elf_link.py`); the order of search for a compiler is the
`cc` argument, $ARMILLARY_CC, the compilers named after the triple, `cc`, `gcc`, `clang` (native only), then `python
-m ziglang`, which builds for any target; a failure is a TargetError with the command and what it printed.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from armillary.base.c_compiler import NATIVE_NAMES, as_command, find_compiler, is_zig, run_compiler
from armillary.base.config import setting
from armillary.base.files import scratch_folder
from armillary.base.record import record
from armillary.codegen.object.elf_link import Tail, link_library
from armillary.codegen.object.elf_machines import MACHINES
from armillary.codegen.object.elf_object import NotLoadable
from armillary.errors import TargetError
from armillary.target.cpu import architecture, is_native, triple_of
from armillary.target.target import Target

STATIC_PROGRAMS = ("aarch64", "x86_64")  # for which packages of objects are linked where they are loaded


@record(slots=True)
class Toolchain:
    """A C compiler command that also links."""

    command: tuple[str, ...]

    @property
    def is_zig(self) -> bool:
        return is_zig(self.command)


def find_toolchain(target: Target, cc: str | Sequence[str] | None = None) -> Toolchain:
    """The compiler to use for a target; TargetError says what was looked for."""
    chosen = cc if cc is not None else setting("ARMILLARY_CC")
    if chosen:
        return Toolchain(tuple(as_command(chosen)))
    names = _candidates(target)
    command = find_compiler(names=names)
    if command is not None:
        if is_zig(command) and "android" in target.mtriple:
            raise TargetError(
                f"no C compiler for target {target}: looked for {', '.join(names)}, and zig has no Android C library",
                hint="install the Android NDK and name its compiler: cc=…/bin/aarch64-linux-android28-clang",
            )
        extra = ("-target", zig_triple(triple_of(target))) if is_zig(command) and is_cross(target) else ()
        return Toolchain((*command, *extra))
    raise TargetError(
        f"no C compiler for target {target}; looked for {', '.join(names)} and the ziglang package",
        hint="set ARMILLARY_CC, pass cc=…, or pip install ziglang (links for any target)",
    )


def program_toolchain(target: Target, cc: str | Sequence[str] | None = None) -> Toolchain:
    """The compiler to use for a whole program.

    For 64-bit Android without its NDK zig makes a static one, which asks nothing of Android's C library: it takes
    packages of objects (.tar), and cannot load libraries.
    """
    is_android = "android" in target.mtriple and architecture(target.mtriple) in STATIC_PROGRAMS
    command = find_compiler(names=_candidates(target)) if is_android and not (cc or setting("ARMILLARY_CC")) else None
    if command is None or not is_zig(command):
        return find_toolchain(target, cc)
    return Toolchain((*command, "-target", f"{architecture(target.mtriple)}-linux-musl", "-static"))


def is_cross(target: Target) -> bool:
    """Whether the target's triple names another machine or system than this one."""
    triple = target.mtriple
    if not triple:
        return False
    is_same = architecture(triple) == architecture(platform.machine())
    return not is_same or ("linux" not in triple) or "android" in triple or "musl" in triple


def _candidates(target: Target) -> tuple[str, ...]:
    if not is_cross(target):
        return NATIVE_NAMES
    triple = triple_of(target)
    parts = [part for part in triple.split("-") if part not in ("unknown", "pc", "none")]
    short = "-".join(("aarch64" if parts[0] == "arm64" else parts[0], *parts[1:]))
    plain = "-".join((architecture(triple), *parts[1:]))
    triples = dict.fromkeys((triple, short, plain))
    return tuple(f"{name}-{tool}" for name in triples for tool in ("gcc", "clang", "cc"))


def zig_triple(triple: str) -> str:
    """The triple as zig spells it: architecture-system-abi."""
    parts = [part for part in triple.split("-") if part not in ("unknown", "pc", "none")]
    arch = architecture(triple)
    system = next((part for part in parts[1:] if part.startswith(("linux", "windows", "darwin", "macos"))), "linux")
    abi = parts[-1] if len(parts) > 2 else "gnu"
    abi = "gnueabi" if abi == "eabi" else abi  # zig's "eabi" is a machine without a system
    arch = "x86" if arch == "i386" else arch
    return f"{arch}-{'macos' if system.startswith('darwin') else system}-{abi}"


def machine_flags(target: Target, is_zig: bool = False) -> list[str]:
    """Compiler flags that choose the target's CPU; zig writes its names with underscores and has no -march of ARM."""
    if is_native(target):
        return ["-mcpu=native" if is_zig else "-march=native"]
    if is_zig:
        return [f"-mcpu={target.mcpu.replace('-', '_')}"] if target.mcpu else []
    arch = architecture(target.mtriple or platform.machine())
    flags = []
    march = str(target.attrs.get("march", ""))
    if march:
        flags.append(f"-march={march}")
    if target.mcpu:
        flags.append(f"-march={target.mcpu}" if arch in ("x86_64", "i386") else f"-mcpu={target.mcpu}")
    if arch in ("x86_64", "i386"):
        flags.extend(("-mno-" if item.startswith("-") else "-m") + item.lstrip("+-") for item in target.mattr)
    return flags


def compile_c(
    source: str,
    output: str | os.PathLike[str],
    target: Target,
    options: Sequence[str] = (),
    cc: str | Sequence[str] | None = None,
) -> Path:
    """Compile C text to an object file."""
    tool = find_toolchain(target, cc)
    with scratch_folder() as folder:
        path = folder / "kernels.c"
        path.write_text(source, "utf-8")
        flags = ["-std=c11", "-O2", "-fPIC", "-fno-math-errno", "-ffp-contract=off"]
        flags += [*machine_flags(target, tool.is_zig), *options]
        return run_compiler([*tool.command, *flags, "-c", str(path)], Path(output))


def link_without_compiler(
    objects: Sequence[bytes], data: Mapping[str, bytes], target: Target, tail: Tail | None = None
) -> bytes | None:
    """A shared library by our own linker; None where a compiler was chosen, or objects need one that knows more."""
    if not links_itself(target):
        return None
    triple = triple_of(target)
    try:
        return link_library(objects, data, MACHINES[architecture(triple or platform.machine())], _needed(triple), tail)
    except NotLoadable:
        return None


def links_itself(target: Target) -> bool:
    """Whether objects for a target are linked without a compiler, here or where they are loaded: none was chosen."""
    triple = triple_of(target)
    is_linux = "linux" in triple if triple else sys.platform == "linux"
    return not setting("ARMILLARY_CC") and architecture(triple or platform.machine()) in MACHINES and is_linux


def _needed(triple: str) -> tuple[str, ...]:
    """The libraries of C functions, as the system of a triple calls them; musl's is in every process."""
    if "android" in triple:
        return "libm.so", "libc.so"
    return () if "musl" in triple else ("libm.so.6", "libc.so.6")


def link_shared(
    objects: Sequence[bytes | str | os.PathLike[str]],
    output: str | os.PathLike[str],
    target: Target,
    options: Sequence[str] = (),
    cc: str | Sequence[str] | None = None,
) -> Path:
    """Link objects (bytes, or paths of objects and archives) to a shared library."""
    tool = find_toolchain(target, cc)
    with scratch_folder() as folder:
        paths = []
        for index, item in enumerate(objects):
            if isinstance(item, bytes):
                path = folder / f"part{index}.o"
                path.write_bytes(item)
                paths.append(str(path))
            else:
                paths.append(os.fspath(item))
        listing = folder / "objects.rsp"  # hundreds of paths may exceed a command line
        listing.write_text("\n".join(shlex.quote(path) for path in paths))
        return run_compiler([*tool.command, "-shared", "-fPIC", f"@{listing}", *options, "-lm"], Path(output))
