"""dynamic: a call of an operator some of whose attributes are values of the running program.

In: what scripts write: `relay.reshape(x, newshape)`, `relay.topk(x, k)` with `newshape` and `k` inputs of the program.
Out: one call of `dynamic`, whose last tensors are those attributes. Its type has the rank, and unknown sizes; the
interpreter reads the attributes and computes what the operator does. Invariant: no kernel computes it; where the values
become known (constants bound, dynamic-to-static, an executor that compiles for them) the call of the operator stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import Field

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._types import tuple_fields
from armillary.relay.expr import Call, Constant, Expr, Tuple
from armillary.relay.op import OPS, Array, Kind, Op, state
from armillary.relay.op.facts import Fact
from armillary.relay.op.static_value import static_value
from armillary.relay.types import ANY_DIM, TensorType, TupleType, Type

NAME = "dynamic"
_SIZES = frozenset({"size", "scale_d", "scale_h", "scale_w"})  # of what is resized, along some axes
_ENDS = frozenset({"begin", "end", "strides"})  # of a part, along its first axes or those it names
_DUMMIES: dict[str, object] = {"begin": 0, "start": 0, "k1": 0, "k2": 0, "pad_width": 0}  # 1 for all others


@record
class DynamicAttrs:
    """The operator, which of its attributes are values, and the others."""

    op: str
    names: tuple[str, ...]
    settings: tuple[tuple[str, object], ...] = ()


dynamic = Op(NAME, kind=Kind.OPAQUE, inputs=("*inputs",), doc="An operator some of whose attributes are values.")
state(NAME, Fact.DYNAMIC)
dynamic.attrs(DynamicAttrs)


def dynamic_call(op: Op, tensors: Sequence[Expr], settings: dict[str, object], values: dict[str, Expr]) -> Call:
    """The call that stands for the operator until the values are known."""
    attrs = DynamicAttrs(op.name, tuple(values), tuple(settings.items()))
    return Call(dynamic, (Tuple((*tensors, *values.values())),), attrs)


def resolved(expr: Expr) -> Expr | None:
    """The operator's call, if `expr` is a dynamic one and the values are known by now."""
    if not isinstance(expr, Call) or expr.op is not dynamic or not isinstance(expr.args[0], Tuple):
        return None
    attrs, fields = expr.attrs, expr.args[0].fields
    assert isinstance(attrs, DynamicAttrs), "it is a dynamic call"
    count = len(fields) - len(attrs.names)
    known = [static_value(field) for field in fields[count:]]
    if any(value is None for value in known):
        return None
    values = {name: value.tolist() for name, value in zip(attrs.names, known, strict=True) if value is not None}
    op = OPS[attrs.op]
    values = {name: _fitting(op, name, value) for name, value in values.items()}
    return Call(op, fields[:count], op.make_attrs((), {**dict(attrs.settings), **values}), expr.span)


def _fitting(op: Op, name: str, value: object) -> object:
    """Whole floats as integers, where the attribute is not one of floats."""
    if isinstance(value, list):
        if len(value) == 1 and _type_of(op, name) in ("int", "float"):
            return _fitting(op, name, value[0])
        return [part if isinstance(part, int) else _fitting(op, name, part) for part in value]
    wanted = _type_of(op, name)
    if isinstance(value, int) and wanted.startswith("tuple"):
        return (value,)
    is_whole = isinstance(value, float) and value.is_integer() and "float" not in wanted
    return int(value) if is_whole and isinstance(value, float) else value


def _type_of(op: Op, name: str) -> str:
    """What is written as the type of an attribute."""
    fields: dict[str, Field[object]] = getattr(op.attrs_class, "__dataclass_fields__", {})
    return str(fields[name].type) if name in fields else ""


@dynamic.infer
def _infer(attrs: DynamicAttrs, inputs: Type) -> Type:
    """The operator's type for attributes that fit, with every size unknown."""
    fields, op = tuple_fields(NAME, inputs), OPS[attrs.op]
    count = len(fields) - len(attrs.names)
    own = fields[:count]
    values = {name: _dummy(attrs.op, name, ty) for name, ty in zip(attrs.names, fields[count:], strict=True)}
    if attrs.op == "squeeze":  # the axes that go must have size 1
        return TensorType((ANY_DIM,) * (own[0].ndim - fields[count].size), own[0].dtype)
    own_attrs = op.make_attrs((), {**dict(attrs.settings), **values})
    if Fact.PICKS in op.facts and _ENDS.issuperset(attrs.names):
        return _cut(attrs, own[0], [ty.size for ty in fields[count:]])
    if _SIZES.issuperset(attrs.names):
        return _unchanged_type(op, attrs, values, own)
    with suppress(TypeMismatch):
        return _unknown(op.infer_type(own_attrs, [TensorType((1,) * ty.ndim, ty.dtype) for ty in own]))
    return _unknown(op.infer_type(own_attrs, list(own)))  # sizes that say something of the others


def _cut(attrs: DynamicAttrs, data: TensorType, counts: Sequence[int]) -> TensorType:
    """The type of a part of `data`: axes behind the `counts` of which ends are given stay whole."""
    settings = dict(attrs.settings)
    dropped = settings.get("axes")
    known = [len(v) for name in _ENDS if isinstance(v := settings.get(name), tuple | list)]
    axes = (
        [a % data.ndim for a in dropped]
        if isinstance(dropped, tuple | list) and dropped
        else range(max(*counts, *known, 0))
    )
    return TensorType(tuple(ANY_DIM if k in axes else size for k, size in enumerate(data.shape)), data.dtype)


def _unchanged_type(op: Op, attrs: DynamicAttrs, values: dict[str, object], own: Sequence[TensorType]) -> Type:
    """The type of an operator that is told sizes or factors: what two of them leave as it is stays."""
    first, second = (
        op.infer_type(op.make_attrs((), {**dict(attrs.settings), **_times(values, by)}), list(own)) for by in (2, 3)
    )
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return _unknown(first)
    pairs = zip(first.shape, second.shape, strict=True)
    return TensorType(tuple(a if a == b and type(a) is type(b) else ANY_DIM for a, b in pairs), first.dtype)


def _times(values: dict[str, object], by: int) -> dict[str, object]:
    return {k: [by for _ in v] if isinstance(v, list | tuple) else by for k, v in values.items()}


def _dummy(op: str, name: str, ty: TensorType) -> object:
    """A value that the attribute may have."""
    if any(not isinstance(n, int) for n in ty.shape):
        raise TypeMismatch(f"{op}: how many numbers {name} holds is not known: {ty}", hint="give its type a size")
    return _fitting(OPS[op], name, np.full(ty.static, _DUMMIES.get(name, 1), ty.dtype.numpy).tolist())


def _unknown(ty: Type) -> Type:
    if isinstance(ty, TupleType):
        return TupleType(tuple(map(_unknown, ty.fields)))
    assert isinstance(ty, TensorType), "operators give tensors, or tuples of them"
    return TensorType((ANY_DIM,) * ty.ndim, ty.dtype)


@dynamic.reference
def _reference(attrs: DynamicAttrs, inputs: Sequence[Array]) -> object:
    count = len(inputs) - len(attrs.names)
    known = Tuple(tuple(Constant(np.array(array, order="C")) for array in inputs))
    call = resolved(Call(dynamic, (known,), attrs))
    assert isinstance(call, Call) and isinstance(call.op, Op), "constants are known"
    call.checked_type  # noqa: B018  (refuses values that do not fit)
    return call.op.evaluate(call.attrs, list(inputs[:count]))


@dynamic.decompose
def _decompose(attrs: DynamicAttrs, inputs: Expr) -> Expr | None:
    """The operator's call, where the values are known."""
    return resolved(Call(dynamic, (inputs,), attrs))
