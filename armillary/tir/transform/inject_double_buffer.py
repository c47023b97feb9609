"""`inject-double-buffer`: fill the next copy of a buffer while the present one is used.

In: `for i { alloc B { attr double_buffer_scope on B = 1 { fill B; use B } } }` in a serial loop. Out: B with two copies
outside the loop; the first iteration's copy is filled before it, and iteration i fills the copy of i + 1 before it uses
its own. Configuration: `tir.InjectDoubleBuffer` {split_loop: n}: with n > 1 (and a constant extent) n iterations are
written out, so that which copy is meant is a constant. Invariant: results are the same. A fill that reads what the uses
write, or a loop that is not serial, keeps one copy: only the note goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.base.node import post_order, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, stores_of
from armillary.tir.substitute import ExprMapper, fresh_copy, map_stmt, substitute
from armillary.tir.transform.loop_pass import prim_pass, statements_of, with_body
from armillary.transform import PassContext, register_config_option

DOUBLE_BUFFER = register_config_option(
    "tir.InjectDoubleBuffer", dict, {"split_loop": 1}, "iterations that inject-double-buffer writes out"
)
_KEY = "double_buffer_scope"


def inject_double_buffer(func: S.PrimFunc) -> S.PrimFunc:
    """Fill one iteration ahead.

    for i in range(8) { alloc X: Buffer[(4,), float32] { attr double_buffer_scope on X = 1 {
        X[0] = A[i]  B[i] = X[0] } } }
    ->
    alloc X: Buffer[(8,), float32] {
        X[0] = A[0]
        for i in range(8) {
            if i + 1 < 8 { X[(i + 1) % 2 * 4] = A[i + 1] }
            B[i] = X[i % 2 * 4] } }
    """
    split = max(1, PassContext.current().get(DOUBLE_BUFFER)["split_loop"])
    may_overlap = not func.get_attr("noalias", True)  # then a fill might read, through another name, what a use writes

    def visit(item: S.Stmt) -> S.Stmt:
        mapped = map_stmt(item, lambda e: e, visit)
        if isinstance(mapped, S.For) and mapped.kind is S.LoopKind.SERIAL and not may_overlap:
            pipelined = _pipeline(mapped, split)
            mapped = mapped if pipelined is None else pipelined
        return mapped

    return with_body(func, _without_notes(visit(func.body)))


@dataclass(frozen=True)
class _Body:
    """A loop body taken apart: its allocations, those to double, the filling and the using statements."""

    buffers: tuple[S.Buffer, ...]
    doubled: frozenset[S.Buffer]
    fills: tuple[S.Stmt, ...]
    uses: tuple[S.Stmt, ...]


def _pipeline(loop: S.For, split: int) -> S.Stmt | None:
    parts = _take_apart(loop.body)
    if parts is None or _depends_on_uses(parts):
        return None
    wide = {b: replace(b, shape=(build.mul(b.shape[0], 2),)) for b in parts.doubled}
    count = build.as_int(loop.extent)
    if split > 1 and count is not None and count > split:
        body = _written_out(loop, parts, wide, split, count)
    else:
        body = S.seq(_guarded(_fill(loop, parts, wide, loop.min), loop.extent), _steady(loop, parts, wide))
    for buffer in reversed(parts.buffers):
        if buffer in wide:
            body = S.Allocate(wide[buffer], body)
    return body


def _take_apart(body: S.Stmt) -> _Body | None:
    buffers: list[S.Buffer] = []
    doubled: set[S.Buffer] = set()
    while isinstance(body, S.Allocate | S.AttrStmt):
        if isinstance(body, S.Allocate):
            buffers.append(body.buffer)
        elif body.key == _KEY and body.node in buffers and isinstance(body.node, S.Buffer):
            doubled.add(body.node)
        else:
            return None
        body = body.body
    statements = statements_of(body)
    fills = tuple(s for s in statements if _written(s) & doubled)
    uses = tuple(s for s in statements if not _written(s) & doubled)
    is_ordered = statements == (*fills, *uses)
    only_doubled = all(_written(s) <= doubled | set(_allocated(s)) for s in fills)
    if not doubled or not fills or not uses or not is_ordered or not only_doubled:
        return None
    return _Body(tuple(buffers), frozenset(doubled), fills, uses)


def _depends_on_uses(parts: _Body) -> bool:
    """Whether a fill reads memory that a use writes (it may not run before the use), or asks another function."""
    written = frozenset[S.Buffer]().union(*map(_written, parts.uses))
    nodes = [n for s in parts.fills for n in post_order(s)]
    reads = {n.buffer for n in nodes if isinstance(n, E.BufferLoad)}
    return bool(reads & written) or any(isinstance(n, E.Call) and n.name == "call_extern" for n in nodes)


def _steady(loop: S.For, parts: _Body, wide: dict[S.Buffer, S.Buffer]) -> S.Stmt:
    """Every iteration: fill the copy of the next one, if there is one; use its own."""
    ahead = build.add(loop.var, 1)
    test = build.less(ahead, build.add(loop.min, loop.extent))
    filled = S.IfThenElse(test, _fill(loop, parts, wide, ahead))
    return replace(loop, body=S.seq(filled, _use(loop, parts, wide, loop.var)))


def _written_out(loop: S.For, parts: _Body, wide: dict[S.Buffer, S.Buffer], split: int, count: int) -> S.Stmt:
    """Rounds of `split` iterations, each filling ahead without a test; then the rest."""
    dtype = loop.var.dtype
    rounds = (count - 1) // split
    outer = E.Var(f"{loop.var.name}_outer", dtype)
    steps: list[S.Stmt] = []
    for k in range(split):
        at = build.add(build.add(loop.min, build.mul(outer, split)), k)
        parity = None if split % 2 else k % 2
        following = None if parity is None else 1 - parity
        steps.append(_fill(loop, parts, wide, build.add(at, 1), following))
        steps.append(_use(loop, parts, wide, at, parity))
    extent = build.const(rounds, dtype)
    main: S.Stmt = S.For(outer, build.const(0, dtype), extent, S.LoopKind.SERIAL, S.seq(*steps))
    tail: list[S.Stmt] = []
    for k in range(rounds * split, count):
        at = build.add(loop.min, k)
        if k + 1 < count:
            tail.append(_fill(loop, parts, wide, build.add(at, 1), (k + 1) % 2))
        tail.append(_use(loop, parts, wide, at, k % 2))
    return S.seq(_fill(loop, parts, wide, loop.min, 0), main, *tail)


def _fill(loop: S.For, parts: _Body, wide: dict[S.Buffer, S.Buffer], at: E.Expr, parity: int | None = None) -> S.Stmt:
    body = fresh_copy(S.seq(*parts.fills))
    return _moved(loop, substitute(body, {loop.var: at}), wide, at, parity)


def _use(loop: S.For, parts: _Body, wide: dict[S.Buffer, S.Buffer], at: E.Expr, parity: int | None = None) -> S.Stmt:
    body = S.seq(*parts.uses)
    for buffer in reversed(parts.buffers):
        body = body if buffer in wide else S.Allocate(buffer, body)
    if at is not loop.var:
        body = substitute(fresh_copy(body), {loop.var: at})
    return _moved(loop, body, wide, at, parity)


def _moved(loop: S.For, item: S.Stmt, wide: dict[S.Buffer, S.Buffer], at: E.Expr, parity: int | None) -> S.Stmt:
    """Accesses to the doubled buffers, in the copy of iteration `at`."""
    copy = build.floormod(build.sub(at, loop.min), 2) if parity is None else build.const(parity, loop.var.dtype)

    def place(old: S.Buffer, index: E.Expr) -> E.Expr:
        start = build.mul(copy, build.cast(old.shape[0], copy.dtype))
        if index.dtype.lanes > 1:
            return _shifted(index, build.cast(start, index.dtype.element))
        return build.add(build.cast(start, index.dtype), index)

    def load(e: E.Expr) -> E.Expr | None:
        if type(e) is E.BufferLoad and e.buffer in wide:
            return E.BufferLoad(wide[e.buffer], (place(e.buffer, e.indices[0]),))
        return None

    mapper = ExprMapper(load)

    def visit(s: S.Stmt) -> S.Stmt:
        mapped = map_stmt(s, mapper, visit)
        if isinstance(mapped, S.BufferStore) and mapped.buffer in wide:
            return S.BufferStore(wide[mapped.buffer], mapped.value, (place(mapped.buffer, mapped.indices[0]),))
        return mapped

    return visit(item)


def _shifted(index: E.Expr, start: E.Expr) -> E.Expr:
    """A vector index, counted from `start`."""
    if isinstance(index, E.Ramp) and index.base.dtype.lanes == 1:
        return E.Ramp(build.add(start, index.base), index.stride, index.lanes)
    return build.add(E.Broadcast(start, index.dtype.lanes), index)


def _guarded(item: S.Stmt, extent: E.Expr) -> S.Stmt:
    count = build.as_int(extent)
    return item if count is not None and count > 0 else S.IfThenElse(build.greater(extent, 0), item)


def _written(item: S.Stmt) -> set[S.Buffer]:
    return {buffer for n in all_statements(item) for buffer in stores_of(n)}


def _allocated(item: S.Stmt) -> list[S.Buffer]:
    return [n.buffer for n in all_statements(item) if isinstance(n, S.Allocate)]


def _without_notes(item: S.Stmt) -> S.Stmt:
    mapped = map_stmt(item, lambda e: e, _without_notes)
    return mapped.body if isinstance(mapped, S.AttrStmt) and mapped.key == _KEY else mapped


InjectDoubleBuffer = prim_pass("inject-double-buffer", "tir.InjectDoubleBuffer")(inject_double_buffer)
