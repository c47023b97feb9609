"""Values for named sizes: a function whose shapes are numbers, from one whose shapes are expressions over sizes.

In: a function, and values of some or all of its sizes. Out: the same function with these values in the types of its
variables and in attributes. Invariant: what it computes is unchanged for inputs of those sizes; sharing is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeVar

from armillary.base.extent import Extent, Known, Size, size, sizes_of, substitute
from armillary.base.node import replace
from armillary.errors import TypeMismatch
from armillary.relay.expr import Call, Expr, Function, Loop, Var
from armillary.relay.types import FuncType, TensorType, TupleType, Type, tensor_type
from armillary.relay.walk import map_children, post_order

A = TypeVar("A")
_DOUBLED = 12  # times at most: a second of sound


def sizes_in(function: Function) -> dict[str, Size]:
    """The named sizes of a function's parameters and attributes, by name."""
    return sizes_of(_dims(function))


def at_typical_sizes(function: Function) -> Function:
    """The function at the values that its sizes typically have, or at halves or doubles of them: what cost models see.

    A network of 77 positions has no type at 128, a frame of 400 samples none in a signal of 128.
    """
    typical = {name: size.typical for name, size in sizes_in(function).items()}
    most = max(typical.values(), default=0).bit_length()
    refused = None
    for shift in (*range(0, -most, -1), *range(1, _DOUBLED)) if typical else (0,):
        values = {name: max(1, v << shift if shift > 0 else v >> -shift) for name, v in typical.items()}
        bound = bind_sizes(function, values)
        try:
            _ = bound.checked_type
            return bound
        except TypeMismatch as error:
            refused = refused or error
    assert refused is not None, "a function has a type or an error"
    raise refused


def bind_sizes(function: Function, values: Mapping[str, Known]) -> Function:
    """The function with values for the sizes of these names; the function itself where it has none of them."""
    if not values or values.keys().isdisjoint(sizes_in(function)):
        return function
    bound: dict[int, Expr] = {}

    def get(expr: Expr) -> Expr:
        return bound.get(id(expr), expr)

    for expr in post_order(function):
        bound[id(expr)] = _bound(map_children(expr, get), values)
    result = bound[id(function)]
    assert isinstance(result, Function), "a function stays one"
    return result


def with_sizes(function: Function, values: Mapping[str, Known]) -> Function:
    """The function with values for sizes, made anew by way of other names: types equal whose sizes have equal names."""
    other: dict[str, Known] = {name: size(f"{name}~") for name in values}
    return bind_sizes(bind_sizes(function, other), {f"{name}~": known for name, known in values.items()})


def bind_type(ty: Type, values: Mapping[str, Known]) -> Type:
    """A type with values for the sizes of these names."""
    match ty:
        case TensorType(shape, dtype):
            return tensor_type([substitute(d, values) if isinstance(d, Extent) else d for d in shape], dtype)
        case TupleType(fields):
            return TupleType(tuple(bind_type(f, values) for f in fields))
        case FuncType(arguments, result):
            return FuncType(tuple(bind_type(t, values) for t in arguments), bind_type(result, values))
    return ty


def _bound(expr: Expr, values: Mapping[str, Known]) -> Expr:
    if isinstance(expr, Var) and expr.type_annotation is not None:
        return replace(expr, type_annotation=_same(bind_type(expr.type_annotation, values), expr.type_annotation))
    if isinstance(expr, Call) and expr.attrs is not None:
        return replace(expr, attrs=bind_attrs(expr.attrs, values))
    if isinstance(expr, Loop) and isinstance(expr.trips, Extent):
        return replace(expr, trips=substitute(expr.trips, values))
    if isinstance(expr, Function) and expr.ret_type is not None:
        return replace(expr, ret_type=_same(bind_type(expr.ret_type, values), expr.ret_type))
    return expr


def bind_attrs(attrs: A, values: Mapping[str, Known]) -> A:
    """Attributes of an operator with values for the sizes of these names."""
    if not any(True for _ in attr_sizes(attrs)):
        return attrs
    changed = {f.name: _bound_value(getattr(attrs, f.name), values) for f in dataclasses.fields(attrs)}  # type: ignore[arg-type]
    return dataclasses.replace(attrs, **changed)  # type: ignore[type-var]  # a dataclass, as it has fields


def _same(new: Type, old: Type) -> Type:
    return old if new == old else new


def _bound_value(value: object, values: Mapping[str, Known]) -> object:
    if isinstance(value, tuple):
        return tuple(_bound_value(v, values) for v in value)
    return substitute(value, values) if isinstance(value, Extent) else value


def attr_sizes(attrs: object) -> Iterator[Extent]:
    """The extents in the attributes of an operator."""
    values = [getattr(attrs, f.name) for f in dataclasses.fields(attrs)] if dataclasses.is_dataclass(attrs) else []
    for value in values:
        yield from _extents(value)


def _extents(value: object) -> Iterator[Extent]:
    if isinstance(value, tuple):
        for item in value:
            yield from _extents(item)
    elif isinstance(value, Extent):
        yield value


def _dims(function: Function) -> Iterator[object]:
    for expr in post_order(function):
        if isinstance(expr, Var) and expr.type_annotation is not None:
            yield from _type_dims(expr.type_annotation)
        elif isinstance(expr, Call) and expr.attrs is not None:
            yield from attr_sizes(expr.attrs)
        elif isinstance(expr, Loop):
            yield expr.trips


def _type_dims(ty: Type) -> Iterator[object]:
    if isinstance(ty, TensorType):
        yield from ty.shape
    elif isinstance(ty, TupleType):
        for field in ty.fields:
            yield from _type_dims(field)
