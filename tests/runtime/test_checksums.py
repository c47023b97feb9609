"""Of a damaged package nothing runs, whichever way it is loaded: tar, unpacked folder, library, here or by armrun."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from armillary import relay
from armillary.artifact.library_sums import TRAILER
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.errors import ArtifactError
from armillary.runtime import cpu, load_module
from armillary.runtime.native_library import native

X = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
W = np.random.default_rng(1).standard_normal((400, 3)).astype("float32")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with net.so, net.tar, the unpacked folder net, and objects, which is one of the same as an object."""
    folder = tmp_path_factory.mktemp("net")
    x = relay.var("x", shape=(2, 3))
    library = build(relay.Function([x], relay.tanh(relay.nn.dense(x, relay.const(W)))), "llvm")
    library.export_library(folder / "net.so")
    library.export_library(folder / "objects.tar")
    library.export_library(folder / "net.tar", linked=True)
    for name in "objects", "net":
        with tarfile.open(folder / f"{name}.tar") as archive:
            archive.extractall(folder / name, filter="data")
    return folder


def computed(path: Path) -> np.ndarray:
    graph = GraphModule(load_module(path)["default"](cpu(0)))
    graph.set_input("x", X)
    graph.run()
    result: np.ndarray = graph.get_output(0).numpy()
    return result


def flipped(source: Path, target: Path, bit: int) -> None:
    data = bytearray(source.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    target.unlink(missing_ok=True)  # a file that is mapped is not written to
    target.write_bytes(data)


def bits(path: Path, count: int) -> list[int]:
    drawn = np.random.default_rng(7).integers(0, 8 * path.stat().st_size, count)
    return [int(bit) for bit in drawn]


def test_the_sum_is_that_of_zip_files_from_any_place_and_of_any_length() -> None:
    rng = np.random.default_rng(3)
    for size in (*range(200), 255, 256, 1023, 4096 + 17, 300_000):
        start, first = int(rng.integers(0, 2**32)), int(rng.integers(0, 16))
        data = np.frombuffer(rng.bytes(first + size), "u1")
        got = native().arm_crc32(start, data.ctypes.data + first, size)
        assert got == zlib.crc32(data[first:], start), (size, first)


@pytest.mark.parametrize("name", ["net.so", "net.tar", "net", "objects"])
def test_what_was_exported_runs(built: Path, name: str) -> None:
    np.testing.assert_allclose(computed(built / name), np.tanh(X @ W.T), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["net.so", "net.tar", "net/mod.so"])
def test_a_flipped_bit_of_a_file_is_noticed(built: Path, tmp_path: Path, name: str) -> None:
    bad = tmp_path / Path(name).name
    for bit in bits(built / name, 60):
        flipped(built / name, bad, bit)
        try:
            result = None if name == "net/mod.so" else computed(bad)  # which has no graph
            load_module(bad)
        except ArtifactError:
            continue
        assert name == "net.tar", f"byte {bit // 8 - bad.stat().st_size} from the end"  # which has padding
        if result is not None:
            np.testing.assert_array_equal(result, computed(built / name))


@pytest.mark.parametrize("field", [slice(0, 4), slice(7, 8), slice(0, 8), slice(8, 16), slice(40, 44), slice(0, 40)])
def test_damage_to_the_sums_does_not_hide_other_damage(built: Path, tmp_path: Path, field: slice) -> None:
    """A library whose sums are no longer seen would go to the system's loader, which trusts what it reads."""
    data = bytearray((built / "net.so").read_bytes())
    start = len(data) - TRAILER
    places = range(TRAILER)[field]
    for place in places:
        data[start + place] ^= 0x02
    data[0x200] ^= 0x80
    (tmp_path / "net.so").write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged"):
        load_module(tmp_path / "net.so")


@pytest.mark.parametrize("member", ["mod.so", "mod.o", "mod.json", "mod.params", "mod.crc32"])
def test_a_flipped_bit_of_an_unpacked_package_is_noticed(
    built: Path, tmp_path: Path, member: str, runner: Path
) -> None:
    whole, folder = built / ("objects" if member == "mod.o" else "net"), tmp_path / "net"
    folder.mkdir()
    for path in whole.iterdir():
        os.link(path, folder / path.name)
    for k, bit in enumerate(bits(whole / member, 20)):
        flipped(whole / member, folder / member, bit)
        with pytest.raises(ArtifactError, match=r"damaged|mod\.crc32"):
            computed(folder)
        if k < 5:
            ran = subprocess.run([runner, folder], capture_output=True, text=True, timeout=60, check=False)
            assert ran.returncode == 1, ran
            assert "damaged" in ran.stderr, ran.stderr


def test_armrun_notices_a_flipped_bit_of_a_library(built: Path, tmp_path: Path, runner: Path) -> None:
    size = (built / "net.so").stat().st_size
    params = 8 * (size - TRAILER - 2000)
    for bit in (*bits(built / "net.so", 10), params, params + 999):
        flipped(built / "net.so", tmp_path / "net.so", bit)
        ran = subprocess.run([runner, tmp_path / "net.so"], capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 1, ran
        assert "damaged" in ran.stderr, ran.stderr


def test_damaged_parameters_of_a_library_are_not_given_away(built: Path, tmp_path: Path) -> None:
    flipped(built / "net.so", tmp_path / "net.so", 8 * ((built / "net.so").stat().st_size - TRAILER - 100))
    module = load_module(tmp_path / "net.so")
    with pytest.raises(ArtifactError, match="parameters in the library are damaged"):
        _ = module.params
    with pytest.raises(ArtifactError, match="parameters in the library are damaged"):
        module["default"](cpu(0))


@pytest.mark.parametrize("byte", [0x00, 0xFF])
@pytest.mark.parametrize("length", [TRAILER, TRAILER + 1, 512])
def test_a_tail_that_was_never_written_is_noticed(built: Path, tmp_path: Path, byte: int, length: int) -> None:
    data = (built / "net.so").read_bytes()
    (tmp_path / "net.so").write_bytes(data[:-length] + bytes([byte]) * length)
    with pytest.raises(ArtifactError, match="damaged"):
        load_module(tmp_path / "net.so")


@pytest.mark.parametrize("length", [1, 8, 44, 47, 50, 100])
def test_bytes_lost_before_the_sums_or_in_them_are_noticed(built: Path, tmp_path: Path, length: int) -> None:
    data = (built / "net.so").read_bytes()
    path = tmp_path / "net.so"
    for start in (len(data) - TRAILER - 32, len(data) - TRAILER - 1, len(data) - TRAILER + 1):
        path.write_bytes(data[:start] + data[start + length :])
        with pytest.raises(ArtifactError, match="damaged"):
            computed(path)
        path.unlink()


def test_a_library_that_strip_wrote_is_not_damaged(built: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    subprocess.run(["strip", "-o", str(path), str(built / "net.so")], check=True)
    assert path.read_bytes()[-TRAILER:-40] != b"ARMSUMS1"
    np.testing.assert_array_equal(computed(path), computed(built / "net.so"))


def test_a_library_without_sums_loads(built: Path, tmp_path: Path) -> None:
    (tmp_path / "net.so").write_bytes((built / "net.so").read_bytes()[:-TRAILER])
    np.testing.assert_array_equal(computed(tmp_path / "net.so"), computed(built / "net.so"))


@pytest.mark.parametrize("what", ["cut out", "zeroed", "the end"])
def test_a_tar_whose_sums_cannot_be_found_is_noticed(built: Path, tmp_path: Path, runner: Path, what: str) -> None:
    """A package without sums is one of old; damage must not make one look so."""
    data = (built / "net.tar").read_bytes()
    at = data.index(b"mod.crc32")
    bad = {
        "cut out": data[: at - 20] + data[at + 29 :],
        "zeroed": data[:at] + bytes(512) + data[at + 512 :],
        "the end": data[:at],
    }
    (tmp_path / "net.tar").write_bytes(bad[what])
    with pytest.raises(ArtifactError, match="truncated, or a header is damaged"):
        load_module(tmp_path / "net.tar")
    ran = subprocess.run([runner, tmp_path / "net.tar"], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1 and "damaged" in ran.stderr, ran


def test_a_pipe_is_no_package(tmp_path: Path) -> None:
    for name in ("x.so", "x.tar"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ArtifactError, match="regular file"):
            load_module(tmp_path / name)
