"""Products whose arguments are in another order than an operator's, or whose operands are packed.

In: tensors. Out: tensors. Invariant: `nn.matmul` and `dense_pack` are `nn.matmul` and `nn.dense` of the operands as
they mean them; products of signs count bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from armillary import te, tir
from armillary.errors import TypeMismatch
from armillary.topi.operators import single
from armillary.topi.utils import get_const_tuple

Tensor = te.Tensor
_BITS = 32


def _with_bias(product: Tensor, bias: Tensor | None) -> Tensor:
    return product if bias is None else single("add", [product, bias])


def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Tensor:
    """`topi.nn.matmul`: [n, k] x [k, m] -> [n, m], either of them transposed, a bias along m.

    Axes in front are batches, which broadcast.
    """
    if tensor_a.ndim > 2 or tensor_b.ndim > 2:
        return _with_bias(_batches(tensor_a, tensor_b, out_dtype or "", transpose_a, transpose_b), bias)
    named = {"out_dtype": out_dtype or "", "transpose_a": transpose_a, "transpose_b": transpose_b}
    return _with_bias(single("nn.matmul", [tensor_a, tensor_b], named), bias)


def _batches(a: Tensor, b: Tensor, out_dtype: str, transpose_a: bool, transpose_b: bool) -> Tensor:
    """Products of matrices for each index of the axes in front, those of both broadcast, as one axis of batches."""
    shapes = [get_const_tuple(t.shape) for t in (a, b)]
    if a.ndim < 2 or b.ndim < 2:
        raise TypeMismatch(f"topi.nn.matmul: tensors of {a.ndim} and {b.ndim} axes, wanted at least 2")
    fronts = [tuple(shape[:-2]) for shape in shapes]
    try:
        front = np.broadcast_shapes(*fronts)
    except ValueError:
        raise TypeMismatch(f"topi.nn.matmul: the batches {fronts[0]} and {fronts[1]} do not broadcast") from None
    sides = []
    for tensor, shape in zip((a, b), shapes, strict=True):
        wide = single("broadcast_to", [tensor], {"shape": (*front, *shape[-2:])})
        sides.append(single("reshape", [wide], {"newshape": (-1, *shape[-2:])}))
    named = {"out_dtype": out_dtype, "transpose_a": transpose_a, "transpose_b": transpose_b}
    product = single("nn.batch_matmul", sides, named)
    return single("reshape", [product], {"newshape": (*front, *get_const_tuple(product.shape)[1:])})


def dense_pack(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Tensor:
    """`topi.x86.dense_pack`: [n, k] by a weight [m, k], or one in blocks of its rows, [m / p, k, p]."""
    if weight.ndim == 3:
        blocks, common, lanes = get_const_tuple(weight.shape)
        turned = single("transpose", [weight], {"axes": (0, 2, 1)})
        weight = single("reshape", [turned], {"newshape": (blocks * lanes, common)})
    return _with_bias(single("nn.dense", [data, weight], {"out_dtype": out_dtype or ""}), bias)


def binarize_pack(data: Tensor, axis: int | None = None, name: str = "PackedInput") -> Tensor:
    """Signs in words: 32 elements along an axis (the last by default) are a uint32, the first its highest bit.

    A bit is 1 where the element is at least 0. Raises TypeMismatch for a length that 32 does not divide.
    """
    at = (data.ndim - 1 if axis is None else axis) % data.ndim
    shape = get_const_tuple(data.shape)
    if not isinstance(shape[at], int) or shape[at] % _BITS:
        raise TypeMismatch(f"topi.nn.binarize_pack: {shape[at]} elements along axis {at}, wanted a multiple of {_BITS}")

    def word(*where: te.Expr) -> te.Expr:
        result: te.Expr = tir.const(0, "uint32")
        for bit in range(_BITS):
            place = [i * _BITS + bit if k == at else i for k, i in enumerate(where)]
            result = (result << tir.const(1, "uint32")) | (data(*place) >= tir.const(0, data.dtype)).astype("uint32")
        return result

    return te.compute((*shape[:at], shape[at] // _BITS, *shape[at + 1 :]), word, name=name, tag="binarize_pack")


def binary_dense(data: Tensor, weight: Tensor) -> Tensor:
    """Products of rows of signs as `binarize_pack` packs them: [n, k] x [m, k] -> [n, m] of float32, of -1 and 1."""
    for side in (data, weight):
        if str(side.dtype) != "uint32" or side.ndim != 2:
            raise TypeMismatch(f"topi.nn.binary_dense: {side.dtype} of {side.ndim} axes, wanted uint32 of 2")
    length = data.shape[1]
    k = te.reduce_axis((0, length), "k")
    unlike = te.compute(
        (data.shape[0], weight.shape[0]),
        lambda i, j: te.sum(tir.popcount(data(i, k) ^ weight(j, k)).astype("int32"), axis=k),
        name="unlike",
        tag="binary_dense",
    )
    return te.compute(
        unlike.shape, lambda i, j: (length * _BITS - 2 * unlike(i, j)).astype("float32"), name="binary_dense"
    )


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "dense_pack": dense_pack,
    "nn.binarize_pack": binarize_pack,
    "nn.binary_dense": binary_dense,
    "nn.matmul": matmul,
}
