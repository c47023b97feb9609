"""The driver of Arm Compute Library, built once for the tests that ask the real library."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.compute.acl_oracle.wire import build, has_library


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `wire.run` runs under the emulator."""
    if not has_library() and not os.environ.get("CI"):
        pytest.skip("Arm Compute Library, its cross compiler or qemu-user-static is not installed")
    return build(tmp_path_factory.mktemp("acl"))
