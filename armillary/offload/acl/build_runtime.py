"""Building the runtime of Arm Compute Library from the sources that come with the package.

In: a C++ compiler for the machine it is for, and where the library is (find_library.py). Out:
`libarmillary_external_arm_compute_lib.so`, or an object and the flags by which a program holds runtime and library
itself. Invariant: nothing is fetched; what is missing is a TargetError that says what to install. The sources:
native/acl_runtime.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.c_compiler import as_command, run_compiler
from armillary.base.files import make_folder
from armillary.errors import TargetError
from armillary.offload.acl.find_library import INSTALL, KNOWN_VERSIONS, Found, find_library, system_folders

FILE_NAME = "libarmillary_external_arm_compute_lib.so"
_SOURCE = Path(__file__).resolve().parent / "native" / "acl_runtime.cpp"
_INTERFACE = Path(__file__).resolve().parents[2] / "runtime" / "include"
_SHARED = Path(__file__).resolve().parents[1] / "native"
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden")
_CORE = "-larm_compute_core"  # a library of its own until version 23


def build_runtime(
    output: str | Path, cxx: str | Sequence[str] = "", library: str | Path = "", flags: Sequence[str] = ()
) -> Path:
    """Compile the runtime to a file, or into a folder; `library`: see find_library.py."""
    path = Path(output)
    path = path / FILE_NAME if path.is_dir() else path
    compiler = compiler_of(cxx)
    library_place = find_library(library, compiler)
    make_folder(path.resolve().parent)
    command = [*_compile(compiler, library_place, flags), "-shared", str(_SOURCE)]
    links = [flag for folder in library_place.libraries for flag in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
    links += ["-larm_compute", "-ldl", "-lpthread"]
    try:
        return run_compiler([*command, *links, _CORE], path)
    except TargetError as error:
        if f"cannot find {_CORE}" not in error.message:
            raise _build_error(error, library_place) from None
    try:
        return run_compiler([*command, *links], path)
    except TargetError as error:
        raise _build_error(error, library_place) from None


def build_object(output: Path, cxx: str | Sequence[str] = "", library: str | Path = "") -> tuple[str, ...]:
    """Compile the runtime to an object; what a static program is linked with, the object first."""
    compiler = compiler_of(cxx)
    library_place = find_library(library, compiler)
    try:
        run_compiler([*_compile(compiler, library_place, ()), "-c", str(_SOURCE)], output)
    except TargetError as error:
        raise _build_error(error, library_place) from None
    folders = library_place.libraries or tuple(system_folders(compiler))
    names = ("libarm_compute-static.a", "libarm_compute_core-static.a")
    archives = [str(folder / name) for name in names for folder in folders if (folder / name).exists()]
    if not archives:
        message = f"no libarm_compute-static.a in {', '.join(map(str, folders))}"
        raise TargetError(message, hint="a program that holds the library needs its static archive")
    return (str(output), "-Wl,--start-group", *archives, "-Wl,--end-group", "-static", "-fopenmp", "-lstdc++")


def _compile(compiler: Sequence[str], library: Found, flags: Sequence[str]) -> list[str]:
    own = [f'-DARMILLARY_ACL_VERSION="{library.version}"'] if library.version else []
    return [
        *compiler,
        *_FLAGS,
        *own,
        *flags,
        f"-I{_INTERFACE}",
        f"-I{_SHARED}",
        *(f"-isystem{folder}" for folder in library.headers),
    ]


def _build_error(error: TargetError, library: Found) -> TargetError:
    """What went wrong in the user's words, where it is the library's absence or version."""
    if library.version:
        known = f"this runtime is written for {KNOWN_VERSIONS[0]} to {KNOWN_VERSIONS[-1]}"
        message = f"the runtime does not build against Arm Compute Library {library.version}; {known}: {error.message}"
        return TargetError(message, hint=f"use one of {', '.join(KNOWN_VERSIONS)}")
    if "arm_compute/" not in error.message and "-larm_compute" not in error.message.rpartition("\n")[2]:
        return error
    return TargetError(f"Arm Compute Library was not found: {error.message}", hint=INSTALL)


def compiler_of(cxx: str | Sequence[str]) -> list[str]:
    """The C++ compiler as words."""
    for name in (cxx,) if cxx else ("c++", "g++", "clang++"):
        try:
            return as_command(name)
        except TargetError:
            if cxx:
                raise
    raise TargetError("no C++ compiler was found", hint="install g++, or name one: --cross-compiler")
