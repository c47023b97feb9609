"""Building the runtime of OpenCLML from the source that comes with the package, against the SDK that its user has.

In: a C++ compiler for the device and the folder of the SDK (the setting ADRENO_OPENCL), which has the vendor's header
somewhere below it. Out: `libarmillary_external_clml.so`. Invariant: the header is the user's, nothing of it is kept;
what is missing is a TargetError that says what to get. The source: native/clml_runtime.cpp.
"""

from __future__ import annotations

import re
from pathlib import Path

from armillary.base.config import setting
from armillary.errors import TargetError

FILE_NAME = "libarmillary_external_clml.so"
HEADER = "CL/cl_qcom_ml_ops.h"
_DEFAULT_VERSION = 2


def include_folder(sdk: str | Path = "") -> Path:
    """The folder of the SDK that the header is included from."""
    where = Path(sdk or setting("ADRENO_OPENCL")).expanduser()
    if str(where) == ".":
        raise TargetError("the SDK of OpenCLML is not known", hint="set ADRENO_OPENCL to its folder, or say --library")
    for folder in (where, where / "include", where / "inc", where / "opencl-sdk" / "inc", where / "opencl-sdk"):
        if (folder / HEADER).is_file():
            return folder
    found = next((path.parents[1] for path in sorted(where.glob(f"**/{HEADER}"))), None) if where.is_dir() else None
    if found is None:
        raise TargetError(f"{where} has no {HEADER}", hint="get the Adreno OpenCL ML SDK of the device's vendor")
    return found


def sdk_version(sdk: str | Path = "") -> int:
    """The major version that the header of the SDK says; 2 without an SDK."""
    if not sdk and not setting("ADRENO_OPENCL"):
        return _DEFAULT_VERSION
    text = (include_folder(sdk) / HEADER).read_text("utf-8", "replace")
    found = re.search(r"^\s*#\s*define\s+CL_QCOM_ML_OPS_H_MAJOR_VERSION\s+\(?(\d+)", text, re.M)
    return int(found[1]) if found else _DEFAULT_VERSION
