"""`loop-partition`: split loops so that their main part needs no condition.

In: loops whose bodies test `likely(…)` conditions (tails of splits) or padding conditions. Out: up to three loops over
the same range: before, main (every such condition is true there) and after. Invariant: the loops cover the range in
order. Unrolled loops are left alone unless there is a loop inside: the taps of a convolution. Parallel ones get
versions of their body: a main one and careful ones, told apart by the loop's variable or, where it was fused from
several, by terms of it such as `i // 7 % 3`. A loop is split for a padding condition only when the main part is at
least half of it and MIN_EXTENT long. Conditions decided by the new ranges are folded at once. Configuration:
`tir.LoopPartition` {partition_const_loop}; without it our own kernels' constant loops are split (`constant`), scripts'
are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from armillary.base.node import children, post_order, reachable, replace, structural_equal
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, free_vars
from armillary.tir.bounds import INFINITE, Interval, add_intervals, scale_interval
from armillary.tir.linear import Linear
from armillary.tir.rules import FALSE, INDEX_TYPES, TRUE
from armillary.tir.simplify import Simplifier
from armillary.tir.substitute import fresh_copy, map_all, map_stmt, substitute
from armillary.tir.transform.loop_pass import is_nothing, prim_pass, sequence, with_body
from armillary.tir.transform.simplify import StatementSimplifier
from armillary.transform import PassContext, register_config_option

LOOP_PARTITION = register_config_option(
    "tir.LoopPartition", dict, {"partition_const_loop": False}, "True: loops of constant extent lose their conditions"
)
MIN_EXTENT = 8
MAX_VERSIONS = 12  # of the body of a parallel loop, beside the main one
MAX_SPELLED = 1024  # statements of all of them: else those of a tile that is full, and one that tests
MAX_RESTS = 16  # iterations of a tile of unknown count: it has a version for each
_SPLITTABLE = frozenset({S.LoopKind.SERIAL, S.LoopKind.VECTORIZED})


def loop_partition(func: S.PrimFunc, *, constant: bool = False) -> S.PrimFunc:
    """Split loops at their likely and padding conditions; those of constant extent as configured, else as `constant`.

    for i in range(20) { if likely(i < 16) { A[i] = 0.0 } }  ->  for i in range(16) { A[i] = 0.0 }
    """
    if not any(True for n in reachable(func.body) if _condition_of(n) is not None):
        return func
    return with_body(func, _Partitioner(func, constant).stmt(func.body, False))


def _is_around_a_loop(item: S.For) -> bool:
    return item.kind is S.LoopKind.UNROLLED and any(
        isinstance(n, S.For) and n.kind is S.LoopKind.SERIAL for n in all_statements(item.body)
    )


def _cuts_vectors(item: S.For) -> bool:
    """Whether iterations of an unrolled loop differ in where a vector inside it is cut: else all are cut alike."""
    if item.kind is not S.LoopKind.UNROLLED or build.as_int(item.extent) is None:
        return False
    lanes = {n.var for n in all_statements(item.body) if isinstance(n, S.For) and n.kind is S.LoopKind.VECTORIZED}
    if not lanes:
        return False
    tests = (tested[0] for n in post_order(item.body) if (tested := _condition_of(n)) is not None and tested[1])
    reads = (set(free_vars(c)) for test in tests for c in _conjuncts(test))
    return any(item.var in variables and lanes & variables for variables in reads)


def _iterations(item: S.For) -> list[S.For]:
    """A loop for each iteration of a loop of constant extent."""
    count, one = build.as_int(item.extent) or 0, build.const(1, item.var.dtype)
    steps = [build.add(item.min, build.const(k, item.var.dtype)) for k in range(count)]
    return [
        replace(item, min=at, extent=one, body=fresh_copy(item.body) if k else item.body) for k, at in enumerate(steps)
    ]


def _condition_of(item: object) -> tuple[E.Expr, bool] | None:
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
    splits_constant: bool

    def __post_init__(self) -> None:
        self.ranges: dict[E.Var, Interval] = {}
        self.dims = frozenset(free_vars(self.func)) | {p for p in self.func.params if isinstance(p, E.Var)}
        stated = PassContext.current().config.get(LOOP_PARTITION.name, {})
        self.splits_constant = stated.get("partition_const_loop", self.splits_constant)

    def stmt(self, item: S.Stmt, only_likely: bool) -> S.Stmt:
        if not isinstance(item, S.For):
            return map_stmt(item, lambda e: e, lambda s: self.stmt(s, only_likely))
        if item.kind is S.LoopKind.PARALLEL:
            return self.versions(item, only_likely)
        if _cuts_vectors(item):
            return sequence([self.piece(one, only_likely) for one in _iterations(item)])
        parts = self.split(item, only_likely) if item.kind in _SPLITTABLE or _is_around_a_loop(item) else None
        if parts is None:
            return self.inside(item, only_likely)
        return sequence([self.part(part, only_likely, is_main) for part, is_main in parts])

    def part(self, item: S.For, only_likely: bool, is_main: bool) -> S.Stmt:
        """One of the loops that replace one; of a symbolic count, a careful one has versions of its last iterations."""
        if is_main or build.as_int(item.extent) is not None:
            return self.piece(item, only_likely or not is_main)
        simplifier = Simplifier(dict(self.ranges))
        body = self.by_rest(item, simplifier)
        if simplifier.bound(simplifier(item.extent))[1] > 1:
            return self.piece(replace(item, body=body), True)
        once = substitute(body, {item.var: item.min})
        return S.IfThenElse(build.greater(item.extent, 0), self.stmt(once, True), None)

    def by_rest(self, item: S.For, simplifier: Simplifier) -> S.Stmt:
        """The body of a careful loop, a version for each number of elements that are left from its iteration on.

        if likely(i * 4 + r < n) {…}  ->  if n - i * 4 > 4 {…} else if n - i * 4 == 1 {…} else …

        Which conditions hold is then known in each of them (tir/transform/simplify.py, when loops are unrolled): a tile
        that is not full tests nothing in its sums.
        """
        groups = self.ends(item, simplifier)
        step = min((step for step in groups if step > 1), default=0)
        loops = (n for n in all_statements(item.body) if isinstance(n, S.For))
        if not 0 < step <= MAX_RESTS or all(n.kind is not S.LoopKind.SERIAL for n in loops):
            return item.body
        first = groups[step]
        tests = [build.greater(first.expr(E.INT32), step)]
        tests += [build.equal(first.expr(E.INT32), rest) for rest in range(1, step + 1)]
        for factor, other in groups.items():
            if factor == 1:  # the iteration is one of those that are left
                tests = [build.logical_and(test, other.expr(E.INT32) >= 1) for test in tests]
            between = _difference_of(other, first, factor // step, simplifier) if factor % step == 0 else None
            if between is None or factor == step:
                continue
            for rest in range(1, step + 1):
                low, high = (factor // step * rest + end for end in between)
                value = other.expr(E.INT32)
                tests[rest] = reduce(build.logical_and, (tests[rest], value >= low, value <= high))
        result: S.Stmt | None = None
        if _spelled(item.body) * step > MAX_SPELLED:
            tests, result = [tests[0], tests[step]], item.body
        for test in reversed(tests):
            result = S.IfThenElse(test, fresh_copy(item.body), result)
        assert result is not None, "there are tests"
        return result

    def ends(self, item: S.For, simplifier: Simplifier) -> dict[int, Linear]:
        """What is left of each symbolic range that likely conditions test, by how much an iteration takes of it."""
        result: dict[int, Linear] = {}
        loops = [n for n in all_statements(item.body) if isinstance(n, S.For)]
        inner, serial = {n.var for n in loops}, {n.var for n in loops if n.kind is S.LoopKind.SERIAL}
        for node in post_order(item.body):
            tested = _condition_of(node)
            for comparison in _conjuncts(tested[0]) if tested is not None and tested[1] else ():
                form = _below_zero(comparison, simplifier)
                step = 0 if form is None else form.terms.get(item.var, 0)
                if form is None or step <= 0 or serial & set(free_vars(comparison)):
                    continue
                left = {atom: -k for atom, k in form.terms.items() if not inner & set(free_vars(atom))}
                known = result.get(step, Linear(left, -form.constant))
                if len(left) > 1 and known.terms == left:  # what a tile stores ends before what its windows read
                    result[step] = Linear(left, min(known.constant, -form.constant))
        return result

    def versions(self, item: S.For, only_likely: bool) -> S.Stmt:
        """A parallel loop stays one loop: its body becomes a test between a main version and careful ones."""
        terms = self.terms(item) if build.as_int(item.extent) is None or self.splits_constant else []
        if not terms:
            return self.inside(item, only_likely)
        main = _decided(item.body, terms)
        test = reduce(build.logical_and, (test for term in terms for test in term.tests()))
        return self.piece(replace(item, body=S.IfThenElse(test, main, _careful(item.body, terms))), only_likely)

    def terms(self, item: S.For) -> list[_Term]:
        """What the likely conditions ask of a parallel loop's variable or of terms of it, where that is constant.

        if likely(v % 63 * 8 + r < 500)   ->   v % 63 < 62, for every r in range(8)
        """
        simplifier = Simplifier({**self.ranges, **_inner_ranges(item.body), item.var: _loop_range(item)})
        intervals: dict[E.Expr, Interval] = {}
        decided: dict[E.Expr, set[int]] = {}
        for node in post_order(item.body):
            tested = _condition_of(node)
            for comparison in _conjuncts(tested[0]) if tested is not None and tested[1] else ():
                term = _term_of(comparison, item.var, simplifier)
                bound = None if term is None else self.solve(comparison, item, simplifier, term)
                value = None if bound is None else build.as_int(bound[1])
                if term is None or bound is None or value is None:
                    continue
                decided.setdefault(term, set()).add(id(comparison))
                low, high = intervals.get(term, simplifier.bound(term))
                intervals[term] = (max(low, value), high) if bound[0] else (low, min(high, value - 1))
        terms = [_Term(t, simplifier.bound(t), main, frozenset(decided[t])) for t, main in intervals.items()]
        return [] if any(t.main[0] > t.main[1] for t in terms) else [t for t in terms if t.main != t.all]

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
        decided: dict[int, bool] = {}
        main = self.main_range(item, only_likely, decided)
        if main is None:
            return None
        low, high, stop = main
        is_idle = self.is_idle_outside(item, set(decided))
        main_body = map_all(item.body, lambda e: TRUE if id(e) in decided else None)
        last_body = map_all(item.body, lambda e: TRUE if decided.get(id(e)) else None)
        parts: list[tuple[S.For, bool]] = []
        start = item.min
        for end, is_main in ((low, False), (high, True), (stop, False)):
            extent = Simplifier()(build.sub(end, start))
            count = build.as_int(extent)
            if count is None and not is_main and is_idle:
                start = end
                continue
            if count is None or count > 0:
                body = main_body if is_main else last_body if end is stop else item.body
                body = fresh_copy(body) if parts else body
                parts.append((replace(item, min=start, extent=extent, body=body), is_main))
            start = end
        return parts if len(parts) > 1 else None

    def is_idle_outside(self, item: S.For, decided: set[int]) -> bool:
        """Whether nothing happens in iterations in which one of the conditions does not hold: all ask the loop alone.

        Rows of a band that the image does not have are such.
        """
        inner = {n.var for n in all_statements(item.body) if isinstance(n, S.For)}
        asked = [n for n in post_order(item.body) if id(n) in decided and isinstance(n, E.Expr)]
        if any(inner & set(free_vars(n)) for n in asked):
            return False
        tried: list[E.Expr] = []
        for comparison in asked:
            if any(_is_same(comparison, other) for other in tried):
                continue
            tried.append(comparison)
            same = {id(n) for n in asked if _is_same(n, comparison)}
            if not is_nothing(StatementSimplifier().stmt(_with_false(item.body, same))):
                return False
        return True

    def main_range(
        self, item: S.For, only_likely: bool, decided: dict[int, bool]
    ) -> tuple[E.Expr, E.Expr, E.Expr] | None:
        """First and end of the part where the conditions hold, end of the loop; `decided` gets those conditions (their
        ids), and whether they hold from some iteration on, so behind that part too."""
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
                    decided[id(comparison)] = bound[0]
                    ends = lows if bound[0] else highs
                    if not any(structural_equal(bound[1], known, renames=False) for known in ends):
                        ends.append(bound[1])
                    is_likely = is_likely or tested[1]
        if len(lows) + len(highs) == 2:
            return None
        if not only_likely and any(build.as_int(v) is None for v in (*lows, *highs)):
            decided.clear()  # a test of rows outside the sums costs less than a loop of its own
            return self.main_range(item, True, decided)
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

    def solve(self, item: Any, loop: S.For, s: Simplifier, unknown: E.Expr | None = None) -> tuple[bool, E.Expr] | None:
        """`v >= bound` (True, bound) or `v < bound` (False, bound) that makes a comparison hold; None: cannot say.

        `v` is the loop's variable, or `unknown`, a term of it.
        """
        form = _below_zero(item, s)
        if form is None:
            return None
        factor = form.terms.pop(loop.var if unknown is None else unknown, 0)  # factor * v + form < 0 is wanted
        if factor == 0 or any(loop.var in free_vars(atom) for atom in form.terms):
            return None
        known = self.worst(form, s)
        if known is None:
            return None
        dtype = loop.var.dtype
        if not known.terms:  # a value that is read may be any of its type, and the bound none of the loop's
            value = (factor - 1 - known.constant) // factor if factor > 0 else known.constant // -factor + 1
            fits = dtype.min_value <= value <= dtype.max_value
            return (factor < 0, build.const(value, dtype)) if fits else None
        rest = build.cast(known.expr(item.a.dtype), dtype)
        if factor > 0:  # v < ceil(-rest / factor)
            return False, build.floordiv(build.sub(factor - 1, rest), build.const(factor, dtype))
        return True, build.add(build.floordiv(rest, build.const(-factor, dtype)), 1)

    def worst(self, form: Linear, s: Simplifier) -> Linear | None:
        """The largest value of the sum over loop variables; function dimensions stay symbolic.

        So do outer loops of symbolic counts: bands of a row whose length is a size.
        """
        retained: dict[E.Expr, int] = {}
        total: Interval = (form.constant, form.constant)
        for atom, k in form.terms.items():
            variables = free_vars(atom)
            part = scale_interval(s.bound(atom), k)
            is_outer = part[1] >= INFINITE and all(v in self.dims or v in self.ranges for v in variables)
            if self.dims.issuperset(variables) or is_outer:
                retained[atom] = k
            else:
                total = add_intervals(total, part)
        return Linear(retained, total[1]) if total[1] < INFINITE else None


def _difference_of(form: Linear, other: Linear, times: int, s: Simplifier) -> Interval | None:
    """The values of form - times * other: a number, or what a division by a number drops; None if it may be any."""
    rest = form.minus(Linear({a: times * k for a, k in other.terms.items()}, times * other.constant))
    if not rest.terms:
        return rest.constant, rest.constant
    for atom, k in rest.terms.items():
        divisor = build.as_int(atom.b) if isinstance(atom, E.FloorDiv) else None
        if divisor is None or divisor <= 0 or k != -divisor or not isinstance(atom, E.FloorDiv):
            continue
        dropped = rest.minus(Linear({atom: k}, 0)).minus(s.linear(atom.a))  # rest = atom.a % divisor + dropped
        if not dropped.terms:
            return dropped.constant, dropped.constant + divisor - 1
    return None


def _spelled(item: S.Stmt, times: int = 1) -> int:
    """Statements of a body when its loops are unrolled that are marked so."""
    if isinstance(item, S.For):
        count = (build.as_int(item.extent) or 1) if item.kind is S.LoopKind.UNROLLED else 1
        return _spelled(item.body, times * count)
    inside = [n for n in children(item) if isinstance(n, S.Stmt)]
    return sum(_spelled(n, times) for n in inside) if inside else times


@dataclass(frozen=True)
class _Term:
    """A parallel loop's variable or a term of it: its values, and those for which all likely conditions hold.

    `decided` are the conditions (their ids) that hold for the main values.
    """

    expr: E.Expr
    all: Interval
    main: Interval
    decided: frozenset[int]

    def tests(self) -> list[E.Expr]:
        """That the term has one of the main values."""
        (first, last), (low, high) = self.all, self.main
        above = [build.greater_equal(self.expr, low)] if low > first else []
        return above + ([build.less(self.expr, high + 1)] if high < last else [])

    def others(self) -> list[int]:
        """The values that are not main ones, if they are few."""
        (first, last), (low, high) = self.all, self.main
        if not 0 < last - high + low - first <= MAX_VERSIONS:
            return []
        return [*range(first, low), *range(high + 1, last + 1)]


def _with_false(body: S.Stmt, conditions: set[int]) -> S.Stmt:
    """The body where these conditions (their ids) do not hold."""
    return map_all(body, lambda e: FALSE if id(e) in conditions else None)


def _decided(body: S.Stmt, terms: Sequence[_Term]) -> S.Stmt:
    """The body where these terms have main values."""
    known = frozenset[int]().union(*(t.decided for t in terms))
    return map_all(body, lambda e: TRUE if id(e) in known else None)


def _careful(body: S.Stmt, terms: list[_Term]) -> S.Stmt:
    """The body where a condition may fail: one version for each value of the terms, where there are few, that knows it.

    for i in parallel(9) { if likely(i >= 1) {…} }  ->  if i >= 1 {…} else { if likely(0 >= 1) {…} }
    """
    cells = list(product(*([None, *t.others()] for t in terms)))[1:]  # None: a main value
    if len(cells) > MAX_VERSIONS or not all(t.others() for t in terms):
        return fresh_copy(body)
    *earlier, result = (_cell(body, terms, cell) for cell in cells)
    for cell, version in zip(cells[-2::-1], reversed(earlier), strict=True):
        tests = [
            test
            for term, place in zip(terms, cell, strict=True)
            for test in (term.tests() if place is None else [build.equal(term.expr, place)])
        ]
        result = S.IfThenElse(reduce(build.logical_and, tests), version, result)
    return result


def _cell(body: S.Stmt, terms: list[_Term], cell: tuple[int | None, ...]) -> S.Stmt:
    """The body for some values of the terms, None for any main one."""
    pairs = list(zip(terms, cell, strict=True))
    body = _decided(body, [term for term, place in pairs if place is None])
    for term, place in pairs:
        if place is not None:
            body = _with_value(body, term.expr, place)
    return fresh_copy(body)


def _with_value(body: S.Stmt, term: E.Expr, place: int) -> S.Stmt:
    value = build.const(place, term.dtype)
    if isinstance(term, E.Var):
        return substitute(body, {term: value})
    return map_all(body, lambda e: value if type(e) is type(term) and _is_same(e, term) else None)


def _is_same(left: E.Expr, right: E.Expr) -> bool:
    """Whether two terms are equal; `structural_equal` lets variables differ."""
    return structural_equal(left, right) and free_vars(left) == free_vars(right)


def _term_of(item: object, var: E.Var, s: Simplifier) -> E.Expr | None:
    """The variable, or the quotient or rest of it, that alone of its terms decides a comparison."""
    form = _below_zero(item, s)
    terms = [] if form is None else [atom for atom in form.terms if var in free_vars(atom)]
    if len(terms) != 1 or free_vars(terms[0]) != (var,):
        return None
    return terms[0] if isinstance(terms[0], E.Var | E.FloorDiv | E.FloorMod) else None


def _below_zero(item: Any, s: Simplifier) -> Linear | None:
    """A comparison as the sum that is negative where it holds; None for other conditions."""
    if type(item) not in (E.LT, E.LE, E.GT, E.GE) or item.a.dtype not in INDEX_TYPES:
        return None
    form = s.linear(item.a).minus(s.linear(item.b))
    if type(item) in (E.GT, E.GE):
        form = Linear({a: -k for a, k in form.terms.items()}, -form.constant)
    if type(item) in (E.LE, E.GE):
        form.constant -= 1
    return form


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
    result: dict[E.Var, Interval] = {}
    for item in all_statements(body):
        if isinstance(item, S.For):
            low, high = _loop_range(item)
            known = result.get(item.var, (low, high))
            result[item.var] = (min(low, known[0]), max(high, known[1]))
    return result


LoopPartition = prim_pass("loop-partition", "tir.LoopPartition")(loop_partition)
