"""A choice that a call on a GPU carries: the tile that is taken instead of the model's.

In: the attribute `choice` of opencl.conv2d_winograd ("tile=8x1x32/8x1x4/16"), which a script sets. Out: a `Tile`.
Invariant: text and value turn into each other; an empty text leaves the tile to the model of costs. A tile is
work-items along (channels, rows, columns) / results of each along them / terms of a step.
"""

from __future__ import annotations

from armillary.backends.opencl.tiles import Tile
from armillary.errors import ConfigError


def spell(tile: Tile) -> str:
    """A tile as the text of a choice."""
    return f"tile={'x'.join(map(str, tile.threads))}/{'x'.join(map(str, tile.sums))}/{tile.step}"


def tile_of(text: str) -> Tile | None:
    """The tile that a choice names; None where it is empty."""
    if not text:
        return None
    parts = text.removeprefix("tile=").split("/")
    numbers = [part.split("x") for part in parts]
    is_form = text.startswith("tile=") and [len(n) for n in numbers] == [3, 3, 1]
    if not is_form or not all(n.isascii() and n.isdecimal() and int(n) for part in numbers for n in part):
        raise ConfigError(f"choice={text!r}: cannot read it", hint="tile=8x1x32/8x1x4/16")
    (a, b, c), (f, y, x), (step,) = (tuple(map(int, part)) for part in numbers)
    return Tile((a, b, c), (f, y, x), step)
