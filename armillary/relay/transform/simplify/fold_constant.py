"""fold-constant: evaluate at compile time what depends on constants only.

In: a module. Out: one where calls of constants are constants, branches on constants are taken, and lets of constants
are gone. Invariant: stateful operators are left alone, and nothing much larger than its inputs is made: a scalar
broadcast to a gigabyte stays a call, and so do operators that expand weights and products that would take long. Such
calls run when parameters are loaded (program/prepare.py).

    def @main(%x: Tensor[(), int32]) { %0 = add(1, 2); multiply(%x, %0) }
    ->
    def @main(%x: Tensor[(), int32]) { multiply(%x, 3) }
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import Deferred, aligned, give_back_memory, in_rows
from armillary.base.data_layout import layout
from armillary.budgets import FOLDED_OPERATIONS
from armillary.ir import IRModule
from armillary.relay.analysis.bind_sizes import attr_sizes
from armillary.relay.call_budgets import Spent, operations
from armillary.relay.evaluate import evaluate_call
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, Var
from armillary.relay.op import Op, has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import on_functions
from armillary.relay.transform.simplify.simplify_inference import pick_field
from armillary.relay.types import AnyDim, TensorType, Type, tensor_fields
from armillary.relay.walk import copy_type, not_primitive, post_order, rewrite
from armillary.transform import define_pass

_GROWTH = 8  # int8 weights become float64 at most
_PIECE = 1 << 16  # elements looked at together


@define_pass("fold-constant", opt_level=2)
def fold_constant(module: IRModule, *, fold_qnn: bool = False, max_bytes: int = 1 << 26) -> IRModule:
    """Evaluate calls whose arguments are all constants.

    add(const 1, const 2)  ->  const 3
    """
    give_back_memory()  # what other passes freed, before the step that needs most: 8 of MobileNet's 117 MB
    return on_functions(module, partial(_fold_function, fold_qnn=fold_qnn, max_bytes=max_bytes))


def _fold_function(function: Function, fold_qnn: bool, max_bytes: int) -> Expr:
    return _fold(function, fold_qnn, max_bytes)


def _fold(root: Function, fold_qnn: bool, max_bytes: int) -> Expr:
    memo: dict[int, Expr] = {}
    spent = Spent([root])
    lets = {id(e.var): e.value for e in post_order(root, not_primitive) if isinstance(e, Let)}

    def rule(expr: Expr) -> Expr | None:
        match expr:
            case Call(Op() as op):
                skip = op.stateful or op.expands or (op.name.startswith("qnn.") and not fold_qnn)
                return None if skip else _fold_call(expr, max_bytes, spent)
            case Var() if id(expr) in lets:
                value = memo.get(id(lets[id(expr)]))
                return value if isinstance(value, Constant) else None
            case If(Constant(data), yes, no):
                return yes if bool(data) else no
            case _:
                return pick_field(expr)

    folded = rewrite(root, rule, not_primitive, memo)
    is_done = not any(map(_is_waiting, post_order(folded, not_primitive)))
    return folded if is_done else rewrite(folded, settled, not_primitive)


def _is_waiting(expr: Expr) -> bool:
    return isinstance(expr, Constant) and isinstance(expr.held, Deferred) and expr.held.rows is None


def settled(expr: Expr) -> Expr | None:
    """deferred const  ->  const: what no fold has used is looked at once, here; what lies in a file stays there"""
    if not isinstance(expr, Constant) or not _is_waiting(expr):
        return None
    return copy_type(Constant(aligned(expr.data.view(np.ndarray)), expr.span), expr)


def _fold_call(call: Call, max_bytes: int, spent: Spent) -> Expr | None:
    if has(call, Fact.TYPE_ONLY):
        return _fold_shape(call)
    inputs = 0
    for arg in call.args:
        size = _constant_bytes(arg)
        if size is None:
            return None
        inputs += size
    if any(ty.dtype.is_custom for e in (call, *call.args) for ty in tensor_fields(e.checked_type)):
        return None  # computed by functions that a script names
    if call.op.reference_rule is None or any(True for _ in attr_sizes(call.attrs)):
        return None
    size = _result_bytes(call.checked_type)
    if size is None and call.op.decompose_rule is not None:  # its rows are counted by its values
        result = call.op.decompose_rule(call.attrs, *call.args)
        return result if isinstance(result, Constant | Tuple) else None
    if size is None or size > max(max_bytes, _GROWTH * inputs):
        return None
    if operations(call) > FOLDED_OPERATIONS.limit:
        return None
    spent.add(call, size)
    late = _relaid(call) if call.op.name == "layout_transform" else None
    return as_constant(_without_subnormal(call, evaluate_call(call)), call) if late is None else late


def _without_subnormal(call: Call, value: Any) -> Any:  # Any: an array or a tuple of them
    """The value of an operator that may vanish, zero where it is subnormal, with its sign, as in kernels of softmax.

    Some processors take a hundred cycles and more for a vector that has a subnormal number in it (ConViT adds up two
    kinds of attention: 1.2 Mcycles of each kernel's 1.4).
    """
    if not has(call, Fact.VANISHES) or getattr(value, "dtype", None) != np.float32:
        return value
    flat: Array = np.ascontiguousarray(value).reshape(-1)
    for begin in range(0, flat.size, _PIECE):
        part = flat[begin : begin + _PIECE]
        part[np.abs(part) < np.finfo(np.float32).tiny] *= 0
    return flat.reshape(np.shape(value))


def _relaid(call: Call) -> Expr | None:
    """Numbers that are in a file stay there, if the new layout has the same outermost axis: they are packed by rows."""
    source, attrs = call.args[0], call.attrs
    src, dst = layout(attrs.src_layout), layout(attrs.dst_layout)
    axis = dst.axes[0]
    is_same_block = isinstance(source, Constant) and src.axes[0] == axis and not src.block(axis)
    held = source.held if is_same_block else None  # type: ignore[attr-defined]
    if not isinstance(held, Deferred) or held.rows is None or not isinstance(call.checked_type, TensorType):
        return None
    read, factor = held.rows, dst.block(axis) or 1

    def rows(begin: int, end: int) -> Array:
        result: Array = call.op.evaluate(attrs, [read(begin * factor, end * factor)])
        return result

    packed = in_rows(call.checked_type.static, held.dtype, rows, math.lcm(factor, held.step) // factor)
    return copy_type(Constant(packed, call.span), call)


def _fold_shape(call: Call) -> Expr | None:
    ty, result = call.args[0].checked_type, call.checked_type
    if not isinstance(ty, TensorType) or not isinstance(result, TensorType):
        return None
    if any(isinstance(d, AnyDim) for d in ty.shape):
        return None
    value = ty.shape if call.op.name == "shape_of" else ty.size
    return Constant(np.asarray(value, result.dtype.numpy), call.span)


def _constant_bytes(expr: Expr) -> int | None:
    """The bytes of a constant or of a tuple of constants; None for anything else."""
    if isinstance(expr, Constant):
        return expr.nbytes
    if isinstance(expr, Tuple):
        sizes = [f.nbytes if isinstance(f, Constant) else None for f in expr.fields]
        known = [s for s in sizes if s is not None]
        return sum(known) if len(known) == len(sizes) else None
    return None


def _result_bytes(ty: Type) -> int | None:
    fields = tensor_fields(ty)
    if any(isinstance(d, AnyDim) for f in fields for d in f.shape):
        return None
    return sum(f.nbytes for f in fields)


def as_constant(value: Any, like: Expr) -> Expr:  # Any: an array or a tuple of them
    """An evaluated value as an expression."""
    if isinstance(value, tuple):
        return Tuple(tuple(as_constant(v, like) for v in value), like.span if isinstance(like, Call) else None)
    array = aligned(np.asarray(value)).reshape(value.shape)  # kernels and packages use it where it is
    result = Constant(array, like.span if isinstance(like, Call) else None)
    return copy_type(result, like) if isinstance(like.checked_type, TensorType) else result
