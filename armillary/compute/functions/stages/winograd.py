"""Winograd's F(2x2, 3x3) and F(4x4, 3x3) in stages: transforms of weights (once), of input and of output.

In: images with channels last, filled up with zeros to vectors of channels (`tiles.py`). Out: the same of the output.
Invariant: a tile of 2x2 outputs costs 16 products instead of 36, one of 4x4 36 instead of 144. After the text,
"NEWinogradLayer"; which tile: as in Arm's library 20.08. Matrices: `backends/winograd.py`.
"""

from __future__ import annotations

from armillary.backends.winograd import KERNEL, matrices, row_sums
from armillary.base.aliases import Array
from armillary.base.once import once
from armillary.compute.functions.stages.stage import LANES, Body, Stage
from armillary.compute.functions.stages.tiles import LINES_OF_TILES, ZERO, store_pixel, store_vector, vectors, within
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import BufferVar

TILES = (2, 4)  # sides of a tile of outputs
_LARGEST_SMALL = 4  # side of an image that takes the small tile


def tile_of(size: tuple[int, int]) -> int:
    """The side of a tile for an image of this size."""
    return TILES[min(size) > _LARGEST_SMALL]


def side_of(tile: int) -> int:
    """The side of a tile of the input; its square is the number of products."""
    return tile + KERNEL - 1


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
        out[place] = T.select(is_there, value, ZERO)


def _combined(body: Body, matrix: Array, values: BufferVar) -> BufferVar:
    """matrix * values * matrix^T of a square of vectors in registers."""
    size, taps = matrix.shape
    half = body.registers(size * taps * LANES, "half")
    for k in range(taps):
        for i in range(size):
            with body.lanes() as lane:
                sums = row_sums(matrix, vectors(values, lane + k * LANES, taps))
                half[lane + (i * taps + k) * LANES] = sums[i]
    whole = body.registers(size * size * LANES, "whole")
    for i in range(size):
        for j in range(size):
            with body.lanes() as lane:
                sums = row_sums(matrix, vectors(half, lane + i * taps * LANES))
                whole[lane + (i * size + j) * LANES] = sums[j]
    return whole


@once
def transform_weights(tile: int) -> Stage:
    """Iteration n: sixteen outputs of all channels, as the products read them."""

    def emit(body: Body, panel: Expr) -> None:
        weights, n, panels = body.tensors["weights"], body.numbers, T.floordiv(body.numbers["whole_outputs"], LANES)
        with body.builder.for_range(0, n["whole_channels"], name="channel") as channel:
            taps = body.registers(KERNEL * KERNEL * LANES, "taps")
            for tap in range(KERNEL * KERNEL):
                row = T.mul(T.add(T.mul(T.const(tap), n["whole_channels"]), channel), n["whole_outputs"])
                with body.lanes() as lane:
                    taps[lane + tap * LANES] = weights[T.add(row, panel * LANES + lane)]
            combined = _combined(body, matrices(tile).weight, taps)
            for at in range(side_of(tile) ** 2):
                place = T.mul(T.add(T.mul(T.const(at), panels), panel), n["whole_channels"])
                store_vector(body, combined, at * LANES, T.mul(T.add(place, channel), T.const(LANES)))

    sizes = ("whole_channels", "whole_outputs")
    return Stage(f"winograd_transform_weights_{tile}x{tile}", ("weights", "out"), sizes, emit)


@once
def transform_input(tile: int) -> Stage:
    """Iteration n: a row of tiles; what of a tile lies beside the image is zeros."""
    side = side_of(tile)

    def emit(body: Body, line: Expr) -> None:
        n = body.numbers
        top = T.sub(T.mul(T.floormod(line, n["tile_rows"]), T.const(tile)), n["top"])
        with body.builder.for_range(0, n["tile_columns"], name="tile_x") as tile_x:
            left = T.sub(T.mul(tile_x, T.const(tile)), n["left"])
            corner = ((top, n["rows"]), (left, n["columns"]))
            ends_inside = [T.less_equal(T.add(at, T.const(side)), extent) for at, extent in corner]
            is_inside = T.all_of(*(T.less_equal(T.const(0), at) for at, _ in corner), *ends_inside)
            with body.builder.if_scope(is_inside):
                tile_at(body, line, tile_x, (top, left), True)
            with body.builder.if_scope(T.logical_not(is_inside)):
                tile_at(body, line, tile_x, (top, left), False)

    def tile_at(body: Body, line: Expr, tile_x: Expr, corner: tuple[Expr, Expr], is_inside: bool) -> None:
        image, n = body.tensors["image"], body.numbers
        batch, spot = T.floordiv(line, n["tile_rows"]), T.add(T.mul(line, n["tile_columns"]), tile_x)
        with body.builder.for_range(0, T.floordiv(n["whole"], T.const(LANES)), name="step") as step:
            values = body.registers(side * side * LANES, "values")
            for i, j in ((i, j) for i in range(side) for j in range(side)):
                y, x = T.add(corner[0], T.const(i)), T.add(corner[1], T.const(j))
                near_y, near_x = (y, x) if is_inside else (within(y, n["rows"]), within(x, n["columns"]))
                pixel = T.add(T.mul(T.add(T.mul(batch, n["rows"]), near_y), n["columns"]), near_x)
                is_there = T.logical_and(T.equal(near_y, y), T.equal(near_x, x))
                with body.lanes() as lane:
                    value = image[T.add(T.mul(pixel, n["whole"]), step * LANES + lane)]
                    values[lane + (i * side + j) * LANES] = value if is_inside else T.select(is_there, value, ZERO)
            combined = _combined(body, matrices(tile).data, values)
            for at in range(side * side):
                row = T.mul(T.add(T.mul(T.const(at), n["whole_tiles"]), spot), n["whole"])
                store_vector(body, combined, at * LANES, T.add(row, step * LANES))

    sizes = (*LINES_OF_TILES, "top", "left", "whole_tiles")
    return Stage(f"winograd_transform_input_{tile}x{tile}", ("image", "out"), sizes, emit)


@once
def transform_output(tile: int) -> Stage:
    """Iteration n: a row of tiles; what of the last ones lies beyond the image is not written."""
    products = side_of(tile) ** 2

    def emit(body: Body, line: Expr) -> None:
        product, n, loop = body.tensors["product"], body.numbers, body.builder.for_range
        batch, tile_y = T.floordiv(line, n["tile_rows"]), T.floormod(line, n["tile_rows"])
        steps = T.floordiv(n["whole"], T.const(LANES))
        with loop(0, n["tile_columns"], name="tile_x") as tile_x, loop(0, steps, name="step") as step:
            values = body.registers(products * LANES, "values")
            spot = T.add(T.mul(line, n["tile_columns"]), tile_x)
            for at in range(products):
                row = T.mul(T.add(T.mul(T.const(at), n["whole_tiles"]), spot), n["whole"])
                with body.lanes() as lane:
                    values[lane + at * LANES] = product[T.add(row, step * LANES + lane)]
            combined = _combined(body, matrices(tile).output, values)
            for at in range(tile * tile):
                y = T.add(T.mul(tile_y, T.const(tile)), T.const(at // tile))
                x = T.add(T.mul(tile_x, T.const(tile)), T.const(at % tile))
                store_pixel(body, combined, at * LANES, (batch, y, x), step)

    sizes, name = (*LINES_OF_TILES, "whole_tiles"), f"winograd_transform_output_{tile}x{tile}"
    return Stage(name, ("product", "biases", "out"), sizes, emit, ("low", "high"))


PERMUTE_WEIGHTS = Stage(
    "permute_weights",
    ("weights", "out"),
    ("channels", "outputs", "whole_channels", "whole_outputs"),
    _permute_weights,
)
STAGES = (
    PERMUTE_WEIGHTS,
    *(make(tile) for tile in TILES for make in (transform_weights, transform_input, transform_output)),
)
