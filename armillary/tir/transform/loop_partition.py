"""`loop-partition`: split loops so that their main part needs no condition.

In: loops whose bodies test `likely(…)` conditions (tails of splits) or padding conditions. Out: up to three
loops over the
same range: before, main (every such condition is true there) and after. Invariant: the loops cover the range in
order. Unrolled loops are left alone,
parallel ones get two versions of their body; a loop is split for a padding condition only when the main part is at
least half of it and MIN_EXTENT long. Conditions decided by the new ranges are folded at once. Configuration:
`tir.LoopPartition` {partition_const_loop}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armillary.node import post_order, replace
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import free_vars
from armillary.tir.bounds import INFINITE, Interval, add_intervals, scale_interval
from armillary.tir.linear import Linear
from armillary.tir.rules import INDEX_TYPES, TRUE
from armillary.tir.simplify import Simplifier
from armillary.tir.substitute import fresh_copy, map_all, map_stmt
from armillary.tir.transform.common import is_nothing, prim_pass, sequence, with_body
from armillary.tir.transform.simplify import StatementSimplifier
from armillary.transform import PassContext, register_config_option

LOOP_PARTITION = register_config_option(
    "tir.LoopPartition", dict, {"partition_const_loop": True}, "False: loops of constant extent keep their conditions"
)
MIN_EXTENT = 8
_SPLITTABLE = frozenset({S.LoopKind.SERIAL, S.LoopKind.VECTORIZED})


def loop_partition(func: S.PrimFunc) -> S.PrimFunc:
    """Split loops at their likely and padding conditions.

        for i in range(20) { if likely(i < 16) { A[i] = 0.0 } }  ->  for i in range(16) { A[i] = 0.0 }
    """
    if not any(True for n in post_order(func.body) if _condition_of(n) is not None):
        return func
    return with_body(func, _Partitioner(func).stmt(func.body, False))


def _condition_of(item: Any) -> tuple[E.Expr, bool] | None:
    """The condition a node tests, and whether it is marked likely."""
    if isinstance(item, S.IfThenElse):
        condition, mark = _strip(item.condition)
        return condition, mark
    if isinstance(item, E.Call) and item.name == "likely":
        return item.args[0], True
    if isinstance(item, E.Call) and item.name == "if_then_else":
        return _strip(item.args[0])
    return (item.condition, False) if isinstance(item, E.Select) else None


def _strip(item: E.Expr) -> tuple[E.Expr, bool]:
    return (item.args[0], True) if isinstance(item, E.Call) and item.name == "likely" else (item, False)


@dataclass
class _Partitioner:
    """Visits loops from the outside in; `ranges` holds the loops passed so far."""

    func: S.PrimFunc

    def __post_init__(self) -> None:
        self.ranges: dict[E.Var, Interval] = {}
        self.dims = frozenset(free_vars(self.func)) | {p for p in self.func.params if isinstance(p, E.Var)}
        self.splits_constant = PassContext.current().get(LOOP_PARTITION)["partition_const_loop"]

    def stmt(self, item: S.Stmt, only_likely: bool) -> S.Stmt:
        if not isinstance(item, S.For):
            return map_stmt(item, lambda e: e, lambda s: self.stmt(s, only_likely))
        if item.kind is S.LoopKind.PARALLEL:
            return self.versions(item, only_likely)
        parts = self.split(item, only_likely) if item.kind in _SPLITTABLE else None
        if parts is None:
            return self.inside(item, only_likely)
        done = [self.piece(part, only_likely or not is_main) for part, is_main in parts]
        return sequence(done)

    def versions(self, item: S.For, only_likely: bool) -> S.Stmt:
        """A parallel loop stays one loop: its body becomes a test between the main version and the careful one."""
        decided: set[int] = set()
        found = self.main_range(item, True, decided)
        if found is None or build.as_int(found[0]) is None or build.as_int(found[1]) is None:
            return self.inside(item, only_likely)
        test = build.logical_and(build.greater_equal(item.var, found[0]), build.less(item.var, found[1]))
        main = map_all(item.body, lambda e: TRUE if id(e) in decided else None)
        return self.piece(replace(item, body=S.IfThenElse(test, main, fresh_copy(item.body))), only_likely)

    def inside(self, item: S.For, only_likely: bool) -> S.Stmt:
        self.ranges[item.var] = _loop_range(item)
        body = self.stmt(item.body, only_likely)
        result: S.Stmt = replace(item, body=body)
        return result

    def piece(self, item: S.For, only_likely: bool) -> S.Stmt:
        """One of the new loops: fold what its range decides, then go on inside."""
        walker = StatementSimplifier()
        for var, known in self.ranges.items():
            walker.simplifier.bind(var, known)
        simple = walker.stmt(item)
        if is_nothing(simple):
            return simple
        if isinstance(simple, S.For) and simple.var is item.var:
            return self.inside(simple, only_likely)
        return self.stmt(simple, only_likely)  # the loop had one iteration

    def split(self, item: S.For, only_likely: bool) -> list[tuple[S.For, bool]] | None:
        """The loops that replace `item`, each with whether it is the main one; None to leave it."""
        decided: set[int] = set()
        found = self.main_range(item, only_likely, decided)
        if found is None:
            return None
        low, high, stop = found
        main_body = map_all(item.body, lambda e: TRUE if id(e) in decided else None)
        parts: list[tuple[S.For, bool]] = []
        start = item.min
        for end, is_main in ((low, False), (high, True), (stop, False)):
            extent = Simplifier()(build.sub(end, start))
            count = build.as_int(extent)
            if count is None or count > 0:
                body = main_body if is_main else item.body
                body = fresh_copy(body) if parts else body
                parts.append((replace(item, min=start, extent=extent, body=body), is_main))
            start = end
        return parts if len(parts) > 1 else None

    def main_range(
        self, item: S.For, only_likely: bool, decided: set[int]
    ) -> tuple[E.Expr, E.Expr, E.Expr] | None:
        """First and end of the part where the conditions hold, end of the loop; `decided` gets those conditions."""
        ranges = {**self.ranges, **_inner_ranges(item.body)}
        simplifier = Simplifier({v: r for v, r in ranges.items() if v is not item.var})
        lows, highs = [item.min], [build.add(item.min, item.extent)]
        is_likely = False
        for node in post_order(item.body):
            tested = _condition_of(node)
            if tested is None or (only_likely and not tested[1]):
                continue
            for comparison in _conjuncts(tested[0]):
                bound = self.solve(comparison, item, simplifier) if id(comparison) not in decided else None
                if bound is not None:
                    decided.add(id(comparison))
                    (lows if bound[0] else highs).append(bound[1])
                    is_likely = is_likely or tested[1]
        if len(lows) + len(highs) == 2:
            return None
        return self.choose(item, lows, highs, is_likely)

    def choose(
        self, item: S.For, lows: list[E.Expr], highs: list[E.Expr], is_likely: bool
    ) -> tuple[E.Expr, E.Expr, E.Expr] | None:
        stop = highs[0]
        if build.as_int(item.extent) is not None and not self.splits_constant:
            return None
        constants = [build.as_int(v) for v in (*lows, *highs)]
        if None in constants:
            return self.symbolic(lows, highs) if is_likely and item.kind is S.LoopKind.SERIAL else None
        low = max(v for v in constants[: len(lows)] if v is not None)
        high = min(v for v in constants[len(lows) :] if v is not None)
        extent, main = build.as_int(item.extent) or 0, high - low
        if main <= 0 or main >= extent or (not is_likely and (main < MIN_EXTENT or main * 2 < extent)):
            return None
        dtype = item.var.dtype
        return build.const(low, dtype), build.const(high, dtype), stop

    def symbolic(self, lows: list[E.Expr], highs: list[E.Expr]) -> tuple[E.Expr, E.Expr, E.Expr]:
        """Ends that depend on symbolic dimensions, kept inside the loop."""
        start, stop = lows[0], highs[0]
        low, high = start, stop
        for value in lows[1:]:
            low = build.minimum(build.maximum(low, value), stop)
        for value in highs[1:]:
            high = build.maximum(build.minimum(high, value), low)
        return low, high, stop

    def solve(self, item: Any, loop: S.For, s: Simplifier) -> tuple[bool, E.Expr] | None:
        """`v >= bound` (True, bound) or `v < bound` (False, bound) that makes a comparison hold; None: cannot say."""
        if type(item) not in (E.LT, E.LE, E.GT, E.GE) or item.a.dtype not in INDEX_TYPES:
            return None
        form = s.linear(item.a).minus(s.linear(item.b))
        if type(item) in (E.GT, E.GE):
            form = Linear({a: -k for a, k in form.terms.items()}, -form.constant)
        if type(item) in (E.LE, E.GE):
            form.constant -= 1
        factor = form.terms.pop(loop.var, 0)  # now: factor * v + form < 0 is wanted
        if factor == 0 or any(loop.var in free_vars(atom) for atom in form.terms):
            return None
        known = self.worst(form, s)
        if known is None:
            return None
        dtype = loop.var.dtype
        if known.terms:
            rest = build.cast(known.expr(item.a.dtype), dtype)
        else:
            rest = build.const(known.constant, dtype)
        if factor > 0:  # v < ceil(-rest / factor)
            return False, build.floordiv(build.sub(factor - 1, rest), build.const(factor, dtype))
        return True, build.add(build.floordiv(rest, build.const(-factor, dtype)), 1)

    def worst(self, form: Linear, s: Simplifier) -> Linear | None:
        """The largest value of the sum over loop variables; function dimensions stay symbolic."""
        kept: dict[E.Expr, int] = {}
        total: Interval = (form.constant, form.constant)
        for atom, k in form.terms.items():
            if self.dims.issuperset(free_vars(atom)):
                kept[atom] = k
            else:
                total = add_intervals(total, scale_interval(s.bound(atom), k))
        return Linear(kept, total[1]) if total[1] < INFINITE else None


def _conjuncts(item: E.Expr) -> list[E.Expr]:
    if isinstance(item, E.And):
        return [*_conjuncts(item.a), *_conjuncts(item.b)]
    inner, is_marked = _strip(item)
    return _conjuncts(inner) if is_marked else [item]


def _loop_range(item: S.For) -> Interval:
    low, extent = build.as_int(item.min), build.as_int(item.extent)
    if low is None:
        return (-INFINITE, INFINITE)
    return low, INFINITE if extent is None else low + max(extent, 1) - 1


def _inner_ranges(body: S.Stmt) -> dict[E.Var, Interval]:
    found: dict[E.Var, Interval] = {}
    for item in post_order(body):
        if isinstance(item, S.For):
            low, high = _loop_range(item)
            known = found.get(item.var, (low, high))
            found[item.var] = (min(low, known[0]), max(high, known[1]))
    return found


LoopPartition = prim_pass("loop-partition", "tir.LoopPartition")(loop_partition)
