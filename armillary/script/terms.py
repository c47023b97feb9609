"""What the names of a script stand for while it is parsed: loops, blocks, axes, memory, notes.

In: the arguments that a program writes. Out: values that `parser.py` turns into statements. Invariant: making one has
no effect; what it means depends on the statement it stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from armillary.base.dtype import DType
from armillary.tir import build
from armillary.tir.blocks.block import BufferRegion
from armillary.tir.expr import Expr, IterVar, Range, Var
from armillary.tir.stmt import Buffer, LoopKind


@dataclass(frozen=True, slots=True)
class Loops:
    """`for … in T.grid(…)`, `T.serial(…)`…: bounds of each loop, outermost first."""

    bounds: tuple[tuple[Expr, Expr], ...]  # begin and extent
    kind: LoopKind = LoopKind.SERIAL
    thread: str = ""
    annotations: Mapping[str, object] = field(default_factory=dict)
    is_grid: bool = False


@dataclass(frozen=True, slots=True)
class BlockScope:
    """`with T.block(name):`"""

    name: str


@dataclass(frozen=True, slots=True)
class InitScope:
    """`with T.init():`"""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a block: kind, range (None: that of the loop it is bound to) and value."""

    kind: str
    dom: Range | None
    value: Expr


@dataclass(frozen=True, slots=True)
class Touched:
    """`T.reads(…)` or `T.writes(…)`."""

    what: str
    regions: tuple[BufferRegion, ...]


@dataclass(frozen=True, slots=True)
class Where:
    """`T.where(condition)`: the predicate of the block."""

    condition: Expr


@dataclass(frozen=True, slots=True)
class Noted:
    """`T.func_attr({…})` or `T.block_attr({…})`."""

    what: str
    pairs: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Match:
    """`T.match_buffer(param or region, …)`: `buffer` stands for it."""

    source: object  # a parameter's name holder, a buffer or a region
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Memory:
    """`T.alloc_buffer`, `T.allocate`, `T.decl_buffer`: memory of its own."""

    buffer: Buffer
    of_block: bool  # belongs to the block around it
    as_handle: bool = False  # its name stands for the handle


@dataclass(frozen=True, slots=True)
class Alias:
    """`T.decl_buffer(…, data=A.data)`, `T.Buffer(…, data=p)`: `buffer` lies in the memory of a handle."""

    handle: Var
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Launch:
    """`T.launch_thread(thread, extent)`: a loop over a thread axis."""

    thread: IterVar
    extent: Expr


@dataclass(frozen=True, slots=True)
class AttrScope:
    """`T.attr(node, key, value)`."""

    node: object
    key: str
    value: Expr


@dataclass(frozen=True, slots=True)
class AssertScope:
    """`T.Assert(condition, message)`."""

    condition: Expr
    message: str


@dataclass(frozen=True, slots=True)
class LetScope:
    """`T.LetStmt(value)` or `T.let(var, value)`."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Meta:
    """`T.meta_var(value)`: a name for a value of Python."""

    value: object


class TypeName:
    """`T.int32`, `T.handle`…: a type in annotations; called, a new variable of it, or a value converted to it."""

    def __init__(self, dtype: str) -> None:
        self.dtype = DType(dtype)

    def __call__(self, value: object = None, *more: object, **named: object) -> Expr:
        if self.dtype == "handle" or value is None:
            return Var("", self.dtype)
        if isinstance(value, str):
            return build.const(float(value), self.dtype)
        if isinstance(value, Expr):
            return build.cast(value, self.dtype)
        return build.checked_const(value, self.dtype)  # type: ignore[arg-type]  # refuses what is no number

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


def loops(
    kind: LoopKind,
    start: object,
    stop: object = None,
    thread: str = "",
    annotations: Mapping[str, object] | None = None,
) -> Loops:
    """One loop over [start, stop), or [0, start)."""
    begin, end = (0, start) if stop is None else (start, stop)
    low, high = build.match_types(begin, end)  # type: ignore[arg-type]  # refuses what is no number
    return Loops(((low, build.sub(high, low)),), kind, thread, annotations or {})


def serial(start: object, stop: object = None, *, annotations: Mapping[str, object] | None = None) -> Loops:
    """`for i in range(…)`."""
    return loops(LoopKind.SERIAL, start, stop, annotations=annotations)
