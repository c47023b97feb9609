"""Where libraries for offloaded functions are looked for.

In: the setting ARMILLARY_EXTERNAL_PATH. Out: the folders told to the native runtime, which looks there first, then
beside the package, then where the system does. Invariant: the folder that `armc build-external` fills is among them.
Finding and calling: native/arm_external.c.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from armillary.base.config import setting
from armillary.runtime.native_library import ErrorText, native


def built_folder() -> Path:
    """Where libraries are put that were built here."""
    folder: Path = setting("ARMILLARY_CACHE_DIR") / "external"
    return folder


def external_file(kind: str) -> str:
    """The file name of the library of a kind."""
    return f"libarmillary_external_{kind}.so"


def tell_folders() -> None:
    """Tell the native runtime the folders as they are set now."""
    given = setting("ARMILLARY_EXTERNAL_PATH")
    folders = f"{given}:{built_folder()}" if given else str(built_folder())
    error = ErrorText()
    error.check(native().arm_external_path(os.fsencode(folders), *error.args))


def has_external(kind: str) -> bool:
    """Whether the library of a kind is in one of the folders, or where the system looks."""
    given = [Path(part) for part in setting("ARMILLARY_EXTERNAL_PATH").split(":") if part]
    if any((folder / external_file(kind)).exists() for folder in (*given, built_folder())):
        return True
    try:
        ctypes.CDLL(external_file(kind))
    except OSError:  # the system does not know it
        return False
    return True
