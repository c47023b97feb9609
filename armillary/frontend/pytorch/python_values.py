"""What TorchScript computes with numbers, lists and the properties of tensors, done when importing.

In: Python values, and tensors whose shape or dtype is asked for. Out: Python values. Invariant: nothing here becomes a
part of the module.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from armillary.frontend.values import Value, category, dtype_of, is_tensor, rank_of, shape_of

DTYPES = {  # of TorchScript, by number
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    15: "bfloat16",
}
_NUMBERS = {name: number for number, name in DTYPES.items()}
SKIPPED = frozenset({"prim::Print", "aten::warn", "prim::profile"})


def _size(x: Value, dim: int | None = None) -> Value:
    return list(shape_of(x)) if dim is None else shape_of(x)[dim]


def _length(x: Value) -> int:
    return shape_of(x)[0] if is_tensor(x) else len(x)


def _numel(x: Value) -> int:
    return math.prod(shape_of(x))


def _slice(x: Value, start: int | None, end: int | None, step: int) -> Value:
    return x[start:end:step]


def _sum_or_join(a: Value, b: Value, alpha: Value = 1) -> Value:
    return a + b if alpha == 1 else a + alpha * b


def _difference(a: Value, b: Value, alpha: Value = 1) -> Value:
    return a - alpha * b


def _same(*values: Value) -> Value:
    return values[0]


def _divided(a: Value, b: Value, mode: str | None = None) -> Value:
    quotient = a / b
    return quotient if mode is None else math.floor(quotient) if mode == "floor" else math.trunc(quotient)


def _none(*_: Value) -> None:
    return None


def _false(*_: Value) -> bool:
    return False


def _contains(values: Value, item: Value) -> bool:
    return item in values


PYTHON: dict[str, Callable[..., Value]] = {
    "aten::size": _size,
    "prim::shape": _size,
    "aten::len": _length,
    "aten::dim": rank_of,
    "aten::ndimension": rank_of,
    "aten::numel": _numel,
    "prim::dtype": lambda x: _NUMBERS[dtype_of(x)],
    "prim::device": _none,
    "prim::layout": _none,
    "prim::requires_grad": _false,
    "prim::is_cuda": _false,
    "prim::is_quantized": _false,
    "prim::is_sparse": _false,
    "prim::is_mkldnn": _false,
    "prim::is_nested": _false,
    "aten::is_grad_enabled": _false,
    "aten::is_autocast_enabled": _false,
    "aten::is_autocast_cpu_enabled": _false,
    "aten::is_floating_point": lambda x: category(dtype_of(x)) == 2,
    "aten::is_complex": _false,
    "aten::is_contiguous": lambda *_: True,
    "prim::unchecked_cast": _same,
    "prim::unchecked_unwrap_optional": _same,
    "aten::_unwrap_optional": _same,
    "prim::Uninitialized": _none,
    "prim::data": _same,
    "prim::NumToTensor": _same,
    "prim::ImplicitTensorToNum": _same,
    "aten::Int": int,
    "aten::Float": float,
    "aten::Bool": bool,
    "aten::IntImplicit": int,
    "aten::FloatImplicit": float,
    "aten::ScalarImplicit": _same,
    "prim::TupleIndex": operator.getitem,
    "aten::__getitem__": operator.getitem,
    "aten::__contains__": _contains,
    "aten::__is__": lambda a, b: a is b,
    "aten::__isnot__": lambda a, b: a is not b,
    "aten::__not__": operator.not_,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::add": _sum_or_join,
    "aten::sub": _difference,
    "aten::rsub": lambda a, b, alpha=1: b - alpha * a,
    "aten::mul": operator.mul,
    "aten::div": _divided,
    "aten::floordiv": operator.floordiv,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::neg": operator.neg,
    "aten::pow": operator.pow,
    "aten::sqrt": math.sqrt,
    "aten::log": math.log,
    "aten::floor": math.floor,
    "aten::ceil": math.ceil,
    "aten::round": round,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::slice": _slice,
    "aten::list": list,
    "aten::copy": _same,
    "aten::format": lambda text, *values: text.format(*values),
    "aten::str": str,
    "aten::keys": lambda d: list(d),
    "aten::values": lambda d: list(d.values()),
    "aten::items": lambda d: list(d.items()),
    "aten::__range_length": lambda a, b, c: len(range(a, b, c)),
    "aten::__derive_index": lambda i, start, step: start + i * step,
    "prim::min": min,
    "prim::max": max,
    "prim::abs": abs,
    "prim::tolist": _same,
}
