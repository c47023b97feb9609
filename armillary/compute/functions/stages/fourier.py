"""Convolutions by Fourier transforms of 16x16 tiles in stages: rows, then columns, there and back.

In: images with channels last, filled up with zeros to vectors of channels (`tiles.py`), kernels of up to 15x15. Out:
the same of the output: a tile gives (17 - rows) x (17 - columns) outputs of 384 products, whatever the kernel.
Invariant: outputs begin at a tile's first row and column, what wraps around falls on those that are not written.
Weights are placed in tiles and go the way of images. The mathematics: `backends/cpu/conv2d/fourier/operator.py`.
"""

from __future__ import annotations

from armillary.backends.fourier import FORMS, HALF, SIDE, Row, steps, twist, weighted_sum
from armillary.compute.functions.stages.stage import LANES, Body, Stage
from armillary.compute.functions.stages.tiles import LINES_OF_TILES, ZERO, store_pixel, store_vector, vectors, within
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import BufferVar

POINTS, PLACES = HALF * SIDE * FORMS, SIDE * SIDE  # of a tile: products, and numbers between rows and columns
LARGEST = SIDE - 1  # rows and columns of a kernel
_UNTWIST = twist(-1)
_ROWS = (twist(1), *steps(HALF, 1, HALF))
_COLUMNS, _COLUMNS_BACK = steps(SIDE, 1, SIDE), steps(SIDE, -1, SIDE)
_ROWS_BACK = (*steps(HALF, -1, HALF), tuple(_UNTWIST[2 * (x % HALF) + x // HALF] for x in range(SIDE)))


def _transformed(body: Body, transform: tuple[tuple[Row, ...], ...], values: BufferVar) -> BufferVar:
    """Vectors in registers through the steps of a transform."""
    for number, rows in enumerate(transform):
        result = body.registers(len(rows) * LANES, f"step{number}")
        for at, terms in enumerate(rows):
            with body.lanes() as lane:
                result[lane + at * LANES] = weighted_sum(terms, vectors(values, lane))
        values = result
    return values


def _place_weights(body: Body, channel: Expr) -> None:
    """A kernel to a tile of zeros, reversed, so that products of polynomials are sums over its taps."""
    weights, out, n, loop = body.tensors["weights"], body.tensors["out"], body.numbers, body.builder.for_range
    first = T.mul(channel, T.mul(T.const(PLACES), n["whole_outputs"]))

    def clear(at: Expr) -> None:
        out[T.add(first, at)] = ZERO

    body.row(T.mul(T.const(PLACES), n["whole_outputs"]), clear)
    is_there = T.less(channel, n["channels"])
    with body.builder.if_scope(is_there), loop(0, n["kernel_y"], name="y") as y, loop(0, n["kernel_x"], name="x") as x:
        place = T.add(T.mul(_reversed(y), T.const(SIDE)), _reversed(x))
        scale = T.const(1 / (SIDE * HALF), "float32")  # both transforms back divide by it; x^16 is -1 along a row
        scale = T.select(T.equal(x, T.const(0)), scale, T.sub(ZERO, scale))
        with loop(0, n["outputs"], name="output") as output:
            filters = T.mul(T.add(T.mul(output, n["channels"]), channel), n["kernel_y"])
            value = weights[T.add(T.mul(T.add(filters, y), n["kernel_x"]), x)]
            out[T.add(first, T.add(T.mul(place, n["whole_outputs"]), output))] = T.mul(value, scale)


def _reversed(at: Expr) -> Expr:
    return T.floormod(T.sub(T.const(SIDE), at), T.const(SIDE))


def _rows(body: Body, line: Expr) -> None:
    """Iteration n: a row of tiles, each row of one to eight complex numbers; beside the image are zeros."""
    image, n, loop = body.tensors["image"], body.numbers, body.builder.for_range
    batch, tile_y = T.floordiv(line, n["tile_rows"]), T.floormod(line, n["tile_rows"])
    whole_vectors = T.floordiv(n["whole"], T.const(LANES))
    with loop(0, n["tile_columns"], name="tile_x") as tile_x, loop(0, SIDE, name="row") as row:
        y, left = T.sub(T.add(T.mul(tile_y, n["tile_y"]), row), n["top"]), T.sub(T.mul(tile_x, n["tile_x"]), n["left"])
        near_y, tile = within(y, n["rows"]), T.add(T.mul(line, n["tile_columns"]), tile_x)
        with loop(0, whole_vectors, name="step") as step:
            values = body.registers(SIDE * LANES, "values")
            for column in range(SIDE):  # element j + 8 is the imaginary part of element j
                x = T.add(left, T.const(column))
                near_x, at = within(x, n["columns"]), (2 * (column % HALF) + column // HALF) * LANES
                pixel = T.add(T.mul(T.add(T.mul(batch, n["rows"]), near_y), n["columns"]), near_x)
                is_there = T.logical_and(T.equal(near_y, y), T.equal(near_x, x))
                with body.lanes() as lane:
                    value = image[T.add(T.mul(pixel, n["whole"]), step * LANES + lane)]
                    values[lane + at] = T.select(is_there, value, ZERO)
            values = _transformed(body, _ROWS, values)
            first = T.mul(T.add(T.mul(tile, T.const(SIDE)), row), T.const(SIDE))
            for k in range(SIDE):
                place = T.add(T.mul(T.add(first, T.const(k)), n["whole"]), step * LANES)
                store_vector(body, values, k * LANES, place)


def _columns(body: Body, line: Expr, are_weights: bool) -> None:
    """Iteration n: a row of tiles, each column of one to its points; numbers say where point, tile and vector lie."""
    half, n, loop = body.tensors["half"], body.numbers, body.builder.for_range
    with loop(0, n["tile_columns"], name="tile_x") as tile_x, loop(0, HALF, name="v") as v:
        tile = T.add(T.mul(line, n["tile_columns"]), tile_x)
        with loop(0, T.floordiv(n["whole"], T.const(LANES)), name="step") as step:
            values = _read_column(body, half, (tile, v, step))
            values = _transformed(body, _COLUMNS, values)
            forms = body.registers(FORMS * LANES, "forms")
            for u, form in ((u, form) for u in range(SIDE) for form in range(FORMS)):
                with body.lanes() as lane:
                    re, im = (values[lane + (2 * u + part) * LANES] for part in (0, 1))
                    kinds = (re, T.sub(im, re), T.add(re, im)) if are_weights else (T.add(re, im), re, im)
                    forms[lane + form * LANES] = kinds[form]
                point = T.add(T.mul(v, T.const(SIDE * FORMS)), T.const(u * FORMS + form))
                place = T.add(T.mul(tile, n["tile_step"]), T.mul(step, n["vector_step"]))
                store_vector(body, forms, form * LANES, T.add(T.mul(point, n["point_step"]), place))


def _read_column(body: Body, half: BufferVar, at: tuple[Expr, Expr, Expr]) -> BufferVar:
    """Complex number v of each row of a tile."""
    values, (tile, v, step), whole = body.registers(2 * SIDE * LANES, "values"), at, body.numbers["whole"]
    for k in range(2 * SIDE):
        number = T.add(T.mul(v, T.const(2)), T.const(k // 2 * SIDE + k % 2))
        place = T.mul(T.add(T.mul(tile, T.const(PLACES)), number), whole)
        with body.lanes() as lane:
            values[lane + k * LANES] = half[T.add(place, step * LANES + lane)]
    return values


def _columns_back(body: Body, line: Expr) -> None:
    """Iteration n: a row of tiles, products of each column's points to complex numbers of its rows."""
    product, n, loop = body.tensors["product"], body.numbers, body.builder.for_range
    with loop(0, n["tile_columns"], name="tile_x") as tile_x, loop(0, HALF, name="v") as v:
        tile = T.add(T.mul(line, n["tile_columns"]), tile_x)
        with loop(0, T.floordiv(n["whole"], T.const(LANES)), name="step") as step:
            values = body.registers(2 * SIDE * LANES, "values")
            for u in range(SIDE):
                points = [T.add(T.mul(v, T.const(SIDE * FORMS)), T.const(u * FORMS + form)) for form in range(FORMS)]
                rows = [T.mul(T.add(T.mul(point, n["whole_tiles"]), tile), n["whole"]) for point in points]
                for part in (0, 1):  # C. F. Gauss: three products for a complex one
                    with body.lanes() as lane:
                        first, second, third = (product[T.add(row, step * LANES + lane)] for row in rows)
                        joined = T.add(first, second) if part else T.sub(first, third)
                        values[lane + (2 * u + part) * LANES] = joined
            values = _transformed(body, _COLUMNS_BACK, values)
            for k in range(2 * SIDE):
                number = T.add(T.mul(v, T.const(2)), T.const(k // 2 * SIDE + k % 2))
                place = T.mul(T.add(T.mul(tile, T.const(PLACES)), number), n["whole"])
                store_vector(body, values, k * LANES, T.add(place, step * LANES))


def _rows_back(body: Body, line: Expr) -> None:
    """Iteration n: a row of tiles, complex numbers of each row to outputs, as far as the image goes."""
    half, n, loop = body.tensors["half"], body.numbers, body.builder.for_range
    batch, tile_y = T.floordiv(line, n["tile_rows"]), T.floormod(line, n["tile_rows"])
    whole_vectors = T.floordiv(n["whole"], T.const(LANES))
    with loop(0, n["tile_columns"], name="tile_x") as tile_x, loop(0, n["tile_y"], name="row") as row:
        y, tile = T.add(T.mul(tile_y, n["tile_y"]), row), T.add(T.mul(line, n["tile_columns"]), tile_x)
        first = T.mul(T.add(T.mul(tile, T.const(SIDE)), row), T.const(SIDE))
        with loop(0, whole_vectors, name="step") as step:
            values = body.registers(SIDE * LANES, "values")
            for k in range(SIDE):
                with body.lanes() as lane:
                    place = T.add(T.mul(T.add(first, T.const(k)), n["whole"]), step * LANES + lane)
                    values[lane + k * LANES] = half[place]
            values = _transformed(body, _ROWS_BACK, values)
            for column in range(SIDE):
                x = T.add(T.mul(tile_x, n["tile_x"]), T.const(column))
                with body.builder.if_scope(T.less(T.const(column), n["tile_x"])):
                    store_pixel(body, values, column * LANES, (batch, y, x), step)


_TILE = (*LINES_OF_TILES, "tile_y", "tile_x")
_STEPS = ("tile_columns", "whole", "point_step", "tile_step", "vector_step")
PLACE_WEIGHTS = Stage(
    "fourier_place_weights",
    ("weights", "out"),
    ("channels", "outputs", "whole_outputs", "kernel_x", "kernel_y"),
    _place_weights,
)
ROWS = Stage("fourier_rows", ("image", "out"), (*_TILE, "top", "left"), _rows)
COLUMNS = Stage("fourier_columns", ("half", "out"), _STEPS, lambda body, line: _columns(body, line, False))
COLUMNS_OF_WEIGHTS = Stage(
    "fourier_columns_of_weights", ("half", "out"), _STEPS, lambda body, line: _columns(body, line, True)
)
COLUMNS_BACK = Stage(
    "fourier_columns_back", ("product", "out"), ("tile_columns", "whole", "whole_tiles"), _columns_back
)
ROWS_BACK = Stage("fourier_rows_back", ("half", "biases", "out"), _TILE, _rows_back, ("low", "high"))
STAGES = (PLACE_WEIGHTS, ROWS, COLUMNS, COLUMNS_OF_WEIGHTS, COLUMNS_BACK, ROWS_BACK)
