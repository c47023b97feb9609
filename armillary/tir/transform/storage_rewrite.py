"""`storage-rewrite`: buffers whose lives do not overlap share one allocation.

In: flat allocations over a sequence of statements. Out: fewer allocations: a buffer first used after the last use of
another of the same scope and dtype takes its place. Invariant: two buffers that are live at one time never share;
only constant sizes are shared. Configuration: `tir.disable_storage_rewrite`.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.base.node import post_order, replace
from armillary.tir import build
from armillary.tir import stmt as S
from armillary.tir.substitute import map_stmt, rename_buffers
from armillary.tir.transform.loop_pass import prim_pass, statements_of, with_body
from armillary.transform import PassContext, register_config_option

DISABLE_STORAGE_REWRITE = register_config_option(
    "tir.disable_storage_rewrite", bool, False, "keep every allocation as written"
)


def storage_rewrite(func: S.PrimFunc) -> S.PrimFunc:
    """Share memory between buffers with disjoint lives.

    alloc X: Buffer[(8,), float32] { alloc Y: Buffer[(8,), float32]
        X[0] = A[0]  B[0] = X[0]  Y[0] = A[1]  B[1] = Y[0] }
    ->
    alloc X: Buffer[(8,), float32] { X[0] = A[0]  B[0] = X[0]  X[0] = A[1]  B[1] = X[0] }
    """
    if PassContext.current().get(DISABLE_STORAGE_REWRITE):
        return func
    return with_body(func, _visit(func.body))


def _visit(item: S.Stmt) -> S.Stmt:
    if not isinstance(item, S.Allocate):
        return map_stmt(item, lambda e: e, _visit)
    buffers, statements = _chain(item)
    return _share(buffers, [_visit(s) for s in statements])


def _chain(item: S.Stmt) -> tuple[list[S.Buffer], list[S.Stmt]]:
    """Allocations that open one after another over one run of statements, and those statements."""
    buffers: list[S.Buffer] = []
    statements: list[S.Stmt] = []
    while True:
        if isinstance(item, S.Allocate):
            buffers.append(item.buffer)
            item = item.body
            continue
        parts = statements_of(item)
        if not isinstance(parts[-1], S.Allocate) or len(parts) == 1:
            return buffers, [*statements, *parts]
        statements.extend(parts[:-1])
        item = parts[-1]


@dataclass
class _Home:
    """A shared allocation: its size so far, and when it becomes free."""

    buffer: S.Buffer
    size: int
    free_after: int
    members: list[S.Buffer]


def _share(buffers: list[S.Buffer], statements: list[S.Stmt]) -> S.Stmt:
    lives = _lives(buffers, statements)
    homes: list[_Home] = []
    retained: list[S.Buffer] = []
    for buffer in sorted((b for b in buffers if b in lives), key=lambda b: lives[b][0]):
        size = _constant_size(buffer)
        first, last = lives[buffer]
        home = None if size is None else _find_home(homes, buffer, size, first)
        if home is not None and size is not None:
            home.size, home.free_after = max(home.size, size), last
            home.members.append(buffer)
        elif size is not None:
            homes.append(_Home(buffer, size, last, [buffer]))
        else:
            retained.append(buffer)
    return _rebuild(homes, retained, statements)


def _rebuild(homes: list[_Home], buffers: list[S.Buffer], statements: list[S.Stmt]) -> S.Stmt:
    mapping: dict[S.Buffer, S.Buffer] = {}
    for home in homes:
        shape = (build.const(home.size, home.buffer.shape[0].dtype),)
        target = home.buffer if _constant_size(home.buffer) == home.size else replace(home.buffer, shape=shape)
        mapping.update((b, target) for b in home.members if b is not target)
        buffers.append(target)
    body = S.seq(*statements)
    body = rename_buffers(body, mapping) if mapping else body
    for buffer in reversed(buffers):
        body = S.Allocate(buffer, body)
    return body


def _lives(buffers: list[S.Buffer], statements: list[S.Stmt]) -> dict[S.Buffer, tuple[int, int]]:
    """First and last statement that touches each buffer; untouched buffers are left out."""
    wanted, result = set(buffers), dict[S.Buffer, tuple[int, int]]()
    for position, statement in enumerate(statements):
        for item in post_order(statement):
            if isinstance(item, S.Buffer) and item in wanted:
                result[item] = (result.get(item, (position, position))[0], position)
    return result


def _constant_size(buffer: S.Buffer) -> int | None:
    return build.as_int(buffer.shape[0]) if len(buffer.shape) == 1 else None


def _find_home(homes: list[_Home], buffer: S.Buffer, size: int, first: int) -> _Home | None:
    """The free home of the nearest size; register-sized (local) buffers keep their own."""
    if buffer.scope == "local":
        return None
    fitting = [
        h for h in homes if h.free_after < first and h.buffer.scope == buffer.scope and h.buffer.dtype is buffer.dtype
    ]
    return min(fitting, key=lambda h: abs(h.size - size), default=None)


StorageRewrite = prim_pass("storage-rewrite", "tir.StorageRewrite")(storage_rewrite)
