"""The folder of a session: the only files that a client can name.

In: relative paths and bytes from outside. Out: files in the folder. Invariant: no operation reaches outside the folder
- each path is opened part by part from its descriptor, and no part may be a link or `..` - and the files together stay
within a limit. Who uses it: `session.py`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armillary.errors import ArtifactError, RPCError, Span
from armillary.rpc.protocol import CHUNK

MAX_BYTES = 1 << 33  # of all files of a session
MAX_PATH, MAX_DEPTH, MAX_FILES = 512, 8, 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class SessionFiles:
    """Reads and writes files below one folder."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._sizes: dict[str, int] = {}
        self._folders: set[str] = set()  # that writing made, also those whose files are gone

    def path(self, name: str) -> Path:
        """The place of a file that was written, for those who open it themselves."""
        parts = checked_parts(name)
        with self._opened(parts, os.O_RDONLY):
            return self.folder.joinpath(*parts)

    def write(self, name: str, offset: int, data: bytes | memoryview) -> None:
        """Put bytes at a place of a file; offset 0 begins it anew."""
        parts = checked_parts(name)
        key = "/".join(parts)
        before = self._sizes.get(key, 0) if offset else 0
        if offset != before:
            raise RPCError(f"{name}: pieces come in order; {before} bytes are there, the next begins at {offset}")
        others = sum(size for other, size in self._sizes.items() if other != key)
        if others + offset + len(data) > self.max_bytes:
            raise RPCError(f"{name}: the files of a session may have {self.max_bytes} bytes in all")
        folders = self._folders | {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if len({*self._sizes, key}) + len(folders) > MAX_FILES:
            raise RPCError(f"{name}: a session may have {MAX_FILES} files and folders")
        self._folders = folders
        flags = os.O_WRONLY | os.O_CREAT | (0 if offset else os.O_TRUNC)
        with self._opened(parts, flags, make=True) as handle:
            view = memoryview(data)
            while len(view):
                view = view[os.pwrite(handle, view, offset + len(data) - len(view)) :]
        self._sizes[key] = offset + len(data)

    def read(self, name: str, offset: int, size: int) -> tuple[bytes, int]:
        """(bytes, size of the whole file)."""
        with self._opened(checked_parts(name), os.O_RDONLY) as handle:
            return os.pread(handle, min(size, CHUNK), offset), os.fstat(handle).st_size

    def remove(self, name: str) -> None:
        """Remove a file."""
        parts = checked_parts(name)
        with self._folder(parts[:-1], make=False) as folder:
            try:
                os.unlink(parts[-1], dir_fd=folder)
            except OSError as error:
                raise _refused(name, error) from None
        self._sizes.pop("/".join(parts), None)

    def listing(self) -> list[str]:
        """Names of all files."""
        rows = []
        for folder, _, names in os.walk(self.folder, followlinks=False):
            rows += [str(Path(folder, name).relative_to(self.folder)) for name in names]
        return sorted(rows)[:MAX_FILES]

    @contextmanager
    def _opened(self, parts: list[str], flags: int, make: bool = False) -> Iterator[int]:
        name = "/".join(parts)
        with self._folder(parts[:-1], make) as folder:
            try:
                handle = os.open(parts[-1], flags | _FILE, 0o700, dir_fd=folder)
            except OSError as error:
                raise _refused(name, error) from None
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise RPCError(f"{name}: this is no file")
                yield handle
            except OSError as error:
                raise _refused(name, error) from None
            finally:
                os.close(handle)

    @contextmanager
    def _folder(self, parts: list[str], make: bool) -> Iterator[int]:
        handle = os.open(self.folder, _FOLDER)
        try:
            for part in parts:
                inner = _step(handle, part, make)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)


def _step(folder: int, part: str, make: bool) -> int:
    try:
        if make and part not in os.listdir(folder):
            os.mkdir(part, 0o700, dir_fd=folder)
        return os.open(part, _FOLDER, dir_fd=folder)
    except OSError as error:
        raise _refused(part, error) from None


def checked_parts(name: str) -> list[str]:
    """The parts of a relative path; RPCError for one that could leave its folder."""
    parts = name.split("/") if isinstance(name, str) else []
    is_safe = all(part not in ("", ".", "..") and part.isprintable() and len(part) < 256 for part in parts)
    if not parts or not is_safe or len(name) > MAX_PATH or len(parts) > MAX_DEPTH or "\\" in name:
        message = f"{str(name)[:80]!r} is no path inside the session's folder"
        raise RPCError(message, hint="name a file like 'net.tar' or 'models/net.tar'")
    return parts


def _refused(name: str, error: OSError) -> ArtifactError:
    return ArtifactError(f"the device refuses: {error.strerror or error}", span=Span(name))
