"""The state of one function being emitted: what variables and buffers stand for, and dispatch over expressions.

In: a CPU model. Out: an `Emitter`, which the rules of `llvm_expr`, `llvm_calls`, `llvm_memory` and `llvm` share.
Invariant: an integer variable is either a constant (an unrolled loop's), a 64-bit name (a loop's) or a name of its own
dtype; index arithmetic is done in 64 bits, so it never overflows where the 32-bit form would not. An expression that a
statement reads in several places is emitted once for all that its first place dominates: chains of such expressions
stay linear in size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from armillary.base.dtype import DType
from armillary.base.node import Node, Visits
from armillary.codegen.base import Range, RangeOf, refuse
from armillary.codegen.llvm.builder import Builder
from armillary.codegen.llvm.types import is_raw, register_type
from armillary.target.cpu import CpuModel
from armillary.tir import expr as E
from armillary.tir import stmt as S

if TYPE_CHECKING:
    from armillary.codegen.llvm.index import Linear

Rule = Callable[["Emitter", Any], str]  # Any: the node type of the rule's row
BUFFER_ALIGNMENT = 64  # bytes that places in a workspace are multiples of
EXPR_RULES: dict[type, Rule] = {}  # filled by llvm_expr and llvm_memory
_LEAVES = frozenset({E.Var, E.IterVar, E.IntImm, E.FloatImm, E.StringImm})


@dataclass(slots=True)
class RegisterFile:
    """A local buffer kept in SSA values: `values[k]` holds elements [k*lanes, (k+1)*lanes).

    Of a tile of columns it holds elements k, k + columns, k + 2*columns… Of `pairs`, two rows of sums, each with the
    other one, both hold lanes of both (dots/byte_matrices.py). Of `spread`, both hold parts of one row's sums
    (dots/spread_sums.py).
    """

    lanes: int
    dtype: DType  # of one value, lanes included
    values: list[str]
    columns: int = 0
    pairs: dict[int, int] = field(default_factory=dict)
    spread: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Neighbours:
    """Elements that statements in a row load and that share a vector (lane_loads.py).

    A place is a buffer, the terms of an index, its constant and how many elements begin there (the bytes of a word);
    `places` has the constant at which its vector begins, and the lanes of that; `loaded` the vectors by their first
    places.
    """

    places: dict[tuple[S.Buffer, str, int, int], tuple[int, int]]
    loaded: dict[tuple[S.Buffer, str, int, int], str] = field(default_factory=dict)


class Emitter(Builder):
    """Builder plus environment."""

    def __init__(self, cpu: CpuModel, fast_math: str = "", streams: frozenset[S.Buffer] = frozenset()) -> None:
        super().__init__()
        self.cpu = cpu
        self.fast_math = f" {fast_math}" if fast_math else ""  # flags of the float arithmetic the program asks for
        self.pointers: dict[S.Buffer, str] = {}
        self.files: dict[S.Buffer, RegisterFile] = {}
        self.constants: dict[E.Var, int] = {}
        self.wide: dict[E.Var, str] = {}
        self.scalars: dict[E.Var, str] = {}
        self.ranges: dict[E.Var, Range] = {}
        self.range = RangeOf(self.ranges)  # bounds of an integer expression here
        self.values: dict[int, tuple[E.Expr, str]] = {}  # of this statement, by id; the nodes are kept alive
        self.sums: dict[int, tuple[Node, Linear]] = {}  # of index arithmetic, as llvm_index has them
        self.statics: dict[int, tuple[E.Expr, int | None]] = {}
        self.effects = 0  # calls so far that must not be shared
        self.volatile: set[Node] = set()  # buffers, or handles of their memory
        self.mask: str | None = None  # lanes whose loads and divisions may run; None: all
        self.math: dict[str, str] = {}  # own vector functions used, name to text
        self.used: set[S.Buffer] = set()
        self.neighbours: Neighbours | None = None  # in the statements at hand
        self.flushes_bfloat16 = False  # whether it has multiplied bfloat16, by which subnormal numbers are 0
        self.tiles: dict[int, int] = {}  # rows of the matrix tiles in use
        self.streams = streams  # outputs whose stores may go past the caches
        self.has_streamed = False
        self.alignment = 0  # bytes that pointers of arguments are multiples of; 0: of their elements
        self.padded_buffers: set[S.Buffer] = set()  # nobody else has the bytes up to a multiple of BUFFER_ALIGNMENT

    def is_volatile(self, buffer: S.Buffer) -> bool:
        """Whether a note says that each access to the buffer counts."""
        return buffer in self.volatile or buffer.data in self.volatile

    def value(self, item: E.Expr) -> str:
        """Emit an expression; the name (or constant) of its value in its register type."""
        known = self.values.get(id(item))
        if known is not None:
            return known[1]
        kind = type(item)
        rule = EXPR_RULES.get(kind)
        if rule is None:
            raise refuse("llvm", f"an expression of type {kind.__name__}", "lower TE expressions first")
        if kind in _LEAVES:
            return rule(self, item)
        effects = self.effects
        result = rule(self, item)
        if self.effects == effects:
            self.values[id(item)] = (item, result)
        return result

    def begin_statement(self) -> None:
        """Forget what holds inside one statement: values (memory changes), constants (loops are unrolled), ranges."""
        self.values.clear()
        self.sums.clear()
        self.statics.clear()
        self.range.forget()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Inside, values may be emitted that are not there afterwards: a branch, or some lanes only."""
        memos: list[dict[int, Any]] = [self.values, self.sums]
        sizes = [len(memo) for memo in memos]
        yield
        for memo, size in zip(memos, sizes, strict=True):
            while len(memo) > size:
                memo.popitem()  # the last one added

    def is_non_negative(self, item: E.Expr) -> bool:
        low = self.range(item)[0]
        return low is not None and low >= 0

    def soft(self, dtype: DType) -> bool:
        """Whether arithmetic on this float type goes through float32 by our own conversions."""
        return is_raw(dtype) or (dtype.is_float and dtype.bits == 16 and not self.has_half)

    @property
    def has_half(self) -> bool:
        """Whether the target converts between float16 and float32 in hardware."""
        cpu = self.cpu
        if cpu.arch == "arm":
            return bool(cpu.features & {"fp16", "fullfp16"})
        return cpu.arch == "aarch64" or bool(cpu.features & {"f16c", "avx512fp16"})

    def static_int(self, item: E.Expr) -> int | None:
        """The value of an integer or bool expression that is known while emitting."""
        if isinstance(item, E.IntImm):
            return item.value
        if isinstance(item, E.Var):
            return self.constants.get(item)
        if isinstance(item, E.Call):
            return self.static_int(item.args[0]) if item.name == "likely" else None
        rule = _STATIC.get(type(item))
        if rule is None:
            return None
        known = self.statics.get(id(item))
        if known is None:
            known = self.statics[id(item)] = (item, rule(self, item))
        return known[1]

    def zero(self, dtype: DType) -> str:
        return "zeroinitializer" if dtype.lanes > 1 else "0" if not dtype.is_float or is_raw(dtype) else "0.0"

    def phi(self, kind: str, *sources: tuple[str, str]) -> str:
        """A phi node at the start of the current block; sources are (value, block)."""
        return self.here(f"phi {kind} " + ", ".join(f"[ {value}, %{block} ]" for value, block in sources))

    def typed(self, item: E.Expr) -> str:
        """`type value`, as calls and stores want it."""
        return f"{register_type(item.dtype)} {self.value(item)}"


def _static_binary(function: Callable[[int, int], int]) -> Callable[[Emitter, E.Binary], int | None]:
    def rule(m: Emitter, item: E.Binary) -> int | None:
        a = m.static_int(item.a)
        if a is None:
            return None
        b = m.static_int(item.b)
        return None if b is None else function(a, b)

    return rule


def _static_and(m: Emitter, item: E.And) -> int | None:
    a = m.static_int(item.a)
    b = m.static_int(item.b) if a != 0 else 0
    if a == 0 or b == 0:
        return 0
    return 1 if a is not None and b is not None else None


def _static_or(m: Emitter, item: E.Or) -> int | None:
    a = m.static_int(item.a)
    b = m.static_int(item.b) if not a else 1
    if a or b:
        return 1
    return 0 if a is not None and b is not None else None


def _static_not(m: Emitter, item: E.Not) -> int | None:
    a = m.static_int(item.a)
    return None if a is None else 1 - a


_STATIC: Visits[Emitter, [], int | None] = {
    E.Add: _static_binary(lambda a, b: a + b),
    E.Sub: _static_binary(lambda a, b: a - b),
    E.Mul: _static_binary(lambda a, b: a * b),
    E.FloorDiv: _static_binary(lambda a, b: a // b if b else 0),
    E.FloorMod: _static_binary(lambda a, b: a % b if b else 0),
    E.Min: _static_binary(min),
    E.Max: _static_binary(max),
    E.EQ: _static_binary(lambda a, b: int(a == b)),
    E.NE: _static_binary(lambda a, b: int(a != b)),
    E.LT: _static_binary(lambda a, b: int(a < b)),
    E.LE: _static_binary(lambda a, b: int(a <= b)),
    E.GT: _static_binary(lambda a, b: int(a > b)),
    E.GE: _static_binary(lambda a, b: int(a >= b)),
    E.And: _static_and,
    E.Or: _static_or,
    E.Not: _static_not,
}
