"""Primitives over loops: split, fuse, merge, reorder, partition, and what kind of loop one is.

In: handles of loops. Out: handles of the new ones; the schedule's module is rewritten. Invariant: each refuses
(ScheduleError) what would change the meaning; loops that a primitive has taken apart are not there any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from armillary.base.node import replace
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, uses_any
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.schedule import inline, side_by_side
from armillary.tir.schedule.handles import BlockRV, ExprRV, LoopRV
from armillary.tir.schedule.inline import moved
from armillary.tir.schedule.state import State, where
from armillary.tir.schedule.trace import Value, primitive
from armillary.tir.simplify import simplify

ValueRV = Value  # of an annotation: a number that was sampled, or any other


class LoopPrimitives(State):
    """What is done to loops."""

    # --- the shape of loops

    @primitive
    def split(
        self,
        loop: LoopRV,
        factors: Sequence[int | ExprRV | None],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:
        """`for i` becomes a loop for each factor, the outermost first; one of them may be None, and follows.

        `disable_predication` wants factors that divide, as iterations too many cannot be left out.
        """
        del preserve_unit_iters
        item = self._unmarked("split", loop)
        name, extent = item.var.name, build.as_int(item.extent)
        sizes = [None if f is None else build.as_int(f) for f in factors]
        known = [n for n in sizes if n is not None]
        is_open = any(f is None for f in factors)
        if len(known) < len(factors) - is_open or sum(f is None for f in factors) > 1 or any(n < 1 for n in known):
            raise ScheduleError(
                f"split of {name}: got {list(factors)}, wanted positive factors, one of them None at most"
            )
        product = math.prod(known)
        if extent is None and not is_open:
            raise ScheduleError(f"split of {name}: its length {item.extent} is open", hint="one factor is to be None")
        if extent is not None and not is_open and product < extent:
            raise ScheduleError(f"split of {name}: the factors cover {product} of {extent} iterations")
        rest = simplify(build.floordiv(build.add(item.extent, product - 1), product))
        lengths = [rest if n is None else build.const(n, item.var.dtype) for n in sizes]
        fresh = [E.Var(f"{name}_{k}", item.var.dtype) for k in range(len(lengths))]
        value: E.Expr = build.const(0, item.var.dtype)
        for var, length in zip(fresh, lengths, strict=True):
            value = build.add(build.mul(value, length), var)
        body = moved(item.body, {item.var: build.add(value, item.min)})
        is_exact = extent is not None and (extent % product == 0 if is_open else product == extent)
        if not is_exact and disable_predication:
            raise ScheduleError(
                f"split of {name}: {product} does not divide {item.extent}, and predicates are disabled"
            )
        if not is_exact:
            body = where(body, build.less(value, item.extent))
        self._put(loop.function, item, inline.serial_loops(list(zip(fresh, lengths, strict=True)), body))
        return [LoopRV(loop.function, var) for var in fresh]

    def _unmarked(self, primitive: str, loop: LoopRV) -> S.For:
        """A loop that is taken apart, which takes its notes and its axis of a GPU away."""
        item = self._loop(primitive, loop)
        if item.annotations or item.kind is S.LoopKind.THREAD:
            mark = f"is bound to {item.thread_tag}" if item.thread_tag else f"has the note {item.annotations[0][0]!r}"
            raise ScheduleError(f"{primitive}: loop {item.var.name} {mark}", hint=f"{primitive} before it is marked")
        return item

    @primitive
    def loop_partition(
        self, loop: LoopRV, factors: Sequence[int | ExprRV | None], preserve_unit_iters: bool = True
    ) -> list[LoopRV]:
        """`for i` becomes loops behind one another, as long as the factors say; the last one does the rest."""
        del preserve_unit_iters
        item = self._loop("loop_partition", loop)
        ends = side_by_side.ends_of(item, [None if f is None else build.as_int(f) for f in factors])
        func, loops = side_by_side.partitioned(self._function(loop.function), item, ends)
        self._set(loop.function, func)
        return [LoopRV(loop.function, var) for var in loops]

    @primitive
    def merge(self, *loops: LoopRV) -> LoopRV:
        """Loops that stand behind one another become one, which does an iteration of each before the next."""
        paths = [self._path(loop) for loop in loops]
        for loop in loops:
            self._loop("merge", loop)
        if len(loops) < 2 or len({loop.function for loop in loops}) > 1:
            raise ScheduleError("merge: wanted two loops or more of one function")
        func, var = side_by_side.merged(self._function(loops[0].function), paths)
        self._set(loops[0].function, func)
        return LoopRV(loops[0].function, var)

    @primitive
    def fuse(self, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """Loops that stand directly inside one another become one."""
        del preserve_unit_iters
        items = [self._unmarked("fuse", loop) for loop in loops]
        for outer, inner in pairwise(items):
            if outer.body is not inner:
                message = f"fuse: {inner.var.name} does not stand directly inside {outer.var.name}"
                raise ScheduleError(message, hint="reorder first")
        if not items or any(item.kind is not S.LoopKind.SERIAL for item in items):
            raise ScheduleError("fuse: wanted serial loops")
        if any(uses_any(item.extent, {o.var for o in items}) for item in items):
            raise ScheduleError("fuse: the length of a loop depends on another one of them")
        name = "_".join(item.var.name for item in items) + "_fused"
        fused, total = E.Var(name, items[0].var.dtype), items[0].extent
        rest: E.Expr = fused
        values: dict[E.Var, E.Expr] = {}
        for item in reversed(items[1:]):
            values[item.var] = build.add(build.floormod(rest, item.extent), item.min)
            rest = build.floordiv(rest, item.extent)
            total = build.mul(total, item.extent)
        values[items[0].var] = build.add(rest, items[0].min)
        body = moved(items[-1].body, values)
        count = math.prod(build.as_int(item.extent) or 1 for item in items)
        if count > 2**31 - 1 and fused.dtype.bits < 64:
            raise ScheduleError(f"fuse: {name} has {count} iterations, more than int32 counts")
        zero = build.const(0, fused.dtype)
        self._put(loops[0].function, items[0], S.For(fused, zero, simplify(total), S.LoopKind.SERIAL, body))
        return LoopRV(loops[0].function, fused)

    @primitive
    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV) -> LoopRV:
        """A loop of one iteration around a block or a loop."""
        path = self._path(block_or_loop)
        item = path[-2] if isinstance(path[-1], Block) else path[-1]
        var = build.var("u")
        self._put(block_or_loop.function, item, inline.serial_loops([(var, build.const(1))], item))
        return LoopRV(block_or_loop.function, var)

    @primitive
    def reorder_block_iter_var(self, block: BlockRV, new_order: Sequence[int]) -> None:
        """The axes of a block in another order, by their numbers."""
        realize = self._path(block)[-2]
        assert isinstance(realize, BlockRealize), "a block stands in its realize"
        item = realize.block
        if sorted(new_order) != list(range(len(item.iter_vars))):
            message = (
                f"reorder_block_iter_var: block {block.name} has {len(item.iter_vars)} axes, got {list(new_order)}"
            )
            raise ScheduleError(message, hint="each number from 0 on once")
        inner = replace(item, iter_vars=tuple(item.iter_vars[k] for k in new_order))
        values = tuple(realize.iter_values[k] for k in new_order)
        self._put(block.function, realize, replace(realize, iter_values=values, block=inner))

    @primitive
    def reorder(self, *loops: LoopRV) -> None:
        """Put loops of one nest into this order, at the places that they occupy together."""
        items = {loop.var: self._loop("reorder", loop) for loop in loops}
        if len(items) < len(loops):
            raise ScheduleError("reorder: a loop is named twice")
        chain = self._nest(list(items.values()))
        inside = [k for k, item in enumerate(chain) if item.var in items]
        order = list(chain)
        for place, loop in zip(inside, loops, strict=True):
            order[place] = items[loop.var]
        for k, item in enumerate(order):
            later = {o.var for o in order[k:]}
            if uses_any(item.extent, later) or uses_any(item.min, later):
                raise ScheduleError(
                    f"reorder: the bounds of {item.var.name} depend on a loop that would stand inside it"
                )
        body = chain[-1].body
        for item in reversed(order):
            body = replace(item, body=body)
        self._put(loops[0].function, chain[0], body)

    def _nest(self, items: list[S.For]) -> list[S.For]:
        """The loops from the outermost of `items` to the innermost, each directly inside the one before."""
        for first in items:
            chain: list[S.For] = []
            one: S.Stmt = first
            while isinstance(one, S.For):
                chain.append(one)
                if all(any(item is c for c in chain) for item in items):
                    return chain
                one = one.body
        names = ", ".join(item.var.name for item in items)
        raise ScheduleError(f"reorder: {names} are not loops of one nest")

    # --- marks

    def _mark(self, primitive: str, loop: LoopRV, kind: S.LoopKind, tag: str = "") -> None:
        item = self._loop(primitive, loop)
        if primitive != "unroll":
            for realize in all_statements(item.body):
                if isinstance(realize, BlockRealize):
                    _check_data(primitive, item, realize)
        self._put(loop.function, item, replace(item, kind=kind, thread_tag=tag))

    @primitive
    def parallel(self, loop: LoopRV) -> None:
        """Share the iterations among threads."""
        self._mark("parallel", loop, S.LoopKind.PARALLEL)

    @primitive
    def vectorize(self, loop: LoopRV) -> None:
        """Run the loop as vector operations."""
        self._mark("vectorize", loop, S.LoopKind.VECTORIZED)

    @primitive
    def unroll(self, loop: LoopRV) -> None:
        """Write the iterations out."""
        self._mark("unroll", loop, S.LoopKind.UNROLLED)

    @primitive
    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Give the iterations to a GPU axis."""
        self._mark("bind", loop, S.LoopKind.THREAD, thread_axis)

    @primitive
    def annotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str, ann_val: ValueRV) -> None:
        """Leave a note on a block or a loop."""
        target = self.get(block_or_loop)
        assert isinstance(target, Block | S.For), "a schedule names blocks and loops"
        retained = tuple(pair for pair in target.annotations if pair[0] != ann_key)
        self._put(block_or_loop.function, target, replace(target, annotations=(*retained, (ann_key, ann_val))))

    @primitive
    def unannotate(self, block_or_loop: BlockRV | LoopRV, ann_key: str) -> None:
        """Take a note off a block or a loop."""
        noted = self.get(block_or_loop)
        assert isinstance(noted, Block | S.For), "a schedule names blocks and loops"
        rest = tuple(pair for pair in noted.annotations if pair[0] != ann_key)
        if len(rest) == len(noted.annotations):
            notes = ", ".join(key for key, _ in noted.annotations) or "none"
            raise ScheduleError(f"unannotate: there is no note {ann_key!r}", hint=f"notes there: {notes}")
        self._put(block_or_loop.function, noted, replace(noted, annotations=rest))


def _check_data(primitive: str, loop: S.For, realize: BlockRealize) -> None:
    """Refuse a loop whose iterations write the same elements."""
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if axis.kind != "data" and uses_any(value, {loop.var}):
            message = f"{primitive}: the iterations of {loop.var.name} write the same elements of block"
            raise ScheduleError(f"{message} {realize.block.name_hint!r}, which reduces over them")
