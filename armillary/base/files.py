"""Writing files: whole or not at all.

In: paths and what to put there. Out: files. Invariant: readers see the old content or the new, never a part, and what
fails leaves nothing behind; it is an ArtifactError that names the path, the reason and what to do. Temporary files are
in folders that are locked while somebody uses them: what a killed process left goes when the next one writes there.
Where the output is no ordinary file (a pipe, /dev/null) it is written as it comes. What caches keep is read only if
nobody else can have written it, and takes the place of whatever has its name. Needs the standard library only: the
build backend uses it before anything is installed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import io
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from armillary.base.lazy import deferred
from armillary.errors import ArtifactError, Span

with deferred():  # reading needs no folder of temporary files
    import tempfile

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LARGE_FILE = 1 << 24
MOST_BYTES = 1 << 28  # of a text, a table or a picture that is read at once
MOST_MODEL_BYTES = 1 << 36
_MOST_CACHED = 1 << 32  # of the code of a kernel
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE
_ELSEWHERE = "name a folder that may be written to"
_SCRATCH = "TMPDIR names the folder of temporary files"
_SCRATCH_PREFIX = "armillary-scratch-"
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY
_HINTS = {
    errno.ENOSPC: "make room on that disk, or write to another one",
    errno.EDQUOT: "make room on that disk, or write to another one",
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _ELSEWHERE),
}


def unwritable(path: object, error: OSError, hint: str = "") -> ArtifactError:
    """What to raise when the system refuses to write to `path`."""
    message = hint or _HINTS.get(error.errno or 0, "")
    return ArtifactError(f"cannot write: {error.strerror or error}", span=Span(str(path)), hint=message)


_DISK_FAULTS = ("No space left on device", "Disk quota exceeded", "Read-only file system", "Input/output error")


def disk_fault(text: str) -> str:
    """The line of an error, of this program or another one, that lays it on a disk; "" where none does."""
    return next((line.strip() for line in text.splitlines() if any(fault in line for fault in _DISK_FAULTS)), "")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise ArtifactError unless a file can be made at `path`: said before the work rather than after it."""
    try:
        _check_writable(path, Path(path))
    except PermissionError as error:  # of a folder above
        raise unwritable(path, error) from None


def _check_writable(path: object, target: Path) -> None:
    if target.is_dir():
        raise ArtifactError("cannot write: it is a folder", span=Span(str(path)), hint="name a file inside it")
    if not target.parent.is_dir():
        message = f"cannot write: there is no folder {str(target.parent)!r}"
        raise ArtifactError(message, span=Span(str(path)), hint="make the folder first")
    if not (_is_special(target) or os.access(target.parent, os.W_OK)):
        message = f"cannot write: the folder {str(target.parent)!r} may not be written to"
        raise ArtifactError(message, span=Span(str(path)), hint=_ELSEWHERE)


def _is_special(target: Path) -> bool:
    return os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target)


@contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[Path]:
    """A file to make, which takes the place of `path` when the block ends well; `mode` as the umask leaves it.

    It lies beside `path` in a folder of its own, which is locked: a linker makes a file anew that it finds.
    """
    check_writable(path)
    target = Path(os.path.realpath(path))  # a link stays a link
    prefix = f".{target.name}.part-"
    try:
        _sweep(str(target.parent), prefix)
        with _held_folder(prefix, target.parent) as folder:
            result = folder / target.name
            yield result
            os.chmod(result, mode & ~_umask())
            os.replace(result, target)
    except OSError as error:
        raise unwritable(path, error) from None


@contextmanager
def _held_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder whose name begins so, in `parent` or among temporary ones; gone when the block ends.

    It is in use while its lock is held: until the block or the process ends. Its name is known before it is there, so
    that an interrupt at any moment finds it to remove.
    """
    while True:
        folder = Path(parent or tempfile.gettempdir(), prefix + os.urandom(6).hex())
        handle, is_ours = None, True
        try:
            os.mkdir(folder, 0o700)
            handle = _locked(str(folder))
            if handle is not None:
                yield folder
                return
        except FileExistsError as error:
            if error.filename != str(folder):
                raise
            is_ours = False
        finally:
            if is_ours:
                shutil.rmtree(folder, ignore_errors=True)
            if handle is not None:
                os.close(handle)


def _locked(path: str) -> int | None:
    """The descriptor with the lock; None where somebody swept between making and locking."""
    try:
        handle = os.open(path, _FOLDER)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # a file system without locks: nobody sweeps there either
        fcntl.flock(handle, fcntl.LOCK_EX)
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
    os.close(handle)
    return None


def _sweep(parent: str, prefix: str) -> None:
    """Remove the folders that killed processes of this user left there under names that begin so."""
    with suppress(OSError), os.scandir(parent) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(prefix)]
        for path in left:
            with suppress(OSError):  # gone, no folder, or not ours to open
                handle = os.open(path, _FOLDER)
                try:
                    _remove_if_left(path, handle)
                finally:
                    os.close(handle)


def _remove_if_left(path: str, handle: int) -> None:
    """OSError where it is in use."""
    if os.fstat(handle).st_uid == os.geteuid():
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


@contextmanager
def written_atomically(path: str | os.PathLike[str], mode: int = 0o666, size: int = 0) -> Iterator[IO[bytes]]:
    """A stream that becomes the file when the block ends well.

    `size` says how many bytes will come at most. With room for all reserved ext4 has nothing to allocate when the file
    replaces another one: else renaming 550 MB takes 0.3 s.
    """
    if _is_special(Path(path)):
        with io.BytesIO() as whole:  # a device may say of every place in it that it is the first
            yield whole
            _write_through(Path(path), whole)
        return
    with replacing(path, mode) as part, part.open("wb") as stream:
        if size >= _LARGE_FILE:
            _reserve(stream.fileno(), size)
        yield stream
        if size >= _LARGE_FILE:
            stream.truncate()  # gives back what was reserved too much


def _write_through(path: Path, whole: io.BytesIO) -> None:
    try:
        with path.open("wb") as stream:
            stream.write(whole.getbuffer())
    except OSError as error:
        raise unwritable(path, error) from None


def write_atomic(path: str | os.PathLike[str], data: bytes | memoryview, mode: int = 0o666) -> None:
    """Write a whole file."""
    with written_atomically(path, mode) as stream:
        stream.write(data)


def regular(path: str, flags: int) -> int:
    """An opener for `open`: OSError for a pipe, a device or a socket, whose readers would wait."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # of a folder `open` says what it is
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "not a regular file", path)


def read_regular(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file of at most so many; OSError for anything else: a number would be an open file, which
    would be closed. A file that holds nothing may say that it is of any size."""
    try:
        os.fspath(path)
    except TypeError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    with open(path, "rb", opener=regular) as stream:
        return _read_bounded(stream, most, os.fspath(path))


def _read_bounded(stream: IO[bytes], most: int, path: object) -> bytes:
    size = os.fstat(stream.fileno()).st_size
    data = stream.read(size + 1) if size <= most else b""  # memory is taken for what is asked
    while size < len(data) <= most and (piece := stream.read(1 << 20)):  # it grows, or its size is not known
        data += piece
    if size > most or len(data) > most:
        message = f"the file is too large: {max(size, len(data))} bytes, at most {most} are read"
        raise OSError(errno.EFBIG, message, path)
    return data


def is_private(status: os.stat_result) -> bool:
    """Whether only this user and the administrator may have written it, as OpenSSH asks of keys."""
    return not hasattr(os, "geteuid") or (status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022)


def is_private_folder(path: str | os.PathLike[str]) -> bool:
    """Whether it is a folder that only this user and the administrator may write to."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and is_private(status)


def read_private(path: str | os.PathLike[str]) -> bytes | None:
    """The bytes of a regular file that is private; None if it is a link or anything else, too large, or not there."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or not is_private(status):
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as stream, suppress(OSError):
        return _read_bounded(stream, _MOST_CACHED, path)
    return None


def write_private(path: str | os.PathLike[str], *parts: Buffer) -> None:
    """Write a whole file of a cache from its parts, for this user alone, in the place of whatever has its name."""
    remove_irregular(path)
    with written_atomically(path, 0o600) as stream:
        for part in parts:
            stream.write(part)


def remove_irregular(path: str | os.PathLike[str]) -> None:
    """Remove a link, a pipe or a folder: what is written to it would go elsewhere, or wait for a reader."""
    with suppress(OSError):  # not there; writing says what else is wrong
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            shutil.rmtree(path, ignore_errors=True)
        elif not stat.S_ISREG(mode):
            os.unlink(path)


def make_private_folder(path: Path) -> Path:
    """The folder; it and those above it that are missing are made for this user alone."""
    try:
        missing = [place for place in (path, *path.parents) if not place.exists()]
        for place in reversed(missing):
            place.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None
    return path


def _reserve(handle: int, size: int) -> None:
    """Ask for blocks, where the system and the file system know how; the size of the file stays as it is."""
    fallocate = getattr(ctypes.CDLL(None), "fallocate64", None)  # os.posix_fallocate writes zeros where it is unknown
    if fallocate is not None:
        fallocate(handle, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size))


def make_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, made if it is not there, with those above it."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise unwritable(path, error, "a file has this name; name a folder") from None
    except OSError as error:
        raise unwritable(path, error) from None
    return Path(path)


_sweep_scratch = functools.cache(_sweep)  # once for each process


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, gone when the block ends."""
    with ExitStack() as stack:
        try:
            _sweep_scratch(tempfile.gettempdir(), _SCRATCH_PREFIX)
            folder = stack.enter_context(_held_folder(_SCRATCH_PREFIX))
        except OSError as error:
            raise unwritable(error.filename or "the folder of temporary files", error, _SCRATCH) from None
        try:
            yield folder
        except OSError as error:
            is_ours = error.errno in _HINTS and str(error.filename or folder).startswith(str(folder))
            if not is_ours:
                raise
            raise unwritable(error.filename or tempfile.gettempdir(), error, _SCRATCH) from None
