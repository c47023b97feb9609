"""Padding: its constant written by a block of its own (`decomposed`), or axes made longer for whole tiles (`padded`).

    p[v] = a[v - 1] if 1 <= v < 9 else 0  ->  p[v] = 0; p[v] = a[v - 1] where 1 <= v < 9

In: a function and the path to a block. Out: the function. Invariant: refused (ScheduleError) where the block does more
than choose between an element and a constant, or where a padded term would not count as nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.node import replace, structural_equal
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import nodes_of
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.blocks.regions import block_regions
from armillary.tir.schedule.cache import of_parts, parts_of, with_own, writes_all
from armillary.tir.schedule.inline import alone, axes_of, leaves, moved, serial_loops
from armillary.tir.schedule.reindex import counted
from armillary.tir.schedule.side_by_side import with_statement
from armillary.tir.substitute import map_all, substitute_expr


def decomposed(func: S.PrimFunc, path: Sequence[S.Stmt], loop: S.For, name: str) -> S.PrimFunc:
    """The function whose block fills with the constant before `loop`, in a block `name`, and copies the rest."""
    realize, block = path[-2:]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    message = f"decompose_padding: block {block.name_hint!r}"
    store = block.body
    if not isinstance(store, S.BufferStore) or block.init is not None or not writes_all(block, store.buffer):
        raise ScheduleError(f"{message} is not one store at its own axes")
    choice = store.value
    if isinstance(choice, E.Select):
        condition, inside, constant = choice.condition, choice.true_value, choice.false_value
    elif isinstance(choice, E.Call) and choice.name == "if_then_else":
        condition, inside, constant = choice.args
    else:
        raise ScheduleError(f"{message} chooses between no element and a constant")
    if not isinstance(constant, E.IntImm | E.FloatImm) or any(isinstance(e, E.BufferLoad) for e in nodes_of(condition)):
        raise ScheduleError(f"{message} pads with {constant}, wanted a constant where indices say so")
    around = [s for s in path if isinstance(s, S.For)]
    if loop not in around or not alone(loop, block):
        raise ScheduleError(f"{message} does not stand alone in loop {loop.var.name}")
    inner = around[around.index(loop) :]
    fresh: dict[E.Var, E.Expr] = {s.var: E.Var(f"{s.var.name}_pad", s.var.dtype) for s in inner}
    first = replace(block, name_hint=name, body=replace(store, value=constant))
    own = {v: E.Var(v.name, v.dtype) for v in axes_of(first)}
    moved_first = moved(replace(first, iter_vars=()), dict(own))
    assert isinstance(moved_first, Block), "a block stays one"
    axes = tuple(replace(a, var=own[a.var]) for a in block.iter_vars)
    places: dict[E.Var, E.Expr] = {s.var: build.add(fresh[s.var], s.min) for s in inner}
    values = tuple(substitute_expr(v, places) for v in realize.iter_values)
    fill = BlockRealize(values, substitute_expr(realize.predicate, places), _said(replace(moved_first, iter_vars=axes)))
    nest = serial_loops(
        [(v, substitute_expr(s.extent, fresh)) for s in inner if isinstance(v := fresh[s.var], E.Var)], fill
    )
    at = dict(zip(axes_of(block), realize.iter_values, strict=True))
    rest = replace(
        realize,
        predicate=build.logical_and(realize.predicate, substitute_expr(condition, at)),
        block=_said(replace(block, body=replace(store, value=inside))),
    )
    body = with_statement(func.with_body(loop), realize, rest).body
    return with_statement(func, loop, S.seq(nest, body))


def _said(block: Block) -> Block:
    reads, writes = block_regions(block)
    return replace(block, reads=reads, writes=writes)


def padded(func: S.PrimFunc, path: Sequence[S.Stmt], padding: Sequence[int], names: list[str]) -> S.PrimFunc:
    """The function whose block goes through multiples of `padding` along its axes, over padded copies of its buffers.

    `names` are free ones for the blocks that pad what it reads, in order, and for the last, which takes the result.
    """
    realize, block = path[-2:]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    message = f"pad_einsum: block {block.name_hint!r}"
    store, factors = _terms(message, block)
    loops = _plain_loops(message, path, realize, block, padding)
    sizes = {a.var: build.as_int(s.extent) or 0 for a, s in zip(block.iter_vars, loops, strict=True)}
    longer = {v: -(-n // p) * p for (v, n), p in zip(sizes.items(), padding, strict=True)}
    summed = {a.var for a in block.iter_vars if a.kind != "data" and longer[a.var] != sizes[a.var]}
    if any(not all(v in f.indices for f in factors) for v in summed):
        raise ScheduleError(
            f"{message}: a factor does not depend on a padded reduced axis, so its terms may be no zeros"
        )
    copies: list[S.Buffer] = []
    before: list[S.Stmt] = []
    replaced: dict[S.Buffer, S.Buffer] = {}
    for factor, name in zip(factors, names, strict=False):
        copy = S.Buffer(name, tuple(build.const(longer[_axis(i)]) for i in factor.indices), factor.buffer.dtype)
        own = {_axis(i): E.Var(_axis(i).name, _axis(i).dtype) for i in factor.indices}
        place = tuple(own[_axis(i)] for i in factor.indices)
        inside = build.all_of(*(build.less(v, sizes[k]) for k, v in own.items() if longer[k] > sizes[k]))
        zero = build.const(0, str(copy.dtype))
        value = build.if_then_else(inside, E.BufferLoad(factor.buffer, place), zero)
        before.append(counted(name, S.BufferStore(copy, value, place), [(v, longer[k]) for k, v in own.items()]))
        copies.append(copy)
        replaced[factor.buffer] = copy
    result = S.Buffer(names[-1], tuple(build.const(longer[_axis(i)]) for i in store.indices), store.buffer.dtype)
    replaced[store.buffer] = result
    nest = _longer(loops, realize, replaced, longer)
    own = {_axis(i): E.Var(_axis(i).name, _axis(i).dtype) for i in store.indices}
    place = tuple(own[_axis(i)] for i in store.indices)
    body = S.BufferStore(store.buffer, E.BufferLoad(result, place), place)
    last = counted(names[-1], body, [(v, sizes[k]) for k, v in own.items()])
    parts = parts_of(func)
    at = next((k for k, part in enumerate(parts) if part is loops[0]), None)
    if at is None or leaves(parts[at]) != [block]:
        raise ScheduleError(f"{message} does not stand alone in its loops, outside of other loops")
    rebuilt = of_parts(func, [*parts[:at], *before, nest, last, *parts[at + 1 :]], result)
    for copy in copies:
        rebuilt = with_own(rebuilt, copy)
    return rebuilt


def _axis(index: E.Expr) -> E.Var:
    assert isinstance(index, E.Var), "checked by _terms"
    return index


def _terms(message: str, block: Block) -> tuple[S.BufferStore, list[E.BufferLoad]]:
    """The store of a sum of products from 0 on, and the factors."""
    store, init = block.body, block.init
    reason = f"{message} is no sum of products of elements at its own axes, from 0 on"
    if (
        not isinstance(store, S.BufferStore)
        or not isinstance(init, S.BufferStore)
        or not writes_all(block, store.buffer)
    ):
        raise ScheduleError(reason)
    start = init.value.value if isinstance(init.value, E.IntImm | E.FloatImm) else None
    before = E.BufferLoad(store.buffer, store.indices)
    value = store.value
    if start != 0 or not isinstance(value, E.Add):
        raise ScheduleError(reason)
    sides = [(value.a, value.b), (value.b, value.a)]
    product = next((o for s, o in sides if structural_equal(s, before, renames=False)), None)
    factors: list[E.BufferLoad] = []
    stack = [product]
    while stack:
        item = stack.pop()
        if isinstance(item, E.Mul):
            stack += [item.b, item.a]
        elif isinstance(item, E.Cast):
            stack.append(item.value)
        elif (
            isinstance(item, E.BufferLoad)
            and set(item.indices) <= set(axes_of(block))
            and item.buffer is not store.buffer
        ):
            factors.append(item)
        else:
            raise ScheduleError(reason)
    buffers = {f.buffer for f in factors}
    if len(buffers) < len(factors) or any(len(set(f.indices)) < len(f.indices) for f in factors):
        raise ScheduleError(f"{message} reads a buffer twice, or along a diagonal")
    return store, factors


def _plain_loops(
    message: str, path: Sequence[S.Stmt], realize: BlockRealize, block: Block, padding: Sequence[int]
) -> list[S.For]:
    """The loops of a block, one for each axis; they may stand in another order."""
    if len(padding) != len(block.iter_vars) or any(not isinstance(p, int) or p < 1 for p in padding):
        raise ScheduleError(f"{message} has {len(block.iter_vars)} axes, got padding {list(padding)}")
    around = {s.var: s for s in path if isinstance(s, S.For) and alone(s, block)}
    loops = [around.get(v) for v in realize.iter_values if isinstance(v, E.Var)]
    known = [s for s in loops if s is not None and s.kind is S.LoopKind.SERIAL and build.as_int(s.extent)]
    if len(known) != len(block.iter_vars) or len(around) != len(known) or build.as_int(realize.predicate) != 1:
        raise ScheduleError(f"{message} has other loops than a serial one for each axis", hint="pad before split")
    if [s.var for s in around.values()] != [s.var for s in known] or any(build.as_int(s.min) != 0 for s in known):
        raise ScheduleError(f"{message}: its loops are in another order than its axes, or do not begin at 0")
    return known


def _longer(
    loops: Sequence[S.For], realize: BlockRealize, replaced: dict[S.Buffer, S.Buffer], longer: dict[E.Var, int]
) -> S.Stmt:
    """The nest over longer axes and other buffers."""
    block = realize.block

    def load(e: E.Expr) -> E.Expr | None:
        swap = isinstance(e, E.BufferLoad) and e.buffer in replaced
        return E.BufferLoad(replaced[e.buffer], e.indices) if swap and isinstance(e, E.BufferLoad) else None

    def store(s: S.Stmt | None) -> S.BufferStore:
        assert isinstance(s, S.BufferStore), "checked by _terms"
        inner = map_all(s, load)
        assert isinstance(inner, S.BufferStore), "a store stays one"
        return replace(inner, buffer=replaced[s.buffer])

    axes = tuple(
        replace(a, dom=E.Range.from_min_extent(build.const(0, a.var.dtype), build.const(longer[a.var], a.var.dtype)))
        for a in block.iter_vars
    )
    body: S.Stmt = replace(
        realize, block=_said(replace(block, iter_vars=axes, body=store(block.body), init=store(block.init)))
    )
    for loop, length in reversed(list(zip(loops, longer.values(), strict=True))):
        body = replace(loop, extent=build.const(length, loop.var.dtype), body=body)
    return body
