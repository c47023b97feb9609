"""What operator files share: axis arithmetic, checks of types, broadcasting of shapes, types and arrays of samples.

In: types, attribute values. Out: the same, normalised, or a TypeMismatch that names the operator, what was got and
wanted. Invariant: nothing here knows a particular operator. The Op record: relay/op/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

import numpy as np

from armillary.base.aliases import AnyFunction
from armillary.base.dtype import DType
from armillary.base.extent import Known, note_meeting
from armillary.errors import TypeMismatch
from armillary.ops._deferred import T, te
from armillary.relay.expr import Constant, Expr, const
from armillary.relay.op import Array
from armillary.relay.types import AnyDim, Dim, Extent, TensorType, TupleType, Type

if TYPE_CHECKING:
    from armillary.base.aligned import Values

Index: TypeAlias = "te.Expr"  # of an element

_INT32_MAX = 2**31 - 1
_KINDS: dict[str, Callable[[DType], bool]] = {
    "float": lambda t: t.is_float,
    "integer": lambda t: t.is_int,
    "bool": lambda t: t.is_bool,
    "numeric": lambda t: t.is_float or t.is_int,
    "integer or bool": lambda t: t.is_int or t.is_bool,
    "any": lambda t: True,
}


def elements(
    shape: Sequence[te.ExprLike | AnyDim], function: Callable[..., te.ExprLike], name: str, tag: str = ""
) -> te.Tensor:
    """The tensor of `function` of the axes."""
    known = cast("tuple[te.ExprLike, ...]", tuple(shape))  # a kernel is made for static shapes
    return te.compute(known, function, name=name, tag=tag)


def accumulator(dtype: DType) -> DType:
    """The dtype sums are kept in."""
    return DType("float32") if dtype.is_float and dtype.bits < 32 else dtype


def mean_accumulator(dtype: DType) -> DType:
    """The dtype whose sum a mean divides: of integers a wide one, as neither sum nor count need fit their own."""
    return DType("int64" if dtype.code == "int" else "uint64") if dtype.is_int else accumulator(dtype)


def fixed_shape(name: str, shape: Sequence[Known]) -> tuple[int, ...]:
    """A shape as numbers, as a reference needs it."""
    fixed = tuple(d for d in shape if isinstance(d, int))
    if len(fixed) < len(shape):
        raise TypeMismatch(
            f"{name}: the shape {tuple(shape)} has sizes without values", hint="relay.analysis.bind_sizes"
        )
    return fixed


def number(value: Known, dtype: DType | str) -> te.Expr:
    """A size as an expression of a dtype."""
    return T.const(value, dtype) if isinstance(value, int) else T.cast(value, dtype)


def widened(position: Index, size: Known = 0) -> Index:
    """A position in a dtype that holds the size of an axis: it is compared with sizes, and they are added to it."""
    needed = 32 if not isinstance(size, int) or size <= _INT32_MAX else 64
    return T.cast(position, f"int{needed}") if position.dtype.bits < needed else position


def as_index(position: Index, size: Known) -> Index:
    """A position that was brought into an axis of that size: int32, or int64 where the axis is longer."""
    return T.cast(position, "int32" if not isinstance(size, int) or size <= _INT32_MAX else "int64")


def check_holds(name: str, dtype: str, most: Dim) -> None:
    """Refuse a dtype that lacks the number `most`, such as the last position of an axis."""
    if isinstance(most, AnyDim):
        return
    kind = DType(dtype)
    if kind.is_int and not kind.min_value <= most <= kind.max_value:
        raise TypeMismatch(f"{name}: dtype {dtype} does not hold {most}", hint="take int32 or int64")
    if kind.is_float and int(np.array(min(most, 1 << 62)).astype(kind.numpy)) != min(most, 1 << 62):
        raise TypeMismatch(f"{name}: dtype {dtype} does not hold {most}", hint="take int32 or int64")


def check_kind(name: str, what: str, ty: TensorType, wanted: str) -> None:
    """Refuse a tensor whose dtype is not of the wanted kind (a key of the table above)."""
    if not _KINDS[wanted](ty.dtype):
        raise TypeMismatch(f"{name}: {what} has dtype {ty.dtype}, wanted {wanted}", hint="insert a cast")


def check_same_dtype(name: str, types: Sequence[TensorType]) -> DType:
    """The common dtype of the inputs."""
    for ty in types[1:]:
        if ty.dtype != types[0].dtype:
            raise TypeMismatch(
                f"{name}: the inputs have different dtypes: got {ty.dtype}, wanted {types[0].dtype}",
                hint="insert a cast",
            )
    return types[0].dtype


def check_to_read(name: str, data: TensorType, axes: Iterable[int], places: Sequence[Dim]) -> None:
    """Refuse positions, of the shape `places`, along axes of no elements: a kernel would read or write elsewhere."""
    if 0 in (data.shape[a] for a in axes) and all(isinstance(d, int) and d > 0 for d in places):
        raise TypeMismatch(f"{name}: {data} has no elements to take or set at {tuple(places)} positions")


def axis_of(name: str, axis: int, ndim: int) -> int:
    """`axis` counted from the front."""
    if not -ndim <= axis < ndim:
        raise TypeMismatch(f"{name}: axis {axis} is out of range for {ndim} dimensions")
    return axis % ndim if ndim else 0


def axes_of(name: str, axes: Iterable[int], ndim: int) -> tuple[int, ...]:
    """The axes counted from the front, in the given order; a repeated axis is refused."""
    result = tuple(axis_of(name, axis, ndim) for axis in axes)
    if len(set(result)) != len(result):
        raise TypeMismatch(f"{name}: an axis is given twice in {tuple(axes)}")
    return result


def broadcast_shapes(name: str, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape all of them broadcast to; an unknown dimension stays unknown beside 1 or another unknown one."""
    result: list[Dim] = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        offset = len(result) - len(shape)
        for position, dim in enumerate(shape, offset):
            result[position] = _join(name, result[position], dim, shapes)
    return tuple(result)


def _join(name: str, a: Dim, b: Dim, shapes: Sequence[Sequence[Dim]]) -> Dim:
    if b == 1 or a == b:
        return a
    if a == 1:
        return b
    note_meeting(a, b)
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        if isinstance(a, AnyDim) and isinstance(b, AnyDim):
            return a if a == b or isinstance(a, Extent) else b
        return b if isinstance(a, AnyDim) else a
    raise TypeMismatch(f"{name}: the shapes do not broadcast: got {' and '.join(str(tuple(s)) for s in shapes)}")


def check_broadcasts_to(name: str, shape: Sequence[Dim], target: Sequence[Dim]) -> None:
    """Refuse a shape that does not broadcast to exactly `target`."""
    joined = broadcast_shapes(name, shape, target)
    exact = len(joined) == len(target) and all(j == t or isinstance(t, AnyDim) for j, t in zip(joined, target))
    if not exact:
        raise TypeMismatch(f"{name}: shape {tuple(shape)} does not broadcast to {tuple(target)}")


def copied(data: te.Tensor) -> te.Tensor:
    """The same elements in a tensor of their own."""
    result: te.Tensor = te.compute(data.shape, lambda *i: data(*i), name="copy", tag="injective")
    return result


def broadcast_index(shape: Sequence[Known], index: Sequence[te.Expr]) -> tuple[te.Expr | int, ...]:
    """Where the element of an output index lies in an input of `shape` that broadcasts to it."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if dim == 1 else i for dim, i in zip(shape, tail, strict=True))


def unravelled(index: te.Expr, sizes: Sequence[int]) -> list[te.Expr]:
    """The indices along axes of these sizes that one index over all of them stands for."""
    digits: list[Any] = []
    for size in reversed(sizes[1:]):
        digits.insert(0, index % size if size > 1 else 0)
        index = index // size if size > 1 else index
    return [index, *digits] if sizes else []


@overload
def dims_product(dims: Iterable[Known]) -> Known: ...


@overload
def dims_product(dims: Iterable[Dim]) -> Dim: ...


def dims_product(dims: Iterable[Dim]) -> Dim:
    """The product; unknown if a factor is unknown and none is 0."""
    total: Dim = 1
    for dim in dims:
        if dim == 0:
            return 0
        total = total * dim
    return total


def tuple_fields(name: str, ty: Type) -> tuple[TensorType, ...]:
    """The tensors of a variadic input; at least one."""
    fields = ty.fields if isinstance(ty, TupleType) else (ty,)
    tensors = tuple(field for field in fields if isinstance(field, TensorType))
    if not tensors or len(tensors) != len(fields):
        raise TypeMismatch(f"{name}: expected a non-empty tuple of tensors, got {ty}")
    return tensors


def quiet(function: AnyFunction) -> AnyFunction:
    """The function with numpy's floating-point warnings off: overflow and NaN are ordinary values here."""

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        with np.errstate(all="ignore"):
            result: object = function(*args, **kwargs)
            return result

    return call


def of_type(dtype: str, *shape: int) -> TensorType:
    """A sample input."""
    return TensorType(shape, DType(dtype))


def f32(*shape: int) -> TensorType:
    """A float32 sample input."""
    return of_type("float32", *shape)


def i32(*shape: int) -> TensorType:
    """An int32 sample input."""
    return of_type("int32", *shape)


def ints(values: object, dtype: str = "int32") -> Array:
    """A sample input of given integers."""
    return np.array(values, dtype)


def int_list(values: Array | Values | Sequence[int]) -> tuple[int, ...]:
    """Python ints from an array or sequence of them."""
    return tuple(int(v) for v in np.asarray(values).reshape(-1))


def like_const(value: float, expr: Expr) -> Constant:
    """A scalar constant of the dtype of `expr`."""
    ty = expr.checked_type
    return const(value, ty.dtype if isinstance(ty, TensorType) else None)
