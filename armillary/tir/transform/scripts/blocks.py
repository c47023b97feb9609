"""Blocks to loops: `lower-init-block`, `convert-blocks-to-opaque`, `lower-match-buffer`, `lower-opaque-block`.

In: a function with blocks (tir/blocks/block.py). Out: the same computation with one part of them gone; after all four,
in this order, there is none: `lower_blocks`, which places and cuts buffers between. Functions without blocks stay as
they are. Invariant: buffers of a block exist around its body; a reduction starts where all of its reduction axes are at
their beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.base.node import replace
from armillary.errors import UnsupportedError
from armillary.ir import IRModule
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.blocks.block import Block, BlockRealize, has_blocks
from armillary.tir.simplify import simplify
from armillary.tir.substitute import ExprMapper, Mapper, Substitution, map_stmt
from armillary.tir.transform.compact_buffer_allocation import CompactBufferAllocation
from armillary.tir.transform.loop_pass import prim_pass, with_body
from armillary.tir.transform.plan_and_update_buffer_allocation_location import PlanAndUpdateBufferAllocationLocation
from armillary.transform import Pass


def _over_blocks(func: S.PrimFunc, rule: Callable[[BlockRealize], S.Stmt]) -> S.PrimFunc:
    """The function with each block rewritten, inner ones first."""
    if not has_blocks(func):
        return func

    def visit(item: S.Stmt) -> S.Stmt:
        mapped = map_stmt(item, lambda e: e, visit)
        return rule(mapped) if isinstance(mapped, BlockRealize) else mapped

    return with_body(func, visit(func.body))


def lower_init_block(func: S.PrimFunc) -> S.PrimFunc:
    """The start of a reduction becomes a choice in front of its body.

    init { C[i] = 0 } C[i] = C[i] + A[i, k]  ->  if k == 0 { C[i] = 0 } C[i] = C[i] + A[i, k]
    """

    def rule(item: BlockRealize) -> S.Stmt:
        block = item.block
        if block.init is None:
            return item
        first = [
            build.equal(a.var, a.dom.min) for a in block.iter_vars if a.kind == "reduce" and isinstance(a.dom, E.Range)
        ]
        start = S.IfThenElse(build.all_of(*first), block.init) if first else block.init
        return replace(item, block=replace(block, init=None, body=S.seq(start, block.body)))

    return _over_blocks(func, rule)


def convert_blocks_to_opaque(func: S.PrimFunc) -> S.PrimFunc:
    """The values of a block's axes go where the axes are; the block has none."""

    def rule(item: BlockRealize) -> S.Stmt:
        block = item.block
        if not block.iter_vars:
            return item
        values = {a.var: value for a, value in zip(block.iter_vars, item.iter_values, strict=True)}
        mapper = Substitution(values)
        mapped = map_stmt(replace(block, iter_vars=()), mapper, lambda s: _mapped(s, mapper))
        assert isinstance(mapped, Block), "a block stays one"
        return BlockRealize((), mapper(item.predicate), mapped)

    return _over_blocks(func, rule)


def _mapped(item: S.Stmt, mapper: Mapper) -> S.Stmt:
    return map_stmt(item, mapper, lambda s: _mapped(s, mapper))


def lower_match_buffer(func: S.PrimFunc) -> S.PrimFunc:
    """Accesses to a part of a buffer by another name become accesses to the buffer."""

    def rule(item: BlockRealize) -> S.Stmt:
        block = item.block
        if not block.match_buffers:
            return item
        matched = {m.buffer: m.source for m in block.match_buffers}

        def place(buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> tuple[S.Buffer, tuple[E.Expr, ...]]:
            source = matched[buffer]
            lead = len(source.region) - len(indices)
            starts = [r.min for r in source.region]
            if lead < 0 or buffer.dtype != source.buffer.dtype:
                raise UnsupportedError(f"buffer {buffer.name} does not match a part of {source.buffer.name}")
            moved = (build.add(a, b) for a, b in zip(starts[lead:], indices, strict=True))
            return source.buffer, (*starts[:lead], *moved)

        def load(e: E.Expr) -> E.Expr | None:
            return (
                E.BufferLoad(*place(e.buffer, e.indices)) if type(e) is E.BufferLoad and e.buffer in matched else None
            )

        mapper = ExprMapper(load)

        def visit(s: S.Stmt) -> S.Stmt:
            mapped = map_stmt(s, mapper, visit)
            if isinstance(mapped, S.BufferStore) and mapped.buffer in matched:
                buffer, indices = place(mapped.buffer, mapped.indices)
                return S.BufferStore(buffer, mapped.value, indices)
            return mapped

        return replace(item, block=visit(_bound(replace(block, match_buffers=()), block)))

    return _over_blocks(func, rule)


def _bound(plain: Block, block: Block) -> Block:
    """The block with the lengths of its sources' regions in the place of variables in its matched buffers' shapes."""
    values: dict[E.Var, E.Expr] = {}
    for match in block.match_buffers:
        for size, own in zip(match.source.region[-len(match.buffer.shape) :], match.buffer.shape, strict=False):
            if isinstance(own, E.Var):
                values[own] = simplify(size.extent)
    if not values:
        return plain
    mapper = Substitution(values)
    result = _mapped(plain, mapper)
    assert isinstance(result, Block), "a block stays one"
    return result


def lower_opaque_block(func: S.PrimFunc) -> S.PrimFunc:
    """A block without axes becomes its body, in the lifetimes of its buffers, where its predicate holds."""

    def rule(item: BlockRealize) -> S.Stmt:
        block = item.block
        if block.iter_vars or block.init is not None or block.match_buffers:
            raise UnsupportedError(
                f"block {block.name_hint!r} has axes, a start or matched buffers still",
                hint="run LowerInitBlock, ConvertBlocksToOpaque and LowerMatchBuffer first",
            )
        body: S.Stmt = block.body
        for buffer in reversed(block.alloc_buffers):
            body = S.Allocate(buffer, body)
        for key, value in reversed(block.annotations):
            if key.startswith("pragma_"):
                body = S.AttrStmt(key, build.convert(value), body)
        holds = build.as_int(item.predicate)
        return body if holds == 1 else S.IfThenElse(item.predicate, body)

    return _over_blocks(func, rule)


LowerInitBlock = prim_pass("lower-init-block", "tir.LowerInitBlock")(lower_init_block)
ConvertBlocksToOpaque = prim_pass("convert-blocks-to-opaque", "tir.ConvertBlocksToOpaque")(convert_blocks_to_opaque)
LowerMatchBuffer = prim_pass("lower-match-buffer", "tir.LowerMatchBuffer")(lower_match_buffer)
LowerOpaqueBlock = prim_pass("lower-opaque-block", "tir.LowerOpaqueBlock")(lower_opaque_block)

ORDER: tuple[Callable[..., Pass], ...] = (  # FlattenBuffer comes after them
    LowerInitBlock,
    PlanAndUpdateBufferAllocationLocation,
    ConvertBlocksToOpaque,
    CompactBufferAllocation,
    LowerMatchBuffer,
    LowerOpaqueBlock,
)


def lower_blocks(func: S.PrimFunc, first: Sequence[Callable[[IRModule], IRModule]] = ()) -> S.PrimFunc:
    """The function with plain loops in the place of its blocks, its buffers as small as their uses; instruments see.

    `first`: passes that run on a function with blocks before.
    """
    if not has_blocks(func):
        return func
    name = str(func.get_attr("global_symbol", "main"))
    module = IRModule({name: func})
    steps: list[Callable[[IRModule], IRModule]] = [*first, *(make() for make in ORDER)]
    for step in steps:
        module = step(module)
    lowered: S.PrimFunc = module[name]
    return lowered
