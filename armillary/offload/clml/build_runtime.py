"""Building the runtime of OpenCLML from the source that comes with the package, against the SDK that its user has.

In: a C++ compiler for the device and the folder of the SDK (the setting ADRENO_OPENCL), which has the vendor's header
somewhere below it. Out: `libarmillary_external_clml.so`. Invariant: the header is the user's, nothing of it is kept;
what is missing is a TargetError that says what to get. The source: native/clml_runtime.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from armillary.base.c_compiler import as_command, run_compiler
from armillary.base.config import setting
from armillary.base.files import make_folder
from armillary.errors import TargetError

FILE_NAME = "libarmillary_external_clml.so"
HEADER = "CL/cl_qcom_ml_ops.h"
_DEFAULT_VERSION = 2
_SOURCE = Path(__file__).resolve().parent / "native" / "clml_runtime.cpp"
_INTERFACE = Path(__file__).resolve().parents[2] / "runtime" / "include"
_SHARED = Path(__file__).resolve().parents[1] / "native"
_FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")


def include_folder(sdk: str | Path = "") -> Path:
    """The folder of the SDK that the header is included from."""
    where = Path(sdk or setting("ADRENO_OPENCL")).expanduser()
    if str(where) == ".":
        raise TargetError("the SDK of OpenCLML is not known", hint="set ADRENO_OPENCL to its folder, or say --library")
    for folder in (where, where / "include", where / "inc", where / "opencl-sdk" / "inc", where / "opencl-sdk"):
        if (folder / HEADER).is_file():
            return folder
    result = next((path.parents[1] for path in sorted(where.glob(f"**/{HEADER}"))), None) if where.is_dir() else None
    if result is None:
        raise TargetError(f"{where} has no {HEADER}", hint="get the Adreno OpenCL ML SDK of the device's vendor")
    return result


def sdk_version(sdk: str | Path = "") -> int:
    """The major version that the header of the SDK says; 2 without an SDK."""
    if not sdk and not setting("ADRENO_OPENCL"):
        return _DEFAULT_VERSION
    text = (include_folder(sdk) / HEADER).read_text("utf-8", "replace")
    match = re.search(r"^\s*#\s*define\s+CL_QCOM_ML_OPS_H_MAJOR_VERSION\s+\(?(\d+)", text, re.M)
    return int(match[1]) if match else _DEFAULT_VERSION


def build_runtime(
    output: str | Path, cxx: str | Sequence[str] = "", library: str | Path = "", flags: Sequence[str] = ()
) -> Path:
    """Compile the runtime to a file, or into a folder; `library` is the folder of the SDK."""
    path = Path(output)
    path = path / FILE_NAME if path.is_dir() else path
    include = include_folder(library)
    make_folder(path.resolve().parent)
    folders = [f"-isystem{include}", f"-I{_INTERFACE}", f"-I{_SHARED}"]
    compiler = as_command(cxx or "c++")
    return run_compiler([*compiler, *_FLAGS, *flags, *folders, str(_SOURCE), *_library_flags(include)], path)


def _library_flags(include: Path) -> list[str]:
    """Flags for the driver's library, in the SDK or where the compiler looks."""
    places = (include.parent / "lib64", include.parent / "lib", include.parent, include)
    flags = [f"-L{folder}" for folder in places if (folder / "libOpenCL.so").is_file()]
    return [*flags, "-lOpenCL"]
