"""From an operator's record to a function of tensors.

In: the module a name is asked of (`armillary.topi`, `armillary.topi.nn`, …) and the name. Out: a function that takes
TE tensors and the operator's attributes, in the operator's order, and gives what its compute rule gives. Invariant:
attributes are checked by the operator's own type rule where shapes are static; a number among tensors becomes a
constant of the other tensor's type. Functions with an argument order of their own: `signatures.py`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from armillary import te
from armillary.base.aliases import AnyFunction
from armillary.base.lazy import deferred
from armillary.errors import TypeMismatch
from armillary.relay.names import find_operator
from armillary.relay.op import OPS, Op
from armillary.relay.types import TensorType, TupleType, Type
from armillary.tir import build as T
from armillary.tir.build import as_int

Function = AnyFunction
Tensors: TypeAlias = "te.Tensor | tuple[Tensors, ...]"
with deferred():
    from armillary.topi.expression import of_function as _of_function
_PREFIXES = {"armillary.topi.nn": "nn.", "armillary.topi.image": "image.", "armillary.topi.vision": "vision."}
_OTHER_NAMES = {
    "flip": "reverse",
    "identity": "copy",
}


def function_named(module: str, name: str) -> Function:
    """The function `name` of a module of topi; AttributeError where no operator has the name."""
    if not name.startswith("__"):
        own = importlib.import_module("armillary.topi.signatures").FUNCTIONS
        prefix = _PREFIXES.get(module, "")
        short = module.removeprefix("armillary.topi").lstrip(".")
        for key in (f"{short}.{name}".lstrip("."), name):
            if key in own:
                return own[key]  # type: ignore[no-any-return]
        for operator in (prefix + name, _OTHER_NAMES.get(name, ""), name):
            if operator in OPS and OPS[operator].compute_rule is not None:
                return function_of(OPS[operator])
        user_function = find_operator(prefix + name)
        if callable(user_function):
            return functools.partial(_of_expressions, cast(Function, user_function))
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _of_expressions(function: Function, *args: object, **named: object) -> Any:  # Any: as compute
    """What a function of Relay's computes of tensors."""
    named.pop("name", None)
    named.pop("tag", None)
    return _of_function(function, args, named)


def function_of(op: Op) -> Function:
    """`f(*tensors, *attributes, **named)` for an operator."""

    def apply(*args: object, **named: object) -> Any:  # Any: as compute
        count = len(op.inputs)
        positional = list(args[:count])
        positional += [named.pop(n.lstrip("*")) for n in op.inputs[len(positional) :] if n.lstrip("*") in named]
        named.pop("name", None)
        named.pop("tag", None)
        return compute(op, positional, args[count:], named)

    apply.__name__ = apply.__qualname__ = op.name.rsplit(".", 1)[-1]
    apply.__doc__ = f"The operator {op.name} on TE tensors. {op.doc}".strip()
    return apply


def compute(
    op: Op | str,
    tensors: Sequence[object],
    positional: Sequence[object] = (),
    named: Mapping[str, object] | None = None,
) -> Any:  # Any: a tensor, a list of tensors, or an expression of expressions, as the operator and they have it
    """What an operator computes of tensors, with attributes by position or by name."""
    op = OPS[op] if isinstance(op, str) else op
    attrs = op.make_attrs([_plain(v) for v in positional], {k: _plain(v) for k, v in (named or {}).items()})
    if tensors and all(isinstance(value, te.Expr | int | float) for value in tensors):
        return _of_scalars(op, attrs, cast(Sequence[te.Expr | int | float], tensors))
    arrays = [_tensors(value, tensors) for value in tensors]
    types = [_type_of(value) for value in arrays]
    known = [ty for ty in types if ty is not None]
    if len(known) == len(types):
        op.infer_type(attrs, known)
    if op.compute_rule is None:
        raise TypeMismatch(f"the operator {op.name} has no tensor-expression form")
    result = op.compute_rule(attrs, *arrays)
    if not isinstance(result, list | tuple):
        return result
    return result[0] if len(result) == 1 else list(result)


def single(op: Op | str, tensors: Sequence[object], named: Mapping[str, object] | None = None) -> te.Tensor:
    """The tensor that an operator of one result computes, of at least one tensor."""
    result: te.Tensor = compute(op, tensors, (), named)
    return result


def binary(name: str, left: te.ExprLike, right: te.ExprLike) -> te.Tensor:
    """An elementwise operator of two operands, broadcast, for the operators of `te.Tensor`."""
    return single(name, [left, right])


def unary(name: str, operand: te.Tensor) -> te.Tensor:
    """An elementwise operator of one operand."""
    return single(name, [operand])


def converted(operand: te.Tensor, dtype: str) -> te.Tensor:
    """A tensor in another dtype, for `te.Tensor.astype`."""
    return single("cast", [operand], {"dtype": str(dtype)})


class _Scalar:
    """A number or expression in the place of a tensor without axes."""

    shape: tuple[te.Expr, ...] = ()
    ndim = 0

    def __init__(self, value: te.Expr) -> None:
        self.value, self.dtype = value, value.dtype

    def __call__(self) -> te.Expr:
        return self.value


def _of_scalars(op: Op, attrs: object, values: Sequence[te.Expr | int | float]) -> te.Expr:
    """What an operator computes of expressions alone: an expression."""
    matched = list(T.match_types(*values)) if len(values) == 2 else [T.convert(v) for v in values]
    if op.compute_rule is None:
        raise TypeMismatch(f"the operator {op.name} has no tensor-expression form")
    result: te.Expr = op.compute_rule(attrs, *map(_Scalar, matched)).op.body[0]
    return result


def _plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(_plain(v) for v in value)
    result = as_int(value) if isinstance(value, te.Expr) else None
    return value if result is None else result


def _tensors(value: object, beside: Sequence[object]) -> Tensors:
    if isinstance(value, list | tuple):
        return tuple(_tensors(v, value) for v in value)
    if isinstance(value, te.Tensor):
        return value
    like = next((t for t in beside if isinstance(t, te.Tensor)), None)
    if isinstance(value, int | float) and like is not None:
        return te.compute((), lambda: T.const(value, like.dtype), name="constant", tag="broadcast")
    if isinstance(value, te.Expr):
        item = T.cast(value, like.dtype) if like is not None and _follows(value, like) else value
        return te.compute((), lambda: item, name="scalar", tag="broadcast")
    raise TypeMismatch(f"expected a tensor, got {type(value).__name__} {value!r}")


def _follows(value: te.Expr, like: te.Tensor) -> bool:
    """Whether a scalar takes the type of the tensor beside it: integers beside floats, and those of fewer bits."""
    if value.dtype.is_int and like.dtype.is_float:
        return True
    return value.dtype.code == like.dtype.code and value.dtype.bits < like.dtype.bits


def _type_of(value: Tensors) -> Type | None:
    """None where a shape is symbolic."""
    if isinstance(value, tuple):
        fields = [_type_of(v) for v in value]
        return None if any(f is None for f in fields) else TupleType(tuple(f for f in fields if f is not None))
    shape = [as_int(extent) for extent in value.shape]
    if any(extent is None for extent in shape):
        return None
    return TensorType(tuple(n for n in shape if n is not None), value.dtype)
