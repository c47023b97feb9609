"""ml.tree_ensemble: what the trees of a forest say of each row, added up by target.

In: data (rows, features); for each node its feature, its threshold and its children: where x <= threshold, elsewhere,
and (a third column, if there is one) where x is NaN; for each tree its root and depth; for each leaf the targets that
it speaks of and what it adds to them. Out: (rows, targets). Invariant: leaves are the nodes from `first_leaf` on and
their own children, so a walk of a tree's depth ends at one from anywhere; a target that no leaf speaks of is 0; trees
are added up in their order. NaN is no number <= a threshold. A kernel follows the tables wherever they lead, so those
of whole numbers are constants when a network is built, and are looked at then (and by the reference).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.extent import Known, ceil_div, typical
from armillary.base.record import record
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import Index, load, loop, scratch, store
from armillary.ops._types import check_kind
from armillary.ops.nn._windows import Tensor, f32, need_dtype, need_float, need_rank, need_shape
from armillary.relay.expr import Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, constant_value
from armillary.relay.types import TensorType, Type

if TYPE_CHECKING:
    from armillary.tir.stmt import Buffer, Stmt

NAME = "ml.tree_ensemble"
_INPUTS = ("data", "features", "thresholds", "children", "roots", "depths", "leaf_targets", "leaf_weights")
_AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")
_LANES = 8  # walks side by side: a step waits 20 cycles and more for its node, its feature and its child
_BLOCK = 64  # rows that use a tree while it is in the cache


@record
class TreeEnsembleAttrs:
    targets: int = 1
    first_leaf: int = 0
    aggregate: str = "SUM"


tree_ensemble = Op(NAME, kind=Kind.OPAQUE, inputs=_INPUTS, doc="What decision trees say of each row, by target.")
tree_ensemble.attrs(TreeEnsembleAttrs)


@tree_ensemble.infer
def _infer(
    attrs: TreeEnsembleAttrs,
    data: Type,
    features: Type,
    thresholds: Type,
    children: Type,
    roots: Type,
    depths: Type,
    leaf_targets: Type,
    leaf_weights: Type,
) -> TensorType:
    x, values = need_float(NAME, need_rank(NAME, data, 2)), need_rank(NAME, thresholds, 1, "thresholds")
    places = need_rank(NAME, children, 2, "children")
    weights = need_float(NAME, need_rank(NAME, leaf_weights, 2, "leaf_weights"), "leaf_weights")
    need_dtype(NAME, x, values)
    nodes = values.static[0]
    for name, table in (("features", features), ("children", places), ("roots", roots), ("depths", depths)):
        check_kind(NAME, name, need_rank(NAME, table, 2 if name == "children" else 1, name), "integer")
    check_kind(NAME, "leaf_targets", need_rank(NAME, leaf_targets, 2, "leaf_targets"), "integer")
    need_shape(NAME, "features", need_rank(NAME, features, 1, "features"), (nodes,))
    need_shape(NAME, "depths", need_rank(NAME, depths, 1, "depths"), need_rank(NAME, roots, 1, "roots").shape)
    need_shape(NAME, "leaf_targets", need_rank(NAME, leaf_targets, 2, "leaf_targets"), weights.shape)
    is_whole = attrs.first_leaf >= 0 and weights.static[0] == nodes - attrs.first_leaf
    if places.static not in ((nodes, 2), (nodes, 3)) or not is_whole:
        raise TypeMismatch(
            f"{NAME}: children {places}, leaf_weights {weights} of {nodes} nodes and {nodes - attrs.first_leaf} leaves"
        )
    if attrs.aggregate not in _AGGREGATES or attrs.targets < 1:
        raise TypeMismatch(
            f"{NAME}: aggregate {attrs.aggregate!r} of {attrs.targets} targets: {', '.join(_AGGREGATES)}"
        )
    return TensorType((x.shape[0], attrs.targets), weights.dtype)


def check_tables(
    attrs: TreeEnsembleAttrs,
    columns: int,
    features: Array,
    children: Array,
    roots: Array,
    depths: Array,
    leaf_targets: Array,
) -> None:
    """Refuse tables that lead a walk out of themselves, or to no leaf."""
    nodes, inner = len(children), attrs.first_leaf
    tables = [("child", children, nodes), ("root", roots, nodes), ("depth", depths, inner + 1)]
    tables += [("target", leaf_targets, attrs.targets)] + [("feature", features, columns)] * bool(np.any(depths))
    for what, table, end in tables:
        outside = table[(table < 0) | (table >= end)]
        if outside.size:
            raise TypeMismatch(f"{NAME}: {what} {outside[0]} is not in [0, {end - 1}]")
    if not np.array_equal(
        children[inner:], np.repeat(np.arange(inner, nodes), children.shape[1]).reshape(-1, children.shape[1])
    ):
        raise TypeMismatch(f"{NAME}: leaves are the nodes from {inner} on, and their own children")
    trees, front, level = np.arange(len(roots)), roots.astype(np.int64), 0
    while len(front):
        asks = front < inner
        trees, front = trees[asks], front[asks]
        late = depths[trees] <= level
        if late.any():
            tree = int(trees[late][0])
            raise TypeMismatch(
                f"{NAME}: a walk of tree {tree}, of depth {depths[tree]}, ends at no leaf, or has a circle"
            )
        reached = np.stack([np.repeat(trees, children.shape[1]), children[front].ravel()], 1)
        trees, front = np.unique(reached, axis=0).T
        level += 1


@tree_ensemble.decompose
def _checked(attrs: TreeEnsembleAttrs, data: Expr, *learnt: Expr) -> None:
    """It stays as it is, once its tables are known to be sound."""
    whole = ("features", "children", "roots", "depths", "leaf_targets")
    tables = []
    for name in whole:
        table = constant_value(learnt[_INPUTS.index(name) - 1])
        if table is None:
            raise UnsupportedError(f"{NAME}: {name} must be known when building", hint="pass the tables as constants")
        tables.append(table)
    columns = need_rank(NAME, data.checked_type, 2).shape[1]
    if not isinstance(columns, int):
        raise UnsupportedError(f"{NAME}: the number of features is open: {columns}", hint="fix that size: shape=")
    check_tables(attrs, columns, *tables)


@tree_ensemble.reference
def _reference(
    attrs: TreeEnsembleAttrs,
    data: Array,
    features: Array,
    thresholds: Array,
    children: Array,
    roots: Array,
    depths: Array,
    leaf_targets: Array,
    leaf_weights: Array,
) -> Array:
    check_tables(attrs, data.shape[1], features, children, roots, depths, leaf_targets)
    start = {"MIN": np.inf, "MAX": -np.inf}.get(attrs.aggregate, 0)
    combine = {"MIN": np.minimum, "MAX": np.maximum}.get(attrs.aggregate, np.add)
    out = np.full((len(data), attrs.targets), start, leaf_weights.dtype)
    rows = np.arange(len(data))
    for root, depth in zip(roots, depths, strict=True):
        node = np.full(len(data), root)
        for _ in range(depth):
            x = data[rows, features[node]]
            other = 2 if children.shape[1] == 3 else 1
            node = children[node, np.where(x <= thresholds[node], 0, np.where(np.isnan(x), other, 1))]
        for k in range(leaf_targets.shape[1]):
            target, weight = (table[node - attrs.first_leaf, k] for table in (leaf_targets, leaf_weights))
            out[rows, target] = combine(out[rows, target], weight)
    out = np.where(np.isinf(out) & (out == start), 0, out).astype(out.dtype)
    return out / out.dtype.type(len(roots)) if attrs.aggregate == "AVERAGE" else out


@tree_ensemble.compute
def _compute(attrs: TreeEnsembleAttrs, data: Tensor, *learnt: Tensor) -> Tensor:
    rows = te.extents(data)[0]

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        trees, entries = te.static_shape(learnt[3])[0], te.static_shape(learnt[-1])[1]
        return _Forest(attrs, ins, outs[0], rows, trees, entries).statement()

    result: Tensor = te.extern(
        [(rows, attrs.targets)], [data, *learnt], body, name="tree_ensemble", dtype=[str(learnt[-1].dtype)]
    )
    return result


@record(eq=False)
class _Forest:
    """The loops: blocks of rows in parallel, trees, some rows (or, of few rows, some trees) side by side."""

    attrs: TreeEnsembleAttrs
    ins: list[Buffer]
    out: Buffer
    rows: Known
    trees: int
    entries: int  # of a leaf

    def statement(self) -> Stmt:
        usual = typical(self.rows)
        beside = min(_LANES, 1 << max(usual - 1, 0).bit_length())  # rows
        block = _BLOCK if usual >= 4 * _BLOCK else beside
        several = math.gcd(self.trees, _LANES // beside)  # trees
        sums = scratch(
            "sums", block * self.attrs.targets, str(self.out.dtype), "local" if self.is_small(block) else "global"
        )
        nodes = scratch("nodes", beside * several, "int32", "local")

        def of_block(number: Index) -> Stmt:
            first = T.mul(number, block)
            begin = loop("k", block * self.attrs.targets, lambda k: store(sums, self.start, k))
            trees = loop(
                "tree", self.trees // several, lambda t: self._tree(t, several, first, block, beside, nodes, sums)
            )
            steps = S.seq(begin, trees, loop("r", block, lambda r: self._result(r, T.add(first, r), sums)))
            return S.Allocate(sums, S.Allocate(nodes, steps))

        return loop("block", ceil_div(self.rows, block), of_block, S.LoopKind.PARALLEL)

    def is_small(self, block: int) -> bool:
        return block * self.attrs.targets <= 16

    @property
    def start(self) -> float:
        return {"MIN": math.inf, "MAX": -math.inf}.get(self.attrs.aggregate, 0.0)

    def _tree(
        self, tree: Index, several: int, first: Index, block: int, beside: int, nodes: Buffer, sums: Buffer
    ) -> Stmt:
        """Some rows walk down some trees; those behind the last row walk as it does, and are not stored."""
        _, features, thresholds, children, roots, depths, _, _ = self.ins

        def lanes(body: Callable[[Index, Index, Index], Stmt]) -> Stmt:
            """For each lane: its number, row beside, and tree beside."""
            kind = S.LoopKind.UNROLLED
            return loop("r", beside, lambda r: loop("t", several, lambda t: body(r * several + t, r, t), kind), kind)

        def group(q: Index) -> Stmt:
            def row(r: Index) -> Index:
                return T.minimum(T.add(first, T.add(T.mul(q, beside), r)), self.rows - 1)

            def step(lane: Index, r: Index, _: Index) -> Stmt:
                node = load(nodes, lane)
                x, limit = load(self.ins[0], row(r), load(features, node)), load(thresholds, node)
                other: Index = T.const(1)
                if te_columns(children) == 3:
                    other = T.select(T.equal(x, x), T.const(1), T.const(2))
                return store(nodes, load(children, node, T.select(T.less_equal(x, limit), T.const(0), other)), lane)

            depth = (
                T.maximum(*(load(depths, tree * several + t) for t in range(several)))
                if several > 1
                else load(depths, tree)
            )
            begin = lanes(lambda lane, _, t: store(nodes, load(roots, tree * several + t), lane))
            ends = lanes(
                lambda lane, r, _: self._leaf(
                    T.sub(load(nodes, lane), self.attrs.first_leaf), T.add(T.mul(q, beside), r), sums
                )
            )
            return S.seq(begin, loop("depth", depth, lambda _: lanes(step)), ends)

        return loop("q", block // beside, group)

    def _leaf(self, leaf: Index, row: Index, sums: Buffer) -> Stmt:
        targets, weights, count = self.ins[-2], self.ins[-1], self.attrs.targets

        def entry(k: Index) -> Stmt:
            place = T.mul(row, count) if count == 1 else T.add(T.mul(row, count), load(targets, leaf, k))
            value, seen = load(weights, leaf, k), load(sums, place)
            combine = {"MIN": T.minimum, "MAX": T.maximum}.get(self.attrs.aggregate, T.add)
            return store(sums, combine(seen, value), place)

        return loop("k", self.entries, entry)

    def _result(self, place: Index, row: Index, sums: Buffer) -> Stmt:
        count = self.attrs.targets

        def one(k: Index) -> Stmt:
            value = load(sums, T.add(T.mul(place, count), k))
            if self.attrs.aggregate == "AVERAGE":
                value = T.div(value, T.const(float(self.trees), self.out.dtype))
            elif self.attrs.aggregate != "SUM":
                value = T.select(
                    T.equal(value, T.const(self.start, self.out.dtype)), T.const(0.0, self.out.dtype), value
                )
            return store(self.out, value, row, k)

        return S.IfThenElse(T.less(row, self.rows), loop("k", count, one))


def te_columns(buffer: Buffer) -> int:
    """Columns of a table."""
    columns = T.as_int(buffer.shape[1])
    assert columns is not None, "what is learnt has a known size"
    return columns


def _sample(rows: int, targets: int, aggregate: str, columns: int, entries: int) -> Sample:
    """Three trees: one split into two, a leaf, and one of depth 2."""
    features = np.array([1, 0, 2, 0, 0, 0, 0, 0, 0], np.int32)
    limits = np.array([0.1, -0.2, 0.3, 0, 0, 0, 0, 0, 0], np.float32)
    inner = [[3, 4, 3], [5, 2, 2], [6, 7, 6]]
    children = np.array(inner + [[k] * 3 for k in range(3, 9)], np.int32)[:, :columns]
    table = np.arange(6 * entries).reshape(6, entries)
    said = ((table * 5 % 7) - 2).astype(np.float32)
    forest = (
        features,
        limits,
        np.ascontiguousarray(children),
        *(np.array(v, np.int32) for v in ([0, 8, 1], [1, 0, 2])),
    )
    attrs = TreeEnsembleAttrs(targets, 3, aggregate)
    return Sample(attrs, (f32(rows, 3), *forest, (table % targets).astype(np.int32), said))


@tree_ensemble.samples
def _samples() -> Iterator[Sample]:
    yield _sample(11, 1, "SUM", 2, 1)
    yield _sample(1, 3, "AVERAGE", 3, 2)
    yield _sample(300, 2, "MIN", 2, 1)
    yield _sample(3, 4, "MAX", 3, 1)


@tree_ensemble.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    good = _sample(2, 1, "SUM", 2, 1)
    yield BadSample(TreeEnsembleAttrs(1, 4), good.inputs, "9 nodes and 5 leaves")
    yield BadSample(TreeEnsembleAttrs(1, 3, "MEAN"), good.inputs, "aggregate 'MEAN'")
    yield BadSample(TreeEnsembleAttrs(1, 3), (*good.inputs[:1], f32(9), *good.inputs[2:]), "features")
