"""Regions of a graph that carry more channels than the network asked for, and the rewriting of them.

In: a function and, for each convolution, how many zero channels it should add. Out: `find_regions` keeps those whose
region ends well; `widen` rebuilds the function. Invariant: a wide value equals the old one in its first channels and is
finite in the others (so that zero weights remove them); whatever is not known to keep that reads a slice. The pass and
the choice of numbers: pad_channels.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import Op, get_op
from armillary.relay.transform._rules import op_name, tensor
from armillary.relay.walk import copy_type, map_children, not_primitive, post_order

_PER_CHANNEL = frozenset({  # finite for every finite input
    "nn.relu", "clip", "sigmoid", "tanh", "nn.leaky_relu", "erf", "nn.global_avg_pool2d", "nn.global_max_pool2d",
    "nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d", "nn.adaptive_max_pool2d", "negative", "abs",
})  # fmt: skip
_BINARY = frozenset({"add", "subtract", "multiply", "maximum", "minimum"})
CHANNEL_AXES = {"nn.conv2d": (0, 1), "nn.conv2d_transpose": (1, 0)}  # of the weight: output, input channels
_REDUCTIONS = frozenset({"mean", "max", "min"})


def find_regions(
    function: Function, extra: Callable[[Call], int], has_block: Callable[[Call], bool]
) -> dict[int, int]:
    """Channels to add, by id of each value that becomes wide.

    A convolution that `has_block` already gains little: it is left alone if an image would have to be sliced for it.
    """
    order = post_order(function, not_primitive)
    calls = [e for e in order if isinstance(e, Call) and isinstance(e.op, Op)]
    chosen = {id(c): n for c in calls if op_name(c) in CHANNEL_AXES and (n := extra(c))}
    weak = {id(c) for c in calls if id(c) in chosen and has_block(c)}
    while True:
        wide, sources = _spread(calls, chosen)
        bad = set[int]()
        for expr in order:
            for child in _sliced(expr, wide):
                if not _is_small(child):
                    bad |= sources[id(child)] & weak
        if not bad & chosen.keys():
            return wide
        chosen = {key: n for key, n in chosen.items() if key not in bad}


def _spread(calls: list[Call], chosen: Mapping[int, int]) -> tuple[dict[int, int], dict[int, set[int]]]:
    """Which values become wide, and which convolutions they come from."""
    wide: dict[int, int] = {}
    sources: dict[int, set[int]] = {}
    for call in calls:
        if id(call) in chosen:
            wide[id(call)], sources[id(call)] = chosen[id(call)], {id(call)}
        elif _carries(call, wide):
            parts = [a for a in call.args if id(a) in wide]
            wide[id(call)] = wide[id(parts[0])]
            sources[id(call)] = set[int]().union(*(sources[id(a)] for a in parts))
    return wide, sources


def _sliced(expr: Expr, wide: Mapping[int, int]) -> list[Expr]:
    """The wide values of which an expression reads a slice."""
    if isinstance(expr, Call):
        read = [a for a in expr.args if id(a) in wide]
        if id(expr) in wide and (op_name(expr) not in CHANNEL_AXES or _is_depthwise(expr)):
            return []
        return [] if read and _absorbs(expr) else read
    fields = getattr(expr, "fields", None) or ([expr.body] if isinstance(expr, Function) else [])
    return [e for e in fields if id(e) in wide]


def _is_small(expr: Expr) -> bool:
    """1x1 images: a slice of them costs nothing."""
    ty = tensor(expr)
    return ty is not None and all(d == 1 for d in ty.static[2:])


def _is_nchw(call: Call) -> bool:
    attrs = call.attrs
    texts = [getattr(attrs, name, "") for name in ("layout", "data_layout", "out_layout")]
    return all(text in ("", "NCHW") for text in texts) and getattr(attrs, "kernel_layout", "OIHW") == "OIHW"


def _carries(call: Call, wide: Mapping[int, int]) -> bool:
    """Whether the call of a wide value may itself be wide."""
    name, result = op_name(call), tensor(call)
    if not call.args or (id(call.args[0]) not in wide and name not in _BINARY):
        return False
    if result is None or result.ndim != 4 or not _is_nchw(call):
        return False
    if name in _BINARY:
        return _carries_binary(call, wide)
    if name in _REDUCTIONS:
        return bool(call.attrs.keepdims) and not call.attrs.exclude and _axes(call) == (2, 3)
    if name == "take":  # a resize, along the image
        return call.attrs.axis is not None and call.attrs.axis % 4 >= 2 and not call.attrs.batch_dims
    return name in _PER_CHANNEL or (name == "nn.conv2d" and _is_depthwise(call))


def _axes(call: Call) -> tuple[int, ...]:
    axis = call.attrs.axis
    return tuple(sorted(a % 4 for a in axis)) if isinstance(axis, tuple | list) else ()


def _carries_binary(call: Call, wide: Mapping[int, int]) -> bool:
    """Each operand is wide by the same number, or the same for all channels, or a constant per channel."""
    extra = {wide[id(a)] for a in call.args if id(a) in wide}
    ty = tensor(call)
    if len(extra) != 1 or ty is None:
        return False
    channels = ty.static[1]
    for arg in call.args:
        of = tensor(arg)
        if of is None:
            return False
        size = of.static[-3] if of.ndim >= 3 else 1
        fits = id(arg) in wide and size == channels
        if not fits and size != 1 and not isinstance(arg, Constant):
            return False
    return True


def _is_depthwise(call: Call) -> bool:
    weight = call.args[1]
    return isinstance(weight, Constant) and call.attrs.groups == weight.held.shape[0] and weight.held.shape[1] == 1


def _absorbs(call: Call) -> bool:
    """Whether it can ignore added channels of its data: an ordinary convolution with constant weights."""
    if op_name(call) not in CHANNEL_AXES or not isinstance(call.args[1], Constant):
        return False
    attrs = call.attrs
    kernel = "OIHW" if op_name(call) == "nn.conv2d" else "IOHW"
    plain = attrs.data_layout == "NCHW" and attrs.kernel_layout == kernel and attrs.out_layout in ("", "NCHW")
    return bool(attrs.groups == 1 and plain)


def widen(function: Function, wide: Mapping[int, int]) -> Expr:
    """The function with the values of `wide` carrying more channels."""
    return _Widener(wide).run(function)


class _Widener:
    """Rebuilds each value: its plain form, its wide form, or both where both are read."""

    def __init__(self, extra: Mapping[int, int]) -> None:
        self.extra = extra
        self.plain: dict[int, Expr] = {}
        self.wide: dict[int, Expr] = {}

    def run(self, function: Function) -> Expr:
        for expr in post_order(function, not_primitive):
            if isinstance(expr, Call) and id(expr) in self.extra:
                self.wide[id(expr)] = self._wide(expr)
            elif isinstance(expr, Call) and id(expr.args[0] if expr.args else expr) in self.wide and _absorbs(expr):
                self.plain[id(expr)] = copy_type(self._absorbed(expr), expr)
            else:
                self.plain[id(expr)] = copy_type(map_children(expr, self._get), expr)
        return self._get(function)

    def _get(self, expr: Expr) -> Expr:
        """The value with its own channels."""
        if id(expr) not in self.plain and id(expr) in self.wide:
            ty = tensor(expr)
            assert ty is not None, "wide values are tensors"
            end = list(ty.static)
            self.plain[id(expr)] = get_op("strided_slice")(self.wide[id(expr)], begin=[0] * len(end), end=end)
        return self.plain.get(id(expr), expr)

    def _absorbed(self, expr: Call) -> Call:
        data = expr.args[0]
        weight = _padded(expr.args[1], CHANNEL_AXES[op_name(expr)][1], self.extra[id(data)])
        return Call(expr.op, (self.wide[id(data)], weight), expr.attrs, expr.span)

    def _wide(self, expr: Call) -> Call:
        extra = self.extra[id(expr)]
        if op_name(expr) in CHANNEL_AXES:
            return self._wide_convolution(expr, extra)
        args = [self._operand(a, expr, extra) for a in expr.args]
        return Call(expr.op, tuple(args), expr.attrs, expr.span)

    def _wide_convolution(self, expr: Call, extra: int) -> Call:
        data, weight = expr.args
        attrs: Any = expr.attrs  # Any: each operator has its own attrs class
        out_axis, in_axis = CHANNEL_AXES[op_name(expr)]
        channels = weight.held.shape[out_axis] + extra  # type: ignore[attr-defined]
        changes: dict[str, Any] = {"channels": channels}
        if attrs.groups > 1:
            return Call(
                expr.op, (self.wide[id(data)], _padded(weight, 0, extra)),
                dataclasses.replace(attrs, groups=channels, **changes), expr.span,
            )  # fmt: skip
        weight = _padded(weight, out_axis, extra)
        source = self._get(data)
        if id(data) in self.wide:
            source, weight = self.wide[id(data)], _padded(weight, in_axis, self.extra[id(data)])
        return Call(expr.op, (source, weight), dataclasses.replace(attrs, **changes), expr.span)

    def _operand(self, arg: Expr, reader: Call, extra: int) -> Expr:
        if id(arg) in self.wide:
            return self.wide[id(arg)]
        ty, result = tensor(arg), tensor(reader)
        if isinstance(arg, Constant) and ty is not None and result is not None and ty.ndim >= 3:
            return _padded(arg, ty.ndim - 3, extra) if ty.static[-3] != 1 else arg
        return self._get(arg)


def _padded(value: Any, axis: int, extra: int) -> Constant:  # Any: a constant
    data = value.data
    return Constant(np.pad(data, [(0, extra if i == axis else 0) for i in range(data.ndim)]))
