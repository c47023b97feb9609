"""Types of polymorphic programs and algebraic data types.

Grammar, beside that of relay/types.py:

    type = TypeVar(name_hint) | GlobalTypeVar(name_hint) | TypeCall(func, args) | RefType(value)

In: names and types. Out: values with structural equality. Invariant: a type variable is its name, which the function or
type that lists it binds. `TypeData` says which forms a type has; modules hold it. Inference over these: solve.py.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from armillary.base.record import record
from armillary.relay.types import FuncType, TupleType, Type

if TYPE_CHECKING:
    from armillary.relay.adt import Constructor


class TypeKind(enum.IntEnum):
    """What a type variable stands for: here always a type."""

    Type = 0
    ShapeVar = 1
    BaseType = 2
    Constraint = 4
    AdtHandle = 5
    TypeData = 6


@record(slots=True)
class TypeVar(Type):
    """A type that the callers of a polymorphic function choose."""

    name_hint: str
    kind: int = TypeKind.Type

    def __str__(self) -> str:
        return self.name_hint


@record(slots=True)
class GlobalTypeVar(Type):
    """The name of a type that a module defines; called with types, it is that type of them."""

    name_hint: str
    kind: int = TypeKind.AdtHandle

    def __call__(self, *args: Type) -> TypeCall:
        """`List(A)`: the type of lists of A."""
        return TypeCall(self, args)

    def __str__(self) -> str:
        return self.name_hint


@record(slots=True)
class TypeCall(Type):
    """A defined type of some types: `List[int32]`."""

    func: Type
    args: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))

    def __str__(self) -> str:
        return f"{self.func}[{', '.join(map(str, self.args))}]" if self.args else str(self.func)


@record(slots=True)
class RefType(Type):
    """A cell of a value."""

    value: Type

    def __str__(self) -> str:
        return f"ref({self.value})"


@record(slots=True)
class TypeData:
    """The definition of a type: its name, its type variables, its forms."""

    header: GlobalTypeVar
    type_vars: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_vars", tuple(self.type_vars))
        object.__setattr__(self, "constructors", tuple(self.constructors))

    def __str__(self) -> str:
        variables = f"[{', '.join(map(str, self.type_vars))}]" if self.type_vars else ""
        if not self.constructors:
            return f"extern type {self.header}{variables}\n"
        rows = (f"  {c.label}({', '.join(map(str, c.inputs))}),\n" if c.inputs else f"  {c.label},\n" for c in self)
        return f"type {self.header}{variables} {{\n{''.join(rows)}}}\n"

    def __iter__(self) -> Iterator[Constructor]:
        return iter(self.constructors)


def parts(ty: Type) -> Sequence[Type]:
    """The types inside a type."""
    if isinstance(ty, TupleType):
        return ty.fields
    if isinstance(ty, FuncType):
        return (*ty.arg_types, ty.ret_type)
    if isinstance(ty, TypeCall):
        return ty.args
    return (ty.value,) if isinstance(ty, RefType) else ()


def with_parts(ty: Type, inside: Sequence[Type]) -> Type:
    """The type of other types inside."""
    if isinstance(ty, TupleType):
        return TupleType(tuple(inside))
    if isinstance(ty, FuncType):
        return FuncType(tuple(inside[:-1]), inside[-1], ty.type_params)
    if isinstance(ty, TypeCall):
        return TypeCall(ty.func, tuple(inside))
    return RefType(inside[0]) if isinstance(ty, RefType) else ty


def replaced(ty: Type, by: Mapping[Type, Type]) -> Type:
    """The type with type variables replaced."""
    if ty in by:
        return by[ty]
    inside = parts(ty)
    return with_parts(ty, [replaced(t, by) for t in inside]) if inside else ty
