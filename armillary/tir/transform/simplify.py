"""`simplify`: simplify every expression with what the surrounding loops and conditions say.

In: any loop program. Out: an equal one with folded conditions, trivial loops removed and small lets inlined. Invariant:
a loop of constant extent 1 disappears (unless `tir.debug_keep_trivial_loop`); a condition decided by the ranges of the
loop variables disappears. Expression rules: `tir/simplify.py`, `tir/rules.py`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from armillary.base.node import post_order, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements
from armillary.tir.bounds import INFINITE
from armillary.tir.simplify import Simplifier
from armillary.tir.substitute import map_stmt, substitute
from armillary.tir.transform.loop_pass import NOTHING, is_nothing, prim_pass, sequence
from armillary.transform import PassContext, register_config_option

KEEP_TRIVIAL_LOOP = register_config_option(
    "tir.debug_keep_trivial_loop", bool, False, "keep loops of one iteration (for reading lowered code)"
)


def simplify_function(func: S.PrimFunc) -> S.PrimFunc:
    """Simplify all expressions and the statements they decide.

    for i in range(4) { if i < 8 { A[i * 4 // 4] = 0.0 } }  ->  for i in range(4) { A[i] = 0.0 }
    """
    walker = StatementSimplifier(keep_trivial=PassContext.current().get(KEEP_TRIVIAL_LOOP))
    walker.bind_dimensions(func)
    result: S.PrimFunc = replace(func, body=walker.stmt(func.body))
    return result


class StatementSimplifier:
    """Walks statements, telling a Simplifier what holds inside each."""

    def __init__(self, keep_trivial: bool = False) -> None:
        self.simplifier = Simplifier()
        self.keep_trivial = keep_trivial

    def bind_dimensions(self, func: S.PrimFunc) -> None:
        """Symbolic dimensions are at least 1 inside a function that touches the tensor."""
        shapes = [*(func.get_attr("tensor_shapes") or ()), *(p.shape for p in func.params if isinstance(p, S.Buffer))]
        for shape in shapes:
            for extent in shape:
                if isinstance(extent, E.Var):
                    self.simplifier.bind(extent, (0, INFINITE))

    def stmt(self, item: S.Stmt) -> S.Stmt:
        if isinstance(item, S.For):
            return self.loop(item)
        if isinstance(item, S.IfThenElse):
            return self.branch(item)
        if isinstance(item, S.While):
            return self.repeat(item)
        if isinstance(item, S.SeqStmt):
            return self.seq(item)
        if isinstance(item, S.LetStmt):
            return self.let(item)
        if isinstance(item, S.AssertStmt):
            return self.check(item)
        if isinstance(item, S.Allocate):
            return self.allocate(item)
        mapped = map_stmt(item, self.simplifier, self.stmt)
        return NOTHING if isinstance(mapped, S.AttrStmt) and is_nothing(mapped.body) else mapped

    def loop(self, item: S.For) -> S.Stmt:
        low, extent = self.simplifier(item.min), self.simplifier(item.extent)
        count = build.as_int(extent)
        if count is not None and count <= 0:
            return NOTHING
        if count == 1 and not self.keep_trivial and item.kind is not S.LoopKind.THREAD:
            return self.stmt(substitute(item.body, {item.var: low}))
        s = self.simplifier
        first, size = s.bound(low), s.bound(extent)
        last = INFINITE if INFINITE in (first[1], size[1]) else first[1] + size[1] - 1
        s.bind(item.var, (first[0], max(first[0], last)))
        if isinstance(extent, E.IntImm) and isinstance(low, E.IntImm):
            body = self.stmt(item.body)
        else:
            with s.assume(E.LT(item.var, build.cast(build.add(low, extent), item.var.dtype))):
                body = self.stmt(item.body)
        return NOTHING if is_nothing(body) else replace(item, min=low, extent=extent, body=body)

    def branch(self, item: S.IfThenElse) -> S.Stmt:
        condition = self.simplifier(item.condition)
        if isinstance(condition, E.IntImm):
            if condition.value:
                return self.stmt(item.then_body)
            return self.stmt(item.else_body) if item.else_body is not None else NOTHING
        with self.assumed(condition, item.then_body):
            then = self.stmt(item.then_body)
        other = None
        if item.else_body is not None:
            with self.assumed(condition, item.else_body, False):
                other = self.stmt(item.else_body)
            other = None if is_nothing(other) else other
        return (
            NOTHING
            if is_nothing(then) and other is None
            else replace(item, condition=condition, then_body=then, else_body=other)
        )

    def repeat(self, item: S.While) -> S.Stmt:
        """What holds at the first turn need not at the next: inside, the condition says nothing."""
        condition = self.simplifier(item.condition)
        is_never = isinstance(condition, E.IntImm) and not condition.value
        return NOTHING if is_never else replace(item, condition=condition, body=self.stmt(item.body))

    def seq(self, item: S.SeqStmt) -> S.Stmt:
        parts = [self.stmt(s) for s in item.statements]
        if all(a is b for a, b in zip(parts, item.statements, strict=True)):
            return item
        return sequence(parts)

    def let(self, item: S.LetStmt) -> S.Stmt:
        value = self.simplifier(item.value)
        if isinstance(value, E.IntImm | E.FloatImm | E.Var):
            return self.stmt(substitute(item.body, {item.var: value}))
        if item.var.dtype.is_int and item.var.dtype.lanes == 1:
            self.simplifier.bind(item.var, self.simplifier.bound(value))
        body = self.stmt(item.body)
        return NOTHING if is_nothing(body) else replace(item, value=value, body=body)

    def check(self, item: S.AssertStmt) -> S.Stmt:
        condition = self.simplifier(item.condition)
        if isinstance(condition, E.IntImm) and condition.value:
            return self.stmt(item.body)
        with self.assumed(condition, item.body):
            body = self.stmt(item.body)
        return replace(item, condition=condition, body=body)

    def assumed(self, condition: E.Expr, body: S.Stmt, holds: bool = True) -> AbstractContextManager[None]:
        """What holds at the beginning of a body, as long as the body does not change what the condition reads."""
        read = {e.buffer for e in post_order(condition) if isinstance(e, E.BufferLoad)}
        if read and any(isinstance(s, S.Evaluate) or getattr(s, "buffer", None) in read for s in all_statements(body)):
            return nullcontext()
        return self.simplifier.assume(condition, holds)

    def allocate(self, item: S.Allocate) -> S.Stmt:
        body = self.stmt(item.body)
        return NOTHING if is_nothing(body) else replace(item, body=body)


Simplify = prim_pass("simplify", "tir.Simplify")(simplify_function)
