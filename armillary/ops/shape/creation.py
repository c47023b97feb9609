"""Tensors from numbers: full, zeros, ones (and their like forms), arange, eye, one_hot, trilu, shape_of, ndarray_size.

In: attributes, at most a fill value, indices or a tensor that lends its shape. Out: a new tensor. Invariant: shapes are
attributes, so they are known when compiling; a result that depends on nothing else folds to a constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Extent, Known, ceil_div, most
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._convert import convert
from armillary.ops._deferred import T, te
from armillary.ops._types import (
    Index,
    axis_of,
    check_holds,
    check_kind,
    check_same_dtype,
    elements,
    f32,
    fixed_shape,
    i32,
    ints,
    number,
    of_type,
    widened,
)
from armillary.ops.shape.transform import broadcast_to
from armillary.relay.expr import Constant, Expr, const
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact, Precision
from armillary.relay.types import AnyDim, TensorType

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar


@record
class FullAttrs:
    """Shape and dtype of the result; dtype "" means that of the fill value, or float32."""

    shape: tuple[Known, ...]
    dtype: str = ""


def _static(name: str, shape: Sequence[Known]) -> tuple[Known, ...]:
    if not isinstance(shape, tuple) or any(not isinstance(d, Extent) and (type(d) is not int or d < 0) for d in shape):
        raise TypeMismatch(f"{name}: the shape {shape} is not a list of sizes, each at least 0")
    return shape


# --- full, zeros, ones --------------------------------------------------------------------------------------------

full = Op("full", kind=Kind.BROADCAST, inputs=("fill_value",), doc="A tensor filled with one value.")
full.attrs(FullAttrs)


@full.infer
def infer_full(attrs: FullAttrs, fill_value: TensorType) -> TensorType:
    if fill_value.shape not in ((), (1,)):
        raise TypeMismatch(f"full: fill_value has shape {fill_value.shape}, wanted a scalar")
    return TensorType(_static("full", attrs.shape), DType(attrs.dtype) if attrs.dtype else fill_value.dtype)


@full.reference
def full_reference(attrs: FullAttrs, fill_value: Array) -> Array:
    dtype = DType(attrs.dtype).numpy if attrs.dtype else fill_value.dtype
    return np.full(fixed_shape("full", attrs.shape), fill_value.reshape(()).astype(dtype), dtype)


def filled_tensor(shape: Sequence[Known], fill_value: te.Tensor, dtype: str) -> te.Tensor:
    """A tensor whose elements all are the fill value."""
    at = (0,) * fill_value.ndim
    return elements(shape, lambda *i: convert(fill_value(*at), dtype), name="full", tag="broadcast")


@full.compute
def full_compute(attrs: FullAttrs, fill_value: te.Tensor) -> te.Tensor:
    return filled_tensor(attrs.shape, fill_value, attrs.dtype or fill_value.dtype)


@full.samples
def full_samples() -> Iterator[Sample]:
    yield Sample(FullAttrs((2, 3)), (f32(),))
    yield Sample(FullAttrs((4,), "int32"), (f32(1),))
    yield Sample(FullAttrs(()), (i32(),))


@full.bad_samples
def full_bad_samples() -> Iterator[BadSample]:
    yield BadSample(FullAttrs((2, 3)), (f32(2),), "wanted a scalar")
    yield BadSample(FullAttrs((2, -3)), (f32(),), "each at least 0")


def _define_filled(name: str, value: int) -> tuple[Op, Op]:
    """zeros and zeros_like, or ones and ones_like."""
    plain = Op(name, kind=Kind.BROADCAST, inputs=(), doc=f"A tensor of {name}.")
    plain.attrs(FullAttrs)
    like = Op(f"{name}_like", kind=Kind.BROADCAST, doc=f"A tensor of {name} of another's shape and dtype.")

    @plain.infer
    def infer(attrs: FullAttrs) -> TensorType:
        return TensorType(_static(name, attrs.shape), DType(attrs.dtype or "float32"))

    @plain.reference
    def reference(attrs: FullAttrs) -> Array:
        return np.full(fixed_shape(name, attrs.shape), value, DType(attrs.dtype or "float32").numpy)

    @plain.compute
    def compute(attrs: FullAttrs) -> te.Tensor:
        return elements(attrs.shape, lambda *i: T.const(value, attrs.dtype or "float32"), name=name, tag="broadcast")

    @plain.samples
    def samples() -> Iterator[Sample]:
        yield Sample(FullAttrs((2, 3)), ())
        yield Sample(FullAttrs((4,), "int64"), ())

    @plain.bad_samples
    def bad_samples() -> Iterator[BadSample]:
        yield BadSample(FullAttrs((-1,)), (), "each at least 0")

    @like.infer
    def infer_like(attrs: None, data: TensorType) -> TensorType:
        return data

    @like.reference
    def reference_like(attrs: None, data: Array) -> Array:
        return np.full(data.shape, value, data.dtype)

    @like.compute
    def compute_like(attrs: None, data: te.Tensor) -> te.Tensor:
        return elements(data.shape, lambda *i: T.const(value, data.dtype), name=like.name, tag="broadcast")

    @like.decompose
    def decompose_like(attrs: None, data: Expr) -> Expr:
        ty = data.checked_type
        assert isinstance(ty, TensorType), "checked by infer"
        return plain(ty.shape, ty.dtype)

    @like.samples
    def samples_like() -> Iterator[Sample]:
        yield Sample(None, (f32(2, 3),))
        yield Sample(None, (i32(),))

    return plain, like


zeros, zeros_like = _define_filled("zeros", 0)
ones, ones_like = _define_filled("ones", 1)

full_like = Op("full_like", kind=Kind.BROADCAST, inputs=("data", "fill_value"), doc="Another's shape, one value.")


@full_like.infer
def infer_full_like(attrs: None, data: TensorType, fill_value: TensorType) -> TensorType:
    if fill_value.shape not in ((), (1,)):
        raise TypeMismatch(f"full_like: fill_value has shape {fill_value.shape}, wanted a scalar")
    return data


@full_like.reference
def full_like_reference(attrs: None, data: Array, fill_value: Array) -> Array:
    return np.full(data.shape, fill_value.reshape(()).astype(data.dtype), data.dtype)


@full_like.compute
def full_like_compute(attrs: None, data: te.Tensor, fill_value: te.Tensor) -> te.Tensor:
    return filled_tensor(te.extents(data), fill_value, data.dtype)


@full_like.decompose
def full_like_decompose(attrs: None, data: Expr, fill_value: Expr) -> Expr:
    ty = data.checked_type
    assert isinstance(ty, TensorType), "checked by infer"
    return full(fill_value, ty.shape, ty.dtype)


@full_like.samples
def full_like_samples() -> Iterator[Sample]:
    yield Sample(None, (f32(2, 3), f32()))


@full_like.bad_samples
def full_like_bad_samples() -> Iterator[BadSample]:
    yield BadSample(None, (f32(2, 3), f32(2, 3)), "wanted a scalar")


# --- arange, eye --------------------------------------------------------------------------------------------------


@record
class ArangeAttrs:
    """start, start + step, … before stop. Called with one number, that is stop."""

    start: float | Known
    stop: float | Known | None = None
    step: float = 1
    dtype: str = "float32"


arange = Op("arange", kind=Kind.INJECTIVE, inputs=(), doc="Evenly spaced numbers.")
arange.attrs(ArangeAttrs)


def _range(attrs: ArangeAttrs) -> tuple[float | Known, float, Known]:
    """First number, step, count."""
    start, stop = (0, attrs.start) if attrs.stop is None else (attrs.start, attrs.stop)
    step = 1 if attrs.step is None else attrs.step
    if isinstance(start, Extent) or isinstance(stop, Extent):
        if isinstance(start, float) or isinstance(stop, float) or not isinstance(step, int) or step == 0:
            raise TypeMismatch(f"arange: cannot count from {start} to {stop} by {step}", hint="sizes are whole numbers")
        span, by = (stop - start, step) if step > 0 else (start - stop, -step)
        return start, step, ceil_div(most(span, 0), by)
    if step == 0 or not all(math.isfinite(v) for v in (start, stop, step)):
        raise TypeMismatch(f"arange: cannot count from {start} to {stop} by {step}")
    return start, step, max(0, math.ceil((stop - start) / step))


@arange.infer
def infer_arange(attrs: ArangeAttrs) -> TensorType:
    return TensorType((_range(attrs)[2],), DType(attrs.dtype))


@arange.reference
def arange_reference(attrs: ArangeAttrs) -> Array:
    start, step, count = _range(attrs)
    if isinstance(start, Extent) or isinstance(count, Extent):
        raise TypeMismatch(f"arange: {attrs} has sizes without values", hint="bind_sizes gives them values")
    return np.asarray(start + step * np.arange(count)).astype(DType(attrs.dtype).numpy)


@arange.compute
def arange_compute(attrs: ArangeAttrs) -> te.Tensor:
    start, step, count = _range(attrs)
    wide = "float64" if isinstance(start, float) or isinstance(step, float) else "int64"

    def element(i: Scalar) -> Scalar:
        first = T.const(start, wide) if not isinstance(start, Extent) else number(start, wide)
        return convert(T.add(first, T.mul(T.const(step, wide), T.cast(i, wide))), attrs.dtype)

    return elements((count,), element, name="arange", tag="injective")


@arange.samples
def arange_samples() -> Iterator[Sample]:
    yield Sample(ArangeAttrs(5), ())
    yield Sample(ArangeAttrs(1, 10, 3, "int32"), ())
    yield Sample(ArangeAttrs(2.0, -1.0, -0.5), ())


@arange.bad_samples
def arange_bad_samples() -> Iterator[BadSample]:
    yield BadSample(ArangeAttrs(1, 10, 0), (), "cannot count from 1 to 10 by 0")


@record
class EyeAttrs:
    """A rows × columns matrix with ones on diagonal k."""

    rows: int
    columns: int
    k: int = 0
    dtype: str = "float32"


eye = Op("eye", kind=Kind.INJECTIVE, inputs=(), doc="Ones on a diagonal, zeros elsewhere.")
eye.attrs(EyeAttrs)


@eye.infer
def infer_eye(attrs: EyeAttrs) -> TensorType:
    return TensorType(_static("eye", (attrs.rows, attrs.columns)), DType(attrs.dtype))


@eye.reference
def eye_reference(attrs: EyeAttrs) -> Array:
    return np.eye(attrs.rows, attrs.columns, attrs.k).astype(DType(attrs.dtype).numpy)


@eye.compute
def eye_compute(attrs: EyeAttrs) -> te.Tensor:
    return elements(
        (attrs.rows, attrs.columns),
        lambda i, j: T.cast(T.equal(i + attrs.k, j), attrs.dtype),
        name="eye",
        tag="injective",
    )


@eye.samples
def eye_samples() -> Iterator[Sample]:
    yield Sample(EyeAttrs(3, 4), ())
    yield Sample(EyeAttrs(3, 3, -1, "int32"), ())


@eye.bad_samples
def eye_bad_samples() -> Iterator[BadSample]:
    yield BadSample(EyeAttrs(-1, 2), (), "each at least 0")


# --- one_hot ------------------------------------------------------------------------------------------------------


@record
class OneHotAttrs:
    """depth: size of the new axis, put at `axis` of the result."""

    depth: int
    axis: int = -1
    dtype: str = "float32"


_HOT = ("indices", "on_value", "off_value")
one_hot = Op(
    "one_hot", kind=Kind.INJECTIVE, inputs=_HOT, doc="on_value where the new axis equals the index, else off_value."
)
one_hot.attrs(OneHotAttrs)


@one_hot.infer
def infer_one_hot(attrs: OneHotAttrs, indices: TensorType, on: TensorType, off: TensorType) -> TensorType:
    check_kind("one_hot", "indices", indices, "integer")
    check_same_dtype("one_hot", (on, off))
    if on.shape not in ((), (1,)) or off.shape not in ((), (1,)):
        raise TypeMismatch(f"one_hot: on_value and off_value have shapes {on.shape} and {off.shape}, wanted scalars")
    axis = axis_of("one_hot", attrs.axis, indices.ndim + 1)
    (depth,) = _static("one_hot", (attrs.depth,))
    return TensorType((*indices.shape[:axis], depth, *indices.shape[axis:]), DType(attrs.dtype))


@one_hot.reference
def one_hot_reference(attrs: OneHotAttrs, indices: Array, on: Array, off: Array) -> Array:
    axis = attrs.axis % (indices.ndim + 1)
    places = np.arange(attrs.depth).reshape((-1,) + (1,) * (indices.ndim - axis))
    hot = np.expand_dims(indices, axis) == places
    return np.where(hot, on.reshape(()), off.reshape(())).astype(DType(attrs.dtype).numpy)


@one_hot.compute
def one_hot_compute(attrs: OneHotAttrs, indices: te.Tensor, on: te.Tensor, off: te.Tensor) -> te.Tensor:
    inner = te.extents(indices)
    axis = attrs.axis % (len(inner) + 1)

    def element(*i: Index) -> Scalar:
        place = widened(indices(*i[:axis], *i[axis + 1 :]))
        hot = T.equal(place, T.cast(i[axis], place.dtype))
        return convert(T.select(hot, on(*(0,) * on.ndim), off(*(0,) * off.ndim)), attrs.dtype)

    return elements((*inner[:axis], attrs.depth, *inner[axis:]), element, name="one_hot", tag="injective")


@one_hot.samples
def one_hot_samples() -> Iterator[Sample]:
    yield Sample(OneHotAttrs(4), (ints([1, 3, -1, 5]), np.float32(2).reshape(()), np.float32(-1).reshape(())))
    yield Sample(OneHotAttrs(3, 0, "int32"), (ints([[1, 2]], "int64"), i32(), i32(1)))


@one_hot.bad_samples
def one_hot_bad_samples() -> Iterator[BadSample]:
    yield BadSample(OneHotAttrs(4), (f32(3), f32(), f32()), "wanted integer")
    yield BadSample(OneHotAttrs(4), (i32(3), f32(2), f32()), "wanted scalars")
    yield BadSample(OneHotAttrs(4, 3), (i32(3), f32(), f32()), "axis 3 is out of range")


# --- trilu --------------------------------------------------------------------------------------------------------


@record
class TriluAttrs:
    """Keep what is on and above (upper) or below diagonal k of the last two axes."""

    k: int = 0
    upper: bool = True


_FAR = 1 << 29  # diagonals further away are those of no matrix
trilu = Op("trilu", kind=Kind.INJECTIVE, doc="The upper or lower triangle of the last two axes; zeros elsewhere.")
trilu.attrs(TriluAttrs)


@trilu.infer
def infer_trilu(attrs: TriluAttrs, data: TensorType) -> TensorType:
    if data.ndim < 2:
        raise TypeMismatch(f"trilu: the input has {data.ndim} dimensions, wanted at least 2")
    return data


@trilu.reference
def trilu_reference(attrs: TriluAttrs, data: Array) -> Array:
    rows, columns = np.indices(data.shape[-2:])
    keep = columns - rows >= attrs.k if attrs.upper else columns - rows <= attrs.k
    return np.where(keep, data, np.zeros((), data.dtype))


@trilu.compute
def trilu_compute(attrs: TriluAttrs, data: te.Tensor) -> te.Tensor:
    limit = max(-_FAR, min(_FAR, attrs.k))

    def element(*i: Index) -> Scalar:
        over = i[-1] - i[-2] - limit if attrs.upper else i[-2] - i[-1] + limit
        keep = T.equal(T.floordiv(over, _FAR * 2), 0)  # over >= 0, asked of whole vectors: rows are not cut there
        return T.select(keep, data(*i), T.const(0, data.dtype))

    return elements(data.shape, element, name="trilu")


@trilu.samples
def trilu_samples() -> Iterator[Sample]:
    yield Sample(TriluAttrs(), (f32(3, 4),))
    yield Sample(TriluAttrs(-1, False), (i32(2, 4, 3),))


@trilu.bad_samples
def trilu_bad_samples() -> Iterator[BadSample]:
    yield BadSample(TriluAttrs(), (f32(3),), "wanted at least 2")


# --- shape_of, ndarray_size ---------------------------------------------------------------------------------------


@record
class CountAttrs:
    """The dtype of the numbers."""

    dtype: str = "int32"


shape_of = Op("shape_of", kind=Kind.OPAQUE, doc="The shape, as a tensor.")
ndarray_size = Op("ndarray_size", kind=Kind.OPAQUE, doc="The number of elements, as a scalar.")
shape_of.attrs(CountAttrs)
ndarray_size.attrs(CountAttrs)


def _of_shape(values: Sequence[int], dtype: str) -> Array:
    return np.array(values, DType(dtype).numpy)


@shape_of.infer
def infer_shape_of(attrs: CountAttrs, data: TensorType) -> TensorType:
    for size in data.shape:
        check_holds("shape_of", attrs.dtype, size)
    return TensorType((data.ndim,), DType(attrs.dtype))


@shape_of.reference
def shape_of_reference(attrs: CountAttrs, data: Array) -> Array:
    return _of_shape(data.shape, attrs.dtype)


@shape_of.compute
def shape_of_compute(attrs: CountAttrs, data: te.Tensor) -> te.Tensor:
    shape = te.extents(data)

    def element(i: Scalar) -> Scalar:
        value = T.const(0, attrs.dtype)
        for axis, size in enumerate(shape):
            value = T.select(T.equal(i, axis), T.cast(size, attrs.dtype), value)
        return value

    return elements((len(shape),), element, name="shape_of")


@shape_of.decompose
def shape_of_decompose(attrs: CountAttrs, data: Expr) -> Expr | None:
    ty = data.checked_type
    assert isinstance(ty, TensorType), "checked by infer"
    is_open = any(isinstance(size, AnyDim) for size in ty.shape)
    return None if is_open else Constant(_of_shape(ty.static, attrs.dtype))


@ndarray_size.infer
def infer_ndarray_size(attrs: CountAttrs, data: TensorType) -> TensorType:
    if not any(isinstance(size, AnyDim) for size in data.shape):
        check_holds("ndarray_size", attrs.dtype, data.size)
    return TensorType((), DType(attrs.dtype))


@ndarray_size.reference
def ndarray_size_reference(attrs: CountAttrs, data: Array) -> Array:
    return np.array(data.size, DType(attrs.dtype).numpy)


@ndarray_size.compute
def ndarray_size_compute(attrs: CountAttrs, data: te.Tensor) -> te.Tensor:
    size = math.prod(te.extents(data))
    return elements((), lambda *i: T.cast(size, attrs.dtype), name="ndarray_size")


@ndarray_size.decompose
def ndarray_size_decompose(attrs: CountAttrs, data: Expr) -> Expr | None:
    ty = data.checked_type
    assert isinstance(ty, TensorType), "checked by infer"
    is_open = any(isinstance(size, AnyDim) for size in ty.shape)
    return None if is_open else Constant(np.array(ty.size, DType(attrs.dtype).numpy))


@shape_of.samples
def shape_of_samples() -> Iterator[Sample]:
    yield Sample(CountAttrs(), (f32(2, 3, 4),))
    yield Sample(CountAttrs("int64"), (of_type("bool", 5),))


@ndarray_size.samples
def ndarray_size_samples() -> Iterator[Sample]:
    yield Sample(CountAttrs(), (f32(2, 3, 4),))
    yield Sample(CountAttrs("int64"), (f32(),))


def filled(value: Array, shape: Sequence[int]) -> Expr:
    """A constant when small, else a broadcast scalar constant."""
    if math.prod(shape) <= 4096:
        return const(np.full(tuple(shape), value.reshape(())))
    return broadcast_to(const(value.reshape(())), tuple(shape))


state("arange", precision=Precision.NEVER)
state("full ones zeros", precision=Precision.FOLLOW)
state("full_like ones_like zeros_like", Fact.LIKE)
state("ndarray_size", Fact.TYPE_ONLY)
state("shape_of", Fact.TYPE_ONLY, precision=Precision.FOLLOW)
state("full ndarray_size ones ones_like shape_of zeros zeros_like", Fact.FLAT)
