"""qnn-canonicalize: write quantised operators in plain integer arithmetic.

In: a module. Out: one without operators of the qnn dialect: convolutions and products of zero-point-corrected integers,
additions, fixed-point multiplications with their rounding, clips and casts. Each by the rule that a user registered
(`relay.qnn.op.register_qnn_canonicalize`), else by the `decompose` rule of its record. Invariant: the same bits.

    def @main(%x: Tensor[(4,), int8]) { qnn.dequantize(%x, 0.5f, 3, out_dtype="float32") }
    ->
    def @main(%x: Tensor[(4,), int8]) {
      %0 = cast(%x, dtype="int32");
      %1 = cast(3, dtype="int32");
      %2 = subtract(%0, %1);
      %3 = cast(%2, dtype="float32");
      %4 = cast(0.5f, dtype="float32");
      %5 = multiply(%3, %4);
      cast(%5, dtype="float32")
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Expr
from armillary.relay.transform._rules import op_name
from armillary.relay.transform.simplify._registered import apply_registered
from armillary.relay.transform.simplify.simplify_inference import decompose
from armillary.transform import define_pass

_ROUNDS = 8  # a decomposition may use qnn operators again (qnn.add requantizes)


@define_pass("qnn-canonicalize", opt_level=1)
def qnn_canonicalize(module: IRModule, *, target: object = None) -> IRModule:
    """Lower the qnn dialect to plain operators."""
    for _ in range(_ROUNDS):
        changed = apply_registered(module, "FTVMQnnCanonicalize", target, _plain)
        if changed is module:
            break
        module = changed
    return module


def _plain(expr: Expr) -> Expr | None:
    return decompose(expr) if op_name(expr).startswith("qnn.") else None
