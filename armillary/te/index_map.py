"""Layouts of tensors: `s[A].transform_layout(lambda n, c: [n, c // 4, c % 4])`.

In: a function from the indices of a tensor to those of its memory. Out: the map as numbers, a tuple of terms for each
dimension of the memory, each (axis, divisor, extent, stride): the sum of (axis // divisor) % extent * stride.
Invariant: a map is one to one and has no gaps, else it is refused; so loops over the memory visit each element once.
Separators of axes are dropped: memory has one dimension. What it does to loops: `te/stage.py`; to loads and stores:
`te/lower.py`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from armillary.base.aliases import AnyFunction
from armillary.base.node import rewrite
from armillary.errors import ScheduleError
from armillary.tir import build as T
from armillary.tir.expr import (
    INT32,
    Add,
    BufferLoad,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Mul,
    TruncDiv,
    TruncMod,
    Var,
)
from armillary.tir.simplify import simplify
from armillary.tir.stmt import Allocate, AttrStmt, Buffer, BufferStore, Stmt

if TYPE_CHECKING:
    from armillary.te.stage import Stage

AXIS_SEPARATOR = "axis_separator"
Term = tuple[int, int, int, int]  # axis, divisor, extent, stride
IndexMap = tuple[tuple[Term, ...], ...]


def index_map(function: Callable[..., object], shape: Sequence[int]) -> IndexMap:  # expressions
    """The map of a function of one index for each dimension; ScheduleError where it is not one to one."""
    variables = [Var(f"i{k}", INT32) for k in range(len(shape))]
    image = _called(function, variables)
    dims = tuple(tuple(_terms(simplify(T.convert(e)), variables, shape)) for e in image if e is not AXIS_SEPARATOR)
    _check(dims, shape)
    return dims


def _called(function: AnyFunction, variables: Sequence[Var]) -> list[Any]:
    """What a function gives; parameters after `*indices` are the last dimensions."""
    last = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    first = len(variables) - len(last)
    return list(function(*variables[:first], **dict(zip(last, variables[first:], strict=True))))


def _terms(expr: Expr, variables: Sequence[Var], shape: Sequence[int]) -> Iterator[Term]:
    """The terms of a sum; those of extent 1 are left out."""
    if isinstance(expr, Add):
        yield from _terms(expr.a, variables, shape)
        yield from _terms(expr.b, variables, shape)
        return
    if isinstance(expr, IntImm) and expr.value == 0:
        return
    if isinstance(expr, Mul) and isinstance(expr.b, IntImm):
        for axis, divisor, extent, stride in _terms(expr.a, variables, shape):
            yield axis, divisor, extent, stride * expr.b.value
        return
    axis, divisor, extent = _digit(expr, variables, shape)
    if extent > 1:
        yield axis, divisor, extent, 1


def _digit(expr: Expr, variables: Sequence[Var], shape: Sequence[int]) -> tuple[int, int, int]:
    """(axis // divisor) % extent."""
    if isinstance(expr, Var):
        axis = next((k for k, v in enumerate(variables) if v is expr), -1)
        if axis < 0:
            raise ScheduleError(f"transform_layout: the index reads {expr.name}, which is none of its own")
        return axis, 1, shape[axis]
    known = isinstance(expr, FloorDiv | TruncDiv | FloorMod | TruncMod) and isinstance(expr.b, IntImm)
    if not known or not isinstance(expr, FloorDiv | TruncDiv | FloorMod | TruncMod) or not isinstance(expr.b, IntImm):
        raise ScheduleError(f"transform_layout: the index {expr} is no sum of quotients and remainders of the indices")
    axis, divisor, extent = _digit(expr.a, variables, shape)
    number = expr.b.value
    if number < 1 or extent % number:
        raise ScheduleError(
            f"transform_layout: {extent} elements do not divide by {number}", hint="the layout would need padding"
        )
    if isinstance(expr, FloorDiv | TruncDiv):
        return axis, divisor * number, extent // number
    return axis, divisor, number


def _check(dims: IndexMap, shape: Sequence[int]) -> None:
    """One to one: the digits of each axis are all there, and each dimension of memory is filled without gaps."""
    for axis, size in enumerate(shape):
        reached = 1
        for divisor, extent in sorted((t[1], t[2]) for dim in dims for t in dim if t[0] == axis):
            if divisor != reached:
                raise ScheduleError(f"transform_layout: dimension {axis} is not given once as a whole")
            reached *= extent
        if reached != size:
            raise ScheduleError(f"transform_layout: of {size} elements of dimension {axis}, {reached} have a place")
    for dim in dims:
        filled = 1
        for _, _, extent, stride in sorted(dim, key=lambda t: t[3]):
            if stride != filled:
                raise ScheduleError("transform_layout: the memory would have gaps, or one place for two elements")
            filled *= extent


def physical_shape(dims: IndexMap) -> tuple[Expr, ...]:
    """The dimensions of the memory."""
    return tuple(T.const(math.prod(t[2] for t in dim)) for dim in dims)


def place(dims: IndexMap, shape: Sequence[int], indices: Sequence[Expr]) -> tuple[Expr, ...]:
    """Where an element lies."""
    result = []
    for dim in dims:
        total: Expr = T.const(0, indices[0].dtype if indices else INT32)
        for axis, divisor, extent, stride in dim:
            index = indices[axis]
            digit = index if divisor == 1 else T.floordiv(index, divisor)
            digit = digit if divisor * extent == shape[axis] else T.floormod(digit, extent)
            total = T.add(total, T.mul(digit, stride))
        result.append(simplify(total))
    return tuple(result)


def move_loops(stage: Stage, dims: IndexMap) -> list[IterVar]:
    """Make the loops of a stage run over memory in its order, by split, reorder and fuse; give the new axes."""
    digits: dict[tuple[int, int], IterVar] = {}
    for number, axis in enumerate(stage.op.axis):
        rest, own = axis, sorted(((t[1], t[2]) for dim in dims for t in dim if t[0] == number), reverse=True)
        for divisor, _ in own[:-1]:
            digits[number, divisor], rest = stage.split(rest, factor=divisor)
        digits[number, own[-1][0] if own else 1] = rest
    order = [[digits.pop((t[0], t[1])) for t in sorted(dim, key=lambda t: -t[3])] for dim in dims]
    spare = list(digits.values())  # axes of one iteration, which stand for dimensions of size 1
    for group in order:
        if not group and spare:
            group.append(spare.pop(0))
    if spare and order:
        order[0][:0] = spare
    flat = [axis for group in order for axis in group]
    if len(flat) > 1:
        stage.reorder(*flat)
    return [stage.fuse(*group) if len(group) > 1 else group[0] for group in order if group]


def moved(body: Stmt, buffers: dict[Buffer, tuple[Buffer, IndexMap, tuple[int, ...]]]) -> Stmt:
    """A statement whose loads and stores of some buffers are of others, in their layouts."""

    def rule(item: Any) -> Any:  # Any: any node
        new = buffers.get(item.buffer) if isinstance(item, BufferLoad | BufferStore | Allocate) else None
        if isinstance(item, AttrStmt) and item.node in buffers:
            return AttrStmt(item.key, item.value, item.body, buffers[item.node][0])
        if new is None:
            return None
        if isinstance(item, Allocate):
            return Allocate(new[0], item.body)
        indices = place(new[1], new[2], item.indices)
        if isinstance(item, BufferStore):
            return BufferStore(new[0], item.value, indices)
        return BufferLoad(new[0], indices)

    result = rewrite(body, rule)
    assert isinstance(result, Stmt), "a statement becomes a statement"
    return result
