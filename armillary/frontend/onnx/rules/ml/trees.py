"""Trees of ai.onnx.ml as `ml.tree_ensemble`: TreeEnsembleClassifier, TreeEnsembleRegressor, TreeEnsemble.

In: nodes whose attributes list what each tree asks and what its leaves add. Out: the operator, base values, the
transformation of scores, labels. Invariant: whatever a node asks becomes `x <= threshold`: `x < v` is `x <=` the float
before v, the opposites exchange the children, equality is two such questions and membership some of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.errors import ModelError, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules.ml.scores import (
    ML,
    POST_TRANSFORMS,
    above,
    chosen,
    labelled,
    labels_of,
    pair,
    rows_of,
    transform_of,
    transformed,
    winner,
)
from armillary.ops.nn._windows import call, type_of
from armillary.relay.expr import Expr, const

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(len(MODES))
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@record(eq=False)
class _Trees:
    """Questions by node, children as numbers of nodes or (from `questions` on) of leaves, and what leaves add."""

    modes: Array
    features: Array
    values: Array
    yes: Array
    no: Array
    nan_is_yes: Array
    roots: Array
    leaves: int
    entries: tuple[Array, Array, Array]  # leaf, target, weight
    members: Sequence[Array] = ()  # of the questions of membership, in their order

    @property
    def questions(self) -> int:
        return len(self.modes)


# --- what a node asks -------------------------------------------------------------------------------------------------


@record(eq=False)
class _Table:
    """Nodes that ask whether x <= value, leaves behind them; children where it is, where not, and where x is NaN."""

    features: Array
    values: Array
    children: Array


def _table(trees: _Trees) -> _Table:
    """Every question as one or more of x <= value."""
    modes, count = trees.modes, trees.questions
    sizes = np.where(np.isin(modes, (_EQ, _NEQ)), 2, 1)
    sizes[modes == _MEMBER] = [2 * len(m) for m in trees.members]
    places = np.concatenate([[0], np.cumsum(sizes)])  # of the questions; leaves come behind
    moved = np.concatenate([places[:-1], places[-1] + np.arange(trees.leaves)])
    yes, no = moved[trees.yes], moved[trees.no]
    is_strict, is_opposite = np.isin(modes, (_LT, _GTE)), np.isin(modes, (_GTE, _GT))
    values = np.where(is_strict, _before(trees.values), trees.values)
    missing = np.where(trees.nan_is_yes, yes, no)
    left, right = np.where(is_opposite, no, yes), np.where(is_opposite, yes, no)
    right = np.where(is_opposite & np.isnan(trees.values), no, right)  # nothing is above NaN
    table = _Table(
        np.zeros(places[-1], np.int32), np.zeros(places[-1], values.dtype), np.zeros((places[-1], 3), np.int32)
    )
    table.features[places[:-1]], table.values[places[:-1]] = trees.features, values
    table.children[places[:-1]] = np.stack([left, right, missing], 1)
    members = iter(trees.members)
    for k in np.flatnonzero(sizes != 1) if count else ():
        sought = next(members) if modes[k] == _MEMBER else trees.values[k : k + 1]
        ends = (no[k], yes[k]) if modes[k] == _NEQ else (yes[k], no[k])
        nan = yes[k] if modes[k] == _NEQ else missing[k]
        _ask_equal(table, int(places[k]), int(trees.features[k]), sought, ends, int(nan))
    return table


def _ask_equal(table: _Table, place: int, feature: int, sought: Array, ends: tuple[int, int], nan: int) -> None:
    """Whether x is one of the values: for each, x <= value, and then x <= the float before it."""
    low, other = ends
    for k, value in enumerate(sought):
        at, behind = place + 2 * k, place + 2 * k + 2 if k + 1 < len(sought) else other
        table.features[at : at + 2] = feature
        table.values[at : at + 2] = value, _before(np.asarray(value))
        table.children[at] = at + 1, behind, nan
        table.children[at + 1] = behind, low, nan


def _before(values: Array) -> Array:
    """The next float below; NaN, which nothing is <=, below the least."""
    return np.where(np.isneginf(values), np.nan, np.nextafter(values, -np.inf)).astype(values.dtype)


def _depths(node: OnnxNode, children: Array, roots: Array) -> Array:
    """How many questions each tree asks at most."""
    inner, depths = len(children), np.zeros(len(roots), np.int32)
    trees, front, level = np.arange(len(roots)), roots, 0
    while True:
        asks = front < inner
        trees, front = trees[asks], front[asks]
        if not len(front):
            return depths
        level += 1
        if level > inner:
            raise ModelError(f"{node.op_type} node {node.name!r}: a tree has a circle")
        depths[trees] = level
        reached = np.stack([np.repeat(trees, 3), children[front].ravel()], 1)
        trees, front = np.unique(reached, axis=0).T


def _ensemble(node: OnnxNode, x: Expr, trees: _Trees, targets: int, aggregate: str) -> Expr:
    """The call of the operator that walks all trees."""
    features, table = type_of(x).static[1], _table(trees)
    inner, dtype = len(table.features), _dtype_of(x)
    if inner and not (table.features.min() >= 0 and table.features.max() < features):
        raise ModelError(f"{node.op_type} node {node.name!r} asks for feature {table.features.max()} of {features}")
    roots = np.where(trees.roots < trees.questions, 0, inner - trees.questions) + trees.roots
    if trees.questions:
        is_inner = trees.roots < trees.questions
        sizes = np.where(np.isin(trees.modes, (_EQ, _NEQ)), 2, 1)
        sizes[trees.modes == _MEMBER] = [2 * len(m) for m in trees.members]
        starts = np.cumsum(sizes) - sizes
        roots = np.where(is_inner, starts[np.minimum(trees.roots, trees.questions - 1)], roots)
    depths = _depths(node, table.children, roots)
    leaves = np.repeat(inner + np.arange(trees.leaves, dtype=np.int32), 3).reshape(-1, 3)
    children = np.concatenate([table.children, leaves]).astype(np.int32)
    if (children[:, 1] == children[:, 2]).all():
        children = children[:, :2]
    behind = np.zeros(trees.leaves)
    leaf_values = _leaf_values(node, trees, targets, aggregate, dtype)
    arrays = (
        np.concatenate([table.features, behind]).astype(np.int32),
        np.concatenate([table.values, behind]).astype(dtype),
        np.ascontiguousarray(children),
        roots.astype(np.int32),
        depths,
        *leaf_values,
    )
    node.check_elements(sum(a.size for a in arrays))
    result = call("ml.tree_ensemble", x, *map(const, arrays), targets=targets, first_leaf=inner, aggregate=aggregate)
    return result if dtype == "float32" else call("cast", result, dtype="float32")


def _leaf_values(node: OnnxNode, trees: _Trees, targets: int, aggregate: str, dtype: str) -> tuple[Array, Array]:
    """What each leaf adds, as tables of one width: the shorter rows add what changes nothing."""
    places, wanted, weights = trees.entries
    if len(wanted) and not (wanted.min() >= 0 and wanted.max() < targets):
        raise ModelError(f"{node.op_type} node {node.name!r}: a leaf speaks of target {wanted.max()} of {targets}")
    order = np.argsort(places, kind="stable")
    places, wanted, weights = places[order], wanted[order], weights[order]
    counts = np.bincount(places, minlength=trees.leaves)
    column = np.arange(len(places)) - (np.cumsum(counts) - counts)[places]
    width = max(1, int(counts.max(initial=0)))
    neutral = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0)
    table, leaf_values = np.zeros((trees.leaves, width), np.int32), np.full((trees.leaves, width), neutral, dtype)
    table[places, column], leaf_values[places, column] = wanted, weights
    return table, leaf_values


# --- the attributes of both generations -------------------------------------------------------------------------------


def _numbers(node: OnnxNode, name: str, dtype: str) -> Array:
    """Numbers of an attribute, or of the tensor that stands for it."""
    tensor = node.attributes.get(f"{name}_as_tensor")
    return np.asarray(node.floats(name, ()) if tensor is None else tensor).astype(dtype).reshape(-1)


def _listed(node: OnnxNode, prefix: str, target: str, dtype: str) -> _Trees:
    """Nodes that name their children by numbers within their tree, leaves among them."""
    names = [str(m) for m in node.attributes.get("nodes_modes") or ()]
    count = len(names)
    ints = {k: _integers(node, f"nodes_{k}", count) for k in ("treeids", "nodeids", "featureids")}
    children = [_integers(node, f"nodes_{k}nodeids", count) for k in ("true", "false")]
    values = _numbers(node, "nodes_values", dtype)
    if not count or len(values) != count:
        raise ModelError(f"{node.op_type} node {node.name!r}: {count} modes, {len(values)} values of nodes")
    unknown = sorted(set(names) - {*MODES[:_MEMBER], "LEAF"})
    if unknown:
        raise ModelError(f"{node.op_type} node {node.name!r}: nodes_modes has {unknown[0]!r}")
    is_leaf = np.array([name == "LEAF" for name in names])
    new = np.where(is_leaf, (~is_leaf).sum() + np.cumsum(is_leaf) - 1, np.cumsum(~is_leaf) - 1)
    place_of = {key: int(n) for key, n in zip(zip(ints["treeids"].tolist(), ints["nodeids"].tolist()), new)}
    asks = np.flatnonzero(~is_leaf)

    def places(ids: Array, numbers: Array) -> Array:
        try:
            return np.array([place_of[key] for key in zip(ids.tolist(), numbers.tolist())], np.int64)
        except KeyError as error:
            raise ModelError(f"{node.op_type} node {node.name!r}: there is no node {error} (tree, node)") from None

    yes, no = (places(ints["treeids"][asks], numbers[asks]) for numbers in children)
    if (yes == new[asks]).any() or (no == new[asks]).any():
        raise ModelError(f"{node.op_type} node {node.name!r}: a tree has a circle: a node is its own child")
    entries = [_integers(node, f"{prefix}_{k}", None) for k in ("treeids", "nodeids", target)]
    weights = _numbers(node, f"{prefix}_weights", dtype)
    if len({len(weights), *map(len, entries)}) != 1:
        raise ModelError(f"{node.op_type} node {node.name!r}: {prefix}_* have several lengths")
    questions = len(asks)
    leaf = places(entries[0], entries[1]) - questions
    speaks = leaf >= 0  # what an inner node says is never asked for
    tracks = node.attributes.get("nodes_missing_value_tracks_true") or np.zeros(count)
    _skip_hitrates(node)
    roots = new[_roots(ints["treeids"], np.concatenate([yes, no]), new)]
    return _Trees(
        np.array([MODES.index(names[k]) for k in asks], np.int64),
        ints["featureids"][asks],
        values[asks],
        yes,
        no,
        np.asarray(tracks)[asks].astype(bool),
        roots,
        int(is_leaf.sum()),
        (leaf[speaks], entries[2][speaks], weights[speaks]),
    )


def _roots(trees: Array, called: Array, new: Array) -> Array:
    """Of each tree, in the order in which they begin, the first node that is nobody's child."""
    _, first = np.unique(trees, return_index=True)
    free = np.flatnonzero(~np.isin(new, called))
    _, at = np.unique(trees[free], return_index=True)
    result: Array = np.sort(free[at]) if len(at) == len(first) else np.sort(first)
    return result


def _integers(node: OnnxNode, name: str, count: int | None) -> Array:
    result = np.asarray(node.ints(name, ()), np.int64)
    if count is not None and len(result) != count:
        raise ModelError(f"{node.op_type} node {node.name!r}: {name} has {len(result)} numbers, wanted {count}")
    return result


def _linked(node: OnnxNode, dtype: str) -> _Trees:
    """TreeEnsemble: questions and leaves in lists of their own."""
    modes = np.asarray(node.tensor("nodes_modes")).reshape(-1).astype(np.int64)
    count = len(modes)
    values = np.asarray(node.tensor("nodes_splits")).reshape(-1).astype(dtype)
    weights = np.asarray(node.tensor("leaf_weights")).reshape(-1).astype(dtype)
    targets = _integers(node, "leaf_targetids", len(weights))
    children: list[Array] = []
    for side in ("true", "false"):
        places, is_leaf = (_integers(node, f"nodes_{side}{k}", count) for k in ("nodeids", "leafs"))
        limit = np.where(is_leaf != 0, len(weights), count)
        if (places < 0).any() or (places >= limit).any():
            raise ModelError(f"{node.op_type} node {node.name!r}: nodes_{side}nodeids has a number out of range")
        children.append(places + np.where(is_leaf != 0, count, 0))
    roots = _integers(node, "tree_roots", None)
    if len(values) != count or not len(roots) or (roots < 0).any() or (roots >= count).any() or (modes > _MEMBER).any():
        raise ModelError(f"{node.op_type} node {node.name!r}: splits, modes or roots do not fit {count} nodes")
    tracks = node.attributes.get("nodes_missing_value_tracks_true") or np.zeros(count)
    _skip_hitrates(node)
    leaf_values = (np.arange(len(weights)), targets, weights)
    features = _integers(node, "nodes_featureids", count)
    is_yes = np.asarray(tracks).astype(bool)
    members = _members(node, int((modes == _MEMBER).sum()), dtype)
    yes, no = children
    return _Trees(modes, features, values, yes, no, is_yes, roots, len(weights), leaf_values, members)


def _skip_hitrates(node: OnnxNode) -> None:
    """How often a node was reached when the model learnt: it changes no result."""
    for name in ("nodes_hitrates", "nodes_hitrates_as_tensor"):
        node.attributes.get(name)


def _members(node: OnnxNode, count: int, dtype: str) -> list[Array]:
    """The sets of values, each ended by a NaN."""
    tensor = node.attributes.get("membership_values")
    flat = np.asarray([] if tensor is None else tensor).reshape(-1).astype(dtype)
    ends = np.flatnonzero(np.isnan(flat))
    members = np.split(flat, ends + 1)[: len(ends)]
    sets = [part[:-1] for part in members]
    if len(sets) != count or any(not len(part) for part in sets):
        raise ModelError(f"{node.op_type} node {node.name!r}: {len(sets)} sets of members for {count} questions")
    return sets


# --- the operators ----------------------------------------------------------------------------------------------------


def _dtype_of(x: Expr) -> str:
    return str(type_of(x).dtype)


@from_onnx("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(node: OnnxNode) -> Expr:
    x = rows_of(node, "")
    targets, aggregate = int(node.int("n_targets", 1)), str(node.string("aggregate_function", "SUM"))
    trees = _listed(node, "target", "ids", _dtype_of(x))
    scores = _ensemble(node, x, trees, targets, aggregate)
    base = _numbers(node, "base_values", "float32")
    if len(base) not in (0, targets):
        raise ModelError(f"{node.op_type} node {node.name!r}: {len(base)} base values for {targets} targets")
    if len(base):
        scores = scores + const(base)
    return _regressed(node, scores, targets, transform_of(node))


@from_onnx("TreeEnsemble", domain=ML)
def tree_ensemble(node: OnnxNode) -> Expr:
    x = rows_of(node, "")
    targets, aggregate = int(node.int("n_targets", 1)), _AGGREGATES[int(node.int("aggregate_function", 1))]
    scores = _ensemble(node, x, _linked(node, _dtype_of(x)), targets, aggregate)
    result = _regressed(node, scores, targets, POST_TRANSFORMS[int(node.int("post_transform", 0))])
    dtype = str(node.type_of(0).dtype)
    return result if dtype == "float32" else call("cast", result, dtype=dtype)


def _regressed(node: OnnxNode, scores: Expr, targets: int, transform: str) -> Expr:
    """One target takes PROBIT alone, as in ONNX Runtime."""
    return scores if targets == 1 and transform != "PROBIT" else transformed(node, scores, transform)


@from_onnx("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(node: OnnxNode) -> list[Expr]:
    x = rows_of(node, "")
    labels = labels_of(node, "classlabels_int64s")
    trees = _listed(node, "class", "ids", _dtype_of(x))
    base = _numbers(node, "base_values", "float32")
    if len(labels) < 2 or len(base) not in (0, 1, len(labels)):
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: {len(labels)} classes, {len(base)} base values")
    if len(labels) == 2 and len(np.unique(trees.entries[1])) == 1:
        return _binary(node, x, trees, labels, base)
    scores, known = _ensemble(node, x, trees, len(labels), "SUM"), None
    if not _speak_of_all(trees, len(labels)) and len(base) != len(labels) > 2:
        known = above(_ensemble(node, x, _counted(trees), len(labels), "MAX"), 0)
    if len(labels) == 2 and len(base) == 2:
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: leaves speak of both of two classes with bases")
    if len(base):
        scores = scores + const(np.pad(base, (0, len(labels) - len(base))))
    if len(labels) == 2:
        label = chosen(above(call("strided_slice", scores, begin=(1,), end=(2,), strides=(1,), axes=(1,)), 0), labels)
        return [label, transformed(node, scores)]
    ranked = scores if known is None else call("where", known, scores, const(np.float32(-np.inf)))
    return [labelled(winner(ranked), labels), transformed(node, scores)]


def _speak_of_all(trees: _Trees, classes: int) -> bool:
    """Whether every leaf has a number for every class, or there are trees whose leaves all do for each."""
    return bool(np.bincount(trees.entries[0], minlength=trees.leaves).min(initial=classes) >= classes)


def _counted(trees: _Trees) -> _Trees:
    """The same trees, whose leaves add 1."""
    leaf, target, weight = trees.entries
    return replace(trees, entries=(leaf, target, np.ones_like(weight)))


def _binary(node: OnnxNode, x: Expr, trees: _Trees, labels: list[int], base: Array) -> list[Expr]:
    """Two classes, one of which leaves speak of."""
    leaf, target, weight = trees.entries
    of_second = bool(target[0] == 1)
    alone = replace(trees, entries=(leaf, np.zeros_like(target), weight))
    if of_second and len(base) == 2:
        raise UnsupportedError(
            f"{node.op_type} node {node.name!r}: leaves speak of the second of two classes with bases"
        )
    score = _ensemble(node, x, alone, 1, "SUM")
    if len(base) and not of_second:
        score = score + const(base[:1])
    is_positive = bool((weight >= 0).all())
    label = chosen(above(score, 0.5 if is_positive else 0.0), labels)
    transform = transform_of(node)
    none = call("zeros_like", score)
    if of_second:
        return [label, transformed(node, pair(none, score))]
    if len(base) == 2:
        return [label, transformed(node, pair(score, none))]
    if transform == "PROBIT":
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: PROBIT of one score for two classes")
    if transform == "LOGISTIC":
        return [label, pair(call("sigmoid", none - score), call("sigmoid", score))]
    if is_positive:
        return [label, pair(call("ones_like", score) - score, score)]
    return [label, pair(none - score, score)]
