"""`inject-virtual-thread`: virtual threads become copies of the body.

In: `attr virtual_thread on axis(…) = n` (or a loop bound to "vthread"). Out: the body once per virtual thread,
one after
another, each copy with buffers of its own. Invariant: no virtual thread is left; each copy runs complete
before the next,
which is one of the orders that independent threads allow.
"""

from __future__ import annotations

from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.substitute import fresh_copy, map_stmt, substitute
from armillary.tir.transform.common import prim_pass, with_body


def inject_virtual_thread(func: S.PrimFunc) -> S.PrimFunc:
    """Run virtual threads one after another.

        attr virtual_thread on axis(v: int32, "thread", "vthread") = 2 { A[v] = 0.0 }  ->  A[0] = 0.0  A[1] = 0.0
    """
    return with_body(func, _visit(func.body))


def _visit(item: S.Stmt) -> S.Stmt:
    mapped = map_stmt(item, lambda e: e, _visit)
    if isinstance(mapped, S.AttrStmt) and mapped.key == "virtual_thread" and isinstance(mapped.node, E.IterVar):
        return _expand(mapped.node.var, build.const(0, mapped.node.var.dtype), mapped.value, mapped.body)
    if isinstance(mapped, S.For) and mapped.thread_tag.startswith("vthread"):
        return _expand(mapped.var, mapped.min, mapped.extent, mapped.body)
    return mapped


def _expand(var: E.Var, low: E.Expr, extent: E.Expr, body: S.Stmt) -> S.Stmt:
    count = build.as_int(extent)
    if count is None or count < 1:
        raise ScheduleError(f"virtual thread {var.name} needs a positive constant extent, got {extent!r}")
    copies = (fresh_copy(body) if k else body for k in range(count))
    return S.seq(*(substitute(b, {var: build.add(low, build.const(k, var.dtype))}) for k, b in enumerate(copies)))


InjectVirtualThread = prim_pass("inject-virtual-thread", "tir.InjectVirtualThread")(inject_virtual_thread)
