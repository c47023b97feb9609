"""Finding and running a C compiler, for everyone who needs one.

In: the command a user prefers, names to look for, arguments. Out: a command, or a file it wrote. Invariant: the output
is complete or absent; a compiler that is missing or fails is a TargetError with its command and its messages.
Needs the standard library only: the build backend uses it before anything is installed. Which compiler fits which
target: `codegen/toolchain.py`; the runtime's own sources: `runtime/build_native.py`.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from armillary.base.files import replacing
from armillary.base.lazy import deferred
from armillary.errors import TargetError

with deferred():  # who has a library runs no compiler
    import shlex
    import subprocess

NATIVE_NAMES = ("cc", "gcc", "clang")
_SHOWN = 4000  # characters of a compiler's messages that an error repeats


def as_command(command: str | Sequence[str]) -> list[str]:
    """A command as words; TargetError if there is no such program."""
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if words and shutil.which(words[0]) is None:
        words[0] = next(filter(shutil.which, _other_names(words[0])), words[0])
    if not words or shutil.which(words[0]) is None:
        name = words[0] if words else ""
        raise TargetError(f"C compiler {name!r} is not there", hint="check cc=, --cross-compiler or ARMILLARY_CC")
    return words


def _other_names(name: str) -> list[str]:
    """What `<triple>-c++` and `<triple>-cc` are called where only the compiler's own name is installed."""
    stem, prefix, kind = name.rpartition("-")
    known = {"c++": ("g++", "clang++"), "cc": ("gcc", "clang")}.get(kind, ()) if prefix else ()
    return [f"{stem}-{own}" for own in known]


def find_compiler(preferred: str | Sequence[str] = "", names: Sequence[str] = NATIVE_NAMES) -> list[str] | None:
    """The preferred command, else the first of `names` that exists, else ziglang's; None if there is none."""
    if preferred:
        return as_command(preferred)
    compiler = next((name for name in names if shutil.which(name) is not None), None)
    if compiler is not None:
        return [compiler]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return None


def need_compiler(preferred: str | Sequence[str] = "") -> list[str]:
    """`find_compiler` for this machine; TargetError if there is none."""
    command = find_compiler(preferred)
    if command is None:
        raise TargetError("no C compiler was found", hint="install gcc or clang, or: pip install armillary[cross]")
    return command


def is_zig(command: Sequence[str]) -> bool:
    """Whether the command is zig's C compiler, which builds for any machine."""
    return "ziglang" in command or Path(command[0]).name == "zig"


def run_compiler(command: Sequence[str], output: Path) -> Path:
    """Run a compiler that writes `output`: under a temporary name, renamed once it is whole."""
    with replacing(output, 0o777) as partial:
        full = [*command, "-o", str(partial)]
        try:
            done = subprocess.run(full, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise TargetError(f"cannot run {command[0]}: {error}") from None
        if done.returncode != 0:
            message = (done.stderr or done.stdout)[-_SHOWN:].rstrip()
            raise TargetError(f"the C compiler failed ({done.returncode}): {shlex.join(full)}\n{message}")
    return output


def archiver_of(compiler: Sequence[str]) -> list[str] | None:
    """The program beside a C compiler that makes static libraries."""
    if is_zig(compiler):
        return [*compiler[: list(compiler).index("cc")], "ar"]
    folder, slash, name = compiler[0].rpartition("/")
    prefix = next((name.removesuffix(own) for own in ("gcc", "clang", "cc") if name.endswith(own)), "")
    names = (f"{folder}{slash}{prefix}ar", f"{folder}{slash}llvm-ar", "ar")
    program = next((ar for ar in names if shutil.which(ar)), None)
    return None if program is None else [program]


def write_archive(archiver: Sequence[str], objects: Sequence[str], output: Path) -> None:
    """A static library of object files, written whole; TargetError with what the archiver printed."""
    output.unlink(missing_ok=True)  # it would be added to
    done = subprocess.run([*archiver, "rcs", str(output), *objects], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TargetError(f"{output}: {archiver[0]} failed ({done.returncode})\n{done.stderr[-_SHOWN:].rstrip()}")
