"""Products whose arguments are in another order than an operator's, or whose operands are packed.

In: tensors. Out: tensors. Invariant: `nn.matmul` and `dense_pack` are `nn.matmul` and `nn.dense` of the operands as
they mean them; products of signs count bits.
"""

from __future__ import annotations

from collections.abc import Callable

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
    """`topi.nn.matmul`: [n, k] x [k, m] -> [n, m], either of them transposed, a bias along m."""
    named = {"out_dtype": out_dtype or "", "transpose_a": transpose_a, "transpose_b": transpose_b}
    return _with_bias(single("nn.matmul", [tensor_a, tensor_b], named), bias)


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
        made: te.Expr = tir.const(0, "uint32")
        for bit in range(_BITS):
            place = [i * _BITS + bit if k == at else i for k, i in enumerate(where)]
            made = (made << tir.const(1, "uint32")) | (data(*place) >= tir.const(0, data.dtype)).astype("uint32")
        return made

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
