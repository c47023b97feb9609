"""Scalar expressions, shared by TE and the loop language.

Grammar (every node has `dtype`; vectors are dtypes with lanes > 1):

    expr = Var(name, dtype) | IntImm(dtype, value) | FloatImm(dtype, value) | StringImm(value)
         | Cast(dtype, value)
         | Add | Sub | Mul | Div | TruncDiv | TruncMod | FloorDiv | FloorMod | Min | Max   (a, b)
         | EQ | NE | LT | LE | GT | GE | And | Or (a, b) | Not(a)
         | Select(condition, true_value, false_value)        both branches are evaluated
         | BufferLoad(buffer, indices) | ProducerLoad(producer, indices)    the latter in TE only
         | Ramp(base, stride, lanes) | Broadcast(value, lanes)
         | Let(var, value, body) | Call(dtype, name, args)   `name` is a row of tir/intrinsics.py
         | Reduce(combiner, source, axis, condition, value_index)           in TE only

Invariant: both sides of a binary node have one dtype (the constructors in `tir/build.py` cast and fold; the classes
here do not). `==` on expressions builds an `EQ` node whose truth value is identity, so nodes still work as dict keys.
Loops and buffers: `tir/stmt.py`. Rules: `tir/simplify.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, Union

import numpy as np

from armillary.base import slots
from armillary.base.dtype import DType
from armillary.base.extent import Extent
from armillary.base.node import Coercion, Node, Printer, Refuse, derived, node
from armillary.base.record import record
from armillary.errors import UnknownTruth

if TYPE_CHECKING:
    from armillary.tir.stmt import Buffer


BOOL: DType = DType("bool")
INT32: DType = DType("int32")

# by the annotation of a field: when its value can be kept as it is; others go through tir/coerce.py
ACCEPTED: dict[str, str] = {
    "Expr": "isinstance({0}, Expr)",
    "Same": "isinstance({0}, Expr) and {0}.dtype is a.dtype",
    "Bound": "isinstance({0}, Expr) and {0}.dtype is var.dtype",
    "Var": "type({0}) is Var",
    "Buffer": "isinstance({0}, Node)",
    "DType": "type({0}) is DType",
    "str": "type({0}) is str",
    "int": "type({0}) is int",
    "float": "type({0}) is float",
    "tuple[Expr, ...]": "type({0}) is tuple and _only_exprs({0})",
}


def _only_exprs(values: tuple[object, ...]) -> bool:
    for value in values:  # noqa: SIM110 - a generator takes twice the time
        if not isinstance(value, Expr):
            return False
    return True


SCOPE: dict[str, object] = {
    "DType": DType,
    "BOOL": BOOL,
    "Node": Node,
    "_only_exprs": _only_exprs,
}  # Expr and Var follow


class Expr(Node):
    """Base of scalar expressions. Operators build nodes through `tir/build.py`, which installs them here."""

    __slots__ = ()
    _printer: ClassVar[Printer | None] = slots.print_expr
    _accepts: ClassVar[dict[str, str]] = ACCEPTED
    _coerce: ClassVar[Coercion | None] = slots.coerce
    _refuse: ClassVar[Refuse | None] = slots.refuse
    _scope: ClassVar[dict[str, object]] = SCOPE
    dtype: DType

    __hash__ = object.__hash__  # stated, because tir/build.py installs an `__eq__` that builds nodes

    def __bool__(self) -> bool:
        raise UnknownTruth(
            f"the truth of a symbolic {type(self).__name__} is not known while building an expression",
            hint="use te.if_then_else, tir.Select, tir.all or tir.any",
        )

    if TYPE_CHECKING:

        def _with(self, other: ExprLike) -> Expr: ...

        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = _with
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = _with
        __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _with
        __lt__ = __le__ = __gt__ = __ge__ = _with

        def __neg__(self) -> Expr: ...

        __invert__ = __neg__

    def equal(self, other: ExprLike) -> Expr:
        """Whether this equals another value, as `==`."""
        return self == other  # type: ignore[return-value]  # what tir/build.py installs

    def astype(self, dtype: str) -> Expr:
        """This value converted to another dtype."""
        return _CONVERT[0](self, dtype)


class AsExpr(Protocol):
    """What stands for one value without being a node: a tensor of rank 0, an element of a tensor."""

    def as_expr(self) -> Expr:
        """The value as a node."""


ExprLike: TypeAlias = Union[Expr, Extent, int, float, str, np.generic, AsExpr]  # noqa: UP007 (what tir/build.py converts)
Index: TypeAlias = Union[Expr, Extent, int]  # noqa: UP007 (an index, which need not be a node yet)
SCOPE["Expr"] = Expr
_CONVERT: list[Callable[[Expr, str], Expr]] = []  # filled by tir/build.py


def install_operators(table: Mapping[str, Callable[..., object]], convert: Callable[[Expr, str], Expr]) -> None:
    """Called once by tir/build.py: attach `+ - * // % < ...` to `Expr` (reflected forms included)."""
    _CONVERT.append(convert)
    for name, function in table.items():
        setattr(Expr, name, function)


Same: TypeAlias = Expr  # the right side of a node whose sides have one dtype
Bound: TypeAlias = Expr  # the value of a variable, of its dtype
_FIRST = "a.dtype"
_TRUTH = "BOOL.with_lanes(a.dtype.lanes)"


@node
class Var(Expr):
    """A scalar variable; compared by identity, the name is only for people."""

    _binds: ClassVar[bool] = True
    name: str
    dtype: DType = INT32


SCOPE["Var"] = Var


@node
class IntImm(Expr):
    """An integer or bool constant; `value` fits `dtype`."""

    dtype: DType
    value: int

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.value)


@node
class FloatImm(Expr):
    """A floating-point constant, kept as a Python float (inf and nan included)."""

    dtype: DType
    value: float

    def __float__(self) -> float:
        return self.value

    def __int__(self) -> int:
        return int(self.value)


@node
class StringImm(Expr):
    """A string, only as an argument of Call or a pragma value."""

    value: str
    dtype: DType = DType("string")


@node
class Cast(Expr):
    """Conversion as in C: float to int truncates toward zero; int to narrower int wraps."""

    dtype: DType
    value: Expr


@node
class Add(Expr):
    """a + b; integers wrap."""

    a: Expr
    b: Same
    dtype: DType = derived(_FIRST)


@node
class Sub(Expr):
    """a - b; integers wrap."""

    a: Expr
    b: Same
    dtype: DType = derived(_FIRST)


@node
class Mul(Expr):
    """a * b; integers wrap."""

    a: Expr
    b: Same
    dtype: DType = derived(_FIRST)


@node
class Div(Expr):
    """a / b of floats."""

    a: Expr
    b: Same
    dtype: DType = derived(_FIRST)


@node
class TruncDiv(Expr):
    """Integer quotient rounded toward zero."""

    a: Expr
    b: Same
    dtype: DType = derived(_FIRST)


@node
class TruncMod(Expr):
    """Remainder of TruncDiv: the sign of `a` (for floats: C's fmod)."""

    a: Expr
    b: Same
    dtype: DType = derived(_FIRST)


@node
class FloorDiv(Expr):
    """Integer quotient rounded toward minus infinity."""

    a: Expr
    b: Same
    dtype: DType = derived(_FIRST)


@node
class FloorMod(Expr):
    """Remainder of FloorDiv: the sign of `b`."""

    a: Expr
    b: Same
    dtype: DType = derived(_FIRST)


@node
class Min(Expr):
    """The smaller value; of floats, NaN if either is NaN."""

    a: Expr
    b: Same
    dtype: DType = derived(_FIRST)


@node
class Max(Expr):
    """The larger value; of floats, NaN if either is NaN."""

    a: Expr
    b: Same
    dtype: DType = derived(_FIRST)


@node
class EQ(Expr):
    """a == b. Its Python truth value is `a is b`, so that nodes can be looked up in lists and dicts."""

    a: Expr
    b: Same
    dtype: DType = derived(_TRUTH)

    def __bool__(self) -> bool:
        return self.a is self.b


@node
class NE(Expr):
    """a != b. Its Python truth value is `a is not b`."""

    a: Expr
    b: Same
    dtype: DType = derived(_TRUTH)

    def __bool__(self) -> bool:
        return self.a is not self.b


@node
class LT(Expr):
    """a < b."""

    a: Expr
    b: Same
    dtype: DType = derived(_TRUTH)


@node
class LE(Expr):
    """a <= b."""

    a: Expr
    b: Same
    dtype: DType = derived(_TRUTH)


@node
class GT(Expr):
    """a > b."""

    a: Expr
    b: Same
    dtype: DType = derived(_TRUTH)


@node
class GE(Expr):
    """a >= b."""

    a: Expr
    b: Same
    dtype: DType = derived(_TRUTH)


@node
class And(Expr):
    """Both; evaluates both sides (use Call if_then_else to guard)."""

    a: Expr
    b: Expr
    dtype: DType = derived(_FIRST)


@node
class Or(Expr):
    """Either; evaluates both sides."""

    a: Expr
    b: Expr
    dtype: DType = derived(_FIRST)


Arithmetic: TypeAlias = Add | Sub | Mul | Div | TruncDiv | TruncMod | FloorDiv | FloorMod | Min | Max
Comparison: TypeAlias = EQ | NE | LT | LE | GT | GE
Binary: TypeAlias = Arithmetic | Comparison | And | Or  # nodes of two sides, `a` and `b`


@node
class Not(Expr):
    """Logical negation of a bool."""

    a: Expr
    dtype: DType = derived(_FIRST)


@node
class Select(Expr):
    """true_value where condition holds, else false_value; both are evaluated, lane by lane."""

    condition: Expr
    true_value: Expr
    false_value: Expr
    dtype: DType = derived("true_value.dtype")


def _load_dtype(item: BufferLoad) -> DType:
    """Lanes of a load come from its last index (a Ramp or Broadcast after vectorisation)."""
    element = item.buffer.dtype
    return element.with_lanes(element.lanes * item.indices[-1].dtype.lanes) if item.indices else element


@node
class BufferLoad(Expr):
    """One element (or, with a vector last index, several) of a buffer; the lanes come from the last index."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: DType = derived(_load_dtype)


@node
class ProducerLoad(Expr):
    """An element of a TE tensor; lowering turns it into BufferLoad."""

    producer: Any  # Any: a te.Tensor, which lives a layer above
    indices: tuple[Expr, ...]
    dtype: DType = derived("producer.dtype")


@node
class Ramp(Expr):
    """The vector base, base + stride, …, base + (lanes-1)*stride; base may itself be a vector."""

    base: Expr
    stride: Expr
    lanes: int
    dtype: DType = derived("base.dtype.with_lanes(lanes * base.dtype.lanes)")


@node
class Broadcast(Expr):
    """One value in every lane (a vector value is repeated whole)."""

    value: Expr
    lanes: int
    dtype: DType = derived("value.dtype.with_lanes(lanes * value.dtype.lanes)")


@node
class Let(Expr):
    """body with var bound to value."""

    var: Var
    value: Bound
    body: Expr
    dtype: DType = derived("body.dtype")


@record(slots=True)
class Callee:
    """An intrinsic as old scripts name it."""

    name: str

    def same_as(self, other: object) -> bool:
        """Whether both name one intrinsic."""
        return self == other


@node
class Call(Expr):
    """An intrinsic of `tir/intrinsics.py` or, for call_extern, a C function (args[0] is its StringImm name)."""

    dtype: DType
    name: str
    args: tuple[Expr, ...]

    @property
    def op(self) -> Callee:
        """What is called, with its old name: `call.op.name` is "tir.exp"."""
        return Callee(f"tir.{self.name}")


@node
class CommReducer(Node):
    """A commutative, associative reduction over tuples: result = combine(lhs, rhs), identity its neutral element."""

    _accepts: ClassVar[dict[str, str]] = ACCEPTED
    _coerce: ClassVar[Coercion | None] = Expr._coerce
    _refuse: ClassVar[Refuse | None] = Expr._refuse
    _scope: ClassVar[dict[str, object]] = SCOPE
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]


@node
class Range(Node):
    """The integers min, …, min + extent - 1; made as [begin, end), [0, begin), or by `from_min_extent`."""

    _accepts: ClassVar[dict[str, str]] = ACCEPTED
    _coerce: ClassVar[Coercion | None] = Expr._coerce
    _refuse: ClassVar[Refuse | None] = Expr._refuse
    _scope: ClassVar[dict[str, object]] = SCOPE
    _fill: ClassVar[Callable[..., None]]
    min: Expr
    extent: Expr

    def __init__(self, begin: ExprLike, end: ExprLike | None = None, span: object = None) -> None:
        self._fill(*slots.min_and_extent(begin, end))

    @classmethod
    def from_min_extent(cls, min_value: ExprLike, extent: ExprLike, span: object = None) -> Range:
        """The range [min_value, min_value + extent)."""
        result = object.__new__(cls)
        result._fill(min_value, extent)
        return result


@node
class IterVar(Expr):
    """A loop axis: `kind` is data, reduce, thread or opaque; usable as an expression (it stands for `var`).

    The numbers are those of the Relay era for what a loop is.
    """

    DataPar: ClassVar[int] = 0
    ThreadIndex: ClassVar[int] = 1
    CommReduce: ClassVar[int] = 2
    Ordered: ClassVar[int] = 3
    DimInfo: ClassVar[int] = 4
    Unrolled: ClassVar[int] = 5
    Vectorized: ClassVar[int] = 6
    Parallelized: ClassVar[int] = 7
    Tensorized: ClassVar[int] = 8
    dom: Range | None
    var: Var
    kind: str = "data"
    thread_tag: str = ""
    dtype: DType = derived("var.dtype")


@node
class Reduce(Expr):
    """Value `value_index` of reducing `source` over `axis` where `condition` holds. Top of a te.compute body only."""

    combiner: CommReducer
    source: tuple[Expr, ...]
    axis: tuple[IterVar, ...]
    condition: Expr
    value_index: int
    dtype: DType = derived("source[value_index].dtype")
