"""Primitives over blocks: where they are computed, which memory they use, how reductions are cut.

In: handles of blocks and loops. Out: handles of new blocks; the schedule's module is rewritten. Invariant: each refuses
(ScheduleError) what would change the meaning; the rewriting itself stands in a module for each idea.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.base.node import replace
from armillary.errors import ScheduleError
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements
from armillary.tir.blocks.block import Block
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
from armillary.tir.schedule.handles import INLINE, ROOT, BlockRV, LoopRV
from armillary.tir.schedule.state import State
from armillary.tir.schedule.trace import primitive

Which = int | str | S.Buffer  # a buffer of a block: its number, its name or itself


class BlockPrimitives(State):
    """What is done to blocks as they stand."""

    # --- where blocks are computed

    @primitive
    def compute_inline(self, block: BlockRV) -> None:
        """Compute a block where it is read; the block and its buffer are gone."""
        func = self._function(block.function)
        path = self._path(block)
        self._set(block.function, inline.inlined(func, path))

    @primitive
    def reverse_compute_inline(self, block: BlockRV) -> None:
        """Compute a block where what it reads is written; the block and the buffer that it read are gone."""
        func = self._function(block.function)
        path = self._path(block)
        rebuilt = inline_reader.inlined_into_writer(func, path)
        self._set(block.function, rebuilt)

    @primitive
    def compute_at(self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1) -> None:
        """Compute a block inside a loop of its readers: in each iteration what that iteration reads.

        It stands before its first reader, whatever `index` says; a sampled place may be no loop or "inline".
        """
        del preserve_unit_loops, index
        if loop.var is ROOT:
            return
        if loop.var is INLINE:
            self.compute_inline(block)
            return
        func = self._function(block.function)
        path = self._path(block)
        rebuilt = compute_at.computed_at(func, path, self._loop("compute_at", loop))
        self._set(block.function, rebuilt)

    @primitive
    def reverse_compute_at(
        self, block: BlockRV, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Compute a block inside a loop of the block that writes what it reads: of each iteration what that wrote.

        It stands behind its writer, whatever `index` says; a sampled place may be no loop or "inline".
        """
        del preserve_unit_loops, index
        if loop.var is ROOT:
            return
        if loop.var is INLINE:
            self.reverse_compute_inline(block)
            return
        func = self._function(block.function)
        path = self._path(block)
        to_loop = self._path(loop)
        rebuilt = reverse_compute_at.computed_at_writer(func, path, to_loop)
        self._set(block.function, rebuilt)

    @primitive
    def cache_read(
        self,
        block: BlockRV,
        read_buffer_index: Which,
        storage_scope: str,
        consumer_blocks: Sequence[BlockRV] | None = None,
    ) -> BlockRV:
        """Copy a buffer that a block reads, by its number, before it; without `consumer_blocks` all readers take it."""
        for one in (block, *(consumer_blocks or ())):
            self._leaf("cache_read", one)
        func, buffer = self._function(block.function), self._touched_by("cache_read", block, "reads", read_buffer_index)
        names = {b.name for b in (block, *(consumer_blocks or ()))}
        readers = (
            names
            if consumer_blocks
            else {b.name_hint for b in inline.leaves(func.body) if buffer in inline.touched(b)[0]}
        )
        rebuilt, name = cache.cached_read(func, buffer, readers, storage_scope)
        return self._with_block(block.function, rebuilt, name)

    @primitive
    def cache_write(
        self,
        block: BlockRV,
        write_buffer_index: Which,
        storage_scope: str,
        consumer_blocks: Sequence[BlockRV] | None = None,
    ) -> BlockRV:
        """Let a block write into a copy of a buffer, by its number, which is copied back after it.

        Readers take what was copied back: `consumer_blocks` that are to read the copy are refused.
        """
        if consumer_blocks:
            raise ScheduleError("cache_write: readers of the copy are not chosen", hint="cache_read copies for readers")
        buffer = self._touched_by("cache_write", block, "writes", write_buffer_index)
        writer = self._leaf("cache_write", block)
        rebuilt, name = cache.cached_write(self._function(block.function), buffer, writer, storage_scope)
        return self._with_block(block.function, rebuilt, name)

    @primitive
    def set_scope(self, block: BlockRV, buffer_index: Which, storage_scope: str) -> None:
        """Put a buffer that a block writes, by its number, into another memory; it must be the function's own."""
        self._replace("set_scope", block, buffer_index, lambda buffer: replace(buffer, scope=storage_scope))

    @primitive
    def storage_align(self, block: BlockRV, buffer_index: Which, axis: int, factor: int, offset: int) -> None:
        """Let a step along an axis of a buffer that a block writes, by its number, be k * factor + offset elements.

        It must be the function's own; with gaps it is allocated whole, however little of it an iteration uses.
        """
        self._replace("storage_align", block, buffer_index, lambda buffer: layout.aligned(buffer, axis, factor, offset))

    def _replace(self, primitive: str, block: BlockRV, index: Which, change: Callable[[S.Buffer], S.Buffer]) -> None:
        buffer = self._touched_by(primitive, block, "writes", index)
        func = self._function(block.function)
        own = [b for s in all_statements(func.body) if isinstance(s, Block) for b in s.alloc_buffers]
        if buffer not in own:
            raise ScheduleError(
                f"{primitive}: {buffer.name} is an argument of {block.function}, in the caller's memory"
            )
        body = cache.with_buffer(func.body, buffer, change(buffer))
        self._set(block.function, func.with_body(body))

    @primitive
    def transform_layout(
        self,
        block: BlockRV,
        buffer: tuple[str, int] | S.Buffer | str,
        index_map: layout.IndexMap,
        pad_value: object = None,
        *,
        assume_injective_transform: bool = False,
    ) -> None:
        """Lay out a buffer of the function's own, ("read" or "write", number) of a block, by `index_map(*indices)`.

        Nothing reads places that the map leaves empty, so that `pad_value` is not written there.
        """
        del pad_value, assume_injective_transform  # whether it is injective is found out
        item = self._block(block)
        if isinstance(buffer, tuple | list) and len(buffer) == 2 and buffer[0] in ("read", "write"):
            target = self._touched_by("transform_layout", block, f"{buffer[0]}s", buffer[1])
        else:
            touched = [r.buffer for r in (*item.reads, *item.writes)]
            target = _named("transform_layout", block, touched, buffer)
        self._set(block.function, layout.laid_out(self._function(block.function), target, index_map))

    @primitive
    def decompose_reduction(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Set the first values of a reduction before a loop, in the block that this gives; `block` is the updates."""
        func = self._function(block.function)
        path = self._path(block)
        first = self._free_name(block.function, f"{block.name}_init")
        rebuilt = reduction.decomposed(func, path, self._loop("decompose_reduction", loop), (first, block.name))
        return self._with_block(block.function, rebuilt, first)

    @primitive
    def rfactor(self, loop: LoopRV, factor_axis: int) -> BlockRV:
        """Reduce each iteration of a loop by itself, in the block that this gives, and join these parts in the old one.

        The parts are a buffer with the loop as its dimension `factor_axis`, from 0 to the rank or from -1 down.
        """
        item, func = self._loop("rfactor", loop), self._function(loop.function)
        blocks = inline.leaves(item)
        if len(blocks) != 1:
            raise ScheduleError(f"rfactor: loop {item.var.name} has {len(blocks)} blocks inside, wanted one")
        name = self._free_name(loop.function, f"{blocks[0].name_hint}_rf")
        path = self._path(BlockRV(loop.function, blocks[0].name_hint))
        return self._with_block(loop.function, rfactor.factored(func, path, item, factor_axis, name), name)

    def _touched_by(self, primitive: str, block: BlockRV, field: str, index: Which) -> S.Buffer:
        """A buffer that a block reads or writes, by its number, its name or itself."""
        item = self._block(block)
        buffers = [r.buffer for r in (item.reads if field == "reads" else item.writes)]
        if not isinstance(index, int):
            return _named(primitive, block, buffers, index)
        if not 0 <= index < len(buffers):
            message = f"{primitive}: block {block.name} {field} {len(buffers)} buffers, there is no number {index}"
            raise ScheduleError(message, hint=", ".join(b.name for b in buffers))
        return buffers[index]

    @primitive
    def unsafe_hide_buffer_access(self, block: BlockRV, buf_type: str, buf_index_array: Sequence[int]) -> None:
        """Leave buffers, by number, out of what a block says that it reads ("read") or writes ("write").

        Whoever asks a block what it touches no longer hears of them: whether that is right is for the caller to know.
        """
        block_node = self._block(block)
        field = {"read": "reads", "write": "writes"}.get(buf_type)
        if field is None:
            raise ScheduleError(f"unsafe_hide_buffer_access: no kind {buf_type!r}", hint='there are "read" and "write"')
        regions = getattr(block_node, field)
        wrong = [k for k in buf_index_array if not 0 <= k < len(regions)]
        if wrong:
            message = f"block {block.name} {field} {len(regions)} buffers, there is no number {wrong[0]}"
            raise ScheduleError(f"unsafe_hide_buffer_access: {message}")
        retained = tuple(region for k, region in enumerate(regions) if k not in buf_index_array)
        self._put(block.function, block_node, replace(block_node, **{field: retained}))


def _named(primitive: str, block: BlockRV, buffers: Sequence[S.Buffer], which: object) -> S.Buffer:
    for buffer in buffers:
        if which is buffer or which == buffer.name:
            return buffer
    hint = f'wanted ("read" or "write", number), or one of {", ".join(b.name for b in buffers)}'
    raise ScheduleError(f"{primitive}: block {block.name} has no buffer {which!r:.60}", hint=hint)
