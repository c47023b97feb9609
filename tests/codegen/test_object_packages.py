"""Packages and files of objects, linked in memory where they are loaded: the same numbers as from a library."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay, te
from armillary.artifact.package import OBJECT, load_package
from armillary.cli.main import main
from armillary.contrib import tar
from armillary.driver.library import FunctionLibrary, GraphLibrary
from armillary.errors import ArmillaryError, ArtifactError, ConfigError
from armillary.runtime import Module, load_module

X = np.linspace(-2, 2, 40, dtype=np.float32).reshape(5, 8)
W = np.random.default_rng(3).standard_normal((4, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def functions() -> FunctionLibrary:
    """A foreign function (sin of float64 is libm's), a constant table, an assert."""
    a = te.placeholder((10,), name="a", dtype="float64")
    b = te.compute((10,), lambda i: te.sin(a[i]) + 1.0, name="b")
    made: FunctionLibrary = armillary.build(te.create_schedule(b.op), [a, b], "llvm", name="shifted_sine")
    return made


@pytest.fixture(scope="module")
def network() -> GraphLibrary:
    x, w = relay.var("x", shape=(5, 8)), relay.var("w", shape=(4, 8))
    module = armillary.IRModule.from_expr(relay.Function([x, w], relay.tanh(relay.nn.dense(x, w))))
    made: GraphLibrary = relay.build(module, target="llvm", params={"w": W})
    return made


def check(module: Any) -> None:
    a, b = armillary.nd.array(np.arange(10.0)), armillary.nd.array(np.zeros(10))
    module["shifted_sine"](a, b)
    np.testing.assert_allclose(b.numpy(), np.sin(np.arange(10.0)) + 1, rtol=1e-12)


def run(module: Module) -> np.ndarray:
    graph = module["default"](armillary.cpu())
    graph.set_input("x", X)
    graph.run()
    found: np.ndarray = graph.get_output(0).numpy()
    return found


@pytest.mark.parametrize("how", [None, tar.tar])
def test_functions_come_as_an_object(functions: FunctionLibrary, tmp_path: Path, how: Any) -> None:
    functions.export_library(tmp_path / "f.tar", how)
    with tarfile.open(tmp_path / "f.tar") as package:
        assert package.getnames() == ["mod.o", "mod.crc32"]
    module = load_module(tmp_path / "f.tar")
    check(module)
    assert module.graph_json is None and "shifted_sine" in module.functions


def test_a_saved_object_loads_by_itself(functions: FunctionLibrary, tmp_path: Path) -> None:
    functions.save(tmp_path / "f.o")
    check(load_module(tmp_path / "f.o"))


def test_a_network_computes_the_same_from_an_object_and_a_library(network: GraphLibrary, tmp_path: Path) -> None:
    network.export_library(tmp_path / "objects.tar")
    network.export_library(tmp_path / "linked.tar", linked=True)
    with tarfile.open(tmp_path / "objects.tar") as objects, tarfile.open(tmp_path / "linked.tar") as linked:
        assert "mod.o" in objects.getnames() and "mod.so" in linked.getnames()
        objects.extractall(tmp_path / "folder", filter="data")
    found = [run(load_module(tmp_path / name)) for name in ("objects.tar", "linked.tar", "folder")]
    np.testing.assert_allclose(found[0], np.tanh(X @ W.T), rtol=1e-5, atol=1e-6)
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()


def test_no_compiler_is_needed(network: GraphLibrary, tmp_path: Path) -> None:
    """The package loads in a process that finds no program at all."""
    network.export_library(tmp_path / "net.tar")
    text = f"from armillary.runtime import load_module; load_module({str(tmp_path / 'net.tar')!r})['default']()"
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, env={"PYTHONPATH": ":".join(sys.path), "PATH": ""}, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_the_command_line_writes_objects_where_it_is_told(tmp_path: Path) -> None:
    model = tmp_path / "m.relay"
    model.write_text("def @main(%x: Tensor[(3), float32]) { nn.relu(%x) }\n")
    for option, member in ((), "mod.so"), (("--objects",), "mod.o"):
        assert main(["compile", str(model), "-o", str(tmp_path / "m.tar"), *option]) == 0
        with tarfile.open(tmp_path / "m.tar") as package:
            assert member in package.getnames()


def test_damaged_objects_are_refused_and_never_crash(functions: FunctionLibrary, tmp_path: Path) -> None:
    """Any bytes, without a checksum that would stop them; nothing of what loads is called."""
    functions.save(tmp_path / "f.o")
    data = (tmp_path / "f.o").read_bytes()
    rng = np.random.default_rng(11)
    path, refused = tmp_path / "bad.o", 0
    for case in range(400):
        bad = bytearray(data if case % 4 else data[: rng.integers(len(data))])
        for at in rng.integers(0, max(1, len(bad)), 3):
            where = at if case % 2 else len(bad) - 1 - at % min(len(bad), 1500)  # tables lie at the end
            if bad:
                bad[where] = rng.choice([0, 1, 0x7F, 0xFF, rng.integers(256)])
        path.unlink(missing_ok=True)
        path.write_bytes(bad)
        try:
            load_module(path)
        except ArmillaryError:
            refused += 1
    assert refused > 100, refused


def test_what_the_process_lacks_is_named(tmp_path: Path) -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: armillary.tir.call_pure_extern("float32", "nobody_has_this", a[i]), name="b")
    made = armillary.build(te.create_schedule(b.op), [a, b], "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", name="f")
    made.export_library(tmp_path / "f.tar")
    assert load_package(tmp_path / "f.tar").library[16:18] == b"\1\0"
    with pytest.raises(ArtifactError, match=r"f\.tar: mod\.o: the code calls nobody_has_this"):
        load_module(tmp_path / "f.tar")


def test_code_for_another_machine_is_refused(tmp_path: Path) -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    made = armillary.build(te.create_schedule(b.op), [a, b], "llvm -mtriple=aarch64-linux-gnu", name="f")
    made.export_library(tmp_path / "f.tar")
    with pytest.raises(ArtifactError, match="the code is for aarch64, this machine is x86_64"):
        load_module(tmp_path / "f.tar")


def test_files_in_a_tar(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    tar.tar(tmp_path / "x.tar", [str(tmp_path / "a"), str(tmp_path / "b")])
    tar.untar(tmp_path / "x.tar", tmp_path / "out")
    assert [p.read_text() for p in sorted((tmp_path / "out").iterdir())] == ["a", "b"]
    with pytest.raises(ArtifactError, match="none cannot be read: No such file"):
        tar.tar(tmp_path / "y.tar", str(tmp_path / "none"))
    assert not (tmp_path / "y.tar").exists()
    evil = tarfile.TarInfo("../evil")
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.addfile(evil, io.BytesIO())
    with pytest.raises(ArtifactError, match="evil"):
        tar.untar(tmp_path / "evil.tar", tmp_path / "out")


def test_a_tar_has_its_suffix(functions: FunctionLibrary, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tar\.tar writes packages, f\.so is none"):
        functions.export_library(tmp_path / "f.so", tar.tar)


def test_two_kinds_of_code_are_one_too_many(functions: FunctionLibrary, tmp_path: Path) -> None:
    functions.export_library(tmp_path / "f.tar")
    with tarfile.open(tmp_path / "f.tar", "a") as archive, contextlib.closing(io.BytesIO()) as nothing:
        archive.addfile(tarfile.TarInfo("mod.so"), nothing)
    with pytest.raises(ArtifactError, match=f"unexpected member '{OBJECT}' beside mod.so"):
        load_module(tmp_path / "f.tar")
