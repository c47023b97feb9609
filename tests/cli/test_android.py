"""`armc android` over a stand-in for adb and a phone: a package runs, a tracker lends the phone."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from armillary import relay, rpc
from armillary.cli.main import main
from armillary.contrib import graph_executor
from armillary.contrib.cc import get_cc
from armillary.ir import IRModule
from armillary.runtime.build_native import build_rpc_server

STANDIN = Path(__file__).with_name("adb_standin.py")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that stands for the phone; adb and it are found by every process of the test."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "phone").mkdir()
    adb = tmp_path / "bin" / "adb"
    adb.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STANDIN}" "$@"\n')
    adb.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PHONE_ROOT", str(tmp_path / "phone"))
    monkeypatch.setenv("PHONES", "abcdefgh")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "phone"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    x = relay.var("x", shape=(2, 3))
    library = relay.build(IRModule.from_expr(relay.Function([x], relay.nn.relu(x))), target="llvm")
    library.export_library(tmp_path / "net.tar")
    return tmp_path / "net.tar"


def test_phones_are_listed_and_files_copied(
    phone: Path, package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["android", "devices"]) == 0
    assert capsys.readouterr().out == "abcdefgh  device  Stand-in  x86_64  0\n"
    program = phone.parent / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert main(["android", "push", "program", "net.tar"]) == 0
    copied = phone / "data/local/tmp/armillary"
    assert (copied / "net.tar").read_bytes() == package.read_bytes() and os.access(copied / "program", os.X_OK)
    assert main(["android", "push", "nothing"]) == 4
    assert "there is no such file or folder\n  at: nothing" in capsys.readouterr().err
    assert main(["android", "push", "-s", "zzz", "net.tar"]) == 4
    assert "phone 'zzz' is not ready; adb sees abcdefgh (device)" in capsys.readouterr().err
    monkeypatch.setenv("PHONES", "one two")
    assert main(["android", "push", "net.tar"]) == 4
    assert "which phone is meant: adb sees one (device), two (device)" in capsys.readouterr().err


def test_a_package_runs_on_a_phone(
    phone: Path, package: Path, built_runner: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    (phone.parent / "armrun").write_bytes(built_runner(get_cc()).read_bytes())
    (phone.parent / "armrun").chmod(0o755)
    assert main(["android", "run", "net.tar", "--", "--run-count=1", "--output=out.npz"]) == 0
    assert "Average ExecTime" in capfd.readouterr().out
    with np.load(phone / "data/local/tmp/armillary/out.npz") as outputs:
        assert outputs["output_0"].shape == (2, 3) and (outputs["output_0"] >= 0).all()


@pytest.fixture
def ports() -> tuple[int, int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    numbers = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return numbers[0], numbers[1]


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "armillary.cli", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        running.append(subprocess.Popen(command, text=True, env=environment, start_new_session=True))
        return running[-1]

    yield start
    for process in running:
        os.killpg(process.pid, 15)
        process.wait(timeout=60)


def test_a_tracker_lends_the_phone(
    phone: Path,
    package: Path,
    ports: tuple[int, int],
    started: Callable[..., subprocess.Popen[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    tracker, server = map(str, ports)
    build_rpc_server(get_cc(), phone.parent / "armrpc", ("-O1",))
    started("android", "tracker", "--port", tracker)
    started("android", "device", "--port", tracker, "--server-port", server, "--serial", "abcdefgh")
    deadline = time.monotonic() + 60
    while True:
        status = main(["android", "query", "--port", tracker])
        shown = capsys.readouterr().out
        if status == 0 and re.search(r"android +1 +1", shown):
            break
        assert time.monotonic() < deadline, shown
        time.sleep(0.2)
    session = rpc.connect_tracker("127.0.0.1", int(tracker)).request("android", session_timeout=60)
    session.upload(package)
    module = graph_executor.GraphModule(session.load_module("net.tar")["default"](session.cpu()))
    x = np.array([[-1, 0, 1], [2, -2, 3]], "float32")
    module.set_input("x", x)
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), np.maximum(x, 0))
    log = (phone / "adb.log").read_text()
    assert f"-s abcdefgh reverse tcp:{tracker} tcp:{tracker}" in log and f"forward tcp:{server} tcp:{server}" in log


def test_without_adb_the_refusal_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["android", "devices"]) == 4
    assert "adb is not there" in capsys.readouterr().err
