"""What the neural-network operators share: window arithmetic, layouts as strings, padding, checks.

In: attribute values as users write them (an int or a tuple; 1, n or 2n paddings) and dimensions (int, AnyDim or TE
expressions). Out: normal forms: one int per spatial axis, one (before, after) pair per axis. Invariant: nothing here
knows an operator. See conv.py, pool.py, norm.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Known, ceil_div, least, most, note_at_most, note_meeting
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops._deferred import T, te
from armillary.ops._types import number, widened
from armillary.relay.expr import Call, Expr
from armillary.relay.op import Array, Op, get_op
from armillary.relay.types import ANY_DIM, AnyDim, Dim, Extent, TensorType, Type

Pairs = tuple[tuple[int, int], ...]
Tensor: TypeAlias = "te.Tensor"
Size = TypeVar("Size", int, "te.Expr")
Value = TypeVar("Value")
SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


if TYPE_CHECKING:

    class WindowAttrs(Protocol):
        """What operators of windows say of them, whatever their rank."""

        @property
        def strides(self) -> tuple[int, ...]: ...

        @property
        def dilation(self) -> tuple[int, ...]: ...

        @property
        def padding(self) -> tuple[int, ...]: ...

    class OutDtypeAttrs(Protocol):
        """Attributes that say the dtype of the result, "" for that of the data."""

        @property
        def out_dtype(self) -> str: ...

    class ConvAttrs(WindowAttrs, OutDtypeAttrs, Protocol):
        """The attributes of a convolution of any rank."""

        @property
        def groups(self) -> int: ...

        @property
        def channels(self) -> int | None: ...

        @property
        def kernel_size(self) -> tuple[int, ...] | None: ...

        @property
        def data_layout(self) -> str: ...

        @property
        def kernel_layout(self) -> str: ...

        @property
        def out_layout(self) -> str: ...

    class PoolAttrs(WindowAttrs, Protocol):
        """The attributes of a pooling of any rank."""

        @property
        def pool_size(self) -> tuple[int, ...]: ...

        @property
        def layout(self) -> str: ...

        @property
        def out_layout(self) -> str: ...

        @property
        def ceil_mode(self) -> bool: ...

    class AveragePoolAttrs(PoolAttrs, Protocol):
        """The attributes of a mean of any rank."""

        @property
        def count_include_pad(self) -> bool: ...


def call(name: str, *args: object, **attrs: object) -> Expr:  # expressions, numbers; attribute values
    """A call of the operator of that name."""
    return get_op(name)(*args, **attrs)


def reshape_to(x: Expr, shape: Sequence[Known]) -> Expr:
    """`x` in a shape whose sizes are known (-1: what is left); without allowzero, 0 would copy a size."""
    sizes = tuple(shape)
    return call("reshape", x, newshape=sizes, allowzero=True) if 0 in sizes else call("reshape", x, newshape=sizes)


def f32(*shape: int) -> TensorType:
    """A float32 tensor type."""
    return TensorType(shape, DType("float32"))


def tensor(dtype: str, *shape: int) -> TensorType:
    """A tensor type of any dtype."""
    return TensorType(shape, DType(dtype))


def need_tensor(op: str, ty: Type, what: str = "data") -> TensorType:
    """`ty` as a tensor type; raises TypeMismatch for tuples and functions."""
    if not isinstance(ty, TensorType):
        raise TypeMismatch(f"{op}: {what} must be a tensor, got {ty}")
    return ty


def need_rank(op: str, ty: Type, rank: int, what: str = "data") -> TensorType:
    """`ty` if it is a tensor of `rank` dimensions."""
    result = need_tensor(op, ty, what)
    if result.ndim != rank:
        raise TypeMismatch(f"{op}: {what} must have {rank} dimensions, got {result.ndim}: {result}")
    return result


def need_float(op: str, ty: TensorType, what: str = "data") -> TensorType:
    """`ty` if its elements are floating-point numbers."""
    need_tensor(op, ty, what)
    if not ty.dtype.is_float:
        raise TypeMismatch(f"{op}: {what} must have a floating-point dtype, got {ty.dtype}")
    return ty


def need_shape(op: str, what: str, ty: TensorType, wanted: Sequence[Dim]) -> None:
    """Raise TypeMismatch unless the dimensions agree (an unknown one agrees with anything)."""
    if ty.ndim != len(wanted) or not all(same_dim(a, b) for a, b in zip(ty.shape, wanted, strict=True)):
        raise TypeMismatch(f"{op}: {what} has shape {ty.shape}, expected {tuple(wanted)}")


def need_dtype(op: str, first: TensorType, *others: TensorType) -> None:
    """Raise TypeMismatch unless all dtypes are equal."""
    for other in others:
        if other.dtype != first.dtype:
            raise TypeMismatch(f"{op}: the dtypes differ: {first.dtype} and {other.dtype}", hint="cast one of them")


def need_numbers(op: str, data: TensorType) -> None:
    """Raise TypeMismatch for truth values: their products have no sum."""
    if data.dtype.is_bool:
        raise TypeMismatch(f"{op}: got {data}, wanted numbers", hint="cast them first")


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two dimensions may be equal; what an operator asks so is compared in a run, unless one of them is 1."""
    if 1 not in (a, b):
        note_meeting(a, b)
    return isinstance(a, AnyDim) or isinstance(b, AnyDim) or a == b


def known(dim: Dim) -> int | None:
    """The dimension as an int, or None."""
    return None if isinstance(dim, AnyDim) else dim


def kernel_extent(op: str, size: Dim) -> int:
    """The extent of a kernel along one axis, 1 where it is not known; raises TypeMismatch when there is none."""
    if isinstance(size, Extent):
        raise TypeMismatch(
            f"{op}: a weight whose kernel has {size} elements along an axis", hint="fix the size: shape="
        )
    if isinstance(size, AnyDim):
        return 1
    if size < 1:
        raise TypeMismatch(f"{op}: a weight whose kernel has {size} elements along an axis; at least 1 is wanted")
    return size


def axis_of(op: str, axis: int, ndim: int) -> int:
    """A non-negative axis; raises TypeMismatch when out of range."""
    if not isinstance(axis, int) or not -ndim <= axis < ndim:
        raise TypeMismatch(f"{op}: axis {axis} is out of range for {ndim} dimensions")
    return axis % ndim


def complete_vectors(attrs: Any, data: Type | None, *vectors: Type | None) -> tuple[Type | None, ...]:  # Any: has axis
    """Types for vectors of one value a channel that have none."""
    if not isinstance(data, TensorType) or not -data.ndim <= attrs.axis < data.ndim:
        return (data, *vectors)
    whole = TensorType((data.shape[attrs.axis],), data.dtype)
    return (data, *(whole if v is None else v for v in vectors))


def per_axis(op: str, what: str, value: int | Sequence[int], rank: int, least: int = 1) -> tuple[int, ...]:
    """One int >= `least` per spatial axis, from an int or a tuple of 1 or `rank` ints."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    values = values * rank if len(values) == 1 else values
    if len(values) != rank or not all(isinstance(v, int) and v >= least for v in values):
        raise TypeMismatch(f"{op}: {what} must be {rank} integers >= {least}, got {value}")
    return values


def pad_pairs(op: str, padding: int | Sequence[int], rank: int) -> Pairs:
    """(before, after) per axis from 1 value, one per axis, or all befores followed by all afters."""
    values = tuple(padding) if isinstance(padding, tuple | list) else (padding,)
    if len(values) == 1:
        values = values * rank
    if len(values) == rank:
        values = values * 2
    if len(values) != 2 * rank or not all(isinstance(v, int) for v in values):
        raise TypeMismatch(f"{op}: padding must be 1, {rank} or {2 * rank} integers, got {padding}")
    if min(values) < 0:
        raise TypeMismatch(f"{op}: padding must not be negative, got {padding}")
    return tuple(zip(values[:rank], values[rank:], strict=True))


def extent(kernel: Size, dilation: int) -> Size:
    """What a dilated kernel spans."""
    return (kernel - 1) * dilation + 1


@overload
def window_count(size: int, pad: tuple[int, int], kernel: int, stride: int, dilation: int, ceil: bool = ...) -> int: ...


@overload
def window_count(
    size: te.Expr, pad: tuple[int, int], kernel: te.Index, stride: int, dilation: int, ceil: bool = ...
) -> te.Expr: ...


def window_count(
    size: Any, pad: tuple[int, int], kernel: Any, stride: int, dilation: int, ceil: bool = False
) -> Any:  # Any: one of the above
    """How many windows fit (int or TE expression); with `ceil`, a last partial one counts if it starts inside."""
    span = size + (pad[0] + pad[1] - extent(kernel, dilation))
    if not ceil:
        return span // stride + 1
    count = (span + (stride - 1)) // stride + 1
    if isinstance(count, int):
        return count - 1 if (count - 1) * stride >= size + pad[0] else count
    return te.select((count - 1) * stride >= size + pad[0], count - 1, count)


def out_dim(
    op: str, size: Dim, pad: tuple[int, int], kernel: int, stride: int, dilation: int, ceil: bool = False
) -> Dim:
    """The output size of one axis; raises TypeMismatch when the window does not fit."""
    if isinstance(size, AnyDim):
        return _count_of(size, pad, kernel, stride, dilation, ceil) if isinstance(size, Extent) else ANY_DIM
    count = window_count(size, pad, kernel, stride, dilation, ceil)
    if count < 1:
        raise TypeMismatch(
            f"{op}: the window does not fit: size {size}, padding {pad}, kernel {kernel}, dilation {dilation}"
        )
    return int(count)


def _count_of(size: Extent, pad: tuple[int, int], kernel: int, stride: int, dilation: int, ceil: bool) -> Dim:
    """What window_count gives, of a size with a name: its select is a minimum."""
    window, padded = extent(kernel, dilation), size + sum(pad)
    note_at_most(window, padded)  # as fixed sizes: a run refuses data that is shorter than a window
    span: Known = padded - window
    if not ceil:
        return span // stride + 1
    last = ceil_div(span, stride)
    return least(last + 1, most(ceil_div(size + pad[0], stride), last))


# --- layouts as strings ("NCHW", "NHWC", "NCHW8c"): upper case is a whole axis, a number and lower case a block ---

_PART = re.compile(r"(\d*)([A-Za-z])")


def letters(layout: str) -> str:
    """The axes of a layout, without block sizes: NCHW8c -> NCHWc."""
    return re.sub(r"\d+", "", layout)


def block_of(layout: str, letter: str) -> int:
    """The block size of an axis, 0 when the layout does not split it: ("NCHW8c", "C") -> 8."""
    digits = next((size for size, name in _PART.findall(layout) if name == letter.lower()), "")
    return int(digits) if digits else 0


def need_layout(op: str, layout: str, axes: str, ty: TensorType, what: str = "data") -> str:
    """The letters of `layout`, which must name `axes` once each (plus, for blocks, lower-case parts of them)."""
    result = letters(layout)
    if sorted(c for c in result if c.isupper()) != sorted(axes) or not {c.upper() for c in result} <= set(axes):
        raise TypeMismatch(f"{op}: the layout {layout!r} of {what} must name the axes {', '.join(axes)}")
    if len(result) != ty.ndim:
        raise TypeMismatch(f"{op}: {what} has {ty.ndim} dimensions, its layout {layout} has {len(result)}")
    return result


def spatial_axes(op: str, layout: str, rank: int) -> tuple[int, ...]:
    """Where the spatial axes are in a layout; they must not be split into blocks."""
    axes = letters(layout)
    names = SPATIAL[rank]
    if any(n not in axes or n.lower() in axes for n in names):
        raise UnsupportedError(f"{op}: layout {layout!r} must have the whole axes {', '.join(names)}")
    return tuple(axes.index(n) for n in names)


# --- numpy ---------------------------------------------------------------------------------------------------------


def windows(
    x: Array, axes: Sequence[int], offsets: Sequence[int], counts: Sequence[int], steps: Sequence[int]
) -> Array:
    """The view of `x` that takes, along each axis, `count` elements from `offset` on by `step`."""
    index = [slice(None)] * x.ndim
    for axis, offset, count, step in zip(axes, offsets, counts, steps, strict=True):
        index[axis] = slice(offset, offset + (count - 1) * step + 1, step)
    view: Array = x[tuple(index)]
    return view


def pad_array(x: Array, axes: Sequence[int], pads: Sequence[tuple[int, int]], value: Any = 0) -> Array:
    """`x` padded with `value` along some axes."""
    if not any(b or a for b, a in pads):
        return x
    full = [(0, 0)] * x.ndim
    for axis, pair in zip(axes, pads, strict=True):
        full[axis] = pair
    return np.pad(x, full, constant_values=value)


def wide(x: Array) -> Array:
    """float16-like arrays as float32, to accumulate in; others as they are."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 and not np.issubdtype(x.dtype, np.integer) else x


def widened_product(op: Op, attrs: Any, *args: Expr) -> Expr | None:
    """The product `op` of 16-bit floats as one of float32 and a cast; None for other types.

    Sums of 16-bit floats would lose most of their digits, and no CPU adds them faster.
    """
    ty = args[0].checked_type
    dtype = DType(attrs.out_dtype) if attrs.out_dtype else ty.dtype if isinstance(ty, TensorType) else None
    if dtype is None or not dtype.is_float or dtype.bits >= 32:
        return None
    wide_attrs = dataclasses.replace(attrs, out_dtype="float32")
    return call("cast", Call(op, args, wide_attrs), dtype=str(dtype))


def widened_call(op: Op, attrs: object, *args: Expr) -> Expr | None:
    """`op` of 16-bit floats as one of float32 and a cast; None for other types: its steps need more digits."""
    ty = args[0].checked_type
    if not isinstance(ty, TensorType) or not ty.dtype.is_float or ty.dtype.bits >= 32:
        return None
    wide_args = [call("cast", arg, dtype="float32") for arg in args]
    return call("cast", Call(op, tuple(wide_args), attrs), dtype=getattr(attrs, "out_dtype", "") or str(ty.dtype))


# --- te ------------------------------------------------------------------------------------------------------------


def te_pad(x: te.Tensor, pads: Sequence[tuple[int, int]], value: float = 0, name: str = "data_pad") -> te.Tensor:
    """A padded stage (inlinable), or `x` itself when nothing is to be padded. `pads` has one pair per axis of `x`."""
    if not any(b or a for b, a in pads):
        return x
    shape = [d + (b + a) for d, (b, a) in zip(x.shape, pads, strict=True)]

    def element(*index: te.Expr) -> te.Expr:
        inside, source = [], []
        for i, d, (before, after) in zip(index, x.shape, pads, strict=True):
            source.append(i - before)
            inside += [i >= before] if before else []
            inside += [i < d + before] if after else []
        return te.if_then_else(T.all_of(*inside), x(*source), T.const(value, x.dtype))

    return te.compute(shape, element, name=name, tag="pad")


def lowest(dtype: str) -> float:
    """The smallest value of a dtype: -inf for floats."""
    kind = DType(dtype)
    return float("-inf") if kind.is_float else kind.min_value


def reduce_axes(sizes: Sequence[te.ExprLike], names: Sequence[str]) -> list[te.IterVar]:
    """One reduction axis per size."""
    return [te.reduce_axis((0, size), name) for size, name in zip(sizes, names, strict=True)]


def place_within(value: te.Expr, last: Known) -> te.Expr:
    """A computed place as an index from 0 to `last`; what is no number is 0 (a minimum of it would be none either)."""
    value = T.cast(value, "float32") if value.dtype.bits < 32 and value.dtype.is_float else widened(value)
    low, high = T.const(0, value.dtype), number(last, value.dtype)
    return T.cast(T.select(value > low, T.select(value < high, value, high), low), "int32")


def numpy_within(value: Array, last: int) -> Array:
    """The same for arrays."""
    value = value.astype(np.int64) if value.dtype.kind in "iu" and value.dtype.itemsize < 8 else value
    return np.where(value > 0, np.where(value < last, value, last), 0)


def placed(layout: str, values: Mapping[str, Value]) -> list[Value]:
    """Values ordered as the letters of a layout."""
    return [values[c] for c in letters(layout)]


def type_of(x: Expr) -> TensorType:
    """The tensor type of an expression."""
    ty = x.checked_type
    if not isinstance(ty, TensorType):
        raise UnsupportedError(f"a product needs tensors, got {ty}")
    return ty
