"""`relay.analysis.list_fake_quantized_op_freqs`: which operators a network computes between dequantize and quantize.

In: a module or an expression. Out: how often each operator stands in such a region, by name. Invariant: a region is
what a qnn.quantize reads, back to the qnn.dequantize calls; it counts if all ways back end there or at constants.
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.op import Op
from armillary.relay.walk import children, post_order


def _name(expr: Expr) -> str:
    """The operator that an expression calls; "" where it calls none."""
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else ""


def list_fake_quantized_op_freqs(mod: IRModule | Expr) -> dict[str, int]:
    """How often each operator is computed in floats between integers."""
    roots = [f for _, f in mod.items() if isinstance(f, Expr)] if isinstance(mod, IRModule) else [mod]
    operators: dict[int, str] = {}
    for root in roots:
        for expr in post_order(root):
            if isinstance(expr, Call) and _name(expr) == "qnn.quantize":
                operators |= _region(expr.args[0])
    counts: dict[str, int] = {}
    for name in operators.values():
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def _region(result: Expr) -> dict[int, str]:
    """The calls behind a value, by id; none where something that was never quantised is among them."""
    inside: dict[int, str] = {}
    pending, reached = [result], False
    while pending:
        expr = pending.pop()
        name = _name(expr)
        if name == "qnn.dequantize":
            reached = True
        elif id(expr) not in inside and not isinstance(expr, Constant):
            parts = children(expr)
            if not parts or (isinstance(expr, Call) and not name):
                return {}
            inside[id(expr)] = name
            pending.extend(parts)
    return {key: name for key, name in inside.items() if name} if reached else {}
