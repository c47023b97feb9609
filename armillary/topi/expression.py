"""What Relay computes, as tensor expressions: for operators that are made of others, and for Relay's own functions.

In: a function of Relay expressions, and TE tensors in the places of some arguments. Out: TE tensors. Invariant: each
call in what the function builds is computed by the rule of its operator, or by what its operator is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from armillary import te
from armillary.base.aliases import AnyFunction, Array
from armillary.errors import UnsupportedError
from armillary.ops._loops import store
from armillary.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, TupleWrapper, Var
from armillary.relay.op import Op
from armillary.relay.types import TupleType, tensor_type
from armillary.relay.walk import post_order
from armillary.te.constant import spelled_out
from armillary.tir.stmt import Buffer, Stmt, seq

Value = Any  # Any: a tensor, or a tuple of them
_MOST = 64  # elements of a constant that are spelled out where they are read
_MOST_STORED = 4096  # and of one that is written to memory by as many statements


def of_function(function: AnyFunction, args: Sequence[object], named: Mapping[str, object]) -> Value:
    """What a function of Relay expressions builds, where its arguments are tensors."""
    values: dict[int, Value] = {}

    def as_variable(value: object) -> object:
        if isinstance(value, te.Tensor):
            var = Var(value.op.name, tensor_type(value.shape, value.dtype))
            values[id(var)] = value
            return var
        return type(value)(map(as_variable, value)) if isinstance(value, list | tuple) else value

    outcome = function(*map(as_variable, args), **{k: as_variable(v) for k, v in named.items()})
    return _computed(outcome.astuple() if isinstance(outcome, TupleWrapper) else outcome, values)


def _computed(root: Expr, values: dict[int, Value]) -> Value:
    for item in post_order(root):
        if id(item) in values:
            continue
        match item:
            case Call():
                values[id(item)] = _of_call(item, [values[id(a)] for a in item.args], values)
            case Tuple(fields):
                values[id(item)] = tuple(values[id(f)] for f in fields)
            case TupleGetItem(of, index):
                values[id(item)] = values[id(of)][index]
            case Constant(data):
                values[id(item)] = _constant(data)
            case _:
                raise UnsupportedError(f"a {type(item).__name__} has no tensor-expression form")
    return values[id(root)]


def _of_call(call: Call, tensors: Sequence[Value], known: dict[int, Value]) -> Value:
    op = call.op
    if not isinstance(op, Op):
        raise UnsupportedError(f"a call of a {type(op).__name__} has no tensor-expression form")
    if op.compute_rule is not None:
        result = op.compute_rule(call.attrs, *tensors)
        many = isinstance(call.checked_type, TupleType)
        return tuple(result) if many else result[0] if isinstance(result, list | tuple) else result
    decomposed = op.decompose_rule(call.attrs, *call.args) if op.decompose_rule is not None else None
    if decomposed is None:
        raise UnsupportedError(f"the operator {op.name} has no tensor-expression form")
    values = known | {id(a): t for a, t in zip(call.args, tensors, strict=True)}
    for arg, group in zip(call.args, tensors, strict=True):
        if isinstance(arg, Tuple):
            values |= {id(field): tensor for field, tensor in zip(arg.fields, group, strict=True)}
    return _computed(decomposed, values)


def _constant(data: Array) -> te.Tensor:
    if data.size > _MOST_STORED:
        raise UnsupportedError(f"a constant of {data.size} elements is not spelled out", hint="pass it as a tensor")
    return spelled_out(data) if data.size <= _MOST else _stored(data)


def _stored(data: Array) -> te.Tensor:
    """A constant that is written to memory, element by element, before it is read."""

    def body(_: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        return seq(*(store(outs[0], data[place].item(), *place) for place in np.ndindex(data.shape)))

    result: te.Tensor = te.extern([data.shape], [], body, name="constant", dtype=[data.dtype.name])
    return result
