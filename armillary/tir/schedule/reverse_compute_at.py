"""Blocks that are computed inside a loop of the block that writes what they read, as soon as it is written.

    for i: b[i] = a[i] * 2; for i: c[i] = b[i] + 1  ->  for i: {b[i] = a[i] * 2; c[i] = b[i] + 1}

In: a function, the statements from its body to a BlockRealize, those to a loop. Out: the function with the block's
loops inside the loop, behind the writer. Invariant: refused (ScheduleError) unless what an iteration writes is a box
without holes, with its last values, and the block reads it at its own axes: each iteration then reads what it wrote
alone, and the buffer may be as small as its part.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.node import replace, structural_equal
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, nodes_of, uses_any
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.schedule.cache import writes_all
from armillary.tir.schedule.inline import alone, axes_of, leaves, serial_loops, touched, without
from armillary.tir.schedule.reduction import conjuncts
from armillary.tir.simplify import Simplifier, simplify

_Box = list[tuple[E.Expr, int]]  # the first index and the number of indices along each dimension


def computed_at_writer(func: S.PrimFunc, path: Sequence[S.Stmt], to_loop: Sequence[S.Stmt]) -> S.PrimFunc:
    """The function with the last block of `path` computed inside the last loop of `to_loop`."""
    realize, block = path[-2:]
    loop = to_loop[-1]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    assert isinstance(loop, S.For), "the path to a loop ends with it"
    message = f"reverse_compute_at: block {block.name_hint!r}"
    writer, buffer = _writer(message, func, block, loop)
    reason = _obstacle_of_block(path, realize, block, buffer) or _obstacle_between(func, to_loop, block, buffer)
    if reason is not None:
        raise ScheduleError(f"{message} {reason}")
    box = _box(message, func, to_loop, writer)
    nest, old = _nest(realize, block, buffer, box), next(s for s in path if alone(s, block))
    parts = S.stmt_list(loop.body)
    at = next(k for k, part in enumerate(parts) if writer in leaves(part))
    inside = replace(loop, body=S.seq(*parts[: at + 1], nest, *parts[at + 1 :]))
    return func.with_body(without(func.body, old, None, old=loop, new=inside))


def _writer(message: str, func: S.PrimFunc, block: Block, loop: S.For) -> tuple[Block, S.Buffer]:
    """The block in the loop that writes what a block reads, and that buffer."""
    if block in leaves(loop):
        raise ScheduleError(f"{message} stands in loop {loop.var.name} already")
    reads = touched(block)[0]
    writers = [(b, w) for b in leaves(loop) for w in touched(b)[1] if w in reads]
    if len(writers) != 1:
        names = ", ".join(w.name for _, w in writers)
        raise ScheduleError(
            f"{message} reads {names or 'nothing'} of what loop {loop.var.name} writes, wanted one buffer"
        )
    writer, buffer = writers[0]
    if any(buffer in touched(b)[1] for b in leaves(func.body) if b is not writer):
        raise ScheduleError(f"{message} reads {buffer.name}, which several blocks write")
    return writer, buffer


def _obstacle_of_block(path: Sequence[S.Stmt], realize: BlockRealize, block: Block, buffer: S.Buffer) -> str | None:
    """Why the elements that a block computes from a part of what it reads are not known; None where they are."""
    store, axes = block.body, axes_of(block)
    if not isinstance(store, S.BufferStore) or block.init is not None or not writes_all(block, store.buffer):
        return "is not one store at its own data axes, one for each dimension of the buffer and as long as it is"
    loads = [e for e in nodes_of(store) if isinstance(e, E.BufferLoad) and e.buffer is buffer]
    for load in loads:
        if not set(load.indices) <= set(axes) or len(set(load.indices)) < len(load.indices):
            return f"does not read {buffer.name} at its own axes, each once"
        if load.indices != loads[0].indices:
            return f"reads {buffer.name} at several places"
    own = {s.var: s.extent for s in path if isinstance(s, S.For) and build.as_int(s.min) == 0 and alone(s, block)}
    values = [v for v in realize.iter_values if isinstance(v, E.Var) and v in own]
    lengths = [a.dom.extent for a in block.iter_vars if isinstance(a.dom, E.Range)]
    is_whole = len(set(values)) == len(lengths) == len(axes) and build.as_int(realize.predicate) == 1
    if not is_whole or not all(structural_equal(own[v], n) for v, n in zip(values, lengths, strict=True)):
        return "has no loop of its own for each axis (move it before its loops are split)"
    return None


def _obstacle_between(func: S.PrimFunc, to_loop: Sequence[S.Stmt], block: Block, buffer: S.Buffer) -> str | None:
    """Why a block cannot run as early as in the loop; None where it can."""
    blocks = leaves(func.body)
    outermost = next(s for s in to_loop if isinstance(s, S.For))
    start, end = blocks.index(leaves(outermost)[0]), blocks.index(block)
    if end < start:
        return f"stands before loop {outermost.var.name}"
    reads, writes = touched(block)
    if reads & writes:
        return "reads what it writes"
    between = [touched(b) for b in blocks[start:end]]
    busy = [w for r, w in between if (reads - {buffer}) & w or writes & (r | w)]
    return "uses what is written, or writes what is used, from that loop on" if busy else None


def _box(message: str, func: S.PrimFunc, to_loop: Sequence[S.Stmt], writer: Block) -> _Box:
    """What an iteration of a loop writes; ScheduleError unless it is a box, whole and final."""
    loop, store = to_loop[-1], writer.body
    assert isinstance(loop, S.For), "the path to a loop ends with it"
    inner = _loops_to(writer, loop.body)
    outer = [s for s in to_loop if isinstance(s, S.For)]
    realize = next(s for s in all_statements(func.body) if isinstance(s, BlockRealize) and s.block is writer)
    what = f"{message}: block {writer.name_hint!r}"
    if not isinstance(store, S.BufferStore) or not writes_all(writer, store.buffer):
        raise ScheduleError(f"{what} does not store at its own data axes, one for each dimension of its buffer")
    pairs = list(zip(writer.iter_vars, realize.iter_values, strict=True))
    values = {a.var: v for a, v in pairs if a.kind == "data"}
    if writer.init is None and len(values) < len(pairs):
        raise ScheduleError(f"{what} adds to what was there before (its first values are set elsewhere)")
    for one in outer:
        if any(a.kind != "data" and uses_any(v, {one.var}) for a, v in pairs):
            raise ScheduleError(f"{what} has its last values only behind loop {one.var.name}, which reduces")
        if not any(uses_any(v, {one.var}) for v in values.values()):
            raise ScheduleError(f"{what} writes the same elements in all iterations of loop {one.var.name}")
    marked = {S.LoopKind.VECTORIZED: outer, S.LoopKind.THREAD: inner or []}
    for kind, loops in marked.items():
        wrong = next((s for s in loops if s.kind is kind), None)
        if wrong is not None:
            raise ScheduleError(f"{message} cannot run beside loop {wrong.var.name}, which is {kind.value}")
    is_cut = [_is_cut(c, pairs) for c in conjuncts(realize.predicate)]
    sides = [_side(values[i], inner) for i in store.indices if isinstance(i, E.Var)] if inner is not None else []
    shared = [s for s in inner or () if sum(uses_any(v, {s.var}) for v in values.values()) > 1]
    if inner is None or not all(is_cut) or shared or any(side is None for side in sides):
        hint = "move the block before loops are fused, or split a second time"
        raise ScheduleError(f"{what} writes a part of {store.buffer.name} that is no box in {loop.var.name}", hint=hint)
    return [side for side in sides if side is not None]


def _loops_to(block: Block, item: S.Stmt) -> list[S.For] | None:
    """The loops of constant bounds from a statement to a block; None where something else stands around it."""
    part = next(s for s in S.stmt_list(item) if block in leaves(s))
    if isinstance(part, BlockRealize):
        return [] if part.block is block else None
    if not isinstance(part, S.For) or build.as_int(part.extent) is None or build.as_int(part.min) is None:
        return None
    rest = _loops_to(block, part.body)
    return None if rest is None else [part, *rest]


def _is_cut(condition: E.Expr, pairs: Sequence[tuple[E.IterVar, E.Expr]]) -> bool:
    """Whether a condition only says that an axis lies in its domain."""
    if build.as_int(condition) == 1:
        return True
    one = simplify(condition)
    for axis, value in pairs:
        if isinstance(axis.dom, E.Range):
            cuts = build.less(value, axis.dom.extent), value >= 0
            if any(structural_equal(one, simplify(cut)) for cut in cuts):
                return True
    return False


def _side(value: E.Expr, inner: Sequence[S.For]) -> tuple[E.Expr, int] | None:
    """The first of the values of an index over loops, and their number, where none between is left out."""
    form = Simplifier().linear(value)
    lengths = {s.var: build.as_int(s.extent) or 0 for s in inner}
    steps = sorted((factor, lengths[v]) for v, factor in form.terms.items() if isinstance(v, E.Var) and v in lengths)
    reach = 1  # so many values in a row, from the loops of smaller steps
    for step, length in steps:
        if not 1 <= step <= reach:
            return None
        reach += step * (length - 1)
    fixed = {atom: factor for atom, factor in form.terms.items() if atom not in lengths}
    if any(uses_any(atom, set(lengths)) for atom in fixed) or any(build.as_int(s.min) for s in inner):
        return None
    first = build.const(form.constant, value.dtype)
    for atom, factor in fixed.items():
        first = build.add(build.mul(atom, build.const(factor, value.dtype)), first)
    return simplify(first), reach


def _nest(realize: BlockRealize, block: Block, buffer: S.Buffer, box: _Box) -> S.Stmt:
    """Loops around the block: over the box along the axes that read it, over all of the others."""
    load = next(e for e in nodes_of(block.body) if isinstance(e, E.BufferLoad) and e.buffer is buffer)
    sides = dict(zip(load.indices, box, strict=True))
    predicate: E.Expr = build.const(True)
    loops: list[tuple[E.Var, E.Expr]] = []
    values: list[E.Expr] = []
    for k, axis in enumerate(block.iter_vars):
        assert isinstance(axis.dom, E.Range), "an axis of a block has a domain"
        var, low, length = E.Var(f"ax{k}", axis.var.dtype), axis.dom.min, axis.dom.extent
        if axis.var in sides:
            low, count = sides[axis.var]
            size = build.as_int(length)
            if build.as_int(low) == 0 and size is not None and count >= size:
                count = size
            else:
                below = build.less(build.add(low, var), length)
                predicate = build.logical_and(predicate, build.logical_and(below, build.add(low, var) >= 0))
            length = build.const(count, length.dtype)
        values.append(simplify(build.add(low, var)))
        loops.append((var, length))
    return serial_loops(loops, replace(realize, iter_values=tuple(values), predicate=simplify(predicate)))
