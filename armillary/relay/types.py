"""Types of the graph language.

Grammar:

    type = TensorType(shape, dtype) | TupleType(fields) | FuncType(arg_types, ret_type)

Invariant: values that never change, equal by structure. A dimension is an int, an `Extent` over named sizes
(base/extent.py; a variable of the loop language, `te.var`, is one), or `ANY_DIM`, of which nothing is known. Who works
them out: relay/infer.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from armillary.base.dtype import DType
from armillary.base.extent import ANY_DIM as ANY_DIM
from armillary.base.extent import AnyDim as AnyDim
from armillary.base.extent import Dim as Dim
from armillary.base.extent import Extent as Extent
from armillary.base.extent import Known, typical
from armillary.base.lazy import deferred
from armillary.base.node import Node
from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.text.extent import declared

with deferred():
    from armillary.tir.extents import from_expr as _from_expr  # of dimensions that are variables of scripts
    from armillary.tir.simplify import simplify as _simplify


def as_dim(value: object) -> Dim:  # a number or an expression of the loop language
    """The dimension that a number or an expression is."""
    value = _from_expr(_simplify(value)) if isinstance(value, Node) else value  # type: ignore[arg-type]  # of the loop language
    return value if isinstance(value, int | AnyDim) else int(str(value))


class Type:
    """Base of graph types."""

    __slots__ = ()
    span: ClassVar[None] = None  # where it was written: types have no place


@record(slots=True)
class TensorType(Type):
    """A tensor: dimensions (row-major, () for a scalar) and the dtype of an element."""

    shape: tuple[Dim, ...]
    dtype: DType = DType("float32")

    def __post_init__(self) -> None:
        shape = self.shape
        is_canonical = type(self.dtype) is DType and type(shape) is tuple
        if not is_canonical or any(
            type(d) is not int and not isinstance(d, AnyDim) for d in shape
        ):  # as scripts write it
            shared = tensor_type(self.shape, self.dtype)
            object.__setattr__(self, "shape", shared.shape)
            object.__setattr__(self, "dtype", shared.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape as ints, under its Relay-era name."""
        return self.static

    @property
    def static(self) -> tuple[int, ...]:
        """The shape as ints; raises TypeMismatch if a dimension is unknown."""
        if any(isinstance(d, AnyDim) for d in self.shape):
            raise TypeMismatch(f"the shape {self.shape} is not fully known", hint="bind the dimension with shape=")
        return self.shape  # type: ignore[return-value]

    @property
    def known(self) -> tuple[Known, ...]:
        """The shape as numbers and expressions over named sizes; TypeMismatch where a dimension is neither."""
        known = tuple(d for d in self.shape if isinstance(d, int | Extent))
        return known if len(known) == len(self.shape) else self.static

    @property
    def typical(self) -> tuple[int, ...]:
        """The shape as ints, of sizes that have names the values that cost models take."""
        return TensorType(tuple(typical(d) if isinstance(d, Extent) else d for d in self.shape), self.dtype).static

    @property
    def typical_size(self) -> int:
        """Number of elements, of sizes that have names at the values that cost models take."""
        return math.prod(self.typical)

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
        dims = ", ".join(declared(d) for d in self.shape) + ("," if len(self.shape) == 1 else "")
        return f"Tensor[({dims}), {self.dtype}]"


_NESTING, _TENSORS = 64, 1 << 20


@record(slots=True)
class TupleType(Type):
    """A tuple of types. It is at most 64 deep, with a million tensors: what walks over types may recurse."""

    fields: tuple[Type, ...]

    def __post_init__(self) -> None:
        if type(self.fields) is not tuple:  # as Relay-era scripts write it
            object.__setattr__(self, "fields", tuple(self.fields))
        _measured(self, {})

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.fields)) + ("," if len(self.fields) == 1 else "") + ")"


def _measured(ty: TupleType, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How deep a tuple is and how many tensors it has; one that is shared (x = (x, x), forty times) is counted once."""
    depth, count = 1, len(ty.fields)
    for field in ty.fields:
        if type(field) is TupleType:
            inner = known.get(id(field)) or known.setdefault(id(field), _measured(field, known))
            depth, count = max(depth, inner[0] + 1), count + inner[1]
    if depth > _NESTING:
        raise UnsupportedError(f"a tuple is nested more than {_NESTING} deep", hint="put the fields side by side")
    if count > _TENSORS:
        raise UnsupportedError(f"a tuple has {count:,} tensors, at most {_TENSORS:,}", hint="use fewer outputs")
    return depth, count


def _is_none(value: object) -> bool:
    return value is None or (isinstance(value, Sequence) and not value)


@record(slots=True)
class FuncType(Type):
    """The type of a function: of its arguments, its result, and its type parameters."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: Sequence[Type] | None = ()
    type_constraints: Sequence[Type] | None = ()

    def __post_init__(self) -> None:
        if not _is_none(self.type_constraints):
            raise UnsupportedError("a function type has type constraints: there are none in the language")
        variables = () if _is_none(self.type_params) else self.type_params
        if not isinstance(variables, Sequence) or not all(isinstance(v, Type) for v in variables):
            raise TypeMismatch(f"a function type's type_params are type variables, got {variables!r:.60}")
        object.__setattr__(self, "type_params", tuple(variables))
        object.__setattr__(self, "type_constraints", ())
        if type(self.arg_types) is not tuple:
            object.__setattr__(self, "arg_types", tuple(self.arg_types))

    def __str__(self) -> str:
        variables = f"[{', '.join(map(str, self.type_params))}] " if self.type_params else ""
        return f"fn {variables}({', '.join(map(str, self.arg_types))}) -> {self.ret_type}"


@record(slots=True)
class IncompleteType(Type):
    """A type that inference is to find."""

    kind: int = 0

    def __str__(self) -> str:
        return "_"


def tensor_type(shape: Any, dtype: str = "float32") -> TensorType:  # Any: ints, numpy ints, AnyDim, te.var
    """A TensorType from any sequence of dimensions (values < 0 and None mean unknown)."""
    try:
        dims = tuple(d if type(d) is int and d >= 0 else _dim(d) for d in shape)
    except (TypeError, ValueError):
        raise TypeMismatch(f"a shape is a sequence of whole numbers, got {shape!r}") from None
    return TensorType(dims, DType(dtype))


def _dim(value: Any) -> Dim:  # Any: see tensor_type
    if isinstance(value, AnyDim):
        return value
    if isinstance(value, Node):
        held = getattr(value, "value", None)
        symbol = getattr(value, "var", value)  # an axis stands for its variable
        if not isinstance(held, int) and not getattr(symbol, "dtype", DType("void")).is_int:
            raise TypeError("a dimension is an integer")
        if isinstance(held, int):
            return _dim(held)
        return as_dim(symbol)
    return ANY_DIM if value is None or int(value) < 0 else int(value)


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
