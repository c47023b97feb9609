"""When a product of bytes or bfloat16 is made by matrix tiles (AMX), and what that is expected to take.

In: a workload of a product. Out: None or why not; `TILES`, its space: panels; the explanation. Invariant: no tensor
expression is imported; amx.py makes the loops. Panels of tiles: amx_panels.py.
"""

from __future__ import annotations

import math

from armillary.backends.cpu.conv2d.amx.cost import DEPTH
from armillary.backends.cpu.cost.model import Estimate, Tile
from armillary.backends.cpu.gemm.amx_panel_cost import COLUMNS, Panel, ranked
from armillary.backends.cpu.gemm.space import is_transposed
from armillary.backends.cpu.space import Algorithm, Config, Weighed, agreeing, tile_config
from armillary.backends.workload import Workload
from armillary.ops._dot_operands import terms_per_operand
from armillary.relay.types import TensorType
from armillary.target.choice import Choice, Cost
from armillary.target.cpu import CpuModel, cpu_model

BOUND = "matrix tiles"


def is_packed(workload: Workload) -> bool:
    """Whether the right-hand side is a constant that was packed when compiling."""
    return workload.op.name == "nn.contrib_dense_pack"


def sizes_of(workload: Workload) -> tuple[int, int, int]:
    """Rows of one product, columns in sixteens, and the tiles of terms of a sum."""
    data, other = workload.types
    assert isinstance(data, TensorType) and isinstance(other, TensorType), "inference has checked"
    steps = -(-data.static[-1] * data.dtype.bytes // DEPTH)
    if is_packed(workload):
        return math.prod(data.static[:-1]), other.static[0], steps
    columns = other.static[-2 if is_transposed(workload.attrs, "b") else -1]
    rows = data.static[-2] if workload.op.name == "nn.batch_matmul" else math.prod(data.static[:-1])
    return rows, -(-columns // COLUMNS), steps


def refuses(workload: Workload) -> str | None:
    """None, or why matrix tiles do not compute it."""
    data, other = workload.types
    cpu = cpu_model(workload.target)
    if not isinstance(data, TensorType) or not isinstance(other, TensorType) or data.ndim < 2:
        return "only products of bytes and bfloat16 have tiles"
    if not terms_per_operand(data.dtype, other.dtype, workload.attrs.out_dtype):
        return "only products of bytes and bfloat16 have tiles"
    rows, _, steps = sizes_of(workload)
    if not steps:
        return "a sum of no terms has no tiles"
    terms = data.static[-1] if is_packed(workload) else steps * DEPTH // data.dtype.bytes
    if workload.target.kind.name != "llvm" or not cpu.takes_tiles(rows, terms, data.dtype.bits):
        return f"the processor has no matrix tiles for {rows} rows of {terms} terms"
    fills = other.static[2:3] == (COLUMNS,) if is_packed(workload) else not _is_odd(workload, other.static)
    return None if fills else "an operand does not fill tiles"


def _is_odd(workload: Workload, other: tuple[int, ...]) -> bool:
    columns = other[-2 if is_transposed(workload.attrs, "b") else -1]
    return columns < COLUMNS or bool(getattr(workload.attrs, "transpose_a", False))


def tile_of_panel(panel: Panel) -> Tile:
    """A panel as the knobs say it: tiles of rows and of columns in a block, blocks one below another."""
    return Tile(panel.rows, panel.columns, panel.blocks)


def panel_of(attrs: object, rows: int, chunks: int, steps: int, cpu: CpuModel) -> Panel:
    """The panel of a product whose call has these attributes: what its choice says, or the best."""
    panels, choice = ranked(rows, chunks, steps, cpu), Choice.parse(getattr(attrs, "choice", ""))
    stated = set(choice.config) if choice.algorithm == TILES.name else set[tuple[str, int]]()
    return next((p for p, _ in panels if stated <= set(tile_config(tile_of_panel(p)))), panels[0][0])


def _space(workload: Workload, cpu: CpuModel) -> list[Config]:
    return [tile_config(tile_of_panel(panel)) for panel, _ in ranked(*sizes_of(workload), cpu)]


def _default(workload: Workload, cpu: CpuModel, stated: Config = ()) -> Config:
    return agreeing(_space(workload, cpu), stated)[0]


def _weigh(workload: Workload, cpu: CpuModel, choice: Choice) -> Weighed:
    """The panel against the others."""
    panels = [(tile_config(tile_of_panel(p)), Estimate(f"{p}", n, BOUND)) for p, n in ranked(*sizes_of(workload), cpu)]
    mine = next(estimate for config, estimate in panels if config == choice.config)
    return Weighed(Cost(mine.cycles, BOUND), tuple(e for _, e in panels if e is not mine))


def _title(workload: Workload, cpu: CpuModel, config: Config) -> str:
    what = "bytes" if workload.tensor(0).dtype.bits == 8 else "bfloat16"
    return f"product of {what} by matrix tiles"


def _extents(workload: Workload, cpu: CpuModel) -> dict[str, int]:
    return {"width": sizes_of(workload)[0]}


TILES = Algorithm("gemm.matrix_tiles", _space, _default, _weigh, _title, _extents)
