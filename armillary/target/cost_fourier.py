"""Estimated cycles of convolutions by Fourier transforms of 16x16 tiles (schedules/cpu/conv2d_fourier.py)."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.target.cost import Nest
from armillary.target.cpu import CpuModel

SIDE, POINTS = 16, 384


@dataclass(frozen=True, slots=True)
class FourierLayer:
    """A convolution with stride 1: channels in, blocks of channels out, batch, output height and width, kernel."""

    inputs: int
    chunks: int
    block: int
    batch: int
    height: int
    width: int
    kernel: tuple[int, int]

    @property
    def outputs(self) -> tuple[int, int]:
        """Rows and columns that a tile gives."""
        return SIDE - self.kernel[0] + 1, SIDE - self.kernel[1] + 1

    @property
    def tiles(self) -> int:
        """Tiles of all images."""
        down, across = self.outputs
        return self.batch * -(-self.height // down) * -(-self.width // across)


def product_nest(layer: FourierLayer, cpu: CpuModel) -> Nest:
    """The products, one for each point."""
    return Nest(layer.tiles, 1, layer.chunks, layer.inputs, cpu.memory.l2, repeats=POINTS)
