"""`lower-intrin`: intrinsics that a code generator lacks become others.

In: any loop program. Out: every call for which `register_intrin_lowering` gave a rule (for the target's kind, else for
"default") replaced by what the rule returns; with `divisions`, floor divisions by what C has: truncating ones, with a
correction where the signs may differ. Invariant: values do not change by `divisions`; what a user's rule means is the
user's. Code generators divide correctly by themselves, so the build asks for the rules only.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.aliases import AnyFunction
from armillary.errors import ConfigError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.bounds import Interval, interval_of
from armillary.tir.intrinsics import INTRINSICS, Intrinsic
from armillary.tir.substitute import ExprMapper, map_stmt
from armillary.tir.transform.loop_pass import prim_pass, with_body

Lowering = Callable[[E.Call], "E.ExprLike | None"]  # an expression, a number, or None to leave the call
LOWERINGS: dict[tuple[str, str], tuple[int, Lowering]] = {}


def register_intrin_lowering(
    name: str, target: str = "default", *, f: Lowering | None = None, level: int = 10
) -> AnyFunction:
    """Say how calls of an intrinsic are written in terms of others, for one kind of target or for all.

    Of two rules for the same the one of the higher level holds. A name that is new becomes an intrinsic with any
    number of arguments: `tir.call_intrin("float32", name, x)` makes calls of it. Also a decorator.
    """

    def register(rule: Lowering) -> Lowering:
        old = LOWERINGS.get((target, name))
        if old is not None and old[0] == level:
            raise ConfigError(f"intrinsic {name!r} has a lowering of level {level} for {target!r} already")
        if old is None or old[0] < level:
            LOWERINGS[target, name] = (level, rule)
        INTRINSICS.setdefault(name, Intrinsic(name, -1, None))
        return rule

    return register(f) if f is not None else register


def lower_intrin(func: S.PrimFunc, target: str = "default", divisions: bool = True) -> S.PrimFunc:
    """Write intrinsics in terms of others.

    A[n] = B[(n - 8) // 4]
    ->
    A[n] = B[truncdiv(n - 8, 4) - int32(truncmod(n - 8, 4) < 0)]
    """
    if not LOWERINGS and not divisions:
        return func
    return with_body(func, _Lowerer(target, divisions).stmt(func.body))


class _Lowerer:
    """Walks statements; `ranges` holds the loops passed."""

    def __init__(self, target: str, divisions: bool) -> None:
        self.target, self.divisions = target, divisions
        self.ranges: dict[E.Var, Interval] = {}
        self.mapper = ExprMapper(self.rule)

    def stmt(self, item: S.Stmt) -> S.Stmt:
        if isinstance(item, S.For):
            low, extent = interval_of(item.min, self.ranges), interval_of(item.extent, self.ranges)
            self.ranges[item.var] = (low[0], max(low[0], low[1] + extent[1] - 1))
            self.mapper.forget()
        return map_stmt(item, self.mapper, self.stmt)

    def rule(self, item: E.Expr) -> E.Expr | None:
        if isinstance(item, E.Call):
            return self.call(item)
        if self.divisions and isinstance(item, E.FloorDiv | E.FloorMod) and item.dtype.is_int:
            return self.divide(item)
        return None

    def call(self, item: E.Call) -> E.Expr | None:
        rule = LOWERINGS.get((self.target, item.name)) or LOWERINGS.get(("default", item.name))
        result = rule[1](item) if rule is not None else None
        return None if result is None or result is item else build.cast(result, item.dtype)

    def divide(self, item: E.FloorDiv | E.FloorMod) -> E.Expr | None:
        divisor = build.as_int(item.b)
        if divisor is None or divisor <= 0:
            return None  # a divisor of unknown sign: the code generator's own rule is as short
        kind = E.TruncDiv if isinstance(item, E.FloorDiv) else E.TruncMod
        plain: E.Expr = kind(item.a, item.b)
        if item.dtype.lanes == 1 and interval_of(item.a, self.ranges)[0] >= 0:
            return plain
        is_low = E.LT(E.TruncMod(item.a, item.b), _like(0, item.a))
        if isinstance(item, E.FloorDiv):
            return E.Sub(plain, build.cast(is_low, item.dtype))
        return E.Add(plain, E.Select(is_low, item.b, _like(0, item.b)))


def _like(value: int, item: E.Expr) -> E.Expr:
    return build.const(value, item.dtype)


LowerIntrin = prim_pass("lower-intrin", "tir.LowerIntrin")(lower_intrin)
