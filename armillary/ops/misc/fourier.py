"""Discrete Fourier transforms, of lengths that are known: `relay.dft`, `relay.stft`, and what ONNX's rules use.

In: real (…, 1) or complex (…, 2) signals. Out: products with the matrices of cosines and sines, in float64 so that the
cancelling sums keep float32's digits. Invariant: a length n costs n * n, or n times the sum of two factors where that
is much less (a step of Cooley and Tukey's); lengths beyond LONGEST are refused rather than made slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from armillary.base.boundary import boundary
from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops.elementwise.broadcast import add, multiply, subtract
from armillary.ops.elementwise.cast import cast
from armillary.ops.nn._windows import call, f32, need_float, need_rank, out_dim, reshape_to, same_dim, type_of
from armillary.ops.shape.shape import squeeze
from armillary.ops.shape.slice import strided_slice
from armillary.ops.shape.transform import stack
from armillary.relay.expr import Expr, Tuple, TupleWrapper, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import AnyDim, TensorType, Type

LONGEST = 4096
LEAST_GAIN = 8  # times fewer products that pay for two steps and what lies between


def _length(x: Expr, axis: int) -> int:
    """The size of an axis, which is known. Others may be open."""
    ty = type_of(x)
    size = ty.known[axis]
    return size if isinstance(size, int) else ty.static[axis]  # which says that it is not


def _cut(x: Expr, axis: int, begin: int, end: int) -> Expr:
    return strided_slice(x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))


def _times(x: Expr, matrix: Array) -> Expr:
    """The product along the last axis with a (input, output) matrix."""
    return call("nn.dense", x, const(np.ascontiguousarray(matrix.T)))


def transform(what: str, x: Expr, axis: int, length: int | None, inverse: bool, onesided: bool) -> Expr:
    """The discrete Fourier transform along `axis` (not the last, which holds real and imaginary parts)."""
    ndim, dtype = type_of(x).ndim, str(type_of(x).dtype)
    if _length(x, -1) not in (1, 2) or axis == ndim - 1:
        raise TypeMismatch(f"{what}: axis {axis} of a signal of shape {type_of(x).shape}")
    samples = _length(x, axis)
    back_to_real = inverse and onesided
    n = length if length is not None else 2 * (samples - 1) if back_to_real else samples
    if not 1 <= n <= LONGEST:
        raise UnsupportedError(f"{what}: length {n}; 1 to {LONGEST} are supported")
    used = min(samples, n // 2 + 1 if back_to_real else n)
    x = cast(_cut(x, axis, 0, used) if used < samples else x, "float64")
    order = (*(a for a in range(ndim - 1) if a != axis), axis)
    parts = [squeeze(_cut(x, ndim - 1, k, k + 1), (ndim - 1,)) for k in range(_length(x, -1))]
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
        return [_cut(r, type_of(r).ndim - 1, 0, outputs) for r in _in_two_steps(parts, first, n // first, inverse)]
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
    outer, sign = type_of(parts[0]).known[:-1], 1 if inverse else -1
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
    ndim = type_of(x).ndim
    return call("transpose", x, axes=(*range(ndim - 2), ndim - 1, ndim - 2))


def _beside(parts: list[Expr]) -> Expr:
    return call("concatenate", parts, axis=-1) if len(parts) > 1 else parts[0]


def _matrix(n: int, sign: int, parts: int) -> Array:
    """From real (and imaginary) parts side by side to both parts of the transform of length n."""
    angles = sign * 2 * np.pi * (np.outer(np.arange(n), np.arange(n)) % n) / n
    cosines, sines = np.cos(angles), np.sin(angles)
    result: Array = np.block([[cosines, sines], [-sines, cosines]][:parts])
    return result


def _from_onesided(parts: list[Expr], used: int, n: int) -> list[Expr]:
    """The real signal whose non-negative frequencies are given."""
    k = np.arange(used)
    angles = 2 * np.pi * (np.outer(k, np.arange(n)) % n) / n
    twice = np.where((k == 0) | (2 * k == n), 1.0, 2.0)[:, None] / n
    real = _times(parts[0], np.cos(angles) * twice)
    return [real if len(parts) == 1 else subtract(real, _times(parts[1], np.sin(angles) * twice))]


@boundary("dft", arguments=True)
def dft(re_data: Expr, im_data: Expr, inverse: bool = False) -> TupleWrapper:
    """The transform along the last axis, of real and imaginary parts: real and imaginary parts."""
    shape = type_of(re_data).static
    if type_of(im_data).static != shape or not shape:
        raise TypeMismatch(f"dft: real parts of shape {shape}, imaginary ones {type_of(im_data).static}")
    both = transform("dft", stack((re_data, im_data), -1), len(shape) - 1, None, inverse, False)
    parts = [squeeze(_cut(both, len(shape), k, k + 1), (len(shape),)) for k in range(2)]
    return TupleWrapper(Tuple(tuple(parts)), 2)


@record
class StftAttrs:
    n_fft: int
    hop_length: int
    win_length: int
    normalized: bool = False
    onesided: bool = True


stft_op = Op("stft", kind=Kind.OPAQUE, inputs=("data", "window"), doc="Transforms of weighted frames of real signals.")
stft_op.attrs(StftAttrs)


@stft_op.infer
def _infer(attrs: StftAttrs, data: Type, window: Type) -> TensorType:
    x, w = need_float("stft", need_rank("stft", data, 2)), need_rank("stft", window, 1, "window")
    size, samples = attrs.n_fft, x.shape[1]
    fits = isinstance(samples, AnyDim) or size <= samples
    fits = fits and attrs.hop_length >= 1 and 1 <= attrs.win_length <= size
    if not fits or not same_dim(w.shape[0], attrs.win_length):
        message = (
            f"frames of {size} (window {w.shape}, {attrs.win_length}) every {attrs.hop_length} of {samples} samples"
        )
        raise TypeMismatch(f"stft: {message}")
    frames = out_dim("stft", samples, (0, 0), size, attrs.hop_length, 1)
    return TensorType((x.shape[0], size // 2 + 1 if attrs.onesided else size, frames, 2), x.dtype)


@stft_op.reference
def _reference(attrs: StftAttrs, data: Array, window: Array) -> Array:
    starts = np.arange(0, data.shape[1] - attrs.n_fft + 1, attrs.hop_length)
    left = (attrs.n_fft - attrs.win_length) // 2
    whole = np.pad(window.astype(np.float64), (left, attrs.n_fft - attrs.win_length - left))
    frames = data[:, starts[:, None] + np.arange(attrs.n_fft)].astype(np.float64) * whole
    spectrum = np.fft.fft(frames)[..., : attrs.n_fft // 2 + 1 if attrs.onesided else attrs.n_fft]
    scale = 1 / math.sqrt(attrs.n_fft) if attrs.normalized else 1.0
    turned = np.stack([spectrum.real, spectrum.imag], -1).transpose(0, 2, 1, 3) * scale
    result: Array = turned.astype(data.dtype)
    return result


@stft_op.decompose
def _decompose(attrs: StftAttrs, data: Expr, window: Expr) -> Expr:
    dtype, size = str(type_of(data).dtype), attrs.n_fft
    frames = call("sliding_window", data, axis=1, window_shape=(size,), strides=(attrs.hop_length,))
    left = (size - attrs.win_length) // 2
    whole = call("nn.pad", cast(window, dtype), pad_width=((left, size - attrs.win_length - left),))
    frames = call("expand_dims", multiply(frames, whole), axis=-1)
    turned = call("transpose", transform("stft", frames, 2, size, False, attrs.onesided), axes=(0, 2, 1, 3))
    return multiply(turned, const(np.asarray(1 / math.sqrt(size), dtype))) if attrs.normalized else turned


@stft_op.samples
def _samples() -> Iterator[Sample]:
    yield Sample(StftAttrs(4, 2, 3), (f32(2, 11), f32(3)), rtol=1e-4, atol=1e-4)
    yield Sample(StftAttrs(3, 1, 3, True, False), (f32(1, 7), f32(3)), rtol=1e-4, atol=1e-4)


@stft_op.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(StftAttrs(9, 1, 9), (f32(1, 7), f32(9)), "frames of 9")


@boundary("stft", arguments=True)
def stft(
    data: Expr,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Expr | None = None,
    normalized: bool = False,
    onesided: bool = True,
) -> Expr:
    """Frames of a real signal (batch, samples), transformed: (batch, frequencies, frames, 2); a window weights them."""
    width = win_length or n_fft
    weights = const(np.ones(width, np.float32)) if window is None else window
    result: Expr = stft_op(data, weights, n_fft, hop_length or n_fft // 4, width, bool(normalized), bool(onesided))
    return result
