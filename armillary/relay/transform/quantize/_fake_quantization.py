"""What fake-quantization-to-integer does to one function: each node's integers, where it has them.

In: a typed function with qnn.dequantize in it. Out: the function in integers, where rules (ops/qnn/affine.py) know how.
Invariant: that of the pass, fake_quantization_to_integer.py, which loads this module when a network is quantised.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.errors import UnsupportedError
from armillary.ops.qnn.affine import Affine, Value, quantized, real, rule_of
from armillary.relay.evaluate import evaluate_call
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from armillary.relay.transform._rules import Readers, call, op_name, tensor
from armillary.relay.transform.quantize._in_steps import Divider
from armillary.relay.types import tensor_fields
from armillary.relay.walk import map_children, not_primitive, post_order, users

_LEAST = np.float32(2.0**-60)  # a scale whose inverse, and products of two, are numbers


def in_integers(function: Function, hard_fail: bool, use_qat: bool, optional: frozenset[str]) -> Expr:
    """The function with integers for what they can compute."""
    return _Walk(hard_fail, use_qat, optional).run(function)


class _Walk:
    """One walk over one function: `new` is an old node's new form, `steps` its integers where it has them."""

    def __init__(self, hard_fail: bool, use_qat: bool, optional: frozenset[str]) -> None:
        self.hard_fail, self.use_qat, self.optional = hard_fail, use_qat, optional
        self.new: dict[int, Expr] = {}
        self.steps: dict[int, Affine | tuple[Affine, ...]] = {}
        self.readers: Readers = {}

    def run(self, function: Function) -> Expr:
        order = post_order(function, not_primitive)
        self.readers = users(order)
        for expr in order:
            self._visit(expr)
        return self.get(function)

    def get(self, expr: Expr) -> Expr:
        """The new form: as it was made, or integers brought back to real numbers."""
        if id(expr) not in self.new:
            steps = self.steps.get(id(expr))
            self.new[id(expr)] = expr if steps is None else _as_real(steps)
        return self.new[id(expr)]

    def _visit(self, expr: Expr) -> None:
        name = op_name(expr)
        if name == "qnn.dequantize" and isinstance(expr, Call):
            self._dequantized(expr)
        elif name == "qnn.quantize" and isinstance(expr, Call):
            self.new[id(expr)] = self._quantized(expr) or map_children(expr, self.get)
        else:
            self._other(expr)

    def _other(self, expr: Expr) -> None:
        rebuilt = self._by_rule(expr)
        if isinstance(rebuilt, Expr):
            self.new[id(expr)] = rebuilt
            return
        if rebuilt is not None:
            self.steps[id(expr)] = rebuilt
        if rebuilt is None or not self.use_qat:
            self.new[id(expr)] = map_children(expr, self.get)

    def _dequantized(self, expr: Call) -> None:
        """Bytes and int32 of constant parameters; the float form is the call itself."""
        rebuilt = map_children(expr, self.get)
        self.new[id(expr)] = rebuilt
        parameters = _parameters(rebuilt)
        ty = tensor(expr.args[0])
        if (
            parameters is not None
            and ty is not None
            and expr.attrs.out_dtype == "float32"
            and _is_stored(str(ty.dtype))
        ):
            scale, zero = parameters
            self.steps[id(expr)] = Affine(rebuilt.args[0], scale, zero, _axis(expr, ty.ndim))  # type: ignore[attr-defined]

    def _quantized(self, expr: Call) -> Expr | None:
        """The integers of a quantised result, where integers gave it."""
        parameters, source = _parameters(expr), expr.args[0]
        ty = tensor(source)
        if parameters is None or ty is None:
            return None
        (scale, zero), axis, dtype = parameters, _axis(expr, ty.ndim), str(expr.attrs.out_dtype)
        steps = self.steps.get(id(source))
        if isinstance(source, Constant):
            return Constant(np.asarray(evaluate_call(expr)), expr.span)  # weights that training quantises
        if isinstance(steps, Affine):
            return quantized(steps, scale, zero, axis, dtype)
        if scale.size > 1 or zero.size > 1:
            return None
        if op_name(source) == "concatenate" and isinstance(source, Call):
            return self._joined(source, scale, zero, dtype)
        if op_name(source) in self.optional and isinstance(source, Call):
            return self._optional(source, scale, zero, dtype)
        self._refuse(source)
        if ty.dtype != "float32":
            return None
        quotient = Divider(scale, self.get, self.steps, self.readers).divided(source)
        one = Constant(np.ones((), np.float32))
        return None if quotient is None else Call(expr.op, (quotient, one, expr.args[2]), expr.attrs, expr.span)

    def _refuse(self, source: Expr) -> None:
        if self.hard_fail and isinstance(source, Call) and any(id(a) in self.steps for a in source.args):
            raise UnsupportedError(
                f"fake-quantization-to-integer: {op_name(source)} has no rule for these arguments",
                span=source.span,
                hint="leave hard_fail out: it then stays float, between dequantize and quantize",
            )

    def _by_rule(self, expr: Expr) -> Value | None:
        if isinstance(expr, Tuple):
            parts = [self.steps.get(id(f)) for f in expr.fields]
            return tuple(p for p in parts if isinstance(p, Affine)) if _are_affine(parts) else None
        if isinstance(expr, TupleGetItem):
            inner = self.steps.get(id(expr.tuple_value))
            return inner[expr.index] if isinstance(inner, tuple) else None
        rule = rule_of(expr)
        if rule is None or not isinstance(expr, Call) or not any(id(a) in self.steps for a in expr.args):
            return None
        if not all(isinstance(d, int) for ty in tensor_fields(expr.checked_type) for d in ty.shape):
            return None
        return rule(expr, [self.steps.get(id(a)) or self.get(a) for a in expr.args])

    def _joined(self, source: Call, scale: Array, zero: Array, dtype: str) -> Expr | None:
        """Parts of different scales are each brought to that of the whole."""
        parts = self.steps.get(id(source.args[0]))
        if not isinstance(parts, tuple):
            return None
        parts_quantized = [quantized(p, scale, zero, 0, dtype) for p in parts]
        fields = tuple(m for m in parts_quantized if m is not None)
        return (
            Call(source.op, (Tuple(fields),), source.attrs, source.span)
            if len(fields) == len(parts_quantized)
            else None
        )

    def _optional(self, source: Call, scale: Array, zero: Array, dtype: str) -> Expr | None:
        steps = [self.steps.get(id(a)) for a in source.args]
        operands = [s for s in steps if isinstance(s, Affine) and s.is_small and s.dtype == dtype]
        if len(operands) != len(steps):
            self._refuse(source)
            return None
        outputs = (Constant(scale), Constant(zero))
        data = [o.data for o in operands]
        parameters = [Constant(p) for o in operands for p in (o.scale, o.zero)]
        attrs = (
            {}
            if source.attrs is None
            else {f.name: getattr(source.attrs, f.name) for f in dataclasses.fields(source.attrs)}
        )
        return call(source.op.quantized, *data, *parameters, *outputs, **attrs)


def _as_real(steps: Affine | tuple[Affine, ...]) -> Expr:
    return real(steps) if isinstance(steps, Affine) else Tuple(tuple(real(s) for s in steps))


def _are_affine(parts: Sequence[object]) -> bool:
    return bool(parts) and all(isinstance(p, Affine) for p in parts)


def _parameters(expr: Expr) -> tuple[Array, Array] | None:
    """Scale and zero point of a quantisation: constants, single or one per index of an axis."""
    assert isinstance(expr, Call), "qnn.quantize and qnn.dequantize are calls"
    scale, zero = expr.args[1:]
    if not isinstance(scale, Constant) or not isinstance(zero, Constant):
        return None
    values = scale.data.astype(np.float32), zero.data.astype(np.int32)
    if not np.all((values[0] >= _LEAST) & np.isfinite(values[0])):
        return None
    flat = tuple(p.reshape(()) if p.size == 1 else p for p in values)
    return None if any(p.ndim > 1 for p in flat) else (flat[0], flat[1])


def _axis(expr: Call, ndim: int) -> int:
    return int(expr.attrs.axis) % max(ndim, 1)


def _is_stored(dtype: str) -> bool:
    """Whether integers of that type have rules; those of 16 bits stay float."""
    return dtype == "int32" or DType(dtype).bits <= 8
