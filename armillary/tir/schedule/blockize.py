"""The loops from one on as a block: `blockized(function, path, name)`.

    for i0, i1: block c(v = i0 * 4 + i1)  ->  for i0: block c_o(vo = i0) {for i1: block c(v = i1) … at vo * 4 + v}

In: a function and the path to a loop or to a block's realize. Out: the function. Invariant: refused (ScheduleError)
unless every axis of the block is n times something of the outer loops plus what the inner loops count from 0 to n - 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.base.node import replace
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import free_vars, uses_any
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.blocks.regions import block_regions
from armillary.tir.linear import Linear
from armillary.tir.schedule.inline import leaves, moved, serial_loops
from armillary.tir.schedule.reduction import conjuncts
from armillary.tir.schedule.side_by_side import with_statement
from armillary.tir.simplify import Simplifier, simplify
from armillary.tir.substitute import substitute_expr

_Part = tuple[E.Expr, int, E.Expr]  # outer number of tiles, length of a tile, place in a tile


def blockized(func: S.PrimFunc, path: Sequence[S.Stmt], name: str) -> S.PrimFunc:
    """The function whose statement at the end of the path, a loop or a block's realize, is a block `name`."""
    top = path[-1]
    inner = leaves(top)
    message = "blockize"
    if len(inner) != 1:
        raise ScheduleError(f"{message}: there are {len(inner)} blocks inside, wanted one")
    loops, realize = _chain(message, top)
    message = f"blockize: block {realize.block.name_hint!r}"
    ranges = {s.var: (0, n - 1) for s in loops if (n := build.as_int(s.extent)) is not None}
    if len(ranges) < len(loops) or any(build.as_int(s.min) != 0 for s in loops):
        raise ScheduleError(f"{message}: wanted loops from 0 to known ends")
    parts = [_part(message, v, ranges) for v in realize.iter_values]
    conditions = conjuncts(realize.predicate)
    mixed = [c for c in conditions if uses_any(c, set(ranges)) and not _is_inner(c, ranges)]
    if mixed:
        raise ScheduleError(f"{message}: the condition {mixed[0]} is of inner and outer loops")
    outer, fresh = _outer_axes(message, realize.block, parts)
    inner_realize = _inner(realize, parts, fresh, [c for c in conditions if uses_any(c, set(ranges))])
    block = inner_realize.block
    init: S.Stmt | None = None
    if block.init is not None and any(
        a.kind != "data" and build.as_int(a.dom.extent) != 1 for a in outer if isinstance(a.dom, E.Range)
    ):
        init = _init(inner_realize, loops)
        inner_realize = replace(inner_realize, block=replace(block, init=None))
    body = serial_like(loops, inner_realize)
    whole = Block(tuple(outer), (), (), name, body, init)
    reads, writes = block_regions(whole)
    predicate = build.all_of(*[c for c in conditions if not uses_any(c, set(ranges))])
    result = BlockRealize(tuple(p[0] for p in parts), predicate, replace(whole, reads=reads, writes=writes))
    return with_statement(func, top, result)


def serial_like(loops: Sequence[S.For], body: S.Stmt) -> S.Stmt:
    """The statement inside the same loops."""
    for loop in reversed(loops):
        body = replace(loop, body=body)
    return body


def _chain(message: str, top: S.Stmt) -> tuple[list[S.For], BlockRealize]:
    loops: list[S.For] = []
    item = top
    while isinstance(item, S.For):
        loops.append(item)
        item = item.body
    if not isinstance(item, BlockRealize):
        raise ScheduleError(f"{message}: there is a {type(item).__name__} between the loops and the block")
    return loops, item


def _is_inner(item: E.Expr, ranges: Mapping[E.Var, object]) -> bool:
    return set(free_vars(item)) <= set(ranges)


def _part(message: str, value: E.Expr, ranges: Mapping[E.Var, tuple[int, int]]) -> _Part:
    """An axis as outer * length + inner."""
    simplifier = Simplifier(dict(ranges))
    form = simplifier.linear(value)
    inner = Linear({a: c for a, c in form.terms.items() if uses_any(a, set(ranges))}, 0)
    outer = Linear({a: c for a, c in form.terms.items() if a not in inner.terms}, form.constant)
    if any(not _is_inner(a, ranges) for a in inner.terms):
        raise ScheduleError(f"{message}: the axis at {value} joins inner and outer loops")
    place = inner.expr(value.dtype)
    low, high = simplifier.bound(place)
    length = int(high) + 1
    quotient, rest = outer.split(length)
    if low != 0 or rest.terms or rest.constant:
        raise ScheduleError(f"{message}: the axis at {value} is no whole number of tiles of {length}")
    return simplify(quotient.expr(value.dtype)), length, place


def _outer_axes(message: str, block: Block, parts: Sequence[_Part]) -> tuple[list[E.IterVar], list[E.Var]]:
    axes, fresh = [], []
    for axis, (_, length, _) in zip(block.iter_vars, parts, strict=True):
        assert isinstance(axis.dom, E.Range), "an axis of a block has a domain"
        extent = simplify(build.floordiv(build.add(axis.dom.extent, length - 1), length))
        low = build.as_int(axis.dom.min)
        if low is None or low % length:
            raise ScheduleError(f"{message}: axis {axis.var.name} begins at {axis.dom.min}, inside a tile")
        var = E.Var(f"{axis.var.name}o", axis.var.dtype)
        domain = E.Range.from_min_extent(build.const(low // length, var.dtype), extent)
        axes.append(E.IterVar(domain, var, axis.kind))
        fresh.append(var)
    return axes, fresh


def _inner(
    realize: BlockRealize, parts: Sequence[_Part], outer: Sequence[E.Var], conditions: Sequence[E.Expr]
) -> BlockRealize:
    """The block over the places in a tile."""
    values: dict[E.Var, E.Expr] = {}
    axes = []
    for axis, (_, length, _), var in zip(realize.block.iter_vars, parts, outer, strict=True):
        own = E.Var(axis.var.name, axis.var.dtype)
        values[axis.var] = simplify(build.add(build.mul(var, length), own))
        domain = E.Range.from_min_extent(build.const(0, own.dtype), build.const(length, own.dtype))
        axes.append(E.IterVar(domain, own, axis.kind))
    block = moved(replace(realize.block, iter_vars=()), values)
    assert isinstance(block, Block), "a block stays one"
    block = replace(block, iter_vars=tuple(axes))
    reads, writes = block_regions(block)
    return BlockRealize(
        tuple(p[2] for p in parts), build.all_of(*conditions), replace(block, reads=reads, writes=writes)
    )


def _init(realize: BlockRealize, loops: Sequence[S.For]) -> S.Stmt:
    """The first values of a tile: the data loops around the init of the inner block."""
    block = realize.block
    assert block.init is not None, "asked by the caller"
    pairs = [p for p in zip(block.iter_vars, realize.iter_values, strict=True) if p[0].kind == "data"]
    copies: dict[E.Var, E.Expr] = {a.var: E.Var(a.var.name, a.var.dtype) for a, _ in pairs}
    needed = [s for s in loops if any(uses_any(v, {s.var}) for _, v in pairs)]
    fresh: dict[E.Var, E.Expr] = {s.var: E.Var(f"{s.var.name}_init", s.var.dtype) for s in needed}
    axes = tuple(replace(a, var=copies[a.var]) for a, _ in pairs)
    values = tuple(substitute_expr(v, fresh) for _, v in pairs)
    conditions = [c for c in conjuncts(realize.predicate) if set(free_vars(c)) <= set(fresh)]
    if len(conditions) < len(conjuncts(realize.predicate)):
        raise ScheduleError(f"blockize: block {block.name_hint!r} has a condition on its reduced loops")
    body = moved(block.init, copies)
    first = Block(axes, (), (), f"{block.name_hint}_init", body)
    reads, writes = block_regions(first)
    predicate = substitute_expr(realize.predicate, fresh)
    result = BlockRealize(values, predicate, replace(first, reads=reads, writes=writes))
    return serial_loops([(v, s.extent) for s in needed if isinstance(v := fresh[s.var], E.Var)], result)
