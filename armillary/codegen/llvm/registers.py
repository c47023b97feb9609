"""Which local buffers become SSA values, and at what granularity.

In: the body of a phase. Out: for each buffer that qualifies, the lanes of one register. Invariant: a chosen buffer
has a small constant extent and every access to it is at an index known once UNROLLED loops are expanded, a scalar or
a unit-stride Ramp that stays inside one register; or it is a tile that is written by columns and read by rows
(register_transpose.py). The rest lives on the stack.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.base.node import Node, children, post_order
from armillary.codegen.base import flat_index
from armillary.codegen.llvm.register_transpose import Access, column_shape
from armillary.tir import expr as E
from armillary.tir import stmt as S

MAX_REGISTERS = 256  # slots of one buffer
_ARITHMETIC = (
    E.IntImm,
    E.Var,
    E.Add,
    E.Sub,
    E.Mul,
    E.FloorDiv,
    E.FloorMod,
    E.Min,
    E.Max,
)  # what Emitter.static_int evaluates
Affine = tuple[tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a buffer lies in registers: lanes of one, and in a tile of columns how many there are (else 0)."""

    lanes: int
    columns: int = 0


class _Survey:
    """Accesses to local buffers, gathered over one body."""

    def __init__(self) -> None:
        self.lanes: dict[S.Buffer, int] = {}
        self.accesses: list[tuple[S.Buffer, E.Expr]] = []
        self.bad: set[S.Buffer] = set()
        self.strided: dict[S.Buffer, list[Access]] = {}  # of buffers whose first access is a store of a column
        self.plain: set[S.Buffer] = set()  # those whose first access is none
        self.unrolled: set[E.Var] = set()
        self._seen: set[int] = set()  # expressions that were looked at: every access counts once

    def visit(self, item: S.Stmt) -> None:
        if isinstance(item, S.Allocate):
            if is_candidate(item.buffer):
                self.lanes[item.buffer] = 1
            self.visit(item.body)
        elif isinstance(item, S.For):
            self._loop(item)
        elif isinstance(item, S.BufferStore):
            if isinstance(item.value, E.Call) and item.value.name == "masked_value":
                self.bad.add(item.buffer)  # lanes that a mask leaves out keep what memory has
            self._access(item.buffer, item.indices, is_store=True)
            self._expressions(item.value, *item.indices)
        else:
            for child in (getattr(item, name) for name in item._fields):
                for part in child if isinstance(child, tuple) else (child,):
                    if isinstance(part, S.Stmt):
                        self.visit(part)
                    elif isinstance(part, E.Expr):
                        self._expressions(part)

    def _loop(self, item: S.For) -> None:
        if is_unrolled(item):
            self.unrolled.add(item.var)
        self._expressions(item.min, item.extent)
        self.visit(item.body)

    def _expressions(self, *roots: Node) -> None:
        if not self.lanes:
            return
        stack, seen = list(roots), self._seen
        while stack:
            part = stack.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            if isinstance(part, E.Call) and part.name == "address_of":  # memory has addresses, registers have none
                self.bad.update(b.buffer for b in part.args if isinstance(b, E.BufferLoad))
            if isinstance(part, E.BufferLoad):
                self._access(part.buffer, part.indices)
            stack += children(part)

    def _access(self, buffer: S.Buffer, indices: tuple[E.Expr, ...], *, is_store: bool = False) -> None:
        if buffer in self.strided:
            self.strided[buffer].append((is_store, flat_index(buffer, indices)))
        if buffer not in self.lanes or buffer in self.bad:
            return
        index = flat_index(buffer, indices)
        if isinstance(index, E.Broadcast):
            index = index.value
        if isinstance(index, E.Ramp) and not (isinstance(index.stride, E.IntImm) and index.stride.value == 1):
            if is_store and buffer not in self.plain:
                self.strided[buffer] = [(True, index)]
            self.bad.add(buffer)
            return
        base = index.base if isinstance(index, E.Ramp) else index
        if base.dtype.lanes > 1 or not self._is_static(base):
            self.bad.add(buffer)
            return
        self.plain.add(buffer)
        self.lanes[buffer] = max(self.lanes[buffer], index.dtype.lanes)
        self.accesses.append((buffer, index))

    def _is_static(self, base: E.Expr) -> bool:
        return all(
            isinstance(part, _ARITHMETIC) and (not isinstance(part, E.Var) or part in self.unrolled)
            for part in post_order(base)
        )


def is_unrolled(item: S.For) -> bool:
    """Whether the emitter expands this loop."""
    constant = isinstance(item.min, E.IntImm) and isinstance(item.extent, E.IntImm)
    return item.kind is S.LoopKind.UNROLLED and constant


def is_candidate(buffer: S.Buffer) -> bool:
    """Whether a buffer is small and plain enough to live in registers."""
    if buffer.scope != "local" or buffer.dtype.lanes != 1 or not all(isinstance(n, E.IntImm) for n in buffer.shape):
        return False
    return 0 < elements(buffer) <= MAX_REGISTERS * 64


def elements(buffer: S.Buffer) -> int:
    """Elements of a buffer of constant shape."""
    count = 1
    for extent in buffer.shape:
        count *= extent.value if isinstance(extent, E.IntImm) else 1
    return count


def register_plan(body: S.Stmt) -> dict[S.Buffer, Shape]:
    """The buffers to keep in registers, and how."""
    survey = _Survey()
    survey.visit(body)
    plan = {b: n for b, n in survey.lanes.items() if b not in survey.bad and -(-elements(b) // n) <= MAX_REGISTERS}
    for buffer, index in survey.accesses:
        lanes = plan.get(buffer)
        if lanes is not None and not _stays_inside(index, lanes):
            del plan[buffer]
    result = {b: Shape(n) for b, n in plan.items()}
    for buffer, accesses in survey.strided.items():
        shape = column_shape(accesses, elements(buffer))
        if shape is not None:
            result[buffer] = Shape(shape[1], shape[0])
    return result


def _stays_inside(index: E.Expr, lanes: int) -> bool:
    """Whether a vector access never straddles two registers of `lanes` lanes."""
    width = index.dtype.lanes
    if width == 1:
        return True
    step = width if lanes % width == 0 else lanes  # of any length from the start of a register on
    return width <= lanes and isinstance(index, E.Ramp) and multiple_of(index.base, step)


def multiple_of(item: E.Expr, factor: int) -> bool:
    """Whether an index is a multiple of `factor` for every value of its variables (False: cannot tell)."""
    if factor == 1:
        return True
    if isinstance(item, E.IntImm):
        return item.value % factor == 0
    if isinstance(item, E.Add | E.Sub | E.Min | E.Max):
        return multiple_of(item.a, factor) and multiple_of(item.b, factor)
    if isinstance(item, E.Mul):
        for one, other in ((item.a, item.b), (item.b, item.a)):
            if isinstance(one, E.IntImm):
                shared = _gcd(one.value, factor)
                return multiple_of(other, factor // shared)
    return False


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return abs(a)
