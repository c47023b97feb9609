"""Real numbers that integers stand for, and what operators do to them: the rules of fake-quantization-to-integer.

In: a call of a float operator whose arguments are known as integers with a scale and a zero point. Out: the same real
numbers as integers of another scale, or None where integers cannot give them. Invariant: a rule is exact: products and
means are sums in int32, moves and maxima are of the stored numbers, clips wait for the next quantisation, which they
commute with. Elementwise arithmetic has no rule: between dequantize and quantize it is one kernel, and rounds once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.float_range import may_multiply
from armillary.ops.nn._windows import call
from armillary.relay.evaluate import evaluate_call
from armillary.relay.expr import Call, Constant, Expr, Tuple
from armillary.relay.op import has, is_call
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType

_FLOATS = ("", "float32")
NO_LIMITS = (-math.inf, math.inf)
_ALIKE = 5e-7  # relative, of a few roundings: the scale of a bias against the product that it was made from


@dataclass(frozen=True)
class Affine:
    """The real numbers clip((data - zero) * scale, *limits); scale and zero are single, or one per index of `axis`."""

    data: Expr
    scale: Array
    zero: Array
    axis: int = 0
    limits: tuple[float, float] = NO_LIMITS

    @property
    def is_single(self) -> bool:
        """Whether one scale and zero point serve all."""
        return self.scale.size == 1 and self.zero.size == 1

    @property
    def dtype(self) -> DType:
        """The type of the integers."""
        ty = tensor(self.data)
        assert ty is not None, "their shape is known"
        return ty.dtype

    @property
    def is_small(self) -> bool:
        """Whether products of these integers have rules: at most 8 bits, one scale."""
        return self.dtype.bits <= 8 and self.is_single

    def has_parameters_of(self, other: Affine) -> bool:
        """Whether the same integer is the same real number in both."""
        mine, others = (self.scale, self.zero, self.limits), (other.scale, other.zero, other.limits)
        single = self.is_single and other.is_single
        return single and self.dtype == other.dtype and all(np.all(a == b) for a, b in zip(mine, others, strict=True))


def tensor(expr: Expr) -> TensorType | None:
    """The type of an expression where it is a tensor of known shape."""
    ty = expr.checked_type
    return ty if isinstance(ty, TensorType) and all(isinstance(d, int) for d in ty.shape) else None


Value = Affine | Expr | tuple[Affine, ...]
Rule = Callable[[Call, Sequence[Value]], Value | None]


# --- into and out of integers -----------------------------------------------------------------------------------------


def real(x: Affine) -> Expr:
    """The real numbers in float32."""
    result: Expr = call(
        "qnn.dequantize", x.data, Constant(x.scale), Constant(x.zero), axis=-1 if x.is_single else x.axis
    )
    low, high = x.limits
    if x.limits == NO_LIMITS:
        return result
    return call("nn.relu", result) if x.limits == (0.0, math.inf) else call("clip", result, a_min=low, a_max=high)


def quantized(x: Affine, scale: Array, zero: Array, axis: int, dtype: str) -> Expr | None:
    """What qnn.quantize gives of the real numbers; None where one kernel of float arithmetic is as good."""
    to_single = scale.size == zero.size == 1
    if not (to_single or x.is_single or axis == x.axis) or DType(dtype).bits > 16:
        return None
    if not to_single and x.limits != NO_LIMITS:
        return None
    if x.dtype == dtype and np.array_equal(x.scale, scale) and np.array_equal(x.zero, zero):
        data = x.data
    elif to_single:
        data = _requantized(x, scale, zero, -1 if x.is_single else x.axis, dtype)
    else:
        data = _requantized(x, scale, zero, axis, dtype)
    return _limited(data, x.limits, scale, zero, DType(dtype))


def _requantized(x: Affine, scale: Array, zero: Array, axis: int, dtype: str) -> Expr:
    """Integers of another scale; where int32 sums were moved, bytes are moved instead."""
    source, views = x.data, []
    while zero.size == scale.size == 1 and x.dtype == "int32" and is_rearranged(source):
        assert isinstance(source, Call), "it has a name"
        before = 0 if x.is_single else _axis_before(source, axis)
        if before is None:
            break
        axis = -1 if x.is_single else before
        views.append(source)
        source = source.args[0]
    parameters = (Constant(p) for p in (x.scale, x.zero, scale, zero))
    modes = {"rounding": "TOEVEN", "compute_dtype": "float32", "out_dtype": dtype}
    result: Expr = call("qnn.requantize", source, *parameters, axis=axis, **modes)
    for view in reversed(views):
        result = Call(view.op, (result,), view.attrs, view.span)
    return result


def _shape(expr: Expr) -> tuple[int, ...]:
    ty = tensor(expr)
    assert ty is not None, "integers of known shape"
    return ty.static


def _limited(steps: Expr, limits: tuple[float, float], scale: Array, zero: Array, dtype: DType) -> Expr:
    """Integers clipped where the real numbers are; nothing where their type does it."""
    if limits == NO_LIMITS:
        return steps
    ends = np.round(np.array(limits, np.float32) / scale.reshape(())) + zero.reshape(()).astype(np.float32)
    low, high = (float(v) for v in np.clip(ends, dtype.min_value, dtype.max_value))
    if (low, high) == (dtype.min_value, dtype.max_value):
        return steps
    return call("clip", steps, a_min=low, a_max=high)


def _unlimited(x: Affine) -> Affine | None:
    """The same numbers without limits, where integers have the same: below 0, of a nn.relu."""
    if x.limits == NO_LIMITS:
        return x
    if x.limits != (0.0, math.inf) or not x.is_single:
        return None
    zero = Constant(x.zero.reshape(()).astype(x.dtype.numpy))
    return dataclasses.replace(x, data=call("maximum", x.data, zero), limits=NO_LIMITS)


# --- products ---------------------------------------------------------------------------------------------------------


def _operands(args: Sequence[Value]) -> tuple[Affine, Affine] | None:
    """Data and weight of a product that integers can do; the weight may have a scale per channel."""
    if not all(isinstance(a, Affine) and a.dtype.bits <= 8 for a in args):
        return None
    data, weight = (_unlimited(a) for a in args)  # type: ignore[arg-type]
    return None if data is None or weight is None or not data.is_single else (data, weight)


def _product(name: str, attrs: Mapping[str, object], args: Sequence[Value], channel: int, axis: int) -> Affine | None:
    """qnn's product; `channel`: the weight's axis of output channels, `axis`: that of the result."""
    operands = _operands(args)
    if (
        operands is None
        or not (operands[1].is_single or operands[1].axis == channel)
        or attrs["out_dtype"] not in _FLOATS
    ):
        return None
    data, weight = operands
    if not may_multiply(data.scale.reshape(()), weight.scale):
        return None
    parameters = (Constant(p) for p in (data.zero, weight.zero, data.scale, weight.scale))
    total = call(name, data.data, weight.data, *parameters, **{**attrs, "out_dtype": "int32"})
    scale = np.asarray(data.scale.reshape(()) * weight.scale, np.float32)
    return Affine(total, scale, np.zeros((), np.int32), axis)


def _values(attrs: Any) -> dict[str, Any]:  # Any: each operator's attributes
    """What a quantised operator takes of a plain one's: not the algorithm chosen for it."""
    return {f.name: getattr(attrs, f.name) for f in dataclasses.fields(attrs) if f.name != "choice"}


def _conv2d(expr: Call, args: Sequence[Value]) -> Affine | None:
    attrs = _values(expr.attrs)
    if len(attrs["data_layout"]) != 4 or len(attrs["kernel_layout"]) != 4:
        return None
    data, *rest = args
    padding = _border(data, attrs["data_layout"]) if isinstance(data, Affine) else None
    if padding is not None and isinstance(data, Affine) and isinstance(data.data, Call):
        pads = attrs["padding"]
        pads = pads if len(pads) == 4 else (*pads, *pads) if len(pads) == 2 else pads * 4
        attrs["padding"] = tuple(a + b for a, b in zip(pads, padding, strict=True))
        data = dataclasses.replace(data, data=data.data.args[0])
    out = attrs["out_layout"] or attrs["data_layout"]
    return _product("qnn.conv2d", attrs, [data, *rest], attrs["kernel_layout"].index("O"), out.index("C"))


def _border(x: Affine, layout: str) -> tuple[int, int, int, int] | None:
    """Top, left, bottom, right of a border of zero points around the image, which a convolution makes itself."""
    pad = x.data
    if not is_call(pad, "nn.pad") or pad.attrs.pad_mode != "constant" or not x.is_single:
        return None
    widths = [tuple(w) for w in pad.attrs.pad_width]
    is_of_zeros = pad.attrs.pad_value == float(x.zero.reshape(()))
    if not is_of_zeros or any(widths[layout.index(a)] != (0, 0) for a in "NC") or min(min(w) for w in widths) < 0:
        return None
    (top, bottom), (left, right) = widths[layout.index("H")], widths[layout.index("W")]
    return top, left, bottom, right


def _conv1d(expr: Call, args: Sequence[Value]) -> Affine | None:
    """A convolution over one axis is one over two of which the first has size 1."""
    attrs = expr.attrs
    if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCW") != ("NCW", "OIW", "NCW"):
        return None
    sides = [a for a in args if isinstance(a, Affine)]
    wide = [dataclasses.replace(a, data=_settled(call("expand_dims", a.data, axis=2))) for a in sides]
    if len(wide) != len(args):
        return None
    left, right = (*attrs.padding, *attrs.padding)[:2]
    named = {
        "strides": (1, *attrs.strides),
        "dilation": (1, *attrs.dilation),
        "padding": (0, left, 0, right),
        "groups": attrs.groups,
        "channels": attrs.channels,
        "out_dtype": attrs.out_dtype,
        "kernel_size": None if attrs.kernel_size is None else (1, *attrs.kernel_size),
    }
    product = _product("qnn.conv2d", named, wide, 0, 1)
    return None if product is None else dataclasses.replace(product, data=call("squeeze", product.data, axis=(2,)))


def _dense(expr: Call, args: Sequence[Value]) -> Affine | None:
    ty = tensor(expr)
    return None if ty is None else _product("qnn.dense", _values(expr.attrs), args, 0, ty.ndim - 1)


def _batch_matmul(expr: Call, args: Sequence[Value]) -> Affine | None:
    operands = _operands(args)
    if operands is None or not operands[1].is_single or expr.attrs.out_dtype not in _FLOATS:
        return None
    x, y = operands
    if not may_multiply(x.scale.reshape(()), y.scale.reshape(())):
        return None
    left = call("transpose", x.data, axes=(0, 2, 1)) if expr.attrs.transpose_a else x.data
    right = y.data if expr.attrs.transpose_b else call("transpose", y.data, axes=(0, 2, 1))
    parameters = (Constant(p) for p in (x.zero, y.zero, x.scale, y.scale))
    scale = np.asarray(x.scale.reshape(()) * y.scale.reshape(()), np.float32)
    return Affine(call("qnn.batch_matmul", left, right, *parameters), scale, np.zeros((), np.int32))


def _plus_bias(expr: Call, args: Sequence[Value]) -> Affine | None:
    """Sums in int32 plus a bias in the same steps, along the axis of channels."""
    total, bias = args
    if not isinstance(total, Affine) or not isinstance(bias, Affine):
        return None
    axis = _bias_axis(expr, bias)
    is_exact = all(x.dtype == "int32" and x.limits == NO_LIMITS and not np.any(x.zero) for x in (total, bias))
    if axis is None or not is_exact or not (total.is_single or total.axis == axis):
        return None
    if not np.allclose(total.scale, bias.scale, rtol=_ALIKE, atol=0):
        return None
    data = Call(expr.op, (total.data, bias.data), expr.attrs, expr.span)
    scale = np.broadcast_to(total.scale, np.broadcast_shapes(total.scale.shape, bias.scale.shape))
    return Affine(data, np.array(scale), total.zero, axis)


def _bias_axis(expr: Call, bias: Affine) -> int | None:
    """The axis of the result along which a bias of one axis lies."""
    ty, bias_type = tensor(expr), tensor(bias.data)
    if ty is None or bias_type is None or bias_type.ndim != 1 or tensor(expr.args[0]) != ty:
        return None
    return int(getattr(expr.attrs, "axis", -1)) % ty.ndim


# --- moves ------------------------------------------------------------------------------------------------------------


def _moved(expr: Call, args: Sequence[Value]) -> Affine | None:
    """An operator that puts numbers elsewhere; further arguments, such as indices, are as they were."""
    x, *rest = args
    if not isinstance(x, Affine) or any(isinstance(a, Affine | tuple) for a in rest) or len(rest) != len(expr.args) - 1:
        return None
    axis = x.axis
    if not x.is_single:
        place = _axis_after(expr, axis)
        if place is None:
            return None
        axis = place
    data = _settled(Call(expr.op, (x.data, *rest), expr.attrs, expr.span))  # type: ignore[arg-type]
    return dataclasses.replace(x, data=data, axis=axis)


def is_rearranged(expr: Expr) -> bool:
    """Whether every number of one tensor is in the result once, maybe elsewhere."""
    return has(expr, Fact.REARRANGES) and isinstance(expr, Call) and len(expr.args) == 1


def _axis_after(expr: Call, axis: int) -> int | None:
    """Where an axis of the argument is in the result of a view; None for what mixes it with others."""
    before, after = tensor(expr.args[0]), tensor(expr)
    if before is None or after is None or not is_rearranged(expr):
        return None
    if expr.op.name == "transpose":
        return _axes(expr, before.ndim).index(axis)
    return _same_axis(before.static, axis, after.static)


def _axis_before(expr: Call, axis: int) -> int | None:
    """Where an axis of the result of a view is in its argument."""
    before = _shape(expr.args[0])
    return _axes(expr, len(before))[axis] if expr.op.name == "transpose" else _same_axis(_shape(expr), axis, before)


def _same_axis(shape: tuple[int, ...], axis: int, other: tuple[int, ...]) -> int | None:
    """The axis of another shape of the same numbers that has as many indices, and as many numbers before it."""
    outside = (math.prod(shape[:axis]), shape[axis])
    fitting = [k for k, size in enumerate(other) if (math.prod(other[:k]), size) == outside]
    return fitting[0] if fitting and outside[1] > 1 else None


def _axes(expr: Call, ndim: int) -> list[int]:
    return [a % ndim for a in expr.attrs.axes or range(ndim)[::-1]]


def _settled(expr: Expr) -> Expr:
    """The value, where weights are moved: products look at them."""
    if not isinstance(expr, Call) or not all(isinstance(a, Constant) for a in expr.args):
        return expr
    value = evaluate_call(expr)
    return Constant(np.ascontiguousarray(value), expr.span) if isinstance(value, np.ndarray) else expr


def _padded(expr: Call, args: Sequence[Value]) -> Affine | None:
    """A border of zeros is one of zero points; the other kinds are moves."""
    (x,) = args
    if expr.attrs.pad_mode != "constant":
        return _moved(expr, args)
    if (
        not isinstance(x, Affine)
        or not x.is_single
        or expr.attrs.pad_value != 0.0
        or not x.limits[0] <= 0 <= x.limits[1]
    ):
        return None
    attrs = dataclasses.replace(expr.attrs, pad_value=float(x.zero.reshape(())))
    return dataclasses.replace(x, data=Call(expr.op, (x.data,), attrs, expr.span))


def _nearest(expr: Call, args: Sequence[Value]) -> Affine | None:
    is_move = expr.attrs.method == "nearest_neighbor" and getattr(expr.attrs, "out_dtype", "") in _FLOATS
    return _moved(expr, args) if is_move else None


def _split(expr: Call, args: Sequence[Value]) -> tuple[Affine, ...] | None:
    (x,) = args
    if not isinstance(x, Affine) or not x.is_single:
        return None
    parts = Call(expr.op, (x.data,), expr.attrs, expr.span)
    return tuple(dataclasses.replace(x, data=part) for part in parts)


def _joined(expr: Call, args: Sequence[Value]) -> Affine | None:
    """Tensors of the same scale, one after another."""
    (parts,) = args
    if not isinstance(parts, tuple) or not parts or not all(parts[0].has_parameters_of(p) for p in parts):
        return None
    return dataclasses.replace(parts[0], data=Call(expr.op, (Tuple(tuple(p.data for p in parts)),), expr.attrs))


def _chosen(expr: Call, args: Sequence[Value]) -> Affine | None:
    condition, x, y = args
    if not isinstance(x, Affine) or not isinstance(y, Affine) or not isinstance(condition, Expr):
        return None
    if not x.has_parameters_of(y):
        return None
    return dataclasses.replace(x, data=Call(expr.op, (condition, x.data, y.data), expr.attrs, expr.span))


def _maximum(expr: Call, args: Sequence[Value]) -> Affine | None:
    """The largest number is the largest integer, as scales are positive."""
    (x,) = args
    if not isinstance(x, Affine) or not x.is_small or not np.all(x.scale > 0):
        return None
    return _moved(expr, args)


def _position(expr: Call, args: Sequence[Value]) -> Expr | None:
    """argmax, argmin: a position, of integers or of what they stand for."""
    reduced = _maximum(expr, args)
    return None if reduced is None or reduced.limits != NO_LIMITS else reduced.data


# --- clips and means --------------------------------------------------------------------------------------------------


def _clipped(expr: Call, args: Sequence[Value]) -> Affine | None:
    """The clip waits until the numbers are quantised, or used as float."""
    (x,) = args
    if not isinstance(x, Affine):
        return None
    low, high = (0.0, math.inf) if expr.op.name == "nn.relu" else (float(expr.attrs.a_min), float(expr.attrs.a_max))
    if not low <= high:
        return None
    below, above = (min(max(v, low), high) for v in x.limits)
    return dataclasses.replace(x, limits=(below, above))


def _mean(expr: Call, args: Sequence[Value]) -> Affine | None:
    """A sum of integers in int32, in steps of scale / count."""
    (x,) = args
    ty, result = None if not isinstance(x, Affine) else tensor(x.data), tensor(expr)
    if not isinstance(x, Affine) or ty is None or result is None or not x.is_small or result.size == 0:
        return None
    sums, count = _unlimited(x), ty.size // result.size
    if sums is None or count > _MOST_SUMMED:
        return None
    wide = call("cast", sums.data, dtype="int32")
    if expr.op.name == "mean":
        total: Expr = call("sum", wide, **_values(expr.attrs))
    elif expr.attrs.layout[:2] == "NC" and ty.ndim == len(expr.attrs.layout):
        total = call("sum", wide, axis=tuple(range(2, ty.ndim)), keepdims=True)
    else:
        return None
    if np.any(sums.zero):
        total = call("subtract", total, Constant(np.asarray(sums.zero.reshape(()) * count, np.int32)))
    return Affine(total, np.asarray(sums.scale.reshape(()) / np.float32(count), np.float32), np.zeros((), np.int32))


_MOST_SUMMED = 1 << 22  # sums of bytes, and zero points as often, fit int32


# --- the table --------------------------------------------------------------------------------------------------------

RULES: dict[str, Rule] = {
    "nn.pad": _padded,
    "image.resize2d": _nearest,
    "image.resize1d": _nearest,
    "image.resize3d": _nearest,
    "nn.upsampling": _nearest,
    "split": _split,
    "concatenate": _joined,
    "stack": _joined,
    "where": _chosen,
    **dict.fromkeys((f"nn.{kind}max_pool{n}d" for kind in ("", "global_") for n in (1, 2, 3)), _maximum),
    "max": _maximum,
    "argmax": _position,
    "argmin": _position,
    "min": _maximum,
    "nn.relu": _clipped,
    "clip": _clipped,
    "mean": _mean,
    **dict.fromkeys((f"nn.global_avg_pool{n}d" for n in (1, 2, 3)), _mean),
    "nn.conv2d": _conv2d,
    "nn.conv1d": _conv1d,
    "nn.dense": _dense,
    "nn.batch_matmul": _batch_matmul,
    "nn.bias_add": _plus_bias,
    "add": _plus_bias,
}


def rule_of(expr: Expr) -> Rule | None:
    """How an operator works on the integers of affine values."""
    own = RULES.get(expr.op.name) if is_call(expr, *RULES) else None
    return _moved if own is None and has(expr, Fact.PICKS) else own
