"""Factors of channels on their way into weights that are no constants: the products are part of the graph.

In: a typed function. Out: the same with weights multiplied by the factors that stood behind (backward) or before
(forward) a convolution or dense layer. A factor passes additions of what varies along channels only, sums of two values
that it gets into, and, where it is a positive constant, relu; forward it goes into all readers of a value or stays.
Invariant: each value has its type; factors that a bias is divided by are constants without zeros. Constant weights are
scaled before, in numbers: simplify/fold_scale_axis.py.

    multiply(nn.conv2d(%x, %w), scale)  ->  nn.conv2d(%x, multiply(%w, expand_dims(scale, axis=1, num_newaxis=3)))
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from armillary.base.data_layout import layout
from armillary.base.record import record
from armillary.ops.elementwise.broadcast import divide, multiply
from armillary.ops.shape.shape import expand_dims, reshape, squeeze
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import Kind, Op, has
from armillary.relay.op.facts import Fact, Follows
from armillary.relay.transform._rules import tensor
from armillary.relay.types import TensorType
from armillary.relay.walk import map_children, not_primitive, post_order, users

_Axes = tuple[int, ...]  # of the channels: the whole axis, and its block where there is one
_ANY, _NONZERO, _POSITIVE = range(3)


@record
class _Way:
    """Where a factor may go: along which axes of a value, and which numbers it may have."""

    axes: _Axes
    numbers: int


@record
class _Scaled:
    """A value times a factor with one dimension for each of the axes."""

    value: Expr
    factor: Expr
    axes: _Axes


def flow_forward(function: Function) -> Expr:
    """Fold factors that stand before contractions."""
    order = post_order(function, not_primitive)
    ways, readers = dict[int, _Way | None](), users(order)
    for expr in reversed(order):
        ways[id(expr)] = _into_all(expr, readers.get(id(expr), []), ways)
    memo: dict[int, Expr | _Scaled] = {}

    def plain(expr: Expr) -> Expr:
        new = memo.get(id(expr), expr)
        assert not isinstance(new, _Scaled), "every reader of a value that lost its factor takes it"
        return new

    for expr in order:
        memo[id(expr)] = _forward(expr, ways[id(expr)], memo) or map_children(expr, plain)
    return plain(function)


def _into_all(expr: Expr, readers: Sequence[Expr], ways: dict[int, _Way | None]) -> _Way | None:
    """The way of a factor of a value into its readers; None where one of them does not take it."""
    flows = [_into(reader, expr, ways) for reader in readers]
    first = flows[0] if flows else None
    if first is None or any(way is None or way.axes != first.axes for way in flows):
        return None
    return _Way(first.axes, max(way.numbers for way in flows if way is not None))


def _into(reader: Expr, value: Expr, ways: dict[int, _Way | None]) -> _Way | None:
    if not isinstance(reader, Call) or sum(arg is value for arg in reader.args) != 1:
        return None
    is_first, way = reader.args[0] is value, ways.get(id(reader))
    if is_first and _weight_axes(reader, forward=True) is not None:
        return _Way(_data_axes(reader, result=False), _ANY)
    if way is None:
        return None
    if _is_relu(reader):
        return _Way(way.axes, _POSITIVE)
    if _is_sum(reader) and _is_along(reader.args[1 if is_first else 0], value, way.axes):
        return _Way(way.axes, max(way.numbers, _NONZERO))
    return None


def _forward(expr: Expr, way: _Way | None, memo: dict[int, Expr | _Scaled]) -> Expr | _Scaled | None:
    """A call with the factor of its operand, or without its own; None: as it was."""
    if not isinstance(expr, Call) or not expr.args:
        return None
    args = [memo.get(id(arg), arg) for arg in expr.args]
    place = next((k for k, arg in enumerate(args) if isinstance(arg, _Scaled)), None)
    if place is None:
        return None if way is None else _taken(expr, way, args)
    scaled, others = args[place], [arg for arg in args if not isinstance(arg, _Scaled)]
    assert isinstance(scaled, _Scaled) and len(others) == len(args) - 1, "one operand has a factor"
    if _is_relu(expr):
        return _Scaled(_again(expr, scaled.value), scaled.factor, scaled.axes)
    if not _is_sum(expr):
        return _again(expr, scaled.value, _weight(expr, others[0], scaled.factor, forward=True))
    divided = divide(others[0], _spread(scaled.factor, _type(expr), scaled.axes))
    pair = (scaled.value, divided) if place == 0 else (divided, scaled.value)
    return _Scaled(_again(expr, *pair), scaled.factor, scaled.axes)


def _taken(expr: Call, way: _Way, args: Sequence[Expr | _Scaled]) -> _Scaled | None:
    """The product as a value and its factor."""
    if expr.op is not multiply:
        return None
    for value, factor in (expr.args, expr.args[::-1]):
        if _is_along(factor, value, way.axes) and _has(factor, way.numbers) and value.checked_type == expr.checked_type:
            new = args[0 if value is expr.args[0] else 1]
            assert not isinstance(new, _Scaled), "no operand has a factor"
            return _Scaled(new, _squeezed(factor, expr, way.axes), way.axes)
    return None


def flow_backward(function: Function) -> Expr:
    """Fold factors that stand behind contractions."""
    order = post_order(function, not_primitive)
    readers, ways = users(order), dict[int, _Way]()
    for expr in order:
        way = _above(expr, ways) if len(readers.get(id(expr), ())) == 1 else None
        if way is not None:
            ways[id(expr)] = way
    memo: dict[int, Expr] = {}
    for expr in order:
        memo[id(expr)] = _backward(expr, ways, memo) or map_children(expr, lambda e: memo.get(id(e), e))
    return memo[id(function)]


def _above(expr: Expr, ways: dict[int, _Way]) -> _Way | None:
    """The way of a factor of a value into what it is computed from."""
    if not isinstance(expr, Call) or not expr.args:
        return None
    if _weight_axes(expr, forward=False) is not None:
        return _Way(_data_axes(expr, result=True), _ANY)
    first = ways.get(id(expr.args[0]))
    if _is_relu(expr):
        return None if first is None else _Way(first.axes, _POSITIVE)
    if not _is_sum(expr):
        return None
    second = ways.get(id(expr.args[1]))
    if first is not None and second is not None:
        same = first.axes == second.axes and expr.args[0].checked_type == expr.args[1].checked_type
        return _Way(first.axes, max(first.numbers, second.numbers)) if same else None
    way = first if second is None else second
    value, other = expr.args if second is None else expr.args[::-1]
    if way is None or value.checked_type != expr.checked_type:
        return None
    return way if _is_added(expr, other, value, way.axes) else None


def _is_added(expr: Call, other: Expr, value: Expr, axes: _Axes) -> bool:
    if not _is_bias(expr):
        return _is_along(other, value, axes)
    ty = tensor(value)
    return ty is not None and axes == (expr.attrs.axis % ty.ndim,)


def _backward(expr: Expr, ways: dict[int, _Way], memo: dict[int, Expr]) -> Expr | None:
    if not isinstance(expr, Call) or expr.op is not multiply:
        return None
    for value, factor in (expr.args, expr.args[::-1]):
        way = ways.get(id(value))
        fits = way is not None and value.checked_type == expr.checked_type and _is_along(factor, value, way.axes)
        if way is not None and fits and _has(factor, way.numbers):
            new = memo.get(id(factor), factor)
            return _pushed(value, _squeezed(new, value, way.axes, factor), way.axes, ways, memo)
    return None


def _pushed(expr: Expr, factor: Expr, axes: _Axes, ways: dict[int, _Way], memo: dict[int, Expr]) -> Expr:
    """The value of an expression that has a way, times a factor."""
    assert isinstance(expr, Call), "contractions, sums and relu have ways"
    if _weight_axes(expr, forward=False) is not None:
        data, weight = (memo.get(id(arg), arg) for arg in expr.args)
        return _again(expr, data, _weight(expr, weight, factor, forward=False))
    args = []
    for arg in expr.args:
        if id(arg) in ways:
            args.append(_pushed(arg, factor, axes, ways, memo))
        else:
            spread = factor if _is_bias(expr) else _spread(factor, _type(expr), axes)
            args.append(multiply(memo.get(id(arg), arg), spread))
    return _again(expr, *args)


# --- channels -------------------------------------------------------------------------------------------------------


def _data_axes(contraction: Call, *, result: bool) -> _Axes:
    if contraction.op.layout_follows == Follows.ROWS:
        return (_type(contraction).ndim - 1,)
    attrs = contraction.attrs
    return _axes_of((attrs.out_layout if result else "") or attrs.data_layout, "C")


def _axes_of(text: str, axis: str) -> _Axes:
    """Where an axis lies, and its block."""
    letters = layout(text).axes
    return tuple(letters.index(letter) for letter in (axis, axis.lower()) if letter in letters)


def _weight_axes(expr: Call, *, forward: bool) -> _Axes | None:
    """The axes of a contraction's weight along its input (forward) or output channels; None where none are those."""
    op = expr.op
    if not isinstance(op, Op) or op.kind != Kind.CONTRACTION or len(expr.args) != 2:
        return None
    data, weight, result = tensor(expr.args[0]), tensor(expr.args[1]), tensor(expr)
    if data is None or weight is None or result is None or not weight.dtype.is_float:
        return None
    if op.layout_follows == Follows.ROWS:
        return (1,) if forward else (0,)
    if op.layout_follows != Follows.ASKED or not hasattr(expr.attrs, "kernel_layout"):
        return None
    of_input = _data_axes(expr, result=False)
    outer = _data_axes(expr, result=True)
    channels = prod((data if forward else result).static[k] for k in (of_input if forward else outer))
    is_grouped = expr.attrs.groups != 1
    axes = _axes_of(expr.attrs.kernel_layout, "O" if is_grouped or not forward else "I")
    fits = prod(weight.static[k] for k in axes) == channels and (not is_grouped or not forward)
    depthwise = is_grouped and expr.attrs.groups == channels == prod(weight.static[k] for k in axes)
    return axes if fits or depthwise else None


def _weight(contraction: Call, weight: Expr, factor: Expr, *, forward: bool) -> Expr:
    axes = _weight_axes(contraction, forward=forward)
    assert axes is not None, "it has a way"
    return multiply(weight, _spread(factor, _type(contraction.args[1]), axes))


def _is_relu(expr: Call) -> bool:
    return has(expr, Fact.HOMOGENEOUS) and expr.op.kind == Kind.ELEMENTWISE


def _is_sum(expr: Call) -> bool:
    return has(expr, Fact.ADDITIVE) and len(expr.args) == 2


def _is_bias(expr: Call) -> bool:
    return bool(expr.op.layout_follows == Follows.AXIS)


# --- factors --------------------------------------------------------------------------------------------------------


def _is_along(factor: Expr, value: Expr, axes: _Axes) -> bool:
    """Whether it has the sizes of these axes of a value, and one element along the others."""
    small, whole = tensor(factor), tensor(value)
    if small is None or whole is None or not small.dtype.is_float or small.ndim > whole.ndim:
        return False
    skipped = whole.ndim - small.ndim
    if any(axis < skipped for axis in axes):
        return False
    return all(size == (whole.static[k + skipped] if k + skipped in axes else 1) for k, size in enumerate(small.static))


def _squeezed(factor: Expr, value: Expr, axes: _Axes, source: Expr | None = None) -> Expr:
    """A factor with the channels' dimensions alone."""
    ty, whole = _type(source or factor), _type(value)
    skipped = whole.ndim - ty.ndim
    others = tuple(k for k in range(ty.ndim) if k + skipped not in axes)
    return squeeze(factor, axis=others) if others else factor


def _spread(factor: Expr, ty: TensorType, axes: _Axes) -> Expr:
    """A factor with a dimension for each axis of a type that come after the channels, or for all where there are
    blocks."""
    if len(axes) > 1:
        return reshape(factor, newshape=tuple(ty.static[k] if k in axes else 1 for k in range(ty.ndim)))
    behind = ty.ndim - axes[0] - 1
    return expand_dims(factor, axis=1, num_newaxis=behind) if behind else factor


def _has(factor: Expr, numbers: int) -> bool:
    """Whether all numbers of a factor are such; what is no constant, or a constant in another shape, is not known."""
    while isinstance(factor, Call) and has(factor, Fact.VIEW):
        factor = factor.args[0]
    if numbers == _ANY or not isinstance(factor, Constant):
        return numbers == _ANY
    data = factor.data
    return bool((data > 0).all() if numbers == _POSITIVE else (np.isfinite(data) & (data != 0)).all())


def _type(expr: Expr) -> TensorType:
    ty = tensor(expr)
    assert ty is not None, "a factor's way leads through tensors of known shape"
    return ty


def _again(source: Call, *args: Expr) -> Call:
    return Call(source.op, args, source.attrs, source.span)
