"""vision.suppress_overlaps: the best boxes of every class, none of which overlaps a better one too much.

In: boxes (batch, n, 4), scores (batch, classes, n) and two thresholds, all float32. Out: (batch, classes, most) int64,
the numbers of the boxes that stay, best first, -1 behind them. Of equal scores the earlier box is the better one. The
loops take the scores above the threshold, sort them (_order.py) and compare each box with those that stay, a vector of
them at a time: no table of n x n overlaps. Invariant: overlaps are compared as in ONNX Runtime, common / whole >
threshold. The ONNX operator, whose result is a list of all classes: frontend/onnx/bounded.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Extent, Known, typical
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import LANES, load, loop, rows, scratch, store
from armillary.ops.nn._windows import Tensor, f32, need_rank, need_tensor, same_dim
from armillary.ops.reduce._order import (
    Pairs,
    allocate,
    key_of,
    lanes_sum,
    let,
    lowest_key,
    pairs_of,
    sort_pairs,
    sorted_size,
    whole_vectors,
)
from armillary.ops.reduce.open_order import sort_open
from armillary.ops.reduce.sort import numpy_argsort
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.expr import Var
    from armillary.tir.stmt import Buffer, Stmt

NAME = "vision.suppress_overlaps"
Value = TypeVar("Value", Array, "Scalar")
_SIZES = (128, 1024)  # boxes above the threshold that are sorted as so many; of more, all are


@record
class SuppressAttrs:
    """At most `most` boxes of a class; `centred`: centre and size, not corners; `has_least`: there is a least score."""

    most: int | Extent
    centred: bool = False
    has_least: bool = True


_INPUTS = ("boxes", "scores", "iou_threshold", "score_threshold")
suppress_overlaps = Op(NAME, kind=Kind.OPAQUE, inputs=_INPUTS, doc="Boxes that overlap no better one of their class.")
suppress_overlaps.attrs(SuppressAttrs)


@suppress_overlaps.infer
def infer(attrs: SuppressAttrs, boxes: Type, scores: Type, iou: Type, least: Type) -> TensorType:
    b, s = (need_rank(NAME, need_tensor(NAME, t, what), 3, what) for t, what in ((boxes, "boxes"), (scores, "scores")))
    for what, t in (("boxes", b), ("scores", s), ("iou_threshold", iou), ("score_threshold", least)):
        ty = need_tensor(NAME, t, what)
        is_number = what.endswith("threshold")
        if str(ty.dtype) != "float32" or (is_number and ty.ndim):
            raise TypeMismatch(f"{NAME}: {what} is {ty}, wanted {'a scalar' if is_number else 'data'} of float32")
    if not all(map(same_dim, b.shape, (s.shape[0], s.shape[2], 4))):
        raise TypeMismatch(f"{NAME}: boxes {b} do not fit scores {s}", hint="(batch, n, 4) and (batch, classes, n)")
    if isinstance(attrs.most, int) and attrs.most < 1:
        raise TypeMismatch(f"{NAME}: most is {attrs.most}, wanted at least 1")
    return TensorType((*s.shape[:2], attrs.most), DType("int64"))


@record
class _Formulas(Generic[Value]):
    """What the rules below need, of numpy or of the loop language."""

    zero: Value
    one: Value
    two: Value
    minimum: Callable[[Value, Value], Value]
    maximum: Callable[[Value, Value], Value]
    where: Callable[[Value, Value, Value], Value]


def _corners(m: _Formulas[Value], centred: bool, box: Sequence[Value]) -> list[Value]:
    """The low and high ends of a box along both axes; m has minimum and maximum."""
    a, b, c, d = box
    if centred:
        half_w, half_h = c / m.two, d / m.two
        return [b - half_h, a - half_w, b + half_h, a + half_w]
    return [m.minimum(a, c), m.minimum(b, d), m.maximum(a, c), m.maximum(b, d)]


def _share(m: _Formulas[Value], one: Sequence[Value], other: Sequence[Value]) -> Value:
    """What the areas of two boxes (ends and area) have in common, of what they cover together."""
    height, width = (
        m.maximum(m.minimum(one[high], other[high]) - m.maximum(one[low], other[low]), m.zero)
        for low, high in ((0, 2), (1, 3))
    )
    common = height * width
    whole = one[4] + other[4] - common
    share: Value = common / m.where(whole > m.zero, whole, m.one)
    return share


def _with_area(ends: Sequence[Value]) -> list[Value]:
    area: Value = (ends[2] - ends[0]) * (ends[3] - ends[1])
    result = list(ends)
    result.append(area)
    return result


_ZERO, _ONE, _TWO = (np.asarray(v, np.float32) for v in (0, 1, 2))
_NUMPY: _Formulas[Array] = _Formulas(_ZERO, _ONE, _TWO, np.minimum, np.maximum, np.where)


def _loops() -> _Formulas[Scalar]:
    """The same of the loop language."""
    zero, one, two = (T.const(float(v), "float32") for v in (0, 1, 2))
    return _Formulas(zero, one, two, T.minimum, T.maximum, T.select)


@suppress_overlaps.reference
def reference(attrs: SuppressAttrs, boxes: Array, scores: Array, iou: Array, least: Array) -> Array:
    out = np.full((*scores.shape[:2], attrs.most), -1, np.int64)
    for b, c in np.ndindex(*scores.shape[:2]):
        ends = _with_area(_corners(_NUMPY, attrs.centred, [boxes[b, :, k] for k in range(4)]))
        order = [i for i in numpy_argsort(scores[b, c], 0, False) if not attrs.has_least or scores[b, c, i] > least]
        best, retained = np.empty((5, len(order)), np.float32), 0
        for i in order:
            if retained == attrs.most:
                break
            one = [v[i] for v in ends]
            if not np.any(_share(_NUMPY, one, list(best[:, :retained])) > iou):
                best[:, retained], out[b, c, retained] = one, i
                retained += 1
    return out


# --- loops --------------------------------------------------------------------------------------------------------


@record
class _Class:
    """One class of one image: its inputs, where it is written, and the boxes that stay."""

    attrs: SuppressAttrs
    size: Known
    box: Callable[[Scalar, int], Scalar]
    score: Callable[[Scalar], Scalar]
    iou: Scalar
    least: Scalar
    put: Callable[[Scalar, Scalar], Stmt]  # number of the box, place
    ends: tuple[Buffer, ...]


@suppress_overlaps.flops
def flops(attrs: SuppressAttrs, types: Sequence[TensorType], _result: TensorType) -> int:
    """Each box is compared with those that stay: seven operations and four comparisons."""
    batch, classes, size = types[1].typical
    return 11 * batch * classes * size * min(size, typical(attrs.most))


@suppress_overlaps.compute
def compute(attrs: SuppressAttrs, boxes: Tensor, scores: Tensor, iou: Tensor, least: Tensor) -> Tensor:
    batch, classes, size = te.extents(scores)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        def row(i: list[Scalar]) -> Stmt:
            names = ("low_y", "low_x", "high_y", "high_x", "area")
            one = _Class(
                attrs,
                size,
                lambda n, k: load(ins[0], i[0], n, k),
                lambda n: load(ins[1], *i, n),
                load(ins[2]),
                load(ins[3]),
                lambda n, place: store(outs[0], n, *i, place),
                tuple(scratch(name, (attrs.most + LANES - 1) // LANES * LANES, "float32") for name in names),
            )
            return _suppress(one)

        return rows([batch, classes], row)

    shape = (batch, classes, attrs.most)
    result: Tensor = te.extern([shape], [boxes, scores, iou, least], body, name="suppress", dtype=["int64"])
    return result


def _suppress(one: _Class) -> Stmt:
    """Take, sort, compare."""
    size = one.size
    room = max(sorted_size(size), size + 1) if isinstance(size, int) else size + 1
    pairs, spare = (pairs_of(name, room, "int32") for name in ("pairs", "spare"))
    count, retained = (scratch(name, 1, "int32", "local") for name in ("count", "kept"))

    def ordered(sizes: tuple[int, ...]) -> Stmt:
        """Sort as few as there are, and compare from where they are then."""
        if not sizes:
            in_order = sort_open(pairs, spare, load(count, 0))
            return S.seq(in_order, _compare(one, pairs.places, load(count, 0), retained))
        size, *more = sizes
        fill = _fill(pairs, load(count, 0), size)
        in_order, where = sort_pairs(pairs, spare, size)
        here = S.seq(fill, in_order, _compare(one, where.places, load(count, 0), retained))
        return S.IfThenElse(T.less_equal(load(count, 0), size), here, ordered(tuple(more))) if more else here

    sizes = (*(n for n in _SIZES if n < size), size) if isinstance(size, int) else ()
    return allocate(
        [count, retained, pairs.keys, pairs.places, spare.keys, spare.places, *one.ends],
        store(count, 0, 0),
        store(retained, 0, 0),
        loop("j", T.convert(one.attrs.most), lambda j: one.put(T.const(-1), j)),
        *map(_zeros, one.ends),
        _take(one, pairs, count),
        ordered(sizes),
    )


def _zeros(buffer: Buffer) -> Stmt:
    return loop("j", buffer.shape[0], lambda j: store(buffer, T.const(0.0, "float32"), j))


def _take(one: _Class, pairs: Pairs, count: Buffer) -> Stmt:
    """The boxes whose score exceeds the threshold; a vector without any is passed over."""

    def offer(i: Scalar) -> Stmt:
        def put(value: Var) -> Stmt:
            step = T.cast(T.greater(value, one.least), "int32") if one.attrs.has_least else T.const(1)
            return S.seq(
                store(pairs.keys, key_of(value, ascending=False), load(count, 0)),
                store(pairs.places, i, load(count, 0)),
                store(count, T.add(load(count, 0), step), 0),
            )

        return let(one.score(i), put)

    if not one.attrs.has_least:
        return loop("i", T.convert(one.size), offer)
    taken = scratch("found", LANES, "int32", "local")

    def vector(v: Var) -> Stmt:
        def lane(n: Var) -> Stmt:
            return store(taken, T.cast(T.greater(one.score(v * LANES + n), one.least), "int32"), n)

        total = lanes_sum(taken)
        some = loop("n", LANES, lambda n: offer(v * LANES + n))
        return allocate([taken], loop("n", LANES, lane, S.LoopKind.VECTORIZED), S.IfThenElse(T.greater(total, 0), some))

    whole = one.size // LANES
    rest = one.size - whole * LANES
    tail = loop("i", T.convert(rest), lambda i: offer(T.add(i, whole * LANES)))
    return S.seq(*([loop("v", T.convert(whole), vector)] if whole != 0 else []), *([tail] if rest != 0 else []))


def _fill(pairs: Pairs, count: Scalar, size: int) -> Stmt:
    """The lowest keys behind those that were taken."""
    lowest = lowest_key("int32")
    return loop(
        "i",
        T.maximum(T.sub(size, count), 0),
        lambda i: S.seq(store(pairs.keys, lowest, T.add(count, i)), store(pairs.places, 0, T.add(count, i))),
    )


def _compare(one: _Class, places: Buffer, count: Scalar, survivors: Buffer) -> Stmt:
    """Each box in order: it stays unless one that stays covers it."""
    m, covered = _loops(), scratch("covered", LANES, "int32", "local")
    own = scratch("own", 5, "float32", "local")

    def visit(i: Var) -> Stmt:
        def box(number: Var) -> Stmt:
            ends = _with_area(_corners(m, one.attrs.centred, [one.box(number, k) for k in range(4)]))

            def against(v: Var) -> Stmt:
                def lane(n: Var) -> Stmt:
                    other = [load(e, v * LANES + n) for e in one.ends]
                    share = _share(m, other, [load(own, k) for k in range(5)])
                    is_over = T.cast(T.greater(share, one.iou), "int32")
                    return store(covered, T.add(load(covered, n), is_over), n)

                return loop("n", LANES, lane, S.LoopKind.VECTORIZED)

            total = lanes_sum(covered)
            stays = S.seq(
                *(store(e, load(own, k), load(survivors, 0)) for k, e in enumerate(one.ends)),
                one.put(number, load(survivors, 0)),
                store(survivors, T.add(load(survivors, 0), 1), 0),
            )
            return allocate(
                [own, covered],
                *(store(own, value, k) for k, value in enumerate(ends)),
                loop("n", LANES, lambda n: store(covered, 0, n), S.LoopKind.VECTORIZED),
                loop("v", whole_vectors(load(survivors, 0)), against),
                S.IfThenElse(T.equal(total, 0), stays),
            )

        return S.IfThenElse(T.less(load(survivors, 0), one.attrs.most), let(load(places, i), box))

    return loop("i", count, visit)


@suppress_overlaps.samples
def samples() -> Iterator[Sample]:
    half, third = np.array(0.5, np.float32), np.array(0.3, np.float32)
    rng = np.random.default_rng(0)
    low = rng.integers(0, 9, (2, 20, 2))
    boxes = np.concatenate([low, low + rng.integers(1, 6, (2, 20, 2))], 2).astype(np.float32)
    scores = (rng.integers(0, 6, (2, 3, 20)) / 6).astype(np.float32)
    yield Sample(SuppressAttrs(5), (boxes, scores, half, third))
    yield Sample(SuppressAttrs(30, has_least=False), (boxes[..., [2, 3, 0, 1]], scores, third, third))
    yield Sample(SuppressAttrs(2, centred=True), (boxes, scores, third, half))


@suppress_overlaps.bad_samples
def bad_samples() -> Iterator[BadSample]:
    number = np.array(0.5, np.float32)
    yield BadSample(SuppressAttrs(5), (f32(1, 7, 4), f32(1, 2, 8), number, number), "do not fit scores")
    yield BadSample(SuppressAttrs(0), (f32(1, 7, 4), f32(1, 2, 7), number, number), "wanted at least 1")
    yield BadSample(SuppressAttrs(1), (f32(1, 7, 4), f32(1, 2, 7), f32(1), number), "wanted a scalar")
