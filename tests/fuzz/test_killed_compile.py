"""Killing `armc compile` at any moment leaves the old package or none, never a partial one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import corpus
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary.runtime import load_module

ROOT = Path(__file__).resolve().parents[2]
_MODEL = "def @main(%x: Tensor[(1, 64), float32], %w: Tensor[(64, 64), float32]) {\n  nn.relu(nn.dense(%x, %w))\n}\n"


def _compile(model: Path, package: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "armillary.cli", "compile", str(model), "-o", str(package)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, preexec_fn=_hear_interrupts)


def _hear_interrupts() -> None:
    """A shell that runs the tests in the background has them, and all they start, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_kill_9_leaves_the_old_package_or_none(tmp_path: Path, suffix: str) -> None:
    model, package = tmp_path / "m.relay", tmp_path / f"m.{suffix}"
    model.write_text(_MODEL)
    start = time.perf_counter()
    assert _compile(model, package).wait(120) == 0
    whole = time.perf_counter() - start
    good = package.read_bytes()
    rng = random.Random(corpus.SEED)
    print(f"seed {corpus.SEED}, a whole run takes {whole:.2f} s")
    for attempt in range(4):
        old = attempt % 2 == 0
        if old:
            package.write_bytes(good)
        else:
            package.unlink(missing_ok=True)
        process = _compile(model, package)
        try:
            process.wait(whole * rng.uniform(0.3, 1.1))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait(60)
        assert package.exists() or not old
        if package.exists():
            load_module(package)  # refuses anything partial


@pytest.mark.parametrize(
    ("end", "code", "old"),
    [
        (signal.SIGKILL, -9, b""),
        (signal.SIGKILL, -9, b"an older package"),
        (signal.SIGTERM, 143, b"an older package"),
        (signal.SIGINT, 130, b""),
    ],
)
def test_ending_it_while_the_weights_are_written(tmp_path: Path, end: signal.Signals, code: int, old: bytes) -> None:
    model, package = tmp_path / "m.onnx", tmp_path / "out" / "m.tar"
    _save_wide(model)
    for _ in range(5):  # on a busy machine a compile may end before it is seen to write
        shutil.rmtree(package.parent, ignore_errors=True)
        package.parent.mkdir()
        if old:
            package.write_bytes(old)
        process = _compile(model, package)
        while process.poll() is None and not _is_written_to(package.parent):
            time.sleep(0.0005)
        process.send_signal(end)
        if process.wait(60) == code:  # it had not ended: the file was half there
            break
    assert process.returncode == code
    assert (package.read_bytes() if package.exists() else b"") == old
    if end != signal.SIGKILL:
        assert os.listdir(package.parent) == ([package.name] if old else [])


def _is_written_to(folder: Path) -> bool:
    try:
        return any(entry.stat().st_size for entry in os.scandir(folder) if entry.name.startswith("."))
    except FileNotFoundError:  # renamed meanwhile
        return False


@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_a_file_that_cannot_grow_is_said_and_not_left(tmp_path: Path, suffix: str) -> None:
    model, package = tmp_path / "m.onnx", tmp_path / "out" / f"m.{suffix}"
    package.parent.mkdir()
    _save_wide(model, 1024)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)); "  # as on a full disk
        "from armillary.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "compile", str(model), "-o", str(package)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert ": File too large" in done.stderr and str(package) in done.stderr
    assert list(package.parent.iterdir()) == []


def _save_wide(path: Path, units: int = 1 << 14) -> None:
    """A product with 64 MB of weights (4 MB for 1024 units)."""
    weight = numpy_helper.from_array(np.random.default_rng(3).random((units, 1024), np.float32), "w")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, s)) for n, s in (("x", 1024), ("y", units))]
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    graph = helper.make_graph([node], "wide", values[:1], values[1:], [weight])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
