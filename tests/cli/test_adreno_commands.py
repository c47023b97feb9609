"""The commands of an Adreno guide of Relay's time, `tvm` replaced: tune, compile, run through a tracker, dumps.

The phone is a server on this machine with PoCL; what a phone's linker makes is checked, not run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary import relay, rpc
from armillary.base.c_compiler import need_compiler
from armillary.base.config import setting
from armillary.rpc.launch import Server, Tracker
from armillary.runtime.build_native import build_runner

MODEL = Path(__file__).parents[1] / "frontend" / "keras" / "small_functional.h5"
HERE = "x86_64-linux-gnu"
CROSS = shutil.which("aarch64-linux-gnu-gcc")


@pytest.fixture(scope="module")
def phone() -> Iterator[str]:
    """The address of a tracker at which an "android" waits."""
    tracker = Tracker()
    server = Server(key="android", tracker_addr=("127.0.0.1", tracker.port))
    client, until = rpc.connect_tracker("127.0.0.1", tracker.port), time.monotonic() + 60
    while client.summary()["queue_info"].get("android", {"free": 0})["free"] < 1:
        assert time.monotonic() < until, "the server did not register"
        time.sleep(0.05)
    yield f"127.0.0.1:{tracker.port}"
    server.terminate()
    tracker.terminate()


def tvmc(*words: str, folder: Path) -> str:
    command = [sys.executable, "-m", "armillary.driver.tvmc", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@needs_opencl
def test_tune_compile_run_and_the_native_runner(phone: str, tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "resnet50.h5")
    remote = ["--rpc-key", "android", "--rpc-tracker", phone]
    tuning = ["--early-stopping", "0", "--repeat", "2", "--trials", "1", "--tuner", "random", "--ops", "nn.conv2d"]
    host = f"--target-host=llvm -mtriple={HERE}"
    log = ["-o", "keras-resnet50.log", "--no-end-to-end"]
    tvmc("tune", "--target=opencl -device=adreno", host, "resnet50.h5", *log, *tuning, *remote, folder=tmp_path)
    assert (tmp_path / "keras-resnet50.log").read_text().count("\n") >= 1
    with np.load(MODEL.with_suffix(".npz")) as stored:
        given, *names = stored.files
        np.savez(tmp_path / "in.npz", **{given: stored[given]})
        wanted = [stored[name] for name in names]
    target = ["--target=opencl, llvm", "--target-llvm-mtriple", HERE, "--target-opencl-device", "adreno"]
    records = ["--tuning-records", "keras-resnet50.log", "--dump-code", "cl"]
    tvmc("compile", *target, *records, "-o", "keras-resnet50.tar", "resnet50.h5", folder=tmp_path)
    with tarfile.open(tmp_path / "keras-resnet50.tar") as made:
        assert {"mod.so", "mod.json", "mod.params"} <= set(made.getnames())
    assert "__kernel" in (tmp_path / "keras-resnet50.tar.cl").read_text()
    files = ["-i", "in.npz", "-o", "out.npz"]
    message = tvmc("run", "--device=cl", "keras-resnet50.tar", *remote, "--print-time", *files, folder=tmp_path)
    assert "mean (ms)" in message
    with np.load(tmp_path / "out.npz") as found:
        for k, value in enumerate(wanted):
            np.testing.assert_allclose(found[f"output_{k}"], value, rtol=1e-4, atol=1e-5)
    runner = build_runner(need_compiler(""), tmp_path / "rtvm")
    (tmp_path / "kept").mkdir()
    words = [
        "--model=keras-resnet50.tar",
        "--device=opencl",
        "--pre-compiled=kept",
        "--zero-copy",
        "--dry-run=1",
        "--run-count=2",
    ]
    command = [str(runner), *words, "--input=in.npz", "--output=out.npz", "--profile"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = ["Performance Stats", "Module Load", "Graph Runtime Create", "Params Set"]
    for text in (*lines, "Pre Compiled Progs Load", "Total Load Time", "Average ExecTime", "Unload Time"):
        assert text in done.stdout, done.stdout
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_allclose(found["output_0"], wanted[0], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(CROSS is None and not setting("CI"), reason="no aarch64-linux-gnu-gcc")
def test_a_phone_s_package_is_linked_by_its_compiler(tmp_path: Path) -> None:
    target = ["--target=opencl, llvm", "--target-llvm-mtriple", "aarch64-linux-gnu", "--target-opencl-device", "adreno"]
    tvmc("compile", "--cross-compiler", str(CROSS), *target, "-o", "p.tar", str(MODEL), folder=tmp_path)
    with tarfile.open(tmp_path / "p.tar") as package:
        member = package.extractfile("mod.so")
        assert member is not None and member.read(20)[18] == 183  # EM_AARCH64


def test_sources_can_be_read_from_the_library() -> None:
    module, params = relay.frontend.from_keras(MODEL)
    with armillary.transform.PassContext(opt_level=3):
        lib = relay.build(module, target="opencl -device=adreno", params=params)
    opencl_modules = list(filter(lambda mod: mod.type_key == "opencl", lib.get_lib().imported_modules))
    assert len(opencl_modules) == 1
    for omod in opencl_modules:
        assert "__kernel" in omod.get_source() and "image2d_t" in omod.get_source()
