"""Blocks that are computed where what they read is written: `inlined_into_writer(function, path)`.

    b[v] = a[v] * 2; c[v] = b[v] + 1  ->  c[v] = a[v] * 2 + 1        (in the loops of the first block)

In: a function and the statements from its body to the BlockRealize of the reader. Out: the function without the reader
and without the buffer that it read. Invariant: refused (ScheduleError) unless the reader takes each element of a buffer
of the function's own once, at its own axes, and the writer is one store without a reduction.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.errors import ScheduleError
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import is_pure, nodes_of
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.schedule.inline import alone, axes_of, covers, leaves, touched, with_regions, without
from armillary.tir.substitute import map_all, substitute


def inlined_into_writer(func: S.PrimFunc, path: Sequence[S.Stmt]) -> S.PrimFunc:
    """The function with the last block of the path computed by the block that writes what it reads."""
    realize, block = path[-2:]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    own = {b for s in path if isinstance(s, Block) for b in s.alloc_buffers}
    for buffer in sorted(touched(block)[0] & own, key=lambda b: b.name):
        writers = [b for b in leaves(func.body) if buffer in touched(b)[1]]
        reason = _obstacle(func, path, buffer, writers)
        if reason is None:
            return _joined(func, path, buffer, writers[0])
        raise ScheduleError(f"reverse_compute_inline: block {block.name_hint!r} {reason}")
    raise ScheduleError(f"reverse_compute_inline: block {block.name_hint!r} reads no buffer of the function's own")


def _joined(func: S.PrimFunc, path: Sequence[S.Stmt], buffer: S.Buffer, writer: Block) -> S.PrimFunc:
    block = path[-1]
    assert isinstance(block, Block) and isinstance(writer.body, S.BufferStore), "checked by the caller"
    first = writer.body

    def value(item: E.Expr) -> E.Expr | None:
        return first.value if isinstance(item, E.BufferLoad) and item.buffer is buffer else None

    places = dict(zip(axes_of(block), first.indices, strict=True))
    store = substitute(map_all(block.body, value), places)

    nest = next(s for s in path if alone(s, block))
    rest = without(func.body, nest, buffer, old=first, new=store)
    return func.with_body(with_regions(rest, {writer.name_hint}))


def _obstacle(func: S.PrimFunc, path: Sequence[S.Stmt], buffer: S.Buffer, writers: list[Block]) -> str | None:
    """Why a reader cannot be computed by the writer; None where it can."""
    realize, block = path[-2:]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    store, blocks = block.body, leaves(func.body)
    if not isinstance(store, S.BufferStore) or block.init is not None or block.match_buffers:
        return "is not one store of one expression"
    loads = [e for e in nodes_of(store) if isinstance(e, E.BufferLoad) and e.buffer is buffer]
    if any(list(load.indices) != axes_of(block) for load in loads) or not is_pure(store.value):
        return f"does not read {buffer.name} at its own axes, in their order"
    if not covers(path, realize, block, buffer):
        return f"does not read each element of {buffer.name} once (inline it before its loops are split)"
    if len(writers) != 1 or any(buffer in touched(b)[0] for b in blocks if b is not block):
        return f"is not the only one that reads {buffer.name}, or it has several writers"
    writer = writers[0]
    is_plain = isinstance(writer.body, S.BufferStore) and writer.init is None
    if not is_plain or any(a.kind != "data" for a in writer.iter_vars):
        return f"reads what block {writer.name_hint!r} reduces, or stores in several steps"
    between = blocks[blocks.index(writer) : blocks.index(block)]
    reads, writes = touched(block)
    busy = {b for other in between for b in touched(other)[1]}, {b for other in between for b in touched(other)[0]}
    if reads & writes:
        return "reads what it writes"
    if (reads - {buffer}) & busy[0] or writes & (busy[0] | busy[1]):
        return "uses what is written, or writes what is used, from the writer on"
    return None
