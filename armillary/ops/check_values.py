"""check_values: integers as they are, once each is known to lie within its bounds; else the run ends with an error.

In: positions or divisors that a network computes, and for each component of the last axis a bound. Out: the same
values. Invariant: values from an importer that a kernel would clamp or divide by are checked first, here when they are
known, else when it runs: then a kernel of its own looks at all of them, which `strict.values` switches:
"auto" checks where that costs less than 1 % of the work (by the elements moved), "always" everywhere, "never" nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.extent import Known
from armillary.base.record import record
from armillary.errors import ExecutionError, TypeMismatch
from armillary.ops._deferred import S, T, te
from armillary.ops._loops import load, nest, store
from armillary.ops._types import check_kind, fixed_shape, ints, number
from armillary.relay.expr import Expr
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType
from armillary.transform import PassContext, register_config_option

if TYPE_CHECKING:
    from armillary.tir.expr import Expr as Scalar
    from armillary.tir.stmt import Buffer, Stmt

NAME = "check_values"
Bounds = tuple[tuple[Known, Known], ...]
STRICT = register_config_option(
    "strict.values",
    str,
    "auto",
    "checks of positions and divisors when running: auto (where they cost < 1 %), always, never",
)
_WAYS = ("auto", "always", "never")
_ALWAYS_CHECKED = 1024  # values that are checked in any case: a microsecond
_SHARE = 100  # elements moved for each value


@record
class CheckValuesAttrs:
    """Values are in [low, high]: one pair, or one for each component along the last axis. (1, 0): they are not 0.

    `what` begins the message; `moved` is how many elements the operator that wants the values touches.
    """

    bounds: Bounds
    what: str
    moved: int = 0


check_values = Op(NAME, kind=Kind.OPAQUE, doc="Integers, once they are known to lie within bounds.")
check_values.attrs(CheckValuesAttrs)


@check_values.infer
def infer(attrs: CheckValuesAttrs, data: TensorType) -> TensorType:
    check_kind(NAME, "data", data, "integer")
    count = len(attrs.bounds)
    if count != 1 and (data.ndim == 0 or data.shape[-1] != count):
        raise TypeMismatch(f"{NAME}: {count} bounds for values of type {data}")
    return data


@check_values.reference
def reference(attrs: CheckValuesAttrs, data: Array) -> Array:
    problem = violation(data, attrs)
    if problem:
        raise ExecutionError(problem)
    return data


def violation(data: Array, attrs: CheckValuesAttrs) -> str:
    """What is wrong with values, "" if nothing is."""
    rows = data.reshape(-1, len(attrs.bounds)) if data.size else data.reshape(0, len(attrs.bounds))
    for column, (low, high) in enumerate(attrs.bounds):
        values = rows[:, column]
        least, most = fixed_shape(NAME, (low, high))
        bad = values[values == 0] if least > most else values[(values < least) | (values > most)]
        if bad.size:
            return message(attrs, column).replace("{}", str(bad[0]))
    return ""


def message(attrs: CheckValuesAttrs, column: int) -> str:
    """What an error says of the values along a column, with {} for the value."""
    low, high = attrs.bounds[column]
    which = f" (component {column})" if len(attrs.bounds) > 1 else ""
    wanted = "not allowed" if (low, high) == NOT_ZERO else f"not in [{low}, {high}]"
    return f"{attrs.what}{which} {{}} is {wanted}"


@check_values.compute
def compute(attrs: CheckValuesAttrs, data: te.Tensor) -> te.Tensor:
    shape = te.extents(data)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        first = [0] * len(shape)

        def one(index: list[Scalar], column: int) -> Stmt:
            value = load(ins[0], *index)
            fine = holds(value, *attrs.bounds[column])
            shown = store(outs[0], value, *first)  # the message shows it: arm_bound_failed in the runtime
            stop = S.AssertStmt(fine, message(attrs, column), S.Evaluate(T.const(0)))
            return S.seq(store(outs[0], value, *index), S.IfThenElse(T.logical_not(fine), S.seq(shown, stop)))

        if len(attrs.bounds) == 1:
            return nest(shape, lambda index: one(index, 0))
        return nest(shape[:-1], lambda index: S.seq(*(one([*index, T.const(k)], k) for k in range(len(attrs.bounds)))))

    result: te.Tensor = te.extern([shape], [data], body, name=NAME, dtype=[data.dtype])
    return result


def holds(value: Scalar, low: Known, high: Known) -> Scalar:
    """Whether a value is within bounds."""
    dtype = value.dtype
    if (low, high) == NOT_ZERO:
        return T.not_equal(value, T.const(0, dtype))
    below = T.less_equal(value, number(high, dtype))
    return below if dtype.code == "uint" else T.logical_and(T.greater_equal(value, number(low, dtype)), below)


@check_values.decompose
def decompose(attrs: CheckValuesAttrs, data: Expr) -> Expr | None:
    """The values themselves, where the check is switched off or would cost more than a hundredth."""
    way = PassContext.current().get(STRICT)
    if way not in _WAYS:
        raise TypeMismatch(f"{STRICT.name} is {way!r}, wanted one of {', '.join(_WAYS)}")
    size = data.checked_type.typical_size if isinstance(data.checked_type, TensorType) else 0
    is_cheap = size <= _ALWAYS_CHECKED or size * _SHARE <= attrs.moved
    return None if way == "always" or (way == "auto" and is_cheap) else data


NOT_ZERO = (1, 0)


@check_values.samples
def samples() -> Iterator[Sample]:
    yield Sample(CheckValuesAttrs(((-3, 2),), "index"), (ints([[0, 2], [-3, 1]]),))
    yield Sample(CheckValuesAttrs(((-3, 2), (0, 9)), "index"), (ints([[0, 9], [-3, 1]], "int64"),))
    yield Sample(CheckValuesAttrs((NOT_ZERO,), "divisor"), (ints(5),))


@check_values.bad_samples
def bad_samples() -> Iterator[BadSample]:
    yield BadSample(CheckValuesAttrs(((0, 1), (0, 1)), "index"), (ints([1, 1, 1]),), "2 bounds for values of type")
    yield BadSample(CheckValuesAttrs(((0, 1),), "index"), (np.ones(2, np.float32),), "wanted integer")
