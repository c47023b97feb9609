"""Normalisations: nn.batch_norm, nn.layer_norm, nn.instance_norm, nn.group_norm, nn.rms_norm, nn.l2_normalize, nn.lrn.

In: data, and scale and shift vectors of the size of the normalised (or channel) axis. Out: the data's type; batch_norm
gives (data, moving_mean, moving_var). All but lrn are decomposed, most into nn.standardize and elementwise operators,
which fuse. Invariant: float16 data are normalised in float32. Import: rules/nn/norm.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from armillary.base.extent import Extent
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.ops._types import accumulator
from armillary.ops.nn._windows import (
    Tensor,
    axis_of,
    call,
    complete_vectors,
    f32,
    known,
    need_dtype,
    need_float,
    need_shape,
    need_tensor,
    reduce_axes,
    reshape_to,
    tensor,
    type_of,
    wide,
)
from armillary.ops.nn.activation import along
from armillary.relay.expr import Expr, Tuple
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Follows, Precision
from armillary.relay.types import ANY_DIM, Dim, TensorType, TupleType, Type


@record
class BatchNormAttrs:
    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


@record
class LayerNormAttrs:
    axis: int = -1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


@record
class InstanceNormAttrs:
    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


@record
class GroupNormAttrs:
    num_groups: int = 1
    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


NormAttrs: TypeAlias = BatchNormAttrs | LayerNormAttrs | InstanceNormAttrs | GroupNormAttrs


@record
class RmsNormAttrs:
    axis: int = -1
    epsilon: float = 1e-5


@record
class L2NormalizeAttrs:
    eps: float = 1e-12
    axis: tuple[int, ...] | None = None


@record
class LrnAttrs:
    size: int = 5
    axis: int = 1
    bias: float = 2.0
    alpha: float = 1e-5
    beta: float = 0.75


_AFFINE = ("data", "gamma", "beta")
batch_norm = Op(
    "nn.batch_norm",
    kind=Kind.BROADCAST,
    inputs=(*_AFFINE, "moving_mean", "moving_var"),
    doc="Each channel shifted and scaled by stored means and variances: the result, the means, the variances.",
)
layer_norm = Op(
    "nn.layer_norm",
    kind=Kind.OPAQUE,
    inputs=_AFFINE,
    doc="Each position normalised by the mean and variance along one axis.",
)
instance_norm = Op(
    "nn.instance_norm",
    kind=Kind.OPAQUE,
    inputs=_AFFINE,
    doc="Each channel of each sample normalised by its own mean and variance.",
)
group_norm = Op(
    "nn.group_norm",
    kind=Kind.OPAQUE,
    inputs=_AFFINE,
    doc="Groups of channels of each sample normalised by their mean and variance.",
)
rms_norm = Op(
    "nn.rms_norm",
    kind=Kind.OPAQUE,
    inputs=("data", "weight"),
    doc="Each position divided by the root of the mean of squares along one axis.",
)
l2_normalize = Op(
    "nn.l2_normalize",
    kind=Kind.OPAQUE,
    doc="The data divided by the root of the sum of squares along axes.",
)
lrn = Op("nn.lrn", kind=Kind.CONTRACTION, doc="Local response normalisation across an axis.")
for _op, _attrs in (
    (batch_norm, BatchNormAttrs),
    (layer_norm, LayerNormAttrs),
    (instance_norm, InstanceNormAttrs),
    (group_norm, GroupNormAttrs),
    (rms_norm, RmsNormAttrs),
    (l2_normalize, L2NormalizeAttrs),
    (lrn, LrnAttrs),
):
    _op.attrs(_attrs)


# --- types -----------------------------------------------------------------------------------------------------------


def _check(op: str, axis: int, data: Type, *vectors: Type) -> TensorType:
    x = need_float(op, need_tensor(op, data))
    size = x.shape[axis_of(op, axis, x.ndim)]
    for n, vector in enumerate(vectors):
        v = need_tensor(op, vector, f"input {n + 1}")
        need_dtype(op, x, v)
        need_shape(op, f"input {n + 1}", v, (size,))
    return x


for _op in (batch_norm, layer_norm, instance_norm, group_norm, rms_norm):
    _op.complete(complete_vectors)


@batch_norm.infer
def _infer_batch(attrs: BatchNormAttrs, data: Type, gamma: Type, beta: Type, mean: Type, var: Type) -> TupleType:
    return TupleType((_check("nn.batch_norm", attrs.axis, data, gamma, beta, mean, var), mean, var))


@group_norm.infer
def _infer_group(attrs: GroupNormAttrs, data: Type, gamma: Type, beta: Type) -> TensorType:
    x = _check("nn.group_norm", attrs.axis, data, gamma, beta)
    channels = known(x.shape[attrs.axis])
    if attrs.num_groups < 1 or (channels or 0) % attrs.num_groups:
        raise TypeMismatch(f"nn.group_norm: {channels} channels cannot be divided into {attrs.num_groups} groups")
    return x


@l2_normalize.infer
def _infer_l2(attrs: L2NormalizeAttrs, data: Type) -> TensorType:
    x = need_float("nn.l2_normalize", need_tensor("nn.l2_normalize", data))
    if not isinstance(attrs.axis, tuple | None):
        raise TypeMismatch(f"nn.l2_normalize: axis must be a list of axes, got {attrs.axis!r}")
    for axis in attrs.axis or ():
        axis_of("nn.l2_normalize", axis, x.ndim)
    return x


@lrn.infer
def _infer_lrn(attrs: LrnAttrs, data: Type) -> TensorType:
    if attrs.size < 1:
        raise TypeMismatch(f"nn.lrn: size must be >= 1, got {attrs.size}")
    return _check("nn.lrn", attrs.axis, data)


layer_norm.infer(lambda attrs, x, gamma, beta: _check("nn.layer_norm", attrs.axis, x, gamma, beta))
instance_norm.infer(lambda attrs, x, gamma, beta: _check("nn.instance_norm", attrs.axis, x, gamma, beta))
rms_norm.infer(lambda attrs, x, weight: _check("nn.rms_norm", attrs.axis, x, weight))


# --- references ------------------------------------------------------------------------------------------------------


def standardised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """(x - mean) / sqrt(variance + epsilon) over some axes."""
    mean = x.mean(axes, keepdims=True)
    spread = np.square(x - mean).mean(axes, keepdims=True)
    result: Array = (x - mean) / np.sqrt(spread + x.dtype.type(epsilon))
    return result


def _affine(attrs: NormAttrs, y: Array, axis: int, gamma: Array, beta: Array) -> Array:
    y = y * along(wide(gamma), y.ndim, axis) if attrs.scale else y
    return y + along(wide(beta), y.ndim, axis) if attrs.center else y


@batch_norm.reference
def _reference_batch(
    attrs: BatchNormAttrs, x: Array, gamma: Array, beta: Array, mean: Array, var: Array
) -> tuple[Array, Array, Array]:
    y = wide(x)
    centred = y - along(wide(mean), x.ndim, attrs.axis)
    y = centred / np.sqrt(along(wide(var), x.ndim, attrs.axis) + y.dtype.type(attrs.epsilon))
    return _affine(attrs, y, attrs.axis, gamma, beta).astype(x.dtype), mean, var


@layer_norm.reference
def _reference_layer(attrs: LayerNormAttrs, x: Array, gamma: Array, beta: Array) -> Array:
    y = standardised(wide(x), (attrs.axis,), attrs.epsilon)
    return _affine(attrs, y, attrs.axis, gamma, beta).astype(x.dtype)


@instance_norm.reference
def _reference_instance(attrs: InstanceNormAttrs, x: Array, gamma: Array, beta: Array) -> Array:
    axes = tuple(a for a in range(1, x.ndim) if a != attrs.axis % x.ndim)
    return _affine(attrs, standardised(wide(x), axes, attrs.epsilon), attrs.axis, gamma, beta).astype(x.dtype)


@group_norm.reference
def _reference_group(attrs: GroupNormAttrs, x: Array, gamma: Array, beta: Array) -> Array:
    axis = attrs.axis % x.ndim
    y = wide(np.moveaxis(x, axis, 1))
    grouped = y.reshape(y.shape[0], attrs.num_groups, math.prod(y.shape[1:]) // attrs.num_groups)
    y = np.moveaxis(standardised(grouped, (2,), attrs.epsilon).reshape(y.shape), 1, axis)
    return _affine(attrs, y, axis, gamma, beta).astype(x.dtype)


@rms_norm.reference
def _reference_rms(attrs: RmsNormAttrs, x: Array, weight: Array) -> Array:
    y = wide(x)
    y = y / np.sqrt(np.square(y).mean(attrs.axis, keepdims=True) + y.dtype.type(attrs.epsilon))
    result: Array = (y * along(wide(weight), y.ndim, attrs.axis)).astype(x.dtype)
    return result


@l2_normalize.reference
def _reference_l2(attrs: L2NormalizeAttrs, x: Array) -> Array:
    y = wide(x)
    result: Array = (y / np.sqrt(np.maximum(np.square(y).sum(attrs.axis, keepdims=True), attrs.eps))).astype(x.dtype)
    return result


def _lrn_window(attrs: LrnAttrs, extent: Dim) -> tuple[int, int]:
    """How far the window goes back and forth, no farther than there are elements."""
    before = (attrs.size - 1) // 2
    after, most = attrs.size - 1 - before, extent - 1 if isinstance(extent, int) else attrs.size
    return max(min(before, most), 0), max(min(after, most), 0)


@lrn.flops
def _flops_lrn(attrs: LrnAttrs, types: Sequence[TensorType], result: TensorType) -> int:
    """A square and a sum for each neighbour, a power and a division."""
    return result.size * (2 * min(attrs.size, types[0].static[attrs.axis]) + 2)


@lrn.reference
def _reference_lrn(attrs: LrnAttrs, x: Array) -> Array:
    y = np.moveaxis(wide(x), attrs.axis, 0)
    before, after = _lrn_window(attrs, y.shape[0])
    padded = np.pad(np.square(y), [(before, after)] + [(0, 0)] * (y.ndim - 1))
    total = sum(padded[k : k + y.shape[0]] for k in range(before + 1 + after))
    out = y / np.power(attrs.bias + attrs.alpha / attrs.size * total, attrs.beta)
    return np.moveaxis(out, 0, attrs.axis).astype(x.dtype)


@lrn.compute
def _compute_lrn(attrs: LrnAttrs, x: Tensor) -> Tensor:
    axis = attrs.axis % len(x.shape)
    extent = T.as_int(x.shape[axis])
    before, after = _lrn_window(attrs, ANY_DIM if extent is None else extent)
    (k,), total_type = reduce_axes([before + 1 + after], ["k"]), accumulator(x.dtype)

    def square_sum(*index: te.Expr) -> te.Expr:
        at = list(index)
        at[axis] = index[axis] + k - before
        inside = T.all_of(te.likely(at[axis] >= 0), te.likely(at[axis] < x.shape[axis]))
        value = T.cast(x(*at), total_type)
        return te.sum(te.if_then_else(inside, value * value, T.const(0, total_type)), axis=[k])

    total = te.compute(x.shape, square_sum, name="lrn_sum", tag="lrn_sum")

    def element(*index: te.Expr) -> te.Expr:
        base = total(*index) * T.const(attrs.alpha / attrs.size, total_type) + T.const(attrs.bias, total_type)
        return T.cast(T.cast(x(*index), total_type) / _power(base, attrs.beta), x.dtype)

    return te.compute(x.shape, element, name="lrn", tag="lrn")


def _power(base: te.Expr, exponent: float) -> te.Expr:
    """base ** exponent; by roots, which are exact and ten times as fast, for the usual exponents."""
    if exponent == 1.0:
        return base
    root = te.sqrt(base)
    if exponent == 0.5:
        return root
    if exponent == 0.75:
        return root * te.sqrt(root)
    return te.power(base, T.const(exponent, base.dtype))


# --- decompositions --------------------------------------------------------------------------------------------------


def widened(x: Expr) -> Expr:
    """float16 and bfloat16 as float32; others as they are."""
    return call("cast", x, dtype="float32") if type_of(x).dtype.bits < 32 else x


def narrowed(y: Expr, like: Expr) -> Expr:
    """`y` in the dtype of `like`."""
    dtype = type_of(like).dtype
    return y if type_of(y).dtype == dtype else call("cast", y, dtype=dtype)


def standardise(x: Expr, axes: tuple[int, ...], epsilon: float) -> Expr:
    """(x - mean) / sqrt(variance + epsilon) over some axes."""
    return call("nn.standardize", x, axis=axes, epsilon=epsilon)


def spread_along(vector: Expr, ndim: int, axis: int) -> Expr:
    """A vector shaped to broadcast along one axis of `ndim`."""
    after = ndim - 1 - axis % ndim
    return call("expand_dims", vector, axis=1, num_newaxis=after) if after else vector


@lrn.decompose
def _decompose_lrn(attrs: LrnAttrs, x: Expr) -> Expr | None:
    """As (outer, channels, inner), which is what the schedule knows."""
    ty = type_of(x)
    axis = attrs.axis % ty.ndim
    if (ty.ndim == 3 and axis == 1) or not all(isinstance(d, int) for d in ty.shape):
        return None
    before, after = ty.static[:axis], ty.static[axis + 1 :]
    flat = reshape_to(x, (math.prod(before), ty.static[axis], math.prod(after)))
    return reshape_to(call("nn.lrn", flat, **{**attrs.__dict__, "axis": 1}), ty.static)


def _scaled(attrs: NormAttrs, y: Expr, axis: int, gamma: Expr, beta: Expr) -> Expr:
    ndim = type_of(y).ndim
    y = y * spread_along(widened(gamma), ndim, axis) if attrs.scale else y
    return y + spread_along(widened(beta), ndim, axis) if attrs.center else y


@batch_norm.decompose
def _decompose_batch(attrs: BatchNormAttrs, x: Expr, gamma: Expr, beta: Expr, mean: Expr, var: Expr) -> Expr:
    """x * scale + shift, with scale = gamma / sqrt(var + epsilon) and shift = beta - mean * scale."""
    deviation = call("sqrt", var + attrs.epsilon)
    factor = gamma / deviation if attrs.scale else 1.0 / deviation
    shift = beta - mean * factor if attrs.center else -(mean * factor)
    ndim = type_of(x).ndim
    y = x * spread_along(factor, ndim, attrs.axis) + spread_along(shift, ndim, attrs.axis)
    return Tuple((y, mean, var))


@layer_norm.decompose
def _decompose_layer(attrs: LayerNormAttrs, x: Expr, gamma: Expr, beta: Expr) -> Expr:
    y = standardise(widened(x), (attrs.axis % type_of(x).ndim,), attrs.epsilon)
    return narrowed(_scaled(attrs, y, attrs.axis, gamma, beta), x)


@instance_norm.decompose
def _decompose_instance(attrs: InstanceNormAttrs, x: Expr, gamma: Expr, beta: Expr) -> Expr:
    ndim = type_of(x).ndim
    axes = tuple(a for a in range(1, ndim) if a != attrs.axis % ndim)
    y = standardise(widened(x), axes, attrs.epsilon) if axes else widened(x) * 0.0
    return narrowed(_scaled(attrs, y, attrs.axis, gamma, beta), x)


@group_norm.decompose
def _decompose_group(attrs: GroupNormAttrs, x: Expr, gamma: Expr, beta: Expr) -> Expr:
    """On the data with groups and their channels apart, scale and shift too, so that all is one kernel."""
    shape, axis = type_of(x).shape, attrs.axis % type_of(x).ndim
    channels = known(shape[axis])
    sizes = tuple(d for d in shape[1:] if isinstance(d, int | Extent))
    if channels is None or len(sizes) < len(shape) - 1:
        raise TypeMismatch(f"nn.group_norm: the sizes after the batch must be known, got {shape}")
    batch = shape[0] if isinstance(shape[0], int | Extent) else -1
    groups = (attrs.num_groups, channels // attrs.num_groups)
    split = (batch, *sizes[: axis - 1], *groups, *sizes[axis:])
    axes = tuple(a for a in range(1, len(split)) if a != axis)
    y = standardise(reshape_to(widened(x), split), axes, attrs.epsilon)
    ones = (1,) * (len(shape) - 1 - axis)
    y = y * reshape_to(widened(gamma), (*groups, *ones)) if attrs.scale else y
    y = y + reshape_to(widened(beta), (*groups, *ones)) if attrs.center else y
    return narrowed(reshape_to(y, (batch, *sizes)), x)


@rms_norm.decompose
def _decompose_rms(attrs: RmsNormAttrs, x: Expr, weight: Expr) -> Expr:
    y, ndim = widened(x), type_of(x).ndim
    y = call("nn.standardize", y, axis=(attrs.axis % ndim,), epsilon=attrs.epsilon, center=False)
    return narrowed(y * spread_along(widened(weight), ndim, attrs.axis), x)


@l2_normalize.decompose
def _decompose_l2(attrs: L2NormalizeAttrs, x: Expr) -> Expr:
    y = widened(x)
    axes = attrs.axis if attrs.axis is not None else tuple(range(type_of(x).ndim))
    total = call("sum", y * y, axis=axes, keepdims=True)
    return narrowed(y / call("sqrt", call("maximum", total, attrs.eps)), x)


# --- samples ---------------------------------------------------------------------------------------------------------


@batch_norm.samples
def _samples_batch() -> Iterator[Sample]:
    spread = np.linspace(0.5, 2.0, 3, dtype=np.float32)
    yield Sample(BatchNormAttrs(), (f32(2, 3, 4, 4), f32(3), f32(3), f32(3), spread))
    yield Sample(BatchNormAttrs(axis=-1, scale=False), (f32(2, 5, 3), f32(3), f32(3), f32(3), spread))


@layer_norm.samples
def _samples_layer() -> Iterator[Sample]:
    yield Sample(LayerNormAttrs(), (f32(2, 4, 8), f32(8), f32(8)))
    yield Sample(LayerNormAttrs(axis=1, center=False), (f32(2, 4, 8), f32(4), f32(4)))


@instance_norm.samples
def _samples_instance() -> Iterator[Sample]:
    yield Sample(InstanceNormAttrs(), (f32(2, 3, 5, 4), f32(3), f32(3)))


@group_norm.samples
def _samples_group() -> Iterator[Sample]:
    yield Sample(GroupNormAttrs(num_groups=2), (f32(2, 4, 3, 3), f32(4), f32(4)))


@rms_norm.samples
def _samples_rms() -> Iterator[Sample]:
    yield Sample(RmsNormAttrs(), (f32(2, 4, 8), f32(8)))


@l2_normalize.samples
def _samples_l2() -> Iterator[Sample]:
    yield Sample(L2NormalizeAttrs(axis=(1,)), (f32(2, 5, 3),))
    yield Sample(L2NormalizeAttrs(), (f32(2, 5),))


@lrn.samples
def _samples_lrn() -> Iterator[Sample]:
    yield Sample(LrnAttrs(), (f32(1, 7, 3, 3),))
    yield Sample(LrnAttrs(size=4, axis=-1, bias=1.0, alpha=0.1), (f32(1, 3, 6),))


@batch_norm.bad_samples
def _bad_batch() -> Iterator[BadSample]:
    yield BadSample(BatchNormAttrs(), (f32(2, 3, 4), f32(4), f32(3), f32(3), f32(3)), "input 1 has shape (4,)")


@group_norm.bad_samples
def _bad_group() -> Iterator[BadSample]:
    yield BadSample(GroupNormAttrs(num_groups=3), (f32(2, 4, 3), f32(4), f32(4)), "cannot be divided into 3 groups")


@layer_norm.bad_samples
def _bad_layer() -> Iterator[BadSample]:
    yield BadSample(LayerNormAttrs(), (tensor("int32", 2, 4), f32(4), f32(4)), "floating-point dtype")


state("nn.batch_norm", precision=Precision.FOLLOW, follows=Follows.BATCH_NORM)
state("nn.group_norm nn.instance_norm nn.l2_normalize nn.layer_norm nn.lrn nn.rms_norm", precision=Precision.NEVER)
state("nn.instance_norm nn.layer_norm", follows=Follows.NORMALIZED)
state("nn.l2_normalize", follows=Follows.LENGTH)
