"""Killing `armc compile` at any moment leaves the old package or none, never a partial one."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import corpus
import pytest

from armillary.runtime import load_module

ROOT = Path(__file__).resolve().parents[2]
_MODEL = "def @main(%x: Tensor[(1, 64), float32], %w: Tensor[(64, 64), float32]) {\n  nn.relu(nn.dense(%x, %w))\n}\n"


def _compile(model: Path, package: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "armillary.cli", "compile", str(model), "-o", str(package)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)


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
    for attempt in range(6):
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
