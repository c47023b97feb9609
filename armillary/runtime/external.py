"""Where libraries for offloaded functions are looked for.

In: the setting ARMILLARY_EXTERNAL_PATH. Out: the folders told to the native runtime, which looks there first, then
beside the package, then where the system does. Invariant: the folder that `armc build-external` fills is among them,
unless somebody else may write to it.
Finding and calling: native/arm_external.c.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from pathlib import Path

from armillary.base.config import setting
from armillary.base.files import is_private_folder
from armillary.runtime.native_library import ErrorText, native


def built_folder() -> Path:
    """Where libraries are put that were built here."""
    folder: Path = setting("ARMILLARY_CACHE_DIR") / "external"
    return folder


def external_file(kind: str) -> str:
    """The file name of the library of a kind."""
    return f"libarmillary_external_{kind}.so"


def set_external_path() -> None:
    """Tell the native runtime the folders as they are set now."""
    error = ErrorText()
    error.check(native().arm_external_path(os.fsencode(":".join(_folders())), *error.args))


def _folders() -> list[str]:
    """Those of the setting, then the cache's, if it is this user's alone."""
    folders, own = setting("ARMILLARY_EXTERNAL_PATH"), built_folder()
    if own.exists() and not is_private_folder(own):
        message = f"libraries in {own} are not used: it is owned or can be written by somebody else; chmod go-w"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
        return [folders]
    return [folders, str(own)] if folders else [str(own)]


def has_external(kind: str) -> bool:
    """Whether the library of a kind is in one of the folders, or where the system looks."""
    if any((Path(folder) / external_file(kind)).exists() for folder in _folders() if folder):
        return True
    try:
        ctypes.CDLL(external_file(kind))
    except OSError:  # the system does not know it
        return False
    return True
