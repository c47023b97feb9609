"""ONNX DFT, STFT and MelWeightMatrix, for lengths that are known when importing.

In: real (…, 1) or complex (…, 2) signals. Out: products with the matrices of cosines and sines, in float64 so that the
cancelling sums keep float32's digits. Invariant: a length n costs n * n, or n times the sum of two factors where that
is much less (a step of Cooley and Tukey's); lengths beyond LONGEST are refused rather than made slow. Window functions
are function bodies of the standard and need no rule.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.errors import TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx, onnx_dtype
from armillary.ops._common import axis_of, ints
from armillary.ops.elementwise.broadcast import add, multiply, subtract
from armillary.ops.elementwise.cast import cast
from armillary.ops.nn._windows import call, reshape_to
from armillary.ops.shape.indexing import take
from armillary.ops.shape.shape import expand_dims, squeeze
from armillary.ops.shape.slice import strided_slice
from armillary.ops.shape.transform import stack
from armillary.relay.expr import Constant, Expr, const
from armillary.relay.op import Array
from armillary.relay.types import TensorType

LONGEST = 4096
LEAST_GAIN = 8  # times fewer products that pay for two steps and what lies between


def _static(x: Expr) -> tuple[int, ...]:
    ty = x.checked_type
    assert isinstance(ty, TensorType), "a signal is a tensor"
    return ty.static


def _cut(x: Expr, axis: int, begin: int, end: int) -> Expr:
    return strided_slice(x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))


def _times(x: Expr, matrix: Array) -> Expr:
    """The product along the last axis with a (input, output) matrix."""
    return call("nn.dense", x, const(np.ascontiguousarray(matrix.T)))


def transform(node: OnnxNode, x: Expr, axis: int, length: int | None, inverse: bool, onesided: bool) -> Expr:
    """The discrete Fourier transform along `axis` (not the last, which holds real and imaginary parts)."""
    shape = _static(x)
    ndim, dtype = len(shape), str(x.checked_type.dtype)  # type: ignore[attr-defined]
    if shape[-1] not in (1, 2) or axis == ndim - 1:
        raise TypeMismatch(f"{node.op_type} node {node.name!r}: axis {axis} of a signal of shape {shape}")
    back_to_real = inverse and onesided
    n = length if length is not None else 2 * (shape[axis] - 1) if back_to_real else shape[axis]
    if not 1 <= n <= LONGEST:
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: length {n}; 1 to {LONGEST} are supported")
    used = min(shape[axis], n // 2 + 1 if back_to_real else n)
    x = cast(_cut(x, axis, 0, used) if used < shape[axis] else x, "float64")
    order = (*(a for a in range(ndim - 1) if a != axis), axis)
    parts = [squeeze(_cut(x, ndim - 1, k, k + 1), (ndim - 1,)) for k in range(shape[-1])]
    moved = [part if order == tuple(range(ndim - 1)) else call("transpose", part, axes=order) for part in parts]
    results = _from_onesided(moved, used, n) if back_to_real else _two_sided(moved, used, n, inverse, onesided)
    back = tuple(order.index(a) for a in range(ndim - 1))
    placed = [r if back == tuple(range(ndim - 1)) else call("transpose", r, axes=back) for r in results]
    return cast(stack(tuple(placed), ndim - 1), dtype)


def _two_sided(parts: list[Expr], used: int, n: int, inverse: bool, onesided: bool) -> list[Expr]:
    """Real and imaginary parts of sum_j x[j] exp(-+ 2 pi i j k / n)."""
    outputs = n // 2 + 1 if onesided else n
    first = next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
    if used == n and LEAST_GAIN * (first + n // first) <= n:
        return [_cut(r, len(_static(r)) - 1, 0, outputs) for r in _in_two_steps(parts, first, n // first, inverse)]
    angles = 2 * np.pi * (np.outer(np.arange(used), np.arange(outputs)) % n) / n
    scale = 1 / n if inverse else 1.0
    cosines, sines = np.cos(angles) * scale, np.sin(angles) * (scale if inverse else -scale)
    if len(parts) == 1:
        return [_times(parts[0], cosines), _times(parts[0], sines)]
    real, imaginary = parts
    return [
        subtract(_times(real, cosines), _times(imaginary, sines)),
        add(_times(real, sines), _times(imaginary, cosines)),
    ]


def _in_two_steps(parts: list[Expr], n1: int, n2: int, inverse: bool) -> list[Expr]:
    """As _two_sided: sums over j1, factors between, sums over j2, where j = j1 * n2 + j2 and k = k1 + n1 * k2."""
    outer, sign = _static(parts[0])[:-1], 1 if inverse else -1
    turned = [_turned(reshape_to(part, (*outer, n1, n2))) for part in parts]
    rows = _times(_beside(turned), _matrix(n1, sign, len(parts)))
    real, imaginary = (_cut(rows, len(outer) + 1, k * n1, (k + 1) * n1) for k in range(2))
    angles = sign * 2 * np.pi * np.outer(np.arange(n2), np.arange(n1)) / (n1 * n2)
    c, s = const(np.cos(angles)), const(np.sin(angles))
    mixed = [
        subtract(multiply(real, c), multiply(imaginary, s)),
        add(multiply(real, s), multiply(imaginary, c)),
    ]
    scale = 1 / (n1 * n2) if inverse else 1.0
    columns = _times(_beside([_turned(m) for m in mixed]), _matrix(n2, sign, 2) * scale)
    halves = (_cut(columns, len(outer) + 1, k * n2, (k + 1) * n2) for k in range(2))
    return [reshape_to(_turned(half), (*outer, n1 * n2)) for half in halves]


def _turned(x: Expr) -> Expr:
    """The last two axes in the other order."""
    ndim = len(_static(x))
    return call("transpose", x, axes=(*range(ndim - 2), ndim - 1, ndim - 2))


def _beside(parts: list[Expr]) -> Expr:
    return call("concatenate", parts, axis=-1) if len(parts) > 1 else parts[0]


def _matrix(n: int, sign: int, parts: int) -> Array:
    """From real (and imaginary) parts side by side to both parts of the transform of length n."""
    angles = sign * 2 * np.pi * (np.outer(np.arange(n), np.arange(n)) % n) / n
    cosines, sines = np.cos(angles), np.sin(angles)
    made: Array = np.block([[cosines, sines], [-sines, cosines]][:parts])
    return made


def _from_onesided(parts: list[Expr], used: int, n: int) -> list[Expr]:
    """The real signal whose non-negative frequencies are given."""
    k = np.arange(used)
    angles = 2 * np.pi * (np.outer(k, np.arange(n)) % n) / n
    twice = np.where((k == 0) | (2 * k == n), 1.0, 2.0)[:, None] / n
    real = _times(parts[0], np.cos(angles) * twice)
    return [real if len(parts) == 1 else subtract(real, _times(parts[1], np.sin(angles) * twice))]


def _length(node: OnnxNode, index: int, what: str) -> int | None:
    given = node.optional_const(index, what)
    return None if given is None else int(given.reshape(-1)[0])


def _dft(node: OnnxNode, axis: int) -> Expr:
    axis = axis_of("DFT", axis, node.type_of(0).ndim)
    inverse, onesided = bool(node.int("inverse", default=0)), bool(node.int("onesided", default=0))
    return transform(node, node.input(0), axis, _length(node, 1, "length"), inverse, onesided)


@from_onnx("DFT", since=17)
def dft_by_attribute(node: OnnxNode) -> Expr:
    return _dft(node, int(node.int("axis", default=1)))


@from_onnx("DFT", since=20)
def dft_by_input(node: OnnxNode) -> Expr:
    axis = _length(node, 2, "axis")
    return _dft(node, -2 if axis is None else axis)


@from_onnx("STFT", since=17)
def stft(node: OnnxNode) -> Expr:
    """Frames of the signal, weighted by the window and transformed."""
    shape = node.type_of(0).static
    step, size = _length(node, 1, "frame step"), _length(node, 3, "frame length")
    if size is None:
        size = shape[1] if node.missing(2) else node.type_of(2).static[0]
    if step is None or step < 1 or not 1 <= size <= shape[1]:
        raise TypeMismatch(f"STFT node {node.name!r}: frames of {size} every {step} of {shape[1]} samples")
    node.check_made(((shape[1] - size) // step + 1) * size)
    starts = np.arange(0, shape[1] - size + 1, step)
    signal = node.input(0) if len(shape) == 3 else expand_dims(node.input(0), -1)
    frames = take(signal, const(ints(starts[:, None] + np.arange(size))), 1)
    if not node.missing(2):
        frames = multiply(frames, reshape_to(node.input(2), (size, 1)))
    return transform(node, frames, 2, size, False, bool(node.int("onesided", default=1)))


@from_onnx("MelWeightMatrix", since=17)
def mel_weight_matrix(node: OnnxNode) -> list[Expr]:
    """Triangular filters, evenly spaced on the mel scale; a constant."""
    names = ("number of bins", "length", "sample rate", "lower edge", "upper edge")
    bins, length, rate, low, high = (node.const(k, name).reshape(-1)[0].item() for k, name in enumerate(names))
    bins, rows = int(bins), int(length) // 2 + 1
    node.check_made(4 * rows * bins)  # with what is computed on the way
    low_mel, high_mel = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    mels = np.arange(bins + 2) * ((high_mel - low_mel) / (bins + 2)) + low_mel
    edges = ((int(length) + 1) * (700 * (10 ** (mels / 2595) - 1))) // rate
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    row = np.arange(rows)[:, None]
    with np.errstate(all="ignore"):
        rising = np.where(centre == left, row == centre, (row - left) / (centre - left))
        falling = np.where(right == centre, 0.0, (right - row) / (right - centre))
    up, down = (row >= left) & (row <= centre), (row > centre) & (row < right)
    weights = np.where(up, rising, np.where(down, falling, 0.0))
    dtype = onnx_dtype(node, int(node.int("output_datatype", default=1)))
    return [cast(Constant(weights.astype(np.float32)), dtype)]
