"""Large files are written by a thread of their own: in order, summed, whole or not at all."""

from __future__ import annotations

import errno
import io
import zlib
from pathlib import Path

import numpy as np
import pytest

from armillary.artifact import load_params, params_size
from armillary.artifact.package import WriteBehind, load_package, save_network
from armillary.base.files import written_atomically

PIECES = [bytes([k % 251]) * size for k, size in enumerate([3, 70_000, 0, 1, 65_535, 65_536, 9, 200_000, *[1000] * 99])]


class FullDisk(io.BytesIO):
    """Takes so many bytes, then none."""

    def write(self, piece: object) -> int:
        if self.tell() > 100_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(piece)  # type: ignore[arg-type]


def test_pieces_arrive_in_order_and_sections_are_summed() -> None:
    file, half = io.BytesIO(), len(PIECES) // 2
    with WriteBehind(file, sums=True) as stream:
        for part in (PIECES[:half], PIECES[half:]):
            for piece in part:
                stream.write(piece)
            sums = stream.section()
        assert file.getvalue() == b"".join(PIECES)
        stream.write(b"behind the last section")
    assert sums == [zlib.crc32(b"".join(part)) for part in (PIECES[:half], PIECES[half:])]
    assert file.getvalue() == b"".join(PIECES) + b"behind the last section" and stream.count == len(file.getvalue())


def test_views_of_any_type_count_in_bytes() -> None:
    file, data = io.BytesIO(), np.arange(30_000, dtype=np.float32).reshape(100, 300)
    with WriteBehind(file) as stream:
        stream.write(data.data)
        stream.write(data[0].data)
    assert stream.count == data.nbytes + 1200 and file.getvalue() == data.tobytes() + data[0].tobytes()


@pytest.mark.parametrize("ends", ["write", "section", "exit"])
def test_what_goes_wrong_in_the_thread_is_raised_where_pieces_come_from(ends: str) -> None:
    def fill(stream: WriteBehind) -> None:
        for _ in range(100 if ends == "write" else 3):
            stream.write(bytes(1 << 16))
        if ends == "section":
            stream.section()

    with pytest.raises(OSError, match="No space left"), WriteBehind(FullDisk()) as stream:
        fill(stream)
    assert not stream._thread.is_alive()


def test_error_while_pieces_are_made_ends_the_thread_and_leaves_no_file(tmp_path: Path) -> None:
    streams = []

    def fill() -> None:
        with written_atomically(tmp_path / "x.bin", size=1 << 25) as file, WriteBehind(file) as stream:
            streams.append(stream)
            stream.write(bytes(1 << 20))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fill()
    assert not streams[0]._thread.is_alive() and list(tmp_path.iterdir()) == []


def test_file_with_room_reserved_is_as_long_as_what_was_written(tmp_path: Path) -> None:
    target = tmp_path / "x.bin"
    with written_atomically(target, size=1 << 26) as file:
        file.write(bytes(range(256)) * 4096)
    status = target.stat()
    assert status.st_size == 1 << 20 and status.st_blocks * 512 <= 2 << 20
    assert target.read_bytes() == bytes(range(256)) * 4096


def test_large_package_reads_back_with_its_sums(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    params = {f"p{k}": rng.integers(0, 9, size, dtype=np.int32) for k, size in enumerate([5, 5_000_000, 1, 300_000])}
    save_network(tmp_path / "x.tar", lambda: b"library", "{}", params)
    package = load_package(tmp_path / "x.tar")  # verifies the sums
    assert package.library == b"library" and len(package.params) == params_size(params)
    for name, value in load_params(package.params).items():
        np.testing.assert_array_equal(value, params[name])
