"""From scales to integers: `relay.quantize.realize()`.

In: a calibrated module. Out: one whose annotated convolutions and products are qnn operators of bytes; weights are
bytes, results are brought to the next call's scale by one requantize. Invariant: the numbers are those that the
simulation gives, but for the rounding of results; a scale that calibrate did not give is refused.

The work is that of fake-quantization-to-integer: a mark becomes qnn.quantize and qnn.dequantize, between which it
computes in integers.
"""

from __future__ import annotations

import numpy as np

from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.ops.elementwise.cast import clip
from armillary.ops.qnn.quantize import dequantize, quantize
from armillary.ops.qnn.simulate import simulated_quantize
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.transform._rules import rewrite_module
from armillary.relay.transform.quantize.fake_quantization_to_integer import fake_quantization_to_integer
from armillary.relay.transform.simplify.fold_constant import fold_constant
from armillary.transform import Pass, PassContext, module_pass

_LARGEST, _BYTE = 127.0, 255.0


def realize() -> Pass:
    """The pass that computes in integers what annotate and calibrate said."""
    result: Pass = module_pass(_realize, name="QuantizeRealize")
    return result


def _realize(module: IRModule, context: PassContext) -> IRModule:
    del context
    marked = rewrite_module(module, _as_bytes)
    return fold_constant(fake_quantization_to_integer(marked, use_qat=True))


def _as_bytes(expr: Expr) -> Expr | None:
    """simulated_quantize(x, scale)  ->  qnn.dequantize(qnn.quantize(x, scale, 0), scale, 0)"""
    return in_bytes(expr) if isinstance(expr, Call) and expr.op is simulated_quantize else None


def in_bytes(mark: Call) -> Expr:
    """A calibrated mark as what it simulates; constants are stored in bytes, 256 steps as uint8 with a zero point."""
    data, scale, least, largest = mark.args
    if not (isinstance(scale, Constant) and isinstance(least, Constant) and isinstance(largest, Constant)):
        raise ConfigError("realize: a scale is not known", span=mark.span, hint="run calibrate first")
    steps, low, high = scale.data.astype(np.float32), float(least.data), float(largest.data)
    is_unsigned = high - low == _BYTE
    if high < _LARGEST and not is_unsigned:
        data = clip(data, a_min=low * float(steps.max()), a_max=high * float(steps.max()))
    axis = next((a for a, size in enumerate(steps.shape) if size > 1), 0)
    zero = np.asarray(-low if is_unsigned else 0, np.int32)
    parameters = Constant(steps.reshape(-1) if steps.size > 1 else steps.reshape(())), Constant(zero)
    if isinstance(data, Constant) and not is_unsigned:
        stored: Expr = Constant(np.clip(np.rint(data.data / steps), -_LARGEST - 1, _LARGEST).astype(np.int8))
    else:
        stored = quantize(data, *parameters, axis=axis, out_dtype="uint8" if is_unsigned else "int8")
    result: Expr = dequantize(stored, *parameters, axis=axis)
    return result
