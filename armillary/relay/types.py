"""Types of the graph language.

Grammar:

    type = TensorType(shape, dtype) | TupleType(fields) | FuncType(arg_types, ret_type)

Invariant: values that never change, equal by structure. A dimension is an int, `ANY_DIM` where only the running program
knows it, or a `SymbolicDim` where it is a variable of the loop language (`te.var`): unknown too, but the same wherever
it is written. Who works them out: relay/infer.py.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from armillary.base.aliases import AnyFunction
from armillary.base.dtype import DType
from armillary.base.lazy import deferred
from armillary.base.node import Node, post_order
from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError

with deferred():
    from armillary.tir.simplify import simplify as _simplify  # of dimensions that are expressions


@record(slots=True)
class AnyDim:
    """A dimension known only at run time. All are equal as values; nothing may be concluded from that."""

    def __repr__(self) -> str:
        return "?"

    def __add__(self, other: Dim) -> Dim:
        return _combined(operator.add, self, other)

    def __radd__(self, other: Dim) -> Dim:
        return _combined(operator.add, other, self)

    def __sub__(self, other: Dim) -> Dim:
        return _combined(operator.sub, self, other)

    def __rsub__(self, other: Dim) -> Dim:
        return _combined(operator.sub, other, self)

    def __mul__(self, other: Dim) -> Dim:
        return _combined(operator.mul, self, other)

    def __rmul__(self, other: Dim) -> Dim:
        return _combined(operator.mul, other, self)

    def __floordiv__(self, other: Dim) -> Dim:
        return _combined(operator.floordiv, self, other)


@record(slots=True, eq=False)
class SymbolicDim(AnyDim):
    """A dimension that is an expression of the loop language over variables; equal where the expressions are."""

    expr: Any  # Any: a tir expression, which knows its operators

    def __repr__(self) -> str:
        return str(self.expr)

    def _key(self) -> tuple[str, tuple[int, ...]]:
        return str(self.expr), tuple(sorted(id(n) for n in post_order(self.expr) if n._binds))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SymbolicDim):
            return other is self.expr
        return self.expr is other.expr or self._key() == other._key()

    def __hash__(self) -> int:
        return hash(str(self.expr))


def as_dim(value: object) -> Dim:  # a number or an expression of the loop language
    """The dimension that a number or an expression is."""
    made = _simplify(value) if isinstance(value, Node) else value  # type: ignore[arg-type]  # of the loop language
    held = getattr(made, "value", made)
    return held if isinstance(held, int) else SymbolicDim(made)


def _combined(operation: AnyFunction, a: Dim, b: Dim) -> Dim:
    """The dimension that arithmetic on two gives: unknown, unless each is a number or a symbol."""
    if not all(isinstance(d, int | SymbolicDim) for d in (a, b)):
        return ANY_DIM
    return as_dim(operation(*(d.expr if isinstance(d, SymbolicDim) else d for d in (a, b))))


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
        shape = self.shape
        is_made = type(self.dtype) is DType and type(shape) is tuple
        if not is_made or any(type(d) is not int and not isinstance(d, AnyDim) for d in shape):  # as scripts write it
            made = tensor_type(self.shape, self.dtype)
            object.__setattr__(self, "shape", made.shape)
            object.__setattr__(self, "dtype", made.dtype)

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


def _is_none(given: object) -> bool:
    return given is None or (isinstance(given, Sequence) and not given)


@record(slots=True)
class FuncType(Type):
    """A function."""

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
        return SymbolicDim(symbol) if symbol._binds else as_dim(symbol)  # t + t is 2 * t
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
