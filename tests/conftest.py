"""Options of the test suite, and what several folders build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from armillary.base.digest import blake2b
from armillary.runtime import build_native

SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-cases", action="store_true", help="rewrite the expected parts of text cases")


@pytest.fixture
def update_cases(request: pytest.FixtureRequest) -> bool:
    """Whether text cases are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-cases"))


@pytest.fixture(scope="session")
def built_runner(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function from compiler and flags to armrun, which the test processes of a run build once."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # popen-…: one process of several

    def build(compiler: Sequence[str], *, sanitized: bool = False) -> Path:
        flags = SANITIZED if sanitized else ()
        path = shared / f"armrun-{blake2b(repr((*compiler, *flags)).encode()).hexdigest()[:12]}"
        return path if path.exists() else build_native.build_runner(compiler, path, flags)

    return build
