"""Building the runtime of Arm Compute Library from the sources that come with the package.

In: a C++ compiler for the machine it is for, and where the library is: a folder that has `include`, `lib` or `build`,
or none, then the compiler looks where it always does (Debian: libarm-compute-dev). Out:
`libarmillary_external_arm_compute_lib.so`. Invariant: nothing is fetched; what is missing is a TargetError that says
what to install. The sources: native/acl_runtime.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.c_compiler import as_command, run_compiler
from armillary.base.config import setting
from armillary.base.files import make_folder
from armillary.errors import TargetError

FILE_NAME = "libarmillary_external_arm_compute_lib.so"
_SOURCE = Path(__file__).resolve().parent / "native" / "acl_runtime.cpp"
_INTERFACE = Path(__file__).resolve().parents[2] / "runtime" / "native"
_SHARED = Path(__file__).resolve().parents[1] / "native"
_FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
_LIBRARIES = ("-larm_compute", "-ldl", "-lpthread")
_CORE = "-larm_compute_core"  # a library of its own until version 23


def build_runtime(
    output: str | Path, cxx: str | Sequence[str] = "", library: str | Path = "", flags: Sequence[str] = ()
) -> Path:
    """Compile the runtime to a file, or into a folder; `library` is the folder of Arm Compute Library."""
    path = Path(output)
    path = path / FILE_NAME if path.is_dir() else path
    where = Path(library or setting("ARMILLARY_ACL")).expanduser()
    compiler = _compiler(cxx)
    make_folder(path.resolve().parent)
    places = _places(where) if str(where) != "." else ()
    command = [*compiler, *_FLAGS, *flags, f"-I{_INTERFACE}", f"-I{_SHARED}", *places, str(_SOURCE), *_LIBRARIES]
    try:
        try:
            return run_compiler([*command, _CORE], path)
        except TargetError as error:
            if f"cannot find {_CORE}" not in error.message:
                raise
            return run_compiler(command, path)
    except TargetError as error:
        if "arm_compute/" not in error.message and "-larm_compute" not in error.message.rpartition("\n")[2]:
            raise
        told = "Arm Compute Library was not found, or is of a version that this runtime does not know"
        hint = "install libarm-compute-dev for the target, or set ARMILLARY_ACL to the folder with include and lib"
        raise TargetError(f"{told}: {error.message}", hint=hint) from None


def _compiler(cxx: str | Sequence[str]) -> list[str]:
    for name in (cxx,) if cxx else ("c++", "g++", "clang++"):
        try:
            return as_command(name)
        except TargetError:
            if cxx:
                raise
    raise TargetError("no C++ compiler was found", hint="install g++, or name one: --cross-compiler")


def _places(where: Path) -> list[str]:
    """Flags for a folder as the library's releases have it."""
    if not where.is_dir():
        raise TargetError(f"ARMILLARY_ACL: there is no folder {where}")
    libraries = [folder for folder in (where, where / "lib", where / "build") if folder.is_dir()]
    found = [f"-isystem{where}", f"-isystem{where / 'include'}"]
    return found + [flag for folder in libraries for flag in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
