"""Kernels of two contractions: finding a kernel that reads another one's result alone, and making one kernel of both.

In: a module after fuse-ops, its target, the names of both contractions, and what decides whether a pair (`Pair`) pays.
Out: the module with one kernel for each such pair. Invariant: the same operators on the same values; a kernel that is
joined has one contraction, so no kernel gets three.
Users: conv2d/separable/fuse_depthwise.py, conv2d/pooled/fuse_pool.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from armillary.base.record import record
from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function, Var, shape_of
from armillary.relay.infer import infer_type
from armillary.relay.op import Kind, Op
from armillary.relay.transform._rules import Found, Readers, op_name, rewrite_found
from armillary.relay.transform.fusion._joined_kernels import joined
from armillary.relay.walk import children, not_primitive, post_order
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model


@record
class Pair:
    """Two calls of kernels, the second of which reads the first as its argument `place`; the contraction of each."""

    first: Call
    second: Call
    place: int
    inner: Call
    outer: Call

    def joined(self) -> Found:
        """The call of one kernel in the place of the second call."""
        return joined(self.first, self.second, self.place)


def join_pairs(
    module: IRModule,
    target: object,
    inner: Collection[str],
    outer: Collection[str],
    pays: Callable[[Pair, CpuModel], bool],
) -> IRModule:
    """The module with one kernel for each pair that `pays` on a target that is a CPU (Any: whatever Target accepts)."""
    device = Target(target if target is not None else Target.current() or "llvm")
    if device.kind.family != "cpu":
        return module
    cpu = cpu_model(device)

    def find(expr: Expr, readers: Readers) -> Found | None:
        pair = _find_pair(expr, readers, inner, outer)
        return pair.joined() if pair is not None and pays(pair, cpu) else None

    return rewrite_found(module, find)


def _find_pair(expr: Expr, readers: Readers, inner: Collection[str], outer: Collection[str]) -> Pair | None:
    """The pair that ends in `expr`, if its contractions have such names and nothing else reads the first's result."""
    last = _contraction(expr, outer)
    if last is None or not isinstance(expr, Call):
        return None
    second = _function(expr)
    place = next((k for k, p in enumerate(second.params) if p is last.args[0]), None)
    if place is None or _uses(second.params[place], second) != 1:
        return None
    producer = expr.args[place]
    first = _contraction(producer, inner)
    if first is None or not isinstance(producer, Call) or len(readers[id(producer)]) != 1:
        return None
    return Pair(producer, expr, place, first, last)


def _function(call: Call) -> Function:
    assert isinstance(call.op, Function), "a call of a kernel"
    return call.op


def _uses(parameter: Var, function: Function) -> int:
    return sum(child is parameter for e in post_order(function.body) for child in children(e))


def _contraction(expr: Expr, names: Collection[str]) -> Call | None:
    """The only contraction of a kernel that is called, if it has such a name and the kernel's result its shape."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Function) or not_primitive(expr.op):
        return None
    calls = [e for e in post_order(expr.op.body) if isinstance(e, Call)]
    heavy = [e for e in calls if not isinstance(e.op, Op) or e.op.kind > Kind.BROADCAST]
    anchor = heavy[0] if len(heavy) == 1 and op_name(heavy[0]) in names else None
    result = shape_of(expr)
    if anchor is None or result is None:
        return None
    types_known = infer_type(anchor)
    return anchor if getattr(types_known, "shape", None) == result else None
