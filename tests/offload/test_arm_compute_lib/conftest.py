"""The device of the tests, as test_config.json says; locally armrun for AArch64 and the library's runtime."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from armillary.base.config import setting
from armillary.offload.acl.build_runtime import FILE_NAME, build_runtime

sys.path.insert(0, str(Path(__file__).parent))
import infrastructure


@pytest.fixture(scope="session")
def local_device(tmp_path_factory: pytest.TempPathFactory, built_runner: Callable[..., Path]) -> infrastructure.Device:
    """This machine or the emulator. Skips where a tool is missing, but not in CI."""
    lacking = infrastructure.missing_tools()
    if lacking and not setting("CI"):
        pytest.skip(f"not installed: {lacking}")
    assert not lacking, f"CI needs {lacking}"
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "acl"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the others wait for it
        if not (folder / FILE_NAME).exists():
            build_runtime(folder, "aarch64-linux-gnu-g++", flags=("-Wall", "-Wextra"))
    return infrastructure.Device(built_runner(["aarch64-linux-gnu-gcc"]), folder)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Iterator[infrastructure.Device | infrastructure.RemoteDevice]:
    """Where the tests run."""
    if infrastructure.CONFIG["connection_type"] == "local":
        yield request.getfixturevalue("local_device")
        return
    with infrastructure.connected(infrastructure.CONFIG) as remote:
        yield remote
