"""Loops that select and sort without branches: keys, the k-th largest of many, and runs sorted by counting and merged.

In: a row of values of any number type. Out: statements that leave the positions of its k first values, in order, in
scratch memory. A value becomes a *key*, a signed integer whose order is the order of the result, so that nothing below
knows NaN, -0 or directions. Invariant: of equal keys the earlier position comes first; keys come in vectors, the
last of which is filled with the lowest key, which no threshold counts. Users: sort.py, vision/nms.py.

A threshold is found bit by bit: count the keys that reach it, keep the bit if k do. Of long rows the maxima of blocks
are enough: as k blocks reach the k-th largest maximum, the k first values do, and they lie in few blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from armillary.base.dtype import DType
from armillary.base.extent import Known
from armillary.base.record import record
from armillary.ops._deferred import E, S, T
from armillary.ops._loops import LANES, Index, load, loop, scratch, store

if TYPE_CHECKING:
    from armillary.tir.expr import Expr, Var
    from armillary.tir.stmt import Buffer, Stmt

RUN = 128  # keys that are sorted by counting, at most: of twice as many another merge is cheaper


@record
class Pairs:
    """Keys and the positions in the row that they belong to."""

    keys: Buffer
    places: Buffer


def pairs_of(name: str, size: Known, dtype: str) -> Pairs:
    """Scratch memory for pairs."""
    return Pairs(scratch(f"{name}_keys", size, dtype), scratch(f"{name}_places", size, "int32"))


def key_dtype(dtype: DType) -> str:
    """The dtype of the keys of a type."""
    return "int64" if dtype.bits > 32 else "int32"


def lowest_key(dtype: str) -> Expr:
    """The key that is never counted."""
    return T.const(DType(dtype).min_value, dtype)


def key_of(value: Expr, ascending: bool) -> Expr:
    """An integer that is larger the earlier a value comes; NaN is the largest value, and -0 equals 0."""
    dtype = key_dtype(value.dtype)
    if value.dtype.is_float:
        key = _float_key(T.cast(value, "float64" if dtype == "int64" else "float32"), dtype)
    elif value.dtype.code == "uint" and value.dtype.bits in (32, 64):
        key = T.bitwise_xor(T.call("reinterpret", value, dtype=dtype), lowest_key(dtype))
    else:
        key = T.cast(value, dtype)
    return T.bitwise_not(key) if ascending else key


def _float_key(value: Expr, dtype: str) -> Expr:
    """The bits of a number, with those below the sign inverted for negative ones."""
    bits = T.call("reinterpret", T.add(value, T.const(0.0, value.dtype)), dtype=dtype)
    sign = T.shift_right(bits, T.const(value.dtype.bits - 1, dtype))
    most = T.const(DType(dtype).max_value, dtype)
    return T.select(T.not_equal(value, value), most, T.bitwise_xor(bits, T.bitwise_and(sign, most)))


def allocate(buffers: Sequence[Buffer], *body: Stmt) -> Stmt:
    """The statements with scratch memory."""
    result = S.seq(*body)
    for buffer in reversed(buffers):
        result = S.Allocate(buffer, result)
    return result


def let(value: Expr, body: Callable[[Var], Stmt]) -> Stmt:
    """A value that is computed once."""
    name = T.var("known", str(value.dtype))
    return S.LetStmt(name, value, body(name))


def _vector(body: Callable[[Var], Stmt]) -> Stmt:
    return loop("lane", LANES, body, S.LoopKind.VECTORIZED)


def lanes_sum(buffer: Buffer) -> Expr:
    """The sum of a vector of LANES integers."""
    lanes = E.BufferLoad(buffer, (E.Ramp(T.const(0), T.const(1), LANES),))
    return T.call("vector_reduce_add", lanes, dtype=str(buffer.dtype))


def whole_vectors(count: Index) -> Any:  # Any: a number or an expression
    """Vectors that hold so many keys."""
    return -(-count // LANES) if isinstance(count, int) else T.floordiv(T.add(count, LANES - 1), LANES)


def fill_keys(keys: Buffer, key_at: Callable[[Expr], Expr], size: int) -> Stmt:
    """The keys of a whole row, and the lowest key behind it."""
    whole, rest = divmod(size, LANES)

    def vector(v: Var) -> Stmt:
        return _vector(lambda lane: store(keys, key_at(v * LANES + lane), v * LANES + lane))

    steps = [loop("v", whole, vector)] if whole else []
    if rest:
        steps.append(loop("i", rest, lambda i: store(keys, key_at(T.add(i, whole * LANES)), T.add(i, whole * LANES))))
        steps.append(lowest_behind(keys, size))
    return S.seq(*steps)


def lowest_behind(keys: Buffer, count: Index) -> Stmt:
    """The lowest key in the rest of the last vector."""
    lowest, missing = lowest_key(str(keys.dtype)), LANES - 1
    return loop("i", missing, lambda i: store(keys, lowest, T.add(count, i)))


def counted(keys: Buffer, count: Index, stays: Callable[[Expr], Expr], then: Callable[[Expr], Stmt]) -> Stmt:
    """Statements that know how many of the first `count` keys a test lets stay; the last vector counts as a whole."""
    dtype = str(keys.dtype)
    sums = scratch("sums", LANES, dtype, "local")
    one, zero = T.const(1, dtype), T.const(0, dtype)

    def add(v: Var) -> Stmt:
        return _vector(
            lambda n: store(sums, T.add(load(sums, n), T.select(stays(load(keys, v * LANES + n)), one, zero)), n)
        )

    return allocate(
        [sums],
        _vector(lambda n: store(sums, zero, n)),
        loop("v", whole_vectors(count), add),
        then(lanes_sum(sums)),
    )


def kth_largest(keys: Buffer, count: Index, k: int, place: Buffer) -> Stmt:
    """found[0] = the largest threshold that k keys reach; found[1] = 1 if exactly k do.

    The bits are those of the unsigned number, of which the lowest key is 0.
    """
    dtype, bits = str(keys.dtype), keys.dtype.bits
    one, zero = T.const(1, dtype), T.const(0, dtype)

    def try_bit(bit: Var) -> Stmt:
        step = T.shift_left(one, T.sub(T.const(bits - 1, dtype), T.cast(bit, dtype)))

        def test(threshold: Var) -> Stmt:
            def keep(n: Expr) -> Stmt:
                exact = T.select(T.equal(n, k), one, zero)
                return S.IfThenElse(T.greater_equal(n, k), S.seq(store(place, threshold, 0), store(place, exact, 1)))

            return counted(keys, count, lambda key: T.greater_equal(key, threshold), lambda sums: let(sums, keep))

        return S.IfThenElse(T.equal(load(place, 1), 0), let(T.bitwise_xor(load(place, 0), step), test))

    return S.seq(store(place, lowest_key(dtype), 0), store(place, 0, 1), loop("bit", bits, try_bit))


class Collector:
    """Takes the keys that reach a threshold, and of those equal to it only so many: the first that are offered."""

    def __init__(self, pairs: Pairs, threshold: Expr, equal: Index) -> None:
        self.pairs, self.threshold, self.equal = pairs, threshold, equal
        self.count, self.left = (scratch(name, 1, "int32", "local") for name in ("count", "left"))

    def around(self, *body: Stmt) -> Stmt:
        """Statements that offer keys."""
        return allocate([self.count, self.left], store(self.count, 0, 0), store(self.left, self.equal, 0), *body)

    def offer(self, key: Expr, place: Expr) -> Stmt:
        """Write behind what was taken, and count it if it is to stay."""

        def put(value: Var) -> Stmt:
            is_equal = T.logical_and(T.equal(value, self.threshold), T.greater(load(self.left, 0), 0))
            both = T.logical_or(T.greater(value, self.threshold), is_equal)
            return S.seq(
                store(self.pairs.keys, value, load(self.count, 0)),
                store(self.pairs.places, place, load(self.count, 0)),
                let(T.cast(both, "int32"), lambda n: store(self.count, T.add(load(self.count, 0), n), 0)),
                store(self.left, T.sub(load(self.left, 0), T.cast(T.equal(value, self.threshold), "int32")), 0),
            )

        return let(key, put)

    def offer_above(self, key: Expr, place: Expr) -> Stmt:
        """The same where every key that is equal to the threshold stays."""

        def put(value: Var) -> Stmt:
            step = T.cast(T.greater_equal(value, self.threshold), "int32")
            return S.seq(
                store(self.pairs.keys, value, load(self.count, 0)),
                store(self.pairs.places, place, load(self.count, 0)),
                store(self.count, T.add(load(self.count, 0), step), 0),
            )

        return let(key, put)


def above(keys: Buffer, count: Index, threshold: Expr, into: Buffer) -> Stmt:
    """into[0] = how many keys are greater than a threshold."""
    return counted(keys, count, lambda key: T.greater(key, threshold), lambda sums: store(into, sums, 0))


def select_largest(keys: Buffer, place_at: Callable[[Expr], Expr], count: Index, k: int, pairs: Pairs) -> Stmt:
    """The k largest keys with their places, in the order in which they lie; of equal ones the first."""
    extreme, greater = scratch("found", 2, str(keys.dtype), "local"), scratch("greater", 1, "int32", "local")
    threshold = load(extreme, 0)

    def collect(low: Var) -> Stmt:
        taken = Collector(pairs, low, T.sub(k, load(greater, 0)))
        every = taken.around(loop("i", count, lambda i: taken.offer_above(load(keys, i), place_at(i))))
        first = taken.around(loop("i", count, lambda i: taken.offer(load(keys, i), place_at(i))))
        return S.IfThenElse(T.equal(load(extreme, 1), 1), every, S.seq(above(keys, count, low, greater), first))

    return allocate([extreme, greater], kth_largest(keys, count, k, extreme), let(threshold, collect))


# --- sorting ------------------------------------------------------------------------------------------------------


def sorted_shape(k: int) -> tuple[int, int]:
    """How k pairs are sorted: the length of a run, and how often runs are merged."""
    merges = max(0, (-(-k // RUN) - 1).bit_length())
    runs = 1 << merges
    return whole_vectors(-(-k // runs)) * LANES, merges


def sorted_size(k: int) -> int:
    """Pairs of scratch memory that sorting k of them takes."""
    run, merges = sorted_shape(k)
    return run << merges


def sort_pairs(pairs: Pairs, spare: Pairs, k: int) -> tuple[Stmt, Pairs]:
    """Sort the first k pairs, largest key first, stable; and where they are then. Behind them lie lowest keys."""
    run, merges = sorted_shape(k)
    lowest = lowest_key(str(pairs.keys.dtype))
    fill = loop(
        "i",
        sorted_size(k) - k,
        lambda i: S.seq(store(pairs.keys, lowest, T.add(i, k)), store(pairs.places, 0, T.add(i, k))),
    )
    steps = [fill, loop("run", 1 << merges, lambda r: _count_run(pairs, spare, r * run, run))]
    source, target, width = spare, pairs, run
    for merge in range(merges):
        steps.append(loop("block", 1 << (merges - merge - 1), _merge_of(source, target, width)))
        source, target, width = target, source, width * 2
    return S.seq(*steps), source


def _count_run(source: Pairs, target: Pairs, base: Expr, size: int) -> Stmt:
    """Each pair of a run goes to the place given by how many come before it."""
    dtype = str(source.keys.dtype)
    one, zero = T.const(1, dtype), T.const(0, dtype)
    ranks, stored = scratch("ranks", LANES, dtype, "local"), scratch("stored", LANES, dtype)

    def block(v: Var) -> Stmt:
        first, behind = T.add(base, v * LANES), T.add(base, T.add(v * LANES, LANES))

        def compare(begin: Index, count: Index, comes_before: Callable[[Expr, Expr, Expr, Var], Expr]) -> Stmt:
            def against(j: Var) -> Stmt:
                place = T.add(begin, j)

                def vector(other: Var) -> Stmt:
                    def lane(n: Var) -> Stmt:
                        is_before = comes_before(other, load(source.keys, T.add(first, n)), j, n)
                        return store(ranks, T.add(load(ranks, n), T.select(is_before, one, zero)), n)

                    return _vector(lane)

                return let(load(source.keys, place), vector)

            return loop("j", count, against)

        def place(n: Var) -> Stmt:
            at = T.add(base, T.cast(load(stored, n), "int32"))
            return S.seq(
                store(target.keys, load(source.keys, T.add(first, n)), at),
                store(target.places, load(source.places, T.add(first, n)), at),
            )

        def ties(other: Expr, own: Expr, j: Expr, n: Var) -> Expr:
            tie = T.logical_and(T.equal(other, own), T.less(T.cast(j, "int32"), T.cast(n, "int32")))
            return T.logical_or(T.greater(other, own), tie)

        return allocate(
            [ranks, stored],
            _vector(lambda n: store(ranks, zero, n)),
            compare(base, v * LANES, lambda other, own, j, n: T.greater_equal(other, own)),
            compare(first, LANES, ties),
            compare(behind, T.sub(size - LANES, v * LANES), lambda other, own, j, n: T.greater(other, own)),
            _vector(lambda n: store(stored, load(ranks, n), n)),
            loop("n", LANES, place),
        )

    return loop("v", size // LANES, block)


def _merge_of(source: Pairs, target: Pairs, width: int) -> Callable[[Var], Stmt]:
    """Merge two runs of `width` from both ends: in as many steps neither run is used up, so that nothing is asked."""

    def block(number: Var) -> Stmt:
        front, back = (scratch(name, 1, "int32", "local") for name in ("front", "back"))  # what the right run gave
        start = number * (2 * width)
        middle, last = T.add(start, width), T.add(start, 2 * width - 1)

        def move(left: Expr, right: Expr, to: Expr, count: Buffer, is_next: Callable[[Expr, Expr], Expr]) -> Stmt:
            def put(a: Var, b: Var) -> Stmt:
                taken = is_next(b, a)
                at = T.select(taken, right, left)
                return S.seq(
                    store(target.keys, T.select(taken, b, a), to),
                    store(target.places, load(source.places, at), to),
                    store(count, T.add(load(count, 0), T.cast(taken, "int32")), 0),
                )

            return let(load(source.keys, left), lambda a: let(load(source.keys, right), lambda b: put(a, b)))

        def step(n: Var) -> Stmt:
            key, returned = load(front, 0), load(back, 0)
            left = T.sub(T.add(start, n), key)
            behind = T.sub(T.add(T.sub(middle, 1), returned), n)
            return S.seq(
                move(left, T.add(middle, key), T.add(start, n), front, T.greater),
                move(behind, T.sub(last, returned), T.sub(last, n), back, T.less_equal),
            )

        return allocate([front, back], store(front, 0, 0), store(back, 0, 0), loop("n", width, step))

    return block
