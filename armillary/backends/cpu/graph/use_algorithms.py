"""use-algorithms: calls become those of the algorithms that have operators or kernels of their own.

In: a typed module, a phase of its build (`layouts`, `operators` or `kernels`). Out: the module after the passes that
the folders of algorithms bring along for the phase, in the order of select.py. Invariant: each of them runs as the pass
context allows it; a module without a contraction is returned as it is, and no algorithm is imported for it.

    nn.contrib_conv2d_NCHWc(%x, weight)
    ->
    cpu.conv2d_winograd_NCHWc(%x, cpu.conv2d_winograd_weight_transform(weight))

Where folders say so: `manifest.py` of each, backends/cpu/manifest.py.
"""

from __future__ import annotations

from armillary.base.lazy import deferred
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import Kind, Op
from armillary.relay.walk import post_order
from armillary.target import Target
from armillary.transform import Sequential, define_pass

with deferred():
    from armillary.backends.cpu import select


@define_pass("use-algorithms", opt_level=0)
def use_algorithms(module: IRModule, *, target: Target | None = None, phase: str = "layouts") -> IRModule:
    """Run the passes of algorithms for a phase of the build."""
    functions = [function for _, function in module.items() if isinstance(function, Function)]
    if not any(_is_contraction(e) for function in functions for e in post_order(function)):
        return module
    where = Target(target if target is not None else Target.current() or "llvm")
    return Sequential(select.passes(phase, where), "algorithms")(module)


def _is_contraction(expr: Expr) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.kind is Kind.CONTRACTION
