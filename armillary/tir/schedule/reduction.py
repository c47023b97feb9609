"""Reductions in two blocks: the first values by themselves, before a loop, then the updates.

    for i, k: c[i] = 0 if k is first; c[i] += a[i, k]  ->  for i: c[i] = 0; for i, k: c[i] += a[i, k]

In: a function and the statements from its body to the block. Out: the function. Invariant: refused (ScheduleError)
where the first values would be set more than once, or by a condition that the reduction's own loops decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.node import replace
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import uses_any
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.schedule.inline import leaves, touched
from armillary.tir.substitute import map_stmt, substitute, substitute_expr


def decomposed(func: S.PrimFunc, path: Sequence[S.Stmt], loop: S.For, names: tuple[str, str]) -> S.PrimFunc:
    """The function with the block's first values set before a loop; `names`: of the new block and of the updates."""
    realize, block = path[-2:]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    around = [s for s in path if isinstance(s, S.For)]
    if block.init is None:
        raise ScheduleError(f"decompose_reduction: block {block.name_hint!r} has no first values (no T.init)")
    if loop not in around:
        raise ScheduleError(f"decompose_reduction: loop {loop.var.name} is not around block {block.name_hint!r}")
    at = around.index(loop)
    pairs = list(zip(block.iter_vars, realize.iter_values, strict=True))
    summed = {s.var for s in around if any(a.kind != "data" and uses_any(v, {s.var}) for a, v in pairs)}
    outside = [s.var.name for s in around[:at] if s.var in summed]
    if outside:
        message = f"decompose_reduction: block {block.name_hint!r} reduces over {outside[0]}"
        raise ScheduleError(f"{message}, which is outside of {loop.var.name}", hint="name the outermost such loop")
    if any(a.kind == "data" and uses_any(v, summed) for a, v in pairs):
        message = f"decompose_reduction: block {block.name_hint!r} has axes of reduced and of other loops"
        raise ScheduleError(message, hint="decompose before loops are fused")
    _check_others(loop, block)
    retained = [s for s in around[at:] if s.var not in summed]
    fresh = {s.var: E.Var(f"{s.var.name}_init", s.var.dtype) for s in retained}
    first = _first_values(block, realize, summed, fresh, names[0])
    for s in reversed(retained):
        kind = s.kind if s.kind is S.LoopKind.THREAD else S.LoopKind.SERIAL
        first = S.For(fresh[s.var], _with(s.min, fresh), _with(s.extent, fresh), kind, first, s.thread_tag)

    def visit(item: S.Stmt) -> S.Stmt:
        if item is block:
            return replace(block, init=None, name_hint=names[1])
        result = map_stmt(item, lambda e: e, visit)
        return S.seq(first, result) if item is loop else result

    return func.with_body(visit(func.body))


def _first_values(
    block: Block, realize: BlockRealize, summed: set[E.Var], fresh: dict[E.Var, E.Var], name: str
) -> S.Stmt:
    assert block.init is not None, "checked by the caller"
    conditions = [c for c in conjuncts(realize.predicate) if not uses_any(c, summed)]
    mixed = [c for c in conjuncts(realize.predicate) if uses_any(c, summed) and uses_any(c, set(fresh))]
    if mixed:
        raise ScheduleError(f"decompose_reduction: the condition {mixed[0]} is of reduced and of other loops")
    predicate: E.Expr = build.const(True)
    for condition in conditions:
        predicate = build.logical_and(predicate, _with(condition, fresh))
    pairs = [p for p in zip(block.iter_vars, realize.iter_values, strict=True) if p[0].kind == "data"]
    copies = {a.var: E.Var(a.var.name, a.var.dtype) for a, _ in pairs}
    axes = tuple(replace(a, var=copies[a.var]) for a, _ in pairs)
    values = tuple(_with(v, fresh) for _, v in pairs)
    writes = tuple(
        replace(
            w, region=tuple(E.Range.from_min_extent(_with(r.min, copies), _with(r.extent, copies)) for r in w.region)
        )
        for w in block.writes
    )
    body = substitute(block.init, dict(copies))
    return BlockRealize(values, predicate, Block(axes, (), writes, name, body))


def _with(item: E.Expr, values: dict[E.Var, E.Var]) -> E.Expr:
    return substitute_expr(item, dict(values))


def conjuncts(item: E.Expr) -> list[E.Expr]:
    """The conditions that hold together where one holds."""
    if isinstance(item, E.And):
        return [*conjuncts(item.a), *conjuncts(item.b)]
    return [item]


def _check_others(loop: S.For, block: Block) -> None:
    written, own = touched(block)[1], leaves(block)
    for other in leaves(loop):
        if other not in own and written & set().union(*touched(other)):
            message = f"decompose_reduction: block {other.name_hint!r} in loop {loop.var.name} uses"
            raise ScheduleError(f"{message} what block {block.name_hint!r} computes", hint="name a loop inside")
