"""Integer index arithmetic in a normal form: sums of atoms times constants.

In: index expressions and the ranges of loop variables. Out: `Linear` values that add, cancel and bound exactly; atoms
are variables, quotients, remainders, products, minima. Invariant: equal atoms are one object (a `Space` interns
them), so `(x*14 + i) - x*14` is `i`; quotients and remainders are simplified by what is known of their variables when
made. Used by: `te/bounds.py` (regions), `te/lower.py` (indices, predicates). Full rules for all expressions:
`tir/simplify.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd

from armillary.base.dtype import DType
from armillary.tir import build as T
from armillary.tir import expr as E
from armillary.tir.expr import Expr, IntImm, Var

Limits = tuple[int | None, int | None]


class Atom:
    """An indivisible part: kind is div, mod, mul, min or max; `args` are its operands."""

    __slots__ = ("args", "kind", "vars")

    def __init__(self, kind: str, args: tuple[Linear, ...]) -> None:
        self.kind = kind
        self.args = args
        self.vars: frozenset[Var] = frozenset().union(*(a.vars for a in args))


class Linear:
    """const + sum of coefficient * atom; immutable."""

    __slots__ = ("_key", "_vars", "const", "terms")

    def __init__(self, const: int, terms: dict[Var | Atom, int] | None = None) -> None:
        self.const = const
        self.terms = terms if terms is not None else {}
        self._key: tuple[int, frozenset[tuple[Var | Atom, int]]] | None = None
        self._vars: frozenset[Var] | None = None

    @property
    def key(self) -> tuple[int, frozenset[tuple[Var | Atom, int]]]:
        """Equal keys mean equal values."""
        if self._key is None:
            self._key = (self.const, frozenset(self.terms.items()))
        return self._key

    @property
    def vars(self) -> frozenset[Var]:
        """The variables in it."""
        if self._vars is None:
            variables: set[Var] = set()
            for atom in self.terms:
                variables.update((atom,) if isinstance(atom, Var) else atom.vars)
            self._vars = frozenset(variables)
        return self._vars

    @property
    def value(self) -> int | None:
        """The number, when there are no variables."""
        return None if self.terms else self.const

    def scaled(self, factor: int) -> Linear:
        if factor == 0:
            return Linear(0)
        return self if factor == 1 else Linear(self.const * factor, {a: c * factor for a, c in self.terms.items()})

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        if not other.terms:
            return Linear(self.const + sign * other.const, self.terms) if other.const else self
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + sign * coefficient
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Linear(self.const + sign * other.const, terms)

    def minus(self, other: Linear) -> Linear:
        return self.plus(other, -1)

    def shifted(self, by: int) -> Linear:
        return Linear(self.const + by, self.terms) if by else self


ZERO, ONE = Linear(0), Linear(1)
Environment = Mapping[Var, Linear]


class Space:
    """Ranges of loop variables (inclusive, ends may be symbolic) and the interned atoms over them."""

    def __init__(self) -> None:
        self.low: dict[Var, Linear] = {}
        self.high: dict[Var, Linear] = {}
        self._atoms: dict[tuple[object, ...], Atom] = {}
        self._limits: dict[Atom, Limits] = {}  # the ranges of a variable are known before an atom holds it
        self._ends: dict[Atom, Linear] = {}  # what quotients lie below, where that is known
        self.fresh: set[Var] = set()
        self._symbols: dict[Expr, Var] = {}
        self.expressions: dict[Var, Expr] = {}

    def loop_var(self, name: str, dtype: DType, extent: Linear) -> Var:
        """A new variable over [0, extent)."""
        result = Var(name, dtype)
        self.low[result], self.high[result] = ZERO, extent.shifted(-1)
        return result

    def ranged(self, name: str, low: Linear, high: Linear) -> Linear:
        """A new variable over [low, high], as a value."""
        fresh = Var(name)
        self.low[fresh], self.high[fresh] = low, high
        self.fresh.add(fresh)
        return Linear(0, {fresh: 1})

    def symbol(self, item: Expr) -> Linear:
        """An expression that is not index arithmetic, as one unknown."""
        symbol_of_item = self._symbols.get(item)
        if symbol_of_item is None:
            symbol_of_item = self._symbols[item] = Var("symbol", item.dtype)
            self.expressions[symbol_of_item] = item
        return Linear(0, {symbol_of_item: 1})

    def atom(self, kind: str, *args: Linear) -> Linear:
        key = (kind, *(a.key for a in args))
        known = self._atoms.get(key)
        if known is None:
            known = self._atoms[key] = Atom(kind, args)
        return Linear(0, {known: 1})

    def multiply(self, a: Linear, b: Linear) -> Linear:
        """a * b; distributes over a sum when one side is a number."""
        if not a.terms:
            return b.scaled(a.const)
        if not b.terms:
            return a.scaled(b.const)
        total = Linear(0)
        for x, m in [*a.terms.items(), (None, a.const)]:
            for y, n in [*b.terms.items(), (None, b.const)]:
                total = total.plus(self._product(x, y).scaled(m * n)) if m * n else total
        return total

    def _product(self, x: Var | Atom | None, y: Var | Atom | None) -> Linear:
        if x is None or y is None:
            one = x if y is None else y
            return ONE if one is None else Linear(0, {one: 1})
        left, right = Linear(0, {x: 1}), Linear(0, {y: 1})
        return self.atom("mul", *sorted((left, right), key=lambda v: id(next(iter(v.terms)))))

    def divide(self, a: Linear, b: Linear) -> Linear:
        """floor(a / b) for b > 0."""
        if b.terms:
            if a.key == b.key:
                return ONE
            return ZERO if self.is_below(a, b) else self.atom("div", a, b)
        divisor = b.const
        if divisor == 1:
            return a
        whole = {x: c // divisor for x, c in a.terms.items() if c % divisor == 0}
        rest = {x: c for x, c in a.terms.items() if c % divisor}
        base = Linear(a.const // divisor, whole)
        return base.plus(self._divide_rest(Linear(a.const % divisor, rest), divisor))

    def _divide_rest(self, rest: Linear, divisor: int) -> Linear:
        low, high = self.limits(rest)
        if low is not None and high is not None and low // divisor == high // divisor:
            return Linear(low // divisor)
        for step in self._steps(rest, divisor):
            large, small = _by_step(rest, step)
            if self._within(small, step):
                return self.divide(
                    Linear(large.const // step, {x: c // step for x, c in large.terms.items()}), Linear(divisor // step)
                )
        return self.atom("div", rest, Linear(divisor))

    def quotient_below(self, a: Linear, b: Linear, end: Linear) -> Linear:
        """floor(a / b) for 0 <= a < b * end: the outer of two fused axes, whose limits a symbolic b would hide."""
        result = self.divide(a, b)
        for atom in result.terms if b.terms and not result.const and len(result.terms) == 1 else ():
            most = self.limits(end)[1]
            if isinstance(atom, Atom) and result.terms[atom] == 1:
                self._limits[atom], self._ends[atom] = (0, None if most is None else most - 1), end
        return result

    def remainder(self, a: Linear, b: Linear) -> Linear:
        """a - b * floor(a / b) for b > 0."""
        if b.terms:
            if a.key == b.key:
                return ZERO
            return a if self.is_below(a, b) else self.atom("mod", a, b)
        divisor = b.const
        if divisor == 1:
            return ZERO
        rest = Linear(a.const % divisor, {x: c for x, c in a.terms.items() if c % divisor})
        low, high = self.limits(rest)
        if low is not None and high is not None and low // divisor == high // divisor:
            return rest.shifted(-(low // divisor) * divisor)
        for step in self._steps(rest, divisor):
            large, small = _by_step(rest, step)
            if self._within(small, step):
                upper = Linear(large.const // step, {x: c // step for x, c in large.terms.items()})
                return self.remainder(upper, Linear(divisor // step)).scaled(step).plus(small)
        return self.atom("mod", rest, b)

    def joined(self, value: Linear) -> Linear:
        """With each quotient and its remainder as what was divided, as over fused axes: x // 3 * 3 + x % 3 is x."""
        for atom, c in value.terms.items():
            if isinstance(atom, Atom) and atom.kind == "mod" and atom.args[1].value is not None:
                quotient = self.atom("div", *atom.args)
                both = quotient.scaled(c * atom.args[1].value).plus(Linear(0, {atom: c}))
                if both.terms.items() <= value.terms.items():
                    return self.joined(value.minus(both).plus(atom.args[0].scaled(c)))
        return value

    def _steps(self, rest: Linear, divisor: int) -> list[int]:
        return sorted({g for c in rest.terms.values() if 1 < (g := gcd(c, divisor)) < divisor}, reverse=True)

    def _within(self, value: Linear, end: int) -> bool:
        low, high = self.limits(value)
        return low is not None and high is not None and low >= 0 and high < end

    def extreme(self, kind: str, a: Linear, b: Linear) -> Linear:
        """min or max of two values."""
        low, high = self.limits(a.minus(b))
        if high is not None and high <= 0:
            return a if kind == "min" else b
        if low is not None and low >= 0:
            return b if kind == "min" else a
        return self.atom(kind, a, b)

    def is_below(self, a: Linear, b: Linear) -> bool:
        """Whether 0 <= a < b is certain."""
        span = self.interval(a, a.vars)
        if span is None:
            return False
        return self._at_least(span[0], 0) and self._at_least(b.minus(span[1]), 1)

    def at_most(self, a: Linear, b: Linear) -> bool:
        """Whether a <= b is certain for all values of the loop variables."""
        gap = a.minus(b)
        high = self.limits(gap)[1]
        if high is not None and high <= 0:
            return True
        span = self.interval(gap, frozenset(v for v in gap.vars if v in self.high))
        return span is not None and self._at_least(span[1].scaled(-1), 0)

    def _at_least(self, value: Linear, bound: int) -> bool:
        low = self.limits(value)[0]
        return low is not None and low >= bound

    def limits(self, value: Linear) -> Limits:
        """Numbers between which the value lies; None: unknown."""
        low: int | None = value.const
        high: int | None = value.const
        for atom, c in value.terms.items():
            first, last = self._atom_limits(atom)
            if c < 0:
                first, last = last, first
            low = None if low is None or first is None else low + c * first
            high = None if high is None or last is None else high + c * last
        return low, high

    def _atom_limits(self, atom: Var | Atom) -> Limits:
        if isinstance(atom, Var):
            if atom not in self.high:
                return None, None
            return self.limits(self.low[atom])[0], self.limits(self.high[atom])[1]
        result = self._limits.get(atom)
        if result is None:
            result = self._limits[atom] = self._limits_of_parts(atom)
        return result

    def _limits_of_parts(self, atom: Atom) -> Limits:
        a, b = self.limits(atom.args[0]), self.limits(atom.args[1])
        if atom.kind in ("min", "max"):
            return _extreme_limits(atom.kind, a, b)
        divisor = atom.args[1].value
        if divisor is None:
            return (0 if atom.kind == "mod" else None), None
        if atom.kind == "mod":
            return 0, divisor - 1
        if atom.kind == "div":
            return (None if a[0] is None else a[0] // divisor), (None if a[1] is None else a[1] // divisor)
        return None, None

    def interval(self, value: Linear, ranging: Iterable[Var]) -> tuple[Linear, Linear] | None:
        """The least and largest value as the `ranging` variables take all their values; None: not known."""
        moving = ranging if isinstance(ranging, frozenset | set) else frozenset(ranging)
        low, high = Linear(value.const), Linear(value.const)
        for atom, c in value.terms.items():
            span = self._atom_interval(atom, moving)
            if span is None:
                return None
            first, last = span if c > 0 else (span[1], span[0])
            low, high = low.plus(first.scaled(c)), high.plus(last.scaled(c))
        return low, high

    def _atom_interval(self, atom: Var | Atom, moving: frozenset[Var] | set[Var]) -> tuple[Linear, Linear] | None:
        itself = Linear(0, {atom: 1})
        if isinstance(atom, Var):
            return (self.low[atom], self.high[atom]) if atom in moving and atom in self.high else (itself, itself)
        if not atom.vars & moving:
            return itself, itself
        divisor, end = atom.args[1], self._ends.get(atom)
        if end is not None and not end.vars & moving:
            return ZERO, end.shifted(-1)
        if atom.kind == "mod":
            return ZERO, divisor.shifted(-1)
        if atom.kind in ("div", "min", "max"):
            a, b = self.interval(atom.args[0], moving), self.interval(divisor, moving)
            if a is None or b is None:
                return None
            if atom.kind == "div":
                return self._quotients(a, divisor) if not divisor.vars & moving else None
            return self.extreme(atom.kind, a[0], b[0]), self.extreme(atom.kind, a[1], b[1])
        return None

    def _quotients(self, span: tuple[Linear, Linear], divisor: Linear) -> tuple[Linear, Linear]:
        low, high = self.divide(span[0], divisor), self.divide(span[1], divisor)
        width, size = span[1].minus(span[0]).value, divisor.value
        if high.minus(low).value is None and width is not None and size is not None:
            high = low.shifted(-(-width // size))
        return low, high

    def evaluate(self, item: Expr, environment: Environment) -> Linear | None:
        """The expression in normal form, variables replaced; None when it is more than index arithmetic."""
        return _Evaluator(self, environment)(item)


class _Evaluator:
    """Values of expressions in one environment, each asked once."""

    __slots__ = ("environment", "memo", "space")

    def __init__(self, space: Space, environment: Environment) -> None:
        self.space, self.environment = space, environment
        self.memo: dict[Expr, Linear | None] = {}

    def __call__(self, item: Expr) -> Linear | None:
        kind = type(item)
        if kind is IntImm:
            return Linear(item.value)  # type: ignore[attr-defined]
        if kind is Var or kind is E.IterVar:
            var: Var = item if kind is Var else item.var  # type: ignore[assignment, attr-defined]
            result = self.environment.get(var)
            return result if result is not None else Linear(0, {var: 1})
        if item not in self.memo:
            rule = _RULES.get(kind)
            self.memo[item] = rule(self, item) if rule is not None else None
        return self.memo[item]


def _by_step(value: Linear, step: int) -> tuple[Linear, Linear]:
    """The parts whose coefficients `step` divides, and the rest."""
    large = {x: c for x, c in value.terms.items() if c % step == 0}
    small = {x: c for x, c in value.terms.items() if c % step}
    return Linear(value.const // step * step, large), Linear(value.const % step, small)


def _extreme_limits(kind: str, a: Limits, b: Limits) -> Limits:
    pick = min if kind == "min" else max
    limits = []
    for x, y in ((a[0], b[0]), (a[1], b[1])):
        limits.append(pick(x, y) if x is not None and y is not None else None)
    if kind == "min":
        known = [v for v in (a[1], b[1]) if v is not None]
        return limits[0], min(known) if known else None
    known = [v for v in (a[0], b[0]) if v is not None]
    return max(known) if known else None, limits[1]


def _of_pair(combine: Callable[[Space, Linear, Linear], Linear | None]) -> Callable[..., Linear | None]:
    def rule(evaluate: _Evaluator, item: E.Add) -> Linear | None:
        a, b = evaluate(item.a), evaluate(item.b)
        return None if a is None or b is None else combine(evaluate.space, a, b)

    return rule


def _positive(combine: Callable[[Space, Linear, Linear], Linear]) -> Callable[[Space, Linear, Linear], Linear | None]:
    return lambda space, a, b: combine(space, a, b) if b.terms or b.const > 0 else None


def _truncating(combine: Callable[[Space, Linear, Linear], Linear]) -> Callable[[Space, Linear, Linear], Linear | None]:
    def rule(space: Space, a: Linear, b: Linear) -> Linear | None:
        low = space.limits(a)[0]
        return combine(space, a, b) if low is not None and low >= 0 and not b.terms and b.const > 0 else None

    return rule


def _of_cast(evaluate: _Evaluator, item: E.Cast) -> Linear | None:
    source, to = item.value.dtype, item.dtype
    if not (source.is_int and to.code == "int" and to.lanes == 1 and to.bits >= source.bits):
        return None
    return evaluate(item.value)


_RULES: dict[type, Callable[..., Linear | None]] = {
    E.Add: _of_pair(lambda space, a, b: space.joined(a.plus(b))),
    E.Sub: _of_pair(lambda space, a, b: a.minus(b)),
    E.Mul: _of_pair(lambda space, a, b: space.multiply(a, b)),
    E.FloorDiv: _of_pair(_positive(Space.divide)),
    E.FloorMod: _of_pair(_positive(Space.remainder)),
    E.TruncDiv: _of_pair(_truncating(Space.divide)),
    E.TruncMod: _of_pair(_truncating(Space.remainder)),
    E.Min: _of_pair(lambda space, a, b: space.extreme("min", a, b)),
    E.Max: _of_pair(lambda space, a, b: space.extreme("max", a, b)),
    E.Cast: _of_cast,
}
_BUILDERS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "div": T.floordiv,
    "mod": T.floormod,
    "mul": T.mul,
    "min": T.minimum,
    "max": T.maximum,
}


def to_expr(value: Linear, dtype: DType) -> Expr:
    """The value as an expression of an integer dtype; positive terms come first."""
    return _to_expr(value, dtype, {})


def _to_expr(value: Linear, dtype: DType, memo: dict[Atom, Expr]) -> Expr:
    result: Expr | None = None
    for atom, c in sorted(value.terms.items(), key=lambda term: term[1] < 0):
        part = T.cast(atom, dtype) if isinstance(atom, Var) else _atom_expr(atom, dtype, memo)
        if result is None:
            result = T.mul(part, c) if c != 1 else part
        elif c < 0:
            result = T.sub(result, T.mul(part, -c))
        else:
            result = T.add(result, T.mul(part, c))
    if result is None:
        return T.const(value.const, dtype)
    return T.sub(result, -value.const) if value.const < 0 else T.add(result, value.const)


def _atom_expr(atom: Atom, dtype: DType, memo: dict[Atom, Expr]) -> Expr:
    result = memo.get(atom)
    if result is None:
        result = memo[atom] = _BUILDERS[atom.kind](*(_to_expr(a, dtype, memo) for a in atom.args))
    return result
