"""Where the library is searched, in which order, what is said where it is not there; programs that hold it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from infrastructure import Device, build, emulated, module_of, partitioned

from armillary import relay
from armillary.cli.main import main
from armillary.errors import TargetError
from armillary.offload.acl.build_runtime import build_runtime
from armillary.offload.acl.find_library import KNOWN_VERSIONS, find_library
from armillary.relay.expr import var
from armillary.relay.op.contrib.arm_compute_lib import is_arm_compute_runtime_enabled

CXX = ["aarch64-linux-gnu-g++"]


def release(root: Path, *places: str, version: str = "21.08") -> Path:
    """A folder as a release has it: headers, and libraries in these places."""
    (root / "arm_compute").mkdir(parents=True)
    for place in places:
        (root / place).mkdir(parents=True, exist_ok=True)
        (root / place / "libarm_compute.so").write_bytes(b"\0arm_compute_version=v" + version.encode() + b" Build\0")
    return root


def test_a_folder_its_lib_and_its_build_are_searched_in_this_order(tmp_path: Path) -> None:
    root = release(tmp_path / "all", ".", "lib", "build")
    found = find_library(root, CXX)
    assert found.libraries == (root, root / "lib", root / "build") and found.version == "21.08"
    assert found.headers[0] == root
    for place in ("lib", "build"):
        one = release(tmp_path / f"one-{place}", place)
        assert find_library(one, CXX).libraries == (one / place,)


def test_a_release_for_several_machines_needs_one_of_them_named(tmp_path: Path) -> None:
    root = release(tmp_path, "lib/linux-arm64-v8a-neon", "lib/linux-armv7a-neon")
    with pytest.raises(TargetError, match="no libarm_compute in") as error:
        find_library(root, CXX)
    assert f"name one: --library {root}/lib/linux-arm64-v8a-neon, " in error.value.hint
    found = find_library(root / "lib" / "linux-arm64-v8a-neon", CXX)
    assert found.headers[0] == root and found.version == "21.08"


def test_the_variable_is_a_folder_on_or_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARMILLARY_ACL", str(release(tmp_path / "elsewhere", "lib", version="24.11")))
    assert find_library("", CXX).version == "24.11"
    release(tmp_path / "acl", "build", version="20.08")
    for text in ("ON", ""):  # the folder acl before what the system has
        monkeypatch.setenv("ARMILLARY_ACL", text)
        assert find_library("", CXX).libraries == (tmp_path / "acl" / "build",)
    assert find_library(tmp_path / "elsewhere", CXX).version == "24.11"  # an option goes before the variable
    monkeypatch.setenv("ARMILLARY_ACL", "OFF")
    assert not is_arm_compute_runtime_enabled()
    with pytest.raises(TargetError, match="ARMILLARY_ACL is OFF"):
        build_runtime(tmp_path, CXX)


def test_a_version_that_does_not_fit_is_named(local_device: Device, tmp_path: Path) -> None:
    root = release(tmp_path / "old", "lib", version="18.02")
    with pytest.raises(TargetError, match=r"does not build against Arm Compute Library 18\.02") as error:
        build_runtime(tmp_path, CXX, root)
    assert "20.08 to 24.11" in error.value.message and "21.08" in error.value.hint


def test_headers_that_are_missing_are_told(tmp_path: Path) -> None:
    root = release(tmp_path / "half", "lib")
    (root / "arm_compute").rmdir()
    with pytest.raises(TargetError, match=r"its headers \(arm_compute/\) are not there"):
        find_library(root, CXX)


def test_a_command_says_what_is_there_and_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = release(tmp_path / "own", "lib", version="21.08")
    monkeypatch.setenv("ARMILLARY_CACHE_DIR", str(tmp_path))
    assert (
        main(["build-external", "arm_compute_lib", "--explain", "--library", str(root), "--cross-compiler", "cc"]) == 0
    )
    said = capsys.readouterr().out
    assert f"library: version 21.08 in {root}/lib" in said and "runtime: not built for this machine" in said
    assert f"versions known to work: {', '.join(KNOWN_VERSIONS)}" in said and "libarm-compute-dev:arm64" in said


def test_a_runtime_of_another_version_than_the_library_is_refused(local_device: Device, tmp_path: Path) -> None:
    package = tmp_path / "mod.so"
    module = partitioned(module_of(relay.reshape(var("x", shape=(2, 3)), newshape=(6,))))
    build(module).export_library(package, cc="aarch64-linux-gnu-g++")
    build_runtime(tmp_path, CXX, flags=('-DARMILLARY_ACL_VERSION="19.02"', "-O0", "-w"))
    told = Device(local_device.runner, tmp_path).told(package)
    assert told.returncode == 1 and re.search(r"v2\d\.\d\d: the runtime was built against v19\.02", told.stderr), (
        told.stderr
    )


def test_a_static_runner_holds_the_library(local_device: Device, tmp_path: Path) -> None:
    """One program and one package on a board that has nothing else."""
    runner, package = tmp_path / "armrun", tmp_path / "mod.so"
    words = ["build-runner", "--external", "arm_compute_lib", "--cross-compiler", "aarch64-linux-gnu-gcc"]
    assert main([*words, "-o", str(runner)]) == 0
    pool = relay.nn.max_pool2d(var("x", shape=(1, 4, 4, 8)), pool_size=(2, 2), strides=(2, 2), layout="NHWC")
    build(partitioned(module_of(pool))).export_library(package, cc="aarch64-linux-gnu-g++")
    value = np.random.default_rng(5).uniform(-1, 1, (1, 4, 4, 8)).astype("float32")
    np.savez(tmp_path / "in.npz", x=value)
    files = [f"--input={tmp_path / 'in.npz'}", f"--output={tmp_path / 'out.npz'}"]
    command = [*emulated()[:4], "env", "-i", "qemu-aarch64-static", str(runner), str(package), *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found["output_0"], value.reshape(1, 2, 2, 2, 2, 8).max((2, 4)))
