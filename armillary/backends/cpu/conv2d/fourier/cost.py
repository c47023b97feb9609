"""Estimated cycles of convolutions by Fourier transforms of 16x16 tiles.

In: a `FourierLayer`, a `CpuModel`. Out: register tiles of the products, `Estimate`s. Invariant: the terms are those of
the schedule (conv2d/fourier/schedule.py): a product per point; transforms of tiles, with what they carry to and
from the products; weights, read and transformed once for each eighth of the points.
Who asks: the pass fourier-conv2d, the schedule for the tile, `armc profile` for the reasons.
"""

from __future__ import annotations

from dataclasses import replace

from armillary.backends.cpu.cost.model import (
    L2_SHARE,
    SHOWN_INPUT,
    Estimate,
    Nest,
    Tile,
    bandwidth_of,
    forced_tile,
    ranked_tiles,
    tile_estimate,
    tiles,
)
from armillary.backends.fourier import SIDE
from armillary.base.record import record
from armillary.target.cpu import CpuModel

PARTS, PART = 8, 48  # parts of the points of a tile, and points of a part
POINTS = PARTS * PART
KERNELS = range(4, SIDE)  # rows and columns of kernels: smaller ones have better algorithms
DATA_CYCLES, OUTPUT_CYCLES = 3000.0, 2500.0  # of a tile of a vector of channels, without memory
WEIGHT_CYCLES = 280.0  # of a vector of kernels, for a part of the points
TRAFFIC = 1.6  # points lie in as many places as there are points, which costs more than their bytes
MOST_BYTES = 24 << 20  # bytes that the points of data and products may take together
STRIP = 48  # tiles of a strip, at least: for fewer the transforms of weights would take too long
FLOAT = 4


@record(slots=True)
class FourierLayer:
    """A convolution with stride 1: channels in, blocks of channels out, batch, output height and width, kernel."""

    inputs: int
    chunks: int
    block: int
    batch: int
    height: int
    width: int
    kernel: tuple[int, ...]

    @property
    def outputs(self) -> tuple[int, int]:
        """Rows and columns that a tile gives."""
        return SIDE - self.kernel[0] + 1, SIDE - self.kernel[1] + 1

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles of an image, down and across."""
        down, across = self.outputs
        return -(-self.height // down), -(-self.width // across)

    @property
    def tiles(self) -> int:
        """Tiles of all images."""
        return self.batch * self.grid[0] * self.grid[1]

    @property
    def strip(self) -> int:
        """Rows of tiles that a thread takes through all steps; 0: all tiles go through each, if they take little."""
        if FLOAT * POINTS * self.tiles * (self.inputs + self.chunks * self.block) <= MOST_BYTES:
            return 0
        down, across = self.grid
        return min(down, -(-STRIP // across))

    @property
    def strips(self) -> int:
        """How often the weights are transformed."""
        return self.batch * -(-self.grid[0] // self.strip) if self.strip else 1

    @property
    def together(self) -> int:
        """Tiles that are multiplied together."""
        return self.strip * self.grid[1] if self.strip else self.tiles

    def is_narrow(self, cpu: CpuModel) -> bool:
        """Whether a block fills at most half a vector."""
        return 2 * self.block <= cpu.lanes

    def part_bytes(self, vectors: int) -> int:
        """Of the weights that a thread transforms at a time: a part of the points for a group of output channels."""
        return FLOAT * PART * self.inputs * self.block * vectors


def direct_nest(layer: FourierLayer, cpu: CpuModel, weights_far: float) -> Nest:
    """The direct convolution as a register-tiled product."""
    data = FLOAT * layer.batch * layer.inputs * layer.height * layer.width
    steps = layer.inputs * layer.kernel[0] * layer.kernel[1]
    reread, narrow = SHOWN_INPUT * data / bandwidth_of(data, cpu), layer.is_narrow(cpu)
    return Nest(
        layer.width, layer.batch * layer.height, layer.chunks, steps, weights_far, reread=reread, is_narrow=narrow
    )


def product_nest(layer: FourierLayer, cpu: CpuModel) -> Nest:
    """The products, one for each point; the data of a part of the points is near for all groups of outputs."""
    data = FLOAT * PART * layer.together * layer.inputs
    reread = SHOWN_INPUT * layer.strips * PARTS * data / bandwidth_of(data + layer.part_bytes(1), cpu)
    repeats, narrow = POINTS * layer.strips, layer.is_narrow(cpu)
    return Nest(
        layer.together, 1, layer.chunks, layer.inputs, cpu.memory.l2, repeats=repeats, reread=reread, is_narrow=narrow
    )


def product_tiles(layer: FourierLayer, cpu: CpuModel) -> list[Tile]:
    """The register tiles that the products may have."""
    return list(dict.fromkeys(tiles(product_nest(layer, cpu), cpu)))


def product_tile(layer: FourierLayer, cpu: CpuModel) -> tuple[Tile, Estimate]:
    """The best register tile whose part of the weights leaves room in L2, or the one the pass context asks for."""
    nest = product_nest(layer, cpu)
    ranked, forced = ranked_tiles(nest, cpu), forced_tile()
    if forced is not None and forced in tiles(nest, cpu):
        return next((tile, estimate) for tile, estimate in ranked if tile == forced)
    room = L2_SHARE * cpu.l2 / 2
    fits = [row for row in ranked if row[0].vectors == 1 or layer.part_bytes(row[0].vectors) <= room]
    return fits[0] if fits else ranked[0]


def estimate(layer: FourierLayer, cpu: CpuModel, weights_far: float, tile: Tile | None = None) -> Estimate:
    """Cycles of the three phases, with weights that come at `weights_far` bytes per cycle the first time.

    `tile`: of the products, by default the best.
    """
    if tile is None:
        tile, product = product_tile(layer, cpu)
    else:
        product = tile_estimate(product_nest(layer, cpu), tile, cpu)
    outputs = layer.chunks * layer.block
    vector = float(FLOAT * max(layer.block, 1))
    points = float(FLOAT * POINTS * layer.together * (layer.inputs + outputs))
    rate, lanes = bandwidth_of(points, cpu) / TRAFFIC, max(layer.block, 1)
    data = layer.tiles * layer.inputs / lanes * (DATA_CYCLES + 2 * POINTS * vector / rate)
    back = layer.tiles * layer.chunks * (OUTPUT_CYCLES + POINTS * vector / rate)
    raw = float(FLOAT * layer.kernel[0] * layer.kernel[1] * layer.inputs * outputs)
    near = bandwidth_of(layer.part_bytes(tile.vectors), cpu)
    kernels = PARTS * layer.inputs * layer.chunks * (WEIGHT_CYCLES + 3 * PART * vector / near)
    weights = layer.strips * (kernels + PARTS * raw / bandwidth_of(raw, cpu)) + raw / weights_far
    parts = {product.bound: product.cycles, "the transforms": data + back, "the transforms of weights": weights}
    return Estimate(f"Fourier, tile {tile}", sum(parts.values()), max(parts, key=lambda name: parts[name]))


def direct_estimate(layer: FourierLayer, cpu: CpuModel, weights_far: float) -> Estimate:
    """Cycles of the direct convolution with its best tile."""
    cost = ranked_tiles(direct_nest(layer, cpu, weights_far), cpu)[0][1]
    return replace(cost, name=f"direct, {cost.name}")
