"""What kernels of sums of products on a GPU can choose from: a tile, and whether the loops over its terms are unrolled.

In: a choice that a call carries (target/choice.py), the extents of its kernel. Out: the `Tiling` that its schedule
takes: the stored one, else the model's. Invariant: configuration and tiling turn into each other; a stored tiling that
does not fit the kernel is an error that says why. Everything that fits: `points.py`; the tiles' costs: `tiles.py`.
"""

from __future__ import annotations

import math

from armillary.backends.explanation import Explanation
from armillary.backends.opencl.tiles import (
    SHARED_BYTES,
    Product,
    Tile,
    choose_depthwise_tile,
    choose_tile,
    shared_bytes,
)
from armillary.backends.workload import Workload
from armillary.base.record import record
from armillary.errors import ConfigError
from armillary.target.choice import Choice, stored_choice

MOST_ITEMS = 256  # work-items of a group
MIN_ROWS = 4  # of a product: fewer are left to the default, which gives each sum to a group
MOST_UNROLLED = 1500  # multiply-adds of a step whose loops are unrolled
_NAMES = ("threads_c", "threads_y", "threads_x", "own_c", "own_y", "own_x", "step")
Config = tuple[tuple[str, int], ...]


@record
class Algorithm:
    """A way to compute an operator that a choice can name; `title`: for people."""

    name: str
    title: str

    def explain(self, workload: Workload) -> Explanation:
        """Its name alone: costs are compared where points are listed (points.py)."""
        return Explanation(self.title)


DIRECT = Algorithm("conv2d.tiles", "conv2d tiled")
WINOGRAD = Algorithm("conv2d.winograd", "winograd")
DEPTHWISE = Algorithm("conv2d.depthwise_tiles", "depthwise tiled")
TEXELS = Algorithm("conv2d.texels", "conv2d texels")  # on blocks of four channels, for GPUs with textures
PRODUCT, PLAIN = Algorithm("gemm.tiles", "product"), Algorithm("loops.plain", "generic loops")


@record(slots=True)
class Tiling:
    """A tile, and whether the loops over a step's terms are unrolled (if not, the driver's compiler decides)."""

    tile: Tile
    unroll: bool = False


def config_of(tiling: Tiling) -> Config:
    """The knobs of a tiling."""
    values = (*tiling.tile.threads, *tiling.tile.sums, tiling.tile.step)
    return (*zip(_NAMES, values, strict=True), ("unroll", int(tiling.unroll)))


def tiling_of(choice: Choice) -> Tiling | None:
    """The tiling that a choice names; None where it leaves that to the model."""
    knobs = dict(choice.config)
    if not set(_NAMES) & set(knobs):
        return None
    missing = [name for name in _NAMES if knobs.get(name, 0) < 1]
    if missing:
        hint = " ".join(f"{name}={value}" for name, value in config_of(Tiling(Tile((8, 4, 8), (2, 2, 1), 8))))
        raise ConfigError(f"choice={str(choice)!r}: {missing[0]} is missing, or 0", hint=f"{choice.algorithm} {hint}")
    a, b, c, f, y, x, step = (knobs[name] for name in _NAMES)
    return Tiling(Tile((a, b, c), (f, y, x), step), bool(knobs.get("unroll", 0)))


def chosen_tiling(workload: Workload, algorithm: Algorithm, work: Product) -> Tiling | None:
    """The tiling of a kernel: the stored one of its algorithm, which has to fit, else the model's; None where none
    divides it well."""
    choice = stored_choice(workload)
    stored = tiling_of(choice) if choice.algorithm == algorithm.name else None
    if stored is None:
        tile = choose_depthwise_tile(work) if algorithm == DEPTHWISE else choose_tile(work)
        return None if tile is None else Tiling(tile)
    message = objection(work, stored, has_shared=algorithm != DEPTHWISE)
    if message:
        hint = "leave the choice to the model, or tune this call"
        raise ConfigError(f"{workload.op.name}: the choice {choice.algorithm} does not fit: {message}", hint=hint)
    return stored


def objection(work: Product, tiling: Tiling, *, has_shared: bool = True) -> str:
    """Why a tiling cannot compute a kernel; "" where it can."""
    tile = tiling.tile
    whole = [over * own for over, own in zip(tile.threads, tile.sums, strict=True)]
    if any(extent % part for extent, part in zip(work.result, whole, strict=True)):
        return f"its tile of {whole} results does not divide {list(work.result)}"
    if work.channels % tile.step:
        return f"its step of {tile.step} terms does not divide {work.channels}"
    if tile.items > MOST_ITEMS:
        return f"a group of it has {tile.items} work-items, at most {MOST_ITEMS} are"
    if has_shared and shared_bytes(work, tile) > SHARED_BYTES:
        return f"a group of it shares {shared_bytes(work, tile)} bytes, at most {SHARED_BYTES} are"
    if tiling.unroll and not can_unroll(work, tile):
        return f"a step of it is too long to unroll, at most {MOST_UNROLLED} multiply-adds are"
    return ""


def can_unroll(work: Product, tile: Tile) -> bool:
    """Whether the loops over a step's terms may be unrolled."""
    return tile.step * math.prod(work.taps) * math.prod(tile.sums) <= MOST_UNROLLED
