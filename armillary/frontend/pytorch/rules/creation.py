"""ATen's tensors from numbers: filled ones, ranges, identity, tensors from lists.

In: sizes, numbers, dtypes. Out: constants or calls that fill. Invariant: random numbers are refused: a compiled network
gives the same outputs for the same inputs; memory that is left as it is reads as zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.base.dtype import DType
from armillary.base.extent import Extent
from armillary.budgets import FOLDED_BYTES
from armillary.frontend.pytorch.sizes import has_open
from armillary.frontend.pytorch.table import AtenCall, aten
from armillary.frontend.values import DEFAULT_FLOAT, Value, broadcast, cast, dtype_of, op, reshape_to, scalar, shape_of
from armillary.relay.expr import Expr, Tuple, const

_SMALL = 65_536  # elements of a filled tensor that is a constant


def filled(shape: Sequence[int], value: Value, dtype: str) -> Expr:
    """A tensor of one number."""
    sizes = tuple(shape)
    if isinstance(value, Expr):
        return broadcast(cast(value, dtype), sizes)
    if not has_open(list(sizes)) and not isinstance(value, Extent) and math.prod(sizes) <= _SMALL:
        return const(np.full(sizes, _number(scalar(value, dtype))))
    return op("full", scalar(value, dtype), shape=sizes, dtype=dtype)


def _number(constant: Expr) -> Array:
    data: Array = constant.data  # type: ignore[attr-defined]  # scalar() makes constants
    return data


@aten("full")
def full(call: AtenCall, size: Sequence[int], value: Value, dtype: str | None, *_: object) -> Expr:
    return filled(size, value, dtype or dtype_of(value))


@aten("full_like")
def full_like(call: AtenCall, x: Expr, value: Value, dtype: str | None, *_: object) -> Expr:
    return filled(shape_of(x), value, dtype or dtype_of(x))


@aten("zeros", "empty", "empty.memory_format")
def zeros(call: AtenCall, size: Sequence[int], dtype: str | None, *_: object) -> Expr:
    return filled(size, 0, dtype or DEFAULT_FLOAT)


@aten("empty_strided", "empty_permuted", "new_empty_strided")
def empty_strided(call: AtenCall, *arguments: Value) -> Expr:
    x = arguments[0] if isinstance(arguments[0], Expr) else None
    size, _, dtype = arguments[1:4] if x is not None else arguments[:3]
    return filled(size, 0, dtype or (DEFAULT_FLOAT if x is None else dtype_of(x)))


@aten("ones")
def ones(call: AtenCall, size: Sequence[int], dtype: str | None, *_: object) -> Expr:
    return filled(size, 1, dtype or DEFAULT_FLOAT)


@aten("zeros_like", "empty_like", "ones_like")
def filled_like(call: AtenCall, x: Expr, dtype: str | None, *_: object) -> Expr:
    return filled(shape_of(x), int("ones" in call.name), dtype or dtype_of(x))


@aten("new_zeros", "new_empty", "new_ones")
def new_filled(call: AtenCall, x: Expr, size: Sequence[int], dtype: str | None, *_: object) -> Expr:
    return filled(size, int("ones" in call.name), dtype or dtype_of(x))


@aten("new_full")
def new_full(call: AtenCall, x: Expr, size: Sequence[int], value: Value, dtype: str | None, *_: object) -> Expr:
    return filled(size, value, dtype or dtype_of(x))


@aten("fill")
def fill(call: AtenCall, x: Expr, value: Value) -> Expr:
    return filled(shape_of(x), value, dtype_of(x))


@aten("zero")
def zero(call: AtenCall, x: Expr) -> Expr:
    return filled(shape_of(x), 0, dtype_of(x))


@aten("copy")
def copy(call: AtenCall, x: Expr, source: Value, *_: object) -> Expr:
    return broadcast(cast(source, dtype_of(x)), shape_of(x))


@aten("scalar_tensor")
def scalar_tensor(call: AtenCall, value: Value, dtype: str | None, *_: object) -> Expr:
    return cast(value, dtype or DEFAULT_FLOAT)


@aten("tensor", "as_tensor")
def tensor(call: AtenCall, data: Value, dtype: str | None = None, *_: object) -> Expr:
    """A tensor from nested lists of numbers, or of tensors without dimensions."""
    wanted = dtype or _dtype_of_list(data)
    return _stacked(data, wanted)


def _dtype_of_list(data: Value) -> str:
    flat = [data]
    while any(isinstance(v, list) for v in flat):
        flat = [w for v in flat for w in (v if isinstance(v, list) else [v])]
    kinds = [dtype_of(v) for v in flat] or [DEFAULT_FLOAT]
    return max(kinds, key=lambda name: ("bool", "int64").index(name) if name in ("bool", "int64") else 2)


def _stacked(data: Value, dtype: str) -> Expr:
    if not isinstance(data, list):
        return cast(data, dtype)
    if not data:
        return const(np.zeros((0,), DType(dtype).numpy))
    parts = [op("expand_dims", _stacked(v, dtype), axis=0) for v in data]
    return op("concatenate", Tuple(tuple(parts)), axis=0) if len(parts) > 1 else parts[0]


@aten("_local_scalar_dense", "item", "Int", "Float", "Bool", "IntImplicit", "FloatImplicit", "ScalarImplicit")
def item(call: AtenCall, x: Value) -> Value:
    """The number of a tensor of one element, where it is known; else the tensor stands for it."""
    if not isinstance(x, Expr):
        kind = {"Int": int, "Float": float, "Bool": bool}.get(call.name.split(".")[1])
        return x if kind is None else kind(x)
    known = call.value(x)
    return reshape_to(x, ()) if known is None else known.reshape(()).item()


@aten("arange")
def arange_end(call: AtenCall, end: Value, dtype: str | None, *_: object) -> Expr:
    return arange(call, 0, end, 1, dtype)


@aten("arange.start")
def arange_start(call: AtenCall, start: Value, end: Value, dtype: str | None, *_: object) -> Expr:
    return arange(call, start, end, 1, dtype)


@aten("arange.start_step")
def arange_step(call: AtenCall, start: Value, end: Value, step: Value, dtype: str | None, *_: object) -> Expr:
    return arange(call, start, end, step, dtype)


@aten("iota", namespace="prims")
def iota(call: AtenCall, length: int, start: int, step: int, dtype: str, *_: object) -> Expr:
    return arange(call, start, start + length * step, step, dtype)


def arange(call: AtenCall, start: Value, end: Value, step: Value, dtype: str | None) -> Expr:
    """Numbers from start to before end."""
    first, last, by = (call.known(v, "bound").item() if isinstance(v, Expr) else v for v in (start, end, step))
    if has_open([first, last, by]):
        return op("arange", first, last, by, dtype=dtype or "int64")
    is_whole = all(isinstance(v, int) for v in (first, last, by))
    wanted = dtype or ("int64" if is_whole else DEFAULT_FLOAT)
    count = max(0, -((first - last) // by) if is_whole else math.ceil((last - first) / by))
    FOLDED_BYTES.check(8 * count, call.name, call.span)
    numbers = first + np.arange(count, dtype=np.int64 if is_whole else np.float64) * by
    return const(numbers.astype(DType(wanted).numpy))


@aten("linspace", "logspace")
def linspace(call: AtenCall, start: Value, end: Value, steps: int, *rest: Value) -> Expr:
    first, last = (call.known(v, "bound").item() if isinstance(v, Expr) else v for v in (start, end))
    dtype = next((v for v in rest if isinstance(v, str)), DEFAULT_FLOAT)
    whole = dtype.startswith(("int", "uint"))
    numbers = np.linspace(first, last, steps)
    if "logspace" in call.name:
        numbers = np.power(float(rest[0]), numbers)
    return const((np.trunc(numbers) if whole else numbers).astype(DType(dtype).numpy))


@aten("eye", "eye.m")
def eye(call: AtenCall, rows: int, *rest: Value) -> Expr:
    columns = rest[0] if call.name.endswith(".m") else rows
    dtype = next((v for v in rest if isinstance(v, str)), DEFAULT_FLOAT)
    return const(np.eye(rows, columns).astype(DType(dtype).numpy))


@aten("tril_indices", "triu_indices")
def triangle_indices(call: AtenCall, rows: int, columns: int, offset: int, *_: object) -> Expr:
    function = np.tril_indices if "tril" in call.name else np.triu_indices
    return const(np.array(function(rows, offset, columns), np.int64))


_RANDOM = (
    *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial"),
    *("normal", "uniform", "exponential", "poisson", "_fused_dropout", "normal_functional"),
)


@aten(*_RANDOM)
def random(call: AtenCall, *_: object) -> Expr:
    call.refuse(
        "random numbers: a compiled network gives the same outputs for the same inputs", "pass them as an input"
    )
