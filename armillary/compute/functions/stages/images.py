"""Images in stages: a border around them, convolutions where they lie, images as matrices and back.

In: images (batch, channels, rows, columns) whose rows lie `pitch` and planes `plane` values apart, from `offset` on.
Out: images, or matrices with a row for each pixel. Invariant: behind `FILL_BORDER` nothing asks where an image ends:
what a kernel reads beside it is there, zeros. Products of the matrices: `products.py`.
"""

from __future__ import annotations

from armillary.base.once import once
from armillary.compute.functions.stages.stage import LANES, Body, Stage
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import BufferVar

_ZERO = T.const(0.0, "float32")
_KERNEL = ("kernel_x", "kernel_y", "stride_x", "stride_y", "dilation_x", "dilation_y")
_MOVES = ("channels", "padded_rows", "padded", *_KERNEL)
_PLACES = ("out_rows", "out_columns", "offset", "plane", "pitch")
OUTPUTS = 4  # output channels that a direct convolution computes at once


def _fill_border(body: Body, plane: Expr) -> None:
    image, out, n = body.tensors["image"], body.tensors["out"], body.numbers
    first, size = T.mul(plane, T.mul(n["padded_rows"], n["padded"])), T.mul(n["padded_rows"], n["padded"])

    def clear(at: Expr) -> None:
        out[T.add(first, at)] = _ZERO

    body.row(size, clear)
    with body.builder.for_range(0, n["rows"], name="y") as y:
        source = T.add(n["offset"], T.add(T.mul(plane, n["plane"]), T.mul(y, n["pitch"])))
        target = T.add(first, T.add(T.mul(T.add(y, n["top"]), n["padded"]), n["left"]))

        def copy(x: Expr) -> None:
            out[T.add(target, x)] = image[T.add(source, x)]

        body.row(n["columns"], copy)


def _im2col(body: Body, line: Expr) -> None:
    image, out, n = body.tensors["image"], body.tensors["out"], body.numbers
    batch, y = T.floordiv(line, n["out_rows"]), T.floormod(line, n["out_rows"])
    terms = T.mul(n["channels"], T.mul(n["kernel_y"], n["kernel_x"]))
    first, loop = T.mul(T.mul(line, n["out_columns"]), terms), body.builder.for_range
    with loop(0, n["channels"], name="channel") as channel, loop(0, n["kernel_y"], name="tap_y") as tap_y:
        plane = T.mul(T.add(T.mul(batch, n["channels"]), channel), n["padded_rows"])
        row = T.add(plane, T.add(T.mul(y, n["stride_y"]), T.mul(tap_y, n["dilation_y"])))
        term = T.mul(T.add(T.mul(channel, n["kernel_y"]), tap_y), n["kernel_x"])
        with loop(0, n["kernel_x"], name="tap_x") as tap_x:  # a column of the matrix: one tap of a row of pixels
            source = body.builder.let("source", T.add(T.mul(row, n["padded"]), T.mul(tap_x, n["dilation_x"])))
            target = body.builder.let("target", T.add(first, T.add(term, tap_x)))
            fours = T.floordiv(n["out_columns"], T.const(4))

            def copy(x: Expr) -> None:
                out[T.add(target, T.mul(x, terms))] = image[T.add(source, T.mul(x, n["stride_x"]))]

            with loop(0, fours, name="four") as four:
                for k in range(4):
                    copy(T.add(T.mul(four, T.const(4)), T.const(k)))
            with loop(0, T.sub(n["out_columns"], T.mul(fours, T.const(4))), name="x") as x:
                copy(T.add(T.mul(fours, T.const(4)), x))


def _reshape_weights(body: Body, term: Expr) -> None:
    weights, out, n = body.tensors["weights"], body.tensors["out"], body.numbers
    with body.builder.for_range(0, n["outputs"], name="output") as output:
        out[T.add(T.mul(term, n["outputs"]), output)] = weights[T.add(T.mul(output, n["terms"]), term)]


def _col2im(body: Body, line: Expr) -> None:
    product, biases, out, n = body.tensors["product"], body.tensors["biases"], body.tensors["out"], body.numbers
    batch, y = T.floordiv(line, n["out_rows"]), T.floormod(line, n["out_rows"])
    whole = T.mul(T.floordiv(n["outputs"], T.const(OUTPUTS)), T.const(OUTPUTS))

    def planes(first: Expr, count: int) -> None:  # a row of so many planes
        starts = []
        for k in range(count):
            plane = T.add(T.mul(batch, n["outputs"]), T.add(first, T.const(k)))
            place = T.add(n["offset"], T.add(T.mul(plane, n["plane"]), T.mul(y, n["pitch"])))
            starts.append(body.builder.let(f"start{k}", place))
        with body.builder.for_range(0, n["out_columns"], name="x") as x:
            at = T.add(T.mul(T.add(T.mul(line, n["out_columns"]), x), n["whole"]), first)
            for k, start in enumerate(starts):
                value = product[T.add(at, T.const(k))] + biases[T.add(first, T.const(k))]
                out[T.add(start, x)] = T.maximum(n["low"], T.minimum(n["high"], value))

    with body.builder.for_range(0, T.floordiv(n["outputs"], T.const(OUTPUTS)), name="block") as block:
        planes(T.mul(block, T.const(OUTPUTS)), OUTPUTS)
    with body.builder.for_range(0, T.sub(n["outputs"], whole), name="output") as output:
        planes(T.add(whole, output), 1)


@once
def direct(is_unit: bool, is_grouped: bool = False) -> Stage:
    """Four output planes: sixteen pixels of a row of each stay in registers over all taps; `is_unit`: a stride of 1.

    `is_grouped`: an output reads the channels of its group alone, one of a depthwise convolution.
    """

    def emit(body: Body, block: Expr) -> None:
        n, loop = body.numbers, body.builder.for_range
        blocks = T.floordiv(T.add(n["outputs"], T.const(OUTPUTS - 1)), T.const(OUTPUTS))
        batch, first = T.floordiv(block, blocks), T.mul(T.floormod(block, blocks), T.const(OUTPUTS))
        last = T.sub(n["outputs"], T.const(1))
        outputs = [T.minimum(T.add(first, T.const(k)), last) for k in range(OUTPUTS)]  # the last one again
        steps = T.floordiv(T.add(n["out_columns"], T.const(LANES - 1)), T.const(LANES))
        with loop(0, n["out_rows"], name="y") as y, loop(0, steps, name="step") as step:
            x0 = T.mul(step, T.const(LANES))
            sums = _direct_sums(body, batch, outputs, (y, x0), is_unit, is_grouped)
            for k, output in enumerate(outputs):
                plane = T.add(T.mul(batch, n["outputs"]), output)
                start = T.add(n["offset"], T.add(T.mul(plane, n["plane"]), T.add(T.mul(y, n["pitch"]), x0)))
                _store_step(body, sums, k * LANES, start, T.sub(n["out_columns"], x0))

    name = ("grouped" if is_grouped else "direct") + ("_convolution" if is_unit else "_convolution_strided")
    sizes = (*_MOVES, *_PLACES, "outputs", *(("group_channels", "group_outputs") if is_grouped else ()))
    return Stage(name, ("image", "weights", "biases", "out"), sizes, emit, ("low", "high"))


def _direct_sums(
    body: Body, batch: Expr, outputs: list[Expr], at: tuple[Expr, Expr], is_unit: bool, is_grouped: bool
) -> BufferVar:
    image, weights, biases = (body.tensors[name] for name in ("image", "weights", "biases"))
    n, loop, sums, (y, x0) = body.numbers, body.builder.for_range, body.registers(OUTPUTS * LANES), at
    for k, output in enumerate(outputs):
        with body.lanes() as lane:
            sums[lane + k * LANES] = biases[output]
    channels = n["group_channels"] if is_grouped else n["channels"]
    with loop(0, channels, name="channel") as channel, loop(0, n["kernel_y"], name="tap_y") as tap_y:
        down = T.add(T.mul(y, n["stride_y"]), T.mul(tap_y, n["dilation_y"]))
        with loop(0, n["kernel_x"], name="tap_x") as tap_x:
            across = T.add(T.mul(x0, n["stride_x"]), T.mul(tap_x, n["dilation_x"]))
            for k, output in enumerate(outputs):
                first = T.mul(T.floordiv(output, n["group_outputs"]), channels) if is_grouped else T.const(0)
                plane = T.add(T.mul(batch, n["channels"]), T.add(first, channel))
                start = T.add(T.mul(T.add(T.mul(plane, n["padded_rows"]), down), n["padded"]), across)
                filters = T.mul(T.add(T.mul(output, channels), channel), n["kernel_y"])
                weight = weights[T.add(T.mul(T.add(filters, tap_y), n["kernel_x"]), tap_x)]
                with body.lanes() as lane:
                    place, away = lane + k * LANES, lane if is_unit else T.mul(lane, n["stride_x"])
                    sums[place] = sums[place] + weight * image[T.add(start, away)]
    return sums


def _store_step(body: Body, sums: BufferVar, first: int, start: Expr, left: Expr) -> None:
    """Write a vector of registers, or as many of its values as a row has left."""
    out, n = body.tensors["out"], body.numbers
    with body.builder.if_scope(T.greater_equal(left, T.const(LANES))), body.lanes() as lane:
        out[T.add(start, lane)] = T.maximum(n["low"], T.minimum(n["high"], sums[lane + first]))
    with body.builder.else_scope():
        rest = body.registers(LANES, "rest")  # of its own: registers have no index that is computed
        with body.lanes() as lane:
            rest[lane] = T.maximum(n["low"], T.minimum(n["high"], sums[lane + first]))
        with body.builder.for_range(0, left, name="x") as x:
            out[T.add(start, x)] = rest[x]


FILL_BORDER = Stage(
    "fill_border_float32",
    ("image", "out"),
    ("offset", "plane", "pitch", "rows", "columns", "top", "left", "padded_rows", "padded"),
    _fill_border,
)
IM2COL = Stage("im2col", ("image", "out"), (*_MOVES, "out_rows", "out_columns"), _im2col)
RESHAPE_WEIGHTS = Stage("reshape_weights", ("weights", "out"), ("terms", "outputs"), _reshape_weights)
COL2IM = Stage("col2im", ("product", "biases", "out"), (*_PLACES, "outputs", "whole"), _col2im, ("low", "high"))
STAGES = (FILL_BORDER, IM2COL, RESHAPE_WEIGHTS, COL2IM, direct(True), direct(False))
