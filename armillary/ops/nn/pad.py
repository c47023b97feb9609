"""nn.pad and nn.mirror_pad: more elements around the data.

In: data, (before, after) per axis, a mode: constant (with pad_value), edge, reflect, symmetric or wrap. Out: the data
with those borders. Invariant: widths are not negative (ONNX's negative pads become a slice when importing).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops.nn._windows import Tensor, f32, need_tensor, te_pad, tensor
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Follows, Precision
from armillary.relay.types import AnyDim, Dim, TensorType, Type

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


@record
class PadAttrs:
    _behind: ClassVar[tuple[str, ...]] = ("pad_value",)
    pad_width: tuple[tuple[int, int], ...] = ()
    pad_value: float = 0.0
    pad_mode: str = "constant"


@record
class MirrorPadAttrs:
    pad_width: tuple[tuple[int, int], ...] = ()
    mode: str = "SYMMETRIC"


pad = Op("nn.pad", kind=Kind.INJECTIVE, doc="The data with a border.")
mirror_pad = Op("nn.mirror_pad", kind=Kind.INJECTIVE, doc="The data with a border of its own mirror image.")
pad.attrs(PadAttrs)
mirror_pad.attrs(MirrorPadAttrs)


def _infer(op: str, width: Sequence[Sequence[int]], mode: str, data: Type) -> TensorType:
    x = need_tensor(op, data)
    if mode not in MODES:
        raise TypeMismatch(f"{op}: unknown mode {mode!r}; it is one of {', '.join(MODES)}")
    if len(width) != x.ndim or not all(isinstance(w, tuple) and len(w) == 2 for w in width):
        raise TypeMismatch(f"{op}: pad_width must be {x.ndim} pairs, got {width}")
    shape: list[Dim] = []
    for size, (before, after) in zip(x.shape, width, strict=True):
        if before < 0 or after < 0:
            raise TypeMismatch(f"{op}: pad_width must not be negative, got {width}")
        least = 0 if mode == "constant" else 2 if mode == "reflect" else 1
        if (before or after) and not isinstance(size, AnyDim) and size < least:
            raise TypeMismatch(f"{op}: an axis of size {size} cannot be padded in mode {mode}")
        shape.append(size + (before + after) if before + after else size)
    return TensorType(tuple(shape), x.dtype)


def _mirror_mode(attrs: MirrorPadAttrs) -> str:
    return attrs.mode.lower()


@pad.infer
def infer_pad(attrs: PadAttrs, data: Type) -> TensorType:
    result = _infer("nn.pad", attrs.pad_width, attrs.pad_mode, data)
    if attrs.pad_mode == "constant" and any(map(any, attrs.pad_width)) and not result.dtype.has(attrs.pad_value):
        raise TypeMismatch(f"nn.pad: a border of {attrs.pad_value} around {result.dtype}, which has no such number")
    return result


mirror_pad.infer(lambda attrs, data: _infer("nn.mirror_pad", attrs.pad_width, _mirror_mode(attrs), data))


@pad.reference
def _reference(attrs: PadAttrs, x: Array) -> Array:
    if attrs.pad_mode == "constant":
        value = np.asarray(attrs.pad_value).astype(x.dtype)
        return np.pad(x, attrs.pad_width, constant_values=value)
    return np.pad(x, attrs.pad_width, mode=attrs.pad_mode)  # type: ignore[call-overload, no-any-return]


@mirror_pad.reference
def _reference_mirror(attrs: MirrorPadAttrs, x: Array) -> Array:
    return np.pad(x, attrs.pad_width, mode=_mirror_mode(attrs))  # type: ignore[call-overload, no-any-return]


def source_index(mode: str, i: te.Expr, size: te.Expr, width: tuple[int, int]) -> te.Expr:
    """Which element of an axis the border repeats at (possibly negative) position `i`."""
    if width == (0, 0):
        return i
    if mode == "edge":
        return T.minimum(T.maximum(i, 0), size - 1)
    if mode == "wrap":
        return i % size
    period = size * 2 if mode == "symmetric" else size * 2 - 2
    folded = i % period
    last = period - 1 if mode == "symmetric" else period
    return T.select(folded < size, folded, last - folded)


def _mirrored(mode: str, width: Sequence[tuple[int, int]], x: Tensor) -> Tensor:
    shape = [d + (b + a) for d, (b, a) in zip(x.shape, width, strict=True)]

    before, after = width[-1] if width else (0, 0)

    def element(*index: te.Expr) -> te.Expr:
        places = [i - w[0] for i, w in zip(index, width, strict=True)]
        rows = [source_index(mode, p, d, w) for p, d, w in zip(places, x.shape, width, strict=True)]
        inside = ([places[-1] >= 0] if before else []) + ([places[-1] < x.shape[-1]] if after else [])
        if not inside:
            return x(*rows)
        test = T.likely(T.all_of(*inside))  # vectors inside the row, also where threads share a single one
        return te.if_then_else(test, x(*rows[:-1], places[-1]), x(*rows))

    return te.compute(shape, element, name="pad", tag="injective")


@pad.compute
def _compute(attrs: PadAttrs, x: Tensor) -> Tensor:
    if attrs.pad_mode != "constant":
        return _mirrored(attrs.pad_mode, attrs.pad_width, x)
    if not any(b or a for b, a in attrs.pad_width):
        return te.compute(x.shape, lambda *i: x(*i), name="pad", tag="injective")
    return te_pad(x, attrs.pad_width, attrs.pad_value, name="pad")


@mirror_pad.compute
def _compute_mirror(attrs: MirrorPadAttrs, x: Tensor) -> Tensor:
    return _mirrored(_mirror_mode(attrs), attrs.pad_width, x)


@pad.samples
def _samples() -> Iterator[Sample]:
    yield Sample(PadAttrs(((0, 0), (1, 2), (3, 0)), 1.5), (f32(2, 3, 4),))
    yield Sample(PadAttrs(((1, 1),), 7), (tensor("int32", 4),), (-9, 9))
    for mode in MODES[1:]:
        yield Sample(PadAttrs(((0, 0), (1, 2), (3, 1)), 0, mode), (f32(2, 3, 4),))


@mirror_pad.samples
def _samples_mirror() -> Iterator[Sample]:
    yield Sample(MirrorPadAttrs(((1, 2), (0, 3))), (f32(3, 4),))
    yield Sample(MirrorPadAttrs(((1, 2), (0, 3)), "REFLECT"), (f32(3, 4),))


@pad.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(PadAttrs(((1, 1),)), (f32(2, 3),), "pad_width must be 2 pairs")
    yield BadSample(PadAttrs(((1, -1), (0, 0))), (f32(2, 3),), "must not be negative")
    yield BadSample(PadAttrs(((1, 1), (0, 0)), 0, "blur"), (f32(2, 3),), "unknown mode 'blur'")


def zero_padding(expr: Call) -> Expr | None:
    """pad(x, 0…)  ->  x"""
    width = getattr(expr.attrs, "pad_width", None)
    return expr.args[0] if width and all(p == 0 for pair in width for p in pair) else None


pad.simplify(zero_padding)

state("nn.mirror_pad", Fact.PICKS, precision=Precision.FOLLOW)
state("nn.pad", precision=Precision.FOLLOW, follows=Follows.PAD)
