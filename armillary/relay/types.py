"""Types of the graph language.

Grammar:

    type = TensorType(shape, dtype) | TupleType(fields) | FuncType(arg_types, ret_type)

Values with structural equality. A dimension is an int, or `ANY_DIM` where only the running program knows it.
"""

from __future__ import annotations

from typing import Any

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch


@record(slots=True)
class AnyDim:
    """A dimension known only at run time. All are equal as values; nothing may be concluded from that."""

    def __repr__(self) -> str:
        return "?"


ANY_DIM = AnyDim()
Dim = int | AnyDim


class Type:
    """Base of graph types."""

    __slots__ = ()


@record(slots=True)
class TensorType(Type):
    """A tensor: dimensions (row-major, () for a scalar) and the dtype of an element."""

    shape: tuple[Dim, ...]
    dtype: DType = DType("float32")

    def __post_init__(self) -> None:
        if type(self.dtype) is not DType or type(self.shape) is not tuple:  # as Relay-era scripts write it
            made = tensor_type(self.shape, self.dtype)
            object.__setattr__(self, "shape", made.shape)
            object.__setattr__(self, "dtype", made.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def static(self) -> tuple[int, ...]:
        """The shape as ints; raises TypeMismatch if a dimension is unknown."""
        if any(isinstance(d, AnyDim) for d in self.shape):
            raise TypeMismatch(f"the shape {self.shape} is not fully known", hint="bind the dimension with shape=")
        return self.shape  # type: ignore[return-value]

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for d in self.static:
            total *= d
        return total

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.bytes

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.shape)) + ("," if len(self.shape) == 1 else "")
        return f"Tensor[({dims}), {self.dtype}]"


@record(slots=True)
class TupleType(Type):
    """A tuple of types."""

    fields: tuple[Type, ...]

    def __post_init__(self) -> None:
        if type(self.fields) is not tuple:  # as Relay-era scripts write it
            object.__setattr__(self, "fields", tuple(self.fields))

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.fields)) + ("," if len(self.fields) == 1 else "") + ")"


@record(slots=True)
class FuncType(Type):
    """A function."""

    arg_types: tuple[Type, ...]
    ret_type: Type

    def __post_init__(self) -> None:
        if type(self.arg_types) is not tuple:
            object.__setattr__(self, "arg_types", tuple(self.arg_types))

    def __str__(self) -> str:
        return f"fn ({', '.join(map(str, self.arg_types))}) -> {self.ret_type}"


def tensor_type(shape: Any, dtype: str = "float32") -> TensorType:  # Any: ints, numpy ints, AnyDim
    """A TensorType from any sequence of ints (values < 0 and None mean unknown)."""
    try:
        dims = tuple(d if isinstance(d, AnyDim) else ANY_DIM if d is None or int(d) < 0 else int(d) for d in shape)
    except (TypeError, ValueError):
        raise TypeMismatch(f"a shape is a sequence of whole numbers, got {shape!r}") from None
    return TensorType(dims, DType(dtype))


def tensor_fields(ty: Type) -> tuple[TensorType, ...]:
    """The tensors inside a type, left to right."""
    if isinstance(ty, TensorType):
        return (ty,)
    if isinstance(ty, TupleType):
        return tuple(t for field in ty.fields for t in tensor_fields(field))
    raise TypeMismatch(f"expected a tensor or a tuple of tensors, got {ty}")


def scalar_type(dtype: str) -> TensorType:
    """The type of a tensor without dimensions."""
    return TensorType((), DType(dtype))
