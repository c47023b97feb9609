"""fold-scale-axis: move per-channel factors into the weights of convolutions and dense layers.

In: a module with constant weights (of inputs: convolution/_scale_flow.py), biases as plain additions. Out: the same
without multiplications by per-channel constants after (backward) or before (forward) a conv2d or dense. On its way a
factor passes additions of constants, sums of two foldable values, average pooling and, where it is positive, relu and
max pooling. Invariant: a factor moves only through values with one user; the results agree to rounding, as no product
of constants overflows or is denormal where the graph has none. Large weights that 16-bit floats hold exactly stay as
they are (narrow-weights stores them so); a factor behind them costs one operation for each result.

    multiply(nn.conv2d(%x, weight), scale)  ->  nn.conv2d(%x, weight * scale)
    nn.conv2d(multiply(%x, scale), weight)  ->  nn.conv2d(%x, weight * scale)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import Deferred, in_rows
from armillary.base.data_layout import layout
from armillary.base.float_range import may_multiply
from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, known_of
from armillary.relay.op import Op, has
from armillary.relay.op.facts import Fact, Follows
from armillary.relay.transform._rules import call, on_functions, op_name
from armillary.relay.transform.simplify._narrow_values import is_narrow_without
from armillary.relay.walk import not_primitive, post_order, rewrite, users
from armillary.transform import define_pass

with deferred():  # builds have constant weights
    from armillary.relay.transform.convolution._scale_flow import flow_backward, flow_forward

_CONTRACTIONS = ("nn.conv2d", "nn.dense")
_LARGE = 1 << 16  # bytes
_REACH = 16  # how many nodes a factor may pass; keeps the search linear


@define_pass("fold-scale-axis", opt_level=3)
def fold_scale_axis(module: IRModule, *, constant_weights: bool = False) -> IRModule:
    """Fold factors into weights, backward then forward; with `constant_weights` into no others."""
    if constant_weights:
        return _in_numbers(_in_numbers(module, _backward), _forward)
    return fold_forward(fold_backward(module))


def fold_backward(module: IRModule) -> IRModule:
    """Fold factors that follow a contraction."""
    return on_functions(_in_numbers(module, _backward), flow_backward)


def fold_forward(module: IRModule) -> IRModule:
    """Fold factors that precede a contraction."""
    return on_functions(_in_numbers(module, _forward), flow_forward)


class SingleUse:
    """Which nodes, old or rebuilt, have one user."""

    def __init__(self, function: Function) -> None:
        self.users = users(post_order(function))
        self.fresh: dict[int, bool] = {}
        self.keep: list[Expr] = []

    def note(self, new: Expr, old: Expr) -> None:
        self.fresh[id(new)] = len(self.users.get(id(old), ())) <= 1
        self.keep.append(new)  # ids stay valid while the pass runs

    def __call__(self, expr: Expr) -> bool:
        return self.fresh.get(id(expr), len(self.users.get(id(expr), ())) <= 1)


_Rule = Callable[[Call, SingleUse], Expr | None]


def _in_numbers(module: IRModule, rule: _Rule) -> IRModule:
    return on_functions(module, lambda f: _rewrite_single_use(f, rule))


def _rewrite_single_use(function: Function, rule: _Rule) -> Expr:
    once = SingleUse(function)
    order = iter(post_order(function, not_primitive))

    def visit(rebuilt: Expr) -> Expr | None:
        old = next(order)  # rewrite visits in the same order
        new = rule(rebuilt, once) if isinstance(rebuilt, Call) else None
        once.note(rebuilt if new is None else new, old)
        return new

    return rewrite(function, visit, not_primitive)


# --- backward -------------------------------------------------------------------------------------------------------


def _backward(expr: Call, once: SingleUse) -> Expr | None:
    """multiply(contraction…, c)  ->  contraction… with c in its weights"""
    if op_name(expr) != "multiply":
        return None
    for value, factor in (expr.args, expr.args[::-1]):
        if isinstance(factor, Constant) and once(value) and _is_float(factor):
            pushed = _push(value, factor.data, once, _REACH)
            if pushed is not None and _same_type(pushed, expr):
                return pushed
    return None


def _is_float(factor: Constant) -> bool:
    return bool(np.issubdtype(factor.data.dtype, np.floating))


def _same_type(new: Expr, old: Expr) -> bool:
    return new.checked_type == old.checked_type


def _push(expr: Expr, factor: Array, once: SingleUse, reach: int) -> Expr | None:
    """`expr` times `factor`, computed inside; None where the factor cannot get in. Each step is one node deeper."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or reach == 0:
        return None
    if op_name(expr) in _CONTRACTIONS:
        return _scale_outputs(expr, factor)
    if has(expr, Fact.ADDITIVE):
        return _push_sum(expr, factor, once, reach)
    if has(expr, Fact.HOMOGENEOUS) and not bool((factor > 0).all()):
        return None
    if has(expr, Fact.HOMOGENEOUS, Fact.LINEAR):
        if not once(expr.args[0]) or (expr.op.layout_follows == Follows.POOL and not _per_channel(expr, factor)):
            return None
        inner = _push(expr.args[0], factor, once, reach - 1)
        return None if inner is None else Call(expr.op, (inner,), expr.attrs, expr.span)
    return None


def _per_channel(pool: Call, factor: Array) -> bool:
    """Whether a factor of a pool's output has the same meaning before it: it varies along channels only."""
    ty = known_of(pool)
    return ty is not None and _vector(factor, ty.ndim, layout(pool.attrs.layout).index("C"), 0) is not None


def _push_sum(expr: Call, factor: Array, once: SingleUse, reach: int) -> Expr | None:
    sides: list[Expr] = []
    for arg in expr.args:
        if isinstance(arg, Constant):
            with np.errstate(all="ignore"):
                scaled = arg.data * factor
            if scaled.size > max(arg.data.size, factor.size) or not may_multiply(arg.data, factor):
                return None
            sides.append(Constant(scaled.astype(arg.data.dtype)))
            continue
        inner = _push(arg, factor, once, reach // 2) if once(arg) else None
        if inner is None or not _same_type(inner, arg):
            return None
        sides.append(inner)
    return Call(expr.op, tuple(sides), expr.attrs, expr.span)


def _scale_outputs(expr: Call, factor: Array) -> Expr | None:
    weight, ty = expr.args[1], known_of(expr)
    if not isinstance(weight, Constant) or ty is None or not np.issubdtype(weight.held.dtype, np.floating):
        return None
    if is_narrow_without(weight, factor):
        return None
    if _is_of_rows(expr):
        axis, out_axis = ty.ndim - 1, 0
    else:
        if layout(expr.attrs.data_layout).is_blocked:
            return None
        axis = layout(expr.attrs.out_layout or expr.attrs.data_layout).index("C")
        out_axis = layout(expr.attrs.kernel_layout).index("O")
    size = ty.shape[axis]
    vector = _vector(factor, ty.ndim, axis, size) if isinstance(size, int) else None
    if vector is None or weight.held.shape[out_axis] != size:
        return None
    return _with_weight(expr, weight, vector, out_axis) if _keeps_range(weight, vector, out_axis) else None


def _keeps_range(weight: Constant, vector: Array, axis: int) -> bool:
    """Whether the products of factors and the largest weight of each channel may take the place of both.

    Smaller weights of a channel may become denormal: beside the largest one nobody sees what they lose.
    """
    held = weight.held
    rows = held.pieces() if isinstance(held, Deferred) and held.rows is not None else iter((weight.data,))
    parts = [_largest(piece, axis) for piece in rows if piece.size]
    if not parts:
        return True
    return may_multiply(np.concatenate(parts) if axis == 0 else np.max(parts, axis=0), vector)


def _largest(numbers: Array, axis: int) -> Array:
    """The largest magnitude of each slice; NaN where it holds some."""
    others = tuple(k for k in range(numbers.ndim) if k != axis)
    result: Array = np.maximum(numbers.max(axis=others), -numbers.min(axis=others))
    return result


def _is_of_rows(contraction: Call) -> bool:
    """Whether it is a dense layer, whose channels are the last axis."""
    return bool(contraction.op.layout_follows == Follows.ROWS)


def _with_weight(expr: Call, weight: Constant, vector: Array, axis: int) -> Expr:
    """A large weight is scaled when it is looked at: that is when it is packed, and the scaled form needs no memory."""
    size, dtype = weight.held.shape, weight.held.dtype
    shape = tuple(-1 if k == axis else 1 for k in range(len(size)))

    def scaled() -> Array:
        return times(weight.data, vector)

    def times(numbers: Array, factors: Array) -> Array:
        product: Array = (numbers * factors.reshape(shape)).astype(dtype, copy=False)
        return product

    source = weight.held
    if weight.nbytes < _LARGE or size[axis] != vector.size:
        held: Array | Deferred = scaled()
    elif isinstance(source, Deferred) and source.rows is not None:
        read = source.rows
        held = in_rows(size, dtype, lambda b, e: times(read(b, e), vector if axis else vector[b:e]), source.step)
    else:
        held = Deferred(size, dtype, scaled)
    return Call(expr.op, (expr.args[0], Constant(held, weight.span)), expr.attrs, expr.span)


def _vector(factor: Array, ndim: int, axis: int, size: int) -> Array | None:
    """A factor as one number per channel; None if it varies along another axis. Size 0: do not expand."""
    if factor.ndim > ndim:
        return None
    full = factor.reshape((1,) * (ndim - factor.ndim) + factor.shape)
    if any(d != 1 for k, d in enumerate(full.shape) if k != axis):
        return None
    flat = full.reshape(-1)
    if not size or flat.size == size:
        return flat
    return np.repeat(flat, size) if flat.size == 1 else None


# --- forward --------------------------------------------------------------------------------------------------------


def _forward(expr: Call, once: SingleUse) -> Expr | None:
    """contraction(multiply(x, c), w)  ->  contraction(x, w with c in its input channels)"""
    if op_name(expr) not in _CONTRACTIONS or not isinstance(expr.args[1], Constant) or not once(expr.args[0]):
        return None
    weight = expr.args[1]
    taken = _take(expr.args[0], once)
    if taken is None or not np.issubdtype(weight.held.dtype, np.floating) or is_narrow_without(weight, taken[1]):
        return None
    data, factor = taken
    ty = known_of(data)
    if ty is None:
        return None
    axis = ty.ndim - 1 if _is_of_rows(expr) else layout(expr.attrs.data_layout).index("C")
    size = ty.shape[axis]
    if not isinstance(size, int):
        return None
    vector = _vector(factor, ty.ndim, axis, size)
    in_axis = 1 if _is_of_rows(expr) else _input_axis(expr, size, weight)
    if vector is None or in_axis is None or not _keeps_range(weight, vector, in_axis):
        return None
    scaled = _with_weight(Call(expr.op, (data, weight), expr.attrs, expr.span), weight, vector, in_axis)
    return scaled if _same_type(scaled, expr) else None


def _input_axis(expr: Call, channels: int, weight: Constant) -> int | None:
    """The weight's axis that runs over the input channels: I, or O of a depthwise kernel."""
    kernel = layout(expr.attrs.kernel_layout)
    if layout(expr.attrs.data_layout).is_blocked:
        return None
    if expr.attrs.groups == 1:
        return kernel.index("I")
    depthwise = expr.attrs.groups == channels == weight.held.shape[kernel.index("O")]
    return kernel.index("O") if depthwise else None


def _take(expr: Expr, once: SingleUse) -> tuple[Expr, Array] | None:
    """Split a value into (rest, constant factor): a product, or relu of a product with a positive factor."""
    if not isinstance(expr, Call):
        return None
    if op_name(expr) == "nn.relu" and once(expr.args[0]):
        inner = _take(expr.args[0], once)
        if inner is None or not bool((inner[1] > 0).all()) or not _same_type(inner[0], expr):
            return None
        return call("nn.relu", inner[0]), inner[1]
    if op_name(expr) != "multiply":
        return None
    for value, factor in (expr.args, expr.args[::-1]):
        if isinstance(factor, Constant) and _is_float(factor) and _same_type(value, expr):
            return value, factor.data
    return None
