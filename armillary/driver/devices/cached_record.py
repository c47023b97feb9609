"""Records that are measured once and cached beside the kernels: a dataclass with a `version`, as JSON in a file.

In: a path, a record. Out: the record again, or None where there is none that can be used. Invariant: what is not to be
cached (ARMILLARY_CACHE=0), cannot be read or is of another version is as if it were not there; files are private
(base/files.py). Used by driver/roof.py and driver/devices/device_roof.py.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from armillary.base.config import setting
from armillary.base.files import make_private_folder, read_private, write_private
from armillary.errors import ArtifactError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


def read_cached(path: Path, kind: type[R], version: int) -> R | None:
    """The record in a file; None if there is none of this version."""
    retained = read_private(path) if setting("ARMILLARY_CACHE") else None
    if retained is None:
        return None
    try:
        result = kind(**json.loads(retained))
    except (ValueError, TypeError):  # unreadable or of another version: it is made again
        return None
    return result if getattr(result, "version", None) == version else None


def write_cached(path: Path, record: DataclassInstance) -> None:
    """Write a record; where the cache cannot be written to it is made again next time."""
    if setting("ARMILLARY_CACHE"):
        try:
            write_private(make_private_folder(path.parent) / path.name, json.dumps(asdict(record)).encode())
        except ArtifactError:
            return
