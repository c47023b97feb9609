"""Values with an error bar: what a graph means, and how far a right answer may lie from it.

In: operators applied to values. Out: a `Value`: the expression, its reference result, and `TWINS` further results in
which every rounded number was moved by a few units in the last place, each time it is read and each time it is made.
How far twins lie apart is how much of a difference rounding alone can make; `tolerance` is a multiple of it, so it
scales with dtype, depth and conditioning, element by element. Invariant: integers and booleans never differ between
twins (a cast near .5, a tie of argmax, a comparison of nearly equal sums is refused with `Reject`), NaN and infinities
lie in the same places, and the tolerance is small against the values: comparing always says something.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from armillary.base.dtype import dtype_of
from armillary.errors import ArmillaryError
from armillary.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from armillary.relay.op import Kind, Op
from armillary.relay.types import TensorType, TupleType, Type

Array = np.ndarray[Any, Any]
TWINS = 4
LARGEST_TENSOR = 6_000  # elements
ULPS = {"float64": 64.0, "float32": 16.0, "float16": 3.0, "bfloat16": 2.0}  # how far a rounded number is moved
MARGIN = 8.0  # tolerance over the spread of the twins
LOOSEST = 0.05  # tolerance over the largest value, at most
HUGE = {"float64": 1e9, "float32": 1e6, "float16": 2e3, "bfloat16": 1e4}


class Reject(Exception):
    """This use of an operator is no good test: ill-typed, too large, or decided by rounding."""


class Inconsistent(Exception):
    """An operator contradicts itself: its type rule accepts what its reference refuses, or gives another type."""


@dataclass(frozen=True, eq=False)
class Value:
    """`base` and each twin is an array or a tuple of them; `exact`: no rounding happened on the way."""

    expr: Expr
    base: Any
    twins: tuple[Any, ...]
    exact: bool

    @property
    def type(self) -> Type:
        return self.expr.checked_type

    @property
    def is_tensor(self) -> bool:
        return not isinstance(self.base, tuple)


def leaf(expr: Expr, base: Array) -> Value:
    """An input or constant: exact."""
    return Value(expr, base, (base,) * TWINS, True)


def bundle(fields: Sequence[Value]) -> Value:
    """Several values as a tuple."""
    twins = tuple(tuple(f.twins[k] for f in fields) for k in range(TWINS))
    return Value(
        Tuple(tuple(f.expr for f in fields)), tuple(f.base for f in fields), twins, all(f.exact for f in fields)
    )


def field(value: Value, index: int) -> Value:
    """One field of a tuple."""
    expr = value.expr.fields[index] if isinstance(value.expr, Tuple) else TupleGetItem(value.expr, index)
    return Value(expr, value.base[index], tuple(t[index] for t in value.twins), value.exact)


def apply(op: Op, attrs: Any, args: Sequence[Value], rng: np.random.Generator) -> Value:
    """The value of a call; raises Reject where it would test nothing, Inconsistent where the operator is broken."""
    call = Call(op, tuple(a.expr for a in args), attrs)
    return Value(call, *results(op, attrs, args, checked(call), rng))


def checked(expr: Expr) -> Type:
    """The type; Reject for an ill-typed expression or one too large to be worth it."""
    try:
        ty = expr.checked_type
    except ArmillaryError as error:
        raise Reject(f"ill-typed: {error.message}") from None
    for tensor in _tensors(ty):
        if tensor.size > LARGEST_TENSOR:
            raise Reject("too large")
    return ty


def _tensors(ty: Type) -> list[TensorType]:
    if isinstance(ty, TupleType):
        return [t for f in ty.fields for t in _tensors(f)]
    if not isinstance(ty, TensorType):
        raise Reject("not a tensor")
    return [ty]


def results(
    op: Op, attrs: Any, args: Sequence[Value], ty: Type, rng: np.random.Generator
) -> tuple[Any, tuple[Any, ...], bool]:
    """Reference, twins and exactness of a call of a known type."""
    guard(op, attrs, args)
    base = _reference(op, attrs, [a.base for a in args])
    if type_of(base) != ty:
        raise Inconsistent(f"{op.name} {attrs}: inferred {ty}, its reference gives {type_of(base)}")
    exact_inputs, chosen = all(a.exact for a in args), _is_chosen(op, base, [a.base for a in args])
    if exact_inputs and (chosen or _is_exact(op, base)):  # maxima and their places too: ties have one right answer
        return base, (base,) * TWINS, True
    chosen = chosen and all(map(is_float, _flat(base)))
    shake = not chosen and not (exact_inputs and op.kind in (Kind.ELEMENTWISE, Kind.BROADCAST))
    twins = []
    for k in range(TWINS):
        moved = [_moved(a.twins[k], rng) if shake else a.twins[k] for a in args]
        result = _reference(op, attrs, moved)
        own = allowance(op) + _cancelled(op, attrs, moved)
        twins.append(result if chosen else _moved(result, rng, own))
    for b, *others in zip(_flat(base), *map(_flat, twins), strict=True):
        _check(b, others)
    return base, tuple(twins), all(a.dtype.kind in "iub" for a in _flat(base))


def _reference(op: Op, attrs: Any, arrays: Sequence[Any]) -> Any:
    try:
        with np.errstate(all="ignore"):
            made = op.evaluate(attrs, arrays)
    except (ArmillaryError, IndexError) as error:
        raise Reject(f"its reference refuses: {error}") from None
    except Exception as error:
        shapes = [type_of(a) for a in arrays]
        raise Inconsistent(f"{op.name} {attrs} of {shapes}: its reference fails: {error!r}") from error
    return tuple(made) if isinstance(made, tuple | list) else np.asarray(made)


def type_of(value: Any) -> Type:
    """The type of an array or tuple of arrays."""
    if isinstance(value, tuple):
        return TupleType(tuple(map(type_of, value)))
    return TensorType(tuple(value.shape), dtype_of(value))


def _flat(value: Any) -> list[Array]:
    return [a for v in value for a in _flat(v)] if isinstance(value, tuple) else [value]


def is_float(array: Array) -> bool:
    """Whether the elements are floating point (numpy calls bfloat16 a void)."""
    return dtype_of(array).is_float


@dataclass(frozen=True)
class _Finfo:
    eps: float
    smallest: float


def _finfo(array: Array) -> _Finfo:
    info: Any = ml_dtypes.finfo(array.dtype)  # type: ignore[no-untyped-call]
    return _Finfo(float(info.eps), float(info.smallest_normal))


@functools.cache
def allowance(op: Op) -> float:
    """What an operator that approximates says of itself: the least tolerance any of its samples asks for."""
    samples = list(op.sample_source()) if op.sample_source is not None else []
    return min((max(s.rtol or 0.0, s.atol or 0.0) for s in samples), default=0.0)


def _cancelled(op: Op, attrs: Any, args: Sequence[Any]) -> Any:
    """The error that an operator inherits from numbers larger than its result: one unit of what is left of 1 + erf."""
    if op.name != "nn.gelu" or attrs.approximate != "none":
        return 0.0
    unit = min(_finfo(args[0]).eps, float(np.finfo(np.float32).eps))  # halves are computed in float32
    return unit * np.maximum(-args[0].astype(np.float64), 0.0)


def _moved(value: Any, rng: np.random.Generator, least: Any = 0.0) -> Any:
    """Every float a few units (and at least `least`) off; zeros, NaN and infinities stay."""
    if isinstance(value, tuple):
        return tuple(_moved(v, rng, least) for v in value)
    if not is_float(value):
        return value
    amount = ULPS.get(dtype_of(value), 1.0) * _finfo(value).eps
    wide, shift = value.astype(np.float64), rng.uniform(-1, 1, value.shape)
    with np.errstate(all="ignore"):
        moved = wide * (1 + amount * shift) + least * shift * (1 + abs(wide))
        return np.asarray(np.where(wide == 0, wide, moved)).astype(value.dtype)


def _is_chosen(op: Op, base: Any, inputs: Sequence[Any]) -> bool:
    """Whether each float of a result is one of the inputs' or 0: it was moved or chosen, not computed.

    Zeros alone say nothing: x - x is 0 by its reference, and what a fused multiply-add leaves when compiled. Nor does
    the one number that a sum leaves of many in 16 bits, which is one of theirs by chance.
    """
    if op.kind == Kind.REDUCE and op.name not in ("max", "min"):
        return False
    arrays = [a for a in _flat(base) if is_float(a)]
    if not any(np.any(a) for a in arrays):
        return False
    known = np.concatenate([np.zeros(1), *(a.astype(np.float64).ravel() for a in _flat(tuple(inputs)))])
    return all(bool(np.isin(a.astype(np.float64), known).all()) for a in arrays)


def _is_exact(op: Op, base: Any) -> bool:
    """Whether a result of exact inputs was not rounded: no floats, or small whole numbers made one by one."""
    floats = [a for a in _flat(base) if is_float(a)]
    if op.kind not in (Kind.ELEMENTWISE, Kind.BROADCAST, Kind.INJECTIVE) or op.name in ("exp", "log2", "power"):
        return not floats
    return op.kind != Kind.INJECTIVE and all(bool(_small_whole(a).all()) for a in floats)


def _small_whole(array: Array) -> Any:
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        return (wide == np.rint(wide)) & (abs(wide) < 256)


def _check(base: Array, twins: Sequence[Array]) -> None:
    if not is_float(base):
        if any(not np.array_equal(t, base) for t in twins):
            raise Reject("decided by rounding")
        return
    wide, others = base.astype(np.float64), [t.astype(np.float64) for t in twins]
    finite = np.isfinite(wide)
    for other in others:
        same = np.isnan(other) == np.isnan(wide)
        if not same.all() or not (np.isinf(other) == np.isinf(wide)).all():
            raise Reject("NaN or infinity decided by rounding")
    if not finite.any():
        return
    largest = float(abs(wide[finite]).max())
    if largest > HUGE.get(dtype_of(base), 1e3):
        raise Reject("too large a number")
    with np.errstate(all="ignore"):
        if float(tolerance_of(base, twins)[finite].max()) > LOOSEST * max(largest, 1e-30):
            raise Reject("ill-conditioned")


def tolerance_of(base: Array, twins: Sequence[Array]) -> Array:
    """How far each float of a right answer may be away."""
    wide = base.astype(np.float64)
    with np.errstate(all="ignore"):
        spread = (
            np.max([abs(t.astype(np.float64) - wide) for t in twins], axis=0) if len(twins) else np.zeros_like(wide)
        )
        spread = np.where(np.isfinite(wide), spread, 0.0)
        typical = float(np.median(spread)) if spread.size else 0.0
        unit = 4 * _finfo(base).eps
        tiny = _finfo(base).smallest
        return np.asarray(MARGIN * spread + MARGIN / 2 * typical + unit * abs(np.nan_to_num(wide)) + tiny)


# --- what the references leave to the processor ---------------------------------------------------------------------


def guard(op: Op, attrs: Any, args: Sequence[Value]) -> None:
    """Reject calls whose result the language leaves open: casts beyond the range, powers that overflow."""
    rule = _GUARDS.get(op.name)
    if rule is None and (op.name.startswith(("qnn.", "image.resize")) or "conv" in op.name):
        rule = _only_finite
    if rule is not None:
        rule(attrs, args)


def _only_finite(attrs: Any, args: Sequence[Value]) -> None:
    """Winograd's tiles turn one infinity into NaN all over; taps on the padding are left out, so 0 * infinity is 0.

    An interpolation leaves out neighbours of weight 0, too.
    """
    for array in _flat(tuple(a.base for a in args)):
        if is_float(array) and not np.isfinite(array.astype(np.float64)).all():
            raise Reject("NaN or infinity in an operator that is rewritten for finite numbers")


def _cast_in_range(attrs: Any, args: Sequence[Value]) -> None:
    _in_range(args[0].base, attrs.dtype)


def _cast_like_in_range(attrs: Any, args: Sequence[Value]) -> None:
    _in_range(args[0].base, dtype_of(args[1].base))


def _in_range(source: Array, name: str) -> None:
    dtype = dtype_of(np.empty(0, dtype=_numpy_dtype(name)))
    if not is_float(source) or not dtype.is_int:
        return
    wide = np.trunc(source.astype(np.float64))
    if not (np.isfinite(wide) & (wide >= dtype.min_value) & (wide <= float(dtype.max_value))).all():
        raise Reject("a cast beyond the range of the integer type")


def _numpy_dtype(name: str) -> Any:
    return getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else np.dtype(str(name))


def _whole_power(attrs: Any, args: Sequence[Value]) -> None:
    a, b = args[0].base, args[1].base
    if is_float(a):
        return
    with np.errstate(all="ignore"):
        wide = np.power(a.astype(np.float64), b.astype(np.float64))
    limit = 2.0 ** min(50, 8 * a.dtype.itemsize - 1)
    if not (np.isfinite(wide) & (abs(wide) < limit)).all() or (a.dtype.kind == "u" and (wide < 0).any()):
        raise Reject("an integer power that overflows")


def _ordered_product(attrs: Any, args: Sequence[Value]) -> None:
    """A product of an infinity, or of more than the type holds, and of what underflows depends on the order of both."""
    array = args[0].base
    if not is_float(array):
        return
    with np.errstate(all="ignore"):
        logs = np.log2(abs(array.astype(np.float64)))
    limit = -math.log2(_finfo(array).smallest)
    if logs[logs > 0].sum() > limit and logs[np.isfinite(logs) & (logs < 0)].sum() < -limit:
        raise Reject("a product that underflows and overflows")


def _not_same(attrs: Any, args: Sequence[Value]) -> None:
    """Left open: which of several equal maxima of duplicated updates wins."""
    raise Reject("no rule")


_GUARDS: dict[str, Callable[[Any, Sequence[Value]], None]] = {
    "cast": _cast_in_range,
    "cast_like": _cast_like_in_range,
    "power": _whole_power,
    "prod": _ordered_product,
    "cumprod": _ordered_product,
    "nn.upsampling": _only_finite,
    "annotation.compiler_begin": _not_same,
    "annotation.compiler_end": _not_same,
}


# --- a whole function -----------------------------------------------------------------------------------------------


def of_function(function: Function, inputs: dict[str, Array], seed: int = 0) -> Value:
    """The value of a function's body, with its error bar."""
    rng = np.random.default_rng(seed)
    known = {id(p): leaf(p, inputs[p.name_hint]) for p in function.params}
    return _value(function.body, known, rng)


def _value(expr: Expr, known: dict[int, Value], rng: np.random.Generator) -> Value:
    """Graphs of the fuzzer are a few dozen nodes deep: recursion is fine."""
    if id(expr) not in known:
        known[id(expr)] = _compute(expr, known, rng)
    return known[id(expr)]


def _compute(expr: Expr, known: dict[int, Value], rng: np.random.Generator) -> Value:
    match expr:
        case Constant():
            return leaf(expr, expr.data)
        case Tuple():
            return bundle([_value(f, known, rng) for f in expr.fields])
        case TupleGetItem():
            return field(_value(expr.tuple_value, known, rng), expr.index)
        case Let():
            known[id(expr.var)] = _value(expr.value, known, rng)
            return _value(expr.body, known, rng)
        case If():
            taken = _value(expr.cond, known, rng).base
            return _value(expr.true_branch if bool(taken) else expr.false_branch, known, rng)
        case Call() if isinstance(expr.op, Op):
            args = [_value(a, known, rng) for a in expr.args]
            return Value(expr, *results(expr.op, expr.attrs, args, checked(expr), rng))
        case Call() if isinstance(expr.op, Function):
            inner = {id(p): _value(a, known, rng) for p, a in zip(expr.op.params, expr.args, strict=True)}
            return _value(expr.op.body, {**known, **inner}, rng)
        case Var():
            raise Reject(f"%{expr.name_hint} has no value")
    raise Reject(f"no rule for {type(expr).__name__}")


# --- comparing ------------------------------------------------------------------------------------------------------


def difference(got: Array, want: Value) -> str | None:
    """None where a tensor agrees, else what differs, in words."""
    base = want.base
    if got.shape != base.shape or got.dtype != base.dtype:
        return f"got {got.shape} {got.dtype}, wanted {base.shape} {base.dtype}"
    if not is_float(base):
        wrong = got != base
    else:
        wide, found = base.astype(np.float64), got.astype(np.float64)
        with np.errstate(all="ignore"):
            close = abs(found - wide) <= tolerance_of(base, want.twins)
            wrong = ~np.where(np.isfinite(wide), close, (found == wide) | (np.isnan(found) & np.isnan(wide)))
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    text = f"{int(wrong.sum())} of {base.size} elements differ; at {first} got {got[first]}, wanted {base[first]}"
    if is_float(base):
        text += f" ± {float(tolerance_of(base, want.twins)[first]):.1e}"
    return text


def compared(want: Value) -> int:
    """How many elements comparing with this tensor looks at (those that are NaN say little)."""
    if not is_float(want.base):
        return int(want.base.size)
    return int(math.prod(want.base.shape) - np.isnan(want.base.astype(np.float64)).sum())


def values_of(function: Function, inputs: dict[str, Array]) -> dict[int, Value]:
    """The value of every node that is evaluated, by its identity."""
    known = {id(p): leaf(p, inputs[p.name_hint]) for p in function.params}
    _value(function.body, known, np.random.default_rng(0))
    return known
