"""One kernel cache for the whole run, empty at its start: what is measured here is compiled by the present sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from armillary.base.c_compiler import find_compiler


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache directory that the test processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # popen-…: one process of several
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARMILLARY_CACHE_DIR", str(shared / "kernel-cache"))
        yield shared / "kernel-cache"


@pytest.fixture(scope="session")
def runner(built_runner: Callable[..., Path]) -> Path:
    """armrun for this machine."""
    return built_runner(find_compiler() or ["cc"])
