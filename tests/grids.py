"""Products of parameters: each value of each parameter always, and half of the other combinations; the rest is slow.

In: the tests of a run. Out: marks. Invariant: a list of cases (one `parametrize`) stays whole, each may be there for a
reason of its own; of a product of lists each value stays, with others that are drawn by name, so that every run draws
the same. `pytest -m slow` runs the rest.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

FOLDERS = ("codegen", "frontend", "ops", "qnn", "relay", "schedules")  # where grids compile kernels
_ROOT = Path(__file__).parent


def mark_slow_combinations(items: Iterable[pytest.Item]) -> None:
    """Mark them; whatever the order in which tests were collected, the same ones."""
    seen = set[tuple[str, int, str]]()
    for item in sorted(filter(_is_of_a_grid, items), key=lambda item: (zlib.crc32(item.nodeid.encode()), item.nodeid)):
        test = item.nodeid.partition("[")[0]
        values = {(test, place, value) for place, value in enumerate(_values(item))}
        if values <= seen and zlib.crc32(item.nodeid[::-1].encode()) % 2:
            item.add_marker(pytest.mark.slow)
        seen |= values


def _is_of_a_grid(item: pytest.Item) -> bool:
    return len(_values(item)) > 1 and item.path.relative_to(_ROOT).parts[0] in FOLDERS


def _values(item: pytest.Item) -> tuple[str, ...]:
    """The part of a test's name from each `parametrize`, which is all that pytest tells of where it stands in it."""
    return tuple(getattr(getattr(item, "callspec", None), "_idlist", ()))
