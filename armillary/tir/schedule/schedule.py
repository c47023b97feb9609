"""Schedules over blocks: loops of a function are split, fused, reordered and marked; `s.mod` is the result.

    s = tir.Schedule(function)
    i, j = s.get_loops(s.get_block("C"))
    outer, inner = s.split(j, [None, 8])
    s.parallel(i)
    s.vectorize(inner)

In: a function or module. Out: a module whose functions compute the same. Invariant: each primitive rewrites the
function at once and refuses (ScheduleError) what would change its meaning; a LoopRV stays the loop of its variable, a
BlockRV the block of its name. Blocks: `tir/blocks/block.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise

from armillary.base.boundary import bounded
from armillary.base.node import replace
from armillary.base.record import record
from armillary.errors import ScheduleError
from armillary.ir import IRModule
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, uses_any
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.schedule import (
    cache,
    compute_at,
    inline,
    inline_reader,
    layout,
    reduction,
    reverse_compute_at,
    rfactor,
)
from armillary.tir.simplify import simplify
from armillary.tir.substitute import Substitution, map_stmt

_Touched = tuple[set[S.Buffer], set[S.Buffer]]


@record(slots=True)
class BlockRV:
    """A block, by its name in a function."""

    function: str
    name: str


@record(slots=True)
class LoopRV:
    """A loop, by its variable in a function."""

    function: str
    var: E.Var


@record(slots=True)
class StmtSRef:
    """The statement that a block or a loop is now."""

    stmt: S.Stmt


@bounded
class Schedule:
    """A module that primitives rewrite; `func_working_on` is the function that `get_block` looks into.

    A function alone is "main" of the module, whatever its symbol.
    """

    def __init__(self, mod: S.PrimFunc | IRModule, *, seed: int | None = None, debug_mask: object = 0) -> None:
        module = mod if isinstance(mod, IRModule) else IRModule({"main": mod})
        self.mod = module.map_functions(lambda _, f: _with_own_names(f) if isinstance(f, S.PrimFunc) else None)
        names = [name for name, f in self.mod.items() if isinstance(f, S.PrimFunc)]
        if not names:
            raise ScheduleError("tir.Schedule: the module has no function of loops")
        self.func_working_on = names[0] if len(names) == 1 or "main" not in names else "main"

    def work_on(self, func_name: str) -> None:
        """Look for blocks in another function."""
        self._function(func_name)
        self.func_working_on = func_name

    def _function(self, name: str) -> S.PrimFunc:
        found = self.mod[name]
        if not isinstance(found, S.PrimFunc):
            raise ScheduleError(f"tir.Schedule: {name} is no function of loops")
        return found

    # --- looking

    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block of a name."""
        where = func_name or self.func_working_on
        blocks = [s.name_hint for s in all_statements(self._function(where).body) if isinstance(s, Block)]
        if name not in blocks:
            raise ScheduleError(f"get_block: {where} has no block {name!r}", hint=f"it has: {', '.join(blocks)}")
        return BlockRV(where, name)

    def get_loops(self, block: BlockRV) -> list[LoopRV]:
        """The loops around a block, outermost first."""
        path = _path_to(self._function(block.function).body, lambda s: _is_block(s, block.name))
        return [LoopRV(block.function, s.var) for s in path if isinstance(s, S.For)]

    def get_child_blocks(self, item: BlockRV | LoopRV) -> list[BlockRV]:
        """The blocks inside a loop or a block."""
        inner = [s for s in all_statements(self.get(item)) if isinstance(s, Block)]
        return [BlockRV(item.function, s.name_hint) for s in inner if s is not self.get(item)]

    def get_producers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks that write what a block reads."""
        return self._neighbours(block, lambda other, own: bool(other[1] & own[0]))

    def get_consumers(self, block: BlockRV) -> list[BlockRV]:
        """The blocks that read what a block writes."""
        return self._neighbours(block, lambda other, own: bool(other[0] & own[1]))

    def _neighbours(self, block: BlockRV, near: Callable[[_Touched, _Touched], bool]) -> list[BlockRV]:
        item = self.get(block)
        assert isinstance(item, Block), "a schedule names blocks"
        own, others = inline.touched(item), inline.leaves(self._function(block.function).body)
        names = [b.name_hint for b in others if b is not item and near(inline.touched(b), own)]
        return [BlockRV(block.function, name) for name in names]

    def get(self, item: BlockRV | LoopRV) -> S.Stmt:
        """The statement that a block or loop is now."""
        wanted = _finder(item)
        return _path_to(self._function(item.function).body, wanted)[-1]

    def get_sref(self, item: BlockRV | LoopRV) -> StmtSRef:
        """The same, as an object of the old name."""
        return StmtSRef(self.get(item))

    def show(self) -> None:
        """Print the module as it is now."""
        self.mod.show()

    def _loop(self, primitive: str, item: LoopRV) -> S.For:
        if not isinstance(item, LoopRV):
            raise ScheduleError(f"{primitive}: got {item!r:.60}, wanted a loop", hint="get_loops(block) gives them")
        found = self.get(item)
        assert isinstance(found, S.For), "a variable of a loop has a loop"
        return found

    def _put(self, function: str, old: S.Stmt, new: S.Stmt) -> None:
        """The function with a statement in the place of another."""

        def visit(item: S.Stmt) -> S.Stmt:
            return new if item is old else map_stmt(item, lambda e: e, visit)

        func = self._function(function)
        made: S.PrimFunc = replace(func, body=visit(func.body))
        self.mod = IRModule({**dict(self.mod.items()), function: made})

    # --- the shape of loops

    def split(
        self, loop: LoopRV, factors: Sequence[int | E.Expr | None], preserve_unit_iters: bool = True
    ) -> list[LoopRV]:
        """`for i` becomes a loop for each factor, the outermost first; one of them may be None, and follows."""
        item = self._loop("split", loop)
        extent, sizes = build.as_int(item.extent), [None if f is None else build.as_int(f) for f in factors]
        known = [n for n in sizes if n is not None]
        if extent is None or len(known) < len(sizes) - 1 or any(n < 1 for n in known):
            message = "wanted a loop of known length, and positive factors of which one may be None"
            raise ScheduleError(f"split of {item.var.name}: {message}")
        product = 1
        for n in known:
            product *= n
        lengths = [-(-extent // product) if n is None else n for n in sizes]
        if len(known) == len(sizes) and product < extent:
            raise ScheduleError(f"split of {item.var.name}: the factors cover {product} of {extent} iterations")
        made = [E.Var(f"{item.var.name}_{k}", item.var.dtype) for k in range(len(lengths))]
        value: E.Expr = build.const(0, item.var.dtype)
        for var, length in zip(made, lengths, strict=True):
            value = build.add(build.mul(value, length), var)
        body = _moved(item.body, {item.var: build.add(value, item.min)})
        covered = 1
        for length in lengths:
            covered *= length
        if covered > extent:
            body = _where(body, build.less(value, build.const(extent, item.var.dtype)))
        loops = [(var, build.const(length, var.dtype)) for var, length in zip(made, lengths, strict=True)]
        self._put(loop.function, item, inline.serial_loops(loops, body))
        return [LoopRV(loop.function, var) for var in made]

    def fuse(self, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """Loops that stand directly inside one another become one."""
        items = [self._loop("fuse", loop) for loop in loops]
        for outer, inner in pairwise(items):
            if outer.body is not inner:
                message = f"fuse: {inner.var.name} does not stand directly inside {outer.var.name}"
                raise ScheduleError(message, hint="reorder first")
        if not items or any(item.kind is not S.LoopKind.SERIAL for item in items):
            raise ScheduleError("fuse: wanted serial loops")
        name = "_".join(item.var.name for item in items) + "_fused"
        fused, total = E.Var(name, items[0].var.dtype), items[0].extent
        rest: E.Expr = fused
        values: dict[E.Var, E.Expr] = {}
        for item in reversed(items[1:]):
            values[item.var] = build.add(build.floormod(rest, item.extent), item.min)
            rest = build.floordiv(rest, item.extent)
            total = build.mul(total, item.extent)
        values[items[0].var] = build.add(rest, items[0].min)
        body = _moved(items[-1].body, values)
        count = math.prod(build.as_int(item.extent) or 1 for item in items)
        if count > 2**31 - 1 and fused.dtype.bits < 64:
            raise ScheduleError(f"fuse: {name} has {count} iterations, more than int32 counts")
        self._put(loops[0].function, items[0], S.For(fused, items[0].min, simplify(total), S.LoopKind.SERIAL, body))
        return LoopRV(loops[0].function, fused)

    def reorder(self, *loops: LoopRV) -> None:
        """Put loops of one nest into this order, at the places that they occupy together."""
        items = {loop.var: self._loop("reorder", loop) for loop in loops}
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

    def parallel(self, loop: LoopRV) -> None:
        """Share the iterations among threads."""
        self._mark("parallel", loop, S.LoopKind.PARALLEL)

    def vectorize(self, loop: LoopRV) -> None:
        """Run the loop as vector operations."""
        self._mark("vectorize", loop, S.LoopKind.VECTORIZED)

    def unroll(self, loop: LoopRV) -> None:
        """Write the iterations out."""
        self._mark("unroll", loop, S.LoopKind.UNROLLED)

    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Give the iterations to a GPU axis."""
        self._mark("bind", loop, S.LoopKind.THREAD, thread_axis)

    def annotate(self, item: BlockRV | LoopRV, ann_key: str, ann_val: object) -> None:
        """Leave a note on a block or a loop."""
        found = self.get(item)
        assert isinstance(found, Block | S.For), "a schedule names blocks and loops"
        kept = tuple(pair for pair in found.annotations if pair[0] != ann_key)
        self._put(item.function, found, replace(found, annotations=(*kept, (ann_key, ann_val))))

    def unannotate(self, item: BlockRV | LoopRV, ann_key: str) -> None:
        """Take a note off a block or a loop."""
        noted = self.get(item)
        assert isinstance(noted, Block | S.For), "a schedule names blocks and loops"
        rest = tuple(pair for pair in noted.annotations if pair[0] != ann_key)
        if len(rest) == len(noted.annotations):
            notes = ", ".join(key for key, _ in noted.annotations) or "none"
            raise ScheduleError(f"unannotate: there is no note {ann_key!r}", hint=f"notes there: {notes}")
        self._put(item.function, noted, replace(noted, annotations=rest))

    # --- where blocks are computed

    def compute_inline(self, block: BlockRV) -> None:
        """Compute a block where it is read; the block and its buffer are gone."""
        func = self._function(block.function)
        path = _path_to(func.body, lambda s: _is_block(s, block.name))
        self.mod = IRModule({**dict(self.mod.items()), block.function: inline.inlined(func, path)})

    def reverse_compute_inline(self, block: BlockRV) -> None:
        """Compute a block where what it reads is written; the block and the buffer that it read are gone."""
        func = self._function(block.function)
        path = _path_to(func.body, lambda s: _is_block(s, block.name))
        made = inline_reader.inlined_into_writer(func, path)
        self.mod = IRModule({**dict(self.mod.items()), block.function: made})

    def compute_at(self, block: BlockRV, loop: LoopRV) -> None:
        """Compute a block inside a loop of its readers: in each iteration what that iteration reads."""
        func = self._function(block.function)
        path = _path_to(func.body, lambda s: _is_block(s, block.name))
        made = compute_at.computed_at(func, path, self._loop("compute_at", loop))
        self.mod = IRModule({**dict(self.mod.items()), block.function: made})

    def reverse_compute_at(self, block: BlockRV, loop: LoopRV) -> None:
        """Compute a block inside a loop of the block that writes what it reads: of each iteration what that wrote."""
        func = self._function(block.function)
        path = _path_to(func.body, lambda s: _is_block(s, block.name))
        to_loop = _path_to(func.body, lambda s: s is self._loop("reverse_compute_at", loop))
        made = reverse_compute_at.computed_at_writer(func, path, to_loop)
        self.mod = IRModule({**dict(self.mod.items()), block.function: made})

    def cache_read(
        self, block: BlockRV, read_buffer_index: int, storage_scope: str, consumer_blocks: Sequence[BlockRV] = ()
    ) -> BlockRV:
        """Copy a buffer that a block reads, by its number, before it; without `consumer_blocks` all readers take it."""
        func, buffer = self._function(block.function), self._touched_by("cache_read", block, "reads", read_buffer_index)
        names = {b.name for b in (block, *consumer_blocks)}
        readers = (
            names
            if consumer_blocks
            else {b.name_hint for b in inline.leaves(func.body) if buffer in inline.touched(b)[0]}
        )
        made, name = cache.cached_read(func, buffer, readers, storage_scope)
        return self._with_block(block.function, made, name)

    def cache_write(self, block: BlockRV, write_buffer_index: int, storage_scope: str) -> BlockRV:
        """Let a block write into a copy of a buffer, by its number, which is copied back after it."""
        buffer = self._touched_by("cache_write", block, "writes", write_buffer_index)
        writer = self.get(block)
        assert isinstance(writer, Block), "a schedule names blocks"
        made, name = cache.cached_write(self._function(block.function), buffer, writer, storage_scope)
        return self._with_block(block.function, made, name)

    def set_scope(self, block: BlockRV, buffer_index: int, storage_scope: str) -> None:
        """Put a buffer that a block writes, by its number, into another memory; it must be the function's own."""
        self._replace("set_scope", block, buffer_index, lambda buffer: replace(buffer, scope=storage_scope))

    def storage_align(self, block: BlockRV, buffer_index: int, axis: int, factor: int, offset: int) -> None:
        """Let a step along an axis of a buffer that a block writes, by its number, be k * factor + offset elements.

        It must be the function's own; with gaps it is allocated whole, however little of it an iteration uses.
        """
        self._replace("storage_align", block, buffer_index, lambda buffer: layout.aligned(buffer, axis, factor, offset))

    def _replace(self, primitive: str, block: BlockRV, index: int, change: Callable[[S.Buffer], S.Buffer]) -> None:
        buffer = self._touched_by(primitive, block, "writes", index)
        func = self._function(block.function)
        own = [b for s in all_statements(func.body) if isinstance(s, Block) for b in s.alloc_buffers]
        if buffer not in own:
            raise ScheduleError(
                f"{primitive}: {buffer.name} is an argument of {block.function}, in the caller's memory"
            )
        body = cache.with_buffer(func.body, buffer, change(buffer))
        self.mod = IRModule({**dict(self.mod.items()), block.function: func.with_body(body)})

    def transform_layout(
        self, block: BlockRV, buffer: tuple[str, int] | S.Buffer | str, index_map: layout.IndexMap
    ) -> None:
        """Lay out a buffer of the function's own, ("read" or "write", number) of a block, by `index_map(*indices)`."""
        item = self.get(block)
        assert isinstance(item, Block), "a schedule names blocks"
        if isinstance(buffer, tuple) and len(buffer) == 2 and buffer[0] in ("read", "write"):
            found = self._touched_by("transform_layout", block, f"{buffer[0]}s", buffer[1])
        else:
            touched = [r.buffer for r in (*item.reads, *item.writes)]
            named = [b for b in touched if b is buffer or b.name == buffer]
            if not named:
                hint = f'wanted ("read" or "write", number), or one of {", ".join(b.name for b in touched)}'
                raise ScheduleError(f"transform_layout: block {block.name} has no buffer {buffer!r:.60}", hint=hint)
            found = named[0]
        made = layout.laid_out(self._function(block.function), found, index_map)
        self.mod = IRModule({**dict(self.mod.items()), block.function: made})

    def decompose_reduction(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Set the first values of a reduction before a loop, in the block that this gives; `block` is the updates."""
        func = self._function(block.function)
        path = _path_to(func.body, lambda s: _is_block(s, block.name))
        first = self._free_name(block.function, f"{block.name}_init")
        made = reduction.decomposed(func, path, self._loop("decompose_reduction", loop), (first, block.name))
        return self._with_block(block.function, made, first)

    def rfactor(self, loop: LoopRV, factor_axis: int) -> BlockRV:
        """Reduce each iteration of a loop by itself, in the block that this gives, and join these parts in the old one.

        The parts are a buffer with the loop as its dimension `factor_axis`, from 0 to the rank or from -1 down.
        """
        item, func = self._loop("rfactor", loop), self._function(loop.function)
        blocks = inline.leaves(item)
        if len(blocks) != 1:
            raise ScheduleError(f"rfactor: loop {item.var.name} has {len(blocks)} blocks inside, wanted one")
        name = self._free_name(loop.function, f"{blocks[0].name_hint}_rf")
        path = _path_to(func.body, lambda s: s is blocks[0])
        return self._with_block(loop.function, rfactor.factored(func, path, item, factor_axis, name), name)

    def _touched_by(self, primitive: str, block: BlockRV, field: str, index: int) -> S.Buffer:
        item = self.get(block)
        assert isinstance(item, Block), "a schedule names blocks"
        regions = item.reads if field == "reads" else item.writes
        if not isinstance(index, int) or not 0 <= index < len(regions):
            message = (
                f"{primitive}: block {block.name} {field} {len(regions)} buffers, there is no number {index!r:.40}"
            )
            raise ScheduleError(message, hint=", ".join(r.buffer.name for r in regions))
        return regions[index].buffer

    def _free_name(self, function: str, name: str) -> str:
        used = {s.name_hint for s in all_statements(self._function(function).body) if isinstance(s, Block)}
        return next(n for n in (name, *(f"{name}_{k}" for k in range(1, len(used) + 2))) if n not in used)

    def _with_block(self, function: str, made: S.PrimFunc, name: str) -> BlockRV:
        self.mod = IRModule({**dict(self.mod.items()), function: made})
        return BlockRV(function, name)

    def unsafe_hide_buffer_access(self, block: BlockRV, buf_type: str, buf_index_array: Sequence[int]) -> None:
        """Leave buffers, by number, out of what a block says that it reads ("read") or writes ("write").

        Whoever asks a block what it touches no longer hears of them: whether that is right is for the caller to know.
        """
        found = self.get(block)
        assert isinstance(found, Block), "a schedule names blocks"
        field = {"read": "reads", "write": "writes"}.get(buf_type)
        if field is None:
            raise ScheduleError(f"unsafe_hide_buffer_access: no kind {buf_type!r}", hint='there are "read" and "write"')
        regions = getattr(found, field)
        wrong = [k for k in buf_index_array if not 0 <= k < len(regions)]
        if wrong:
            message = f"block {block.name} {field} {len(regions)} buffers, there is no number {wrong[0]}"
            raise ScheduleError(f"unsafe_hide_buffer_access: {message}")
        kept = tuple(region for k, region in enumerate(regions) if k not in buf_index_array)
        self._put(block.function, found, replace(found, **{field: kept}))


def _with_own_names(func: S.PrimFunc) -> S.PrimFunc:
    """The function with a variable of its own for each loop and a name for each block."""
    used: dict[str, int] = {}
    seen: set[E.Var] = set()

    def visit(item: S.Stmt) -> S.Stmt:
        if isinstance(item, Block):
            count = used[item.name_hint] = used.get(item.name_hint, 0) + 1
            own = item.name_hint if count == 1 else f"{item.name_hint}_{count - 1}"
            return map_stmt(replace(item, name_hint=own), lambda e: e, visit)
        if isinstance(item, S.For) and item.var in seen:
            var = E.Var(item.var.name, item.var.dtype)
            item = replace(item, var=var, body=_moved(item.body, {item.var: var}))
        if isinstance(item, S.For):
            seen.add(item.var)
        return map_stmt(item, lambda e: e, visit)

    made: S.PrimFunc = replace(func, body=visit(func.body))
    return made


def _is_block(item: S.Stmt, name: str) -> bool:
    return isinstance(item, Block) and item.name_hint == name


def _finder(item: BlockRV | LoopRV) -> Callable[[S.Stmt], bool]:
    if isinstance(item, BlockRV):
        return lambda s: _is_block(s, item.name)
    return lambda s: isinstance(s, S.For) and s.var is item.var


def _path_to(root: S.Stmt, wanted: Callable[[S.Stmt], bool]) -> list[S.Stmt]:
    """The statements from the root to the first that is wanted; ScheduleError where none is."""
    if wanted(root):
        return [root]
    found: list[list[S.Stmt]] = []

    def visit(item: S.Stmt) -> S.Stmt:
        if not found:
            with suppress(ScheduleError):
                found.append(_path_to(item, wanted))
        return item

    map_stmt(root, lambda e: e, visit)
    if not found:
        raise ScheduleError("the block or loop is not there any more")
    return [root, *found[0]]


def _moved(item: S.Stmt, values: dict[E.Var, E.Expr]) -> S.Stmt:
    """A statement, blocks included, with variables replaced."""
    mapper = Substitution(values)

    def visit(s: S.Stmt) -> S.Stmt:
        return map_stmt(s, mapper, visit)

    return visit(item)


def _where(item: S.Stmt, condition: E.Expr) -> S.Stmt:
    """A statement whose blocks run where the condition holds; what stands outside of blocks is guarded."""
    if isinstance(item, BlockRealize):
        return replace(item, predicate=build.logical_and(item.predicate, condition))
    if isinstance(item, S.For | S.SeqStmt | S.LetStmt | S.AttrStmt):
        return map_stmt(item, lambda e: e, lambda s: _where(s, condition))
    return S.IfThenElse(condition, item)


def _check_data(primitive: str, loop: S.For, realize: BlockRealize) -> None:
    """Refuse a loop whose iterations write the same elements."""
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if axis.kind != "data" and uses_any(value, {loop.var}):
            message = f"{primitive}: the iterations of {loop.var.name} write the same elements of block"
            raise ScheduleError(f"{message} {realize.block.name_hint!r}, which reduces over them")
