"""Loops behind one another: one loop cut into several (`partitioned`), several made one (`merged`).

    for i in 8: a[i] = …                      ->  for i in 3: a[i] = …; for i in 3..8: a[i] = …
    for i in 8: a[i] = …; for i in 8: b[i] = a[i]  ->  for i in 8: {a[i] = …; b[i] = a[i]}

In: a function and loops of it. Out: the function and the variables of the new loops. Invariant: cutting keeps the
order of all iterations; merging is refused (ScheduleError) unless, in every buffer that one nest writes and another
touches, each iteration of the merged loops has a part of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from armillary.base.node import replace, structural_equal
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, expressions_of, nodes_of, statements_inside
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.schedule.inline import moved, serial_loops
from armillary.tir.simplify import Simplifier, simplify
from armillary.tir.substitute import fresh_copy, map_stmt, substitute_expr

_Nest = list[S.For]  # loops directly inside one another


def ends_of(loop: S.For, factors: Sequence[int | None]) -> list[int]:
    """Where the parts of a loop end, counted from its beginning; the last end is its length."""
    extent = build.as_int(loop.extent)
    known = [n for n in factors if n is not None]
    message = f"loop_partition of {loop.var.name}"
    if extent is None or loop.annotations or loop.kind is S.LoopKind.THREAD:
        raise ScheduleError(f"{message}: wanted a loop of known length, without notes and not bound")
    if any(isinstance(s, Block) and s.alloc_buffers for s in all_statements(loop)):
        raise ScheduleError(f"{message}: a block inside has buffers of its own", hint="partition before blockize")
    if len(known) < len(factors) - 1 or any(n < 1 for n in known) or sum(known) > extent:
        raise ScheduleError(f"{message}: got {list(factors)}, wanted lengths within {extent}, one of them None at most")
    lengths = [extent - sum(known) if n is None else n for n in factors]
    if len(known) == len(factors):
        lengths.append(extent - sum(known))
    lengths = [n for n in lengths if n]
    return [sum(lengths[: k + 1]) for k in range(len(lengths))]


def partitioned(func: S.PrimFunc, loop: S.For, ends: Sequence[int]) -> tuple[S.PrimFunc, list[E.Var]]:
    """The function with a loop for each part; blocks in it get names with the number of their part."""
    used = {s.name_hint for s in all_statements(func.body) if isinstance(s, Block)}
    parts: list[S.Stmt] = []
    loops: list[E.Var] = []
    ranges = _ranges(func.body)
    start_of_loop = build.as_int(loop.min)
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        var = E.Var(f"{loop.var.name}{number}", loop.var.dtype)
        if start_of_loop is not None:
            ranges[var] = (start_of_loop + start, start_of_loop + end - 1)
        body = with_free_names(fresh_copy(moved(loop.body, {loop.var: var}), {}), f"_{number}", used)
        low, body = simplify(build.add(loop.min, start)), _without_dead_starts(body, {**ranges, **_ranges(body)})
        parts.append(replace(loop, var=var, min=low, extent=build.const(end - start, var.dtype), body=body))
        loops.append(var)
    return with_statement(func, loop, S.seq(*parts)), loops


def _ranges(item: S.Stmt) -> dict[E.Var, tuple[int, int]]:
    """The values of loops of known bounds."""
    known = [(s.var, build.as_int(s.min), build.as_int(s.extent)) for s in all_statements(item) if isinstance(s, S.For)]
    return {var: (low, low + count - 1) for var, low, count in known if low is not None and count is not None}


def _without_dead_starts(item: S.Stmt, ranges: dict[E.Var, tuple[int, int]]) -> S.Stmt:
    """The statement without first values of reductions that a part of their terms never begins with."""
    simplifier = Simplifier(ranges)

    def visit(s: S.Stmt) -> S.Stmt:
        if isinstance(s, BlockRealize) and s.block.init is not None:
            for axis, value in zip(s.block.iter_vars, s.iter_values, strict=True):
                first = build.as_int(axis.dom.min) if isinstance(axis.dom, E.Range) else None
                if axis.kind != "data" and first is not None and simplifier.bound(value)[0] > first:
                    s = replace(s, block=replace(s.block, init=None))
                    break
        return map_stmt(s, lambda e: e, visit)

    return visit(item)


def with_free_names(item: S.Stmt, ending: str, used: set[str]) -> S.Stmt:
    """The statement with names for its blocks that are not used."""

    def visit(s: S.Stmt) -> S.Stmt:
        if isinstance(s, Block):
            plain = f"{s.name_hint}{ending}"
            name = next(n for n in (plain, *(f"{plain}_{k}" for k in range(1, len(used) + 2))) if n not in used)
            used.add(name)
            s = replace(s, name_hint=name)
        return map_stmt(s, lambda e: e, visit)

    return visit(item)


def with_statement(func: S.PrimFunc, old: S.Stmt, new: S.Stmt) -> S.PrimFunc:
    """The function with a statement in the place of another."""

    def visit(item: S.Stmt) -> S.Stmt:
        return new if item is old else map_stmt(item, lambda e: e, visit)

    return func.with_body(visit(func.body))


def merged(func: S.PrimFunc, paths: Sequence[Sequence[S.Stmt]]) -> tuple[S.PrimFunc, E.Var]:
    """The function with one nest in the place of those whose innermost loops end the paths; its innermost variable."""
    depth = next((k for k, row in enumerate(zip(*paths, strict=False)) if len({id(s) for s in row}) > 1), None)
    together = paths[0][depth - 1] if depth else None
    if depth is None or not isinstance(together, S.SeqStmt):
        raise ScheduleError("merge: the loops do not stand behind one another")
    nests = [_nest(path[depth:]) for path in paths]
    first = nests[0]
    for nest in nests[1:]:
        if len(nest) != len(first) or any(
            not structural_equal(a.extent, b.extent) or not structural_equal(a.min, b.min)
            for a, b in zip(nest, first, strict=False)
        ):
            raise ScheduleError("merge: the nests differ in depth or in the lengths of their loops")
    places = [together.statements.index(nest[0]) for nest in nests]
    if any(b - a != 1 for a, b in pairwise(places)):
        raise ScheduleError("merge: there is something between the loops, or they are named in another order")
    fresh = [E.Var(f"{'_'.join(n[k].var.name for n in nests)}_m", s.var.dtype) for k, s in enumerate(first)]
    bodies = [moved(nest[-1].body, {s.var: var for s, var in zip(nest, fresh, strict=True)}) for nest in nests]
    _check(bodies, fresh)
    loop = serial_loops([(var, s.extent) for var, s in zip(fresh, first, strict=True)], S.seq(*bodies))
    rest = [s for k, s in enumerate(together.statements) if k not in places[1:]]
    rest[places[0]] = loop
    return with_statement(func, together, S.seq(*rest)), fresh[-1]


def _nest(path: Sequence[S.Stmt]) -> _Nest:
    loops = [s for s in path if isinstance(s, S.For)]
    if len(loops) < len(path) or any(outer.body is not inner for outer, inner in pairwise(loops)):
        raise ScheduleError("merge: a loop is not the only one inside the loops around it")
    for loop in loops:
        if loop.kind is not S.LoopKind.SERIAL or loop.annotations or build.as_int(loop.min) != 0:
            raise ScheduleError(f"merge: loop {loop.var.name} is no serial loop from 0 on without notes")
    return loops


def _check(bodies: Sequence[S.Stmt], loops: Sequence[E.Var]) -> None:
    """Refuse what an iteration of one body does to another iteration of another."""
    touched = [list(_accesses(body, {})) for body in bodies]
    for a, rows in enumerate(touched):
        for buffer in {b for b, _, is_write in rows if is_write}:
            others = [r for k, other in enumerate(touched) if k != a for r in other if r[0] is buffer]
            mine = [r for r in rows if r[0] is buffer]
            for var in loops if others else ():
                if not any(all(_is_at(row[1][d], var) for row in (*mine, *others)) for d in range(len(buffer.shape))):
                    message = f"merge: iterations of {var.name} touch elements of {buffer.name}"
                    raise ScheduleError(f"{message} that other iterations touch, too")


def _is_at(index: E.Expr, var: E.Var) -> bool:
    return index is var or simplify(index) is var


def _accesses(item: S.Stmt, values: dict[E.Var, E.Expr]) -> Iterator[tuple[S.Buffer, tuple[E.Expr, ...], bool]]:
    """Every buffer with its indices, over loops, and whether it is written."""
    if isinstance(item, BlockRealize):
        inner = {a.var: substitute_expr(v, values) for a, v in zip(item.block.iter_vars, item.iter_values, strict=True)}
        values = {**values, **inner}
        if item.block.match_buffers:
            raise ScheduleError(f"merge: block {item.block.name_hint!r} has names for parts of buffers")
        for part in (item.block.init, item.block.body):
            if part is not None:
                yield from _accesses(part, values)
        return
    if isinstance(item, S.BufferStore):
        yield item.buffer, tuple(simplify(substitute_expr(i, values)) for i in item.indices), True
    for expression in expressions_of(item):
        for e in nodes_of(expression):
            if isinstance(e, E.BufferLoad):
                yield e.buffer, tuple(simplify(substitute_expr(i, values)) for i in e.indices), False
            if isinstance(e, E.Call) and any(isinstance(n, S.Buffer) for n in nodes_of(e)) and e.name != "if_then_else":
                raise ScheduleError(f"merge: {e.name} touches elements that are not known")
    for part in statements_inside(item):
        yield from _accesses(part, values)
