"""hoist-elementwise: per-element operators before the reshapes and transposes that follow a contraction.

In: a typed module. Out: unary elementwise operators, and additions, products… with a constant, that read a reshaped or
transposed result of a convolution, product or pooling are applied to that result; then they fuse into its kernel, where
they work on whole vectors. Invariant: the same values in the same places; a constant moves only where each of its
axes is one axis of the other shape.

    nn.relu(transpose(nn.dense(%x, weight), axes=[1, 0]))
    ->
    transpose(nn.relu(nn.dense(%x, weight)), axes=[1, 0])
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from armillary.base.aliases import Array
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.op import Kind, Op, has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import op_name, rewrite_module, tensor
from armillary.transform import define_pass

_LONGEST = 64  # operators from a contraction to what is moved up to it: a pass over a chain takes linear time
_PLACES = frozenset({"axis", "axes", "shape", "newshape", "layout", "dtype"})


@define_pass("hoist-elementwise", opt_level=2)
def hoist_elementwise(module: IRModule) -> IRModule:
    """Move elementwise operators up to the contraction whose result they change."""
    return rewrite_module(module, hoist)


def hoist(expr: Expr) -> Expr | None:
    """relu(transpose(dense(x)))  ->  transpose(relu(dense(x)))"""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return None
    position = elementwise_data(expr)
    if position is None:
        return None
    moved = expr.args[position]
    if not isinstance(moved, Call) or not _is_moved(moved) or not _is_epilogue(moved):
        return None
    return _pushed(expr, position, moved)


def _is_moved(expr: Call) -> bool:
    return has(expr, Fact.REARRANGES) and len(expr.args) == 1


def _pushed(expr: Call, position: int, moved: Call) -> Expr | None:
    """`expr` over what `moved` moves, then moved."""
    source, result = tensor(moved.args[0]), tensor(moved)
    if source is None or result is None or tensor(expr) is None or tensor(expr) != result:
        return None
    args = list(expr.args)
    args[position] = moved.args[0]
    if len(args) == 2:
        constant = args[1 - position]
        assert isinstance(constant, Constant), "of two arguments one is a constant"
        other = _constant_before(moved, constant.data, source.static, result.static)
        if other is None:
            return None
        args[1 - position] = Constant(other)
    inner = Call(expr.op, tuple(args), expr.attrs, expr.span)
    deeper = hoist(inner)
    return Call(moved.op, (deeper if deeper is not None else inner,), moved.attrs, moved.span)


def elementwise_data(expr: Call) -> int | None:
    """Which argument of an operator that works on each element is not a constant; None: it is no such operator."""
    if expr.op.kind == Kind.ELEMENTWISE and len(expr.args) == 1:
        fields = dataclasses.fields(expr.attrs) if expr.attrs is not None else ()
        return None if any(f.name in _PLACES for f in fields) else 0
    if not has(expr, Fact.ARITHMETIC) or sum(isinstance(a, Constant) for a in expr.args) != 1:
        return None
    return 0 if isinstance(expr.args[1], Constant) else 1


def _is_epilogue(expr: Expr) -> bool:
    """Whether a chain of moves and elementwise operators, at most _LONGEST, leads up to a contraction."""
    for _ in range(_LONGEST):
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return False
        if expr.op.kind == Kind.CONTRACTION:
            return True
        position = 0 if _is_moved(expr) else elementwise_data(expr)
        if position is None:
            return False
        expr = expr.args[position]
    return False


def _constant_before(moved: Call, data: Array, source: tuple[int, ...], result: tuple[int, ...]) -> Array | None:
    """The constant as it must be to broadcast against the shape before the move."""
    if data.size == 1:
        return data.reshape(())
    full = data.reshape((1,) * (len(result) - data.ndim) + data.shape)
    if op_name(moved) == "transpose":
        axes = moved.attrs.axes
        order = [a % len(source) for a in axes] if axes else list(reversed(range(len(source))))
        return np.ascontiguousarray(full.transpose(np.argsort(order)))
    before = [a for a, d in enumerate(source) if d != 1]
    after = [a for a, d in enumerate(result) if d != 1]
    if [source[a] for a in before] != [result[a] for a in after]:
        return _constant_of_last_axes(full, source, result)
    shape = [1] * len(source)
    for a, b in zip(before, after, strict=True):
        shape[a] = full.shape[b]
    return full.reshape(shape)


def _constant_of_last_axes(full: Array, source: tuple[int, ...], result: tuple[int, ...]) -> Array | None:
    """A constant that is the same along all axes which a reshape merges or splits, if those are the first ones."""
    same = next((k for k in range(min(len(source), len(result))) if source[-1 - k] != result[-1 - k]), 0)
    lead = len(full.shape) - same
    return full.reshape((1,) * (len(source) - same) + full.shape[lead:]) if math.prod(full.shape[:lead]) == 1 else None
