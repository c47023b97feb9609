"""Where elements or iterations go: `tir.IndexMap.from_func(lambda i: [i // 4, i % 4])`, and back (`inverse`).

In: a function of indices, or the variables and expressions themselves. Out: indices, shapes, the map back. Invariant:
a map has an inverse where each new index is a sum of digits of the old ones, (i // a) % b, each digit once: what
splits, joins and permutes indices; everything else is refused (ScheduleError).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from armillary.base.boundary import boundary, bounded
from armillary.base.node import replace
from armillary.errors import ScheduleError
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import uses_any
from armillary.tir.blocks.block import Block, BlockRealize
from armillary.tir.schedule.inline import moved, serial_loops
from armillary.tir.simplify import Simplifier, simplify
from armillary.tir.substitute import substitute_expr

_Digit = tuple[E.Var, int, int]  # (variable // low) % length


@bounded
class IndexMap:
    """Indices over `initial_indices`; called with indices, it gives theirs."""

    def __init__(
        self, initial_indices: Sequence[E.Var], final_indices: Sequence[E.Expr], inverse_index_map: object = None
    ) -> None:
        del inverse_index_map  # is worked out
        self.initial_indices, self.final_indices = list(initial_indices), [build.convert(e) for e in final_indices]

    @staticmethod
    @boundary("IndexMap.from_func", arguments=True)
    def from_func(
        mapping_function: Callable[..., Sequence[E.Expr | str]], ndim: int | None = None, *, index_dtype: str = "int32"
    ) -> IndexMap:
        """The map that a function of indices is; `ndim` where it takes any number of them."""
        rows = inspect.signature(mapping_function).parameters.values()
        names = [row.name for row in rows if row.kind is row.POSITIONAL_OR_KEYWORD]
        if any(row.kind is row.VAR_POSITIONAL for row in rows):
            if ndim is None:
                raise ScheduleError(
                    "IndexMap.from_func: the function takes any number of indices", hint="ndim= says it"
                )
            names += [f"i{k}" for k in range(len(names), ndim)]
        variables = [build.var(name, index_dtype) for name in names]
        places = mapping_function(*variables)
        if any(isinstance(place, str) for place in places):
            raise ScheduleError("IndexMap: memory has one dimension here, there are no axis separators")
        return IndexMap(variables, [build.convert(place) for place in places])

    def __call__(self, *indices: E.Expr) -> list[E.Expr]:
        """The same as `map_indices`, with indices one by one."""
        return self.map_indices(indices)

    def map_indices(self, indices: Sequence[E.Expr]) -> list[E.Expr]:
        """Where an element goes."""
        if len(indices) != len(self.initial_indices):
            raise ScheduleError(f"IndexMap: got {len(indices)} indices, wanted {len(self.initial_indices)}")
        values = dict(zip(self.initial_indices, map(build.convert, indices), strict=True))
        return [simplify(substitute_expr(e, values)) for e in self.final_indices]

    def map_shape(self, shape: Sequence[int | E.Expr]) -> list[int]:
        """The lengths that the new indices need."""
        ranges = {v: (0, n - 1) for v, n in zip(self.initial_indices, _sizes(shape), strict=True)}
        bounds = [Simplifier(ranges).bound(e) for e in self.final_indices]
        return [int(high) + 1 for _, high in bounds]

    def inverse(self, shape: Sequence[int | E.Range | E.Expr]) -> IndexMap:
        """The way back from the new indices; `shape`: lengths of the old ones."""
        lengths = dict(zip(self.initial_indices, _sizes(shape), strict=True))
        fresh = [build.var(f"axis{k}") for k in range(len(self.final_indices))]
        parts: dict[E.Var, dict[int, tuple[int, E.Expr]]] = {v: {} for v in lengths}
        for var, place in zip(fresh, self.final_indices, strict=True):
            step = 1
            for (source, low, length), coefficient in sorted(_digits(place, lengths), key=lambda row: row[1]):
                if low in parts[source] or (coefficient != step and length > 1):
                    raise ScheduleError(f"IndexMap: {place} leaves places empty or takes them twice")
                value = build.floormod(build.floordiv(var, step), length)
                parts[source][low] = (length, value)
                step *= length
        return IndexMap(fresh, [_joined(v, n, parts[v]) for v, n in lengths.items()])

    def __str__(self) -> str:
        return f"index_map(({', '.join(v.name for v in self.initial_indices)}) -> {self.final_indices})"


def _sizes(shape: Sequence[int | E.Range | E.Expr]) -> list[int]:
    known = [build.as_int(n.extent if isinstance(n, E.Range) else n) for n in shape]
    if any(n is None for n in known):
        raise ScheduleError(f"IndexMap: got lengths {list(shape)}, wanted known ones")
    return [n for n in known if n is not None]


def _digits(place: E.Expr, lengths: dict[E.Var, int]) -> list[tuple[_Digit, int]]:
    """The digits that a new index is a sum of, with their coefficients."""
    form = Simplifier({v: (0, n - 1) for v, n in lengths.items() if n > 1}).linear(place)
    if form.constant:
        raise ScheduleError(f"IndexMap: {place} does not begin at 0")
    return [(_digit(atom, lengths), coefficient) for atom, coefficient in form.terms.items()]


def _digit(atom: E.Expr, lengths: dict[E.Var, int]) -> _Digit:
    low, length = 1, None
    item = atom
    if isinstance(item, E.FloorMod):
        length, item = build.as_int(item.b), item.a
    if isinstance(item, E.FloorDiv):
        low, item = build.as_int(item.b) or 0, item.a
    if not isinstance(item, E.Var) or item not in lengths or not low or lengths[item] % low:
        raise ScheduleError(f"IndexMap: {atom} is no digit of one index", hint="wanted i, i // a, i % b, (i // a) % b")
    rest = lengths[item] // low
    length = rest if length is None else length
    if rest % length:
        raise ScheduleError(f"IndexMap: {length} does not divide the {rest} values that {atom} goes through")
    return item, low, length


def _joined(var: E.Var, length: int, digits: dict[int, tuple[int, E.Expr]]) -> E.Expr:
    """An old index from its digits."""
    value: E.Expr = build.const(0, var.dtype)
    low = 1
    digits = {step: digit for step, digit in digits.items() if digit[0] > 1}
    for step in sorted(digits):
        if step != low:
            break
        value = build.add(value, build.mul(digits[step][1], step))
        low *= digits[step][0]
    if low != length or (len(digits) and sorted(digits)[-1] >= length):
        raise ScheduleError(f"IndexMap: {var.name} does not follow from the new indices")
    return simplify(value)


def block_laid_out(
    path: Sequence[S.Stmt], index_map: Callable[..., Sequence[E.Expr]] | IndexMap
) -> tuple[S.For, S.Stmt]:
    """The outermost loop of a block and what stands in its place when the block has the map's indices as its axes."""
    realize, block = path[-2:]
    assert isinstance(realize, BlockRealize) and isinstance(block, Block), "the path to a block ends with its realize"
    count = len(block.iter_vars)
    loops = [s for s in path[-2 - count : -2] if isinstance(s, S.For)]
    name = f"transform_block_layout: block {block.name_hint!r}"
    nested = len(loops) == count and [s.var for s in loops] == list(realize.iter_values)
    if not nested or any(outer.body is not inner for outer, inner in zip(loops, [*loops[1:], realize], strict=True)):
        raise ScheduleError(f"{name} has other loops than one for each axis, in their order")
    whole = isinstance(realize.predicate, E.IntImm) and bool(realize.predicate.value)
    if not whole or any(s.kind is not S.LoopKind.SERIAL or build.as_int(s.min) != 0 for s in loops):
        raise ScheduleError(f"{name} has a condition, or loops that are not serial from 0 on")
    old = [axis.var for axis in block.iter_vars]
    mapping = index_map if isinstance(index_map, IndexMap) else IndexMap.from_func(index_map, count)
    own = IndexMap(old, mapping(*old))
    sizes = [s.extent for s in loops]
    lengths, back = own.map_shape(sizes), own.inverse(sizes)
    kinds = [{a.kind for a in block.iter_vars if uses_any(e, {a.var})} for e in own.final_indices]
    if any(len(kind) > 1 for kind in kinds):
        raise ScheduleError(f"{name}: an index joins data axes and reduced ones")
    axes = tuple(
        E.IterVar(
            E.Range.from_min_extent(build.const(0, v.dtype), build.const(n, v.dtype)), v, next(iter(kind), "data")
        )
        for v, n, kind in zip(back.initial_indices, lengths, kinds, strict=True)
    )
    fresh = [build.var(f"ax{k}") for k in range(len(axes))]
    values = dict(zip(old, back.final_indices, strict=True))
    inner = _moved_block(block, axes, values)
    nest = serial_loops(
        list(zip(fresh, (build.const(n) for n in lengths), strict=True)),
        replace(realize, iter_values=tuple(fresh), block=inner),
    )
    return loops[0], nest


def _moved_block(block: Block, axes: tuple[E.IterVar, ...], values: dict[E.Var, E.Expr]) -> Block:
    result = moved(replace(block, iter_vars=axes), values)
    assert isinstance(result, Block), "a block stays one"
    return result
