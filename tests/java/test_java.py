"""armillary4j: built by a JDK, its JUnit tests over a package of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from armillary import relay
from armillary.base.config import setting
from armillary.ir import IRModule
from armillary.runtime.__main__ import prefix

JAVA = Path(__file__).resolve().parents[2] / "java"
JARS = [Path("/usr/share/java") / name for name in ("junit4.jar", "hamcrest-core.jar", "hamcrest.jar")]


def network(folder: Path) -> Path:
    """A package with an input "x" of 6 x 8, x.bin and y.bin beside it."""
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((6, 8)).astype(np.float32), rng.standard_normal(48).astype(np.float32)
    data, weight = relay.var("x", shape=(6, 8)), relay.var("w", shape=(48,))
    body = relay.reshape(relay.nn.softmax(data, axis=1), (48,)) + weight
    library = relay.build(IRModule.from_expr(relay.Function([data, weight], body)), "llvm", params={"w": w})
    library.export_library(folder / "net.tar")
    with tarfile.open(folder / "net.tar") as archive:
        archive.extract("mod.params", folder, filter="data")
    (folder / "x.bin").write_bytes(x.tobytes())
    shifted = np.exp(x - x.max(1, keepdims=True))
    (folder / "y.bin").write_bytes(((shifted / shifted.sum(1, keepdims=True)).reshape(-1) + w).tobytes())
    return folder / "net.tar"


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_java_interface_passes_its_own_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("javac") is None or not JARS[0].exists():
        assert not setting("CI"), "CI lacks a JDK or JUnit"
        pytest.skip("needs javac and Debian's junit4")
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    run(JAVA / "build", prefix(), tmp_path / "out")
    classes = os.pathsep.join(str(path) for path in (tmp_path / "out" / "armillary4j.jar", *JARS, tmp_path / "tests"))
    (tmp_path / "tests").mkdir()
    tests = sorted((JAVA / "src" / "test").rglob("*.java"))
    run("javac", "-Xlint:all,-path", "-Werror", "-cp", classes, "-d", tmp_path / "tests", *tests)
    package = network(tmp_path)
    options = (f"-Darmillary.library={tmp_path}/out/libarmillary4j.so", f"-Darmillary.package={package}", "-Xcheck:jni")
    printed = run("java", *options, "-cp", classes, "org.junit.runner.JUnitCore", "org.armillary.GraphModuleTest")
    assert "OK (6 tests)" in printed and "WARNING" not in printed, printed
