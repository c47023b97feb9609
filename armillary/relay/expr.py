"""The graph language: expressions and functions.

Grammar:

    expr = Var(name_hint, type_annotation) | GlobalVar(name) | Constant(data)
         | Call(op, args, attrs) | Tuple(fields) | TupleGetItem(tuple_value, index)
         | Let(var, value, body) | If(cond, true_branch, false_branch) | Loop(body, limit, going, args, states, trips)
         | Function(params, body, ret_type, attrs) | Op

`Call.op` is an `Op` record (relay/op/), a Function (a fused or composite part), a GlobalVar or a Var.
Invariant: nodes never change; the type of an expression is a pure function of it (plus, for global calls, of its
module), so `infer_type` in relay/infer.py memoises it in a hidden slot, read as `expr.checked_type`.
Types: relay/types.py. Text: relay/printer.py, relay/parser.py. Passes: relay/transform/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from armillary.base import slots
from armillary.base.aliases import Array
from armillary.base.aligned import Deferred, Values, array_of, in_native_order
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.extent import Extent, Known, typical
from armillary.base.lazy import deferred
from armillary.base.node import Coercion, FieldConverters, Node, Pairs, Printer, node, post_order
from armillary.errors import Span, TypeMismatch
from armillary.ir import Attrs, BaseFunc, ModulePrinter, Verifier, as_attrs
from armillary.relay.types import TensorType, TupleType, Type, tensor_type

if TYPE_CHECKING:
    from armillary.target.virtual_device import VirtualDevice
with deferred():
    from armillary.target.virtual_device import VirtualDevice as _VirtualDevice

E = TypeVar("E", bound="Expr")
Method: TypeAlias = "Callable[[Expr, object], Expr]"


def _operator(name: str) -> tuple[Method, Method]:
    """The methods of `a + b` for an operator of this name, the second where `a` is no expression."""
    return lambda self, other: _binary(name, self, other), lambda self, other: _binary(name, other, self)


class Expr(Node):
    """Base of graph expressions; `a + b` builds a call, `a[i]` and `x, y = a` take the fields of a tuple."""

    __slots__ = (
        "_inner_order",
        "_type",
        "_virtual_device",
    )  # of a function: relay/walk.py; infer.py; on_virtual_device
    _printer: ClassVar[Printer | None] = slots.astext

    @property
    def _checked_type_(self) -> Type:
        """`checked_type`, as scripts read it that look below the surface."""
        return self.checked_type

    @property
    def checked_type(self) -> Type:
        """The inferred type; raises TypeMismatch where the expression is ill-typed."""
        try:
            return self._type  # type: ignore[attr-defined, no-any-return]
        except AttributeError:
            ty = slots.infer_type(self)
            object.__setattr__(self, "_type", ty)
            return ty

    @property
    def virtual_device_(self) -> VirtualDevice:
        """Where a variable's value, or a function's result, is: what plan-devices found or a text says."""
        result: VirtualDevice | None = getattr(self, "_virtual_device", None)
        return _VirtualDevice() if result is None else result

    def __getitem__(self, index: object) -> Expr:
        """Field `index` of a tuple-typed expression; a negative index counts from the end."""
        try:
            position = _field_number(index, len(self._field_types()))
        except TypeMismatch:
            if not isinstance(index, int) or index < 0 or not has_untyped(self):
                raise
            return TupleGetItem(self, index)  # checked when the variables have types
        return TupleGetItem(self, position)

    def __iter__(self) -> Iterator[Expr]:
        return iter([self[k] for k in range(len(self._field_types()))])

    def _field_types(self) -> tuple[Type, ...]:
        ty = self.checked_type
        if not isinstance(ty, TupleType):
            hint = "relay.take or relay.strided_slice read elements of a tensor"
            raise TypeMismatch(f"only tuples have fields, got {ty}", hint=hint)
        return ty.fields

    def astype(self, dtype: str) -> Expr:
        """A cast to another type."""
        return slots.get_op("cast")(self, dtype=str(dtype))

    def astext(self, show_meta_data: bool = True) -> str:
        """The expression as text."""
        return slots.astext(self, show_meta_data)

    def astuple(self) -> Expr:
        """The expression, which must be tuple-typed."""
        self._field_types()
        return self

    def __call__(self, *args: object) -> Call:  # expressions, numbers
        """A call of the function that the expression gives."""
        return call(self, args)

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("subtract")
    __mul__, __rmul__ = _operator("multiply")
    __truediv__, __rtruediv__ = _operator("divide")
    __lt__, __gt__ = (_operator(name)[0] for name in ("less", "greater"))
    __le__, __ge__ = (_operator(name)[0] for name in ("less_equal", "greater_equal"))

    def __neg__(self) -> Expr:
        return slots.get_op("negative")(self)


def has_untyped(expr: Expr) -> bool:
    """Whether an expression has a variable without a type: what it computes is not known yet."""
    unknown = (e for e in post_order(expr, lambda e: not hasattr(e, "_type")) if not hasattr(e, "_type"))
    return any(isinstance(e, Var) and e.type_annotation is None for e in unknown)


def on_virtual_device(expr: E, device: VirtualDevice | None) -> E:
    """A variable or function that was just made, with the place of its value; comparisons do not look at it."""
    if device is not None and not device.is_open:
        object.__setattr__(expr, "_virtual_device", device)
    return expr


def keep_device(expr: E, old: Expr) -> E:
    """A node that was just made, with the place that the old one has."""
    return on_virtual_device(expr, getattr(old, "_virtual_device", None))


class TupleWrapper:
    """A tuple-typed expression with its number of fields, as operators with several results give it."""

    def __init__(self, tuple_value: Expr, size: int) -> None:
        self.tuple_value, self.size = tuple_value, size

    def astuple(self) -> Expr:
        """The tuple expression that this wraps."""
        return self.tuple_value

    def __getitem__(self, index: int) -> Expr:
        if not -self.size <= index < self.size:
            raise IndexError(f"field {index} of a tuple of {self.size} fields")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Expr]:
        return iter([self[k] for k in range(self.size)])


def _field_number(index: object, count: int) -> int:
    if isinstance(index, bool) or not isinstance(index, int | np.integer):
        raise TypeMismatch(f"a field of a tuple is named by an int, got {type(index).__name__}")
    if not -count <= index < count:
        raise TypeMismatch(f"field {index} of a tuple of {count} fields")
    return int(index) % count


def _as_whole(value: object) -> object:
    """Of several results the tuple; any other body as it is."""
    return value.tuple_value if type(value) is TupleWrapper else value


def call(op: object, args: Sequence[object]) -> Call:  # what is called; expressions, numbers
    """A call of a function, a global name or a variable."""
    return Call(op, tuple(as_expr(a) for a in args))


def _binary(name: str, lhs: Any, rhs: Any) -> Expr:
    like = lhs if isinstance(lhs, Expr) else rhs
    return slots.get_op(name)(as_expr(lhs, like), as_expr(rhs, like))


@node
class Var(Expr):
    """A graph input or let-bound name; compared by identity."""

    _binds: ClassVar[bool] = True
    name_hint: str
    type_annotation: Type | None = None
    span: Span | None = None


def _as_held(value: object) -> Any:  # Any: an array, a runtime NDArray, what is computed later
    """A constant's array in this machine's order of bytes: that of an NDArray, where it is given one."""
    if not hasattr(value, "numpy"):
        return in_native_order(value) if isinstance(value, np.ndarray) else value
    array = in_native_order(array_of(value, "a constant"))
    return np.ascontiguousarray(array).reshape(array.shape)  # numpy gives a scalar an axis


LARGEST_SPLAT = 64  # elements of a constant that may be spelled out inside a kernel


@node
class Constant(Expr):
    """A tensor known at compile time. `data` is a numpy array, C-contiguous, never written to.

    What is `held` may be Deferred: then each look at `data` computes it, and `nbytes` and the type need no look.
    """

    __match_args__ = ("data", "span")
    _is_leaf: ClassVar[bool] = True
    _converters: ClassVar[FieldConverters] = {"held": _as_held}  # Any: as given
    held: Array | Deferred
    span: Span | None = None

    @property
    def data(self) -> Array:
        held = self.held
        return (held.compute() if isinstance(held, Deferred) else held).view(Values)

    @property
    def some(self) -> Array:
        """The first of its numbers, or all: a look that reads little of a file."""
        held = self.held
        return next(held.pieces(1)) if isinstance(held, Deferred) and held.rows is not None else self.data

    @property
    def nbytes(self) -> int:
        return self.held.nbytes


Constant._fields = Constant.__match_args__  # walks, comparisons and the JSON form see the data


@node
class Tuple(Expr):
    """Several values as one."""

    _converters: ClassVar[FieldConverters] = {"fields": tuple}  # Any: as given
    fields: tuple[Expr, ...]
    span: Span | None = None
    if TYPE_CHECKING:  # as scripts write it: a list

        def __init__(self, fields: Sequence[Expr], span: Span | None = None) -> None: ...

    def __getitem__(self, index: object) -> Expr:
        """A field; a negative index counts from the end."""
        return self.fields[_field_number(index, len(self.fields))]

    def __len__(self) -> int:
        return len(self.fields)


@node
class TupleGetItem(Expr):
    """Field `index` of a tuple."""

    tuple_value: Expr
    index: int
    span: Span | None = None


@node
class Call(Expr):
    """Apply `op` to args. `attrs` is the op's frozen attrs dataclass, or None.

    Relay-era scripts give the types of arguments before the span, `Call(op, args, attrs, [], span)`: they are inferred.
    """

    _converters: ClassVar[FieldConverters] = {"args": tuple}  # Any: as given
    op: Any  # Any: Op | Function | GlobalVar | Var
    args: tuple[Expr, ...]
    attrs: Any = None  # Any: each Op has its own attrs class
    span: Span | None = None
    if TYPE_CHECKING:  # as `_call` takes them

        def __init__(
            self, op: object, args: Sequence[Expr], attrs: object = None, span: object = None, *rest: Span | None
        ) -> None: ...

    @property
    def type_args(self) -> list[Type]:
        """The types of the arguments."""
        return [arg.checked_type for arg in self.args]


@node
class Let(Expr):
    """body with var bound to value."""

    var: Var
    value: Expr
    body: Expr
    span: Span | None = None


@node
class If(Expr):
    """One of two values, by a bool scalar; only the chosen one is computed."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr
    span: Span | None = None


@node
class Loop(Expr):
    """Call `body` again and again: while `going`, fewer than `limit` times, and at most `trips` times if that is >= 0.

    body: fn (number, going, states…, fixed…) -> (going, states…, rows…). `args` are the first states, then the fixed
    values. Value: (states…, scans…, iterations done). A scan stacks its rows along a new first axis of `trips`; rows
    after the last iteration are zero. A loop with rows has `trips` >= 0, or an expression over named sizes.
    number, limit and the count are int64 scalars.
    """

    body: Expr
    limit: Expr
    going: Expr
    args: tuple[Expr, ...]
    states: int
    trips: Known = -1
    span: Span | None = None


@node
class Function(Expr, BaseFunc):
    """A function value. attrs: Primitive=1 (one kernel), Composite=name, Compiler=name, global_symbol=name…

    Relay-era scripts give type parameters before the attributes: `Function(params, body, ret_type, [], attrs)`.
    """

    _converters: ClassVar[FieldConverters] = {"params": tuple, "body": _as_whole, "type_params": tuple}  # Any: as given
    _module_printer: ClassVar[ModulePrinter] = slots.print_function
    _verifier: ClassVar[Verifier | None] = slots.verify_function
    _accepts: ClassVar[dict[str, str]] = {"Pairs": "type({0}) is Attrs"}
    _coerce: ClassVar[Coercion | None] = as_attrs
    _scope: ClassVar[dict[str, object]] = {"Attrs": Attrs}
    params: tuple[Var, ...]
    body: Expr
    ret_type: Type | None = None
    attrs: Pairs = ()
    span: Span | None = None
    type_params: tuple[Type, ...] = ()  # TypeVars (relay/adt/types.py)
    if TYPE_CHECKING:  # as `_function` takes them

        def __init__(
            self, params: Sequence[Var], body: Expr, ret_type: Type | None = None, *rest: object, **named: object
        ) -> None: ...

    def set_body(self, new_body: Expr) -> Function:
        """The function with another body."""
        return keep_device(Function(self.params, new_body, None, self.attrs, self.span), self)


_call_of_fields, _of_fields = Call.__init__, Function.__init__


def _call(
    self: Call, op: object, args: Sequence[Expr], attrs: object = None, span: object = None, *rest: Span | None
) -> None:
    """The constructor: the span is fourth, or behind types of arguments, which are a list or None."""
    if rest or type(span) is list or type(span) is tuple:
        (span,) = rest or (None,)
    _call_of_fields(self, op, args, attrs, span)


def _function(self: Function, params: Any, body: Expr, ret_type: Type | None = None, *rest: Any, **named: Any) -> None:
    """The constructor: attributes fourth, or behind type parameters, which are a list or None."""
    if rest and (rest[0] is None or type(rest[0]) is list):
        named["type_params"], rest = rest[0] or (), rest[1:]
    _of_fields(self, params, body, ret_type, *rest, **named)


type.__setattr__(Call, "__init__", _call)
type.__setattr__(Function, "__init__", _function)


def var(name_hint: str, type_annotation: Type | None = None, shape: object = None, dtype: str = "float32") -> Var:
    """A variable, typed by `type_annotation` or by shape and dtype."""
    if not isinstance(name_hint, str):
        raise TypeMismatch(f"a variable is named by a text, got {type(name_hint).__name__} {name_hint!r}")
    if isinstance(type_annotation, str):  # relay.var("x", "float32") is a scalar
        type_annotation, shape, dtype = None, (), type_annotation
    if type_annotation is not None and not isinstance(type_annotation, Type):
        type_annotation, shape = None, type_annotation  # relay.var("x", (1, 2)) passes the shape second
    return Var(name_hint, tensor_type(shape, dtype) if shape is not None else type_annotation)


@boundary("relay.const")
def const(value: object, dtype: str | None = None) -> Constant:
    """A constant from a number, sequence, numpy array or runtime NDArray; Python floats become float32, ints int32."""
    array = array_of(value, "a constant")  # refuses rows of several lengths
    if array.dtype.kind in "OSU":
        raise TypeMismatch(f"a constant is made of numbers, got {type(value).__name__} {str(value)[:40]!r}")
    if dtype is None and not isinstance(value, np.ndarray | np.generic) and not hasattr(value, "numpy"):
        dtype = {"float64": "float32", "int64": "int32"}.get(array.dtype.name)
    if dtype is not None and DType(dtype).is_custom:  # only a kernel knows the bits of a number
        return const(array.astype(np.float32)).astype(dtype)  # type: ignore[return-value]
    if dtype is not None:
        array = _converted(array, tensor_type((), dtype).dtype, value)
    return Constant(np.ascontiguousarray(array).reshape(array.shape))


def _converted(array: Array, dtype: DType, value: object) -> Array:
    """Numbers in another type: fractions are cut off, as numpy does; a Python number must lie in its range."""
    if dtype.is_int and isinstance(value, float | int):
        least, most = dtype.min_value, dtype.max_value
        if not least <= value <= most:
            raise TypeMismatch(f"a constant of {dtype} cannot be {value}", hint=f"from {least} to {most}")
    return array.astype(dtype.numpy)


def tensor_of(expr: Expr) -> TensorType | None:
    """The type of an expression where it is a tensor of known shape."""
    ty = expr.checked_type
    return ty if isinstance(ty, TensorType) and all(isinstance(d, int) for d in ty.shape) else None


def known_of(expr: Expr) -> TensorType | None:
    """The type of an expression where it is a tensor whose dimensions are numbers or expressions over named sizes."""
    ty = expr.checked_type
    return ty if isinstance(ty, TensorType) and all(isinstance(d, int | Extent) for d in ty.shape) else None


def shape_of(expr: Expr) -> tuple[Known, ...] | None:
    """The shape of such a tensor, None for other expressions."""
    ty = known_of(expr)
    return None if ty is None else ty.known


def typical_of(expr: Expr) -> TensorType | None:
    """Its type at the values that its sizes typically have: what layouts and algorithms are chosen for."""
    shape, ty = shape_of(expr), expr.checked_type
    if shape is None or not isinstance(ty, TensorType):
        return None
    return TensorType(tuple(map(typical, shape)), ty.dtype)


def splat(expr: Expr) -> float | int | None:
    """The value of a constant whose elements are all equal."""
    if not isinstance(expr, Constant) or expr.nbytes == 0:
        return None
    some = expr.some
    first = some.reshape(-1)[0]
    is_one = expr.nbytes == some.itemsize
    if not is_one and not bool((some == first).all() and (expr.data == first).all()):
        return None
    value: float | int = first.item()
    return value


def as_expr(value: object, like: Expr | None = None) -> Expr:
    """`value` itself, or a constant of the dtype of `like`; tuples and lists of expressions become Tuple."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, TupleWrapper):
        return value.astuple()
    if isinstance(value, tuple | list) and any(isinstance(v, Expr) for v in value):
        return Tuple(tuple(as_expr(v) for v in value))
    if like is not None and not hasattr(value, "dtype"):
        ty = like.checked_type
        return _number_like(value, ty.dtype) if isinstance(ty, TensorType) else const(value)
    return const(value)


def _number_like(value: object, dtype: DType) -> Constant:
    """A Python number as a constant of the type of the tensor beside it: integers meet numbers that are integers."""
    if isinstance(value, float | int) and not dtype.has(value):
        hint = "cast the tensor to a type that has it"
        raise TypeMismatch(f"{value} beside a tensor of {dtype}: no {dtype} is {value}", hint=hint)
    return const(value, str(dtype))
