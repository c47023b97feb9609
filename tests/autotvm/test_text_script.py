"""The tuning script of Relay's time, as a user types it: servers here, and one for AArch64 under qemu."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulators import qemu_aarch64

from armillary import rpc
from armillary.base.config import setting
from armillary.cli.main import main
from armillary.rpc.launch import Launched, Server, Tracker

SCRIPT = Path(__file__).with_name("tune_relay_arm.py")
HOST, KEY, TASKS = "127.0.0.1", "rk3399", 12
CROSS = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")
LINE = r"\[Task +(\d+)/12\]  Current/Best: +[0-9.]+/ *([0-9.]+) GFLOPS \| Progress: \((\d+)/(\d+)\) \| [0-9.]+ s Done\."


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    made = Tracker()
    yield made
    made.terminate()


def wait_for(port: int, count: int) -> None:
    client, until = rpc.connect_tracker(HOST, port), time.monotonic() + 30
    while client.summary()["queue_info"].get(KEY, {"free": 0})["free"] < count:
        assert time.monotonic() < until, "the servers did not register"
        time.sleep(0.05)


def tune(folder: Path, port: int, target: str, trials: int, pixels: int) -> None:
    """Run the script there and check what it prints and leaves."""
    words = [sys.executable, str(SCRIPT), str(port), target, str(trials), str(pixels)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = re.findall(LINE, done.stdout)
    assert [int(row[0]) for row in rows] == [*range(1, TASKS + 1)]
    assert all(float(row[1]) > 0 and row[2] == row[3] for row in rows), done.stdout
    steps = ["Extract tasks...", "Tuning...", "Compile...", "Upload...", "Evaluate inference time cost..."]
    assert re.findall("|".join(map(re.escape, steps)), done.stdout) == steps
    assert re.search(r"^Mean inference time \(std dev\): \d+\.\d\d ms \(\d+\.\d\d ms\)$", done.stdout, re.M)
    assert [path.name for path in folder.glob("*.log*")] == [f"{KEY}.resnet-18.log"]
    records = [json.loads(line) for line in (folder / f"{KEY}.resnet-18.log").read_text().splitlines()]
    assert len(records) == TASKS and all(row["result"][1] == 0 for row in records)


def test_two_servers_here_tune_resnet_18_through_a_tracker(tracker: Tracker, tmp_path: Path) -> None:
    servers = [Server(key=KEY, tracker_addr=(HOST, tracker.port)) for _ in range(2)]
    wait_for(tracker.port, 2)
    words = [sys.executable, "-m", "armillary.exec.query_rpc_tracker", f"--port={tracker.port}"]
    table = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert re.search(r"^key +total  free  pending\n-+\nrk3399 +2 +2 +0\n-+$", table, re.M)
    tune(tmp_path, tracker.port, "llvm", 2, 64)
    for server in servers:
        server.terminate()


def test_a_board_without_python_tunes_it_too(tracker: Tracker, tmp_path: Path) -> None:
    if None in CROSS:
        assert not setting("CI"), "CI installs the cross compiler and qemu"
        pytest.skip("aarch64-linux-gnu-gcc and qemu-aarch64-static are needed")
    armrpc = tmp_path / "armrpc"
    words = "build-runner", "--rpc-server", "--cross-compiler", "aarch64-linux-gnu-gcc", "-o", str(armrpc)
    assert main(words) == 0
    options = f"--tracker={HOST}:{tracker.port}", f"--key={KEY}", "--port=0"
    board = Launched("", *options, command=[*qemu_aarch64(), str(armrpc)])
    wait_for(tracker.port, 1)
    tune(tmp_path, tracker.port, "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu", 1, 33)
    board.terminate()
