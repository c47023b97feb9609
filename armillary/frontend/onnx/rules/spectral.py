"""ONNX DFT, STFT and MelWeightMatrix, for frames and transforms of a length that is known when importing.

In: real (…, 1) or complex (…, 2) signals. Out: what ops/misc/fourier.py makes of them. Invariant: window functions are
function bodies of the standard and need no rule.
"""

from __future__ import annotations

import numpy as np

from armillary.base.extent import bounds, most
from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode, from_onnx, onnx_dtype
from armillary.ops._deferred import by_name
from armillary.ops._types import axis_of, ints
from armillary.ops.elementwise.broadcast import add, multiply
from armillary.ops.elementwise.cast import cast
from armillary.ops.misc.fourier import transform
from armillary.ops.nn._windows import reshape_to, type_of
from armillary.ops.shape.indexing import take
from armillary.ops.shape.shape import expand_dims
from armillary.relay.expr import Constant, Expr, const

arange = by_name("arange")


def _what(node: OnnxNode) -> str:
    return f"{node.op_type} node {node.name!r}"


def _length(node: OnnxNode, index: int, what: str) -> int | None:
    length = node.optional_const(index, what)
    return None if length is None else int(length.reshape(-1)[0])


def _dft(node: OnnxNode, axis: int) -> Expr:
    axis = axis_of("DFT", axis, node.type_of(0).ndim)
    inverse, onesided = node.flag("inverse", False), node.flag("onesided", False)
    return transform(_what(node), node.input(0), axis, _length(node, 1, "length"), inverse, onesided)


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
    signal = node.input(0) if node.type_of(0).ndim == 3 else expand_dims(node.input(0), -1)
    samples = type_of(signal).known[1]
    step, size = _length(node, 1, "frame step"), _length(node, 3, "frame length")
    if size is None:
        size = node.type_of(2).static[0] if not node.missing(2) else node.type_of(0).static[1]
    if step is None or step < 1 or not 1 <= size <= bounds(samples)[1]:
        raise TypeMismatch(f"STFT node {node.name!r}: frames of {size} every {step} of {samples} samples")
    count = (samples - size) // step + 1
    if isinstance(count, int):
        node.check_elements(count * size)
        places: Expr = const(ints(np.arange(0, count * step, step)[:, None] + np.arange(size)))
    else:  # a signal shorter than a frame: 0 elements do not take a shape of 1
        starts = arange(0, count * step, step, dtype="int32")
        places = add(reshape_to(starts, (most(count, 1), 1)), const(np.arange(size, dtype=np.int32)))
    frames = take(signal, places, 1)
    if not node.missing(2):
        frames = multiply(frames, reshape_to(node.input(2), (size, 1)))
    return transform(_what(node), frames, 2, size, False, node.flag("onesided", True))


@from_onnx("MelWeightMatrix", since=17)
def mel_weight_matrix(node: OnnxNode) -> list[Expr]:
    """Triangular filters, evenly spaced on the mel scale; a constant."""
    names = ("number of bins", "length", "sample rate", "lower edge", "upper edge")
    bins, length, rate, low, high = (node.const(k, name).reshape(-1)[0].item() for k, name in enumerate(names))
    bins, rows = int(bins), int(length) // 2 + 1
    lies_within = rate > 0 and all(0 <= (length + 1) * edge / rate < rows for edge in (low, high))
    if bins < 0 or not lies_within:
        message = f"{bins} bins from {low} to {high} Hz, of {length} samples at {rate} Hz"
        raise TypeMismatch(f"{_what(node)}: {message}: the edges must lie within the spectrum")
    node.check_elements(4 * rows * bins)  # with what is computed on the way
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
