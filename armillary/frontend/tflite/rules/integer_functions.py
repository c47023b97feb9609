"""TFLite's functions of affine integers: activations by table, softmax, images, steps from scale to scale.

In: nodes whose tensors are bytes with one scale. Out: a look-up in the results of all 256 bytes, or integer arithmetic.
Invariant: results have the bits of the interpreter's reference kernels, which are float32 in tables of their own
(LOGISTIC, TANH, EXP…) and gemmlowp's fixed point elsewhere (fixed_point.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array
from armillary.budgets import TENSOR_BYTES
from armillary.frontend.tflite import fixed_point
from armillary.frontend.tflite.node import TfliteNode, in_integers
from armillary.frontend.tflite.rules.integer import activated, by_table, rounded, scale_of, zero_of
from armillary.frontend.tflite.rules.nn import CLIPPED
from armillary.frontend.values import cast, op, scalar, shape_of
from armillary.ops._deferred import erf
from armillary.relay.expr import Expr, const

Real = Callable[[Array], Array]
_HALF, _FIVE, _TWELVE = np.float32(0.5), 5, 12
_ONE = 1 << 31


def _gelu(x: Array) -> Array:
    return np.asarray(_HALF * x * (1 + erf(x.astype(np.float64) * math.sqrt(0.5)).astype(np.float32)))


_TABLES: dict[str, Real] = {
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)),
    "TANH": np.tanh,
    "EXP": np.exp,
    "ELU": lambda x: np.where(x < 0, np.expm1(x), x),
    "GELU": _gelu,
    "LOG": lambda x: np.log(np.maximum(x, np.float32(1e-30))),
}


@in_integers(*_TABLES)
def function(node: TfliteNode) -> Expr:
    data, to = node.read(0), node.writes[0]

    def computed(q: Array) -> Array:
        real = scale_of(data) * (q - zero_of(data)).astype(np.float32)
        with np.errstate(over="ignore"):
            steps = _TABLES[node.op](real).astype(np.float32) * (np.float32(1) / scale_of(to))
        return rounded(np.clip(steps, -1e6, 1e6)) + zero_of(to)

    return by_table(node, node.x, data, computed)


_ROOT_BITS = 20  # that 1 / sqrt has behind the point


@in_integers("RSQRT")
def reciprocal_root(node: TfliteNode) -> Expr:
    data, to = node.read(0), node.writes[0]
    multiplier, exponent = fixed_point.multiplier_of(1 / (math.sqrt(scale_of(data)) * float(scale_of(to))))

    def computed(q: Array) -> Array:
        rows = []
        for value in (q - zero_of(data)).tolist():
            root, bits = fixed_point.inverse_square_root(max(value, 1))
            fine = fixed_point.times(np.asarray(1, np.int64), root, bits + _ROOT_BITS)
            near = fixed_point.times(fine, multiplier, exponent - _ROOT_BITS)
            rows.append(int(near) + zero_of(to) if value > 0 else 1 << 20)
        return np.array(rows, np.int64)

    return by_table(node, node.x, data, computed)


@in_integers("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def clipped(node: TfliteNode) -> Expr:
    data, to = node.read(0), node.writes[0]
    low, high = (
        zero_of(to) + int(rounded(np.asarray(np.float32(bound) / scale_of(to)))) if math.isfinite(bound) else 1 << 20
        for bound in CLIPPED[node.op]
    )
    factor = np.float64(scale_of(data)) / np.float64(scale_of(to))

    def computed(q: Array) -> Array:
        return np.asarray(np.clip(fixed_point.scaled(q - zero_of(data), factor) + zero_of(to), low, high))

    return by_table(node, node.x, data, computed)


@in_integers("LEAKY_RELU")
def leaky_relu(node: TfliteNode) -> Expr:
    data, to = node.read(0), node.writes[0]
    same = np.float64(scale_of(data) / scale_of(to))
    slope = np.float64(scale_of(data) * np.float32(node.option("alpha")) / scale_of(to))

    def computed(q: Array) -> Array:
        steps = q - zero_of(data)
        return np.where(steps >= 0, fixed_point.scaled(steps, same), fixed_point.scaled(steps, slope)) + zero_of(to)

    return by_table(node, node.x, data, computed)


@in_integers("HARD_SWISH")
def hard_swish(node: TfliteNode) -> Expr:
    data, to = node.read(0), node.writes[0]
    fine = np.float32(1 / 128) * scale_of(data)
    gate, gate_bits = _short(np.float64(fine / np.float32(3 / 32768)))
    out, out_bits = _short(np.float64(fine / scale_of(to)))

    def computed(q: Array) -> Array:
        steps = (q - zero_of(data)) << 7
        share = steps
        if gate_bits > 0:
            share = _short_range(share << (gate_bits - 1))
        share = _short_product(share, gate)
        if gate_bits > 0:
            share = _short_range(share << 1)
        share = (fixed_point.divide_by_power(share, max(-gate_bits, 0)) + (1 << 15)) >> 1
        product = share * _short_product(steps, out)
        result = np.sign(product) * (np.abs(product) >> 15)  # towards zero
        return fixed_point.divide_by_power(result, -out_bits) + zero_of(to)

    if out_bits > 0:
        node.refuse("a result of so fine a scale")
    return by_table(node, node.x, data, computed)


def _short(factor: float) -> tuple[int, int]:
    """A real factor as 15 bits and an exponent."""
    multiplier, exponent = fixed_point.multiplier_of(factor)
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1), exponent


def _short_range(x: Array) -> Array:
    return np.clip(x, -(1 << 15), (1 << 15) - 1)


def _short_product(x: Array, multiplier: int) -> Array:
    """The doubled upper half of a product of 16 bits, halves up."""
    return (x * multiplier + (1 << 14)) >> 15


@in_integers("ABS", "NEG")
def signed(node: TfliteNode) -> Expr:
    data, to = node.read(0), node.writes[0]
    factor, same = np.float64(scale_of(data) / scale_of(to)), scale_of(data) == scale_of(to)

    def computed(q: Array) -> Array:
        steps = np.abs(q - zero_of(data)) if node.op == "ABS" else zero_of(data) - q
        return (steps if same else fixed_point.scaled(steps, factor)) + zero_of(to)

    return by_table(node, node.x, data, computed)


def requantized(node: TfliteNode) -> Expr:
    """QUANTIZE of bytes that have a scale already."""
    data, to = node.read(0), node.writes[0]
    factor = np.float64(scale_of(data)) / np.float64(scale_of(to))
    return by_table(node, node.x, data, lambda q: fixed_point.scaled(q - zero_of(data), factor) + zero_of(to))


# --- softmax --------------------------------------------------------------------------------------------------------


def _high_product(a: Expr, b: Expr) -> Expr:
    """fixed_point.high_product of numbers that are computed when the network runs, in int64."""
    product = op("add", op("multiply", a, b), _number(1 << 30))
    return op("right_shift", product, _number(31))


def _number(value: int) -> Expr:
    return scalar(value, "int64")


def _reciprocal(x: Expr) -> Expr:
    """fixed_point.reciprocal_of_one_plus of what is computed when the network runs."""
    half = op("right_shift", op("add", x, _number(_ONE)), _number(1))
    result = op("add", _number(1515870810), _high_product(half, _number(-1010580540)))
    for _ in range(3):
        error = op("subtract", _number(1 << 29), _high_product(half, result))
        result = op("add", result, op("left_shift", _high_product(result, error), _number(2)))
    return op("minimum", op("left_shift", result, _number(1)), _number(_ONE - 1))


@in_integers("SOFTMAX")
def softmax(node: TfliteNode) -> Expr:
    """exp of what lies below a row's largest number, by table; the sum of the row by Newton's method."""
    data, to = node.read(0), node.writes[0]
    if data.dtype not in ("int8", "uint8") or to.dtype not in ("int8", "uint8"):
        node.refuse(f"{data.dtype} to {to.dtype}", "8 bits are supported")
    beta = float(node.option("beta"))
    factor = min(beta * float(scale_of(data)) * (1 << (31 - _FIVE)), _ONE - 1.0)
    _, exponent = fixed_point.multiplier_of(factor)
    least = -math.floor(((1 << _FIVE) - 1) * 2.0 ** (31 - _FIVE) / 2.0**exponent)
    places = -np.arange(256, dtype=np.int64)
    powers = fixed_point.exp_below_zero(np.maximum(fixed_point.scaled(places, factor), -_ONE))
    powers = np.where(places >= least, powers, 0)
    wide = cast(node.x, "int32")
    below = op("subtract", op("max", wide, axis=(-1,), keepdims=True), wide)
    power = op("take", const(powers), below, axis=0, mode="clip")
    terms = op("take", const(fixed_point.divide_by_power(powers, _TWELVE)), below, axis=0, mode="clip")
    total = op("sum", terms, axis=(-1,), keepdims=True)
    bits = _leading_bits(total)
    scale = _reciprocal(op("subtract", op("left_shift", total, op("subtract", _number(32), bits)), _number(_ONE)))
    product = _high_product(scale, power)
    exponents = op("add", bits, _number(_TWELVE - 32 + 31 - 8))
    half = op("right_shift", op("left_shift", _number(1), exponents), _number(1))
    share = op("right_shift", op("add", product, half), exponents)
    shift = -128 if to.dtype == "int8" else 0
    return activated(node, op("add", cast(share, "int32"), scalar(shift, "int32")), "none")


def _leading_bits(x: Expr) -> Expr:
    """How many bits positive numbers below 2**31 have."""
    rank = len(shape_of(x))
    powers = const((np.int64(1) << np.arange(31)).reshape(*(1,) * (rank - 1), 31))
    return op("sum", cast(op("greater_equal", x, powers), "int64"), axis=(-1,), keepdims=True)


# --- images -----------------------------------------------------------------------------------------------------------

_POINT = 10  # bits behind the point of places


@in_integers("RESIZE_BILINEAR")
def resize_bilinear(node: TfliteNode) -> Expr:
    if node.read(0).dtype != "int8":
        return _resized_in_float(node)
    corners, centres = bool(node.option("align_corners")), bool(node.option("half_pixel"))
    result, size_out = cast(node.x, "int32"), node.wholes(1, "the size")
    TENSOR_BYTES.check(
        4 * math.prod(size_out) * node.shape[0] * node.shape[3], "RESIZE_BILINEAR: its result", node.span
    )
    for axis, out in zip((1, 2), size_out, strict=True):
        size = node.shape[axis]
        span, count = (size - 1, out - 1) if corners and out > 1 else (size, out)
        scale = ((1 << _POINT) * span + count // 2) // count
        places = np.arange(out) * scale + ((scale // 2 - (1 << (_POINT - 1))) if centres else 0)
        first = np.maximum(np.trunc(places / (1 << _POINT)), 0).astype(np.int64)
        last = np.minimum(np.trunc((places + (1 << _POINT) - 1) / (1 << _POINT)), size - 1).astype(np.int64)
        share = (places - (first << _POINT)).astype(np.int32)
        shape = [1] * 4
        shape[axis] = out
        sides = [op("take", result, const(k.astype(np.int32)), axis=axis) for k in (first, last)]
        weights = [const(w.reshape(shape).astype(np.int32)) for w in ((1 << _POINT) - share, share)]
        result = op("add", *(op("multiply", side, weight) for side, weight in zip(sides, weights, strict=True)))
    half = scalar(1 << (2 * _POINT - 1), "int32")
    away = op("where", op("greater", result, scalar(0, "int32")), half, op("negative", half))
    return activated(node, op("trunc_divide", op("add", result, away), scalar(1 << 2 * _POINT, "int32")), "none")


def _resized_in_float(node: TfliteNode) -> Expr:
    return node.refuse("bilinear images of uint8", "int8 is supported")
