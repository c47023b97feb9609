"""What a drawn run leaves out: shares by length, the same for one seed, and only of lists that are there."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import draws
import pytest

ROOT = Path(__file__).parents[2]


class Case:
    """As much of a test as is looked at."""

    def __init__(self, number: int, mark: str = "") -> None:
        self.nodeid, self.mark = f"{draws.LISTS[0]}::test_of_many[{number}]", mark

    def get_closest_marker(self, name: str) -> str | None:
        return self.mark if name == self.mark else None


def ran(cases: list[Case], seed: str) -> list[Case]:
    out = draws.left_out(cast("list[pytest.Item]", cases), seed)
    return [case for case in cases if case not in out]


@pytest.mark.parametrize(
    ("count", "share"), [(2, 2), (3, 1), (6, 2), (7, 2), (24, 6), (25, 4), (96, 16), (97, 10), (1000, 100)]
)
def test_of_longer_lists_a_smaller_share_runs(count: int, share: int) -> None:
    cases = [Case(number) for number in range(count)]
    assert len(ran(cases, "1")) == share


def test_a_seed_draws_the_same_and_what_is_marked_always_runs() -> None:
    cases = [Case(number, "always" if number % 10 == 0 else "") for number in range(100)]
    assert ran(cases, "1") == ran(cases, "1") != ran(cases, "2")
    assert set(cases[::10]) < set(ran(cases, "1"))
    names = {case.nodeid for case in ran(cases[::-1], "1")}
    assert names == {case.nodeid for case in ran(cases, "1")}, "the order of the tests changed the draw"


def test_every_list_that_is_named_is_there() -> None:
    for name in draws.LISTS:
        path, _, test = name.partition("::")
        files = (
            [ROOT / path] if path.endswith((".py", "/")) else list((ROOT / path).parent.glob(f"{Path(path).name}*.py"))
        )
        assert files and all(file.exists() for file in files), name
        assert not test or f"\ndef {test}" in files[0].read_text(), name
