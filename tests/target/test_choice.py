"""A choice and its text turn into each other, and what cannot be read is said."""

from __future__ import annotations

import random

import pytest

from armillary.errors import ConfigError
from armillary.target.choice import Choice, Cost, Guard, Rejection, Source

NAMES = ("F(4,3) in strips of 14 tiles, tile 6x2", "direct, tile 14x2", "conv2d.fourier", "packing_dense")
REASONS = ("the kernel is 3x3", "2 rows are too few to pay for packing", "a: b, 12 cycles")


def _drawn(draw: random.Random) -> Choice:
    knobs = [(name, draw.randrange(100)) for name in ("tile", "strip", "rows", "vectors") if draw.random() < 0.6]
    rejected = [Rejection(draw.choice(NAMES), draw.uniform(1, 1e9)) for _ in range(draw.randrange(4))]
    rejected += [Rejection(draw.choice(NAMES), reason=draw.choice(REASONS)) for _ in range(draw.randrange(3))]
    guards = [Guard(draw.choice("nwx"), draw.randrange(9), draw.randrange(9, 99)) for _ in range(draw.randrange(3))]
    return Choice(
        draw.choice(("conv2d.direct", "gemm.register_tiles")),
        tuple(knobs),
        ("NCHW16c", "OIHW16i16o", "NCHW16c") if draw.random() < 0.5 else (),
        Cost(draw.uniform(0, 1e12), draw.choice(("", "FMA units", "L2 bandwidth"))) if draw.random() < 0.5 else None,
        draw.choice(list(Source)),
        tuple(rejected),
        tuple(guards),
    )


def test_a_choice_and_its_text_turn_into_each_other() -> None:
    draw = random.Random(5)
    for choice in (Choice(), *(_drawn(draw) for _ in range(500))):
        assert Choice.parse(str(choice)) == choice, str(choice)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("winograd=4 tile=6x4", "winograd=4"),
        ("conv2d.direct rows=many", "rows=many"),
        ("conv2d.direct rows=3 | by chance", "by chance"),
        ("conv2d.direct | if n in 3", "if n in 3"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=rf"cannot read '{part}'(.|\n)*for example"):
        Choice.parse(text)


def test_a_guard_asks_about_an_extent_with_bounds() -> None:
    guard = Guard("n", 1, 64)
    assert guard.holds({"n": 1}) and guard.holds({"n": 64})
    assert not guard.holds({"n": 65}) and not guard.holds({"m": 3}), "what is not known does not hold"
