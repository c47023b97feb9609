"""Buffers of a function's own in another layout: `laid_out(function, buffer, index_map)`, `aligned(buffer, …)`.

    b[i, j] = a[i, j] * 2; c[i, j] = b[i, j] + 1  ->  b[j, i] = a[i, j] * 2; c[i, j] = b[j, i] + 1  (map: j, i)

In: a function, a buffer that its blocks allocate, where each element goes. Out: the function. Invariant: refused
(ScheduleError) unless every element has a place of its own, which is found out by going through all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.base.aliases import AnyFunction
from armillary.base.node import replace
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, nodes_of
from armillary.tir.blocks.block import Block
from armillary.tir.schedule.inline import leaves, with_regions
from armillary.tir.simplify import simplify
from armillary.tir.substitute import map_all, map_stmt

_MOST = 1 << 24  # elements that are gone through
IndexMap = AnyFunction  # sums, products, quotients of the indices that it is called with


def laid_out(func: S.PrimFunc, buffer: S.Buffer, index_map: IndexMap) -> S.PrimFunc:
    """The function with each element of a buffer at `index_map(*indices)`, in dimensions as long as these need."""
    blocks = [s for s in all_statements(func.body) if isinstance(s, Block)]
    message = f"transform_layout: {buffer.name}"
    if not any(buffer in b.alloc_buffers for b in blocks):
        raise ScheduleError(f"{message} is an argument of the function, whose layout the caller knows")
    if any(m.source.buffer is buffer for b in blocks for m in b.match_buffers):
        raise ScheduleError(f"{message} is matched by a part of it")
    if any(i.dtype.lanes > 1 for e in nodes_of(func.body) if isinstance(e, E.BufferLoad) for i in e.indices):
        raise ScheduleError(f"{message} is read by vectors", hint="change the layout before")
    shape = _shape(message, buffer, index_map)
    new = replace(buffer, shape=tuple(build.const(n, buffer.shape[0].dtype) for n in shape), strides=())

    def place(indices: tuple[E.Expr, ...]) -> tuple[E.Expr, ...]:
        return tuple(simplify(build.cast(i, buffer.shape[0].dtype)) for i in index_map(*indices))

    def load(e: E.Expr) -> E.Expr | None:
        return E.BufferLoad(new, place(e.indices)) if isinstance(e, E.BufferLoad) and e.buffer is buffer else None

    def visit(s: S.Stmt) -> S.Stmt:
        result = map_stmt(s, lambda e: e, visit)
        if isinstance(result, S.BufferStore) and result.buffer is buffer:
            return replace(result, buffer=new, indices=place(result.indices))
        if isinstance(result, Block) and buffer in result.alloc_buffers:
            return replace(result, alloc_buffers=tuple(new if b is buffer else b for b in result.alloc_buffers))
        return result

    touching = {b.name_hint for b in leaves(func.body) if buffer in {r.buffer for r in (*b.reads, *b.writes)}}
    return func.with_body(with_regions(map_all(visit(func.body), load), touching))


def _shape(message: str, buffer: S.Buffer, index_map: IndexMap) -> list[int]:
    """The lengths of the new dimensions."""
    sizes = [build.as_int(n) for n in buffer.shape]
    known = [n for n in sizes if n is not None]
    if not known or len(known) < len(sizes) or np.prod(known, dtype=np.float64) > _MOST:
        raise ScheduleError(f"{message} has shape {buffer.shape}, wanted known sizes of at most {_MOST} elements")
    try:
        image = index_map(*np.indices(known, np.int64))
        if not isinstance(image, tuple | list):
            raise ScheduleError(f"{message}: the map gives a {type(image).__name__}, wanted a tuple of indices")
        places = [np.broadcast_to(np.asarray(i), known).reshape(-1) for i in image]
    except (TypeError, ValueError, AttributeError) as error:
        raise ScheduleError(f"{message}: the map takes no arrays of {len(known)} indices: {error}") from None
    if not places or any(i.dtype.kind not in "iu" or i.min() < 0 for i in places):
        raise ScheduleError(f"{message}: the map gives places that are no integers from 0 on", hint="use // and %")
    lengths = [int(i.max()) + 1 for i in places]
    if np.prod(lengths, dtype=np.float64) > 2 * _MOST:
        raise ScheduleError(f"{message}: the map needs {lengths}, more than {2 * _MOST} elements")
    flat: NDArray[np.int64] = np.ravel_multi_index([i.astype(np.int64) for i in places], lengths)
    if np.unique(flat).size < flat.size:
        raise ScheduleError(f"{message}: the map puts {flat.size} elements in {np.unique(flat).size} places")
    return lengths


def aligned(buffer: S.Buffer, axis: int, factor: int, offset: int) -> S.Buffer:
    """The buffer with gaps, so that a step along `axis` is a multiple of `factor` elements, and `offset` more."""
    message = f"storage_align: {buffer.name}"
    sizes = [build.as_int(n) for n in buffer.shape]
    known = [n for n in sizes if n is not None]
    rank = len(sizes)
    if len(known) < rank or not -rank <= axis < rank or factor < 1 or not 0 <= offset < factor:
        wanted = f"wanted known sizes, an axis of {rank}, and 0 <= offset < factor"
        raise ScheduleError(f"{message}: axis {axis}, factor {factor}, offset {offset}: {wanted}")
    steps, step = [0] * rank, 1
    for k in reversed(range(rank)):
        if k == axis % rank:
            unit = steps[k + 1] if k + 1 < rank else 1  # gaps are whole rows of the next axis
            fitting = (n for n in range(step, step + unit * factor, unit) if n % factor == offset)
            step = next(fitting, 0)
            if not step:
                raise ScheduleError(f"{message}: no step along axis {axis} is a multiple of {factor} and {offset} more")
        steps[k] = step
        step *= known[k]
    result: S.Buffer = replace(buffer, strides=tuple(build.const(n, buffer.shape[0].dtype) for n in steps))
    return result
