"""The commands of the Adreno guide, as it writes them: the image's script, the shell, and the ends of tuning.

Docker's engine and the phone are not here: a program called docker notes how it was called; what it would run is run.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _environment(folder: Path, **more: str) -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("ADRENO_OPENCL", "ANDROID_NDK_HOME")}
    path = os.pathsep.join((str(folder), str(Path(sys.executable).parent), environment["PATH"]))
    return environment | {"PATH": path, "PYTHONPATH": str(ROOT)} | more


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """Where a program called docker, first in the path, writes its arguments."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\nfor a in "$@"; do echo "$a"; done > {tmp_path}/calls\n')
    program.chmod(0o755)
    (tmp_path / "armc").write_text(f'#!/bin/sh\nexec {sys.executable} -m armillary.cli "$@"\n')
    (tmp_path / "armc").chmod(0o755)
    return tmp_path / "calls"


def test_the_image_is_built_from_its_dockerfile(calls: Path) -> None:
    done = subprocess.run(["./docker/build.sh", "ci_adreno"], cwd=ROOT, env=_environment(calls.parent), check=False)
    assert done.returncode == 0
    assert calls.read_text().split() == [
        "build",
        "--tag",
        "tvm.ci_adreno",
        "--file",
        "docker/Dockerfile.ci_adreno",
        ".",
    ]
    wrong = subprocess.run(["./docker/build.sh", "gpu"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "there are: ci_adreno" in wrong.stderr


def test_the_shell_opens_in_the_image_with_the_sdk(calls: Path, tmp_path: Path) -> None:
    environment = _environment(calls.parent, ADRENO_OPENCL=str(tmp_path))
    subprocess.run(["./tests/scripts/ci.py", "adreno", "-i"], cwd=ROOT, env=environment, check=True)
    *options, image, shell, flag, script = calls.read_text().splitlines()
    assert (image, shell, flag) == ("ci_adreno", "bash", "-c")
    assert f"--volume={tmp_path}:{tmp_path}" in options and "--tty" in options and "--network=host" in options
    assert script.startswith("mkdir -p build-adreno-target && armc build-runner --target aarch64-linux-android28")
    assert script.endswith(" && exec bash")


@pytest.mark.slow
def test_the_shell_builds_what_runs_on_the_phone(calls: Path, tmp_path: Path) -> None:
    subprocess.run(["./tests/scripts/ci.py", "adreno"], cwd=ROOT, env=_environment(calls.parent), check=True)
    script, work = calls.read_text().splitlines()[-1], tmp_path / "work"
    work.mkdir()
    subprocess.run(["bash", "-c", script], cwd=work, env=_environment(calls.parent), check=True, capture_output=True)
    for name in ("armrun", "armrpc"):
        assert (work / "build-adreno-target" / name).read_bytes()[:4] == b"\x7fELF"


def test_tracker_and_query_are_started_as_the_guide_writes(calls: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    source = ["bash", "-c", 'source tests/scripts/setup-adreno-env.sh "$@"', "bash"]
    environment, command = _environment(calls.parent), [*source, "-e", "tracker", "-p", port]
    tracker = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        for _ in range(100):
            query = [*source, "-e", "query", "-p", port]
            message = subprocess.run(query, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            if message.returncode == 0:
                break
            time.sleep(0.1)
        assert message.returncode == 0 and "Queue Status" in message.stdout, message.stderr
    finally:
        os.killpg(tracker.pid, 15)
        tracker.wait(20)
    alone = [*source, "-e", "device", "-p", port]
    message = subprocess.run(alone, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert message.returncode == 2 and "-d wants the phone's serial number" in message.stderr
