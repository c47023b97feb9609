"""What convolutions by transforms of tiles share: channels to the front and back, and a product for each point.

In: images (batch, channels, rows, columns) with padding, points of tiles. Out: images with channels last, filled up
with zeros to vectors of channels, and back; products of points. Invariant: the products are the iterations of one
window, so a scheduler gives each thread some of them. Users: `winograd.py`, `fourier.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.compute.functions.stages.products import Tile, multiply_block
from armillary.compute.functions.stages.stage import LANES, Body, Stage
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import BufferVar

TILE = Tile(4, LANES)
ZERO = T.const(0.0, "float32")
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
        out[T.add(first, T.add(T.mul(x, n["whole"]), T.add(n["channels"], channel)))] = ZERO


def _permute_output(body: Body, line: Expr) -> None:
    _turn(body, False, line)


def within(at: Expr, extent: Expr) -> Expr:
    """A place, or the nearest one inside."""
    return T.maximum(T.const(0), T.minimum(at, T.sub(extent, T.const(1))))


def vectors(values: BufferVar, first: Expr, step: int = 1) -> Callable[[int], Expr]:
    """Vectors in registers by number, from one on, each `step` vectors behind the last."""
    return lambda k: values[first + k * step * LANES]


def store_vector(body: Body, values: BufferVar, first: int, place: Expr) -> None:
    """Write a vector of registers."""
    with body.lanes() as lane:
        body.tensors["out"][T.add(place, lane)] = values[lane + first]


def store_pixel(body: Body, values: BufferVar, first: int, at: tuple[Expr, Expr, Expr], step: Expr) -> None:
    """Write a vector of channels with biases, clamped, where batch, y and x of `at` are inside the image."""
    n, (batch, y, x) = body.numbers, at
    is_inside = T.logical_and(T.less(y, n["rows"]), T.less(x, n["columns"]))
    pixel = T.add(T.mul(T.add(T.mul(batch, n["rows"]), y), n["columns"]), x)
    with body.builder.if_scope(is_inside), body.lanes() as lane:
        value = values[lane + first] + body.tensors["biases"][step * LANES + lane]
        place = T.add(T.mul(pixel, n["whole"]), step * LANES + lane)
        body.tensors["out"][place] = T.maximum(n["low"], T.minimum(n["high"], value))


def _batched_gemm(body: Body, product: Expr) -> None:
    """Iteration n: the product of point n, block by block."""
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


_LINES = ("rows", "columns", "channels", "whole", "offset", "plane", "pitch")
LINES_OF_TILES = ("rows", "columns", "tile_rows", "tile_columns", "whole")
PERMUTE_INPUT = Stage("permute_input", ("image", "out"), _LINES, _permute_input)
PERMUTE_OUTPUT = Stage("permute_output", ("image", "out"), _LINES, _permute_output)
BATCHED_GEMM = Stage("batched_gemm", ("a", "b", "out"), ("whole_tiles", "whole", "whole_outputs"), _batched_gemm)
STAGES = (PERMUTE_INPUT, BATCHED_GEMM, PERMUTE_OUTPUT)
