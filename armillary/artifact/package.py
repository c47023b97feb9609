"""The package tar: a compiled network as one file.

In: the bytes of a library or an object, graph JSON, parameters. Out: a tar of `mod.so` (or `mod.o`, which is linked
where it is loaded), `mod.json`, `mod.params` with their CRC-32s in `mod.crc32`; functions alone have the first and the
last. And all of them back, whole (`load_package`) or as places in the file (`open_package`), so that large members go
where they belong without a copy. Invariant: equal packages give equal files; a damaged or hostile tar raises an
ArtifactError that names the member. The C twin: `runtime/native/packages/arm_tar.c`.
"""

from __future__ import annotations

import os
import stat
import tarfile
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from armillary.artifact import params_size, write_params
from armillary.base.aliases import Array
from armillary.base.aligned import Deferred
from armillary.base.files import written_atomically
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.errors import ArtifactError, InternalError

with deferred():  # reading needs no queue
    from queue import SimpleQueue

if TYPE_CHECKING:
    from typing_extensions import Buffer


MAX_PACKAGE_MEMBER = 1 << 34
LIBRARY, OBJECT, GRAPH, PARAMS = "mod.so", "mod.o", "mod.json", "mod.params"
_CODE = (LIBRARY, OBJECT)  # one of them is there
CHECKSUMS = "mod.crc32"  # lines "<8 hex digits>  <member>", as sfv tools write them; packages of old have none
_MOST_SUMS = 1024  # bytes of them
_WAITING = 4  # pieces that are made but not written
_SMALL = 1 << 16  # bytes: pieces of less are put together, for each costs 10 us
Fill = Callable[[Callable[["Buffer"], object]], object]  # writes a member by what it is given


@record(slots=True)
class Package:
    """The members of a package tar that matter, as bytes and text; of functions without a graph the last two are empty.

    `library` is a shared library, or an object that is linked where it is loaded.
    """

    library: bytes
    graph_json: str = ""
    params: bytes = b""


@record(slots=True)
class Member:
    """Where a member lies in a package tar, and its CRC-32 (None in packages of old)."""

    name: str
    offset: int
    size: int
    crc: int | None = None

    def check(self, crc: int, path: str | Path) -> None:
        """Raise ArtifactError if the CRC-32 of what was read is not the recorded one."""
        if self.crc is not None and crc != self.crc:
            raise ArtifactError(
                f"{path}: member {self.name} is damaged: its CRC-32 is {crc:08x}, the package records {self.crc:08x}",
                hint="copy or export the package again",
            )


class WriteBehind:
    """Writes to a stream in a thread of its own, in order: the system copies while the next piece is made.

    That thread adds up, too: `section` ends a section of the stream and begins the next one, `sums` gives the CRC-32 of
    each that has ended.
    """

    def __init__(self, stream: IO[bytes], sums: bool = False) -> None:
        self.count = 0  # bytes given to `write`
        self._stream, self._adds = stream, sums
        self._crc, self._sums = 0, list[int]()
        self._small, self._small_size = list[bytes](), 0
        self._failure: BaseException | None = None
        self._pieces: SimpleQueue[Any] = SimpleQueue()  # Any: bytes-like, an Event (a section ends), None (the end)
        self._room = threading.Semaphore(_WAITING)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def write(self, piece: Buffer) -> None:  # which nobody writes to any more
        """The next piece. What went wrong with an earlier one is raised here, by `section` or at the end."""
        size = memoryview(piece).nbytes
        self.count += size
        if size < _SMALL:
            self._small.append(bytes(piece))
            self._small_size += size
        if size >= _SMALL or self._small_size >= _SMALL:
            self._flush()
        if size >= _SMALL:
            self._put(piece)

    def section(self) -> list[int]:
        """End a section, and wait until everything is written; the sums of all sections."""
        self._flush()
        done = threading.Event()
        self._put(done)
        done.wait()
        if self._failure is not None:
            raise self._failure
        return self._sums

    def _flush(self) -> None:
        if self._small:
            self._put(b"".join(self._small))
            self._small, self._small_size = [], 0

    def _put(self, piece: object) -> None:  # bytes-like, or an Event
        if self._failure is not None:
            raise self._failure
        self._room.acquire()
        self._pieces.put(piece)

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            if isinstance(piece, threading.Event):
                self._sums.append(self._crc)
                self._crc = 0
                piece.set()
            elif self._failure is None:
                self._take(piece)
            del piece  # its memory is for the next one
            self._room.release()

    def _take(self, piece: Buffer) -> None:
        try:
            self._stream.write(piece)
        except BaseException as error:  # raised where the pieces come from
            self._failure = error
        if self._adds:
            self._crc = zlib.crc32(piece, self._crc)

    def __enter__(self) -> WriteBehind:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._pieces.put(None)  # whatever happened, the thread ends
            self._thread.join()
        if kind is None and self._failure is not None:
            raise self._failure


def save_package(path: str | Path, package: Package) -> None:
    """Write code, `mod.json`, `mod.params` to a tar; equal packages give equal files, a crash leaves no half."""
    _write_package(path, lambda: package.library, package.graph_json, len(package.params), _whole(package.params))


def save_network(
    path: str | Path, make_library: Callable[[], bytes], graph_json: str, params: Mapping[str, Array | Deferred]
) -> None:
    """`save_package` without a copy of the parameters: they are read, packed, summed and written piece by piece."""
    _write_package(path, make_library, graph_json, params_size(params), lambda w: write_params(w, params))


def _write_package(
    path: str | Path, make_library: Callable[[], bytes], graph_json: str, size: int, write_blob: Fill
) -> None:
    library, text = make_library(), graph_json.encode("utf-8")
    members = [(OBJECT if is_object(library) else LIBRARY, len(library), _whole(library))]
    if text:
        members += [(GRAPH, len(text), _whole(text)), (PARAMS, size, write_blob)]
    most = size + len(library) + len(text) + 4 * tarfile.RECORDSIZE  # headers, sums and what rounds up
    with written_atomically(path, size=most) as file, WriteBehind(file, sums=True) as stream:
        sums = [f"{_write_member(stream, *member):08x}  {member[0]}\n" for member in members]
        lines = "".join(sums).encode()
        _write_member(stream, CHECKSUMS, len(lines), _whole(lines))
        stream.write(bytes(-(stream.count + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE + 2 * tarfile.BLOCKSIZE))


def is_object(code: bytes) -> bool:
    """Whether code is a relocatable ELF object, not a shared library."""
    return code[:4] == b"\x7fELF" and code[16:18] in (b"\1\0", b"\0\1")


def code_member(members: Mapping[str, Member]) -> Member:
    """The member with the code."""
    return next(members[name] for name in _CODE if name in members)


def _whole(data: bytes) -> Fill:
    return lambda write: write(data)


def _write_member(stream: WriteBehind, name: str, size: int, fill: Fill) -> int:
    """Write header and content; the CRC-32 of the content."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o755 if name == LIBRARY else 0o644
    stream.write(info.tobuf(format=tarfile.USTAR_FORMAT))
    stream.section()
    start = stream.count
    fill(stream.write)
    if stream.count - start != size:
        raise InternalError(f"package member {name} has {stream.count - start} bytes, announced were {size}")
    crc = stream.section()[-1]
    stream.write(bytes(-size % tarfile.BLOCKSIZE))
    return crc


def load_package(path: str | Path) -> Package:
    """Read a package tar. Links, devices, other names, duplicates, oversized and damaged members are refused."""
    with open_package(path) as (stream, members):
        library = read_member(stream, code_member(members), path)
        if GRAPH not in members:
            return Package(library)
        text, params = (read_member(stream, members[name], path) for name in (GRAPH, PARAMS))
    return Package(library, graph_text(text, path), params)


@contextmanager
def open_package(path: str | Path) -> Iterator[tuple[IO[bytes], dict[str, Member]]]:
    """A package's file and where its members lie in it; nothing but headers and checksums is read."""
    with _opened(path) as stream:
        yield stream, _members(stream, path)


@contextmanager
def open_folder(path: str | Path) -> Iterator[tuple[dict[str, IO[bytes]], dict[str, Member]]]:
    """The files of an unpacked package, and what is known of each."""
    folder = Path(path)
    code = OBJECT if (folder / OBJECT).exists() and not (folder / LIBRARY).exists() else LIBRARY
    names = [code, GRAPH, PARAMS, *([CHECKSUMS] if (folder / CHECKSUMS).exists() else ())]
    with ExitStack() as stack:
        files = {name: stack.enter_context(_opened(folder / name)) for name in names}
        whole = {name: Member(name, 0, os.fstat(file.fileno()).st_size) for name, file in files.items()}
        sums = _checksums(files[CHECKSUMS].read(_MOST_SUMS), path) if CHECKSUMS in files else {}
        yield files, {name: Member(name, 0, m.size, sums.get(name)) for name, m in whole.items()}


def _opened(path: str | Path) -> IO[bytes]:
    try:
        stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return stream
        stream.close()
        raise ArtifactError(f"{path}: the package is not a regular file")
    except OSError as error:
        message = f"{path}: the package cannot be read: {error.strerror or error}"
        hint = "ls -l shows who may read it" if isinstance(error, PermissionError) else ""
        raise ArtifactError(message, hint=hint) from None


def _members(stream: IO[bytes], path: str | Path) -> dict[str, Member]:
    members: dict[str, Member] = {}
    end = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for info in archive:
                name = info.name.removeprefix("./")
                if info.isdir() and name in ("", "."):
                    continue
                _check_member(path, info, name, members)
                if info.offset_data + info.size > end:
                    raise ArtifactError(f"{path}: member {name} is truncated")
                members[name] = Member(name, info.offset_data, info.size)
        _check_end(stream, max((m.offset + m.size for m in members.values()), default=0), path)
    except (tarfile.TarError, OSError, ValueError, EOFError, OverflowError) as error:
        raise ArtifactError(f"{path}: not a readable package tar: {error}") from error
    codes = [name for name in _CODE if name in members]
    if len(codes) == 2:
        raise ArtifactError(f"{path}: unexpected member {OBJECT!r} beside {LIBRARY}")
    graph = [name for name in (GRAPH, PARAMS) if name in members]
    is_functions = codes and not graph and CHECKSUMS in members  # the sums come last: nothing was cut off
    missing = ([] if codes else [LIBRARY]) + ([] if is_functions else [n for n in (GRAPH, PARAMS) if n not in members])
    if missing:
        raise ArtifactError(f"{path}: the package lacks {', '.join(missing)}")
    sums = _checksums(read_member(stream, members[CHECKSUMS], path), path) if CHECKSUMS in members else {}
    if sums and set(sums) != {*codes, *graph}:
        raise ArtifactError(f"{path}: member {CHECKSUMS} is damaged: one line for each other member is expected")
    return {n: Member(n, m.offset, m.size, sums.get(n)) for n, m in members.items()}


def _check_end(stream: IO[bytes], end_of_data: int, path: str | Path) -> None:
    """A tar ends in a block of zeros, with zeros behind it: a header that cannot be read would hide the checksums."""
    stream.seek(-(-end_of_data // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)
    count = 0
    while piece := stream.read(1 << 20):
        count += len(piece)
        if piece.count(0) != len(piece):
            count = 0
            break
    if count < tarfile.BLOCKSIZE:
        raise ArtifactError(f"{path}: the package is truncated, or a header is damaged", hint="export or copy it again")


def _checksums(text: bytes, path: str | Path) -> dict[str, int]:
    rows = [line.split(b"  ") for line in text.splitlines()]
    known = {name.encode(): name for name in (*_CODE, GRAPH, PARAMS)}
    try:
        sums = {known[name]: int(value, 16) for value, name in rows}
    except (ValueError, KeyError) as error:
        raise ArtifactError(f"{path}: member {CHECKSUMS} is damaged") from error
    if not sums or len(rows) != len(sums):
        raise ArtifactError(f"{path}: member {CHECKSUMS} is damaged: one line for each other member is expected")
    return sums


def read_member(stream: IO[bytes], member: Member, path: str | Path) -> bytes:
    """The bytes of a member, its checksum verified."""
    stream.seek(member.offset)
    data = stream.read(member.size)
    if len(data) != member.size:
        raise ArtifactError(f"{path}: member {member.name} is truncated")
    member.check(zlib.crc32(data), path)
    return data


def graph_text(data: bytes, path: str | Path) -> str:
    """The text of `mod.json`."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path}: not a readable package tar: {error}") from error


def _check_member(path: str | Path, info: tarfile.TarInfo, name: str, members: Mapping[str, Member]) -> None:
    if name not in (*_CODE, GRAPH, PARAMS, CHECKSUMS) or name in members:
        hint = f"a package holds {LIBRARY} or {OBJECT}, {GRAPH}, {PARAMS}"
        raise ArtifactError(f"{path}: unexpected member {info.name!r}", hint=hint)
    if not info.isreg() or info.issparse():
        raise ArtifactError(f"{path}: member {info.name!r} is not a regular file")
    limit = _MOST_SUMS if name == CHECKSUMS else MAX_PACKAGE_MEMBER
    if not 0 <= info.size <= limit:
        raise ArtifactError(f"{path}: member {info.name!r} claims {info.size} bytes; the limit is {limit}")
