"""Temporary folders, as Relay-era scripts use them.

In: nothing, or a path. Out: `tempdir()`, a folder that disappears with its object. Invariant: a folder that the caller
named stays.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from armillary.base.boundary import boundary, bounded


@bounded
class TempDirectory:
    """A folder that is removed when the object dies or `remove` is called."""

    def __init__(self, custom_path: str | None = None) -> None:
        self._owned = None if custom_path else tempfile.TemporaryDirectory(prefix="armillary-")
        self.temp_dir = custom_path or (self._owned.name if self._owned else "")
        Path(self.temp_dir).mkdir(parents=True, exist_ok=True)

    @property
    def path(self) -> str:
        """The path of the folder."""
        return self.temp_dir

    def relpath(self, name: str) -> str:
        """A path inside the folder."""
        return str(Path(self.temp_dir) / name)

    def __truediv__(self, name: str) -> Path:
        """A path inside the folder."""
        return Path(self.temp_dir) / name

    def listdir(self) -> list[str]:
        """Names in the folder."""
        return sorted(entry.name for entry in Path(self.temp_dir).iterdir())

    def remove(self) -> None:
        """Delete the folder now (a custom path stays)."""
        if self._owned is not None:
            self._owned.cleanup()

    def __enter__(self) -> TempDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


@boundary("tempdir", arguments=True)
def tempdir(custom_path: str | None = None, keep_for_debug: bool = False) -> TempDirectory:
    """A new temporary folder; `keep_for_debug` leaves it in place."""
    if keep_for_debug and custom_path is None:
        return TempDirectory(tempfile.mkdtemp(prefix="armillary-"))
    return TempDirectory(custom_path)
