"""Compiled kernels kept on disk between runs.

In: keys (a digest of everything the object depends on) and objects. Out: the object, or None. Invariant: an entry is
written whole or not at all (temporary name, then rename) and carries a checksum of key and payload; a damaged entry
is a miss and is removed; folders and entries that somebody else owns or may write to, links and what is no regular file
are not used; the oldest used entries go first once the directory exceeds its limit. Safe with several processes.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.config import setting
from armillary.base.digest import blake2b
from armillary.base.files import is_private_folder, make_private_folder, read_private, remove_irregular, write_private
from armillary.errors import ArtifactError

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_BYTES = 1 << 30
TRIM_SECONDS = 600
_MAGIC = b"ARMOBJ3\n"
_DIGEST = 32


def cache_key(*parts: str | bytes) -> str:
    """The key of an entry: every part counts, and so does where one ends."""
    digest = blake2b(digest_size=_DIGEST)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _digest(key: str, *parts: Buffer) -> bytes:
    digest = blake2b(digest_size=_DIGEST)
    digest.update(key.encode() + b"\0")
    for part in parts:
        digest.update(part)
    return digest.digest()


class Cache:
    """A directory of entries, found by key."""

    def __init__(self, directory: Path, max_bytes: int = MAX_BYTES) -> None:
        self.directory, self.max_bytes = directory, max_bytes
        self._is_unwritable = False

    def path(self, key: str) -> Path:
        return self.directory / "kernels" / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """The payload of an entry; None if there is none or it is damaged."""
        path = self.path(key)
        data = read_private(path) if self._is_trusted(path.parent) else None
        if data is None:
            return None
        start = len(_MAGIC) + _DIGEST
        payload = data[start:]
        if data[: len(_MAGIC)] != _MAGIC or _digest(key, payload) != data[len(_MAGIC) : start]:
            _remove(path)
            return None
        try:
            os.utime(path)  # used now
        except OSError:  # read-only cache, or removed by another process: the payload is still good
            return payload
        return payload

    def put(self, key: str, *parts: Buffer) -> None:
        """Write an entry, its parts one after another; a directory that cannot be written to gives one warning."""
        if self._is_unwritable:
            return
        path = self.path(key)
        try:
            make_private_folder(path.parent)
            if not self._is_trusted(path.parent):
                return
            write_private(path, _MAGIC + _digest(key, *parts), *parts)
        except ArtifactError as error:
            self._is_unwritable = True
            message = f"the kernel cache {self.directory} cannot be written to, kernels are compiled each time: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _is_trusted(self, folder: Path) -> bool:
        """Whether nobody else can put entries into a folder of the cache; if somebody can, one warning."""
        for place in (self.directory, self.directory / "kernels", folder):
            is_link = place != self.directory and os.path.islink(place)
            if not is_link and (is_private_folder(place) or not os.path.exists(place)):  # not there: no entry either
                continue
            if not self._is_unwritable:
                self._is_unwritable = True
                message = (
                    f"the kernel cache is not used: {place} is owned or can be written by somebody else; chmod go-w"
                )
                warnings.warn(message, RuntimeWarning, stacklevel=3)
            return False
        return True

    def trim_at_times(self) -> None:
        """Trim unless somebody did within TRIM_SECONDS: looking at every entry takes long."""
        marker = self.directory / "trimmed"
        try:
            remove_irregular(marker)  # it would be touched
            if marker.exists() and time.time() - marker.stat().st_mtime < TRIM_SECONDS:
                return
            marker.touch()
        except OSError:  # removed meanwhile, or (put has warned) the directory cannot be written to
            return
        self.trim()

    def trim(self) -> int:
        """Remove the least recently used entries until the limit holds; how many went."""
        entries = []
        folders = (folder for folder in self.directory.glob("kernels/*") if self._is_trusted(folder))
        for path in (path for folder in folders for path in folder.glob("*")):
            try:
                status = path.lstat()
            except OSError:  # another process removed it
                continue
            entries.append((status.st_mtime_ns, status.st_size, path))
        total, removed = sum(size for _, size, _ in entries), 0
        for _, size, path in sorted(entries, key=lambda entry: entry[0]):
            if total <= self.max_bytes:
                break
            if _remove(path):
                total, removed = total - size, removed + 1
        return removed


def _remove(path: Path) -> bool:
    """Whether an entry is gone: that of another user, or of a folder that is read only, stays."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def default_cache() -> Cache | None:
    """The cache the settings name; None when it is switched off."""
    return Cache(setting("ARMILLARY_CACHE_DIR")) if setting("ARMILLARY_CACHE") else None
