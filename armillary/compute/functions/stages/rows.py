"""Layers that go row by row, in stages: softmax, activations, pooling, normalisations.

In: tensors of float32 whose rows lie `pitch` and planes `plane` values apart, from `offset` on, input and output each
by itself. Out: the same. Invariant: an iteration writes one row of the output, so any split gives the same bytes.
Users: programs without Python (`ahead/`).
"""

from __future__ import annotations

from collections.abc import Callable

from armillary import tir
from armillary.base.once import once
from armillary.compute.functions.stages.stage import LANES, Body, Stage
from armillary.tir import build as T
from armillary.tir.expr import Expr

_PLACES = ("in_offset", "in_plane", "in_pitch", "out_offset", "out_plane", "out_pitch", "out_rows", "out_columns")
_LOWEST = T.const(-3.4028234663852886e38, "float32")


def _start(body: Body, side: str, plane: Expr, row: Expr) -> Expr:
    n = body.numbers
    return T.add(n[f"{side}_offset"], T.add(T.mul(plane, n[f"{side}_plane"]), T.mul(row, n[f"{side}_pitch"])))


def _softmax(body: Body, line: Expr) -> None:
    x, out, n, loop = body.tensors["x"], body.tensors["out"], body.numbers, body.builder.for_range
    plane, row = T.floordiv(line, n["out_rows"]), T.floormod(line, n["out_rows"])
    source, target = _start(body, "in", plane, row), _start(body, "out", plane, row)
    state = body.registers(2, "state")  # the largest value, the sum
    state[0], state[1] = _LOWEST, T.const(0.0, "float32")
    with loop(0, n["out_columns"], name="x") as at:
        state[0] = T.maximum(state[0], x[T.add(source, at)])
    with loop(0, n["out_columns"], name="x") as at:
        power = tir.exp(T.mul(T.sub(x[T.add(source, at)], state[0]), n["beta"]))
        out[T.add(target, at)] = power
        state[1] = T.add(state[1], out[T.add(target, at)])

    def divide(at: Expr) -> None:
        out[T.add(target, at)] = T.div(out[T.add(target, at)], state[1])

    body.row(n["out_columns"], divide)


_Function = Callable[[Expr, Expr, Expr], Expr]
_ONE, _ZERO = T.const(1.0, "float32"), T.const(0.0, "float32")
ACTIVATIONS: dict[str, _Function] = {
    "RELU": lambda x, a, b: T.maximum(_ZERO, x),
    "BOUNDED_RELU": lambda x, a, b: T.minimum(a, T.maximum(_ZERO, x)),
    "LU_BOUNDED_RELU": lambda x, a, b: T.minimum(a, T.maximum(b, x)),
    "LEAKY_RELU": lambda x, a, b: T.select(T.greater(x, _ZERO), x, T.mul(a, x)),
    "LOGISTIC": lambda x, a, b: T.div(_ONE, T.add(_ONE, tir.exp(T.sub(_ZERO, x)))),
    "TANH": lambda x, a, b: T.mul(a, tir.tanh(T.mul(b, x))),
    "SOFT_RELU": lambda x, a, b: tir.log(T.add(_ONE, tir.exp(x))),
    "ABS": lambda x, a, b: T.maximum(x, T.sub(_ZERO, x)),
    "SQUARE": lambda x, a, b: T.mul(x, x),
    "SQRT": lambda x, a, b: tir.sqrt(x),
    "LINEAR": lambda x, a, b: T.add(T.mul(a, x), b),
}


def _elementwise(name: str, rule: Callable[[Body, Expr], Expr], *reals: str) -> Stage:
    def emit(body: Body, line: Expr) -> None:
        x, out, n = body.tensors["x"], body.tensors["out"], body.numbers
        plane, row = T.floordiv(line, n["out_rows"]), T.floormod(line, n["out_rows"])
        source, target = _start(body, "in", plane, row), _start(body, "out", plane, row)

        def store(at: Expr) -> None:
            out[T.add(target, at)] = rule(body, x[T.add(source, at)])

        body.row(n["out_columns"], store)

    return Stage(name, ("x", "out"), _PLACES, emit, reals)


@once
def activation(name: str) -> Stage:
    """y = f(x), with the parameters a and b."""
    rule = ACTIVATIONS[name]
    return _elementwise(f"activation_{name}", lambda body, x: rule(x, body.numbers["a"], body.numbers["b"]), "a", "b")


@once
def pooling(is_max: bool) -> Stage:
    """The largest value under a window, or the mean of a window that padding fills up with zeros."""

    def emit(body: Body, line: Expr) -> None:
        x, out, n, loop = body.tensors["x"], body.tensors["out"], body.numbers, body.builder.for_range
        plane, row = T.floordiv(line, n["out_rows"]), T.floormod(line, n["out_rows"])
        target, best = _start(body, "out", plane, row), body.registers(1, "best")
        top = T.sub(T.mul(row, n["stride_y"]), n["top"])
        first_y, end_y = T.maximum(top, T.const(0)), T.minimum(T.add(top, n["pool_y"]), n["rows"])
        high = T.sub(T.minimum(T.add(top, n["pool_y"]), T.add(n["rows"], n["bottom"])), top)
        with loop(0, n["out_columns"], name="column") as column:
            left = T.sub(T.mul(column, n["stride_x"]), n["left"])
            first_x, end_x = T.maximum(left, T.const(0)), T.minimum(T.add(left, n["pool_x"]), n["columns"])
            wide = T.sub(T.minimum(T.add(left, n["pool_x"]), T.add(n["columns"], n["right"])), left)
            best[0] = _LOWEST if is_max else _ZERO
            with loop(0, T.maximum(T.sub(end_y, first_y), T.const(0)), name="y") as y:
                source = T.add(_start(body, "in", plane, T.add(first_y, y)), first_x)
                with loop(0, T.maximum(T.sub(end_x, first_x), T.const(0)), name="x") as step:
                    value = x[T.add(source, step)]
                    best[0] = T.maximum(best[0], value) if is_max else T.add(best[0], value)
            mean = T.div(best[0], T.cast(T.mul(high, wide), "float32"))
            out[T.add(target, column)] = best[0] if is_max else mean

    sizes = ("rows", "columns", "pool_x", "pool_y", "stride_x", "stride_y", "left", "top", "right", "bottom")
    return Stage(f"pooling_{'MAX' if is_max else 'AVG'}", ("x", "out"), (*_PLACES, *sizes), emit)


def _batch_normalization(body: Body, line: Expr) -> None:
    """(x - mean) / sqrt(var + epsilon) * gamma + beta of a channel, clamped; without gamma `one` is 1."""
    x, out, n, loads = body.tensors["x"], body.tensors["out"], body.numbers, body.tensors
    plane, row = T.floordiv(line, n["out_rows"]), T.floormod(line, n["out_rows"])
    source, target = _start(body, "in", plane, row), _start(body, "out", plane, row)
    channel, state = T.floormod(plane, n["channels"]), body.registers(2, "state")  # factor, what is added
    gamma = T.add(loads["gamma"][T.mul(channel, n["gamma_step"])], n["one"])
    state[0] = T.div(gamma, tir.sqrt(T.add(loads["var"][channel], n["epsilon"])))
    shift = T.mul(loads["means"][channel], state[0])
    state[1] = T.sub(loads["beta"][T.mul(channel, n["beta_step"])], shift)

    def store(at: Expr) -> None:
        value = T.add(T.mul(x[T.add(source, at)], state[0]), state[1])
        out[T.add(target, at)] = T.maximum(n["low"], T.minimum(n["high"], value))

    body.row(n["out_columns"], store)


def _normalization(body: Body, line: Expr) -> None:
    """x / (kappa + factor * the sum of squares over neighbouring channels)^beta."""
    x, out, n, loop = body.tensors["x"], body.tensors["out"], body.numbers, body.builder.for_range
    plane, row = T.floordiv(line, n["out_rows"]), T.floormod(line, n["out_rows"])
    source, target = _start(body, "in", plane, row), _start(body, "out", plane, row)
    channel = T.floormod(plane, n["channels"])
    first = T.maximum(T.sub(channel, n["half"]), T.const(0))
    end = T.minimum(T.add(channel, T.add(n["half"], T.const(1))), n["channels"])
    begin = T.add(source, T.mul(T.sub(first, channel), n["in_plane"]))

    def store(at: Expr, count: int) -> None:
        sums = body.registers(count, "squares")
        with body.lanes(count) as lane:
            sums[lane] = _ZERO
        with loop(0, T.sub(end, first), name="near") as near, body.lanes(count) as lane:
            value = x[T.add(T.add(begin, T.mul(near, n["in_plane"])), T.add(at, lane))]
            sums[lane] = T.add(sums[lane], T.mul(value, value))
        with body.lanes(count) as lane:
            power = T.mul(n["beta"], tir.log(T.add(n["kappa"], T.mul(n["factor"], sums[lane]))))
            place = T.add(at, lane)
            out[T.add(target, place)] = T.mul(x[T.add(source, place)], tir.exp(T.sub(_ZERO, power)))

    whole = T.floordiv(n["out_columns"], T.const(LANES))
    with loop(0, whole, name="step") as step:
        store(step * LANES, LANES)
    with loop(T.mul(whole, T.const(LANES)), n["out_columns"], name="rest") as rest:
        store(rest, 1)


COPY_ROWS = _elementwise("copy_rows", lambda body, x: x)
SOFTMAX = Stage("softmax", ("x", "out"), _PLACES, _softmax, ("beta",))
BATCH_NORMALIZATION = Stage(
    "batch_normalization",
    ("x", "means", "var", "beta", "gamma", "out"),
    (*_PLACES, "channels", "beta_step", "gamma_step"),
    _batch_normalization,
    ("epsilon", "one", "low", "high"),
)
NORMALIZATION = Stage(
    "normalization_cross_map",
    ("x", "out"),
    (*_PLACES, "channels", "half"),
    _normalization,
    ("beta", "kappa", "factor"),
)
STAGES = (
    *(BATCH_NORMALIZATION, NORMALIZATION, SOFTMAX, COPY_ROWS, pooling(True), pooling(False)),
    *(activation(name) for name in ACTIVATIONS),
)
