"""Memory inside a kernel that its work-items fill together, though each of them, or each group, has its own copy.

In: the body of a kernel whose loops are still bound (`split_host_device.py` is the caller), and the size of each axis
of its grid. Out: nothing, or an UnsupportedError that names buffer, axis and scope. Invariant: where a bound loop
inside an allocation decides what is stored there, only the work-item that stored an element reads it: private memory
has no other readers, and what is shared has them in one group. Barriers for shared memory: `insert_barriers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from armillary.base.node import post_order, structural_equal
from armillary.errors import UnsupportedError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import expressions_of, statements_inside
from armillary.tir.substitute import substitute_expr

Indices = tuple[E.Expr, ...]


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around a statement: bound loops, how many of them each buffer lies in, and what depends on them."""

    loops: tuple[S.For, ...] = ()
    opened: Mapping[S.Buffer, int] = field(default_factory=dict)
    lets: Mapping[E.Var, E.Expr] = field(default_factory=dict)

    def inside(self, buffer: S.Buffer) -> dict[str, S.For]:
        """The bound loops between a buffer's allocation and here, by their axis; those around both have no say."""
        count = self.opened[buffer]
        outer = {loop.thread_tag for loop in self.loops[:count]}
        return {loop.thread_tag: loop for loop in self.loops[count:] if loop.thread_tag not in outer}


def check_private_memory(body: S.Stmt, axes: Mapping[str, E.Var], extents: Mapping[str, object], name: str) -> None:
    """Refuse what is stored by one work-item and read by another that does not see it."""
    stored: dict[S.Buffer, list[tuple[Indices, dict[str, int | None]]]] = {}
    read: dict[S.Buffer, list[tuple[Indices, dict[str, int | None]]]] = {}
    for item, around in _with_surroundings(body):
        for expr in expressions_of(item):
            for load in post_order(expr):
                if isinstance(load, E.BufferLoad) and load.buffer in around.opened:
                    read.setdefault(load.buffer, []).append(_place(load.buffer, load.indices, around, axes))
        if not isinstance(item, S.BufferStore) or item.buffer not in around.opened:
            continue
        indices, loops = _place(item.buffer, item.indices, around, axes)
        named = {n for i in indices for n in post_order(i) if isinstance(n, E.Var)}
        parts = {
            tag: n
            for tag, n in loops.items()
            if extents[tag] != 1 and (axes[tag] in named or n != extents[tag]) and _is_apart(item.buffer, tag)
        }
        if parts:
            stored.setdefault(item.buffer, []).append((indices, parts))
    for buffer, writes in stored.items():
        for indices, parts in writes:
            if not all(_is_own(indices, parts, *place) for place in read.get(buffer, ())):
                _refuse(name, buffer, next(iter(parts)))


def _with_surroundings(body: S.Stmt) -> Iterator[tuple[S.Stmt, _Around]]:
    stack = [(body, _Around())]
    while stack:
        item, around = stack.pop()
        yield item, around
        if isinstance(item, S.For) and item.kind is S.LoopKind.THREAD:
            around = _Around((*around.loops, item), around.opened, around.lets)
        elif isinstance(item, S.Allocate):
            around = _Around(around.loops, {**around.opened, item.buffer: len(around.loops)}, around.lets)
        elif isinstance(item, S.LetStmt):
            value = substitute_expr(item.value, dict(around.lets))
            around = _Around(around.loops, around.opened, {**around.lets, item.var: value})
        stack.extend((part, around) for part in statements_inside(item))


def _place(
    buffer: S.Buffer, indices: Indices, around: _Around, axes: Mapping[str, E.Var]
) -> tuple[Indices, dict[str, int | None]]:
    """Indices in terms of the axes of the grid, and the extents of the bound loops since the allocation."""
    loops = around.inside(buffer)
    known = {loop.var: build.add(loop.min, build.cast(axes[loop.thread_tag], loop.var.dtype)) for loop in around.loops}
    named = [substitute_expr(substitute_expr(i, dict(around.lets)), known) for i in indices]
    return tuple(named), {tag: build.as_int(loop.extent) for tag, loop in loops.items()}


def _is_apart(buffer: S.Buffer, tag: str) -> bool:
    return buffer.scope != "shared" or tag.startswith("blockIdx")


def _is_own(
    stored: Indices, parts: Mapping[str, int | None], indices: Indices, loops: Mapping[str, int | None]
) -> bool:
    """Whether a work-item reads what it stored itself: the same element, by loops of the same extent."""
    named = [n for i in stored for n in post_order(i) if isinstance(n, E.Var)]
    return all(loops.get(tag, 0) == extent for tag, extent in parts.items()) and structural_equal(
        [*named, *stored], [*named, *indices]
    )


def _refuse(name: str, buffer: S.Buffer, tag: str) -> None:
    whose = "each group" if buffer.scope == "shared" else "each work-item"
    message = (
        f"{name}: {buffer.name} is stored by a loop bound to {tag} and read by others, but {whose} has its own copy"
    )
    hint = "give the stage the scope shared, bind the axis in the stage that it is computed at, or compute it at root"
    raise UnsupportedError(message, hint=hint if tag.startswith("threadIdx") else "compute the stage at root")
