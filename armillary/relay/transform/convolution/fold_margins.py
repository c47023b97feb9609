"""fold-margins: zeros around the data of a convolution, and a slice of its result, as its padding.

In: a typed module. Out: a convolution over one or two axes itself reads the data that nn.pad had surrounded by zeros;
where all that is read of its result, perhaps after constants and activations, is a part of the rows or columns without
stride, it computes that part alone (of a transposed convolution: it crops more). Invariant: same values, each of the
same sum. Causal convolutions are exported in both ways; the columns that a slice drops would be computed, and the slice
would keep what follows from fusing.

    def @main(%x: Tensor[(1, 3, 10), float32], %w: Tensor[(4, 3, 3), float32]) {
      %0 = nn.conv1d(%x, %w, padding=(2, 2));
      strided_slice(%0, begin=(0,), end=(-2,), axes=(2,))
    }
    ->
    def @main(%x: Tensor[(1, 3, 10), float32], %w: Tensor[(4, 3, 3), float32]) {
      nn.conv1d(%x, %w, padding=(2, 0))
    }
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from armillary.ir import IRModule
from armillary.ops.nn._windows import extent
from armillary.ops.nn.conv import window
from armillary.ops.shape.slice import slices
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import Kind, Op, has, is_call
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import known, on_functions, op_name, splat, tensor
from armillary.relay.walk import map_children, not_primitive, post_order, users
from armillary.transform import define_pass

_RANKS = {f"nn.conv{rank}d{kind}": rank for rank in (1, 2) for kind in ("", "_transpose")}
_LAYOUTS = {1: "NCW", 2: "NCHW"}


@define_pass("fold-margins", opt_level=2)
def fold_margins(module: IRModule) -> IRModule:
    """Fold zeros before convolutions and slices behind them into their padding."""
    return on_functions(module, _folded)


def _folded(function: Function) -> Expr:
    order = list(post_order(function, not_primitive))
    readers = users(order)
    sole = {key for key, uses in readers.items() if len(uses) == 1}
    memo: dict[int, Expr] = {}
    for expr in order:
        rebuilt = map_children(expr, lambda e: memo.get(id(e), e))
        padded = _padded(rebuilt)
        if (
            padded is None
            and is_call(expr, "strided_slice")
            and _is_own(expr.args[0], sole)
            and isinstance(rebuilt, Call)
        ):
            padded = _cropped(rebuilt)
        memo[id(expr)] = rebuilt if padded is None else padded
    return memo[id(function)]


def _padded(expr: Expr) -> Expr | None:
    """conv(pad(x), w)  ->  conv(x, w, more padding)   where the padding is zeros around rows and columns"""
    rank = _RANKS.get(op_name(expr), 0)
    if (
        not isinstance(expr, Call)
        or not rank
        or "transpose" in op_name(expr)
        or expr.attrs.data_layout != _LAYOUTS[rank]
    ):
        return None
    pad, result = expr.args[0], tensor(expr)
    if not is_call(pad, "nn.pad") or result is None or tensor(pad) is None:
        return None
    width, value = pad.attrs.pad_width, pad.attrs.pad_value
    if len(pad.args) > 1:
        value = splat(pad.args[1])
    if value != 0 or pad.attrs.pad_mode != "constant" or any(map(any, width[:2])) or min(map(min, width)) < 0:
        return None
    own = window(op_name(expr), expr.attrs, rank).pads
    both = [(q[0] + w[0], q[1] + w[1]) for q, w in zip(own, width[2:], strict=True)]
    return _with_pads(expr, pad.args[0], both)


def _cropped(expr: Call) -> Expr | None:
    """slice(relu(add(conv(x, w), bias)))  ->  relu(add(conv(x, w, less padding), bias))"""
    chain, source = [], _call_at(expr, 0)
    while op_name(source) not in _RANKS:
        chain.append(source)
        source = _call_at(source, _data(source))
    data, whole, taken = tensor(source.args[0]), tensor(source), tensor(expr)
    if data is None or whole is None or taken is None or source.attrs.data_layout != _LAYOUTS[_RANKS[op_name(source)]]:
        return None
    places = [(begin, step) for begin, step, _ in slices(expr.attrs, whole.static) if isinstance(begin, int)]
    if len(places) < whole.ndim or any(step != 1 for _, step in places) or taken.static[:2] != whole.static[:2]:
        return None
    counts = taken.static[2:]
    pads = [_pads(source, axis, begin, counts[axis]) for axis, (begin, _) in enumerate(places[2:])]
    if any(min(pair) < 0 for pair in pads):
        return None
    result = _with_pads(source, source.args[0], pads)
    for call in reversed(chain):
        args = list(call.args)
        args[_data(call) or 0] = result
        result = Call(call.op, tuple(args), call.attrs, call.span)
    return result if result.checked_type == expr.checked_type else None


def _pads(conv: Call, axis: int, begin: int, count: int) -> tuple[int, int]:
    """The padding with which a convolution gives `count` elements of an axis from `begin` on; negative: none does."""
    name, attrs = op_name(conv), conv.attrs
    win = window(name, attrs, _RANKS[name])
    (before, after), stride = win.pads[axis], win.strides[axis]
    have, gives, taps = (known(t).static[2 + axis] for t in (conv.args[0], conv, conv.args[1]))
    if "transpose" in name:
        return before + begin, after + gives - begin - count
    reach = extent(taps, win.dilation[axis])
    before -= begin * stride
    return before, (count - 1) * stride + reach - have - before


def _with_pads(conv: Call, data: Expr, pads: Sequence[tuple[int, int]]) -> Call:
    attrs = dataclasses.replace(conv.attrs, padding=tuple(p for side in zip(*pads, strict=True) for p in side))
    return Call(conv.op, (data, *conv.args[1:]), attrs, conv.span)


def _is_own(expr: object, sole: set[int]) -> bool:  # as in _padded
    """Whether it is a convolution, perhaps under elementwise operators, of which nothing else is read."""
    while id(expr) in sole and isinstance(expr, Call) and isinstance(expr.op, Op):
        if op_name(expr) in _RANKS:
            return True
        position = _data(expr)
        if position is None:
            return False
        expr = expr.args[position]
    return False


def _call_at(call: Call, position: int | None) -> Call:
    """An argument that `_is_own` has found to be a call."""
    result = call.args[position or 0]
    assert isinstance(result, Call), "convolutions and what is elementwise"
    return result


def _data(expr: Call) -> int | None:
    """Which argument an elementwise operator works on, beside constants that are the same along rows and columns."""
    if expr.op.kind == Kind.ELEMENTWISE and len(expr.args) == 1:
        return 0
    if op_name(expr) == "nn.bias_add":
        return 0 if isinstance(expr.args[1], Constant) and expr.attrs.axis == 1 else None
    result = tensor(expr)
    if op_name(expr) == "divide" or not has(expr, Fact.ARITHMETIC) or result is None:
        return None
    constants = [a for a in expr.args if isinstance(a, Constant)]
    if len(constants) != 1:
        return None
    position, shape = 0 if isinstance(expr.args[1], Constant) else 1, constants[0].held.shape
    return position if all(d == 1 for d in shape[len(shape) - result.ndim + 2 :]) or not shape else None
