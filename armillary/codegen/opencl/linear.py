"""Integer expressions as sums of multiples, for what lies in images and private arrays.

In: an expression. Out: what is multiplied, by its text, with its factor; and a number. Invariant: their sum is the
expression; factors are never 0; variables of one name are told apart.
"""

from __future__ import annotations

from armillary.base.node import post_order
from armillary.tir import build
from armillary.tir import expr as E

Terms = dict[str, tuple[E.Expr, int]]  # by its text, what is multiplied with a number


def linear(item: E.Expr) -> tuple[Terms, int]:
    """An integer expression as a sum of multiples and a number."""
    if isinstance(item, E.IntImm):
        return {}, item.value
    if isinstance(item, E.Add | E.Sub):
        (a, x), (b, y) = linear(item.a), linear(item.b)
        return (_sum(a, b), x + y) if isinstance(item, E.Add) else (difference(a, b), x - y)
    if isinstance(item, E.Mul):
        for one, other in ((item.a, item.b), (item.b, item.a)):
            factor = build.as_int(other)
            if factor is not None:
                terms, number = linear(one)
                return {k: (e, c * factor) for k, (e, c) in terms.items() if c * factor}, number * factor
    return {_key(item): (item, 1)}, 0


def _key(item: E.Expr) -> str:
    """A text that only the same expression has: variables are told apart by identity."""
    return f"{item}|{[id(n) for n in post_order(item) if isinstance(n, E.Var)]}"


def _sum(a: Terms, b: Terms) -> Terms:
    result = dict(a)
    for key, (item, count) in b.items():
        total = result.get(key, (item, 0))[1] + count
        result[key] = (item, total)
        if not total:
            del result[key]
    return result


def difference(a: Terms, b: Terms) -> Terms:
    """What is left of terms without others."""
    return _sum(a, {key: (item, -count) for key, (item, count) in b.items()})
