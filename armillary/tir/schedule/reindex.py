"""Copies of buffers laid out as a block's axes say, and indices that are computed once.

    c[i] += a[i + k] * w[k]  ->  a_reindex[i, k] = a[i + k]; c[i] += a_reindex[i, k] * w[k]     (reindexed)
    b[v] = a[v // 4]         ->  index_0[v] = v // 4; b[v] = a[index_0[v]]                      (with_indices)

In: a function and a block of its outermost statements. Out: the function and the names of the blocks that copy or
count. Invariant: refused (ScheduleError) unless the block touches the buffer at one place for each value of its axes,
that place lies in the buffer for all of them, and, where it writes, every value of the axes is gone through once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from armillary.base.node import replace, structural_equal
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, free_vars, has_loads, nodes_of
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.blocks.regions import block_regions
from armillary.tir.schedule.cache import of_parts, parts_of
from armillary.tir.schedule.index_map import IndexMap
from armillary.tir.schedule.inline import leaves, serial_loops, touched
from armillary.tir.schedule.side_by_side import with_statement
from armillary.tir.simplify import Simplifier
from armillary.tir.substitute import map_all, map_stmt, substitute_expr


def reindexed(
    func: S.PrimFunc,
    path: Sequence[S.Stmt],
    buffer: S.Buffer,
    index_map: IndexMap | None,
    names: tuple[str, str],
) -> S.PrimFunc:
    """The function whose block takes a copy laid out by its axes, or a map of them; names: the copy's, its scope's."""
    realize, block = path[-2:]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    message = f"reindex of {buffer.name}: block {block.name_hint!r}"
    is_written = buffer in touched(block)[1]
    indices = _place(message, block, buffer)
    sizes = _domains(message, block)
    used = [a.var for a in block.iter_vars if any(a.var in free_vars(i) for i in indices)]
    if index_map is None:
        own: list[E.Expr] = list(used)
    else:
        own = index_map.map_indices([a.var for a in block.iter_vars])
        taken = [v for v in sizes if any(v in free_vars(e) for e in own)]
        if not set(used) <= set(taken):
            raise ScheduleError(f"{message}: the map leaves out an axis that the place in {buffer.name} depends on")
        IndexMap(taken, own).inverse([sizes[v] for v in taken])
        used = taken
    _check_inside(message, buffer, indices, sizes)
    shape = IndexMap(used, own).map_shape([sizes[v] for v in used])
    if is_written:
        _check_whole(message, path, realize, block, indices, used)
    copy = S.Buffer(names[0], tuple(build.const(n) for n in shape), buffer.dtype, names[1])
    fresh = {v: E.Var(v.name, v.dtype) for v in used}
    theirs = [substitute_expr(i, dict(fresh)) for i in indices]
    mine = [substitute_expr(i, dict(fresh)) for i in own]
    pair = ((copy, mine), (buffer, theirs)) if is_written else ((buffer, theirs), (copy, mine))
    nest = _copy(names[0], pair, [(fresh[v], sizes[v]) for v in used])
    rest = _with_access(func.body, block, buffer, copy, own)
    return _placed(message, func.with_body(rest), block.name_hint, nest, copy, buffer, after=is_written)


def _place(message: str, block: Block, buffer: S.Buffer) -> tuple[E.Expr, ...]:
    """The indices at which a block touches a buffer."""
    items = [block.body] if block.init is None else [block.body, block.init]
    places = [
        s.indices for i in items for s in all_statements(i) if isinstance(s, S.BufferStore) and s.buffer is buffer
    ]
    places += [e.indices for i in items for e in nodes_of(i) if isinstance(e, E.BufferLoad) and e.buffer is buffer]
    same = all(structural_equal(a, b, renames=False) for p in places for a, b in zip(p, places[0], strict=True))
    if not places or not same or any(has_loads(i) for i in places[0]):
        raise ScheduleError(f"{message} touches it at several places, or at places that data says")
    known = {a.var for a in block.iter_vars}
    if block.match_buffers or any(set(free_vars(i)) - known for i in places[0]):
        raise ScheduleError(f"{message} has loops of its own around the place {list(places[0])}")
    return tuple(places[0])


def _domains(message: str, block: Block) -> dict[E.Var, int]:
    sizes: dict[E.Var, int] = {}
    for axis in block.iter_vars:
        length = build.as_int(axis.dom.extent) if isinstance(axis.dom, E.Range) else None
        if length is None or not isinstance(axis.dom, E.Range) or build.as_int(axis.dom.min) != 0:
            raise ScheduleError(f"{message}: axis {axis.var.name} does not go from 0 to a known end")
        sizes[axis.var] = length
    return sizes


def _check_inside(message: str, buffer: S.Buffer, indices: Sequence[E.Expr], sizes: dict[E.Var, int]) -> None:
    simplifier = Simplifier({v: (0, n - 1) for v, n in sizes.items()})
    for index, size in zip(indices, buffer.shape, strict=True):
        low, high = simplifier.bound(index)
        length = build.as_int(size)
        if length is None or low < 0 or high >= length:
            raise ScheduleError(f"{message}: {index} may lie outside of the {size} elements along its dimension")


def _check_whole(
    message: str,
    path: Sequence[S.Stmt],
    realize: BlockRealize,
    block: Block,
    indices: Sequence[E.Expr],
    used: Sequence[E.Var],
) -> None:
    """Refuse a block that does not write each place once, as the copy is copied back whole."""
    loops = [build.as_int(s.extent) or 0 for s in path if isinstance(s, S.For)]
    axes = [build.as_int(a.dom.extent) or 0 for a in block.iter_vars if isinstance(a.dom, E.Range)]
    if build.as_int(realize.predicate) != 1 or math.prod(loops) != math.prod(axes):
        raise ScheduleError(f"{message} does not go through all values of its axes", hint="reindex before split")
    names = [i for i in indices if isinstance(i, E.Var)]
    others = [i for i in indices if not isinstance(i, E.Var | E.IntImm)]
    kinds = {a.var: a.kind for a in block.iter_vars}
    if others or len(set(names)) < len(names) or set(names) != set(used) or any(kinds[v] != "data" for v in names):
        raise ScheduleError(f"{message} writes it at {list(indices)}, wanted data axes of its own, each once")


def _copy(
    name: str, pair: tuple[tuple[S.Buffer, list[E.Expr]], tuple[S.Buffer, list[E.Expr]]], axes: list[tuple[E.Var, int]]
) -> S.Stmt:
    (source, come), (result, go) = pair
    return counted(name, S.BufferStore(result, E.BufferLoad(source, tuple(come)), tuple(go)), axes)


def counted(name: str, body: S.Stmt, axes: Sequence[tuple[E.Var, int]]) -> S.Stmt:
    """Loops around a block `name` over data axes of these lengths from 0 on."""
    rows = tuple(
        E.IterVar(E.Range.from_min_extent(build.const(0, v.dtype), build.const(n, v.dtype)), v, "data") for v, n in axes
    )
    block = Block(rows, (), (), name, body)
    reads, writes = block_regions(block)
    loops = [E.Var(f"ax{k}", v.dtype) for k, (v, _) in enumerate(axes)]
    realize = BlockRealize(tuple(loops), build.const(True), replace(block, reads=reads, writes=writes))
    return serial_loops([(x, build.const(n, x.dtype)) for x, (_, n) in zip(loops, axes, strict=True)], realize)


def _with_access(body: S.Stmt, block: Block, old: S.Buffer, new: S.Buffer, indices: Sequence[E.Expr]) -> S.Stmt:
    """The body whose block touches `new` at these indices wherever it touched `old`."""

    def load(e: E.Expr) -> E.Expr | None:
        return E.BufferLoad(new, tuple(indices)) if isinstance(e, E.BufferLoad) and e.buffer is old else None

    def store(s: S.Stmt) -> S.Stmt:
        inner = map_stmt(s, lambda e: e, store)
        if isinstance(inner, S.BufferStore) and inner.buffer is old:
            return replace(inner, buffer=new, indices=tuple(indices))
        return inner

    def visit(s: S.Stmt) -> S.Stmt:
        if s is not block:
            return map_stmt(s, lambda e: e, visit)
        init = None if block.init is None else map_all(store(block.init), load)
        inner = replace(block, body=map_all(store(block.body), load), init=init)
        reads, writes = block_regions(inner)
        return replace(inner, reads=reads, writes=writes)

    return visit(body)


def _placed(
    message: str, func: S.PrimFunc, name: str, nest: S.Stmt, copy: S.Buffer, buffer: S.Buffer | None, after: bool
) -> S.PrimFunc:
    """The function with loops before or behind the outermost statement that a block stands in."""
    parts = parts_of(func)
    at = next(k for k, part in enumerate(parts) if any(b.name_hint == name for b in leaves(part)))
    beside = [b for b in leaves(parts[at]) if b.name_hint != name]
    busy = [
        b.name_hint
        for b in beside
        if buffer is not None and (buffer in touched(b)[1] or (after and buffer in touched(b)[0]))
    ]
    if busy:
        raise ScheduleError(f"{message}: block {busy[0]!r} in the same loops touches it, too")
    parts.insert(at + after, nest)
    return of_parts(func, parts, copy)


def with_indices(func: S.PrimFunc, block: Block, scope: str, least: int) -> tuple[S.PrimFunc, list[str]]:
    """The function whose block reads its computed indices, those used `least` times or more, from buffers."""
    message = f"cache_index: block {block.name_hint!r}"
    sizes = _domains(message, block)
    loads = [e for e in nodes_of(block.body) if isinstance(e, E.BufferLoad)]
    computed = [i for e in loads for i in e.indices if not isinstance(i, E.Var | E.IntImm) and not has_loads(i)]
    computed = [i for i in computed if i.dtype.lanes == 1 and set(free_vars(i)) <= set(sizes)]
    distinct: list[E.Expr] = []
    for item in computed:
        often = sum(structural_equal(item, other, renames=False) for other in computed) >= least
        if often and not any(structural_equal(item, other, renames=False) for other in distinct):
            distinct.append(item)
    names: list[str] = []
    taken = {s.name_hint for s in all_statements(func.body) if isinstance(s, Block)}
    for item in distinct:
        names.append(
            next(f"index_{k}" for k in range(len(taken) + len(names) + 1) if f"index_{k}" not in {*taken, *names})
        )
        func = _with_index(message, func, block.name_hint, item, (names[-1], scope), sizes)
    return func, names


def _with_index(
    message: str, func: S.PrimFunc, name: str, item: E.Expr, own: tuple[str, str], sizes: dict[E.Var, int]
) -> S.PrimFunc:
    """The function whose block `name` reads one index from a buffer; `own`: the block that counts, the scope."""
    used = [v for v in sizes if v in free_vars(item)]
    shape = tuple(build.const(sizes[v]) for v in used) or (build.const(1),)
    buffer = S.Buffer(f"{own[0]}_var", shape, item.dtype, own[1])
    load = E.BufferLoad(buffer, tuple(used) or (build.const(0),))
    block = next(b for b in leaves(func.body) if b.name_hint == name)
    inner = replace(
        block, body=map_all(block.body, lambda e: load if structural_equal(e, item, renames=False) else None)
    )
    reads, writes = block_regions(inner)
    rest = with_statement(func, block, replace(inner, reads=reads, writes=writes))
    fresh = {v: E.Var(v.name, v.dtype) for v in used}
    body = S.BufferStore(buffer, substitute_expr(item, dict(fresh)), tuple(fresh.values()) or load.indices)
    nest = counted(own[0], body, [(fresh[v], sizes[v]) for v in used])
    return _placed(message, rest, name, nest, buffer, None, after=False)
