"""fake-quantization-to-integer: compute in integers what a network describes as float between dequantize and quantize.

In: a module as exporters write quantised networks: every tensor is qnn.quantize'd and qnn.dequantize'd, the operators
between are float. Out: products as qnn.conv2d, qnn.dense, qnn.batch_matmul of the stored bytes, a bias of the same
steps in int32, clips and moves of integers, means as sums, and one qnn.requantize where the result is quantised.
Weights stay bytes. Invariant: the same real numbers; only the rounding of a result is that of requantize instead of
dequantize and quantize, at most one step apart. What has no rule (ops/qnn/affine.py) stays float, with its
dequantize and quantize around it.

`use_qat` also rewrites operators whose result is used as float; without it only what ends in qnn.quantize. `hard_fail`
refuses an operator without a rule. `optional_qnn_ops` names operators that become those of the qnn dialect, which have
arithmetic of their own: "add", "multiply", "nn.softmax", "sigmoid"…

    def @main(%x: Tensor[(1, 4), int8], %w: Tensor[(2, 4), int8]) {
      %0 = qnn.dequantize(%x, 0.5f, 1);
      %1 = qnn.dequantize(%w, 0.25f, 0);
      %2 = nn.dense(%0, %1);
      %3 = nn.relu(%2);
      qnn.quantize(%3, 2f, -128)
    }
    ->
    def @main(%x: Tensor[(1, 4), int8], %w: Tensor[(2, 4), int8]) {
      %0 = qnn.dense(%x, %w, 1, 0, 0.5f, 0.25f);
      qnn.requantize(%0, 0.125f, 0, 2f, -128, rounding="TOEVEN", compute_dtype="float32")
    }
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.lazy import deferred
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function
from armillary.relay.op import OPS
from armillary.relay.transform._rules import on_functions, op_name
from armillary.relay.walk import not_primitive, post_order
from armillary.transform import define_pass

with deferred():
    from armillary.relay.transform.quantize._fake_quantization import (
        in_integers as _in_integers,  # few networks are quantised
    )


@define_pass("fake-quantization-to-integer")
def fake_quantization_to_integer(
    module: IRModule, *, hard_fail: bool = False, use_qat: bool = False, optional_qnn_ops: Sequence[str] | None = None
) -> IRModule:
    """Rewrite float operators between qnn.dequantize and qnn.quantize in integers."""
    names = frozenset(optional_qnn_ops or ())
    unknown = sorted(name for name in names if name not in OPS or not OPS[name].quantized)
    if unknown:
        known = ", ".join(sorted(name for name, op in OPS.items() if op.quantized))
        raise ConfigError(f"fake-quantization-to-integer: no qnn operator for {unknown[0]!r}", hint=f"known: {known}")

    def change(function: Function) -> Expr:
        is_quantized = any(op_name(e) == "qnn.dequantize" for e in post_order(function, not_primitive))
        return _in_integers(function, hard_fail, use_qat, names) if is_quantized else function

    return on_functions(module, change)
