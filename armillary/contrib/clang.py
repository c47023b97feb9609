"""LLVM IR from C and C++ by clang, for loops that import it: `s[C].pragma(axis, "import_llvm", create_llvm(code))`.

In: source text or paths. Out: LLVM IR as text, optimised. Invariant: its pointers are opaque, as the LLVM that compiles
kernels reads them (clang 15 and later; zig's clang is one). Where it is joined with a
kernel: `codegen/llvm/machine.py`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from armillary.base.boundary import boundary
from armillary.base.c_compiler import as_command, is_zig, run_compiler
from armillary.base.files import read_regular, scratch_folder, write_atomic
from armillary.errors import TargetError

_NAMES = ("clang", *(f"clang-{version}" for version in range(22, 14, -1)))
_TYPED_POINTER = re.compile(r"\b(?:i\d+|float|double)\*")
_SOURCES = (".c", ".cc", ".cpp", ".cxx")


def find_clang(required: bool = True) -> list[str]:
    """The commands that can be tried, the best first; TargetError if there is none and one is `required`."""
    result = [path for path in map(shutil.which, _NAMES) if path is not None]
    if importlib.util.find_spec("ziglang") is not None:
        result.append(f"{sys.executable} -m ziglang c++")
    if required and not result:
        raise TargetError("no clang was found", hint="install clang 15 or later, or: pip install armillary[cross]")
    return result


@boundary("create_llvm", arguments=True)
def create_llvm(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> str:
    """The LLVM IR of one source: its text, or the path of a .c, .cc, .cpp or .cxx file; written to `output` too.

    `cc` is the command (found by itself), `options` go to it. Raises TargetError where no clang that is new enough is
    there, or it refuses the source.
    """
    sources = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    if len(sources) != 1:
        raise TargetError(f"create_llvm takes one source, got {len(sources)}", hint="call it for each")
    with scratch_folder() as folder:
        source = _as_file(sources[0], folder)
        commands = [as_command(cc)] if cc else [as_command(command) for command in find_clang()]
        for place, command in enumerate(commands):
            plain = ["-fno-sanitize=all", "-g0"] if is_zig(command) else []
            full = [*command, "-O3", "-S", "-emit-llvm", *plain, *(options or ()), str(source)]
            text = run_compiler(full, folder / f"{place}.ll").read_text("utf-8")
            if not _TYPED_POINTER.search(text):
                break
        else:
            message = f"{' '.join(commands[-1])} writes pointers as versions before 15 do"
            raise TargetError(message, hint="name a later one (cc=), or: pip install armillary[cross]")
    if output is not None:
        write_atomic(Path(output), text.encode())
    return text


def _as_file(source: str | os.PathLike[str], folder: Path) -> Path:
    """The source as a file that a compiler reads; text is C++."""
    text = os.fspath(source)
    if text.endswith(_SOURCES) and "\n" not in text:
        read_regular(text)
        return Path(text)
    path = folder / "source.cc"
    path.write_text(text, "utf-8")
    return path
