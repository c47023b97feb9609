"""label-ops: give each kernel the hash of its structure, for profiles and logs.

In: a module after fusion. Out: the same, each primitive function with an attribute `hash`. Invariant: equal kernels
have equal hashes, in every run and on every machine.

    def @main(%x: Tensor[(2,), float32]) {
      %0 = fn (%p0: Tensor[(2,), float32], Primitive=1) -> Tensor[(2,), float32] { nn.relu(%p0) };
      %0(%x)
    }
    ->
    def @main(%x: Tensor[(2,), float32]) {
      %0 = fn (%p0: Tensor[(2,), float32], Primitive=1,
               hash="86a6b5968c222709a9f9bbeb0ed2600b") -> Tensor[(2,), float32] { nn.relu(%p0) };
      %0(%x)
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.analysis import structural_hash
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.transform._rules import on_functions
from armillary.relay.walk import copy_type, rewrite
from armillary.transform import define_pass


@define_pass("label-ops", opt_level=1)
def label_ops(module: IRModule) -> IRModule:
    """Attach `hash` to primitive functions."""
    return on_functions(module, lambda f: rewrite(f, label, lambda e: not _is_kernel(e)))


def _is_kernel(expr: Expr) -> bool:
    return isinstance(expr, Function) and bool(expr.get_attr("Primitive", 0))


def label(expr: Expr) -> Expr | None:
    """fn (Primitive=1) {…}  ->  fn (Primitive=1, hash="…") {…}"""
    if isinstance(expr, Call) and isinstance(expr.op, Function) and _is_kernel(expr.op):
        return None
    if not isinstance(expr, Function) or not _is_kernel(expr) or expr.get_attr("hash") is not None:
        return None
    labelled: Function = expr.with_attr("hash", structural_hash(expr))
    return copy_type(labelled, expr)
