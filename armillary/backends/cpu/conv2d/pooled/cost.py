"""Whether a convolution is computed band by band for the pooling behind it, and how many pooled rows make a band.

In: the sizes of both (`Pooled`), a `CpuModel`. Out: rows of a band and blocks of channels of a task; no band: two
kernels are as good. Invariant: bands divide the pooled image; rows of the convolution that two bands share are computed
twice, at most `OVERLAP` of all.
Who asks: the pass fuse-pool whether to, the schedule conv2d_pooled for the sizes.
"""

from __future__ import annotations

from armillary.backends.cpu.cost.model import bandwidth_of
from armillary.base.record import record
from armillary.target.cpu import CpuModel
from armillary.transform import PassContext, register_config_option

FORCED = register_config_option(
    "cpu.pooled.rows", int, -1, "pooled rows of a band with the convolution before; 0: two kernels; -1: by cost"
)
FLOAT = 4
MAX_WINDOW = 3  # larger windows are taken line by line
BAND_SHARE = 0.5  # of L2, for what lies between the two
MOVED = 8  # bytes of an element between the two: written once, read once
SPENT = 0.5  # of what is spared, on rows that are computed twice
GROUPS = (2, 4, 3, 1)  # blocks of channels of a task, the best first: two make tiles of 14x2
MIN_TASKS = 16  # of fewer, an even number, so that two threads have as many


@record(slots=True)
class Pooled:
    """A convolution to `chunks` blocks of `block` channels by height x width, and windows over `rows` pooled rows.

    A window reaches over `reach` rows, the next one begins `stride` further down. An element of the convolution is a
    sum over `steps`.
    """

    batch: int
    chunks: int
    block: int
    height: int
    width: int
    rows: int
    reach: int
    stride: int
    steps: int

    @property
    def group(self) -> int:
        """Blocks of channels of a task."""
        return next(n for n in GROUPS if self.chunks % n == 0)

    @property
    def nbytes(self) -> int:
        """Of all that lies between the two."""
        return FLOAT * self.batch * self.chunks * self.block * self.height * self.width

    def between(self, rows: int) -> int:
        """Bytes between the two for so many pooled rows of a task."""
        lines = min(self.height, (rows - 1) * self.stride + self.reach)
        return FLOAT * self.group * self.block * lines * self.width

    def overlap(self, rows: int) -> float:
        """The share of the convolution that is computed twice."""
        return max(0, self.reach - self.stride) * (self.rows // rows - 1) / self.height

    def tasks(self, rows: int) -> int:
        """Of so many pooled rows."""
        return self.batch * self.chunks // self.group * (self.rows // rows)


def band_rows(layer: Pooled, cpu: CpuModel) -> int:
    """Pooled rows of a band; 0 where L2 holds what lies between the two, or no rows fit."""
    forced: int = PassContext.current().get(FORCED)
    if forced >= 0:
        return forced if forced and layer.rows % forced == 0 else 0
    if layer.nbytes < cpu.l2:
        return 0
    spared, spent = (
        MOVED / bandwidth_of(layer.nbytes, cpu),
        layer.steps / (cpu.lanes * cpu.fma_ports),
    )  # cycles of an element
    fitting = (
        rows
        for rows in range(layer.rows, 0, -1)
        if layer.rows % rows == 0
        and layer.between(rows) <= BAND_SHARE * cpu.l2
        and layer.overlap(rows) * spent <= SPENT * spared
        and (layer.tasks(rows) >= MIN_TASKS or layer.tasks(rows) % 2 == 0)
    )
    return next(fitting, 0)
