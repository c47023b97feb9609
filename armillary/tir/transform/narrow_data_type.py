"""`narrow-data-type`: index arithmetic in int64 becomes int32 where every value provably fits.

In: loops and indices of int64. Out: int32 ones; the bounds of the loops prove it. Invariant: an index keeps
its value; an
expression that may exceed 31 bits, and everything stored or loaded, stays as it is.
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.base.node import post_order, reachable, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.bounds import Interval, interval_of
from armillary.tir.substitute import ExprMapper, binary, map_stmt
from armillary.tir.transform.loop_pass import prim_pass, with_body

_INT64 = DType("int64")
_LEAVES = (E.Var, E.IntImm)
_NODES = (E.Add, E.Sub, E.Mul, E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod, E.Min, E.Max)


def narrow_data_type(func: S.PrimFunc, target_bits: int = 32) -> S.PrimFunc:
    """Use narrow indices.

    for i: int64 in range(4i64) { A[i] = 0.0 }  ->  for i in range(4) { A[i] = 0.0 }
    """
    if not any(isinstance(n, S.For | E.Expr) and _dtype(n) is _INT64 for n in reachable(func.body)):
        return func
    return with_body(func, _Narrower(DType(f"int{target_bits}")).stmt(func.body))


def _dtype(item: object) -> DType:
    dtype: DType = item.var.dtype if isinstance(item, S.For) else item.dtype  # type: ignore[attr-defined]
    return dtype


class _Narrower:
    def __init__(self, to: DType) -> None:
        self.to = to
        self.ranges: dict[E.Var, Interval] = {}
        self.renamed: dict[E.Var, E.Var] = {}
        self.mapper = ExprMapper(self.rule)

    def fits(self, item: E.Expr) -> bool:
        """Whether the value and every step on the way to it fit the narrow type."""
        for part in post_order(item):
            if isinstance(part, E.Expr) and part.dtype is _INT64:
                if not isinstance(part, (*_LEAVES, *_NODES, E.Cast)):
                    return False
                low, high = interval_of(part, self.ranges)
                if low < self.to.min_value or high > self.to.max_value:
                    return False
        return True

    def narrow(self, item: E.Expr, memo: dict[E.Expr, E.Expr] | None = None) -> E.Expr:
        """The same value in the narrow type; `fits` holds."""
        if isinstance(item, E.Var):
            return self.renamed.get(item, build.cast(item, self.to))
        if isinstance(item, _NODES) and item.dtype is _INT64:
            memo = {} if memo is None else memo
            if item not in memo:
                memo[item] = binary(type(item), self.narrow(item.a, memo), self.narrow(item.b, memo))
            return memo[item]
        if isinstance(item, E.Cast) and item.value.dtype is self.to:
            return self.mapper(item.value)
        return build.cast(self.mapper(item), self.to)

    def index(self, item: E.Expr) -> E.Expr:
        return self.narrow(item) if item.dtype is _INT64 and self.fits(item) else self.mapper(item)

    def rule(self, item: E.Expr) -> E.Expr | None:
        """Inside values: loads get narrow indices, comparisons narrow sides, renamed variables a cast."""
        if isinstance(item, E.BufferLoad):
            indices = tuple(self.index_again(i) for i in item.indices)
            return replace(item, indices=indices) if indices != item.indices else None
        if isinstance(item, E.Var) and item in self.renamed:
            return E.Cast(_INT64, self.renamed[item])
        return None

    def index_again(self, item: E.Expr) -> E.Expr:
        """Narrow an index whose variables were already replaced by casts of narrow ones."""
        return self.narrow(item) if item.dtype is _INT64 and self.fits(item) else item

    def stmt(self, item: S.Stmt) -> S.Stmt:
        if isinstance(item, S.For):
            return self.loop(item)
        if isinstance(item, S.BufferStore):
            indices = tuple(self.index(i) for i in item.indices)
            return S.BufferStore(item.buffer, self.mapper(item.value), indices)
        return map_stmt(item, self.mapper, self.stmt)

    def loop(self, item: S.For) -> S.Stmt:
        low = interval_of(item.min, self.ranges)
        extent = interval_of(item.extent, self.ranges)
        high = low[1] + max(extent[1], 1)
        is_narrow = item.var.dtype is _INT64 and low[0] >= self.to.min_value and high <= self.to.max_value
        first, count = self.mapper(item.min), self.mapper(item.extent)
        self.ranges[item.var] = (low[0], max(low[0], high - 1))
        if not is_narrow:
            return replace(item, min=first, extent=count, body=self.stmt(item.body))
        var = self.renamed[item.var] = E.Var(item.var.name, self.to)
        self.ranges[var] = self.ranges[item.var]
        self.mapper.forget()
        body = self.stmt(item.body)
        return replace(item, var=var, min=build.cast(first, self.to), extent=build.cast(count, self.to), body=body)


NarrowDataType = prim_pass("narrow-data-type", "tir.NarrowDataType")(narrow_data_type)
