"""Where the library is searched, in which order, what is said where it is not there; programs that hold it."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from infrastructure import Device, build, emulated, module_of, partitioned

from armillary import relay
from armillary.cli.main import main
from armillary.errors import TargetError
from armillary.offload.acl.build_runtime import FILE_NAME, build_runtime
from armillary.offload.acl.find_library import KNOWN_VERSIONS, find_library
from armillary.relay.expr import var
from armillary.relay.op.contrib.arm_compute_lib import is_arm_compute_runtime_enabled
from armillary.transform import PassContext

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
    message = Device(local_device.runner, tmp_path).told(package)
    assert message.returncode == 1 and re.search(
        r"v2\d\.\d\d: the runtime was built against v19\.02", message.stderr
    ), message.stderr


def _needed(runtime: Path) -> str:
    """The file of the library that a runtime asks the loader for."""
    command = ["aarch64-linux-gnu-objdump", "-p", str(runtime)]
    message = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return next(line.split()[1] for line in message.splitlines() if "NEEDED" in line and "libarm_compute.so" in line)


@pytest.mark.skipif(platform.machine() == "aarch64", reason="the emulator gives a program a search path of its own")
def test_a_library_of_another_version_under_the_name_of_the_right_one(local_device: Device, tmp_path: Path) -> None:
    """One that has none of its functions; and the system's own, where the runtime was built against another."""
    value = np.arange(6, dtype="float32").reshape(2, 3)
    module = partitioned(module_of(relay.reshape(var("x", shape=(2, 3)), newshape=(6,))))
    for fallback in (False, True):
        with PassContext(config={"offload.fallback": fallback}):
            library = relay.build(module, target="llvm -mtriple=aarch64-linux-gnu")
        library.export_library(tmp_path / f"{fallback}.so", cc="aarch64-linux-gnu-g++")
    name = _needed(local_device.libraries / FILE_NAME)
    others = [tmp_path / "none"]
    others[0].mkdir()
    (tmp_path / "none.c").write_text("int nothing;\n")
    words = ["aarch64-linux-gnu-gcc", "-shared", f"-Wl,-soname,{name}", "-o", str(others[0] / name)]
    subprocess.run([*words, str(tmp_path / "none.c")], check=True)
    system = Path("/usr/lib/aarch64-linux-gnu/libarm_compute.so")
    if system.exists() and not (system.parent / name).exists():
        others.append(tmp_path / "system")
        others[1].mkdir()
        (others[1] / name).symlink_to(system.resolve())
    for folder in others:
        options = ["-E", f"LD_LIBRARY_PATH={folder}"]
        message = local_device.told(tmp_path / "False.so", emulator=options)
        assert message.returncode == 1 and "cannot be loaded" in message.stderr and "undefined symbol" in message.stderr
        assert "another version than it was built with" in message.stderr and "armc build-external" in message.stderr
        np.savez(tmp_path / "in.npz", x=value)
        files = [f"--input={tmp_path / 'in.npz'}", f"--output={tmp_path / 'out.npz'}"]
        assert local_device.told(tmp_path / "True.so", *files, emulator=options).returncode == 0
        with np.load(tmp_path / "out.npz") as found:
            np.testing.assert_array_equal(found["output_0"], value.reshape(6))


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


def test_the_scheduler_compiles_against_both_forms_of_the_interface(local_device: Device, tmp_path: Path) -> None:
    """From 21.02 on, so in 21.08, `schedule_op` is given a window: the form that the installed version has not."""
    inside, native = "arm_compute/runtime/IScheduler.h", Path(build_runtime.__code__.co_filename).parent / "native"
    folders = [f"-isystem{folder}" for folder in find_library("", CXX).headers]
    asked = subprocess.run(
        [*CXX, *folders, "-M", "-x", "c++", "-"],
        input=f'#include "{inside}"',
        capture_output=True,
        text=True,
        check=True,
    )
    installed = next(word for word in asked.stdout.split() if word.endswith(inside))
    without, with_window = (
        "Hints &hints, ITensorPack &tensors",
        "Hints &hints, const Window &window, ITensorPack &tensors",
    )
    text = Path(installed).read_text()
    has_window = with_window in text
    other = text.replace(with_window, without) if has_window else text.replace(without, with_window)
    assert other != text
    (tmp_path / inside).parent.mkdir(parents=True)
    source = '#include "acl_scheduler.hpp"\nstd::unique_ptr<arm_compute::IScheduler> made(new acl::HostScheduler);\n'
    for name, header in (("installed", text), ("other", other)):
        (tmp_path / inside).write_text(header)
        own = [f"-isystem{tmp_path}", *folders, f"-I{native}", f"-I{native.parents[2] / 'runtime' / 'include'}"]
        command = [*CXX, "-std=c++17", "-fsyntax-only", *own, "-x", "c++", "-"]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}"
