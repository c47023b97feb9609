"""Operators that move elements: nn.batch_flatten, nn.depth_to_space, nn.space_to_depth, layout_transform,
nn.space_to_batch_nd, nn.batch_to_space_nd.

In: data, block sizes or layouts. Out: the same elements in another order (layout_transform: between plain and blocked
layouts such as NCHW and NCHW8c, each axis split at most once). Invariant: sizes divide exactly; nothing is padded
except by space_to_batch_nd.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from armillary.base.aligned import aligned
from armillary.base.extent import Known, bounds, note_meeting, typical
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import Tensor, block_of, call, f32, known, letters, need_rank, need_tensor, type_of
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Precision
from armillary.relay.types import Dim, TensorType, Type


@record
class DepthToSpaceAttrs:
    block_size: int = 2
    layout: str = "NCHW"
    mode: str = "DCR"


@record
class SpaceToDepthAttrs:
    block_size: int = 2
    layout: str = "NCHW"
    mode: str = "DCR"


@record
class LayoutTransformAttrs:
    src_layout: str = "NCHW"
    dst_layout: str = "NCHW"


@record
class SpaceToBatchAttrs:
    block_shape: tuple[int, ...] = ()
    paddings: tuple[tuple[int, int], ...] = ()
    pad_value: float = 0.0


@record
class BatchToSpaceAttrs:
    block_shape: tuple[int, ...] = ()
    crops: tuple[tuple[int, int], ...] = ()


batch_flatten = Op("nn.batch_flatten", kind=Kind.INJECTIVE, doc="All axes but the first as one.")
depth_to_space = Op("nn.depth_to_space", kind=Kind.INJECTIVE, doc="Blocks of channels become blocks of pixels.")
space_to_depth = Op("nn.space_to_depth", kind=Kind.INJECTIVE, doc="Blocks of pixels become channels.")
layout_transform = Op("layout_transform", kind=Kind.INJECTIVE, doc="The same tensor in another layout.")
space_to_batch_nd = Op(
    "nn.space_to_batch_nd",
    kind=Kind.INJECTIVE,
    doc="Blocks of the padded data, each position of a block as one more batch.",
)
batch_to_space_nd = Op(
    "nn.batch_to_space_nd",
    kind=Kind.INJECTIVE,
    doc="Batches laid out as blocks of larger images, then cropped.",
)
depth_to_space.attrs(DepthToSpaceAttrs)
space_to_depth.attrs(SpaceToDepthAttrs)
layout_transform.attrs(LayoutTransformAttrs)
space_to_batch_nd.attrs(SpaceToBatchAttrs)
batch_to_space_nd.attrs(BatchToSpaceAttrs)


# --- batch_flatten ---------------------------------------------------------------------------------------------------


@batch_flatten.infer
def _infer_flatten(attrs: None, data: Type) -> TensorType:
    x = need_tensor("nn.batch_flatten", data)
    if x.ndim < 1:
        raise TypeMismatch(f"nn.batch_flatten: data must have at least one dimension, got {x}")
    columns: Dim = 1
    for d in x.shape[1:]:
        columns = columns * d
    return TensorType((x.shape[0], columns), x.dtype)


batch_flatten.reference(lambda attrs, x: x.reshape(x.shape[0], int(np.prod(x.shape[1:]))))


@batch_flatten.compute
def _compute_flatten(attrs: None, x: Tensor) -> Tensor:
    columns: te.Index = 1
    for d in x.shape[1:]:
        columns = columns * d

    def element(i: te.Expr, j: te.Expr) -> te.Expr:
        index = []
        for size in reversed(x.shape[1:]):
            index.append(j % size)
            j = j // size
        result: te.Expr = x(i, *reversed(index))
        return result

    return te.compute([x.shape[0], columns], element, name="batch_flatten", tag="injective")


# --- depth_to_space, space_to_depth ----------------------------------------------------------------------------------


def _need_layout(op: str, layout: str, block: int, data: Type) -> TensorType:
    x = need_rank(op, data, 4)
    if layout not in ("NCHW", "NHWC"):
        raise TypeMismatch(f"{op}: layout must be NCHW or NHWC, got {layout!r}")
    if block < 1:
        raise TypeMismatch(f"{op}: block_size must be >= 1, got {block}")
    return x


def _need_mode(op: str, mode: str) -> None:
    if mode not in ("DCR", "CRD"):
        raise TypeMismatch(f"{op}: mode must be DCR or CRD, got {mode!r}")


def _scaled(op: str, x: TensorType, layout: str, block: int, down: str) -> TensorType:
    """The type after axes in `down` shrink by the block and the others grow to match."""
    shape = dict(zip(layout, x.shape, strict=True))
    for axis, power in (("C", 2), ("H", 1), ("W", 1)):
        size, factor = shape[axis], block**power
        if isinstance(size, int) and axis in down and size % factor:
            raise TypeMismatch(f"{op}: the size {size} of axis {axis} is not a multiple of {factor}")
        shape[axis] = size // factor if axis in down else size * factor
    return TensorType(tuple(shape[a] for a in layout), x.dtype)


@depth_to_space.infer
def _infer_d2s(attrs: DepthToSpaceAttrs, data: Type) -> TensorType:
    op = "nn.depth_to_space"
    x = _need_layout(op, attrs.layout, attrs.block_size, data)
    _need_mode(op, attrs.mode)
    return _scaled(op, x, attrs.layout, attrs.block_size, "C")


@space_to_depth.infer
def _infer_s2d(attrs: SpaceToDepthAttrs, data: Type) -> TensorType:
    op = "nn.space_to_depth"
    _need_mode(op, attrs.mode)
    return _scaled(op, _need_layout(op, attrs.layout, attrs.block_size, data), attrs.layout, attrs.block_size, "HW")


@depth_to_space.reference
def _reference_d2s(attrs: DepthToSpaceAttrs, x: Array) -> Array:
    y = x if attrs.layout == "NCHW" else x.transpose(0, 3, 1, 2)
    n, c, h, w = y.shape
    b = attrs.block_size
    split = (n, b, b, c // (b * b), h, w) if attrs.mode == "DCR" else (n, c // (b * b), b, b, h, w)
    order = (0, 3, 4, 1, 5, 2) if attrs.mode == "DCR" else (0, 1, 4, 2, 5, 3)
    y = y.reshape(split).transpose(order).reshape(n, c // (b * b), h * b, w * b)
    return np.ascontiguousarray(y if attrs.layout == "NCHW" else y.transpose(0, 2, 3, 1))


@space_to_depth.reference
def _reference_s2d(attrs: SpaceToDepthAttrs, x: Array) -> Array:
    y = x if attrs.layout == "NCHW" else x.transpose(0, 3, 1, 2)
    n, c, h, w = y.shape
    b = attrs.block_size
    order = (0, 3, 5, 1, 2, 4) if attrs.mode == "DCR" else (0, 1, 3, 5, 2, 4)
    y = y.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)
    return np.ascontiguousarray(y if attrs.layout == "NCHW" else y.transpose(0, 2, 3, 1))


@depth_to_space.compute
def _compute_d2s(attrs: DepthToSpaceAttrs, x: Tensor) -> Tensor:
    b, layout = attrs.block_size, attrs.layout
    size = dict(zip(layout, x.shape, strict=True))
    channels = size["C"] // (b * b)
    shape = size | {"C": channels, "H": size["H"] * b, "W": size["W"] * b}

    def element(*index: te.Expr) -> te.Expr:
        at = dict(zip(layout, index, strict=True))
        part = at["H"] % b * b + at["W"] % b
        channel = part * channels + at["C"] if attrs.mode == "DCR" else at["C"] * (b * b) + part
        at |= {"C": channel, "H": at["H"] // b, "W": at["W"] // b}
        result: te.Expr = x(*(at[a] for a in layout))
        return result

    return te.compute([shape[a] for a in layout], element, name="depth_to_space", tag="injective")


@space_to_depth.compute
def _compute_s2d(attrs: SpaceToDepthAttrs, x: Tensor) -> Tensor:
    b, layout = attrs.block_size, attrs.layout
    size = dict(zip(layout, x.shape, strict=True))
    shape = size | {"C": size["C"] * (b * b), "H": size["H"] // b, "W": size["W"] // b}

    def element(*index: te.Expr) -> te.Expr:
        at = dict(zip(layout, index, strict=True))
        part, channel = at["C"] // size["C"], at["C"] % size["C"]
        if attrs.mode == "CRD":
            part, channel = at["C"] % (b * b), at["C"] // (b * b)
        at |= {"C": channel, "H": at["H"] * b + part // b, "W": at["W"] * b + part % b}
        result: te.Expr = x(*(at[a] for a in layout))
        return result

    return te.compute([shape[a] for a in layout], element, name="space_to_depth", tag="injective")


# --- layout_transform ------------------------------------------------------------------------------------------------


def _check_layout(layout: str) -> str:
    result = letters(layout)
    if not result.isalpha() or len(set(result)) != len(result) or not re.fullmatch(r"(\d+[a-z]|[A-Z])+", layout):
        raise TypeMismatch(f"layout_transform: {layout!r} is not a layout such as NCHW or NCHW8c")
    if any(c.islower() and c.upper() not in result for c in result):
        raise TypeMismatch(f"layout_transform: {layout!r} has the block of an axis without the axis")
    return result


@layout_transform.infer
def _infer_layout(attrs: LayoutTransformAttrs, data: Type) -> TensorType:
    x = need_tensor("layout_transform", data)
    src, dst = _check_layout(attrs.src_layout), _check_layout(attrs.dst_layout)
    if len(src) != x.ndim:
        raise TypeMismatch(f"layout_transform: data has {x.ndim} dimensions, its layout is {attrs.src_layout}")
    if {c.upper() for c in src} != {c.upper() for c in dst}:
        raise TypeMismatch(f"layout_transform: {attrs.src_layout} and {attrs.dst_layout} have different axes")
    whole: dict[str, Dim] = {}
    for c, size in zip(src, x.shape, strict=True):
        block = block_of(attrs.src_layout, c)
        if c.islower() and known(size) not in (None, block):
            raise TypeMismatch(f"layout_transform: axis {c} has size {size}, the layout says {block}")
        if c.isupper():
            whole[c] = size * block if block else size
    return TensorType(tuple(_part(attrs.dst_layout, c, whole[c.upper()]) for c in dst), x.dtype)


def _part(layout: str, letter: str, size: Dim) -> Dim:
    block = block_of(layout, letter)
    if letter.islower():
        return block
    if not block:
        return size
    if isinstance(size, int) and size % block:
        raise TypeMismatch(f"layout_transform: the size {size} of axis {letter} is not a multiple of {block}")
    return size // block


@layout_transform.reference
def _reference_layout(attrs: LayoutTransformAttrs, x: Array) -> Array:
    src, dst = letters(attrs.src_layout), letters(attrs.dst_layout)
    axes = [c for c in src if c.isupper()]
    order = [src.index(p) for c in axes for p in (c, c.lower()) if p in src]
    shape = dict(zip(src, x.shape, strict=True))
    whole = [shape[c] * shape.get(c.lower(), 1) for c in axes]
    y = x.transpose(order).reshape(whole)
    parts = [(c, size, block_of(attrs.dst_layout, c)) for c, size in zip(axes, whole, strict=True)]
    split = [n for _, size, block in parts for n in ((size // block, block) if block else (size,))]
    names = [p for c, _, block in parts for p in ((c, c.lower()) if block else (c,))]
    return aligned(y.reshape(split).transpose([names.index(c) for c in dst]))  # one copy: weights may be large


@layout_transform.compute
def _compute_layout(attrs: LayoutTransformAttrs, x: Tensor) -> Tensor:
    src, dst = letters(attrs.src_layout), letters(attrs.dst_layout)
    size = dict(zip(src, x.shape, strict=True))
    from_blocks = {c: block_of(attrs.src_layout, c) for c in src}
    to_blocks = {c: block_of(attrs.dst_layout, c) for c in dst}
    shape = []
    for c in dst:
        whole = size[c.upper()] * (from_blocks[c.upper()] or 1)
        shape.append(to_blocks[c] if c.islower() else whole // (to_blocks[c] or 1))

    def element(*index: te.Expr) -> te.Expr:
        at = dict(zip(dst, index, strict=True))
        place = []
        for c in src:
            a, block, to = c.upper(), from_blocks[c], to_blocks[c.upper()]
            if to == block:  # both whole, or split alike
                place.append(at[c])
                continue
            whole = at[a] * to + at[a.lower()] if to else at[a]
            place.append(whole if not block else whole % block if c.islower() else whole // block)
        result: te.Expr = x(*place)
        return result

    return te.compute(shape, element, name="layout_transform", tag="injective")


# --- space_to_batch_nd, batch_to_space_nd: pad or crop, and a transposition --------------------------------------


def _blocks(
    op: str, attrs: BatchToSpaceAttrs | SpaceToBatchAttrs, pairs: Sequence[Sequence[int]], data: Type
) -> TensorType:
    x = need_tensor(op, data)
    block = attrs.block_shape
    if not block or len(block) > x.ndim - 1 or len(pairs) != len(block) or min(block) < 1:
        raise TypeMismatch(f"{op}: block_shape {block} and {pairs} do not fit {x.ndim} dimensions")
    return x


@space_to_batch_nd.infer
def _infer_s2b(attrs: SpaceToBatchAttrs, data: Type) -> TensorType:
    op = "nn.space_to_batch_nd"
    shape = list(_blocks(op, attrs, attrs.paddings, data).known)
    for n, (b, (before, after)) in enumerate(zip(attrs.block_shape, attrs.paddings, strict=True), 1):
        size = shape[n] + before + after
        if isinstance(size, int) and size % b:
            raise TypeMismatch(f"{op}: the padded size {size} of axis {n} is not a multiple of {b}")
        note_meeting(size // b * b, size)
        shape[n], shape[0] = size // b, shape[0] * b
    return TensorType(tuple(shape), need_tensor(op, data).dtype)


@batch_to_space_nd.infer
def _infer_b2s(attrs: BatchToSpaceAttrs, data: Type) -> TensorType:
    op = "nn.batch_to_space_nd"
    shape = list(_blocks(op, attrs, attrs.crops, data).known)
    for n, (b, (before, after)) in enumerate(zip(attrs.block_shape, attrs.crops, strict=True), 1):
        if isinstance(shape[0], int) and shape[0] % b:
            raise TypeMismatch(f"{op}: the batch {shape[0]} is not a multiple of {b}")
        note_meeting(shape[0] // b * b, shape[0])
        shape[n], shape[0] = shape[n] * b - before - after, shape[0] // b
        if bounds(shape[n])[1] < 0:
            raise TypeMismatch(f"{op}: crops {before} and {after} of an axis of {shape[n] + before + after}")
    return TensorType(tuple(shape), need_tensor(op, data).dtype)


def _s2b_plan(shape: tuple[Known, ...], block: tuple[int, ...]) -> tuple[list[Known], list[int], list[Known]]:
    """(split shape, axis order, final shape) that moves blocks of padded data to the batch."""
    m, split, rest = len(block), list(shape[:1]), shape[1 + len(block) :]
    for size, b in zip(shape[1:], block, strict=False):
        split += [size // b, b]
    order = [2 * n + 2 for n in range(m)] + [0] + [2 * n + 1 for n in range(m)]
    order += range(1 + 2 * m, 1 + 2 * m + len(rest))
    final = [shape[0] * int(np.prod(block)), *(s // b for s, b in zip(shape[1:], block, strict=False)), *rest]
    return [*split, *rest], order, final


def _b2s_plan(shape: tuple[Known, ...], block: tuple[int, ...]) -> tuple[list[Known], list[int], list[Known]]:
    m, rest = len(block), shape[1 + len(block) :]
    batch = shape[0] // int(np.prod(block))
    order = [m] + [a for n in range(m) for a in (m + 1 + n, n)]
    order += range(1 + 2 * m, 1 + 2 * m + len(rest))
    final = [batch, *(s * b for s, b in zip(shape[1:], block, strict=False)), *rest]
    return [*block, batch, *shape[1:]], order, final


@space_to_batch_nd.reference
def _reference_s2b(attrs: SpaceToBatchAttrs, x: Array) -> Array:
    width = [(0, 0), *attrs.paddings] + [(0, 0)] * (x.ndim - 1 - len(attrs.block_shape))
    y = np.pad(x, width, constant_values=np.asarray(attrs.pad_value).astype(x.dtype))
    split, order, final = _s2b_plan(y.shape, attrs.block_shape)
    return y.reshape([typical(n) for n in split]).transpose(order).reshape([typical(n) for n in final])


@batch_to_space_nd.reference
def _reference_b2s(attrs: BatchToSpaceAttrs, x: Array) -> Array:
    split, order, final = _b2s_plan(x.shape, attrs.block_shape)
    y = x.reshape([typical(n) for n in split]).transpose(order).reshape([typical(n) for n in final])
    crop = (slice(b, y.shape[n] - a) for n, (b, a) in enumerate(attrs.crops, 1))
    return np.ascontiguousarray(y[(slice(None), *crop)])


@space_to_batch_nd.decompose
def _decompose_s2b(attrs: SpaceToBatchAttrs, x: Expr) -> Expr:
    ndim = type_of(x).ndim
    width = ((0, 0), *attrs.paddings, *((0, 0),) * (ndim - 1 - len(attrs.block_shape)))
    y = call("nn.pad", x, pad_width=width, pad_value=attrs.pad_value)
    split, order, final = _s2b_plan(type_of(y).known, attrs.block_shape)
    return _moved(y, split, order, final)


@batch_to_space_nd.decompose
def _decompose_b2s(attrs: BatchToSpaceAttrs, x: Expr) -> Expr:
    y = _moved(x, *_b2s_plan(type_of(x).known, attrs.block_shape))
    axes = tuple(range(1, 1 + len(attrs.crops)))
    begin = tuple(b for b, _ in attrs.crops)
    end = tuple(type_of(y).known[n] - a for n, (_, a) in enumerate(attrs.crops, 1))
    return call("strided_slice", y, begin=begin, end=end, strides=(1,) * len(axes), axes=axes)


def _moved(x: Expr, split: Sequence[Known], order: Sequence[int], final: Sequence[Known]) -> Expr:
    parts = call("reshape", x, newshape=tuple(split), allowzero=True)
    return call("reshape", call("transpose", parts, axes=tuple(order)), newshape=tuple(final), allowzero=True)


# --- samples and import ----------------------------------------------------------------------------------------------


@batch_flatten.samples
def _samples_flatten() -> Iterator[Sample]:
    yield Sample(None, (f32(2, 3, 4, 2),))
    yield Sample(None, (f32(2, 3),))


@depth_to_space.samples
def _samples_d2s() -> Iterator[Sample]:
    yield Sample(DepthToSpaceAttrs(), (f32(1, 8, 2, 3),))
    yield Sample(DepthToSpaceAttrs(mode="CRD"), (f32(1, 8, 2, 3),))
    yield Sample(DepthToSpaceAttrs(layout="NHWC"), (f32(1, 2, 3, 8),))


@space_to_depth.samples
def _samples_s2d() -> Iterator[Sample]:
    yield Sample(SpaceToDepthAttrs(), (f32(1, 2, 4, 6),))
    yield Sample(SpaceToDepthAttrs(layout="NHWC"), (f32(1, 4, 6, 2),))
    yield Sample(SpaceToDepthAttrs(mode="CRD"), (f32(1, 2, 4, 6),))


@layout_transform.samples
def _samples_layout() -> Iterator[Sample]:
    yield Sample(LayoutTransformAttrs("NCHW", "NHWC"), (f32(1, 3, 4, 5),))
    yield Sample(LayoutTransformAttrs("NCHW", "NCHW4c"), (f32(1, 8, 3, 2),))
    yield Sample(LayoutTransformAttrs("NCHW8c", "NCHW4c"), (f32(1, 2, 3, 2, 8),))
    yield Sample(LayoutTransformAttrs("NCHW4c", "NHWC"), (f32(1, 2, 3, 2, 4),))
    yield Sample(LayoutTransformAttrs("OIHW", "OIHW4i8o"), (f32(16, 8, 3, 3),))


@space_to_batch_nd.samples
def _samples_s2b() -> Iterator[Sample]:
    yield Sample(SpaceToBatchAttrs((2, 2), ((0, 1), (1, 1))), (f32(1, 3, 4, 2),))


@batch_to_space_nd.samples
def _samples_b2s() -> Iterator[Sample]:
    yield Sample(BatchToSpaceAttrs((2, 2), ((0, 1), (1, 0))), (f32(4, 2, 3, 2),))


@layout_transform.bad_samples
def _bad_layout() -> Iterator[BadSample]:
    yield BadSample(LayoutTransformAttrs("NCHW", "NCHW8c"), (f32(1, 3, 4, 4),), "is not a multiple of 8")
    yield BadSample(LayoutTransformAttrs("NCHW", "NCDHW"), (f32(1, 3, 4, 4),), "have different axes")
    yield BadSample(LayoutTransformAttrs("NC-W", "NCHW"), (f32(1, 3, 4, 4),), "is not a layout")


@depth_to_space.bad_samples
def _bad_d2s() -> Iterator[BadSample]:
    yield BadSample(DepthToSpaceAttrs(), (f32(1, 6, 4, 4),), "is not a multiple of 4")


@batch_to_space_nd.bad_samples
def _bad_b2s() -> Iterator[BadSample]:
    attrs = BatchToSpaceAttrs(block_shape=(2,), crops=((2, 1),))
    yield BadSample(attrs, (f32(2, 1, 3),), "crops 2 and 1 of an axis of 2")


def consecutive_layouts(expr: Call) -> Expr | None:
    """layout_transform(layout_transform(x, A, B), B, C)  ->  layout_transform(x, A, C), or x if A is C"""
    inner = expr.args[0]
    if expr.attrs.src_layout == expr.attrs.dst_layout:
        return inner
    if not isinstance(inner, Call) or inner.op is not layout_transform:
        return None
    if inner.attrs.dst_layout != expr.attrs.src_layout:
        return None
    first, last, data = inner.attrs.src_layout, expr.attrs.dst_layout, inner.args[0]
    return data if first == last else layout_transform(data, src_layout=first, dst_layout=last)


layout_transform.simplify(consecutive_layouts, after_layouts=True)

state("layout_transform nn.depth_to_space nn.space_to_depth", Fact.PICKS, precision=Precision.FOLLOW)
state("nn.batch_flatten", Fact.VIEW, Fact.REARRANGES, Fact.PICKS, precision=Precision.FOLLOW)
