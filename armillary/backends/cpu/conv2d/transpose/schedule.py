"""Transposed convolution on blocked layouts: a register tile per phase of the output.

In: a fused function anchored at cpu.conv2d_transpose_NCHWc. Out: for each tile - `rows` columns of each phase
times `vectors` blocks of channels, of `tall` rows where the image is small and has one phase - one loop nest per phase
over its taps with all accumulators in registers; elementwise consumers run on the tile before it is stored. Invariant:
as for conv2d_blocked; no product with an inserted zero is made.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.cost.model import Nest, Tile, choose_tile, explained, ranked_tiles, weight_bandwidth
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import schedule_injective, schedule_stage
from armillary.backends.cpu.loops import compute_in_tile, followers, fuse_all
from armillary.backends.explanation import Explanation
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.target.cpu import CpuModel, cpu_model
from armillary.te import static_shape

NAME = "cpu.conv2d_transpose_NCHWc"
SMALL = 8  # rows and columns up to which a tile takes several rows, so that weights are read fewer times; the sums of
# several phases of several rows would not fit the registers


def nest_of(workload: Workload, cpu: CpuModel) -> Nest:
    """One phase as a register-tiled product: lines are the rows of all phases, steps are taps times channels."""
    weight = workload.tensor(1)
    result = workload.result
    (sy, sx), (batch, chunks, height, width, block) = workload.attrs.strides, result.static
    _, kh, kw, i_blocks, ci, _ = weight.static
    lines, columns = -(-height // sy), -(-width // sx)
    wide = max(1, block // lanes_of(cpu, result.dtype))
    below = lines if max(lines, columns) <= SMALL and sy * sx == 1 else 1
    taps = -(-kh // sy) * -(-kw // sx)
    steps, lines = i_blocks * ci * taps, batch * lines * sy * sx
    if workload.attrs.groups > 1:  # each block of channels for itself
        return Nest(columns, lines * chunks, 1, steps, weight_bandwidth(cpu), wide=wide, lines_per_image=below)
    return Nest(columns, lines, chunks, steps, weight_bandwidth(cpu), wide=wide, lines_per_image=below)


def _tile(nest: Nest, cpu: CpuModel) -> Tile:
    """The best tile whose rows divide the columns: a narrower last tile would be tested in its inner loops."""
    wanted = choose_tile(nest, cpu)
    if nest.width % wanted.rows == 0:
        return wanted
    return next(tile for tile, _ in ranked_tiles(nest, cpu) if nest.width % tile.rows == 0)


def explain_transpose(workload: Workload) -> Explanation:
    """The register tile against the next best ones."""
    cpu = cpu_model(workload.target)
    nest = nest_of(workload, cpu)
    tile = _tile(nest, cpu)
    ranked = ranked_tiles(nest, cpu)
    rows = [e for t, e in ranked if t == tile] + [e for t, e in ranked if t != tile][:3]
    return explained("transposed convolution by phases", str(tile), rows, cpu)


@implement(Candidate(NAME, "transpose_blocked", explain_rule=explain_transpose), family="cpu")
def transpose_blocked(schedule: te.Schedule, fused: Fused) -> None:
    """Register-tiled convolution of each phase."""
    cpu = cpu_model(fused.workload.target)
    (interleaved,) = fused.anchor
    (phases,) = (t for t in interleaved.op.input_tensors if t.op.tag == "conv2d_transpose_phases")
    retained = schedule_injective(schedule, fused)
    output = fused.outputs[0]
    tiled = len(fused.outputs) == 1 and len(output.op.axis) == len(interleaved.op.axis)
    after = [t for t in followers(schedule, phases, retained) if t.op is not output.op] if tiled else []
    for tensor in retained:
        if not tiled or (tensor.op is not phases.op and tensor.op is not output.op and tensor not in after):
            schedule_stage(schedule, tensor, cpu)
    if tiled:
        at = _tile_output(schedule, output, phases, _tile(nest_of(fused.workload, cpu), cpu))
        compute_in_tile(schedule, after, schedule[output], at)


def _tile_output(schedule: te.Schedule, output: te.Tensor, phases: te.Tensor, tile: Tile) -> te.IterVar:
    """Tile the output, put the sums inside; gives the loop of a tile."""
    schedule[phases].set_scope("local")
    stage = schedule[output]
    batch, chunk, height, width, block = stage.op.axis
    stride_y, stride_x = static_shape(phases)[3], static_shape(phases)[5]
    chunk_outer, chunk_inner = stage.split(chunk, factor=tile.vectors)
    row, row_phase = stage.split(height, factor=stride_y)
    column, column_phase = stage.split(width, factor=stride_x)
    column_outer, column_inner = stage.split(column, factor=tile.rows)
    # all phases of a stretch of columns (and rows) together: the bounds of x % stride inside a tile are not narrower
    inner = [chunk_inner, column_inner, column_phase]
    lines = [row_phase, row]  # all rows of one phase, whose weights stay near, then those of the next
    if tile.tall > 1:
        row, row_inner = stage.split(row, factor=tile.tall)
        inner = [chunk_inner, row_inner, row_phase, column_inner, column_phase]
        lines = [row]
    stage.reorder(batch, chunk_outer, *lines, column_outer, *inner, block)
    stage.vectorize(block)
    for axis in inner:
        stage.unroll(axis)
    stage.parallel(fuse_all(stage, [batch, chunk_outer, *lines]))
    _schedule_sums(schedule[phases], stage, column_outer, is_tall=tile.tall > 1)
    return column_outer


def _schedule_sums(inside: te.Stage, stage: te.Stage, at: te.IterVar, *, is_tall: bool) -> None:
    """Each phase of a tile: its reduction loops outside, all its registers unrolled."""
    inside.compute_at(stage, at)
    _, chunk_tile, row_tile, row_phase, column_tile, column_phase, lane = inside.op.axis
    reduction = list(inside.op.reduce_axis)
    if is_tall:
        inside.reorder(row_phase, column_phase, *reduction, row_tile, column_tile, chunk_tile, lane)
    else:
        inside.reorder(row_tile, row_phase, column_phase, *reduction, column_tile, chunk_tile, lane)
    inside.vectorize(lane)
    for axis in (column_tile, chunk_tile, column_phase, *((row_tile, row_phase) if is_tall else ())):
        inside.unroll(axis)
    for axis in reduction:
        if axis.var.name == "kw" or (is_tall and axis.var.name == "kh"):
            inside.unroll(axis)
