"""ONNX Gemm and MatMul: any ranks, reduced to nn.dense and nn.batch_matmul.

In: nodes of any opset. Out: nn.dense when the right side is a matrix (a constant one is transposed here, once), else
nn.batch_matmul over the flattened batch axes. Invariant: the result has numpy.matmul's shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from armillary.base.extent import Extent, Known, is_known
from armillary.errors import UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules._checked import one_way
from armillary.ops._types import dims_product
from armillary.ops.nn._windows import call, reshape_to, type_of
from armillary.relay.expr import Expr, const
from armillary.relay.op import constant_value
from armillary.relay.types import Dim


def transposed(x: Expr, axes: tuple[int, ...]) -> Expr:
    """`x` with its axes permuted; done now if `x` is a constant."""
    value = constant_value(x)
    if value is not None:
        return const(np.ascontiguousarray(value.transpose(axes)))
    return call("transpose", x, axes=axes)


def times(a: Expr, b: Expr) -> Expr:
    """numpy.matmul(a, b) for any ranks."""
    if type_of(a).ndim == 1:
        row = times(call("expand_dims", a, axis=0), b)
        return call("squeeze", row, axis=(-1,) if type_of(b).ndim == 1 else (-2,))
    if type_of(b).ndim == 1:
        return call("squeeze", times(a, call("expand_dims", b, axis=1)), axis=(-1,))
    if type_of(b).ndim == 2:
        return call("nn.dense", a, transposed(b, (1, 0)))
    return batched(a, b, partial(call, "nn.batch_matmul", transpose_b=False))


def batched(a: Expr, b: Expr, product: Callable[[Expr, Expr], Expr]) -> Expr:
    """The same for two operands of two axes or more: `product` multiplies (b, m, k) and (b, k, n)."""
    ta, tb = type_of(a), type_of(b)
    if ta.ndim <= 3 and tb.ndim == 3:
        left = a if ta.ndim == 3 else call("expand_dims", a, axis=0)
        return product(left, b)
    rank = max(ta.ndim, tb.ndim) - 2
    batch_a = (1,) * (rank + 2 - ta.ndim) + ta.shape[:-2]
    batch_b = (1,) * (rank + 2 - tb.ndim) + tb.shape[:-2]
    batch = tuple(y if x == 1 else x for x, y in zip(batch_a, batch_b, strict=True))
    sizes = (*batch, *ta.shape[-2:], *tb.shape[-2:])
    if _unknown(sizes) and batch_a != batch_b:
        raise UnsupportedError("a batched product that broadcasts needs its sizes when importing", hint="pass shape=")
    flat_a, flat_b = _flatten(a, batch_a, batch), _flatten(b, batch_b, batch)
    return reshape_to(product(flat_a, flat_b), _dims((*batch, ta.shape[-2], tb.shape[-1])))


def _flatten(x: Expr, batch: tuple[Dim, ...], wanted: tuple[Dim, ...]) -> Expr:
    """(…batch, m, k) as (b, m, k), broadcast to the wanted batch unless all of its own are 1."""
    matrix = type_of(x).shape[-2:]
    if all(d == 1 for d in batch):
        return reshape_to(x, _dims((1, *matrix)))
    if batch != wanted:
        x = call("broadcast_to", x, shape=(*wanted, *matrix))
    if _unknown(matrix):
        return reshape_to(x, _dims((*wanted, *matrix)))
    return reshape_to(x, _dims((dims_product(wanted), *matrix)))


def _unknown(dims: tuple[Dim, ...]) -> bool:
    return not all(map(is_known, dims))


def _dims(shape: tuple[Dim, ...]) -> tuple[Known, ...]:
    """A reshape target: an unknown dimension is -1, at most one."""
    if sum(not is_known(d) for d in shape) > 1:
        raise UnsupportedError("a batched product has more than one unknown size", hint="pass shape= when importing")
    return tuple(d if isinstance(d, int | Extent) else -1 for d in shape)


@from_onnx("MatMul")
def matmul(node: OnnxNode) -> Expr:
    return times(node.input(0), node.input(1))


@from_onnx("Gemm")
def gemm(node: OnnxNode) -> Expr:
    """alpha * op(A) op(B) + beta * C."""
    a, b = node.input(0), node.input(1)
    alpha, beta = node.float("alpha", 1.0), node.float("beta", 1.0)
    if node.flag("transA", False):
        a = transposed(a, (1, 0))
    if not node.flag("transB", False):
        b = transposed(b, (1, 0))
    result = call("nn.dense", a, b)
    if not type_of(result).dtype.is_float:
        alpha, beta = (_whole(node, name, value) for name, value in (("alpha", alpha), ("beta", beta)))
    if alpha != 1.0:
        result = result * alpha
    if node.missing(2) or beta == 0.0:
        return result
    c = one_way(node, 2, type_of(result).shape)
    if beta != 1.0:
        c = c * beta
    return call("nn.bias_add", result, c, axis=-1) if _is_bias(c, result) else result + c


def _whole(node: OnnxNode, name: str, value: float) -> float:
    """A factor of integers, which is one: the standard does not say how fractions of them are rounded."""
    if not float(value).is_integer():
        problem = f"{node.op_type} node {node.name!r}: {name} is {value}, wanted an integer for {node.type_of(0).dtype}"
        raise UnsupportedError(problem, hint="cast the inputs to float32, and the result back")
    return value


def _is_bias(c: Expr, result: Expr) -> bool:
    ty, out = type_of(c), type_of(result)
    return ty.ndim == 1 and ty.shape == out.shape[-1:] and not _unknown(ty.shape)
