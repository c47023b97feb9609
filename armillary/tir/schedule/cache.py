"""Copies of buffers in another memory: what blocks read is copied before them, what one writes after it.

    c[v] = a[v] + 1  ->  a_local[v] = a[v]; c[v] = a_local[v] + 1        (read)
    c[v] = a[v] + 1  ->  c_local[v] = a[v] + 1; c[v] = c_local[v]        (write)

In: a function, a buffer, the names of the blocks that take the copy. Out: the function, and the name of the block that
copies. Invariant: a copy is of the whole buffer and stands beside statements of the outermost block; it is refused
(ScheduleError) where something would be read before it is copied, or copied that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.node import replace
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements
from armillary.tir.blocks.block import Block, BlockRealize, BufferRegion, MatchBufferRegion
from armillary.tir.schedule.inline import leaves, serial_loops, touched
from armillary.tir.substitute import map_all, map_stmt


def cached_read(func: S.PrimFunc, buffer: S.Buffer, readers: set[str], scope: str) -> tuple[S.PrimFunc, str]:
    """The function whose blocks `readers` read a copy of a buffer, and the name of the block that copies."""
    parts = parts_of(func)
    first = next(k for k, part in enumerate(parts) if any(b.name_hint in readers for b in leaves(part)))
    late = [b.name_hint for part in parts[first:] for b in leaves(part) if buffer in touched(b)[1]]
    if late:
        raise ScheduleError(f"cache_read: block {late[0]!r} writes {buffer.name} after it would be copied")
    copy, cache, name = _copy_of(func, buffer, scope, lambda cache: (buffer, cache))
    rest = [with_buffer(part, buffer, cache, readers) for part in parts[first:]]
    return of_parts(func, [*parts[:first], copy, *rest], cache), name


def cached_write(func: S.PrimFunc, buffer: S.Buffer, writer: Block, scope: str) -> tuple[S.PrimFunc, str]:
    """The function whose block `writer` writes a copy of a buffer, and the name of the block that copies it back."""
    parts = parts_of(func)
    at = next(k for k, part in enumerate(parts) if writer in leaves(part))
    others = [b.name_hint for part in parts for b in leaves(part) if b is not writer and buffer in touched(b)[1]]
    inside = [b.name_hint for b in leaves(parts[at]) if b is not writer and buffer in touched(b)[0]]
    before = [b.name_hint for part in parts[:at] for b in leaves(part) if buffer in touched(b)[0]]
    for names, message in (
        (others, "writes {} too"),
        (inside, "reads {} in the same loops"),
        (before, "reads {} before"),
    ):
        if names:
            raise ScheduleError(f"cache_write: block {names[0]!r} {message.format(buffer.name)}")
    if not writes_all(writer, buffer):
        message = f"cache_write: block {writer.name_hint!r} does not store at its own data axes, one for each of"
        raise ScheduleError(f"{message} {buffer.name}'s dimensions and as long as they are")
    copy, cache, name = _copy_of(func, buffer, scope, lambda cache: (cache, buffer))
    parts[at] = with_buffer(parts[at], buffer, cache, {writer.name_hint})
    return of_parts(func, [*parts[: at + 1], copy, *parts[at + 1 :]], cache), name


def writes_all(block: Block, buffer: S.Buffer) -> bool:
    """Whether a block is one store at its data axes, in some order, whose domains are the buffer's shape."""
    sizes = {a.var: a.dom for a in block.iter_vars if a.kind == "data" and isinstance(a.dom, E.Range)}
    store = block.body
    if (
        not isinstance(store, S.BufferStore)
        or store.buffer is not buffer
        or len(set(store.indices)) < len(buffer.shape)
    ):
        return False
    for index, size in zip(store.indices, buffer.shape, strict=True):
        axis = sizes.get(index) if isinstance(index, E.Var) else None
        length = build.as_int(size)
        if axis is None or length is None or (build.as_int(axis.min), build.as_int(axis.extent)) != (0, length):
            return False
    return True


def with_buffer(item: S.Stmt, old: S.Buffer, new: S.Buffer, names: set[str] | None = None) -> S.Stmt:
    """A statement with another buffer in the place of one, in the blocks of these names (None: everywhere)."""

    def swap(region: BufferRegion) -> BufferRegion:
        return BufferRegion(new, region.region) if region.buffer is old else region

    def load(e: E.Expr) -> E.Expr | None:
        return E.BufferLoad(new, e.indices) if isinstance(e, E.BufferLoad) and e.buffer is old else None

    def visit(s: S.Stmt) -> S.Stmt:
        result = map_stmt(s, lambda e: e, visit)
        if isinstance(result, S.BufferStore) and result.buffer is old:
            return replace(result, buffer=new)
        if isinstance(result, Block):
            matched = tuple(MatchBufferRegion(m.buffer, swap(m.source)) for m in result.match_buffers)
            own = tuple(new if b is old else b for b in result.alloc_buffers)
            regions = tuple(map(swap, result.reads)), tuple(map(swap, result.writes))
            return replace(result, reads=regions[0], writes=regions[1], match_buffers=matched, alloc_buffers=own)
        return result

    def only(s: S.Stmt) -> S.Stmt:
        if isinstance(s, Block) and s.name_hint in (names or ()):
            return map_all(visit(s), load)
        return map_stmt(s, lambda e: e, only)

    return map_all(visit(item), load) if names is None else only(item)


def with_own(func: S.PrimFunc, buffer: S.Buffer) -> S.PrimFunc:
    """The function with one more buffer of its own."""
    return of_parts(func, parts_of(func), buffer)


def _copy_of(
    func: S.PrimFunc, buffer: S.Buffer, scope: str, order: Callable[[S.Buffer], tuple[S.Buffer, S.Buffer]]
) -> tuple[S.Stmt, S.Buffer, str]:
    """Loops around a block that copies all elements, the new buffer, the block's name; `order`: from, to."""
    used = {s.name_hint for s in all_statements(func.body) if isinstance(s, Block)}
    plain = f"{buffer.name}_{scope}"
    name = next(n for n in (plain, *(f"{plain}_{k}" for k in range(1, len(used) + 2))) if n not in used)
    cache = S.Buffer(name, buffer.shape, buffer.dtype, scope)
    source, result = order(cache)
    zeros = [build.const(0, size.dtype) for size in buffer.shape]
    axes = tuple(
        E.IterVar(E.Range.from_min_extent(zero, size), E.Var(f"v{k}", size.dtype), "data")
        for k, (zero, size) in enumerate(zip(zeros, buffer.shape, strict=True))
    )
    places = tuple(a.var for a in axes)
    point = tuple(E.Range.from_min_extent(p, build.const(1, p.dtype)) for p in places)
    body = S.BufferStore(result, E.BufferLoad(source, places), places)
    block = Block(axes, (BufferRegion(source, point),), (BufferRegion(result, point),), name, body)
    loops = [E.Var(f"ax{k}", size.dtype) for k, size in enumerate(buffer.shape)]
    realize = BlockRealize(tuple(loops), build.const(True), block)
    return serial_loops(list(zip(loops, buffer.shape, strict=True)), realize), cache, name


def _outermost(func: S.PrimFunc) -> Block | None:
    return func.body.block if isinstance(func.body, BlockRealize) and not func.body.block.iter_vars else None


def parts_of(func: S.PrimFunc) -> list[S.Stmt]:
    """The statements of the function, or of the block without axes that is all of it."""
    root = _outermost(func)
    return S.stmt_list(func.body if root is None else root.body)


def of_parts(func: S.PrimFunc, parts: list[S.Stmt], buffer: S.Buffer) -> S.PrimFunc:
    """The function of other outermost statements, with one more buffer of its own."""
    root = _outermost(func) or Block((), (), (), "root", func.body)
    rebuilt = replace(root, body=S.seq(*parts), alloc_buffers=(*root.alloc_buffers, buffer))
    return func.with_body(BlockRealize((), build.const(True), rebuilt))


def cached_in_place(func: S.PrimFunc, buffer: S.Buffer, block: Block, scope: str) -> tuple[S.PrimFunc, list[str]]:
    """The function whose block changes a copy of a buffer, taken before and copied back; the blocks that copy."""
    parts = parts_of(func)
    at = next(k for k, part in enumerate(parts) if block in leaves(part))
    for other in leaves(parts[at]):
        if other is not block and buffer in set().union(*touched(other)):
            raise ScheduleError(
                f"cache_inplace: block {other.name_hint!r} in the same loops touches {buffer.name}, too"
            )
    into, cache, name = _copy_of(func, buffer, scope, lambda cache: (buffer, cache))
    back = _copy_of(func, buffer, scope, lambda _: (cache, buffer))[0]
    used = {s.name_hint for part in parts for s in all_statements(part) if isinstance(s, Block)} | {name}
    last = next(n for n in (f"{name}_{k}" for k in range(len(used) + 1)) if n not in used)

    def named(item: S.Stmt) -> S.Stmt:
        return replace(item, name_hint=last) if isinstance(item, Block) else map_stmt(item, lambda e: e, named)

    parts[at] = with_buffer(parts[at], buffer, cache, {block.name_hint})
    return of_parts(func, [*parts[:at], into, parts[at], named(back), *parts[at + 1 :]], cache), [name, last]


def with_type(body: S.Stmt, old: S.Buffer, new: S.Buffer) -> S.Stmt:
    """The body with a buffer of another type; what is written is cast to it, what is read from it."""

    def load(e: E.Expr) -> E.Expr | None:
        same = isinstance(e, E.BufferLoad) and e.buffer is old
        return (
            build.cast(E.BufferLoad(new, e.indices), str(old.dtype)) if same and isinstance(e, E.BufferLoad) else None
        )

    def store(s: S.Stmt) -> S.Stmt:
        inner = map_stmt(s, lambda e: e, store)
        if isinstance(inner, S.BufferStore) and inner.buffer is old:
            return replace(inner, value=build.cast(inner.value, str(new.dtype)))
        return inner

    return with_buffer(store(map_all(body, load)), old, new)
