"""Simplify scalar expressions: normal form for integer sums, and tables of rewrite rules for everything else.

In: an expression; what is known of its variables (ranges, facts). Out: an equal, usually smaller expression. Invariant:
equal for all variable values inside the ranges (index arithmetic is assumed not to overflow, see
`tir/bounds.py`); float
results keep every bit. A `Simplifier` interns what it returns: equal results are the same object, so later questions
are answered from its memo. Rules: `tir/rules.py`; sums: `tir/linear.py`; statements: `tir/transform/simplify.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from armillary.base.dtype import DType
from armillary.base.node import Node, Rules, children, post_order
from armillary.tir import expr as E
from armillary.tir.bounds import (
    BOUND_RULES,
    EVERYTHING,
    INFINITE,
    Interval,
    add_intervals,
    dtype_interval,
    intersect,
    scale_interval,
)
from armillary.tir.linear import Linear
from armillary.tir.rules import RULES, guarded_branches
from armillary.tir.substitute import REBUILD

_INDEX_TYPES = frozenset({DType("int32"), DType("int64")})
_SUMS = frozenset({E.Add, E.Sub, E.Mul})
_ADDITIVE = frozenset({E.Add, E.Sub})
_MAX_FACTS = 8
_MAX_WAYS = 8  # from a choice to one inside it: with more, no case of its own for each, as there may be 2^n
_Memo = dict[int, tuple[E.Expr, E.Expr]]
_Bounds = dict[int, tuple[E.Expr, Interval]]
_Facts = dict[frozenset[tuple[int, int]], tuple[Linear, int]]
_State = tuple[_Memo, _Bounds, _Facts, dict[E.Expr, bool]]  # memo, bounds, facts, known of a Simplifier


class Simplifier:
    """Simplifies many expressions that share variables, ranges and facts."""

    def __init__(self, ranges: Mapping[E.Var, Interval] | None = None) -> None:
        self.ranges: dict[E.Var, Interval] = dict(ranges or {})
        self.facts: _Facts = {}  # sum of terms <= bound
        self.known: dict[E.Expr, bool] = {}  # interned conditions whose truth is known
        self._table: dict[object, E.Expr] = {}
        self._memo: _Memo = {}
        self._bounds: _Bounds = {}
        self._data: dict[int, tuple[E.Expr, bool]] = {}
        self._outside: _State | None = None  # what holds around the outermost choice of the expression at hand
        self._outermost: E.Expr = E.IntImm(E.BOOL, 1)
        self._worn: frozenset[int] | None = frozenset()  # parts of it that are simplified once for all their readers

    def __call__(self, item: E.Expr) -> E.Expr:
        """The simplified form."""
        kind = type(item)
        if kind is E.Var:
            known_range = self.ranges.get(item)  # type: ignore[call-overload]
            return (
                item
                if known_range is None or known_range[0] != known_range[1]
                else self.intern(E.IntImm(item.dtype, known_range[0]))
            )
        if kind is E.IntImm or kind is E.FloatImm:
            return self.intern(item)
        memo = self._memo.get(id(item))
        if memo is not None:
            return memo[1]
        if self._worn and id(item) in self._worn and self._outside is not None and self._memo is not self._outside[0]:
            return self._agreed(item)
        if kind in _SUMS and item.dtype in _INDEX_TYPES:
            result = self._sum(item)
        elif kind is E.Call and item.name == "if_then_else":  # type: ignore[attr-defined]
            result = self._apply(self._choice(item))  # type: ignore[arg-type]
        else:
            result = self._apply(self.intern(REBUILD[kind](item, self)))
        self._memo[id(item)] = (item, result)
        self._memo[id(result)] = (result, result)
        return result

    def _apply(self, item: E.Expr) -> E.Expr:
        for rule in RULES.get(type(item), ()):
            changed = rule(self, item)
            if changed is not None and changed is not item:
                return self(changed)
        return item

    def _choice(self, item: E.Call) -> E.Expr:
        """A choice, knowing inside what its condition and those around it say."""
        if self._outside is not None:
            if self._worn is None:
                self._worn = _much_read(self._outermost)
                if id(item) in self._worn and self._memo is not self._outside[0]:
                    return self._agreed(item)
            return guarded_branches(self, item)
        self._outside, self._outermost, self._worn = self._state(), item, None
        result = guarded_branches(self, item)
        self._outside, self._worn = None, frozenset()
        return result

    def _agreed(self, item: E.Expr) -> E.Expr:
        """The form that is right for all choices that lead to an expression: it knows nothing of their conditions."""
        inside = self._state()
        assert self._outside is not None, "only choices have an inside"
        self._memo, self._bounds, self.facts, self.known = self._outside
        result = self(item)
        self._memo, self._bounds, self.facts, self.known = inside
        return result

    def _state(self) -> _State:
        return self._memo, self._bounds, self.facts, self.known

    def _sum(self, item: E.Expr) -> E.Expr:
        form = self.linear(item)
        rebuilt = form.expr(item.dtype)
        return self._intern_sum(item if _same_sum(item, rebuilt) else rebuilt)

    def _intern_sum(self, item: E.Expr) -> E.Expr:
        if type(item) not in _SUMS:
            return item if type(item) is not E.IntImm else self.intern(item)
        a, b = self._intern_sum(item.a), self._intern_sum(item.b)  # type: ignore[attr-defined]
        if a is not item.a or b is not item.b:  # type: ignore[attr-defined]
            item = type(item)(a, b)  # type: ignore[call-arg]
        return self.intern(item)

    def intern(self, item: E.Expr) -> E.Expr:
        """The one object that stands for this node (its children are interned already)."""
        if type(item) is E.Var:
            return item
        rule: Callable[[E.Expr], object] = _KEYS.get(type(item), _key)
        return self._table.setdefault(rule(item), item)

    def linear(self, item: E.Expr) -> Linear:
        """An int32 or int64 expression as a sum of simplified atoms."""
        terms: dict[E.Expr, int] = {}
        constant = self.collect(item, 1, terms)
        form = Linear(terms, constant).drop_zeros()
        return _recombine(self, form) if len(form.terms) > 1 else form

    def collect(self, item: E.Expr, scale: int, terms: dict[E.Expr, int]) -> int:
        """Add `scale * item` to `terms`; the constant part is returned."""
        kind = type(item)
        if kind in _ADDITIVE:
            return sum([self.collect(part, scale * factor, terms) for part, factor in _addends(item)])
        if kind is E.Mul:
            a, b = self(item.a), self(item.b)  # type: ignore[attr-defined]
            for one, other in ((a, b), (b, a)):
                if type(one) is E.IntImm:
                    return self.collect(other, scale * one.value, terms)
            item = self.intern(item if a is item.a and b is item.b else E.Mul(a, b))  # type: ignore[attr-defined]
        elif kind is not E.IntImm:
            item = self(item)
            if type(item) in _SUMS and not (type(item) is E.Mul and _is_product(item)):
                return self.collect(item, scale, terms)
        if type(item) is E.IntImm:
            return scale * item.value
        terms[item] = terms.get(item, 0) + scale
        return 0

    # what is known

    def bound(self, item: E.Expr) -> Interval:
        """The interval of a (simplified) integer or bool expression."""
        if type(item) is E.Var:
            result = self.ranges.get(item, EVERYTHING if item.dtype in _INDEX_TYPES else dtype_interval(item))
            return self._with_facts(Linear({item: 1}, 0), result) if self.facts else result
        memo = self._bounds.get(id(item))
        if memo is not None:
            return memo[1]
        rule = BOUND_RULES.get(type(item))
        is_product = type(item) is E.Mul and _is_product(item)  # an atom, not a sum
        if type(item) in _SUMS and item.dtype in _INDEX_TYPES and not is_product:
            result = self.bound_sum(self.linear(item), item.dtype)
        else:
            result = rule(item, self.bound) if rule is not None else dtype_interval(item)
            if self.facts and item.dtype in _INDEX_TYPES:
                result = self._with_facts(Linear({item: 1}, 0), result)
        self._bounds[id(item)] = (item, result)
        return result

    def bound_sum(self, form: Linear, dtype: DType) -> Interval:
        """The interval of a sum, using facts; everything when the sum may leave its dtype."""
        result = self._raw_bound(form)
        if self.facts:
            result = self._with_facts(form, result)
        low, high = dtype.min_value, dtype.max_value
        fits = (result[0] == -INFINITE or result[0] >= low) and (result[1] == INFINITE or result[1] <= high)
        return result if fits else EVERYTHING

    def _raw_bound(self, form: Linear) -> Interval:
        total: Interval = (form.constant, form.constant)
        for atom, coefficient in form.terms.items():
            single = self.ranges.get(atom, EVERYTHING) if type(atom) is E.Var else None
            inner = self.bound(atom) if single is None or self.facts else single
            total = add_intervals(total, scale_interval(inner, coefficient))
        return total

    def _with_facts(self, form: Linear, interval: Interval) -> Interval:
        """Tighten by every fact f <= b: form <= b + upper(form - f), and the mirror image."""
        low, high = interval
        for fact, limit in list(self.facts.values())[-_MAX_FACTS:]:
            rest = Linear(form.terms, form.constant).minus(fact)
            if len(rest.terms) < len(form.terms):
                upper = self._plain_bound(rest)[1]
                if upper < INFINITE:
                    high = min(high, limit + upper)
            mirrored = Linear({a: -c for a, c in form.terms.items()}, -form.constant).minus(fact)
            if len(mirrored.terms) < len(form.terms):
                upper = self._plain_bound(mirrored)[1]
                if upper < INFINITE:
                    low = max(low, -(limit + upper))
        return intersect(interval, (low, high))

    def _plain_bound(self, form: Linear) -> Interval:
        """An interval from ranges alone."""
        total: Interval = (form.constant, form.constant)
        for atom, coefficient in form.terms.items():
            inner = self.ranges.get(atom, EVERYTHING) if type(atom) is E.Var else EVERYTHING
            total = add_intervals(total, scale_interval(inner, coefficient))
        return total

    def is_exact(self, form: Linear, dtype: DType) -> bool:
        """Whether the sum, as a mathematical integer, is what the machine computes."""
        if not any(self.is_data(atom) for atom in form.terms):
            return True
        low, high = self._raw_bound(form)
        return dtype.min_value <= low and high <= dtype.max_value

    def is_data(self, item: E.Expr) -> bool:
        """Whether the value comes from memory or a call rather than from index variables."""
        kind = type(item)
        if kind is E.Var or kind is E.IntImm:
            return False
        if kind is E.BufferLoad or kind is E.ProducerLoad or (kind is E.Call and item.name != "likely"):  # type: ignore[attr-defined]
            return True
        memo = self._data.get(id(item))
        if memo is None:
            is_read = any(self.is_data(c) for c in _operands(item))
            memo = self._data[id(item)] = (item, is_read)
        return memo[1]

    # scopes

    def bind(self, var: E.Var, interval: Interval) -> None:
        """Give a variable its range; forgets conclusions drawn from another one."""
        if self.ranges.get(var, interval) != interval:
            self._forget()
        self.ranges[var] = interval

    def _forget(self) -> None:
        self._memo, self._bounds = {}, {}

    @contextmanager
    def assume(self, condition: E.Expr, holds: bool = True) -> Iterator[None]:
        """Inside the block `condition` is true (or false)."""
        saved = self._state()
        simple = self(condition)
        self._forget()
        self.facts, self.known = dict(self.facts), dict(self.known)
        self._learn(simple, holds)
        yield
        self._memo, self._bounds, self.facts, self.known = saved

    def _learn(self, item: E.Expr, holds: bool) -> None:
        if isinstance(item, E.Call) and item.name == "likely":
            self._learn(item.args[0], holds)
            return
        if isinstance(item, E.Not):
            self._learn(item.a, not holds)
            return
        if (isinstance(item, E.And) and holds) or (isinstance(item, E.Or) and not holds):
            self._learn(item.a, holds)
            self._learn(item.b, holds)
            return
        if not isinstance(item, E.IntImm):
            self.known[item] = holds
        row = _AS_LESS.get((type(item), holds))
        if row is not None and item.a.dtype in _INDEX_TYPES:  # type: ignore[attr-defined]
            for swapped, limit in row:
                a, b = (item.b, item.a) if swapped else (item.a, item.b)  # type: ignore[attr-defined]
                self._add_fact(self.linear(a).minus(self.linear(b)), limit)

    def _add_fact(self, form: Linear, limit: int) -> None:
        if not form.terms or any(self.is_data(atom) for atom in form.terms):
            return
        key = form.key()
        bound = limit - form.constant
        if key not in self.facts or self.facts[key][1] > bound:
            self.facts[key] = (Linear(form.terms, 0), bound)


# (comparison, holds) -> rows of (swap sides, limit): a - b <= limit
_AS_LESS: dict[tuple[type, bool], tuple[tuple[bool, int], ...]] = {
    (E.LT, True): ((False, -1),),
    (E.LT, False): ((True, 0),),
    (E.LE, True): ((False, 0),),
    (E.LE, False): ((True, -1),),
    (E.GT, True): ((True, -1),),
    (E.GT, False): ((False, 0),),
    (E.GE, True): ((True, 0),),
    (E.GE, False): ((False, -1),),
    (E.EQ, True): ((False, 0), (True, 0)),
    (E.NE, False): ((False, 0), (True, 0)),
}


def _much_read(root: E.Expr) -> frozenset[int]:
    """The parts of an expression with choices inside to which there are many ways, by id."""
    order = list(post_order(root))
    ways = Counter({id(root): 1})
    choosing: set[int] = set()
    for item in reversed(order):
        for part in children(item):
            ways[id(part)] += ways[id(item)]
    for item in order:
        is_choice = isinstance(item, E.Call) and item.name == "if_then_else"
        if is_choice or any(id(part) in choosing for part in children(item)):
            choosing.add(id(item))
    return frozenset(part for part in choosing if ways[part] > _MAX_WAYS)


def _addends(root: Any) -> Iterable[tuple[E.Expr, int]]:  # Any: Add or Sub
    """What a sum adds up, from the left, and how often; a part that is shared is looked at once."""
    a, b = root.a, root.b
    sign = 1 if type(root) is E.Add else -1
    if type(a) not in _ADDITIVE and type(b) not in _ADDITIVE:
        return (a, 1), (b, sign)
    leaves: dict[E.Expr, int] = {}
    factors: dict[E.Expr, int] = {root: 1}
    for item in reversed(_sums_inside(root, leaves)):  # each behind all that read it
        factor = factors[item]
        for part, times in ((item.a, factor), (item.b, factor if type(item) is E.Add else -factor)):
            into = leaves if part in leaves else factors
            into[part] = into.get(part, 0) + times
    return leaves.items()


def _sums_inside(root: Any, leaves: dict[E.Expr, int]) -> list[Any]:  # Any: Add or Sub
    """The sums inside a sum, children first; what else they add is entered in `leaves`, from the left."""
    done: list[Any] = []
    seen: set[Any] = set()
    stack = [(root, False)]
    while stack:
        item, is_done = stack.pop()
        if is_done:
            done.append(item)
        elif type(item) not in _ADDITIVE:
            leaves[item] = 0
        elif item not in seen:
            seen.add(item)
            stack += (item, True), (item.b, False), (item.a, False)
    return done


def _operands(item: E.Expr) -> Iterator[E.Expr]:
    for name in item._fields:
        value = getattr(item, name)
        if isinstance(value, E.Expr):
            yield value
        elif type(value) is tuple:
            yield from (v for v in value if isinstance(v, E.Expr))


def _key(item: E.Expr) -> Any:
    parts: list[Any] = [type(item)]
    for name in item._fields:
        value = getattr(item, name)
        if isinstance(value, Node):
            parts.append(id(value))
        elif type(value) is tuple:
            parts.append(tuple(id(v) if isinstance(v, Node) else v for v in value))
        else:
            parts.append(value)
    return tuple(parts)


_KEYS: Rules[[], object] = {  # what is met most often, spelled out
    E.IntImm: lambda e: (E.IntImm, e.dtype, e.value),
    E.FloatImm: lambda e: (E.FloatImm, e.dtype, repr(e.value)),
    E.Add: lambda e: (E.Add, id(e.a), id(e.b)),
    E.Sub: lambda e: (E.Sub, id(e.a), id(e.b)),
    E.Mul: lambda e: (E.Mul, id(e.a), id(e.b)),
    E.Ramp: lambda e: (E.Ramp, id(e.base), id(e.stride), e.lanes),
    E.Broadcast: lambda e: (E.Broadcast, id(e.value), e.lanes),
    E.BufferLoad: lambda e: (E.BufferLoad, id(e.buffer), *[id(i) for i in e.indices]),
}


def _is_product(item: Any) -> bool:
    return type(item.a) is not E.IntImm and type(item.b) is not E.IntImm


def _same_sum(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is E.IntImm:
        return bool(a.value == b.value and a.dtype is b.dtype)
    return type(a) in _SUMS and _same_sum(a.a, b.a) and _same_sum(a.b, b.b)


def _recombine(s: Simplifier, form: Linear) -> Linear:
    """x // c * c + x % c  ->  x and x // c % d * c + x % c  ->  x % (c * d), for every pair of such terms."""
    for atom, coefficient in list(form.terms.items()):
        if type(atom) is not E.FloorMod or atom not in form.terms:
            continue
        other = _partner(s, form, atom)
        if other is None:
            continue
        partner, whole = other
        terms = dict(form.terms)
        del terms[atom], terms[partner]
        extra = s.collect(whole, coefficient, terms)
        return _recombine(s, Linear(terms, form.constant + extra).drop_zeros())
    return form


def _partner(s: Simplifier, form: Linear, rest: E.FloorMod) -> tuple[E.Expr, E.Expr] | None:
    """The term that makes one number with the remainder `rest`, and that number."""
    coefficient = form.terms[rest]
    if type(rest.b) is not E.IntImm:
        quotient = s.intern(E.FloorDiv(rest.a, rest.b))
        products = (s.intern(E.Mul(quotient, rest.b)), s.intern(E.Mul(rest.b, quotient)))
        return next(((p, rest.a) for p in products if form.terms.get(p) == coefficient), None)
    for other, factor in form.terms.items():
        if factor != coefficient * rest.b.value:
            continue
        is_rest = type(other) is E.FloorMod and type(other.b) is E.IntImm
        quotient = other.a if is_rest else other  # type: ignore[attr-defined]
        if type(quotient) is not E.FloorDiv or quotient.b is not rest.b:
            continue
        if quotient.a is not rest.a and s(s.intern(E.FloorMod(quotient.a, rest.b))) is not rest:
            continue  # the remainder of (x % 12) by 4 is written x % 4
        if not is_rest:
            return other, quotient.a
        size = E.IntImm(rest.b.dtype, rest.b.value * other.b.value)  # type: ignore[attr-defined]
        return other, s.intern(E.FloorMod(quotient.a, s.intern(size)))
    return None


def simplify(item: E.Expr, ranges: Mapping[E.Var, Interval] | None = None) -> E.Expr:
    """An expression simplified on its own; ranges give both ends, included."""
    return Simplifier(ranges)(item)
