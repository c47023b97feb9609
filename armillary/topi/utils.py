"""Small helpers of old schedules: constants out of shapes, vectors of the target's CPU.

In: expressions, tuples of them. Out: Python numbers. Invariant: what is not constant is a TypeMismatch that shows it;
`get_const_tuple` keeps symbolic entries, as it always did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model
from armillary.te.operation import ComputeOp, Operation
from armillary.te.schedule import Schedule
from armillary.tir.build import as_int, convert
from armillary.tir.expr import Expr, ExprLike, Index
from armillary.tir.simplify import simplify
from armillary.topi.tag import is_injective


def get_const_int(expr: ExprLike) -> int:
    """The value of a constant integer expression."""
    result = _constant(expr)
    if result is None:
        raise TypeMismatch(f"expected a constant integer, got {expr}")
    return result


def get_const_float(expr: ExprLike) -> float:
    """The value of a constant."""
    value = getattr(simplify(convert(expr)), "value", None)
    if value is None:
        raise TypeMismatch(f"expected a constant, got {expr}")
    return float(value)


@boundary("get_const_tuple", arguments=True)
def get_const_tuple(in_tuple: Iterable[ExprLike]) -> tuple[Any, ...]:  # Any: ints, or expressions that are not constant
    """A shape as ints; entries that are no constants stay as they are."""
    return tuple(item if (constant := _constant(item)) is None else constant for item in in_tuple)


def prod(values: Iterable[Index]) -> Index:
    """The product of a shape's entries."""
    result: Index = 1
    for value in values:
        result = result * value
    return result


@boundary("topi.utils.get_shape", arguments=True)
def get_shape(src_shape: Sequence[ExprLike], src_layout: str, dst_layout: str) -> tuple[Any, ...]:  # Any: as above
    """The sizes of a shape in the order that another layout has its axes in; both have the same ones."""
    source, target = (re.findall(r"\d*[A-Za-z]", layout) for layout in (src_layout, dst_layout))
    if sorted(source) != sorted(target) or len(source) != len(src_shape) or len(set(source)) != len(source):
        raise TypeMismatch(
            f"get_shape: {len(src_shape)} sizes of layout {src_layout}, in the order of {dst_layout}",
            hint="both layouts have the same axes, one for each size",
        )
    return tuple(get_const_tuple(src_shape)[source.index(axis)] for axis in target)


def equal_const_int(expr: ExprLike, value: int) -> bool:
    """Whether an expression is this constant."""
    return _constant(expr) == value


def _constant(item: ExprLike) -> int | None:
    if isinstance(item, Expr):
        return as_int(simplify(item))
    return int(item) if isinstance(item, SupportsIndex) else None


def target_has_avx512(target: str | Target | None = None) -> bool:
    """Whether a target's CPU (None: the current target's) has AVX-512 as servers have it (F, BW, DQ, VL)."""
    model = _cpu_of(target)
    return all(model.has(name) for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl"))


def target_has_avx2(target: str | Target | None = None) -> bool:
    """Whether the target's CPU has AVX2."""
    return _cpu_of(target).has("avx2")


def get_simd_32bit_lanes() -> int:
    """float32 lanes of one vector of the current target's CPU: 16 with AVX-512, 8 with AVX2, else 4."""
    return 16 if target_has_avx512() else 8 if target_has_avx2() else 4


def _cpu_of(target: str | Target | None) -> CpuModel:
    return cpu_model(target or Target.current() or "llvm")


def is_empty_shape(shape: Sequence[ExprLike]) -> bool:
    """Whether a tensor of this shape has no element."""
    return any(_constant(extent) == 0 for extent in shape)


def traverse_inline(s: Schedule, final_op: Operation, callback: Callable[[Operation], object]) -> None:
    """Inline what is injective on the way from an operation to its inputs, then show the callback each operation."""
    visited: set[int] = set()
    stack = [final_op]
    order: list[Operation] = []
    while stack:
        op = stack.pop()
        if id(op) in visited:
            continue
        visited.add(id(op))
        order.append(op)
        stack.extend(t.op for t in op.input_tensors)
        if is_injective(op.tag) and op not in s.outputs and isinstance(op, ComputeOp):
            s[op].compute_inline()
    for op in reversed(order):
        callback(op)


def nchw_pack_layout(layout_info: str) -> bool:
    """Whether a layout is NCHW with blocks of batch and channels: "NCHW4n8c"."""
    return re.fullmatch(r"NCHW\d+n\d+c", layout_info) is not None


def nchw_xc_layout(layout_info: str) -> bool:
    """Whether a layout is NCHW with blocks of channels: "NCHW8c"."""
    return re.fullmatch(r"NCHW\d+c", layout_info) is not None


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """The largest power of two that divides a number, at most `max_value`."""
    power = 1
    while n > 0 and n % (power * 2) == 0 and (max_value is None or power * 2 <= max_value):
        power *= 2
    return power


def ceil_div(a: int, b: int) -> int:
    """Quotient rounded up."""
    return -(-a // b)


def is_target(names: str | Sequence[str]) -> bool:
    """Whether the current target has one of these keys."""
    target = Target.current()
    wanted = [names] if isinstance(names, str) else names
    return target is not None and any(name in target.keys for name in wanted)


def is_dynamic_shape(shape: Sequence[ExprLike]) -> bool:
    """Whether a shape has an extent that is no constant."""
    return any(_constant(extent) is None for extent in shape)
