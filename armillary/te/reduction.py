"""Commutative reductions: sum, prod, max, min, any, all and those that users define.

In: an expression (or a tuple of them), reduction axes, a condition, an initial value. Out: a `Reduce` node (a tuple of
them for tuple reductions), which must be the whole body of a te.compute. Invariant: the identity of a combiner is
neutral, so a schedule may split and reorder the reduction freely. Loops: `te/lower.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeGuard, cast, overload

from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.functions import FUNCTIONS
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.tir import build as T
from armillary.tir.expr import BOOL, CommReducer, Expr, ExprLike, IterVar, Reduce, Var

Axes: TypeAlias = IterVar | Sequence[IterVar]
Values: TypeAlias = Sequence[ExprLike]
Combine: TypeAlias = Callable[[ExprLike, ExprLike], Expr]


class Reducer(Protocol):
    """What reduces: one value gives one expression, a tuple of values gives a tuple."""

    @overload
    def __call__(
        self,
        expr: tuple[ExprLike, ...] | list[ExprLike],
        axis: Axes,
        where: ExprLike | None = ...,
        init: Values | None = ...,
    ) -> tuple[Expr, ...]: ...

    @overload
    def __call__(
        self, expr: ExprLike, axis: Axes, where: ExprLike | None = ..., init: ExprLike | None = ...
    ) -> Expr: ...


class ReducerOrPair(Protocol):
    """`te.max(expr, axis)` reduces, `te.max(a, b)` combines two scalars."""

    def __call__(
        self,
        expr: ExprLike,
        axis: ExprLike | Sequence[IterVar],
        where: ExprLike | None = ...,
        init: ExprLike | None = ...,
    ) -> Expr: ...


def lowest(dtype: str) -> Expr:
    """The neutral element of max: -inf, the smallest integer, or false."""
    kind = DType(dtype)
    if kind.is_custom:
        return _least(kind)
    return T.const(-math.inf if kind.is_float else kind.min_value, kind)


def _least(kind: DType) -> Expr:
    """Where maxima of a script's own type begin."""
    rule = FUNCTIONS.get(f"datatype.min.{kind.code}")
    if rule is None:
        raise UnsupportedError(f"{kind} has no least value", hint="target.datatype.register_min_func says what it is")
    return T.convert(rule(kind.bits))


def highest(dtype: str) -> Expr:
    """The neutral element of min: inf, the largest integer, or true."""
    kind = DType(dtype)
    return T.const(math.inf if kind.is_float else kind.max_value, kind)


def make_reduce(
    combiner: CommReducer,
    source: tuple[Expr, ...],
    axis: object,
    where: ExprLike | None,
    init: ExprLike | Values | None,
) -> tuple[Expr, ...]:
    """The Reduce nodes of one reduction, one for each value that the combiner works on."""
    axes = _reduce_axes(axis)
    if init is not None:
        inits = init if isinstance(init, tuple | list) else (init,)
        if len(inits) != len(source):
            raise TypeMismatch(f"a reduction of {len(source)} values got {len(inits)} initial values")
        start = tuple(T.cast(v, s.dtype) for v, s in zip(inits, source, strict=True))
        combiner = CommReducer(combiner.lhs, combiner.rhs, combiner.result, start)
    condition = T.const(True) if where is None else T.cast(where, "bool")
    return tuple(Reduce(combiner, source, axes, condition, k) for k in range(len(source)))


def _reduce_axes(axis: object) -> tuple[IterVar, ...]:
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    for item in axes:
        if not isinstance(item, IterVar) or item.kind != "reduce":
            what = f"axis {item.var.name}" if isinstance(item, IterVar) else repr(item)
            raise TypeMismatch(f"cannot reduce over {what}", hint="make the axis with te.reduce_axis((low, high))")
    return axes


@boundary("comm_reducer", arguments=True)
def comm_reducer(
    fcombine: Callable[..., ExprLike | Values], fidentity: Callable[..., ExprLike | Values], name: str = "reduce"
) -> Reducer:
    """A reducer from `fcombine(x, y)` and `fidentity(*dtypes)`; for tuple reductions both give tuples."""

    def reducer(
        expr: ExprLike | Values, axis: Axes, where: ExprLike | None = None, init: ExprLike | Values | None = None
    ) -> Expr | tuple[Expr, ...]:
        if not isinstance(axis, IterVar | tuple | list):  # values to combine, not an axis to go along
            rest = [cast(ExprLike, value) for value in (axis, where, init) if value is not None]
            return functools.reduce(
                lambda x, y: T.convert(cast(ExprLike, fcombine(x, y))), rest, T.convert(cast(ExprLike, expr))
            )
        source = (
            tuple(T.convert(e) for e in expr) if isinstance(expr, tuple | list) else (T.convert(cast(ExprLike, expr)),)
        )
        many = isinstance(expr, tuple | list)
        lhs = tuple(Var(f"x{i}" if many else "x", s.dtype) for i, s in enumerate(source))
        rhs = tuple(Var(f"y{i}" if many else "y", s.dtype) for i, s in enumerate(source))
        combined = fcombine(lhs, rhs) if many else fcombine(lhs[0], rhs[0])
        result = tuple(combined) if isinstance(combined, tuple | list) else (combined,)
        identity = fidentity(*(str(s.dtype) for s in source))
        identities = tuple(identity) if isinstance(identity, tuple | list) else (identity,)
        if len(result) != len(source) or len(identities) != len(source):
            raise TypeMismatch(
                f"reducer {name}: {len(source)} values are reduced, but the combiner gives {len(result)} "
                f"and the identity {len(identities)}"
            )
        combiner = CommReducer(
            lhs,
            rhs,
            tuple(T.cast(r, s.dtype) for r, s in zip(result, source, strict=True)),
            tuple(T.cast(i, s.dtype) for i, s in zip(identities, source, strict=True)),
        )
        reduction = make_reduce(combiner, source, axis, where, init)
        return reduction[0] if len(reduction) == 1 else reduction

    reducer.__name__ = name
    reducer.__doc__ = f"{name} over reduction axes where a condition holds; `init` is combined once."
    return cast(Reducer, reducer)  # mypy compares no function with overloads


def _is_axis(value: object) -> TypeGuard[Axes]:
    if isinstance(value, tuple | list):
        return bool(value) and not [v for v in value if not isinstance(v, IterVar)]
    return isinstance(value, IterVar) and value.kind == "reduce"


def _binary_or_reduce(name: str, combine: Combine, identity: Callable[[str], Expr]) -> ReducerOrPair:
    """`name(expr, axis)` reduces; `name(a, b)` combines two scalars, as scripts expect of te.max and te.min."""
    reduce = comm_reducer(combine, identity, name)

    def function(
        expr: ExprLike, axis: ExprLike | Sequence[IterVar], where: ExprLike | None = None, init: ExprLike | None = None
    ) -> Expr:
        if isinstance(axis, Sequence) and not isinstance(axis, str):
            return reduce(expr, axis, where, init)
        if _is_axis(axis) or where is not None or init is not None:
            return reduce(expr, cast(IterVar, axis), where, init)
        return combine(expr, axis)

    function.__name__ = name
    function.__doc__ = f"{name}(expr, axis, where, init) reduces over axes; {name}(a, b) combines two scalars."
    return function


sum = _binary_or_reduce("sum", T.add, lambda dtype: T.const(0, dtype))
prod = _binary_or_reduce("prod", T.mul, lambda dtype: T.const(1, dtype))
max = _binary_or_reduce("max", T.maximum, lowest)
min = _binary_or_reduce("min", T.minimum, highest)
_reduce_all = comm_reducer(T.logical_and, lambda dtype: T.const(True), "all")
_reduce_any = comm_reducer(T.logical_or, lambda dtype: T.const(False), "any")


def _logical(
    conditions: tuple[ExprLike, ...],
    axis: Axes | None,
    where: ExprLike | None,
    init: ExprLike | None,
    reduce: Reducer,
    combine: Callable[..., Expr],
) -> Expr:
    if axis is None and len(conditions) > 1 and _is_axis(conditions[1]):
        axis, where, init = conditions[1], *(*conditions[2:], where, init)[:2]
    if axis is None:
        return combine(*conditions)
    return reduce(T.cast(conditions[0], BOOL), axis, where, init)


@boundary("te.all", arguments=True)
def all(
    *conditions: ExprLike, axis: Axes | None = None, where: ExprLike | None = None, init: ExprLike | None = None
) -> Expr:
    """The conjunction of conditions; with reduction axes, of one condition over them."""
    return _logical(conditions, axis, where, init, _reduce_all, T.all_of)


@boundary("te.any", arguments=True)
def any(
    *conditions: ExprLike, axis: Axes | None = None, where: ExprLike | None = None, init: ExprLike | None = None
) -> Expr:
    """The disjunction of conditions; with reduction axes, of one condition over them."""
    return _logical(conditions, axis, where, init, _reduce_any, T.any_of)
