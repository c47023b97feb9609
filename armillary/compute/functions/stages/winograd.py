"""Winograd's F(2x2, 3x3) in stages: transforms of weights (once), of input and output, and 16 products between them.

In: images with channels last, filled up with zeros to vectors of channels, as the permutations here write them. Out:
the same of the output. Invariant: a tile of 2x2 outputs costs 16 products instead of 36; the sixteen products are the
iterations of one window, so a scheduler gives each thread some of them. After the text, "NEWinogradLayer".
"""

from __future__ import annotations

from armillary.compute.functions.stages.products import Tile, multiply_block
from armillary.compute.functions.stages.stage import LANES, Body, Stage
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import BufferVar

OUTPUT_TILE, KERNEL = 2, 3
SIDE = OUTPUT_TILE + KERNEL - 1  # of a tile of the input
PRODUCTS = SIDE * SIDE
TILE = Tile(4, LANES)
_ZERO = T.const(0.0, "float32")
_FOUR = 4


def _turn(body: Body, from_image: bool, line: Expr) -> None:
    """A line of an image to one with channels last, or back: four channels of four columns at once, then the rest."""
    image, out, n, loop = body.tensors["image"], body.tensors["out"], body.numbers, body.builder.for_range
    batch, y = T.floordiv(line, n["rows"]), T.floormod(line, n["rows"])
    first = T.mul(T.mul(line, n["columns"]), n["whole"])
    begin = T.add(n["offset"], T.mul(y, n["pitch"]))
    start = T.add(begin, T.mul(T.mul(batch, n["channels"]), n["plane"]))

    def plane(channel: Expr, x: Expr) -> Expr:
        return T.add(start, T.add(T.mul(channel, n["plane"]), x))

    def last(channel: Expr, x: Expr) -> Expr:
        return T.add(first, T.add(T.mul(x, n["whole"]), channel))

    def four(value: Expr) -> Expr:
        return T.mul(T.floordiv(value, T.const(_FOUR)), T.const(_FOUR))

    read, write = (plane, last) if from_image else (last, plane)
    channels, columns = n["channels"], n["columns"]
    steps = [T.floordiv(extent, T.const(_FOUR)) for extent in (channels, columns)]
    with loop(0, steps[0], name="channels") as c, loop(0, steps[1], name="columns") as x:
        block = body.registers(_FOUR * _FOUR, "block")
        for k in range(_FOUR):
            with body.lanes(_FOUR) as lane:
                at = (c * _FOUR + k, x * _FOUR + lane) if from_image else (c * _FOUR + lane, x * _FOUR + k)
                block[lane + k * _FOUR] = image[read(*at)]
        for k in range(_FOUR):
            with body.lanes(_FOUR) as lane:
                at = (c * _FOUR + lane, x * _FOUR + k) if from_image else (c * _FOUR + k, x * _FOUR + lane)
                out[write(*at)] = block[lane * _FOUR + k]
    with loop(0, T.mul(steps[0], T.const(_FOUR)), name="channel") as c, loop(four(columns), columns, name="x") as x:
        out[write(c, x)] = image[read(c, x)]
    with loop(four(channels), channels, name="channel") as c, loop(0, columns, name="x") as x:
        out[write(c, x)] = image[read(c, x)]


def _permute_input(body: Body, line: Expr) -> None:
    _turn(body, True, line)
    out, n, loop = body.tensors["out"], body.numbers, body.builder.for_range
    first, rest = T.mul(T.mul(line, n["columns"]), n["whole"]), T.sub(n["whole"], n["channels"])
    with loop(0, n["columns"], name="x") as x, loop(0, rest, name="channel") as channel:
        out[T.add(first, T.add(T.mul(x, n["whole"]), T.add(n["channels"], channel)))] = _ZERO


def _permute_output(body: Body, line: Expr) -> None:
    _turn(body, False, line)


def _permute_weights(body: Body, channel: Expr) -> None:
    """(output, channel, 3, 3) to (3, 3, channel, output), zeros where there is no such output or channel."""
    weights, out, n, loop = body.tensors["weights"], body.tensors["out"], body.numbers, body.builder.for_range
    inside = T.less(channel, n["channels"])
    with loop(0, KERNEL * KERNEL, name="tap") as tap, loop(0, n["whole_outputs"], name="output") as output:
        one = T.minimum(output, T.sub(n["outputs"], T.const(1)))
        near = T.minimum(channel, T.sub(n["channels"], T.const(1)))
        value = weights[T.add(T.mul(T.add(T.mul(one, n["channels"]), near), T.const(KERNEL * KERNEL)), tap)]
        is_there = T.logical_and(inside, T.less(output, n["outputs"]))
        place = T.add(T.mul(T.add(T.mul(tap, n["whole_channels"]), channel), n["whole_outputs"]), output)
        out[place] = T.select(is_there, value, _ZERO)


def _combined(body: Body, size: int, taps: int, rows: tuple[tuple[float, ...], ...], values: BufferVar) -> BufferVar:
    """rows * values * rows^T of `taps` x `taps` vectors in registers."""
    half = body.registers(size * taps * LANES, "half")
    for at, (i, k) in enumerate((i, k) for i in range(size) for k in range(taps)):
        with body.lanes() as lane:
            terms = [(rows[i][m], values[lane + (m * taps + k) * LANES]) for m in range(taps)]
            half[lane + at * LANES] = _sum(terms)
    whole = body.registers(size * size * LANES, "whole")
    for at, (i, j) in enumerate((i, j) for i in range(size) for j in range(size)):
        with body.lanes() as lane:
            whole[lane + at * LANES] = _sum([(rows[j][k], half[lane + (i * taps + k) * LANES]) for k in range(taps)])
    return whole


def _sum(terms: list[tuple[float, Expr]]) -> Expr:
    """The sum of terms with factors; those of 1 and -1 are added and subtracted."""
    present = sorted(((factor, value) for factor, value in terms if factor), key=lambda term: term[0] < 0)
    factor, total = present[0]
    total = total if factor == 1 else T.mul(total, T.const(factor, "float32"))
    for factor, value in present[1:]:
        scaled = value if abs(factor) == 1 else T.mul(value, T.const(abs(factor), "float32"))
        total = T.add(total, scaled) if factor > 0 else T.sub(total, scaled)
    return total


_OF_WEIGHTS = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
_OF_INPUT = ((1.0, 0.0, -1.0, 0.0), (0.0, 1.0, 1.0, 0.0), (0.0, -1.0, 1.0, 0.0), (0.0, 1.0, 0.0, -1.0))
_OF_OUTPUT = ((1.0, 1.0, 1.0, 0.0), (0.0, 1.0, -1.0, -1.0))


def _transform_weights(body: Body, panel: Expr) -> None:
    """Iteration n: sixteen outputs of all channels, as the products read them."""
    weights, out, n = body.tensors["weights"], body.tensors["out"], body.numbers
    with body.builder.for_range(0, n["whole_channels"], name="channel") as channel:
        taps = body.registers(KERNEL * KERNEL * LANES, "taps")
        for tap in range(KERNEL * KERNEL):
            row = T.mul(T.add(T.mul(T.const(tap), n["whole_channels"]), channel), n["whole_outputs"])
            with body.lanes() as lane:
                taps[lane + tap * LANES] = weights[T.add(row, panel * LANES + lane)]
        combined, panels = (
            _combined(body, SIDE, KERNEL, _OF_WEIGHTS, taps),
            T.floordiv(n["whole_outputs"], T.const(LANES)),
        )
        for at in range(PRODUCTS):
            place = T.mul(T.add(T.mul(T.const(at), panels), panel), n["whole_channels"])
            with body.lanes() as lane:
                out[T.add(T.mul(T.add(place, channel), T.const(LANES)), lane)] = combined[lane + at * LANES]


def _transform_input(body: Body, line: Expr) -> None:
    """Iteration n: a row of tiles; what of a tile lies beside the image is zeros."""
    n, loop = body.numbers, body.builder.for_range
    tile_y = T.floormod(line, n["tile_rows"])
    top = T.sub(T.mul(tile_y, T.const(OUTPUT_TILE)), n["top"])
    with loop(0, n["tile_columns"], name="tile_x") as tile_x:
        left = T.sub(T.mul(tile_x, T.const(OUTPUT_TILE)), n["left"])
        ends = [T.add(at, T.const(SIDE)) for at in (top, left)]
        starts_inside = [T.less_equal(T.const(0), at) for at in (top, left)]
        ends_inside = [T.less_equal(at, n[extent]) for at, extent in zip(ends, ("rows", "columns"), strict=True)]
        is_inside = T.all_of(*starts_inside, *ends_inside)
        with body.builder.if_scope(is_inside):
            _transform_tile(body, line, tile_x, (top, left), True)
        with body.builder.if_scope(T.logical_not(is_inside)):
            _transform_tile(body, line, tile_x, (top, left), False)


def _transform_tile(body: Body, line: Expr, tile_x: Expr, corner: tuple[Expr, Expr], is_inside: bool) -> None:
    image, out, n = body.tensors["image"], body.tensors["out"], body.numbers
    batch, tile = T.floordiv(line, n["tile_rows"]), T.add(T.mul(line, n["tile_columns"]), tile_x)
    with body.builder.for_range(0, T.floordiv(n["whole"], T.const(LANES)), name="step") as step:
        values = body.registers(PRODUCTS * LANES, "values")
        for i, j in ((i, j) for i in range(SIDE) for j in range(SIDE)):
            y, x = T.add(corner[0], T.const(i)), T.add(corner[1], T.const(j))
            near_y, near_x = (y, x) if is_inside else (_within(y, n["rows"]), _within(x, n["columns"]))
            pixel = T.add(T.mul(T.add(T.mul(batch, n["rows"]), near_y), n["columns"]), near_x)
            is_there = T.logical_and(T.equal(near_y, y), T.equal(near_x, x))
            with body.lanes() as lane:
                value = image[T.add(T.mul(pixel, n["whole"]), step * LANES + lane)]
                values[lane + (i * SIDE + j) * LANES] = value if is_inside else T.select(is_there, value, _ZERO)
        combined = _combined(body, SIDE, SIDE, _OF_INPUT, values)
        for at in range(PRODUCTS):
            row = T.mul(T.add(T.mul(T.const(at), n["whole_tiles"]), tile), n["whole"])
            with body.lanes() as lane:
                out[T.add(row, step * LANES + lane)] = combined[lane + at * LANES]


def _within(at: Expr, extent: Expr) -> Expr:
    """A place, or the nearest one inside."""
    return T.maximum(T.const(0), T.minimum(at, T.sub(extent, T.const(1))))


def _batched_gemm(body: Body, product: Expr) -> None:
    """Iteration n: product n of sixteen, block by block."""
    out, n, loop = body.tensors["out"], body.numbers, body.builder.for_range
    tiles, terms, columns = n["whole_tiles"], n["whole"], n["whole_outputs"]
    panels = T.floordiv(columns, T.const(LANES))
    with loop(0, panels, name="panel") as panel, loop(0, T.floordiv(tiles, T.const(TILE.rows)), name="block") as block:
        row = T.add(T.mul(product, tiles), T.mul(block, T.const(TILE.rows)))
        right = T.mul(T.mul(T.add(T.mul(product, panels), panel), terms), T.const(LANES))
        sums = multiply_block(body, TILE, terms, (T.mul(row, terms), terms, T.const(1)), right)
        for k in range(TILE.rows):
            with body.lanes() as lane:
                place = T.add(T.mul(T.add(row, T.const(k)), columns), panel * LANES + lane)
                out[place] = sums[lane + k * LANES]


def _transform_output(body: Body, line: Expr) -> None:
    """Iteration n: a row of tiles; what of the last ones lies beyond the image is not written."""
    product, biases, out = body.tensors["product"], body.tensors["biases"], body.tensors["out"]
    n, loop = body.numbers, body.builder.for_range
    batch, tile_y = T.floordiv(line, n["tile_rows"]), T.floormod(line, n["tile_rows"])
    steps = T.floordiv(n["whole"], T.const(LANES))
    with loop(0, n["tile_columns"], name="tile_x") as tile_x, loop(0, steps, name="step") as step:
        values, tile = body.registers(PRODUCTS * LANES, "values"), T.add(T.mul(line, n["tile_columns"]), tile_x)
        for at in range(PRODUCTS):
            row = T.mul(T.add(T.mul(T.const(at), n["whole_tiles"]), tile), n["whole"])
            with body.lanes() as lane:
                values[lane + at * LANES] = product[T.add(row, step * LANES + lane)]
        combined = _combined(body, OUTPUT_TILE, SIDE, _OF_OUTPUT, values)
        for at in range(OUTPUT_TILE * OUTPUT_TILE):
            y = T.add(T.mul(tile_y, T.const(OUTPUT_TILE)), T.const(at // OUTPUT_TILE))
            x = T.add(T.mul(tile_x, T.const(OUTPUT_TILE)), T.const(at % OUTPUT_TILE))
            is_inside = T.logical_and(T.less(y, n["rows"]), T.less(x, n["columns"]))
            pixel = T.add(T.mul(T.add(T.mul(batch, n["rows"]), y), n["columns"]), x)
            with body.builder.if_scope(is_inside), body.lanes() as lane:
                value = combined[lane + at * LANES] + biases[step * LANES + lane]
                place = T.add(T.mul(pixel, n["whole"]), step * LANES + lane)
                out[place] = T.maximum(n["low"], T.minimum(n["high"], value))


_LINES = ("rows", "columns", "channels", "whole", "offset", "plane", "pitch")
_TILES = ("tile_rows", "tile_columns", "whole_tiles", "whole")
_WHOLE = ("whole_channels", "whole_outputs")
PERMUTE_INPUT = Stage("permute_input", ("image", "out"), _LINES, _permute_input)
PERMUTE_OUTPUT = Stage("permute_output", ("image", "out"), _LINES, _permute_output)
PERMUTE_WEIGHTS = Stage("permute_weights", ("weights", "out"), ("channels", "outputs", *_WHOLE), _permute_weights)
TRANSFORM_WEIGHTS = Stage("winograd_transform_weights", ("weights", "out"), _WHOLE, _transform_weights)
TRANSFORM_INPUT = Stage(
    "winograd_transform_input", ("image", "out"), ("rows", "columns", "top", "left", *_TILES), _transform_input
)
BATCHED_GEMM = Stage(
    "winograd_batched_gemm", ("a", "b", "out"), ("whole_tiles", "whole", "whole_outputs"), _batched_gemm
)
TRANSFORM_OUTPUT = Stage(
    "winograd_transform_output",
    ("product", "biases", "out"),
    ("rows", "columns", *_TILES),
    _transform_output,
    ("low", "high"),
)
STAGES = (
    PERMUTE_INPUT,
    PERMUTE_WEIGHTS,
    TRANSFORM_WEIGHTS,
    TRANSFORM_INPUT,
    BATCHED_GEMM,
    TRANSFORM_OUTPUT,
    PERMUTE_OUTPUT,
)
