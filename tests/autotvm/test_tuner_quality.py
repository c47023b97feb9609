"""On a space that was measured whole once, tuners that learn need a part of the trials that chance needs."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))
from tuner_quality import Space  # noqa: E402  (a script beside the package)

SHARE, SEEDS = 0.95, range(5)


@pytest.fixture(scope="module", params=sorted(path.name for path in HERE.glob("space_*.json")))
def space(request: pytest.FixtureRequest) -> Space:
    """A 3x3 convolution for AVX-512, such as 64 to 64 channels, 28 x 28: measured by benchmarks/tuner_quality.py."""
    return Space(HERE / str(request.param))


def middle(space: Space, name: str) -> float:
    return statistics.median(space.trials(name, seed, SHARE) for seed in SEEDS)


def test_the_table_is_of_todays_space(space: Space) -> None:
    assert space.part > 0.8, "the space has changed: measure it again (benchmarks/tuner_quality.py measure)"
    assert 20 <= space.by_chance(SHARE) <= len(space.seconds) / 2, "neither trivial nor hopeless"


def test_chance_needs_about_what_it_must(space: Space) -> None:
    found = sorted(space.trials("random", seed, SHARE) for seed in range(15))
    assert space.by_chance(SHARE) / 3 <= found[7] <= 3 * space.by_chance(SHARE)


@pytest.mark.parametrize("name", ["xgb_knob", "xgb_knob alone"])
def test_trees_need_at_most_half_the_trials(space: Space, name: str) -> None:
    pytest.importorskip("xgboost")
    assert middle(space, name) <= space.by_chance(SHARE) / 2


def test_the_own_tuner_needs_at_most_a_quarter(space: Space) -> None:
    assert middle(space, "model") <= space.by_chance(SHARE) / 4
