"""ONNX Det: the determinant of square matrices, by elimination with pivots.

In: (…, n, n). Out: (…). A loop of n steps over all matrices at once: each finds the largest element of a column, swaps
its row up, and clears the column below. Invariant: the sign is that of the row exchanges; a column of zeros gives 0.
"""

from __future__ import annotations

import numpy as np

from armillary.errors import TypeMismatch
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.ops._iota import iota, splat
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.relay.expr import Expr, Function, Loop, Tuple, TupleGetItem, Var, const
from armillary.relay.types import TensorType, scalar_type


@from_onnx("Det")
def determinant(node: OnnxNode) -> Expr:
    x = node.input(0)
    ty = type_of(x)
    if ty.ndim < 2 or ty.static[-1] != ty.static[-2]:
        raise TypeMismatch(f"Det node {node.name!r}: wants square matrices, got {ty}")
    batch, n = ty.static[:-2], ty.static[-1]
    if n == 0:
        return splat(batch, 1, ty.dtype)
    count = int(np.prod(batch, dtype=np.int64))
    flat = reshape_to(x, (count, n, n))
    ones = splat((count,), 1, ty.dtype)
    loop = Loop(
        _step(TensorType((count, n, n), ty.dtype)), const(np.array(n, np.int64)), const(np.array(True)), (flat, ones), 2
    )
    return reshape_to(TupleGetItem(loop, 1), batch)


def _step(ty: TensorType) -> Function:
    """fn (k, going, matrices, product so far) -> (going, matrices after step k, product)"""
    count, n, _ = ty.static
    k, going = Var("k", scalar_type("int64")), Var("going", scalar_type("bool"))
    m, product = Var("m", ty), Var("product", TensorType((count,), ty.dtype))
    rows = call("expand_dims", iota(n), axis=0)
    zero, one = const(np.zeros((), ty.dtype.numpy)), const(np.ones((), ty.dtype.numpy))
    column = call("take", m, k, axis=2)  # (count, n)
    sizes = call("where", call("greater_equal", rows, k), call("abs", column), const(np.array(-1, ty.dtype.numpy)))
    best = call("cast", call("argmax", sizes, axis=1, keepdims=True), dtype="int64")  # (count, 1)
    is_best, is_k = call("equal", rows, best), call("equal", rows, k)
    top = call("take", m, call("squeeze", best, axis=(1,)), axis=1, batch_dims=1)  # (count, n)
    old = call("take", m, k, axis=1)
    swapped = call("where", _tall(is_k), _wide(top), call("where", _tall(is_best), _wide(old), m))
    pivot = call("take", top, k, axis=1)  # (count,)
    safe = call("where", call("equal", pivot, zero), one, pivot)
    below = call("greater", rows, k)
    factors = call("where", below, call("take", swapped, k, axis=2) / call("expand_dims", safe, axis=1), zero)
    sign = call("where", call("equal", call("squeeze", best, axis=(1,)), k), one, zero - one)
    result = Tuple((going, swapped - _tall(factors) * _wide(top), product * pivot * sign))
    return Function((k, going, m, product), result)


def _tall(x: Expr) -> Expr:
    """(count, n) as (count, n, 1)."""
    return call("expand_dims", x, axis=2)


def _wide(x: Expr) -> Expr:
    """(count, n) as (count, 1, n)."""
    return call("expand_dims", x, axis=1)
