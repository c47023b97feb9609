"""What the emitters share: symbol names, roles of arguments, ranges of integers, refusals.

In: split functions (`tir/phases.py`) and their expressions. Out: small facts about them. Invariant: nothing here
depends on a target. Emitters: `llvm.py`, `c.py`; each is tables from node type to function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from armillary.base.dtype import DType
from armillary.base.names import symbol
from armillary.base.node import Rules, reachable, structural_equal
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.target.pstate import COMPUTE, PREFIX
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, statements_inside, stores_of
from armillary.tir.phases import Phase, PhasedFunction

_CHOICES = frozenset({"if_then_else", "copysign"})  # calls that give an argument, or its negative
_WRAPPERS = 8  # of choices and signs around a product that are looked through
Range = tuple[int | None, int | None]
UNKNOWN: Range = (None, None)
LIBM = (  # intrinsics that are functions of the C library, under the same name (and with an f for float)
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "pow",
    "atan2",
    "fmod",
    "hypot",
    "nextafter",
)


def phase_symbol(function: PhasedFunction, index: int) -> str:
    """The C symbol of phase `index`."""
    return f"{symbol(function.name)}__p{index}"


def extent_symbol(function: PhasedFunction, index: int) -> str:
    """The C symbol of the function that computes the extent of phase `index`."""
    return f"{symbol(function.name)}__e{index}"


def constant_extent(phase: Phase) -> int | None:
    """The extent, if it is a constant (never negative)."""
    return max(0, phase.extent.value) if isinstance(phase.extent, E.IntImm) else None


def refuse(dialect: str, what: str, hint: str = "") -> UnsupportedError:
    """The error for something an emitter has no rule for."""
    return UnsupportedError(f"{dialect}: cannot emit {what}", hint=hint)


def refuse_intrinsic(dialect: str, name: str) -> UnsupportedError:
    """The error for a call of an intrinsic that an emitter has no rule for."""
    access = _PREDICATED.get(name)
    if access is None:
        return refuse(dialect, f"the intrinsic {name!r}")
    message = f"{dialect}: Predicated buffer {access} is not supported."
    return UnsupportedError(message, hint="kernels through LLVM have it; else a condition around each element")


_PREDICATED = {"masked_load": "load", "masked_value": "store"}


class Touched:
    """Which buffers a statement reads and writes; memoised per statement."""

    def __init__(self) -> None:
        self._written: dict[int, frozenset[S.Buffer]] = {}
        self._keep: list[S.Stmt] = []

    def written(self, root: S.Stmt) -> frozenset[S.Buffer]:
        """Buffers that statements inside `root` store to."""
        known = self._written
        if id(root) not in known:
            for item in all_statements(root, known):
                inside = [known[id(part)] for part in statements_inside(item)]
                own = stores_of(item)
                known[id(item)] = inside[0] if len(inside) == 1 and not own else frozenset(own).union(*inside)
                self._keep.append(item)
        return known[id(root)]

    def read(self, root: S.Stmt) -> frozenset[S.Buffer]:
        """Buffers that expressions inside `root` load from."""
        return frozenset(item.buffer for item in reachable(root) if isinstance(item, E.BufferLoad))


def fused_product(item: E.Add) -> E.Mul | None:
    """The product that a sum of floats takes in without rounding it; None where every product is rounded.

    A difference of two values that are equal once rounded is 0: x*x - x*x, a mean of squares less the square of a
    mean, a product of matrices less that of their numbers, a product beside itself with another sign, or less its
    maximum with 0. With one side not rounded it would be that side's rounding error, and what another kernel stored
    may be the same product. So differences take in none (and are not asked), and no sum one that its other side holds.

        x*w + b  ->  x*w      x*w + max(-(x*w), 0)  ->  None
    """
    product, other = (item.b, item.a) if isinstance(item.b, E.Mul) else (item.a, item.b)
    if not isinstance(product, E.Mul) or not item.dtype.is_float:
        return None
    return None if _holds(other, product) else product


def _is_constant(item: E.Expr) -> bool:
    return isinstance(item.value if isinstance(item, E.Broadcast) else item, E.FloatImm)


def _holds(item: E.Expr, product: E.Mul) -> bool:
    """Whether an expression is a product, or a choice between such and others, but for signs."""
    stack, seen = [item], 0
    while stack and seen < _WRAPPERS:
        top, seen = _unsigned(stack.pop()), seen + 1
        match top:
            case E.Mul(a=a, b=b):
                if _are_equal((a, b), (product.a, product.b)) or _are_equal((b, a), (product.a, product.b)):
                    return True
            case E.Max(a=a, b=b) | E.Min(a=a, b=b) | E.Select(true_value=a, false_value=b):
                stack += [a, b]
            case E.Call(name=name, args=args) if name in _CHOICES:
                stack += args
            case E.Broadcast(value=value):
                stack.append(value)
    return False


def _unsigned(item: E.Expr) -> E.Expr:
    """An expression without changes of its sign."""
    while True:
        match item:
            case E.Sub(a=zero, b=rest) if _magnitude(zero) == 0:
                item = rest
            case E.Mul(a=rest, b=one) if _magnitude(one) == 1:
                item = rest
            case E.Mul(a=one, b=rest) if _magnitude(one) == 1:
                item = rest
            case E.Call(name="fabs" | "abs", args=(rest,)):
                item = rest
            case _:
                return item


def _magnitude(item: E.Expr) -> float | None:
    value = item.value if isinstance(item, E.Broadcast) else item
    return abs(value.value) if isinstance(value, E.FloatImm) else None


def _are_equal(some: tuple[E.Expr, E.Expr], others: tuple[E.Expr, E.Expr]) -> bool:
    """Whether factors are the same one by one, but for signs."""
    pairs = zip(map(_unsigned, some), map(_unsigned, others), strict=True)
    return all(
        _magnitude(a) == _magnitude(b) if _is_constant(a) else structural_equal(a, b, renames=False) for a, b in pairs
    )


def flat_index(buffer: S.Buffer, indices: tuple[E.Expr, ...]) -> E.Expr:
    """The index in elements of a row-major buffer of any rank (vector only in the last place)."""
    if len(indices) == 1:
        return indices[0]
    if not indices:
        return E.IntImm(E.INT32, 0)
    if len(buffer.shape) != len(indices) or buffer.strides:
        what = f"an access to buffer {buffer.name} with strides or the wrong rank"
        raise refuse("code generation", what, "run storage-flatten")
    total = indices[0]
    for extent, index in zip(buffer.shape[1:], indices[1:], strict=True):
        total = E.Mul(total, extent)
        if isinstance(index, E.Ramp):
            total = E.Ramp(E.Add(total, index.base), index.stride, index.lanes)
        else:
            wide = E.Broadcast(total, index.dtype.lanes) if index.dtype.lanes > 1 else total
            total = E.Add(wide, index)
    return total


def written_params(function: PhasedFunction) -> frozenset[S.Buffer]:
    """The arguments that some phase stores to: the outputs."""
    touched = Touched()
    written = frozenset[S.Buffer]().union(*(touched.written(phase.body) for phase in function.phases))
    return (written & frozenset(function.params)).union(function.outputs)


class RangeOf:
    """Bounds of integer expressions from those of their variables; None where there is none. Each is asked once."""

    def __init__(self, known: Mapping[E.Var, Range]) -> None:
        self.known = known
        self._memo: dict[int, tuple[E.Expr, Range]] = {}  # the nodes are kept alive

    def forget(self) -> None:
        """Ask again: the bounds of variables have changed."""
        self._memo.clear()

    def __call__(self, item: E.Expr) -> Range:
        if isinstance(item, E.Var):
            result = self.known.get(item)
            return result if result is not None else _dtype_range(item.dtype)
        memo = self._memo.get(id(item))
        if memo is None:
            rule = _RANGES.get(type(item))
            memo = self._memo[id(item)] = (item, rule(item, self) if rule is not None else _dtype_range(item.dtype))
        return memo[1]


def _dtype_range(dtype: DType) -> Range:
    return (0, None) if dtype.code == "uint" or dtype.is_bool else UNKNOWN


def _add(a: Range, b: Range) -> Range:
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    return low, (None if a[1] is None or b[1] is None else a[1] + b[1])


def _mul(a: Range, b: Range) -> Range:
    if None not in a and None not in b:
        ends = [x * y for x in a for y in b]  # type: ignore[operator]
        return min(ends), max(ends)
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        return a[0] * b[0], None
    return UNKNOWN


def _div(a: Range, b: Range) -> Range:
    if b[0] is None or b[0] != b[1] or b[0] <= 0:
        return (0, None) if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0 else UNKNOWN
    return (None if a[0] is None else a[0] // b[0]), (None if a[1] is None else a[1] // b[0])


def _mod(a: Range, b: Range) -> Range:
    if b[0] is None or b[0] < 0:
        return UNKNOWN
    return 0, (None if b[1] is None else max(0, b[1] - 1))


def _binary_range(function: Callable[[Range, Range], Range]) -> Callable[[E.Binary, RangeOf], Range]:
    def rule(item: E.Binary, bound: RangeOf) -> Range:
        return function(bound(item.a), bound(item.b))

    return rule


def _trunc_range(item: E.TruncDiv, bound: RangeOf) -> Range:
    a, b = bound(item.a), bound(item.b)
    if a[0] is None or a[0] < 0:
        return UNKNOWN
    return _div(a, b) if isinstance(item, E.TruncDiv) else _mod(a, b)


def _min_range(a: Range, b: Range) -> Range:
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    ends = [x for x in (a[1], b[1]) if x is not None]
    return low, (min(ends) if ends else None)


def _max_range(a: Range, b: Range) -> Range:
    lows = [x for x in (a[0], b[0]) if x is not None]
    return (max(lows) if lows else None), (None if a[1] is None or b[1] is None else max(a[1], b[1]))


def _cast_range(item: E.Cast, bound: RangeOf) -> Range:
    source = item.value.dtype
    if not (source.is_int or source.is_bool) or not item.dtype.is_int:
        return _dtype_range(item.dtype)
    low, high = bound(item.value)
    fits = low is not None and high is not None and item.dtype.min_value <= low and high <= item.dtype.max_value
    if fits or (source.code == item.dtype.code == "int" and item.dtype.bits >= source.bits):
        return low, high
    return _dtype_range(item.dtype)


_RANGES: Rules[[RangeOf], Range] = {
    E.IntImm: lambda item, bound: (item.value, item.value),
    E.Add: _binary_range(_add),
    E.Sub: _binary_range(lambda a, b: _add(a, (None if b[1] is None else -b[1], None if b[0] is None else -b[0]))),
    E.Mul: _binary_range(_mul),
    E.FloorDiv: _binary_range(_div),
    E.FloorMod: _binary_range(_mod),
    E.TruncDiv: _trunc_range,
    E.TruncMod: _trunc_range,
    E.Min: _binary_range(_min_range),
    E.Max: _binary_range(_max_range),
    E.Cast: _cast_range,
    E.Broadcast: lambda item, bound: bound(item.value),
}


def state_notes(body: S.Stmt, function: str) -> tuple[str, ...]:
    """The states that a function's loops ask for. Raises TypeMismatch for two of one kind and for what is no text."""
    notes: dict[str, str] = {}
    for item in reachable(body):
        if not isinstance(item, S.AttrStmt) or not item.key.startswith(PREFIX):
            continue
        if not isinstance(item.value, E.StringImm):
            got = type(item.value).__name__
            raise TypeMismatch(f"Expect {item.key} to have a String value but was {got}", hint="see SMEAttributes")
        if item.key in notes:
            message = f"Multiple definitions of {item.key} attribute found in the function {function}{COMPUTE}"
            raise TypeMismatch(message, hint="write it on one block around both")
        notes[item.key] = item.value.value
    return tuple(notes.values())
