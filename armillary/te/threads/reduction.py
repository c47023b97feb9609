"""A reduction whose axes are bound to the work-items of a group.

In: the loops of a stage with a reduction axis bound to `threadIdx`. Out: statements: each work-item combines its terms
in a register, and puts what it has into shared memory; then halves are combined, as often as it takes, and one stores
the result (all of them, if memory is each one's own). Invariant: no barrier that `insert_barriers.py` puts between
these stands in a condition that differs among work-items. The algorithm: Harris, "Optimizing Parallel Reduction in
CUDA", 2007, reduction by sequential addressing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from armillary.base.node import post_order
from armillary.errors import ScheduleError
from armillary.te.affine import Linear, to_expr
from armillary.te.dataflow import check_neutral
from armillary.te.inline import rewriter
from armillary.te.relations import Sizes
from armillary.te.stage import Stage
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Expr, IterVar, Reduce, Var
from armillary.tir.stmt import Allocate, Buffer, BufferStore, IfThenElse, Stmt, seq

if TYPE_CHECKING:
    from armillary.te.lower import Nest

ITEM, GROUP = "threadIdx.", "blockIdx."
ZERO = (T.const(0),)


def shared_axes(stage: Stage) -> list[IterVar]:
    """The reduction axes of a stage that are bound to work-items; ScheduleError: to whole groups."""
    result = []
    for axis in stage.leaf if any(n.thread is not None for n in stage.notes.values()) else ():
        notes = stage.notes.get(axis)
        if axis.kind != "reduce" or notes is None or notes.thread is None:
            continue
        if notes.thread.thread_tag.startswith(GROUP):
            hint = "groups cannot wait for each other: rfactor it, or bind it to a threadIdx"
            message = f"bind on stage {stage.key}: reduction axis {axis.var.name} and {notes.thread.thread_tag}"
            raise ScheduleError(message, hint=hint)
        if notes.thread.thread_tag.startswith(ITEM):
            result.append(axis)
    return result


def threads_first(nest: Nest, shared: list[IterVar]) -> list[IterVar]:
    """The loops in the order data, shared reduction, other reduction; ScheduleError where another stage stands in the
    way."""
    own = [a for a in nest.leaf if a.kind == "reduce" and not any(a is s for s in shared)]
    ordered = [*(a for a in nest.leaf if a.kind != "reduce"), *shared, *own]
    moved = next((k for k, (a, b) in enumerate(zip(ordered, nest.leaf, strict=True)) if a is not b), len(ordered))
    if any(nest.plan.attached.get(a) for a in nest.leaf[moved:]):
        where = f"stage {nest.stage.key}: another stage is computed inside its reduction"
        raise ScheduleError(where, hint="reorder: data axes, then those bound to a threadIdx, then the others")
    return ordered


class SharedReduction:
    """The statements of one stage."""

    def __init__(self, nest: Nest, shared: list[IterVar]) -> None:
        self.nest, self.plan, self.shared = nest, nest.plan, shared
        first = nest.plan.bodies[0]
        assert isinstance(first, Reduce), "it has reduction axes"
        check_neutral("bind", nest.stage, first)
        self.combiner, self.source = first.combiner, first.source
        self.buffers = [nest.lowering.buffers[t] for t in nest.op.outputs]
        self.count = math.prod(self._constant(axis) for axis in shared)
        others = self._others()
        shape = (*(extent for _, extent in others), self.count)
        self.place: tuple[Expr, ...] = tuple(var for var, _ in others)
        self.sums = [Buffer(f"{b.name}.sum", (T.const(1),), b.dtype, "local") for b in self.buffers]
        self.parts = [Buffer(f"{b.name}.part", tuple(map(T.const, shape)), b.dtype, "shared") for b in self.buffers]

    def build(self) -> Stmt:
        """All loops of the stage. Each step is a loop over the work-items of its own, so that one after another can run
        them as well."""
        nest, leaf = self.nest, self.nest.leaf
        first = next(k for k, a in enumerate(leaf) if a is self.shared[0])
        levels = [*nest.levels(self.plan.guards, self.plan.leaves), *nest.reduction_guards()]
        items = self._items()
        varying = [g for g, level in levels if level < first and any(v in items for v in post_order(g))]
        has_others = any(self.plan.attached.get(a) for a in leaf[:first])
        if not has_others:  # PoCL 3.1 gives wrong sums where barriers stand in a condition inside a loop
            varying = [g for g, level in levels if level < first]
        uniform = [(g, level) for g, level in levels if level < first and g not in varying]
        if varying and has_others:
            where = f"stage {nest.stage.key}: its elements do not fill the work-items, and it computes another stage"
            raise ScheduleError(where, hint="let the axes bound to a threadIdx divide by their numbers of threads")
        body = seq(self._own_terms(first, levels, varying), *self._tree_steps(), self._result(varying))
        for buffer in self.parts:
            body = Allocate(buffer, body)
        for position in reversed(range(first)):
            axis = leaf[position]
            body = nest.guarded([g for g, level in uniform if level == position], body)
            body = nest.with_attached(axis, body)
            body = nest.loop(axis, self.plan.leaves[axis], body)
        return nest.guarded([g for g, level in uniform if level < 0], body)

    def _own_terms(self, first: int, levels: list[tuple[Expr, int]], varying: list[Expr]) -> Stmt:
        """What one work-item combines in its registers."""
        nest, inner = self.nest, first + len(self.shared)
        apply = nest.mover(self.plan.values)
        body = self._combined(self.sums, ZERO, [apply(s) for s in self.source])
        for position in reversed(range(inner, len(nest.leaf))):
            axis = nest.leaf[position]
            body = nest.guarded([g for g, level in levels if level == position], body)
            body = nest.with_attached(axis, body)
            body = nest.loop(axis, self.plan.leaves[axis], body)
        body = nest.guarded([g for g, level in levels if first <= level < inner], body)
        for axis in reversed(self.shared):
            body = nest.with_attached(axis, body)
        identity = [apply(e) for e in self.combiner.identity]
        starts = [BufferStore(b, e, ZERO) for b, e in zip(self.sums, identity, strict=True)]
        place = (*self.place, self._item(self.plan.leaves))
        ends = [BufferStore(p, BufferLoad(s, ZERO), place) for p, s in zip(self.parts, self.sums, strict=True)]
        body = seq(*starts, nest.guarded(varying, body), *ends)
        for buffer in self.sums:
            body = Allocate(buffer, body)
        return self._loops(self.plan.leaves, body)

    def _item(self, leaves: Sizes) -> Expr:
        """Which of the work-items that share an element it is."""
        number: Expr = T.const(0)
        for axis in self.shared:
            size = T.const(self._constant(axis))
            number = T.add(T.mul(number, size), to_expr(leaves[axis], axis.var.dtype))
        return number

    def _loops(self, leaves: Sizes, body: Stmt) -> Stmt:
        for axis in reversed(self.shared):
            body = self.nest.loop(axis, leaves[axis], body)
        return body

    def _again(self) -> Sizes:
        """Variables of other loops over the work-items."""
        plan, space = self.plan, self.nest.space
        fresh = {a: space.loop_var(a.var.name, a.var.dtype, plan.sizes[a]) for a in self.shared}
        return {axis: Linear(0, {var: 1}) for axis, var in fresh.items()}

    def _tree_steps(self) -> list[Stmt]:
        """The upper half is combined into the lower one, until one is left."""
        result: list[Stmt] = []
        count = self.count
        while count > 1:
            half = -(-count // 2)
            leaves = self._again()
            item = self._item(leaves)
            other = (*self.place, T.add(item, T.const(half)))
            body = self._combined(self.parts, (*self.place, item), [BufferLoad(p, other) for p in self.parts])
            result.append(self._loops(leaves, IfThenElse(T.less(item, T.const(count - half)), body)))
            count = half
        return result

    def _result(self, varying: list[Expr]) -> Stmt:
        """One work-item stores it; all do, if each has memory of its own."""
        leaves = self._again()
        item, target = self._item(leaves), self.nest.target(self.plan.values)
        is_inside = self.plan.stage.attach is not None
        is_own = all(b.scope == "local" or (is_inside and b.scope != "shared") for b in self.buffers)
        place = (*self.place, T.const(0) if is_own else item)
        body = seq(
            *(BufferStore(b, BufferLoad(p, place), target) for b, p in zip(self.buffers, self.parts, strict=True))
        )
        conditions = [*varying, *([] if is_own else [T.equal(item, T.const(0))])]
        return self._loops(leaves, self.nest.guarded(conditions, body))

    def _combined(self, buffers: list[Buffer], place: tuple[Expr, ...], terms: list[Expr]) -> Stmt:
        """Buffers' elements combined with terms."""
        variables: dict[Var, Expr] = {v: BufferLoad(b, place) for v, b in zip(self.combiner.lhs, buffers, strict=True)}
        variables.update(zip(self.combiner.rhs, terms, strict=True))
        combine = rewriter(variables)
        return self.nest.stored(buffers, [combine(r) for r in self.combiner.result], place)

    def _items(self) -> set[Var]:
        """The loop variables around the reduction that tell work-items apart."""
        result = {var for tag, (var, _) in self.plan.threads.items() if tag.startswith(ITEM)}
        for axis in self.nest.leaf:
            thread = self.nest.notes(axis).thread
            var = self.plan.loop_var(axis)
            if axis.kind != "reduce" and thread is not None and thread.thread_tag.startswith(ITEM) and var is not None:
                result.add(var)
        return result

    def _others(self) -> list[tuple[Var, int]]:
        """The other threads of a group, each of which has parts of its own: variables and extents."""
        notes = self.nest.notes
        tags = {thread.thread_tag for a in self.shared if (thread := notes(a).thread) is not None}
        if tags & set(self.plan.threads):
            message = f"bind on stage {self.nest.stage.key}: {', '.join(sorted(tags))} is bound around it already"
            raise ScheduleError(message, hint="compute it at a loop outside of that one")
        threads = {t: (var, size.value) for t, (var, size) in self.plan.threads.items() if t.startswith(ITEM)}
        for axis in self.nest.leaf:
            thread, var = notes(axis).thread, self.plan.loop_var(axis)
            if axis.kind != "reduce" and thread is not None and thread.thread_tag.startswith(ITEM) and var is not None:
                threads.setdefault(thread.thread_tag, (var, self._constant(axis)))
        known = [(var, size) for var, size in threads.values() if size is not None]
        if len(known) < len(threads):
            raise ScheduleError(f"bind on stage {self.nest.stage.key}: the number of work-items is not constant")
        return known

    def _constant(self, axis: IterVar) -> int:
        size = self.plan.sizes[axis].value
        if size is None:
            message = f"bind on stage {self.nest.stage.key}: the extent of axis {axis.var.name} is not constant"
            raise ScheduleError(message, hint="split it by a constant factor first")
        return size
