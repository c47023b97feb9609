"""Options of the test suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-cases", action="store_true", help="rewrite the expected parts of text cases")


@pytest.fixture
def update_cases(request: pytest.FixtureRequest) -> bool:
    """Whether text cases are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-cases"))
