"""Whether a 1x1 convolution computes the depthwise convolution before it, band by band of rows, and how many rows.

In: the sizes of both (`Separable`), a `CpuModel`. Out: rows of a band; 0: two kernels are as good. Invariant: a band's
rows divide the image, so that no row is computed twice or beside the image.
Who asks: the pass fuse-depthwise whether to, the schedule conv2d_separable for the rows.
"""

from __future__ import annotations

from armillary.base.record import record
from armillary.relay.types import TensorType
from armillary.target.cpu import CpuModel
from armillary.transform import PassContext, register_config_option

FORCED = register_config_option(
    "cpu.separable.rows", int, -1, "rows of a band of fused depthwise and 1x1 convolutions; 0: two kernels; -1: by cost"
)
FLOAT = 4
ROWS = 4  # of a band at least; fewer only where four do not fit
MIN_PIXELS = 128  # of a band: with fewer both convolutions take longer than by themselves
PIXELS_PER_OUTPUT = 0.25  # of a band, so that weights that do not stay in L2 cost less than what is spared
BAND_SHARE = 0.5  # of L2, for what lies between the two
MIN_BANDS = 16  # of fewer, an even number, so that two threads have as many


@record(slots=True)
class Separable:
    """A depthwise convolution with `channels` on batch x height x width outputs, and 1x1 to `outputs` channels."""

    batch: int
    channels: int
    outputs: int
    height: int
    width: int

    def between(self, rows: int) -> int:
        """Bytes of so many rows between the two."""
        return FLOAT * self.channels * rows * self.width

    def bands(self, rows: int) -> int:
        """Bands of so many rows."""
        return self.batch * self.height // rows


def band_rows(layer: Separable, cpu: CpuModel) -> int:
    """Rows of a band; 0 where the near caches hold what lies between the two, or no rows fit.

    Beyond L2 what lies between is written, with its lines read before, and read again.
    """
    forced: int = PassContext.current().get(FORCED)
    if forced >= 0:
        return forced if forced and layer.height % forced == 0 else 0
    is_fast = 2 * cpu.memory.l3 >= cpu.memory.l2  # the next cache: then little is lost until it is full, too
    if layer.batch * layer.between(layer.height) < (max(cpu.l2, cpu.l3 // 4) if is_fast else cpu.l2):
        return 0
    pixels = max(MIN_PIXELS, PIXELS_PER_OUTPUT * layer.outputs)
    fitting = (
        rows
        for rows in (*range(ROWS, layer.height), *reversed(range(1, min(ROWS, layer.height))))
        if layer.height % rows == 0
        and rows * layer.width >= pixels
        and layer.between(rows) <= BAND_SHARE * cpu.l2
        and (layer.bands(rows) >= MIN_BANDS or layer.bands(rows) % 2 == 0)
    )
    return next(fitting, 0)


def separable_of(data: TensorType, result: TensorType) -> Separable:
    """The sizes of a 1x1 convolution behind a depthwise one: of its blocked data and result."""
    (batch, blocks, height, width, block), (_, chunks, _, _, lanes) = data.static, result.static
    return Separable(batch, blocks * block, chunks * lanes, height, width)
