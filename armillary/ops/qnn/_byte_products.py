"""Products of bytes as their operands lie in memory, with what zero points add to them.

In: data and weight of 8 bits, and their zero points. Out: operands of the signs that the target's dot products take,
and the int32 sums of (data - zero point) * (weight - zero point), written out:

    sum(d w) - zero * (sum(w) - terms * weight_zero) - weight_zero * sum(d)

What depends on constants alone is folded, so a constant weight with zero point 0 costs an addition per output.
Invariant: int32 wraps, so the bits are those of the centred product. Users: product.py, conv_transpose_matmul.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from armillary.base.dtype import DType
from armillary.base.extent import Known
from armillary.ops._dot_operands import fits_in_pairs
from armillary.ops.elementwise.broadcast import add, multiply, subtract
from armillary.ops.elementwise.cast import cast
from armillary.ops.nn._windows import reshape_to
from armillary.ops.qnn.quantize import is_zero, placed, tensor_of
from armillary.ops.reduce.reduce import sum_ as sum_over
from armillary.relay.expr import Constant, Expr, const
from armillary.target import Target
from armillary.target.cpu import CpuModel, cpu_model

MIDDLE = 128
Product = Callable[[Expr, Expr], Expr]


def are_bytes(*operands: Expr) -> bool:
    """Whether all operands are int8 or uint8."""
    return all(str(tensor_of(x).dtype) in ("int8", "uint8") for x in operands)


def _cpu() -> CpuModel | None:
    target = Target.current() or Target("llvm")
    return cpu_model(target) if target.kind.family == "cpu" else None


def has_dots() -> bool:
    """Whether code for the target has instructions for dot products of bytes: C has none."""
    cpu, target = _cpu(), Target.current() or Target("llvm")
    return cpu is not None and target.kind.name == "llvm" and bool(cpu.dot_signs)


def _is_native(data: DType, weight: DType) -> bool:
    cpu = _cpu()
    signs = frozenset() if cpu is None else cpu.dot_signs
    return not signs or (data.code, weight.code) in signs or (weight.code, data.code) in signs


def _takes_any_signs(data: Expr, weight: Expr) -> bool:
    """Whether matrix tiles compute the product: with enough rows and outputs, which are known. What is packed at run
    time is filled."""
    if not all(isinstance(d, int) for d in (*tensor_of(data).shape, *tensor_of(weight).shape)):
        return False
    cpu, left, right = _cpu(), tensor_of(data).static, tensor_of(weight).static
    if cpu is None or min(right[-2:] if not isinstance(weight, Constant) else right[:1]) < cpu.lanes:
        return False
    rows = left[-2] if len(right) == 3 else math.prod(left[:-1])
    return cpu.takes_tiles(rows, left[-1] if isinstance(weight, Constant) else 0)


def _other(dtype: DType) -> DType:
    return DType("uint8" if dtype.code == "int" else "int8")


def flipped(x: Expr) -> Expr:
    """The bytes moved by 128: of the other sign."""
    ty = tensor_of(x)
    to, middle = _other(ty.dtype), MIDDLE if ty.dtype.code == "int" else -MIDDLE
    if isinstance(x, Constant):
        return const((x.data.astype(np.int16) + np.int16(middle)).astype(to.numpy))
    return cast(add(cast(x, "int16"), const(middle, "int16")), to)


def _flip(x: Expr, zero: Expr) -> tuple[Expr, Expr]:
    """Operand and zero point, both moved by 128."""
    middle = MIDDLE if tensor_of(x).dtype.code == "int" else -MIDDLE
    if isinstance(zero, Constant):
        return flipped(x), const(np.asarray(zero.data.astype(np.int32) + np.int32(middle)))
    return flipped(x), add(cast(zero, "int32"), const(middle, "int32"))


def with_native_signs(data: Expr, zero: Expr, weight: Expr, weight_zero: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """The operands with such signs that the target multiplies them in one instruction.

    A weight whose zero point is 0 then, or was before, needs no sums of the data: such a weight is kept or made.
    """
    types = tensor_of(data).dtype, tensor_of(weight).dtype
    turned, turned_zero = _flip(weight, weight_zero)
    if joins_products(weight, weight_zero):
        signed = (weight, weight_zero) if types[1].code == "int" else (turned, turned_zero)
        return (data, zero, *signed) if types[0].code == "int" else (*_flip(data, zero), *signed)
    if is_zero(turned_zero) and _is_native(types[0], _other(types[1])):
        return data, zero, turned, turned_zero
    if _is_native(*types) or _takes_any_signs(data, weight):
        return data, zero, weight, weight_zero
    if is_zero(weight_zero) and _is_native(_other(types[0]), types[1]):
        return (*_flip(data, zero), weight, weight_zero)
    return data, zero, turned, turned_zero


def joins_products(weight: Expr, weight_zero: Expr) -> bool:
    """Whether constant weights, centred, are int8 whose products the target adds up in twos.

    So processors without dot products do, from pairs of words on (`CpuModel.widens_bytes`).
    """
    cpu, target = _cpu(), Target.current() or Target("llvm")
    if cpu is None or not cpu.widens_bytes or target.kind.name != "llvm" or not isinstance(weight, Constant):
        return False
    if str(weight.data.dtype) == "uint8":
        weight, weight_zero = _flip(weight, weight_zero)
    if not is_zero(weight_zero) or not isinstance(weight, Constant) or weight.data.ndim != 2:
        return False
    return fits_in_pairs(weight.data)


def byte_product(
    data: Expr, zero: Expr, weight: Expr, weight_zero: Expr, product: Product, inner: tuple[int, int]
) -> Expr:
    """The int32 product of centred bytes. `product` multiplies the operands as they are; `inner`: their summed axes.

    The weight has two axes, or a batch in front of them; its outputs are the last axis of the result.
    """
    if tensor_of(weight_zero).size > 1:
        weight_zero = _reshaped(weight_zero, (-1,))
    data, zero, weight, weight_zero = with_native_signs(data, zero, weight, weight_zero)
    total = product(data, weight)
    shared = _of_weight(zero, weight, weight_zero, inner[1], tensor_of(data).known[inner[0]])
    if shared is not None:
        total = subtract(total, shared)
    if is_zero(weight_zero):
        return total
    sums = sum_over(cast(data, "int32"), axis=(inner[0],), keepdims=True)
    return subtract(total, multiply(sums, cast(placed(weight_zero, tensor_of(total).ndim, -1), "int32")))


def _of_weight(zero: Expr, weight: Expr, weight_zero: Expr, axis: int, terms: Known) -> Expr | None:
    """zero * (sum(w) - terms * weight_zero), for each output; None where the zero point is 0."""
    if is_zero(zero):
        return None
    flat = cast(weight_zero if tensor_of(weight_zero).size > 1 else _reshaped(weight_zero, ()), "int32")
    if isinstance(weight, Constant):
        summed: Expr = const(weight.data.sum(axis, dtype=np.int64).astype(np.int32))
    else:
        wide = cast(weight, "int32")
        if not isinstance(terms, int) and not is_zero(weight_zero):  # each term has its zero point taken away
            rank = tensor_of(weight).ndim
            wide = subtract(wide, placed(flat, rank, 2 * rank - 3 - axis))
        summed = sum_over(wide, axis=(axis,), keepdims=False)
    if isinstance(terms, int) and not is_zero(weight_zero):
        summed = subtract(summed, multiply(flat, const(terms, "int32")))
    if tensor_of(weight).ndim == 3:
        batch, outputs = tensor_of(summed).known
        summed = _reshaped(summed, (batch, 1, outputs))
    return multiply(cast(_reshaped(zero, ()), "int32"), summed)


def _reshaped(x: Expr, shape: tuple[Known, ...]) -> Expr:
    if isinstance(x, Constant):
        return const(x.data.reshape([d for d in shape if isinstance(d, int)]))  # of weights: all of them are numbers
    return x if tensor_of(x).shape == shape else reshape_to(x, shape)
