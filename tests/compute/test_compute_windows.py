"""Windows: the five rules of sub-windows, and splits that cover everything once."""

from __future__ import annotations

import random

import pytest

from armillary.compute import Coordinates, Dimension, Window
from armillary.errors import TypeMismatch


def _random_window(rng: random.Random) -> Window:
    window = Window()
    for n in range(3):
        start, step = rng.randrange(0, 9), rng.randrange(1, 17)
        window.set(n, Dimension(start, start + step * rng.randrange(1, 12), step))
    return window


def test_splits_cover_a_window_once_and_keep_the_rules() -> None:
    seed = 20
    rng = random.Random(seed)
    for _ in range(10_000):
        window, dimension, parts = _random_window(rng), rng.randrange(3), rng.randrange(1, 9)
        splits = [window.split_window(dimension, part, parts) for part in range(parts)]
        counts = [split.num_iterations(dimension) for split in splits]
        assert sum(counts) == window.num_iterations(dimension), seed
        assert max(counts) - min(counts) <= 1, seed
        place = window[dimension].start()
        for split, count in zip(splits, counts, strict=True):
            if count:
                assert split[dimension].start() == place, seed
                assert not window.objection_to(split), seed
                place = split[dimension].end()


@pytest.mark.parametrize(
    ("sub", "reason"),
    [
        (Dimension(32, 48, 16), "starts at 32, outside"),
        (Dimension(0, 48, 16), "ends at 48, outside"),
        (Dimension(0, 32, 8), "steps by 8, not 16"),
        (Dimension(8, 24, 16), "starts between steps"),
        (Dimension(0, 24, 16), "no multiple of 16 long"),
        (Dimension(16, 16, 16), "ends at 16, outside"),
    ],
)
def test_each_rule_is_checked(sub: Dimension, reason: str) -> None:
    whole, part = Window(Dimension(0, 32, 16)), Window(sub)
    with pytest.raises(TypeMismatch, match=reason):
        whole.validate(part)


def test_places_come_with_the_first_dimension_fastest() -> None:
    window = Window(Dimension(0, 4, 2), Dimension(1, 3))
    assert [place[:2] for place in window.places()] == [(0, 1), (2, 1), (0, 2), (2, 2)]
    assert Coordinates(1, 2) == (1, 2, 0, 0, 0, 0)
    with pytest.raises(TypeMismatch, match="at most 6"):
        Coordinates(*range(7))
