"""Extents and values along split and fuse: from an operation's axes down to its loops, and back up.

In: a stage's relations, and extents of its root axes or values of its loops. Out: extents of every axis, values of
every axis, guards for splits that do not divide. Invariant: values count from zero; an axis' own minimum is added by
the caller. Arithmetic: `te/affine.py`. Users: `te/bounds.py`, `te/dataflow.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.te.affine import ONE, ZERO, Linear, Space
from armillary.te.stage import Fuse, Relation, Singleton, Split, Stage, outer_count
from armillary.tir.expr import Expr, IterVar

Sizes = dict[IterVar, Linear]
Guard = tuple[Linear, Linear]  # value, extent: the value must be below the extent


def relations_of(stage: Stage, *, reductions: bool) -> list[Relation]:
    """The relations that concern reduction axes, or those that concern data axes."""
    result: list[Relation] = []
    for relation in stage.relations:
        if isinstance(relation, Singleton):
            continue
        axis = relation.parent if isinstance(relation, Split) else relation.outer
        if (axis.kind == "reduce") == reductions:
            result.append(relation)
    return result


def size_of(item: Expr, space: Space) -> Linear:
    """An extent in normal form; what is not index arithmetic stays a symbol."""
    result = space.evaluate(item, {})
    return result if result is not None else space.symbol(item)


def derive_extents(stage: Stage, roots: Mapping[IterVar, Linear], space: Space) -> Sizes:
    """Extents of every axis from those of the root axes."""
    sizes: Sizes = dict(roots)
    for relation in stage.relations:
        if isinstance(relation, Fuse):
            sizes[relation.fused] = space.multiply(sizes[relation.outer], sizes[relation.inner])
            continue
        if isinstance(relation, Singleton):
            sizes[relation.iter] = ONE
            continue
        extent = sizes[relation.parent]
        known = relation.factor if relation.nparts is None else relation.nparts
        assert known is not None, "a split has a factor or nparts"
        size = size_of(known, space)
        if extent.value is not None and size.value is not None:
            number = max(1, min(size.value, -(-extent.value // relation.step)))
            size, rest = Linear(number), Linear(outer_count(extent.value, number, relation.step))
        else:
            group = size.scaled(relation.step)
            rest = space.divide(extent.plus(group).shifted(-1), group).scaled(relation.step)
        sizes[relation.outer], sizes[relation.inner] = (rest, size) if relation.nparts is None else (size, rest)
    return sizes


def derive_values(relations: Sequence[Relation], leaves: Mapping[IterVar, Linear], sizes: Sizes, space: Space) -> Sizes:
    """Values of every axis from those of the loops."""
    values: Sizes = dict(leaves)
    for relation in reversed(relations):
        if isinstance(relation, Singleton):
            continue
        if isinstance(relation, Split):
            outer, step = values[relation.outer], relation.step
            group = space.multiply(space.divide(outer, Linear(step)).scaled(step), sizes[relation.inner])
            inner = values[relation.inner].scaled(step).plus(space.remainder(outer, Linear(step)))
            values[relation.parent] = group.plus(inner)
        else:
            fused, inner = values[relation.fused], sizes[relation.inner]
            if sizes[relation.outer].key == ONE.key or inner.value == 0:  # no iteration: nothing to divide by
                values[relation.outer], values[relation.inner] = ZERO, fused
            else:
                values[relation.outer] = space.quotient_below(fused, inner, sizes[relation.outer])
                values[relation.inner] = space.remainder(fused, inner)
    return values


def split_guards(relations: Sequence[Relation], values: Sizes, sizes: Sizes, space: Space) -> list[Guard]:
    """What must hold because a split does not divide its parent."""
    guards = []
    for relation in relations:
        if not isinstance(relation, Split) or not relation.is_guarded:
            continue
        covered = space.multiply(sizes[relation.outer], sizes[relation.inner])
        if covered.key != sizes[relation.parent].key:
            guards.append((values[relation.parent], sizes[relation.parent]))
    return guards


def unguarded(stage: Stage) -> set[IterVar]:
    """The operation's axes under a split that was told to run iterations beyond the end."""
    roots: dict[IterVar, set[IterVar]] = {a: {a} for a in (*stage.op.axis, *stage.op.reduce_axis)}
    result: set[IterVar] = set()
    for relation in stage.relations:
        if isinstance(relation, Fuse):
            roots[relation.fused] = roots[relation.outer] | roots[relation.inner]
        if isinstance(relation, Singleton):
            roots[relation.iter] = set()
        if not isinstance(relation, Split):
            continue
        own = roots[relation.outer] = roots[relation.inner] = roots[relation.parent]
        result |= set() if relation.is_guarded else own
    return result
