"""Files are written whole or not at all, where the user said, and a refusal names the place and what to do."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.base import files
from armillary.base.files import (
    check_writable,
    make_folder,
    replacing,
    scratch_folder,
    write_atomic,
    written_atomically,
)
from armillary.errors import ArtifactError


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_written_file_has_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    write_atomic(tmp_path / "plain", b"1")
    write_atomic(tmp_path / "private", b"1", 0o600)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "private")]
    assert modes == [0o640, 0o600]


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    target.parent.mkdir()
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomic(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new" and os.listdir(target.parent) == ["file"]


def test_what_is_no_ordinary_file_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(pipe, b"through")
    assert os.read(reader, 100) == b"through" and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)
    with written_atomically("/dev/full") as stream:
        np.savez(stream, x=np.zeros(3))
        assert stream.tell() > 24
        stream.truncate(0)  # nothing to write is no failure, even there
    with pytest.raises(ArtifactError, match="No space left"):
        write_atomic("/dev/full", b"1")


@pytest.mark.parametrize(("code", "advice"), [(errno.ENOSPC, "make room"), (errno.EROFS, "may be written to")])
def test_a_failure_names_the_place_and_leaves_the_old_file(tmp_path: Path, code: int, advice: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half() -> None:
        with written_atomically(path) as stream:
            stream.write(b"half")
            raise OSError(code, os.strerror(code))

    with pytest.raises(ArtifactError, match=advice) as caught:
        write_half()
    assert str(path) in str(caught.value) and os.strerror(code) in str(caught.value)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_no_temporary_file_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("os.mkdir", refuse)
    with pytest.raises(ArtifactError, match="Read-only"), replacing(tmp_path / "file"):
        raise AssertionError("nothing to write to")


def test_places_where_no_file_can_be_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArtifactError, match="it is a folder"):
        check_writable(tmp_path)
    with pytest.raises(ArtifactError, match="there is no folder"):
        check_writable(tmp_path / "nowhere" / "file")
    check_writable("/dev/null")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ArtifactError, match="may not be written to"):
        check_writable(tmp_path / "file")


def test_a_folder_that_may_not_be_looked_into_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("os.stat", refuse)
    with pytest.raises(ArtifactError, match=r"cannot write: Permission denied(.|\n)*may be written to"):
        write_atomic(tmp_path / "file", b"1")


def test_a_folder_where_a_file_is_and_a_full_scratch_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"cannot write(.|\n)*name a folder"):
        make_folder(tmp_path / "file" / "below")
    with pytest.raises(ArtifactError, match="TMPDIR"), scratch_folder() as folder:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "x"))
    assert not folder.exists()
    with pytest.raises(FileNotFoundError), scratch_folder():
        Path(tmp_path, "what a user's linker did not find").read_bytes()
    with pytest.raises(PermissionError), scratch_folder():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "a user's file"))


_BUSY = """
import sys
from armillary.base.files import replacing, scratch_folder, written_atomically
with scratch_folder() as folder, written_atomically(sys.argv[1]) as stream, replacing(sys.argv[1]) as linked:
    (folder / "x").write_text("1")
    stream.write(b"half")
    stream.flush()
    linked.write_bytes(b"half")
    linked.unlink()
    linked.write_bytes(b"another file")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_process_left_goes_and_what_a_live_one_uses_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: signal.Signals
) -> None:
    out, temporary = tmp_path / "out" / "file", tmp_path / "tmp"
    out.parent.mkdir()
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    (temporary / f"{files._SCRATCH_PREFIX}link").symlink_to(tmp_path)  # not a folder of ours
    others = {"armillary-users", f"{files._SCRATCH_PREFIX}link"}
    (temporary / "armillary-users").mkdir()
    command = [sys.executable, "-c", _BUSY, str(out)]
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    with process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())

        def write() -> None:
            files._sweep_scratch.cache_clear()
            with scratch_folder():
                write_atomic(out, b"whole")

        write()
        assert (folder / "x").exists() and len(os.listdir(out.parent)) == 3
        process.send_signal(end)
        process.wait(60)
        assert (folder / "x").exists() and len(os.listdir(out.parent)) == 3
        write()
    assert set(os.listdir(temporary)) == others and os.listdir(out.parent) == ["file"]
    assert out.read_bytes() == b"whole" and tmp_path.is_dir()


def test_a_folder_swept_before_it_is_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made, right = list[str](), os.open

    def sweep_first(path: str, flags: int, **rest: Any) -> int:
        made.append(path)
        if len(made) == 1:
            os.rmdir(path)
        return right(path, flags, **rest)

    monkeypatch.setattr("os.open", sweep_first)
    with scratch_folder() as folder:
        assert str(folder) == made[1] and len(made) == 2
    assert os.listdir(tmp_path) == []
