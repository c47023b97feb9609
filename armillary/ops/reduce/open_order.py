"""Sorting as many values as are known only when a program runs: merges of runs that double, stable.

In: pairs of keys and places (_order.py) and how many there are, an expression. Out: statements that leave the pairs in
order, largest key first. Invariant: of equal keys the earlier comes first; nothing behind the pairs is read. For sizes
that are known _order.py sorts by vectors, several times as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from armillary.base.extent import most
from armillary.ops._deferred import S, T
from armillary.ops._loops import Index, load, loop, scratch, store
from armillary.ops.reduce._order import Pairs, allocate, let, pairs_of

if TYPE_CHECKING:
    from armillary.base.extent import Known
    from armillary.tir.expr import Expr, Var
    from armillary.tir.stmt import Stmt

_PASSES = 31  # widths of runs: 1, 2, 4, … while they are below 2^31


def sort_open(pairs: Pairs, spare: Pairs, count: Expr) -> Stmt:
    """Sort the first `count` pairs, in place; `spare` has as much room."""

    def one_pass(number: Var) -> Stmt:
        def merged(width: Var) -> Stmt:
            blocks = T.floordiv(T.add(count, T.sub(T.mul(width, 2), 1)), T.mul(width, 2))
            merges = loop("block", blocks, lambda b: _merge(pairs, spare, T.mul(b, T.mul(width, 2)), width, count))
            back = loop("i", count, lambda i: _moved(spare, pairs, i, i))
            return S.IfThenElse(T.less(width, count), S.seq(merges, back))

        return let(T.shift_left(T.const(1), number), merged)

    return loop("pass", _PASSES - 1, one_pass)


def _moved(source: Pairs, target: Pairs, at: Index, to: Index) -> Stmt:
    return S.seq(store(target.keys, load(source.keys, at), to), store(target.places, load(source.places, at), to))


def _merge(source: Pairs, target: Pairs, start: Expr, width: Expr, count: Expr) -> Stmt:
    """Two runs that lie one behind the other, of `width` or what is left."""
    left, right = (scratch(name, 1, "int32", "local") for name in ("left", "right"))
    last = T.sub(count, 1)

    def runs(middle: Var, end: Var) -> Stmt:
        def step(n: Var) -> Stmt:
            a, b = load(left, 0), load(right, 0)
            larger = T.greater(load(source.keys, T.minimum(b, last)), load(source.keys, T.minimum(a, last)))
            takes = T.logical_and(T.less(b, end), T.logical_or(T.greater_equal(a, middle), larger))

            def move(taken: Var) -> Stmt:
                at = T.add(T.mul(taken, b), T.mul(T.sub(1, taken), a))
                return S.seq(
                    let(at, lambda place: _moved(source, target, place, T.add(start, n))),
                    store(right, T.add(load(right, 0), taken), 0),
                    store(left, T.add(load(left, 0), T.sub(1, taken)), 0),
                )

            return let(T.cast(takes, "int32"), move)

        return allocate(
            [left, right], store(left, start, 0), store(right, middle, 0), loop("n", T.sub(end, start), step)
        )

    middle, end = T.minimum(T.add(start, width), count), T.minimum(T.add(start, T.mul(width, 2)), count)
    return let(middle, lambda m: let(end, lambda e: runs(m, e)))


def ordered_places(key_at: Callable[[Expr], Expr], size: Known, dtype: str, then: Callable[[Pairs], Stmt]) -> Stmt:
    """Statements that know the pairs of a row of `size` values in order."""
    pairs, spare = (pairs_of(name, most(size, 1), dtype) for name in ("pairs", "spare"))
    fill = loop("i", size, lambda i: S.seq(store(pairs.keys, key_at(i), i), store(pairs.places, i, i)))
    scratches = [pairs.keys, pairs.places, spare.keys, spare.places]
    return allocate(scratches, fill, sort_open(pairs, spare, T.convert(size)), then(pairs))
