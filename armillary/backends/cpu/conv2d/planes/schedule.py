"""Convolution in the plain layout NCHW, vectors along the image: for groups and channel counts that no block divides.

In: a fused function anchored at nn.conv2d in NCHW (weights OIHW, constant or not, any groups, strides and dilation).
Out: "planes", a padded copy of each channel split by stride phases and laid flat, so that every tap is one shift of it;
then, per thread, `rows` channels of a group times `vectors` pieces of the flat image in registers; consumers run on the
finished channels while they are in cache. Invariant: a tap of output y, x reads plane (tap mod stride) at the flat
position of y, x plus a constant. Blocked layouts are faster where they fit: direct/schedule.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.cpu.contiguous import is_one_run
from armillary.backends.cpu.cost.vectors import lanes_of
from armillary.backends.cpu.elementwise.default import PACKED, schedule_injective, schedule_stage
from armillary.backends.cpu.loops import followers, fuse_all, is_power_of_two, static_extent
from armillary.backends.registry import Fused, implement
from armillary.backends.workload import Workload
from armillary.base.aliases import AnyFunction
from armillary.ops.nn.conv import Conv2DAttrs, Window, result_dtype, window
from armillary.relay.types import TensorType
from armillary.target.cpu import CpuModel, cpu_model

LANES = 16  # of the flat image: its length is rounded up to this many elements
UNROLLED = 25  # taps that are spelled out; of more, only those of a row
SPELLED_IN_C = 128  # products of a tile that are: C compilers follow each access through all stores before it
MIN_LYING = 8  # vectors: an image of fewer is copied
MARGIN = 1.07  # of the flat image, to have it in a multiple of a few vectors


def _applies(workload: Workload) -> str | None:
    """NCHW float32 with known shapes."""
    attrs, types = workload.attrs, workload.types
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    if layouts != ("NCHW", "OIHW", "NCHW"):
        return f"layouts are {', '.join(layouts)}"
    data, weight = types
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType) or data.dtype != "float32":
        return "only float32"
    if not all(isinstance(d, int) for t in (data, weight) for d in t.shape):
        return "shapes are not known"
    if attrs.groups > 1 and weight.static[1] * attrs.groups != data.static[1]:
        return "a depthwise weight as (channels, multiplier)"
    return None if result_dtype(attrs, data) == data.dtype else "another result type"


@dataclass(frozen=True)
class _Plan:
    """Sizes of one convolution: output image, columns from row to row of the flat image, its length with a margin."""

    image: tuple[int, int]
    pitch: int
    flat: int
    length: int


def _plan(attrs: Conv2DAttrs, size: tuple[int, int], kernel: tuple[int, int]) -> _Plan:
    win = window("nn.conv2d", attrs, 2)
    image = tuple(
        (size[a] + sum(win.pads[a]) - (kernel[a] - 1) * win.dilation[a] - 1) // win.strides[a] + 1 for a in range(2)
    )
    reach_y, reach_x = ((kernel[a] - 1) * win.dilation[a] // win.strides[a] for a in range(2))
    pitch = image[1] + reach_x
    count = -(-((image[0] - 1) * pitch + image[1]) // LANES)
    even = next(m for m in (4, 3, 2, 1) if -(-count // m) * m <= MARGIN * count)
    flat = -(-count // even) * even * LANES
    if image[0] == 1 and reach_y == 0 and reach_x:  # one row: all that is read, and no second one
        pitch = flat + reach_x
    return _Plan((image[0], image[1]), pitch, flat, flat + reach_y * pitch + reach_x)


def planes_compute(attrs: Conv2DAttrs, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The convolution over flat planes; the tensor of tag "planes_flat" holds rows with a few columns too many."""
    win = window("nn.conv2d", attrs, 2)
    n, _, h, w = te.static_shape(data)
    o, per_group, kh, kw = te.static_shape(weight)
    plan = _plan(attrs, (h, w), (kh, kw))
    (sy, sx), (dy, dx), pitch = win.strides, win.dilation, plan.pitch
    planes = _planes(data, win, (kh, kw), plan)
    out_group = o // attrs.groups
    ic = te.reduce_axis((0, per_group), name="ic")
    ry, rx = te.reduce_axis((0, kh), name="kh"), te.reduce_axis((0, kw), name="kw")

    def element(b: te.Expr, oc: te.Expr, p: te.Expr) -> te.Expr:
        channel = ic if attrs.groups == 1 else oc // out_group * per_group + ic
        row, column = ry.var * dy, rx.var * dx
        at = p + row // sy * pitch + column // sx
        return te.sum(planes(b, channel, row % sy, column % sx, at) * weight(oc, ic, ry, rx), axis=[ic, ry, rx])

    whole = te.compute((n, o, plan.flat), element, name="flat", tag="planes_flat")
    result: te.Tensor = te.compute(
        (n, o, *plan.image), lambda b, oc, y, x: whole(b, oc, y * pitch + x), name="conv2d", tag="conv2d_planes"
    )
    return result


def _planes(data: te.Tensor, win: Window, kernel: tuple[int, int], plan: _Plan) -> AnyFunction:
    """Reads element (image, channel, phase of row, phase of column, flat position) of the padded data.

    A stride has no more phases than the dilated kernel has taps: one of 2**31 - 1 is no array of so many planes.
    """
    n, c, h, w = te.static_shape(data)
    (sy, sx), ((top, _), (left, _)), pitch = win.strides, win.pads, plan.pitch
    phases = tuple(min(win.strides[a], (kernel[a] - 1) * win.dilation[a] + 1) for a in range(2))
    if win.strides == (1, 1) and plan.image == (h, w) and pitch == w and (top, left) == (0, 0):  # as it lies
        return _in_place(data, plan)

    def element(b: te.Expr, ch: te.Expr, py: te.Expr, px: te.Expr, y: te.Expr, x: te.Expr) -> te.Expr:
        row, column = y * sy + py - top, x * sx + px - left
        inside = te.all(row >= 0, row < h, te.likely(column >= 0), te.likely(column < w))
        return te.if_then_else(inside, data(b, ch, row, column), te.const(0.0, data.dtype))

    rows = -(-plan.length // pitch)
    split = te.compute((n, c, *phases, rows, pitch), element, name="planes", tag=PACKED)
    return lambda b, ch, py, px, q: split(b, ch, py, px, q // pitch, q % pitch)


def _in_place(data: te.Tensor, plan: _Plan) -> AnyFunction:
    """Reads the data of a 1x1 convolution where it lies; only what is beyond its last whole vectors is a copy.

    A small image is copied whole: with few pieces, those that end in the copy are not told from the others.
    """
    n, c, h, w = te.static_shape(data)
    whole = h * w // LANES * LANES
    start = whole if whole >= MIN_LYING * LANES else 0

    def lying(b: te.Expr, ch: te.Expr, q: te.Expr) -> te.Expr:
        return data(b, ch, q // w, q % w)

    if plan.length == whole:
        return lambda b, ch, py, px, q: lying(b, ch, q)

    def rest(b: te.Expr, ch: te.Expr, q: te.Expr) -> te.Expr:
        return te.if_then_else(te.likely(q < h * w - start), lying(b, ch, q + start), te.const(0.0, data.dtype))

    tail = te.compute((n, c, plan.length - start), rest, name="planes", tag=PACKED)
    if not start:
        return lambda b, ch, py, px, q: tail(b, ch, q)
    return lambda b, ch, py, px, q: te.if_then_else(te.likely(q < start), lying(b, ch, q), tail(b, ch, q - start))


@implement(Candidate("nn.conv2d", "planes", _applies), family="cpu", compute=planes_compute)
def planes(schedule: te.Schedule, fused: Fused) -> None:
    """Copy, then per thread some channels of a group at a time."""
    cpu = cpu_model(fused.workload.target)
    (conv,) = fused.anchor
    (whole,) = (t for t in conv.op.input_tensors if t.op.tag == "planes_flat")
    retained = schedule_injective(schedule, fused)
    output = fused.outputs[0]
    after = [t for t in followers(schedule, whole, retained) if t.op is not output.op]
    wide = LANES // min(LANES, lanes_of(cpu, whole.dtype))
    channels, pieces = static_extent(whole.op.axis[1]), static_extent(whole.op.axis[2]) // LANES
    # of a ragged image a tile never takes all pieces: its loops would be as long as the image, not whole vectors
    is_ragged = pieces * LANES != static_extent(conv.op.axis[2]) * static_extent(conv.op.axis[3])
    most = max(1, pieces - 1) if is_ragged else pieces
    rows, vectors = _tile(channels // fused.workload.attrs.groups, pieces, most, cpu.vector_registers // wide)
    is_one = static_extent(whole.op.axis[0]) * channels == rows  # one tile of channels: threads share the image
    tiled = len(fused.outputs) == 1 and len(output.op.axis) == 4 and not after and not is_one
    for tensor in retained:
        if tensor.op.tag == PACKED and len(tensor.op.axis) == 3:
            _schedule_rest(schedule, tensor, cpu)
        elif tensor.op is not whole.op and not (tiled and tensor.op is output.op):
            schedule_stage(schedule, tensor, cpu)
    if tiled:
        at = _schedule_output(schedule, output, rows, cpu)
        schedule[whole].compute_at(schedule[output], at)
    is_c = fused.workload.target.kind.name == "c"
    spelled = min(UNROLLED, SPELLED_IN_C // (rows * vectors * wide)) if is_c else UNROLLED
    _schedule_product(schedule, whole, rows, vectors, cpu, spelled, is_root=not tiled)


def _schedule_rest(schedule: te.Schedule, rest: te.Tensor, cpu: CpuModel) -> None:
    """A copy of the ends of rows: the loop over vectors stays a loop, which is cut where the data ends."""
    stage = schedule[rest]
    batch, channel, flat = stage.op.axis
    _, vector = stage.split(flat, factor=lanes_of(cpu, rest.dtype))
    stage.vectorize(vector)
    stage.parallel(fuse_all(stage, [batch, channel]))


def _tile(per_group: int, vectors: int, most: int, registers: int) -> tuple[int, int]:
    """Channels of a group and vectors of the image in registers together: both divide, few loads for each product."""
    best, best_cost = (1, 1), float("inf")
    for rows in (r for r in range(1, min(per_group, registers) + 1) if per_group % r == 0):
        for columns in (v for v in (1, 2, 3, 4, 6, 8, 12) if vectors % v == 0 and v <= most):
            if rows * columns + columns + 1 > registers:
                break
            cycles = max(rows * columns, 8, rows + columns) + 0.3 * (rows + columns)
            if cycles / (rows * columns) < best_cost:
                best, best_cost = (rows, columns), cycles / (rows * columns)
    return best


def _schedule_output(schedule: te.Schedule, output: te.Tensor, rows: int, cpu: CpuModel) -> te.IterVar:
    """Finished channels `rows` at a time, as vectors along the image. Gives the loop over those channels."""
    stage = schedule[output]
    batch, channel, y, x = stage.op.axis
    lanes = lanes_of(cpu, output.dtype)
    outer, inner = stage.split(channel, factor=rows)
    if is_one_run(schedule, output):
        x = stage.fuse(y, x)
        stage.reorder(batch, outer, inner, x)
    size = static_extent(output.op.axis[3]) * (static_extent(output.op.axis[2]) if x is not output.op.axis[3] else 1)
    if size >= lanes:
        _, vector = stage.split(x, factor=lanes)
        stage.vectorize(vector)
    elif is_power_of_two(size):
        stage.vectorize(x)
    at = fuse_all(stage, [batch, outer])
    stage.parallel(at)
    return at


def _schedule_product(
    schedule: te.Schedule, whole: te.Tensor, rows: int, vectors: int, cpu: CpuModel, spelled: int, *, is_root: bool
) -> None:
    """Sums of `rows` channels times `vectors` pieces in registers; so many taps as `spelled` are unrolled."""
    local = schedule.cache_write(whole, "local")
    stage = schedule[whole]
    batch, channel, flat = stage.op.axis
    lanes = min(LANES, lanes_of(cpu, whole.dtype))
    outer, inner = stage.split(channel, factor=rows)
    piece, rest = stage.split(flat, factor=vectors * LANES)
    sub, lane = stage.split(rest, factor=lanes)
    stage.reorder(batch, outer, piece, inner, sub, lane)
    stage.vectorize(lane)
    for axis in (inner, sub):
        stage.unroll(axis)
    if is_root:
        piece = fuse_all(stage, [batch, outer, piece])
        stage.parallel(piece)
    accumulators = schedule[local]
    accumulators.compute_at(stage, piece)
    _, channel_tile, flat_tile = accumulators.op.axis
    sub_tile, lane_tile = accumulators.split(flat_tile, factor=lanes)
    accumulators.reorder(*accumulators.op.reduce_axis, channel_tile, sub_tile, lane_tile)
    accumulators.vectorize(lane_tile)
    for axis in (channel_tile, sub_tile):
        accumulators.unroll(axis)
    _, row, column = accumulators.op.reduce_axis
    taps = static_extent(row) * static_extent(column)
    for axis in (row, column) if taps <= spelled else (column,):
        accumulators.unroll(axis)
