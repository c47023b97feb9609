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
from armillary.rpc.launch import Launched, Server, Tracker

SCRIPT = Path(__file__).parents[2] / "examples" / "tune_relay_arm.py"
HOST, KEY = "127.0.0.1", "rk3399"
TASKS = {"resnet-18": 12, "resnet-8": 9}
CROSS = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")
LINE = r"\[Task +(\d+)/ *(\d+)\]  Current/Best: +[0-9.]+/ *([0-9.]+) GFLOPS \| Progress: \((\d+)/(\d+)\) \| [0-9.]+ s"


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


def tune(folder: Path, port: int, target: str, trials: int, pixels: int, network: str) -> None:
    """Run the script there and check what it prints and leaves."""
    words = [sys.executable, str(SCRIPT), str(port), target, str(trials), str(pixels), network]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = re.findall(LINE + r" Done\.", done.stdout)
    count = TASKS[network]
    assert [(int(row[0]), int(row[1])) for row in rows] == [(n + 1, count) for n in range(count)], done.stdout
    assert all(float(row[2]) > 0 and row[3] == row[4] for row in rows), done.stdout
    steps = ["Extract tasks...", "Tuning...", "Compile...", "Upload...", "Evaluate inference time cost..."]
    assert re.findall("|".join(map(re.escape, steps)), done.stdout) == steps
    assert re.search(r"^Mean inference time \(std dev\): \d+\.\d\d ms \(\d+\.\d\d ms\)$", done.stdout, re.M)
    assert [path.name for path in folder.glob("*.log*")] == [f"{KEY}.{network}.log"]
    records = [json.loads(line) for line in (folder / f"{KEY}.{network}.log").read_text().splitlines()]
    assert len(records) == count and all(row["result"][1] == 0 for row in records)


@pytest.mark.parametrize(
    ("network", "trials", "pixels"),
    [("resnet-8", 1, 28), *(pytest.param("resnet-18", n, p, marks=pytest.mark.slow) for n, p in ((1, 33), (4, 64)))],
)
def test_two_servers_here_tune_a_network_through_a_tracker(
    tracker: Tracker, tmp_path: Path, network: str, trials: int, pixels: int
) -> None:
    servers = [Server(key=KEY, tracker_addr=(HOST, tracker.port)) for _ in range(2)]
    wait_for(tracker.port, 2)
    words = [sys.executable, "-m", "armillary.exec.query_rpc_tracker", f"--port={tracker.port}"]
    table = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert re.search(r"^key +total  free  pending\n-+\nrk3399 +2 +2 +0\n-+$", table, re.M)
    tune(tmp_path, tracker.port, "llvm", trials, pixels, network)
    for server in servers:
        server.terminate()


@pytest.mark.parametrize(
    ("network", "pixels"), [("resnet-8", 28), pytest.param("resnet-18", 33, marks=pytest.mark.slow)]
)
def test_a_board_without_python_tunes_it_too(
    request: pytest.FixtureRequest, tracker: Tracker, tmp_path: Path, network: str, pixels: int
) -> None:
    if None in CROSS:
        assert not setting("CI"), "CI installs the cross compiler and qemu"
        pytest.skip("aarch64-linux-gnu-gcc and qemu-aarch64-static are needed")
    armrpc: Path = request.getfixturevalue("server_for_aarch64")
    options = f"--tracker={HOST}:{tracker.port}", f"--key={KEY}", "--port=0"
    board = Launched("", *options, command=[*qemu_aarch64(), str(armrpc)])
    wait_for(tracker.port, 1)
    tune(tmp_path, tracker.port, "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu", 1, pixels, network)
    board.terminate()
