"""Statements for operators that are loops rather than formulas (scatter, scans, sorting), used with te.extern.

In: extents, buffers, Python functions over loop variables. Out: tir statements over whole buffers. Invariant: rows are
independent, so the outermost loop may be parallel; scratch memory is allocated inside it, one copy per thread.
Nodes: tir/stmt.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from armillary.base.dtype import DType
from armillary.base.extent import Known, most
from armillary.ops._convert import convert
from armillary.ops._deferred import E, S, T

if TYPE_CHECKING:
    from armillary.tir.expr import Expr, Var
    from armillary.tir.stmt import Buffer, LoopKind, Stmt

Index: TypeAlias = "E.Index"
LANES = 16  # elements of a vector
_MOST = (1 << 31) - 1  # iterations that int32 counts


def loop(name: str, extent: Index, body: Callable[[Var], Stmt], kind: LoopKind | None = None) -> Stmt:
    """for name in [0, extent): body. The loop is serial unless `kind` says otherwise."""
    dtype = DType("int64" if isinstance(extent, int) and extent > _MOST else "int32")
    variable = E.Var(name, dtype)
    count = T.const(extent, dtype) if isinstance(extent, int) else T.convert(extent)
    return S.For(variable, T.const(0, dtype), count, kind or S.LoopKind.SERIAL, body(variable))


def rows(shape: Sequence[Known], body: Callable[[list[Expr]], Stmt]) -> Stmt:
    """One parallel loop over all positions of `shape`."""
    count: Known = math.prod(shape)
    if count == 1:
        return body([T.const(0)] * len(shape))

    return loop("row", count, lambda flat: body(_unravelled(flat, shape)), S.LoopKind.PARALLEL)


def _unravelled(flat: Expr, shape: Sequence[Known]) -> list[Expr]:
    index: list[Expr] = []
    rest = flat
    for axis, size in reversed(list(enumerate(shape))):
        index.insert(0, rest if axis == 0 else T.floormod(rest, most(size, 1)))
        rest = T.floordiv(rest, most(size, 1))
    return index


def nest(shape: Sequence[Known], body: Callable[[list[Expr]], Stmt]) -> Stmt:
    """Serial loops over `shape`, last axis innermost."""

    def level(index: list[Expr]) -> Stmt:
        if len(index) == len(shape):
            return body(index)
        return loop(f"i{len(index)}", shape[len(index)], lambda v: level([*index, v]))

    return level([])


def nest_apart(shape: Sequence[Known], body: Callable[[list[Expr]], Stmt]) -> Stmt:
    """`nest` where elements along the last axis do not depend on one another: that by vectors."""
    if not shape:
        return body([])
    *outer, last = shape
    if not isinstance(last, int):
        return nest(shape, body)
    whole, rest = divmod(last, LANES)

    def line(index: list[Expr]) -> Stmt:
        def vector(v: Var) -> Stmt:
            return loop("n", LANES, lambda n: body([*index, T.add(T.mul(v, LANES), n)]), S.LoopKind.VECTORIZED)

        def shorter(begin: int, lanes: int) -> Stmt:
            return loop("n", lanes, lambda n: body([*index, T.add(n, begin)]), S.LoopKind.VECTORIZED)

        parts = [loop("v", whole, vector)] if whole else []
        parts += [shorter(last - rest % (2 * n), n) for n in (8, 4, 2, 1) if rest & n]
        return S.seq(*parts)

    return nest(outer, line)


def run_apart(shape: Sequence[Known], body: Callable[[list[Expr]], Stmt]) -> Stmt:
    """The same where no elements depend on one another: all axes as one run."""
    return nest_apart((math.prod(shape),), lambda flat: body(_unravelled(flat[0], shape)))


def load(buffer: Buffer, *index: Index) -> Expr:
    """An element of a tensor, at indices."""
    return E.BufferLoad(buffer, tuple(T.convert(i) for i in index))


def store(buffer: Buffer, value: E.ExprLike, *index: Index) -> Stmt:
    """Write an element."""
    converted = convert(value, buffer.dtype) if isinstance(value, E.Expr) else T.cast(value, buffer.dtype)
    return S.BufferStore(buffer, converted, tuple(T.convert(i) for i in index))


def scratch(name: str, size: Known, dtype: str, scope: str = "global") -> Buffer:
    """Memory for one row."""
    return S.Buffer(name, (T.convert(most(size, 1)),), DType(dtype), scope)
