"""Compiled kernels kept on disk between runs.

In: keys (a digest of everything the object depends on) and objects. Out: the object, or None. Invariant: an entry is
written whole or not at all (temporary name, then rename) and carries a checksum; a damaged entry is a miss and is
removed; the oldest used entries go first once the directory exceeds its limit. Safe with several processes at once.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

from armillary.base.config import setting
from armillary.base.digest import blake2b
from armillary.base.files import make_folder, write_atomic
from armillary.errors import ArtifactError

MAX_BYTES = 1 << 30
TRIM_SECONDS = 600
_MAGIC = b"ARMOBJ2\n"
_DIGEST = 32


def cache_key(*parts: str | bytes) -> str:
    """The key of an entry: every part counts, and so does where one ends."""
    digest = blake2b(digest_size=_DIGEST)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _digest(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=_DIGEST).digest()


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
        try:
            data = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST
        payload = data[start:]
        if data[: len(_MAGIC)] != _MAGIC or _digest(payload) != data[len(_MAGIC) : start]:
            _remove(path)
            return None
        try:
            os.utime(path)  # used now
        except OSError:  # read-only cache, or removed by another process: the payload is still good
            return payload
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Write an entry; a directory that cannot be written to gives one warning."""
        if self._is_unwritable:
            return
        path = self.path(key)
        try:
            make_folder(path.parent)
            write_atomic(path, _MAGIC + _digest(payload) + payload, 0o600)
        except ArtifactError as error:
            self._is_unwritable = True
            told = f"the kernel cache {self.directory} cannot be written to, kernels are compiled each time: {error}"
            warnings.warn(told, RuntimeWarning, stacklevel=2)

    def trim_at_times(self) -> None:
        """Trim unless somebody did within TRIM_SECONDS: looking at every entry takes long."""
        marker = self.directory / "trimmed"
        try:
            if marker.exists() and time.time() - marker.stat().st_mtime < TRIM_SECONDS:
                return
            marker.touch()
        except OSError:  # removed meanwhile, or (put has warned) the directory cannot be written to
            return
        self.trim()

    def trim(self) -> int:
        """Remove the least recently used entries until the limit holds; how many went."""
        entries = []
        for path in self.directory.glob("kernels/*/*"):
            try:
                status = path.stat()
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
