"""Operators that give the same elements another shape: reshape, reshape_like, expand_dims, squeeze, transpose.

In: one tensor. Out: the same elements, row-major order kept (transpose: axes permuted). Invariant: index arithmetic is
done in groups of dimensions with equal products, so a reshape that only splits or merges axes costs the divisions it
needs and no more. ONNX rules: rules/shape.py. Joining and cutting: transform.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.extent import Extent, Known, bounds, is_known, note_meeting
from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops._deferred import T, te
from armillary.ops._types import Index, axes_of, axis_of, dims_product, elements, f32, i32
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Follows, Precision
from armillary.relay.types import ANY_DIM, AnyDim, Dim, TensorType

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar

_MOST_AXES = 64  # the runtime knows fewer (relay/call_budgets.py)


def reshape_groups(a: Sequence[Known], b: Sequence[Known]) -> list[tuple[range, range]]:
    """Cut two shapes of equal product into the shortest runs of dimensions with equal products.

    Sizes that are not known when compiling end a run where their products have one form.
    """
    groups, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        i0, j0 = i, j
        left, right = a[i], b[j]
        i, j = i + 1, j + 1
        while left != right and (i < len(a) or j < len(b)):
            if j == len(b) or (i < len(a) and _is_part(left, right)):
                left, i = left * a[i], i + 1
            else:
                right, j = right * b[j], j + 1
        groups.append((range(i0, i), range(j0, j)))
    groups.append((range(i, len(a)), range(j, len(b))))
    return groups


def _is_part(left: Known, right: Known) -> bool:
    """Whether the first product is the one to grow: it is smaller, or it divides the other."""
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    return right % left == 0 if left != 0 else True


def source_index(index: Sequence[object], to: Sequence[Known], source: Sequence[Known]) -> list[te.Expr]:
    """The index into shape `source` of the element at `index` of the same data seen as shape `to`."""
    result: list[Any] = [0] * len(source)
    if 0 in source:
        return result
    for to_axes, source_axes in reshape_groups(to, source):
        count = dims_product(to[axis] for axis in to_axes)
        is_long = isinstance(count, int) and count > 2**31 - 1  # then int32 does not count these elements
        flat: Any = T.const(0, "int64") if is_long else 0
        for axis in to_axes:
            flat = flat * to[axis] + index[axis] if to[axis] != 1 else flat
        axes = [axis for axis in source_axes if source[axis] != 1]
        for position, axis in enumerate(reversed(axes)):
            outermost = position == len(axes) - 1
            result[axis] = flat if outermost else T.floormod(flat, source[axis])
            flat = flat if outermost else T.floordiv(flat, source[axis])
    return result


def reshape_compute(data: te.Tensor, shape: Sequence[Known], name: str) -> te.Tensor:
    """The tensor with another shape of the same size."""
    source = te.extents(data)
    return elements(tuple(shape), lambda *i: data(*source_index(i, shape, source)), name=name, tag="injective")


# --- reshape ------------------------------------------------------------------------------------------------------


@record
class ReshapeAttrs:
    """`newshape`: a size, or 0 copy, -1 infer, -2 copy the rest, -3 merge two, -4 split one by the two that follow.

    With allowzero, 0 is a size like any other.
    """

    newshape: tuple[Known, ...]
    allowzero: bool = False


reshape = Op("reshape", kind=Kind.INJECTIVE, doc="The same elements in another shape.")
reshape.attrs(ReshapeAttrs)


def _spec(attrs: ReshapeAttrs) -> tuple[Known, ...]:
    spec = attrs.newshape if isinstance(attrs.newshape, tuple) else (attrs.newshape,)
    if any(not is_known(d) or (isinstance(d, int) and d < -4) for d in spec):
        raise TypeMismatch(f"reshape: bad newshape {spec}", hint="sizes and the codes 0, -1, -2, -3, -4")
    return spec


def _split(spec: Sequence[Known], position: int, dim: Dim) -> tuple[Dim, Dim]:
    """The two dimensions that code -4 makes of `dim`."""
    if position + 2 >= len(spec):
        raise TypeMismatch(f"reshape: -4 needs two sizes after it in {tuple(spec)}")
    first, second = spec[position + 1], spec[position + 2]
    if first == -1 and second != -1:
        first = dim // second  # type: ignore[assignment]  # unknown where the dimension is
    elif second == -1 and first != -1:
        second = dim // first  # type: ignore[assignment]  # likewise
    if isinstance(dim, AnyDim):
        note_meeting(first * second, dim)
        return first, second
    if first * second != dim:
        raise TypeMismatch(f"reshape: -4 cannot split a dimension of {dim} into {spec[position + 1 : position + 3]}")
    return first, second


def _expand_codes(attrs: ReshapeAttrs, data: Sequence[Dim]) -> list[Dim]:
    """The new shape with all codes but -1 replaced."""
    spec, result = _spec(attrs), list[Dim]()
    position = at = 0

    def take(count: int = 1) -> Sequence[Dim]:
        nonlocal at
        if at + count > len(data):
            raise TypeMismatch(f"reshape: newshape {spec} copies more dimensions than {tuple(data)} has")
        at += count
        return data[at - count : at]

    while position < len(spec):
        code = spec[position]
        if code == 0 and not attrs.allowzero:
            result.extend(take())
        elif code == -2:
            result.extend(take(len(data) - at))
        elif code == -3:
            result.append(dims_product(take(2)))
        elif code == -4:
            result.extend(_split(spec, position, take()[0]))
            position += 2
        else:
            result.append(code)
            at = min(at + 1, len(data))
        position += 1
    return result


def reshaped(attrs: ReshapeAttrs, data: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape that reshape gives."""
    result = _expand_codes(attrs, data)
    holes = [i for i, d in enumerate(result) if isinstance(d, int) and d == -1]
    if len(holes) > 1:
        raise TypeMismatch(f"reshape: more than one -1 in {attrs.newshape}")
    total, rest = dims_product(data), dims_product(d for d in result if d != -1)
    if isinstance(total, int | Extent) and isinstance(rest, int | Extent) and Extent in (type(total), type(rest)):
        return _reshaped_sizes(attrs, result, total, rest)
    if isinstance(total, AnyDim) or isinstance(rest, AnyDim):
        return tuple(_cancelled(data, result) if i in holes else d for i, d in enumerate(result))
    if holes:
        if rest == 0 or total % rest:
            raise TypeMismatch(f"reshape: {total} elements of {tuple(data)} do not divide into {attrs.newshape}")
        result[holes[0]] = total // rest
    elif total != rest:
        raise TypeMismatch(f"reshape: {tuple(data)} has {total} elements, newshape {attrs.newshape} has {rest}")
    return tuple(result)


def _reshaped_sizes(attrs: ReshapeAttrs, result: list[Dim], total: Known, rest: Known) -> tuple[Dim, ...]:
    """The shape where sizes have names: -1 is what is left; counts that differ for all values are refused."""
    if -1 in result:
        note_meeting(total // rest * rest, total)
        return tuple(total // rest if d == -1 else d for d in result)
    note_meeting(total, rest)
    low, high = bounds(total - rest)
    if low > 0 or high < 0:
        raise TypeMismatch(f"reshape: {total} elements, newshape {attrs.newshape} has {rest}")
    return tuple(result)


def _cancelled(data: Sequence[Dim], result: Sequence[Dim]) -> Dim:
    """The size of -1 where each unknown dimension of the data is copied once; else unknown."""
    unknown = sum(isinstance(d, AnyDim) for d in data)
    if unknown != sum(isinstance(d, AnyDim) for d in result):
        return ANY_DIM
    have = math.prod(d for d in data if isinstance(d, int))
    want = math.prod(d for d in result if isinstance(d, int) and d != -1)
    return have // want if want and have % want == 0 else ANY_DIM


@reshape.infer
def infer_reshape(attrs: ReshapeAttrs, data: TensorType) -> TensorType:
    return TensorType(reshaped(attrs, data.shape), data.dtype)


@reshape.reference
def reshape_reference(attrs: ReshapeAttrs, data: Array) -> Array:
    return data.reshape([int(d) for d in reshaped(attrs, data.shape) if isinstance(d, int)])


@reshape.compute
def reshape_op_compute(attrs: ReshapeAttrs, data: te.Tensor) -> te.Tensor:
    shape = reshaped(attrs, te.extents(data))
    return reshape_compute(data, [d for d in shape if isinstance(d, int | Extent)], "reshape")


@reshape.samples
def reshape_samples() -> Iterator[Sample]:
    for newshape, shape in (
        ((6, 4), (2, 3, 4)),
        ((0, -1), (2, 3, 4)),
        ((-2,), (2, 3)),
        ((-3, 0), (2, 3, 4)),
        ((-4, 2, -1, 0), (4, 3)),
        ((-1,), (2, 3)),
        ((2, 1, 3, 1), (6,)),
        ((3, 2), (2, 3)),
        ((), (1, 1)),
        ((1, 1), ()),
        ((0, 5), (0, 7)),
    ):
        yield Sample(ReshapeAttrs(newshape, allowzero=newshape == (0, 5)), (f32(*shape),))


@reshape.bad_samples
def reshape_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ReshapeAttrs((4,)), (f32(2, 3),), "has 6 elements, newshape (4,) has 4")
    yield BadSample(ReshapeAttrs((-1, 4)), (f32(2, 3),), "do not divide")
    yield BadSample(ReshapeAttrs((-1, -1)), (f32(2, 3),), "more than one -1")
    yield BadSample(ReshapeAttrs((0, 0, 0)), (f32(2, 3),), "copies more dimensions")
    yield BadSample(ReshapeAttrs((-4, 2, 2)), (f32(6),), "cannot split a dimension of 6")
    yield BadSample(ReshapeAttrs((-7,)), (f32(6),), "bad newshape")


@record
class ReshapeLikeAttrs:
    """The dimensions [lhs_begin, lhs_end) of data become those [rhs_begin, rhs_end) of shape_like."""

    lhs_begin: int = 0
    lhs_end: int | None = None
    rhs_begin: int = 0
    rhs_end: int | None = None


reshape_like = Op("reshape_like", kind=Kind.INJECTIVE, inputs=("data", "shape_like"), doc="Reshape to another's shape.")
reshape_like.attrs(ReshapeLikeAttrs)


def _like_shape(attrs: ReshapeLikeAttrs, data: Sequence[Dim], like: Sequence[Dim]) -> tuple[Dim, ...]:
    left, right = slice(attrs.lhs_begin, attrs.lhs_end), slice(attrs.rhs_begin, attrs.rhs_end)
    start, stop, _ = left.indices(len(data))
    shape = (*data[:start], *like[right], *data[max(start, stop) :])
    have, want = dims_product(data), dims_product(shape)
    note_meeting(have, want)
    if have != want and not isinstance(have, AnyDim) and not isinstance(want, AnyDim):
        raise TypeMismatch(f"reshape_like: {tuple(data)} has {have} elements, the result {shape} would have {want}")
    return shape


@reshape_like.infer
def infer_reshape_like(attrs: ReshapeLikeAttrs, data: TensorType, like: TensorType) -> TensorType:
    return TensorType(_like_shape(attrs, data.shape, like.shape), data.dtype)


@reshape_like.reference
def reshape_like_reference(attrs: ReshapeLikeAttrs, data: Array, like: Array) -> Array:
    return data.reshape([int(d) for d in _like_shape(attrs, data.shape, like.shape) if isinstance(d, int)])


@reshape_like.compute
def reshape_like_compute(attrs: ReshapeLikeAttrs, data: te.Tensor, like: te.Tensor) -> te.Tensor:
    shape = _like_shape(attrs, te.extents(data), te.extents(like))
    return reshape_compute(data, [d for d in shape if isinstance(d, int | Extent)], "reshape_like")


@reshape_like.decompose
def reshape_like_decompose(attrs: ReshapeLikeAttrs, data: Expr, like: Expr) -> Expr:
    types = data.checked_type, like.checked_type
    assert isinstance(types[0], TensorType) and isinstance(types[1], TensorType), "checked by infer"
    shape = _like_shape(attrs, types[0].static, types[1].static)
    return reshape(data, shape, allowzero=0 in shape)


@reshape_like.samples
def reshape_like_samples() -> Iterator[Sample]:
    yield Sample(ReshapeLikeAttrs(), (f32(2, 6), f32(3, 4)))
    yield Sample(ReshapeLikeAttrs(1, None, 1, None), (f32(2, 6), f32(5, 3, 2)))


@reshape_like.bad_samples
def reshape_like_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ReshapeLikeAttrs(), (f32(2, 6), f32(5)), "has 12 elements")


# --- expand_dims, squeeze -----------------------------------------------------------------------------------------


@record
class ExpandDimsAttrs:
    """Insert `num_newaxis` axes of size 1 before `axis`."""

    axis: int
    num_newaxis: int = 1


expand_dims = Op("expand_dims", kind=Kind.INJECTIVE, doc="Insert axes of size 1.")
expand_dims.attrs(ExpandDimsAttrs)


def _expanded(attrs: ExpandDimsAttrs, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    if attrs.num_newaxis < 0:
        raise TypeMismatch(f"expand_dims: num_newaxis is {attrs.num_newaxis}, wanted at least 0")
    if attrs.num_newaxis > _MOST_AXES:
        raise UnsupportedError(f"expand_dims: a tensor of {len(shape) + attrs.num_newaxis} axes")
    axis = axis_of("expand_dims", attrs.axis, len(shape) + 1)
    return (*shape[:axis], *(1,) * attrs.num_newaxis, *shape[axis:])


@expand_dims.infer
def infer_expand_dims(attrs: ExpandDimsAttrs, data: TensorType) -> TensorType:
    return TensorType(_expanded(attrs, data.shape), data.dtype)


@expand_dims.reference
def expand_dims_reference(attrs: ExpandDimsAttrs, data: Array) -> Array:
    return data.reshape([int(d) for d in _expanded(attrs, data.shape) if isinstance(d, int)])


@expand_dims.compute
def expand_dims_compute(attrs: ExpandDimsAttrs, data: te.Tensor) -> te.Tensor:
    return reshape_compute(data, _expanded(attrs, te.extents(data)), "expand_dims")  # type: ignore[arg-type]


@expand_dims.samples
def expand_dims_samples() -> Iterator[Sample]:
    yield Sample(ExpandDimsAttrs(1), (f32(2, 3),))
    yield Sample(ExpandDimsAttrs(-1, 2), (f32(2, 3),))
    yield Sample(ExpandDimsAttrs(0), (f32(),))


@expand_dims.bad_samples
def expand_dims_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ExpandDimsAttrs(3), (f32(2),), "axis 3 is out of range")
    yield BadSample(ExpandDimsAttrs(0, -1), (f32(2),), "wanted at least 0")


@record
class SqueezeAttrs:
    """The axes to drop, each of size 1; None: all of them."""

    axis: tuple[int, ...] | int | None = None


squeeze = Op("squeeze", kind=Kind.INJECTIVE, doc="Drop axes of size 1.")
squeeze.attrs(SqueezeAttrs)


def _squeezed(attrs: SqueezeAttrs, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    if attrs.axis is None:
        return tuple(d for d in shape if d != 1)
    dropped = (attrs.axis,) if isinstance(attrs.axis, int) else attrs.axis
    axes = axes_of("squeeze", dropped, len(shape))
    for axis in axes:
        if shape[axis] != 1 and not isinstance(shape[axis], AnyDim):
            raise TypeMismatch(f"squeeze: axis {axis} of {tuple(shape)} has size {shape[axis]}, wanted 1")
    return tuple(d for i, d in enumerate(shape) if i not in axes)


@squeeze.infer
def infer_squeeze(attrs: SqueezeAttrs, data: TensorType) -> TensorType:
    return TensorType(_squeezed(attrs, data.shape), data.dtype)


@squeeze.reference
def squeeze_reference(attrs: SqueezeAttrs, data: Array) -> Array:
    return data.reshape([int(d) for d in _squeezed(attrs, data.shape) if isinstance(d, int)])


@squeeze.compute
def squeeze_compute(attrs: SqueezeAttrs, data: te.Tensor) -> te.Tensor:
    return reshape_compute(data, _squeezed(attrs, te.extents(data)), "squeeze")  # type: ignore[arg-type]


@squeeze.samples
def squeeze_samples() -> Iterator[Sample]:
    yield Sample(SqueezeAttrs(), (f32(1, 3, 1, 2),))
    yield Sample(SqueezeAttrs((0, -2)), (f32(1, 3, 1, 2),))
    yield Sample(SqueezeAttrs(0), (f32(1),))


@squeeze.bad_samples
def squeeze_bad_samples() -> Iterator[BadSample]:
    yield BadSample(SqueezeAttrs((1,)), (f32(1, 3),), "has size 3, wanted 1")
    yield BadSample(SqueezeAttrs((0, 0)), (f32(1, 3),), "given twice")


# --- transpose ----------------------------------------------------------------------------------------------------


@record
class TransposeAttrs:
    """Output axis i is input axis axes[i]; None: reversed."""

    axes: tuple[int, ...] | None = None


transpose = Op("transpose", kind=Kind.INJECTIVE, doc="Permute the axes.")
transpose.attrs(TransposeAttrs)


def _permutation(attrs: TransposeAttrs, ndim: int) -> tuple[int, ...]:
    if attrs.axes is None:
        return tuple(reversed(range(ndim)))
    if len(attrs.axes) != ndim:
        raise TypeMismatch(f"transpose: axes {attrs.axes} permute {len(attrs.axes)} dimensions, the input has {ndim}")
    return axes_of("transpose", attrs.axes, ndim)


@transpose.infer
def infer_transpose(attrs: TransposeAttrs, data: TensorType) -> TensorType:
    return TensorType(tuple(data.shape[a] for a in _permutation(attrs, data.ndim)), data.dtype)


@transpose.reference
def transpose_reference(attrs: TransposeAttrs, data: Array) -> Array:
    return np.ascontiguousarray(data.transpose(_permutation(attrs, data.ndim))).reshape(
        tuple(data.shape[a] for a in _permutation(attrs, data.ndim))
    )


@transpose.compute
def transpose_compute(attrs: TransposeAttrs, data: te.Tensor) -> te.Tensor:
    axes = _permutation(attrs, data.ndim)
    shape = te.extents(data)

    def element(*i: Index) -> Scalar:
        return data(*(i[axes.index(axis)] for axis in range(len(axes))))

    return elements(tuple(shape[a] for a in axes), element, name="transpose", tag="injective")


@transpose.samples
def transpose_samples() -> Iterator[Sample]:
    yield Sample(TransposeAttrs(), (f32(2, 3, 4),))
    yield Sample(TransposeAttrs((0, -1, 1)), (i32(2, 3, 4),))
    yield Sample(TransposeAttrs(()), (f32(),))


@transpose.bad_samples
def transpose_bad_samples() -> Iterator[BadSample]:
    yield BadSample(TransposeAttrs((0,)), (f32(2, 3),), "permute 1 dimensions, the input has 2")
    yield BadSample(TransposeAttrs((0, 0)), (f32(2, 3),), "given twice")


def noop_transpose(expr: Call) -> Expr | None:
    """transpose(x, (0, 1, 2…))  ->  x"""
    axes = _order(expr)
    return expr.args[0] if axes is not None and axes == tuple(range(len(axes))) else None


def consecutive_transposes(expr: Call) -> Expr | None:
    """transpose(transpose(x, a), b)  ->  transpose(x, a[b])"""
    inner = expr.args[0]
    if not isinstance(inner, Call) or inner.op is not transpose:
        return None
    first, second = _order(inner), _order(expr)
    if first is None or second is None:
        return None
    result: Expr = transpose(inner.args[0], axes=tuple(first[a] for a in second))
    return result


def _order(expr: Call) -> tuple[int, ...] | None:
    ty = expr.args[0].checked_type
    if not isinstance(ty, TensorType):
        return None
    axes = expr.attrs.axes
    return tuple(a % ty.ndim for a in axes) if axes else tuple(reversed(range(ty.ndim)))


transpose.simplify(noop_transpose, consecutive_transposes)

state("expand_dims squeeze", Fact.VIEW, Fact.REARRANGES, Fact.PICKS, precision=Precision.FOLLOW)
state("reshape", Fact.VIEW, Fact.REARRANGES, Fact.PICKS, precision=Precision.FOLLOW, follows=Follows.SHUFFLE)
state("reshape_like", Fact.VIEW, Fact.REARRANGES, Fact.PICKS, Fact.LIKE, precision=Precision.FOLLOW)
state("transpose", Fact.REARRANGES, Fact.PICKS, precision=Precision.FOLLOW, follows=Follows.TRANSPOSE)
state("squeeze", follows=Follows.SQUEEZE)
