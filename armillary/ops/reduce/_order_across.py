"""The few best of short rows, a row for each lane of a vector.

In: keys (see _order.py) of which a vector holds one of each of LANES rows. Out: statements that leave the positions of
the best, in order, in scratch memory. Invariant: of equal keys the earlier position comes first: a key that is offered
goes behind those that are as large. What a key costs is a comparison and four selections for each of the best, for all
rows of the vector together. Longer rows and more of them: _order.py. Users: sort.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from armillary.ops._deferred import S, T
from armillary.ops._loops import LANES, load, loop, scratch, store
from armillary.ops.reduce._order import allocate

if TYPE_CHECKING:
    from armillary.tir.expr import Expr, Var
    from armillary.tir.stmt import Buffer, Stmt

KeyAt = Callable[["Expr", "Expr"], "Expr"]  # position in the rows, lane


def keep_best(key_at: KeyAt, size: int, k: int, dtype: str, best: Buffer) -> Stmt:
    """found[slot * LANES + lane] = the position of the best but `slot` of a row."""
    keys, places = scratch("best_keys", k * LANES, dtype, "local"), scratch("best_places", k * LANES, "int32", "local")

    def offer(i: Expr, filled: int) -> Stmt:
        """Put element i where it belongs among the first `filled`; what is behind it moves on."""

        def lane(n: Var) -> Stmt:
            key = T.var("key", dtype)
            steps = [step for slot in reversed(range(min(filled + 1, k))) for step in moved(slot, key, i, n)]
            return S.LetStmt(key, key_at(i, n), S.seq(*steps))

        def moved(slot: int, key: Expr, place: Expr, n: Expr) -> list[Stmt]:
            at, before = T.add(n, slot * LANES), T.add(n, (slot - 1) * LANES)
            result = []
            for buffer, new in ((places, place), (keys, key)):  # the places first: the keys decide
                own = new if slot == filled else T.select(T.greater(key, load(keys, at)), new, load(buffer, at))
                value = own if slot == 0 else T.select(T.greater(key, load(keys, before)), load(buffer, before), own)
                result.append(store(buffer, value, at))
            return result

        return loop("lane", LANES, lane, S.LoopKind.VECTORIZED)

    def rest(i: Var) -> Stmt:
        return offer(T.add(i, k), k)

    def put(slot: int) -> Stmt:
        def lane(n: Var) -> Stmt:
            return store(best, load(places, T.add(n, slot * LANES)), T.add(n, slot * LANES))

        return loop("lane", LANES, lane, S.LoopKind.VECTORIZED)

    first = [offer(T.const(i), i) for i in range(k)]
    return allocate([keys, places], *first, loop("i", size - k, rest), *map(put, range(k)))
