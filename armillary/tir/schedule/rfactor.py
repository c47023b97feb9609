"""Reductions in two steps: parts, one for each iteration of a loop, and what joins them.

    for i, k, l: c[i] += a[i, k * 8 + l]  ->  for i, k, l: p[l, i] += a[i, k * 8 + l]; for i, l: c[i] += p[l, i]

In: a function, the statements from its body to a BlockRealize, a loop. Out: the function. Invariant: refused
(ScheduleError) unless the block joins values by an operation whose parts may be joined in any order, from a neutral
element on. Floats differ by rounding, as with any other order of a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.node import replace, structural_equal
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import nodes_of, uses_any
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.schedule.cache import with_own, writes_all
from armillary.tir.schedule.inline import alone, with_regions
from armillary.tir.schedule.reduction import conjuncts
from armillary.tir.substitute import map_stmt, substitute_expr

_NEUTRAL = {E.Add: 0, E.Mul: 1}
_ANY_START = (E.Min, E.Max)  # a first value that is met twice changes nothing
_Joins = E.Add | E.Mul | E.Min | E.Max


def factored(func: S.PrimFunc, path: Sequence[S.Stmt], loop: S.For, factor_axis: int, name: str) -> S.PrimFunc:
    """The function whose last block of the path joins parts of `loop`; `name`: of the block of parts and its buffer."""
    realize, block = path[-2:]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    message = f"rfactor: block {block.name_hint!r}"
    store, joined, item = _update(message, block)
    own = next(k for k, s in enumerate(path) if alone(s, block))
    loops = [s for s in path[own:] if isinstance(s, S.For)]
    summed = _summed(message, realize, block, path[own:-2], loop)
    if not -len(store.indices) - 1 <= factor_axis <= len(store.indices):
        raise ScheduleError(f"{message} writes {len(store.indices)} dimensions, there is no factor_axis {factor_axis}")
    at = factor_axis % (len(store.indices) + 1)
    shape = list(store.buffer.shape)
    shape.insert(at, build.cast(loop.extent, shape[0].dtype if shape else loop.extent.dtype))
    parts = S.Buffer(name, tuple(shape), store.buffer.dtype, store.buffer.scope)

    first = _parts(message, realize, loops, summed, loop, (joined, item), (parts, at), name)
    conditions = [c for c in conjuncts(realize.predicate) if not uses_any(c, set(summed))]
    last = _joining(realize, loop, joined, (parts, at), conditions)
    nests = first, _around(last, [s for s in loops if s.var not in summed or s is loop])

    def visit(s: S.Stmt) -> S.Stmt:
        return S.seq(*nests) if s is path[own] else map_stmt(s, lambda e: e, visit)

    rebuilt = with_own(func.with_body(visit(func.body)), parts)
    return rebuilt.with_body(with_regions(rebuilt.body, {name, block.name_hint}))


def _update(message: str, block: Block) -> tuple[S.BufferStore, _Joins, E.Expr]:
    """The store of a reduction, the operation that joins, and what it joins to the value before."""
    store, init = block.body, block.init
    if not isinstance(store, S.BufferStore) or not writes_all(block, store.buffer) or block.match_buffers:
        raise ScheduleError(f"{message} is not one store at its own data axes, one for each dimension of its buffer")
    if not isinstance(init, S.BufferStore) or init.indices != store.indices:
        raise ScheduleError(f"{message} has no first values (no T.init)", hint="rfactor before decompose_reduction")
    joined = store.value
    if isinstance(joined, _Joins):
        before = E.BufferLoad(store.buffer, store.indices)
        for side, other in ((joined.a, joined.b), (joined.b, joined.a)):
            is_free = all(not isinstance(e, E.BufferLoad) or e.buffer is not store.buffer for e in nodes_of(other))
            if structural_equal(side, before, renames=False) and is_free:
                start = init.value.value if isinstance(init.value, E.IntImm | E.FloatImm) else None
                if start is not None and (isinstance(joined, _ANY_START) or start == _NEUTRAL[type(joined)]):
                    return store, joined, other
                raise ScheduleError(f"{message} starts from {init.value}, which its parts cannot start from")
    raise ScheduleError(f"{message} joins values by no sum, product, minimum or maximum with the value before")


def _summed(
    message: str, realize: BlockRealize, block: Block, around: Sequence[S.Stmt], loop: S.For
) -> dict[E.Var, E.Expr]:
    """The loops that reduce, with their lengths; all stand around the block alone, and `loop` is one of them."""
    other = next((s for s in around if not isinstance(s, S.For)), None)
    if other is not None:
        raise ScheduleError(f"{message} stands in a {type(other).__name__}, wanted loops alone")
    loops = {s.var: s for s in around if isinstance(s, S.For)}
    pairs = list(zip(block.iter_vars, realize.iter_values, strict=True))
    data, sums = ([v for a, v in pairs if (a.kind == "data") == is_data] for is_data in (True, False))
    summed = {v: s.extent for v, s in loops.items() if any(uses_any(value, {v}) for value in sums)}
    if loop.var not in summed:
        raise ScheduleError(f"{message} does not reduce over loop {loop.var.name}")
    used = {e for value in sums for e in nodes_of(value) if isinstance(e, E.Var)}
    if not used <= set(summed) or any(uses_any(value, set(summed)) for value in data):
        raise ScheduleError(f"{message} has axes of reduced and of other loops", hint="rfactor before loops are fused")
    for var in summed:
        one = loops[var]
        if one.kind is not S.LoopKind.SERIAL or build.as_int(one.min) != 0 or build.as_int(one.extent) is None:
            raise ScheduleError(f"{message}: loop {var.name} is no serial loop from 0 to a known end")
    mixed = [
        c for c in conjuncts(realize.predicate) if uses_any(c, set(summed)) and uses_any(c, set(loops) - {*summed})
    ]
    if mixed:
        raise ScheduleError(f"{message}: the condition {mixed[0]} is of reduced and of other loops")
    return summed


def _parts(
    message: str,
    realize: BlockRealize,
    loops: Sequence[S.For],
    summed: dict[E.Var, E.Expr],
    loop: S.For,
    update: tuple[_Joins, E.Expr],
    target: tuple[S.Buffer, int],
    name: str,
) -> S.Stmt:
    """Loops around the block of parts: what conditions on reduced loops leave out counts as the neutral element."""
    block, (joined, item), (parts, at) = realize.block, update, target
    init = block.init
    assert isinstance(init, S.BufferStore), f"{message}: checked before"
    fresh: dict[E.Var, E.Expr] = {s.var: E.Var(s.var.name, s.var.dtype) for s in loops}
    places: dict[E.Var, E.Expr] = {v: E.Var(f"v{v.name}", v.dtype) for v in summed}
    values: dict[E.Var, E.Expr] = {}
    axes: list[tuple[E.IterVar, E.Expr]] = []
    for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if axis.kind == "data":
            own = E.Var(axis.var.name, axis.var.dtype)
            values[axis.var] = own
            axes.append((replace(axis, var=own), substitute_expr(value, fresh)))
        else:
            values[axis.var] = substitute_expr(value, places)
    for var, length in summed.items():
        own_place, kind = places[var], "data" if var is loop.var else "reduce"
        assert isinstance(own_place, E.Var), "made above"
        domain = E.Range.from_min_extent(build.const(0, var.dtype), length)
        axes.append((E.IterVar(domain, own_place, kind), fresh[var]))
    added, predicate = substitute_expr(item, values), build.const(True)
    for condition in conjuncts(realize.predicate):
        if uses_any(condition, set(summed)):
            added = build.if_then_else(substitute_expr(condition, places), added, init.value)
        else:
            predicate = build.logical_and(predicate, substitute_expr(condition, fresh))
    indices = [values[i] for i in init.indices if isinstance(i, E.Var)]
    indices.insert(at, places[loop.var])
    index = tuple(indices)
    body = S.BufferStore(parts, type(joined)(E.BufferLoad(parts, index), added), index)
    partial = Block(tuple(a for a, _ in axes), (), (), name, body, S.BufferStore(parts, init.value, index))
    nest = BlockRealize(tuple(v for _, v in axes), predicate, partial)
    return _around(nest, [replace(s, var=fresh[s.var]) for s in loops])


def _joining(
    realize: BlockRealize, loop: S.For, joined: _Joins, target: tuple[S.Buffer, int], conditions: Sequence[E.Expr]
) -> S.Stmt:
    """The block that joins the parts, over its data axes and the parts."""
    block, (parts, at) = realize.block, target
    store = block.body
    assert isinstance(store, S.BufferStore), "checked before"
    place = E.Var(f"v{loop.var.name}", loop.var.dtype)
    domain = E.Range.from_min_extent(build.const(0, place.dtype), loop.extent)
    pairs = [p for p in zip(block.iter_vars, realize.iter_values, strict=True) if p[0].kind == "data"]
    pairs.append((E.IterVar(domain, place, "reduce"), loop.var))
    index = list(store.indices)
    index.insert(at, place)
    value = type(joined)(E.BufferLoad(store.buffer, store.indices), E.BufferLoad(parts, tuple(index)))
    predicate: E.Expr = build.const(True)
    for condition in conditions:
        predicate = build.logical_and(predicate, condition)
    joining = replace(block, iter_vars=tuple(a for a, _ in pairs), body=replace(store, value=value))
    return BlockRealize(tuple(v for _, v in pairs), predicate, joining)


def _around(item: S.Stmt, loops: Sequence[S.For]) -> S.Stmt:
    for one in reversed(loops):
        item = replace(one, body=item)
    return item
