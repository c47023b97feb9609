"""Numbers that describe the loops of a configuration, for models that learn from trials.

In: a PrimFunc as a schedule gives it (N-dimensional buffers). Out: vectors of one length for all functions. `itervar`:
for each loop its extent, depth, work and kind, and how it walks through each buffer. `curve`: for each buffer how many
elements the innermost n iterations touch, sampled over n. Invariant: the same loops give the same numbers; loops and
buffers beyond the limits are left out, missing ones are zero. Readers: tuner/xgb_tuner.py. Scripts read feature.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import expressions_of, nodes_of, statements_inside, uses_var

Numbers = Array
LOOPS, BUFFERS, SAMPLES = 24, 5, 20
_KINDS = tuple(S.LoopKind)
_ARITHMETIC = (E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max)


@record(eq=False)
class Access:
    """A read or write of a buffer, and the loops around it, the outermost first; `value` is what a write stores."""

    buffer: S.Buffer
    indices: tuple[E.Expr, ...]
    loops: tuple[S.For, ...]
    value: E.Expr | None = None


def itervar_feature(function: S.PrimFunc) -> Numbers:
    """LOOPS rows of numbers, one after another."""
    loops, accesses = list(_loops(function.body)), list(accesses_in(function.body))
    names = list(dict.fromkeys(a.buffer.name for a in accesses))[:BUFFERS]
    rows = [_row(loop, outer, accesses, names) for loop, outer in loops[:LOOPS]]
    width = 4 + len(_KINDS) + 3 * BUFFERS
    features = np.zeros((LOOPS, width), dtype=np.float32)
    if rows:
        features[: len(rows)] = rows
    return features.reshape(-1)


def curve_feature(function: S.PrimFunc) -> Numbers:
    """BUFFERS curves of SAMPLES points: logarithms of elements touched by the innermost 1, 2, 4… iterations."""
    accesses = list(accesses_in(function.body))
    names = list(dict.fromkeys(a.buffer.name for a in accesses))[:BUFFERS]
    samples = np.zeros((BUFFERS, SAMPLES), dtype=np.float32)
    for row, name in enumerate(names):
        for access in (a for a in accesses if a.buffer.name == name):
            samples[row] = np.maximum(samples[row], _curve(access))
    return samples.reshape(-1)


def _curve(access: Access) -> list[float]:
    done, touched, points = 1.0, 1.0, [(0.0, 0.0)]
    for loop in reversed(access.loops):
        done *= _extent(loop)
        touched *= _extent(loop) if _uses(access, loop) else 1
        points.append((math.log2(done), math.log2(touched)))
    x, y = zip(*points, strict=True)
    return [float(v) for v in np.interp(np.arange(SAMPLES), x, y)]


def _row(loop: S.For, outer: tuple[S.For, ...], accesses: list[Access], names: list[str]) -> list[float]:
    inside = [a for a in accesses if any(at is loop for at in a.loops)]
    deepest = max((math.prod(map(_extent, _below(a, loop))) for a in inside), default=1.0)
    work = sum(isinstance(n, _ARITHMETIC) for n in nodes_of(loop.body))
    numbers = [math.log2(_extent(loop)), float(len(outer)), math.log2(max(1.0, deepest)), math.log2(1 + work)]
    numbers += [float(loop.kind is kind) for kind in _KINDS]
    for name in names:
        mine = [a for a in inside if a.buffer.name == name]
        place = max((_place(a, loop) for a in mine), default=0.0)
        touched = max((math.prod(_extent(at) for at in _below(a, loop) if _uses(a, at)) for a in mine), default=1.0)
        numbers += [place, math.log2(touched), float(len(mine))]
    return numbers + [0.0] * (3 * (BUFFERS - len(names)))


def _below(access: Access, loop: S.For) -> tuple[S.For, ...]:
    """The loop, and those of an access inside of it."""
    at = next(i for i, one in enumerate(access.loops) if one is loop)
    return access.loops[at:]


def _place(access: Access, loop: S.For) -> float:
    """0: the access does not move with the loop; 2: along its last dimension; 1: along another one."""
    if not _uses(access, loop):
        return 0.0
    return 2.0 if access.indices and uses_var(access.indices[-1], loop.var) else 1.0


def _uses(access: Access, loop: S.For) -> bool:
    return any(uses_var(index, loop.var) for index in access.indices)


def _extent(loop: S.For) -> float:
    return float(max(1, loop.extent.value)) if isinstance(loop.extent, E.IntImm) else 1.0


def _loops(root: S.Stmt, outer: tuple[S.For, ...] = ()) -> Iterator[tuple[S.For, tuple[S.For, ...]]]:
    if isinstance(root, S.For):
        yield root, outer
        outer = (*outer, root)
    for item in statements_inside(root):
        yield from _loops(item, outer)


def accesses_in(root: S.Stmt, loops: tuple[S.For, ...] = ()) -> Iterator[Access]:
    """Every store and load, a store before what its value loads."""
    if isinstance(root, S.BufferStore):
        yield Access(root.buffer, root.indices, loops, root.value)
    inner = (*loops, root) if isinstance(root, S.For) else loops
    for expression in expressions_of(root):
        for item in nodes_of(expression):
            if isinstance(item, E.BufferLoad):
                yield Access(item.buffer, item.indices, loops)
    for item in statements_inside(root):
        yield from accesses_in(item, inner)
