"""recognize-low-bit-dense: a dense layer whose weight is dequantised from small integers as nn.low_bit_dense.

In: a typed module, as importers write weights that are stored in integers of 2, 4 or 8 bits: a constant behind
qnn.dequantize, with one scale, one for each unit, or one for each block of terms of a unit, reshaped and transposed.
Out: one in which the integers stay what they are. Invariant: the values are the same; products of quantised data are
left to fake-quantization-to-integer.

    %0 = qnn.dequantize(weight[int4 (64, 8)], scales[(8,)], 0, axis=1);
    nn.dense(%x, transpose(%0))
    ->
    nn.low_bit_dense(%x, bytes[(8, 32)], scales[(8, 1)], zeros[(1, 1)], group=64)
"""

from __future__ import annotations

import numpy as np

from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.ir import IRModule
from armillary.ops.nn.dense import dense
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import Array, has
from armillary.relay.op.facts import Fact
from armillary.relay.transform._rules import axes_of, op_name, rewrite_module, tensor
from armillary.transform import define_pass

with deferred():
    from armillary.ops.decoder.low_bit_dense import low_bit_dense, packed  # few networks have such weights
    from armillary.ops.shape.shape import transpose

_VECTOR = 16  # terms: groups are whole vectors of them


@record
class _Weight:
    """Integers (units, inner) from 0 on, scales and zeros (units, groups) or one."""

    values: Array
    scales: Array
    zeros: Array


@define_pass("recognize-low-bit-dense", opt_level=1)
def recognize_low_bit_dense(module: IRModule) -> IRModule:
    """Replace the dense layers."""
    return rewrite_module(module, _rule)


def _rule(expr: Expr) -> Expr | None:
    if op_name(expr) != dense.name or not isinstance(expr, Call) or expr.attrs.out_dtype not in ("", "float32"):
        return None
    data, ty = _source(expr.args[0]), tensor(expr.args[0])
    if ty is None or str(ty.dtype) != "float32" or has(data, Fact.DEQUANTIZES):
        return None
    weight, is_turned = expr.args[1], False
    if op_name(weight) == transpose.name and isinstance(weight, Call) and axes_of(weight) in ((), (1, 0)):
        weight, is_turned = weight.args[0], True
    shape = tensor(weight)
    source = _source(weight)
    if not has(source, Fact.DEQUANTIZES) or not isinstance(source, Call) or shape is None or shape.ndim != 2:
        return None
    integers, scale, zero = (_value(e) for e in source.args)
    if integers is None or scale is None or zero is None or source.attrs.out_dtype != "float32":
        return None
    weights = _weight(integers, scale, zero, source.attrs.axis, shape.static, is_turned)
    return None if weights is None else _call(expr, weights, _bits(source))


def _source(expr: Expr) -> Expr:
    while has(expr, Fact.VIEW) and isinstance(expr, Call):
        expr = expr.args[0]
    return expr


def _value(expr: Expr) -> Array | None:
    """The value of a constant, maybe in another shape."""
    if not isinstance(_source(expr), Constant):
        return None
    value: Array = expr.data if isinstance(expr, Constant) else np.asarray(evaluate(Function((), expr), []))
    return value


def _bits(source: Call) -> int:
    ty = tensor(source.args[0])
    return ty.dtype.bits if ty is not None else 0


def _weight(
    integers: Array, scale: Array, zero: Array, axis: int, shape: tuple[int, ...], is_turned: bool
) -> _Weight | None:
    """The parts by unit and group; None where scales lie otherwise."""
    units, inner = shape[::-1] if is_turned else shape
    values = integers.astype(np.int32).reshape(shape)
    values = values.T if is_turned else values
    parts = [_by_unit(p, integers.shape, axis, units, inner, is_turned) for p in (scale, zero)]
    if parts[0] is None or parts[1] is None:
        return None
    groups = max(p.shape[1] for p in parts if p is not None)
    scales = np.ascontiguousarray(np.broadcast_to(parts[0], (units, groups))).astype(np.float32)
    zeros = parts[1].astype(np.int32)
    zeros = zeros if zeros.size == 1 else np.broadcast_to(zeros, (units, groups))
    if inner % groups or inner // groups % _VECTOR:
        return None
    return _Weight(values, scales, zeros)


def _by_unit(part: Array, shape: tuple[int, ...], axis: int, units: int, inner: int, is_turned: bool) -> Array | None:
    """Scales or zeros as (units, groups), (units, 1) or (1, 1)."""
    if part.size == 1:
        return part.reshape(1, 1)
    if len(shape) == 2 and part.ndim == 1:
        return part.reshape(-1, 1) if axis % 2 == int(is_turned) and part.size == units else None
    if len(shape) != 3 or part.ndim != 3:
        return None
    if is_turned and part.shape == (shape[0], 1, shape[2]) and shape[2] == units:
        return part[:, 0].T
    if not is_turned and part.shape == (shape[0], shape[1], 1) and shape[0] == units:
        return part[:, :, 0]
    return None


def _call(expr: Call, weight: _Weight, bits: int) -> Expr | None:
    """The integers moved to start at 0, in bytes."""
    if bits not in (2, 4, 8):
        return None
    lowest = min(int(weight.values.min(initial=0)), int(weight.zeros.min(initial=0)))
    shift = 1 << (bits - 1) if lowest < 0 else 0
    values, zeros = weight.values + shift, weight.zeros + shift
    if zeros.min() < 0 or zeros.max() > 255 or values.min(initial=0) < 0 or values.max(initial=0) >= 1 << bits:
        return None
    group = values.shape[1] // weight.scales.shape[1]
    arguments = (packed(values, bits), weight.scales, np.ascontiguousarray(zeros).astype(np.uint8))
    return low_bit_dense(expr.args[0], *map(Constant, arguments), bits=bits, group=group)
