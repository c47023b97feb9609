"""Blocks that are computed inside a loop of those that read them: for each iteration what that iteration reads.

    for i: b[i] = a[i] * 2; for i: c[i] = b[i] + 1  ->  for i: {b[i] = a[i] * 2; c[i] = b[i] + 1}

In: a function, the statements from its body to a BlockRealize, a loop. Out: the function with the block's loops inside
the loop, before the first reader. Invariant: refused (ScheduleError) unless all that read the block's buffer stand in
the loop, the block writes each element from nothing but its inputs, and these do not change on the way. What several
iterations read is computed anew in each; the passes over blocks make the buffer as small as an iteration's part.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.node import replace
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.blocks.regions import Span, read_spans
from armillary.tir.schedule.cache import writes_all
from armillary.tir.schedule.inline import alone, leaves, serial_loops, touched, without
from armillary.tir.simplify import simplify


def computed_at(func: S.PrimFunc, path: Sequence[S.Stmt], loop: S.For) -> S.PrimFunc:
    """The function with the last block of the path computed inside `loop`."""
    realize, block = path[-2:]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    store = block.body
    reason = _obstacle(func, path, block, loop)
    if reason is not None:
        raise ScheduleError(f"compute_at: block {block.name_hint!r} {reason}")
    assert isinstance(store, S.BufferStore), "checked above"
    spans = dict(zip(store.indices, read_spans(loop.body, store.buffer), strict=True))
    nest = _nest(block, realize, spans, store.buffer)
    old = next(s for s in path if alone(s, block))
    parts = S.stmt_list(loop.body)
    first = next(k for k, part in enumerate(parts) if any(store.buffer in touched(b)[0] for b in leaves(part)))
    inside = replace(loop, body=S.seq(*parts[:first], nest, *parts[first:]))
    return func.with_body(without(func.body, old, None, old=loop, new=inside))


def _nest(block: Block, realize: BlockRealize, spans: dict[E.Expr, Span], buffer: S.Buffer) -> S.Stmt:
    """New loops around the block: over what is read along its data axes, over all of the others."""
    loops: list[tuple[E.Var, E.Expr]] = []
    predicate: E.Expr = build.const(True)
    ranks = sorted(range(len(block.iter_vars)), key=lambda k: block.iter_vars[k].kind != "data")
    placed: dict[int, E.Expr] = {}
    for k in ranks:
        axis = block.iter_vars[k]
        assert isinstance(axis.dom, E.Range), "an axis of a block has a domain"
        var = E.Var(f"ax{k}", axis.var.dtype)
        low, length = axis.dom.min, axis.dom.extent
        if axis.var in spans:
            start, end = spans[axis.var]
            part = build.as_int(simplify(build.add(build.sub(end, start), 1)))
            size = build.as_int(length)
            if part is not None and size is not None and part < size:
                low, length = start, build.const(part, length.dtype)
                for condition in (
                    build.less(build.add(low, var), build.const(size, var.dtype)),
                    build.add(low, var) >= 0,
                ):
                    predicate = build.logical_and(predicate, simplify(condition))
        placed[k] = simplify(build.add(low, var))
        loops.append((var, length))
    values = [placed[k] for k in range(len(block.iter_vars))]
    return serial_loops(loops, replace(realize, iter_values=tuple(values), predicate=predicate))


def _obstacle(func: S.PrimFunc, path: Sequence[S.Stmt], block: Block, loop: S.For) -> str | None:
    """Why a block cannot be computed inside a loop; None where it can."""
    written = touched(block)[1]
    buffer = next(iter(written)) if len(written) == 1 else None
    if buffer is None or not writes_all(block, buffer) or block.match_buffers:
        return "is not one store at its own data axes, one for each dimension of the buffer and as long as it is"
    own = [b for s in path if isinstance(s, Block) for b in s.alloc_buffers]
    if buffer not in own:
        return f"writes {buffer.name}, an argument of the function"
    if block.init is None and any(a.kind != "data" for a in block.iter_vars):
        return "adds to what was there before (its first values are set elsewhere)"
    if loop.kind is S.LoopKind.VECTORIZED:
        return f"cannot stand in loop {loop.var.name}, which is vectorized"
    if block in leaves(loop):
        return f"stands in loop {loop.var.name} already"
    blocks, inside = leaves(func.body), leaves(loop.body)
    readers = [b for b in blocks if b is not block and buffer in touched(b)[0]]
    if not readers or any(b not in inside for b in readers):
        outside = next((b.name_hint for b in readers if b not in inside), None)
        return f"is read by {outside!r}, outside of loop {loop.var.name}" if outside else "is read by no block"
    if any(buffer in touched(b)[1] for b in blocks if b is not block):
        return f"is not the only one that writes {buffer.name}"
    if blocks.index(block) > blocks.index(inside[0]):
        return f"stands after loop {loop.var.name}"
    later = {w for b in blocks[blocks.index(block) + 1 :] for w in touched(b)[1]}
    changed = touched(block)[0] - {buffer} & later
    return f"reads {next(iter(changed)).name}, which is written after it" if changed else None
