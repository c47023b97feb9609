"""`inject-virtual-thread`: virtual threads become interleaved copies of each statement.

In: `attr virtual_thread on axis(…) = n` (or a loop bound to "vthread"). Out: the body with every statement that
concerns a thread repeated once per thread, and every loop and condition that does not kept once around the copies: the
threads advance in step, so that their loads, arithmetic and stores mix. A buffer allocated inside becomes one with a
part per thread, unless its contents are the same in each. Invariant: no virtual thread is left. Virtual threads are
independent (none reads what another writes), so every order gives the same results.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from armillary.base.node import Node, post_order, replace
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import stores_of
from armillary.tir.substitute import ExprMapper, fresh_copy, map_stmt, substitute
from armillary.tir.transform.loop_pass import prim_pass, with_body

MAX_COPIES = 16  # beyond it the copies become a loop: code would grow without gain


def inject_virtual_thread(func: S.PrimFunc) -> S.PrimFunc:
    """Run virtual threads in step.

    attr virtual_thread on axis(v: int32, "thread", "vthread") = 2 { for i in range(4) { A[v * 4 + i] = B[i] } }
    ->
    for i in range(4) { A[i] = B[i]  A[4 + i] = B[i] }
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
    if count == 1:
        return substitute(body, {var: low})
    return _Threads(var, low, count, _per_thread_buffers(var, body)).stmt(body)


def _per_thread_buffers(var: E.Var, body: S.Stmt) -> frozenset[S.Buffer]:
    """Buffers allocated inside whose contents depend on the thread: grows until nothing more depends."""
    allocated = {n.buffer for n in post_order(body) if isinstance(n, S.Allocate)}
    result: set[S.Buffer] = set()
    stores = list(_stores(body, ()))
    while True:
        grown = {b for b, roots in stores if b in allocated and b not in result and _concerns(roots, var, result)}
        if not grown:
            return frozenset(result)
        result |= grown


def _stores(item: S.Stmt, around: tuple[Node, ...]) -> list[tuple[S.Buffer, tuple[Node, ...]]]:
    """Each store's buffer, with all that decides what is stored: value, index, loops and conditions around it."""
    if isinstance(item, S.BufferStore):
        return [(item.buffer, (*around, item.value, *item.indices))]
    if isinstance(item, S.Evaluate):
        return [(buffer, (*around, item.value)) for buffer in stores_of(item)]
    own: tuple[Node, ...] = ()
    if isinstance(item, S.For):
        own = (item.min, item.extent)
    elif isinstance(item, S.IfThenElse | S.AssertStmt | S.While):
        own = (item.condition,)
    elif isinstance(item, S.LetStmt | S.AttrStmt):
        own = (item.value,)
    parts: list[S.Stmt] = []
    map_stmt(item, lambda e: e, lambda s: parts.append(s) or s)  # type: ignore[func-returns-value]
    return [row for part in parts for row in _stores(part, (*around, *own))]


def _concerns(roots: tuple[Node, ...], var: E.Var, buffers: set[S.Buffer] | frozenset[S.Buffer]) -> bool:
    """Whether something under `roots` is the thread's number, or an access to a buffer of its own."""
    return any(n is var or (isinstance(n, S.Buffer) and n in buffers) for root in roots for n in post_order(root))


@dataclass
class _Threads:
    """Rewrites the body of one virtual-thread loop."""

    var: E.Var
    low: E.Expr
    count: int
    private: frozenset[S.Buffer]
    wide: dict[S.Buffer, S.Buffer] = field(default_factory=dict)

    def stmt(self, item: S.Stmt) -> S.Stmt:
        if not _concerns((item,), self.var, self.private):
            return item
        if isinstance(item, S.SeqStmt):
            return S.seq(*map(self.stmt, item.statements))
        if isinstance(item, S.Allocate):
            return self.allocate(item)
        if isinstance(item, S.For) and not _concerns((item.min, item.extent), self.var, self.private):
            return replace(item, body=self.stmt(item.body))
        if isinstance(item, S.IfThenElse) and not _concerns((item.condition,), self.var, self.private):
            other = None if item.else_body is None else self.stmt(item.else_body)
            return S.IfThenElse(item.condition, self.stmt(item.then_body), other)
        if isinstance(item, S.LetStmt | S.AttrStmt) and not _concerns((item.value,), self.var, self.private):
            return self.around(item)
        return self.copies(item)

    def around(self, item: S.LetStmt | S.AttrStmt) -> S.Stmt:
        """A let or note that is the same for all threads, once around them; a note on a buffer goes to its new form."""
        body = self.stmt(item.body)
        if isinstance(item, S.AttrStmt) and isinstance(item.node, S.Buffer):
            return replace(item, body=body, node=self.wide.get(item.node, item.node))
        return replace(item, body=body)

    def allocate(self, item: S.Allocate) -> S.Stmt:
        if item.buffer not in self.private:
            return S.Allocate(item.buffer, self.stmt(item.body))
        if len(item.buffer.shape) != 1 or _concerns(item.buffer.shape, self.var, self.private):
            return self.copies(item)
        shape = (build.mul(item.buffer.shape[0], self.count),)
        widened = self.wide[item.buffer] = replace(item.buffer, shape=shape)
        return S.Allocate(widened, self.stmt(item.body))

    def copies(self, item: S.Stmt) -> S.Stmt:
        """The statement once per thread."""
        dtype = self.var.dtype
        if self.count > MAX_COPIES:
            at = E.Var(self.var.name, dtype)
            zero, extent = build.const(0, dtype), build.const(self.count, dtype)
            return S.For(at, zero, extent, S.LoopKind.SERIAL, self.copy(fresh_copy(item), at))
        copied = (self.copy(fresh_copy(item) if k else item, build.const(k, dtype)) for k in range(self.count))
        return S.seq(*copied)

    def copy(self, item: S.Stmt, thread: E.Expr) -> S.Stmt:
        """The statement of one thread, in its part of the private buffers."""

        def place(old: S.Buffer, index: E.Expr) -> E.Expr:
            start = build.cast(build.mul(build.cast(thread, old.shape[0].dtype), old.shape[0]), index.dtype.element)
            if isinstance(index, E.Ramp) and index.base.dtype.lanes == 1:
                return E.Ramp(build.add(start, index.base), index.stride, index.lanes)
            wide = E.Broadcast(start, index.dtype.lanes) if index.dtype.lanes > 1 else start
            return build.add(wide, index)

        def rule(e: E.Expr) -> E.Expr | None:
            if type(e) is E.BufferLoad and e.buffer in self.wide:
                return E.BufferLoad(self.wide[e.buffer], (place(e.buffer, e.indices[0]),))
            return None

        mapper = ExprMapper(rule)

        def visit(s: S.Stmt) -> S.Stmt:
            mapped = map_stmt(s, mapper, visit)
            if isinstance(mapped, S.BufferStore) and mapped.buffer in self.wide:
                index = place(mapped.buffer, mapped.indices[0])
                return S.BufferStore(self.wide[mapped.buffer], mapped.value, (index,))
            return mapped

        return substitute(visit(item), {self.var: build.add(self.low, thread)})


InjectVirtualThread = prim_pass("inject-virtual-thread", "tir.InjectVirtualThread")(inject_virtual_thread)
