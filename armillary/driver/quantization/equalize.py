"""Channels evened out before a network is quantised, without a change of what it computes.

In: a module as prerequisite_optimize leaves it. Out: the module with other weights. Invariant: results stay, but for
the rounding of float32.

`equalized`: cross-layer equalisation (Nagel et al. 2019, Data-Free Quantization Through Weight Equalization and Bias
Correction): where one convolution alone reads another's result, through sums with constants and activations that keep
positive factors, each channel between them is divided by s and the weights behind multiplied by it, s so that both
sides' largest weights of the channel are equal. A ReLU6 gets a limit for each channel, 6 / s (the paper makes it a
ReLU, which changes what the network computes). `smoothed`:
SmoothQuant (Xiao et al. 2022, SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
Models): data of dense layers are divided by max|x|^a / max|w|^(1 - a) for each term, weights multiplied by it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.driver.quantization.calibrate import Rows, sampled, with_main
from armillary.ir import IRModule
from armillary.ops.elementwise.broadcast import add, minimum, multiply
from armillary.ops.elementwise.cast import clip
from armillary.ops.nn.activation import bias_add, relu
from armillary.ops.nn.conv import conv2d
from armillary.ops.nn.dense import dense
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import has
from armillary.relay.op.facts import Fact
from armillary.relay.walk import map_children, not_primitive, post_order, users

_ROUNDS = 8  # over all pairs: neighbours change each other
_MOST = 1e3  # of a factor, up or down: a channel without weights has none
_LEAST = 1e-5


@record
class _Pair:
    """Two convolutions and what lies between them, in order of computing."""

    first: Call
    between: tuple[Call, ...]
    second: Call


def equalized(module: IRModule) -> IRModule:
    """The module with channels between convolutions of equal weights on both sides."""
    main: Function = module["main"]
    pairs = _pairs(main)
    if not pairs:
        return module
    convolutions = {id(c): c for p in pairs for c in (p.first, p.second)}
    weights: dict[int, Array] = {key: _constant(c.args[1]).astype(np.float32) for key, c in convolutions.items()}
    factors = [np.ones(len(weights[id(p.first)]), np.float32) for p in pairs]
    for _ in range(_ROUNDS):
        for number, pair in enumerate(pairs):
            first, second = weights[id(pair.first)], weights[id(pair.second)]
            out, inner = np.abs(first).max((1, 2, 3)), _by_input(pair.second, np.abs(second))
            s = np.where((out > 0) & (inner > 0), np.sqrt(out * inner) / np.maximum(inner, 1e-30), 1)
            s = np.clip(s, 1 / _MOST, _MOST).astype(np.float32)
            weights[id(pair.first)] = first / s[:, None, None, None]
            axes = (-1, 1, 1, 1) if _is_depthwise(pair.second) else (-1, 1, 1)
            weights[id(pair.second)] = second * s.reshape(axes)
            factors[number] = factors[number] * s
    changed = {key: _with_argument(Constant(weight)) for key, weight in weights.items()}
    for pair, s in zip(pairs, factors, strict=True):
        changed |= {id(call): _divided(s) for call in pair.between if len(call.args) > 1}
        changed |= {id(call): _limited(s) for call in pair.between if _is_limit(call)}
    return _rewritten(module, changed)


def _pairs(main: Function) -> list[_Pair]:
    order = post_order(main, not_primitive)
    readers = {key: len(result) for key, result in users(order).items()}
    result = []
    for expr in order:
        if _is_plain(expr) and isinstance(expr, Call) and (expr.attrs.groups == 1 or _is_depthwise(expr)):
            between: list[Call] = []
            source = expr.args[0]
            while isinstance(source, Call) and readers.get(id(source)) == 1 and _keeps_factors(source):
                between.insert(0, source)
                source = source.args[0]
            if _is_plain(source) and readers.get(id(source)) == 1 and isinstance(source, Call):
                result.append(_Pair(source, tuple(between), expr))
    return result


def _is_plain(expr: Expr) -> bool:
    """A convolution of constant weights, channels second."""
    return (
        isinstance(expr, Call)
        and expr.op is conv2d
        and isinstance(expr.args[1], Constant)
        and (expr.attrs.data_layout, expr.attrs.kernel_layout, expr.attrs.out_layout)
        in (("NCHW", "OIHW", ""), ("NCHW", "OIHW", "NCHW"))
    )


def _is_depthwise(call: Call) -> bool:
    return bool(call.attrs.groups > 1 and _constant(call.args[1]).shape[:2] == (call.attrs.groups, 1))


def _by_input(call: Call, magnitudes: Array) -> Array:
    """The largest weight of each input channel."""
    result: Array = magnitudes.max((1, 2, 3) if _is_depthwise(call) else (0, 2, 3))
    return result


def _keeps_factors(call: Call) -> bool:
    """Whether a positive factor of each channel passes: as it is, or by another constant."""
    if len(call.args) == 1:
        return has(call, Fact.HOMOGENEOUS) or _is_limit(call)
    if call.op is bias_add:
        return bool(isinstance(call.args[1], Constant) and call.attrs.axis == 1)
    if call.op is not add or not isinstance(call.args[1], Constant):
        return False
    shape = _constant(call.args[1]).shape
    return len(shape) in (3, 4) and all(n == 1 for k, n in enumerate(shape) if k != len(shape) - 3)


def _is_limit(call: Call) -> bool:
    """Whether a call is a ReLU with an upper limit."""
    return bool(call.op is clip and call.attrs.a_min == 0 and call.attrs.a_max > 0)


def _limited(s: Array) -> Callable[[Call], Expr]:
    """A ReLU with an upper limit, for data that are divided by s."""

    def rule(call: Call) -> Expr:
        limits = (call.attrs.a_max / s).astype(np.float32).reshape(-1, 1, 1)
        return minimum(relu(call.args[0]), Constant(limits))

    return rule


def _divided(s: Array) -> Callable[[Call], Expr]:
    """What lies between, for data that are divided by s."""

    def rule(call: Call) -> Expr:
        bias = _constant(call.args[1])
        shape = (-1,) if call.op is bias_add else (-1, 1, 1)
        value = np.broadcast_to(bias / s.reshape(shape), np.broadcast_shapes(bias.shape, s.reshape(shape).shape))
        return Call(call.op, (call.args[0], Constant(np.ascontiguousarray(value, np.float32))), call.attrs, call.span)

    return rule


def smoothed(module: IRModule, rows: Rows, strength: float) -> IRModule:
    """The module with the outliers of dense layers' data moved to their weights."""
    main: Function = module["main"]
    layers = [
        e
        for e in post_order(main, not_primitive)
        if isinstance(e, Call) and e.op is dense and isinstance(e.args[1], Constant)
    ]
    sources = list({id(c.args[0]): c.args[0] for c in layers}.values())  # layers of one source share its factors
    changed: dict[int, Callable[[Call], Expr]] = {}
    for source, values in zip(sources, sampled(module, sources, rows) if sources else [], strict=True):
        readers = [c for c in layers if c.args[0] is source]
        weights = [_constant(c.args[1]) for c in readers]
        x = np.abs(values.reshape(-1, weights[0].shape[1])).max(0)
        w = np.max([np.abs(weight).max(0) for weight in weights], axis=0)
        s = np.maximum(x, _LEAST) ** strength / np.maximum(w, _LEAST) ** (1 - strength)
        s = np.where((x > 0) & (w > 0), s, 1).astype(np.float32)
        divided = _Divided(Constant((1 / s).astype(np.float32)))
        for call, weight in zip(readers, weights, strict=True):
            changed[id(call)] = divided.read_by(Constant((weight * s).astype(np.float32)))
    return _rewritten(module, changed)


class _Divided:
    """Data by their factors, computed once for all layers that read them."""

    def __init__(self, inverse: Constant) -> None:
        self.inverse, self.data = inverse, dict[int, Expr]()

    def read_by(self, weight: Constant) -> Callable[[Call], Expr]:
        """What a layer becomes."""

        def rule(call: Call) -> Expr:
            source = call.args[0]
            data = self.data.setdefault(id(source), multiply(source, self.inverse))
            return Call(call.op, (data, weight), call.attrs, call.span)

        return rule


def _with_argument(weight: Constant) -> Callable[[Call], Expr]:
    return lambda call: Call(call.op, (call.args[0], weight), call.attrs, call.span)


def _constant(expr: Expr) -> Array:
    assert isinstance(expr, Constant), "the caller has looked"
    return np.asarray(expr.data)


def _rewritten(module: IRModule, changed: dict[int, Callable[[Call], Expr]]) -> IRModule:
    main, new = module["main"], dict[int, Expr]()
    for expr in post_order(main, not_primitive):
        rewritten = map_children(expr, lambda child: new.get(id(child), child))
        rule = changed.get(id(expr))
        new[id(expr)] = rule(rewritten) if rule is not None and isinstance(rewritten, Call) else rewritten
    return with_main(module, new[id(main)])
