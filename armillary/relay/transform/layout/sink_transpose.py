"""sink-transpose: transpositions behind the operators that treat all axes alike, where they meet their inverses.

In: a typed module. Out: what works on each element, joins, surrounds by a border, or averages rows and columns of
images that were transposed to have their channels last does so before, and transposing those back is nothing. A network
that was written with the channels last is exported as convolutions between two transpositions each; none of them is
left between a convolution and the next. Invariant: the same values in the same places, and no more transpositions than
before along any path: an operator changes places only where all that read its arguments can, too, and where a
transposition or an average lies ahead.

    def @main(%a: Tensor[(1, 4, 3, 3), float32], %b: Tensor[(1, 4, 3, 3), float32]) {
      %0 = transpose(%a, axes=[0, 2, 3, 1]);
      %1 = transpose(%b, axes=[0, 2, 3, 1]);
      %2 = add(%0, %1);
      transpose(%2, axes=[0, 3, 1, 2])
    }
    ->
    def @main(%a: Tensor[(1, 4, 3, 3), float32], %b: Tensor[(1, 4, 3, 3), float32]) {
      add(%a, %b)
    }
"""

from __future__ import annotations

import dataclasses

import numpy as np

from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple
from armillary.relay.op import Kind, Op, has
from armillary.relay.op.facts import Fact, Follows
from armillary.relay.transform._rules import Readers, axes_of, concatenated, on_functions, op_name, transposed
from armillary.relay.walk import map_children, not_primitive, post_order, users
from armillary.transform import define_pass

with deferred():
    from armillary.ops.reduce.reduce import reduced_axes
_PLACES = frozenset({"axis", "axes", "shape", "newshape", "layout", "dtype"})
Axes = tuple[int, ...]


@define_pass("sink-transpose", opt_level=2)
def sink_transpose(module: IRModule) -> IRModule:
    """Move transpositions down to where they cancel."""
    return on_functions(module, _sunk)


def _sunk(function: Function) -> Expr:
    order = list(post_order(function, not_primitive))
    if not any(_axes(expr) is not None for expr in order):
        return function
    readers = users(order)
    ahead = _with_transpositions_ahead(order, readers)
    memo: dict[int, Expr] = {}
    for expr in order:
        rebuilt = map_children(expr, lambda e: memo.get(id(e), e))
        sunk = None
        if isinstance(expr, Call) and isinstance(rebuilt, Call):
            is_free = id(expr) in ahead and all(_all_move(a, readers) for a in _data(expr))
            sunk = _cancelled(rebuilt) if op_name(expr) == "transpose" else _moved(rebuilt) if is_free else None
        memo[id(expr)] = rebuilt if sunk is None else sunk
    return memo[id(function)]


def _with_transpositions_ahead(order: list[Expr], readers: Readers) -> set[int]:
    """The ids of operators that can change places and lead, by others that can, to a transposition or an average."""
    result: set[int] = set()
    for expr in reversed(order):
        if not _can_move(expr):
            continue
        ends = (op_name(r) == "transpose" or id(r) in result for r in _through_tuples(expr, readers))
        if _is_reduced(expr) or any(ends):
            result.add(id(expr))
    return result


def _all_move(expr: Expr, readers: Readers) -> bool:
    """Whether whatever reads an expression can do without its being transposed."""
    return all(op_name(r) == "transpose" or _can_move(r) for r in _through_tuples(expr, readers))


def _through_tuples(expr: Expr, readers: Readers) -> list[Expr]:
    direct = readers.get(id(expr), [])
    return [far for r in direct for far in (readers.get(id(r), []) if isinstance(r, Tuple) else [r])]


def _is_reduced(expr: Expr) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.layout_follows == Follows.REDUCTION


def _can_move(expr: Expr) -> bool:
    """Whether an operator may work on data before it is transposed."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return False
    name = op_name(expr)
    if has(expr, Fact.ARITHMETIC) or name == "concatenate" or _is_reduced(expr):
        return True
    if name == "nn.pad":
        return len(expr.args) == 1
    fields = dataclasses.fields(expr.attrs) if expr.attrs is not None else ()
    return expr.op.kind == Kind.ELEMENTWISE and len(expr.args) == 1 and not any(f.name in _PLACES for f in fields)


def _data(expr: Call) -> tuple[Expr, ...]:
    """The tensors that an operator which can move reads, without constants."""
    first = expr.args[0] if expr.args else None
    return tuple(a for a in (first.fields if isinstance(first, Tuple) else expr.args) if not isinstance(a, Constant))


def _axes(expr: Expr) -> Axes | None:
    """The axes of a transposition that puts the channels of images or volumes last.

    Others move the heads of attention, where the order of a sum's terms in memory counts.
    """
    axes = axes_of(expr)
    return axes if len(axes) > 3 and axes == (0, *range(2, len(axes)), 1) else None


def _cancelled(expr: Call) -> Expr | None:
    """transpose(transpose(x, a), b)  ->  transpose(x, a[b]), or x"""
    inner, outer = _axes(expr.args[0]), axes_of(expr)
    if inner is None or not outer:
        return None
    source = expr.args[0].args[0]  # type: ignore[attr-defined]
    return transposed(source, tuple(inner[a] for a in outer))


def _moved(expr: Call) -> Expr | None:
    """An operator on transposed tensors as the transposition of its result, where all are transposed alike."""
    data = _data(expr)
    axes = _axes(data[0]) if data else None
    if axes is None or any(_axes(d) != axes for d in data):
        return None
    if op_name(expr) == "concatenate":
        sources = [d.args[0] for d in data]  # type: ignore[attr-defined]
        if len(data) != len(expr.args[0].fields):  # type: ignore[attr-defined]
            return None
        return transposed(concatenated(sources, axes[expr.attrs.axis % len(axes)]), axes)
    if _is_reduced(expr):
        return _reduced(expr, axes)
    args = tuple(_before(a, axes) for a in expr.args)
    if any(a is None for a in args):
        return None
    attrs = expr.attrs
    if op_name(expr) == "nn.pad":
        attrs = dataclasses.replace(attrs, pad_width=tuple(attrs.pad_width[axes.index(k)] for k in range(len(axes))))
    return transposed(Call(expr.op, tuple(a for a in args if a is not None), attrs, expr.span), axes)


def _before(arg: Expr, axes: Axes) -> Expr | None:
    """An argument as it is before the transposition; None: a constant of more axes."""
    if isinstance(arg, Call):
        return arg.args[0]
    assert isinstance(arg, Constant), "what an operator that moves reads is transposed or constant"
    if arg.data.size == 1:
        return Constant(arg.data.reshape(())) if arg.data.ndim <= len(axes) else None
    if arg.data.ndim > len(axes):
        return None
    full = arg.data.reshape((1,) * (len(axes) - arg.data.ndim) + arg.data.shape)
    return Constant(np.ascontiguousarray(full.transpose(np.argsort(axes))))


def _reduced(expr: Call, axes: Axes) -> Expr | None:
    """A reduction over rows and columns, not over what lies in blocks later, of data before they are transposed."""
    gone = tuple(sorted(axes[a] for a in reduced_axes(op_name(expr), expr.attrs, len(axes))))
    if not gone or 1 in gone:
        return None
    attrs = dataclasses.replace(expr.attrs, axis=gone, exclude=False)
    result = Call(expr.op, (expr.args[0].args[0],), attrs, expr.span)  # type: ignore[attr-defined]
    if expr.attrs.keepdims:
        return transposed(result, axes)
    left = [a for a in axes if a not in gone]
    return transposed(result, tuple(sorted(left).index(a) for a in left))
