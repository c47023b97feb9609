"""Arm Compute Library into a folder: from an archive of its release, from Debian packages, or from what apt offers.

In: a folder and files, or none (then `apt-get download` is asked, by its ordinary configuration). Out: the folder with
include and lib, which `armc build-external --library FOLDER` and ARMILLARY_ACL take. Invariant: nothing is written
outside of the folder; of a release with one library per architecture and extensions, one is taken (`target_lib`). Where
a library is searched: find_library.py.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from armillary.base.files import make_folder, regular, scratch_folder, written_atomically
from armillary.errors import ArtifactError, ConfigError, TargetError
from armillary.offload.acl.find_library import INSTALL, find_library

_PACKAGE = "libarm-compute-dev:arm64"
_HEADERS = ("arm_compute", "include", "support", "utils")
_LIBRARY = re.compile(r"libarm_compute\w*(-static)?\.(a|so)")
_MOST_BYTES = 1 << 33
_Place = Callable[[PurePosixPath], PurePosixPath | None]


def install_library(folder: str | Path, files: Sequence[str | Path] = (), target_lib: str = "") -> str:
    """Fill `folder`; returns the version of the library. `target_lib` names the sub-folder of a release's lib."""
    target = make_folder(folder)
    if files:
        for file in files:
            _unpack(Path(file), target, target_lib)
    else:
        with scratch_folder() as downloads:
            for package in _download(downloads):
                _unpack(package, target, target_lib)
    return find_library(target, ()).version


def _download(folder: Path) -> list[Path]:
    """The development package of the library and those of the library that it names, by apt."""
    if shutil.which("apt-get") is None:
        raise TargetError("there is no apt-get here to ask for Arm Compute Library", hint=f"give a file; {INSTALL}")
    message = _apt("apt-cache", "depends", "--no-recommends", "--no-suggests", _PACKAGE, folder=folder)
    names = [_PACKAGE, *re.findall(r"Depends: (libarm-compute[\w.-]*(?::arm64)?)", message)]
    _apt("apt-get", "download", *names, folder=folder)
    return sorted(folder.glob("*.deb"))


def _apt(*command: str, folder: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        hint = "dpkg --add-architecture arm64 && apt-get update; or give a file of the library"
        raise TargetError(f"{' '.join(command[:2])} has no {_PACKAGE}: {last}", hint=hint)
    return done.stdout


def _unpack(file: Path, target: Path, target_lib: str) -> None:
    try:
        with open(file, "rb", opener=regular) as stream:
            is_debian = stream.read(8) == b"!<arch>\n"
            data = io.BytesIO(_data_of(stream.read())) if is_debian else stream
            data.seek(0)
            with tarfile.open(fileobj=data, mode="r:*") as archive:
                members = archive.getmembers()
                place = _of_debian if is_debian else _of_release(members, file, target_lib)
                _write(archive, members, target, place)
    except (tarfile.TarError, EOFError, OSError) as error:
        hint = "give a .deb of libarm-compute, or a release of the library as .tar.gz"
        raise ArtifactError(f"{file} cannot be unpacked: {error}", hint=hint) from None


def _data_of(members: bytes) -> bytes:
    """The files of a Debian package, as a tar: the member data.tar of an ar archive."""
    at = 0
    while at + 60 <= len(members):
        name, size = members[at : at + 16].decode("latin-1").strip(), int(members[at + 48 : at + 58] or 0)
        if name.startswith("data.tar"):
            return members[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    raise tarfile.ReadError("a package without files")


def _of_debian(path: PurePosixPath) -> PurePosixPath | None:
    """usr/include/<triple>/x and usr/lib/<triple>/x, without the triple, which not every package has."""
    if path.parts[:1] != ("usr",) or path.parts[1:2] not in (("include",), ("lib",)):
        return None
    rest = [part for part in path.parts[2:] if part != "aarch64-linux-gnu"]
    return PurePosixPath(path.parts[1], *rest) if rest else None


def _of_release(members: Sequence[tarfile.TarInfo], file: Path, target_lib: str) -> _Place:
    """<release>/lib/<target_lib>/x as lib/x, headers as they are."""
    paths = [_plain(member.name) for member in members]
    places = {p.parent for p in paths if _LIBRARY.fullmatch(p.name)}
    wanted = sorted(p for p in places if not target_lib or p.name == target_lib)
    if len(wanted) != 1:
        choices = ", ".join(sorted(p.name for p in places)) or "none"
        message = f"{file} has no library for {target_lib!r}" if target_lib else f"{file} has {len(places)} libraries"
        raise ConfigError(message, hint=f"name one by --target-lib: {choices}")
    (chosen,) = wanted

    def place(path: PurePosixPath) -> PurePosixPath | None:
        if path.is_relative_to(chosen) and path != chosen:
            return PurePosixPath("lib") / path.relative_to(chosen)
        inner = PurePosixPath(*path.parts[1:])
        return inner if inner.parts[:1] and inner.parts[0] in _HEADERS else None

    return place


def _plain(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise tarfile.ReadError(f"the path {name!r} leaves the archive")
    return path


def _write(archive: tarfile.TarFile, members: Sequence[tarfile.TarInfo], target: Path, place: _Place) -> None:
    left = _MOST_BYTES
    for member, inner in _placed(members, place):
        path = target / inner
        make_folder(path.parent)
        if path.is_symlink() or path.exists():
            path.unlink()
        if member.issym():
            os.symlink(member.linkname, path)
            continue
        left -= member.size
        stream = archive.extractfile(member)
        if left < 0 or stream is None:
            raise tarfile.ReadError(f"{member.name!r} is too large, or no file")
        with stream, written_atomically(path) as output:
            shutil.copyfileobj(stream, output)


def _placed(members: Sequence[tarfile.TarInfo], place: _Place) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    """Files, and links to files beside them, with where they go."""
    for member in members:
        inner = place(_plain(member.name))
        is_link = member.issym() and "/" not in member.linkname and member.linkname != ".."
        if inner is not None and (member.isfile() or is_link):
            yield member, inner
