"""Schedules over blocks: loops of a function are split, fused, reordered and marked; `s.mod` is the result.

    s = tir.Schedule(function)
    i, j = s.get_loops(s.get_block("C"))
    outer, inner = s.split(j, [None, 8])
    s.parallel(i)
    s.vectorize(inner)

In: a function or module. Out: a module whose functions compute the same. Invariant: each primitive rewrites the
function at once and refuses (ScheduleError) what would change its meaning. Where to look next: handles, lookups and the
trace in `state.py` and `trace.py`; primitives over loops in `loops.py`, over blocks in `places.py`, numbers that are
drawn in `sampling.py`; below, blocks that are made of others. Blocks: `tir/blocks/block.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from armillary.base.dtype import DType
from armillary.base.node import replace
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements
from armillary.tir.blocks.block import Block, BufferRegion
from armillary.tir.schedule import blockize, cache, index_map, padding, reindex, tensorize
from armillary.tir.schedule.handles import BlockRV, ExprRV, LoopRV, StmtSRef
from armillary.tir.schedule.index_map import IndexMap
from armillary.tir.schedule.loops import LoopPrimitives
from armillary.tir.schedule.places import Which
from armillary.tir.schedule.sampling import Sampling
from armillary.tir.schedule.side_by_side import with_statement
from armillary.tir.schedule.trace import primitive

__all__ = ["BlockRV", "ExprRV", "LoopRV", "Schedule", "StmtSRef"]
_Map = Callable[..., Sequence[E.Expr]] | IndexMap
_Range = int | E.Expr | tuple[int | E.Expr, int | E.Expr]  # an index, or from one up to another
_HIDDEN = {"read": "explicit_read_region", "write": "explicit_write_region"}


class Schedule(LoopPrimitives, Sampling):
    """A module that primitives rewrite; `func_working_on` is the function that `get_block` looks into.

    A function alone is "main" of the module, whatever its symbol.
    """

    # --- blocks and instructions

    @primitive
    def blockize(self, target: LoopRV | BlockRV | Sequence[BlockRV], preserve_unit_iters: bool = True) -> BlockRV:
        """The loops from one on, or a block alone, as a block over whole tiles, named `<block>_o`."""
        del preserve_unit_iters
        if not isinstance(target, LoopRV):
            blocks = [target] if isinstance(target, BlockRV) else list(target)
            if len(blocks) != 1:
                raise ScheduleError(f"blockize: got {len(blocks)} blocks, wanted a loop or one block")
            path = self._path(blocks[0])[:-1]
            name, function = blocks[0].name, blocks[0].function
        else:
            path, function = self._path(target), target.function
            name = next((s.name_hint for s in all_statements(path[-1]) if isinstance(s, Block)), "block")
        own = self._free_name(function, f"{name}_o")
        return self._with_block(function, blockize.blockized(self._function(function), path, own), own)

    @primitive
    def tensorize(self, block_or_loop: BlockRV | LoopRV, tensor_intrin: str, preserve_unit_iters: bool = True) -> None:
        """Put a registered instruction (`tir.TensorIntrin`) in the place of a block, or of the loops from one on."""
        del preserve_unit_iters
        intrinsic = tensorize.TensorIntrin.get(tensor_intrin)
        assert intrinsic is not None, "get raises for a name that is not registered"
        block = self.blockize(block_or_loop) if isinstance(block_or_loop, LoopRV) else block_or_loop
        rebuilt = tensorize.tensorized(self._function(block.function), self._block(block), intrinsic)
        self._set(block.function, rebuilt)

    @primitive
    def transform_block_layout(self, block: BlockRV, index_map: _Map) -> None:
        """Give a block the axes `index_map(*axes)`, with a loop for each; it must be one that has a way back."""
        self._transform_axes(block, index_map)

    def _transform_axes(self, block: BlockRV, mapping: _Map) -> None:
        loop, nest = index_map.block_laid_out(self._path(block), mapping)
        self._put(block.function, loop, nest)

    # --- copies by axes, indices, padding

    @primitive
    def reindex(self, block: BlockRV, buffer: tuple[str, int] | S.Buffer | str) -> BlockRV:
        """Let a block touch a copy of a buffer, ("read" or "write", number), laid out by the axes that it goes by."""
        target = self._buffer("reindex", block, buffer)
        return self._reindexed(block, target, None, "global", f"{target.name}_reindex")

    @primitive
    def reindex_cache_read(
        self, block: BlockRV, read_buffer_index: Which, storage_scope: str, index_map: _Map
    ) -> BlockRV:
        """The same for a buffer that is read, laid out by a map of the block's axes, in another memory."""
        target = self._touched_by("reindex_cache_read", block, "reads", read_buffer_index)
        return self._reindexed(block, target, index_map, storage_scope, f"{target.name}_{storage_scope}")

    @primitive
    def reindex_cache_write(
        self, block: BlockRV, write_buffer_index: Which, storage_scope: str, index_map: _Map
    ) -> BlockRV:
        """The same for a buffer that is written."""
        target = self._touched_by("reindex_cache_write", block, "writes", write_buffer_index)
        return self._reindexed(block, target, index_map, storage_scope, f"{target.name}_{storage_scope}")

    def _reindexed(self, block: BlockRV, buffer: S.Buffer, mapping: _Map | None, scope: str, name: str) -> BlockRV:
        count = len(self._leaf("reindex", block).iter_vars)
        if mapping is not None and not isinstance(mapping, IndexMap):
            mapping = IndexMap.from_func(mapping, count)
        own = self._free_name(block.function, name)
        func = self._function(block.function)
        rebuilt = reindex.reindexed(func, self._path(block), buffer, mapping, (own, scope))
        return self._with_block(block.function, rebuilt, own)

    def _buffer(self, message: str, block: BlockRV, buffer: tuple[str, int] | S.Buffer | str) -> S.Buffer:
        if isinstance(buffer, tuple | list) and len(buffer) == 2 and buffer[0] in ("read", "write"):
            return self._touched_by(message, block, f"{buffer[0]}s", buffer[1])
        names = {r.buffer.name for r in self._block(block).reads}
        name = buffer.name if isinstance(buffer, S.Buffer) else buffer
        return self._touched_by(message, block, "reads" if name in names else "writes", str(name))

    @primitive
    def cache_inplace(self, block: BlockRV, read_buffer_index: Which, storage_scope: str) -> list[BlockRV]:
        """Let a block change a copy of a buffer that it reads and writes; the blocks that copy it there and back."""
        buffer = self._touched_by("cache_inplace", block, "writes", read_buffer_index)
        func = self._function(block.function)
        rebuilt, names = cache.cached_in_place(func, buffer, self._leaf("cache_inplace", block), storage_scope)
        self._set(block.function, rebuilt)
        return [BlockRV(block.function, name) for name in names]

    @primitive
    def cache_index(self, block: BlockRV, storage_scope: str, cse_thresh: int = 0) -> list[BlockRV]:
        """Compute the indices of a block before it, those that occur `cse_thresh` times or more; the blocks that do."""
        func = self._function(block.function)
        rebuilt, names = reindex.with_indices(func, self._leaf("cache_index", block), storage_scope, cse_thresh)
        self._set(block.function, rebuilt)
        return [BlockRV(block.function, name) for name in names]

    @primitive
    def read_at(self, loop: LoopRV, block: BlockRV, read_buffer_index: Which, storage_scope: str) -> BlockRV:
        """`cache_read`, and the copy computed at a loop."""
        copy = self.cache_read(block, read_buffer_index, storage_scope)
        self.compute_at(copy, loop)
        return copy

    @primitive
    def write_at(self, loop: LoopRV, block: BlockRV, write_buffer_index: Which, storage_scope: str) -> BlockRV:
        """`cache_write`, and the copy back computed at a loop."""
        copy = self.cache_write(block, write_buffer_index, storage_scope)
        self.reverse_compute_at(copy, loop)
        return copy

    @primitive
    def decompose_padding(self, block: BlockRV, loop: LoopRV) -> BlockRV:
        """Write the constant of a padding before a loop, in the block given back; `block` copies what is inside."""
        name = self._free_name(block.function, f"{block.name}_pad_const")
        func, path = self._function(block.function), self._path(block)
        rebuilt = padding.decomposed(func, path, self._loop("decompose_padding", loop), name)
        return self._with_block(block.function, rebuilt, name)

    def can_decompose_padding(self, block: BlockRV | str, loop: LoopRV) -> bool:
        """Whether `decompose_padding` would."""
        try:
            self.copy().decompose_padding(block, loop)  # type: ignore[arg-type]  # a name is looked up there
        except ScheduleError:
            return False
        return True

    @primitive
    def pad_einsum(self, block: BlockRV, padding: Sequence[int]) -> None:
        """Let a sum of products go through multiples of `padding` along its axes, over copies padded with zeros."""
        self._pad(block, padding)

    def _pad(self, block: BlockRV, lengths: Sequence[int]) -> None:
        item = self._leaf("pad_einsum", block)
        plain = [f"{r.buffer.name}_pad" for r in item.reads] + [f"{w.buffer.name}_pad" for w in item.writes]
        names = [self._free_name(block.function, name) for name in plain]
        rebuilt = padding.padded(self._function(block.function), self._path(block), lengths, names)
        self._set(block.function, rebuilt)

    # --- what is stated

    @primitive
    def unsafe_set_dtype(self, block: BlockRV, buffer_index: Which, dtype: str) -> None:
        """Keep a buffer of the function's own that a block writes in another type; values are cast there and back."""
        buffer, kind = self._touched_by("unsafe_set_dtype", block, "writes", buffer_index), DType(dtype)
        func = self._function(block.function)
        if buffer not in [b for s in all_statements(func.body) if isinstance(s, Block) for b in s.alloc_buffers]:
            raise ScheduleError(f"unsafe_set_dtype: {buffer.name} is an argument of {block.function}")
        self._set(block.function, func.with_body(cache.with_type(func.body, buffer, replace(buffer, dtype=kind))))

    @primitive
    def annotate_buffer_access(
        self, block: BlockRV, buffer_index: int, buf_type: str, gen_new_ranges: Callable[..., Sequence[_Range]]
    ) -> None:
        """State which part of a buffer a block reads ("read") or writes ("write"), by a function of its axes.

        It gives an index or a pair (begin, end) along each dimension; whether that is right is for the caller to know.
        """
        item = self._block(block)
        if buf_type not in _HIDDEN:
            raise ScheduleError(f"annotate_buffer_access: no kind {buf_type!r}", hint='there are "read" and "write"')
        buffer = self._touched_by("annotate_buffer_access", block, f"{buf_type}s", buffer_index)
        rows = gen_new_ranges(*(a.var for a in item.iter_vars))
        if len(rows) != len(buffer.shape):
            raise ScheduleError(
                f"annotate_buffer_access: {buffer.name} has {len(buffer.shape)} dimensions, got {len(rows)}"
            )
        pairs = [row if isinstance(row, tuple) else (row, build.add(build.convert(row), 1)) for row in rows]
        ranges = tuple(E.Range(build.convert(low), build.convert(high)) for low, high in pairs)
        field = f"{buf_type}s"
        regions = tuple(
            BufferRegion(buffer, ranges) if k == buffer_index else r for k, r in enumerate(getattr(item, field))
        )
        key = _HIDDEN[buf_type]
        notes = (*(pair for pair in item.annotations if pair[0] != key), (key, buffer_index))
        self._set(
            block.function,
            with_statement(self._function(block.function), item, replace(item, annotations=notes, **{field: regions})),
        )

    @primitive
    def enter_postproc(self) -> None:
        """A mark in the trace: what follows is left out by `remove_postproc=True`."""

    def set_axis_separator(self, block: BlockRV | str, buffer: object, axis_separators: object) -> NoReturn:
        """Refused: memory has one dimension on every target that there is."""
        raise ScheduleError("set_axis_separator: memory has one dimension here", hint="transform_layout orders it")

    def rolling_buffer(self, block: BlockRV | str, write_buffer_index: int) -> NoReturn:
        """Refused: a buffer computed at a loop is as small as what an iteration reads, and computed for each anew."""
        raise ScheduleError("rolling_buffer: rows are not kept between iterations", hint="compute_at makes them local")
