"""`inject-double-buffer`: notes that ask for two copies of a buffer are dropped.

In: `attr double_buffer_scope on B = 1`. Out: the body. Invariant: results are the same: double buffering overlaps
copies with arithmetic on machines that need it; caches of CPUs overlap them already, so one copy is kept.
"""

from __future__ import annotations

from armillary.tir import stmt as S
from armillary.tir.substitute import map_stmt
from armillary.tir.transform.common import prim_pass, with_body


def inject_double_buffer(func: S.PrimFunc) -> S.PrimFunc:
    """Drop double_buffer_scope notes.

        attr double_buffer_scope on B = 1 { B[0] = 0.0 }  ->  B[0] = 0.0
    """

    def visit(item: S.Stmt) -> S.Stmt:
        mapped = map_stmt(item, lambda e: e, visit)
        return mapped.body if isinstance(mapped, S.AttrStmt) and mapped.key == "double_buffer_scope" else mapped

    return with_body(func, visit(func.body))


InjectDoubleBuffer = prim_pass("inject-double-buffer", "tir.InjectDoubleBuffer")(inject_double_buffer)
