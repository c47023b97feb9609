"""Parameters written behind a linked library: the symbol is the blob, tools keep it, odd libraries are refused."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.artifact import params_size
from armillary.artifact.library_sums import TRAILER
from armillary.codegen.object.elf_append import head_for_blob
from armillary.contrib import graph_executor
from armillary.driver.library import GraphLibrary

WEIGHT = np.random.default_rng(3).standard_normal((70, 50)).astype(np.float32)
DATA = np.ones((2, 50), np.float32)


@pytest.fixture(scope="module")
def network() -> GraphLibrary:
    x = relay.var("x", shape=(2, 50), dtype="float32")
    dense = relay.nn.dense(x, relay.const(WEIGHT))
    return relay.build(relay.Function([x], dense), target="llvm")


def _run(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    module = graph_executor.GraphModule(armillary.runtime.load_module(path)["default"](armillary.cpu(0)))
    module.run(x=DATA)
    return np.array(module.get_output(0).numpy())


def _blob(path: Path) -> bytes:
    library = ctypes.CDLL(str(path))
    size = ctypes.c_uint64.in_dll(library, "armillary_params_size").value
    return bytes((ctypes.c_char * size).in_dll(library, "armillary_params"))


def _segments(path: Path, kind: int) -> int:
    """How many program headers of a kind there are."""
    data = path.read_bytes()
    start, count = int.from_bytes(data[32:40], "little"), int.from_bytes(data[56:58], "little")
    return [int.from_bytes(data[start + 56 * i :][:4], "little") for i in range(count)].count(kind)


def test_the_symbol_is_the_blob_at_the_end_of_the_file(network: GraphLibrary, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    network.export_library(path)
    size = params_size(network.params)
    assert path.read_bytes()[-size - TRAILER : -TRAILER] == _blob(path)
    assert ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(str(path)), "armillary_params")) % 64 == 0
    np.testing.assert_allclose(_run(path), DATA @ WEIGHT.T, rtol=1e-5, atol=1e-5)


def test_a_linker_that_drops_notes_gets_the_blob_itself(network: GraphLibrary, tmp_path: Path) -> None:
    script = tmp_path / "no-notes.ld"
    script.write_text("SECTIONS { /DISCARD/ : { *(.note.armillary) } } INSERT AFTER .text;\n")
    path = tmp_path / "x.so"
    network.export_library(path, options=[f"-Wl,-T,{script}", "-Wl,--build-id=none", "-Wl,-z,nognustack"])
    assert _segments(path, 4) == 0
    np.testing.assert_array_equal(_run(path), _run_in_place(network))


def _run_in_place(network: GraphLibrary) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    module = graph_executor.GraphModule(network["default"](armillary.cpu(0)))
    module.run(x=DATA)
    return np.array(module.get_output(0).numpy())


@pytest.mark.skipif(shutil.which("strip") is None, reason="needs strip")
def test_stripping_keeps_the_blob(network: GraphLibrary, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    network.export_library(path)
    before, place = _blob(path), tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", str(place), str(path)], check=True)
    assert _blob(place) == before
    np.testing.assert_array_equal(_run(place), _run(path))


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" + bytes(200), b"\x7fELF\x02\x01" + bytes(58)])
def test_what_is_no_shared_library_is_refused(data: bytes) -> None:
    assert head_for_blob(data, "armillary_params", 10) is None


def test_a_library_without_the_symbol_is_refused(network: GraphLibrary, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    network.get_lib().export_library(path)
    assert head_for_blob(path.read_bytes(), "armillary_params", 10) is None
    network.export_library(path)
    assert head_for_blob(path.read_bytes(), "armillary_graph_json", 10) is None  # it shares its section


def test_a_linker_of_the_users_gets_all_objects(network: GraphLibrary, tmp_path: Path) -> None:
    path = tmp_path / "x.so"

    def link(output: str, objects: list[str], options: list[str]) -> None:
        subprocess.run(["cc", "-shared", "-o", output, *objects, *options, "-lm"], check=True)

    network.export_library(path, fcompile=link)
    np.testing.assert_array_equal(_run(path), _run_in_place(network))
