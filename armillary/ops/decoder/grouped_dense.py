"""nn.grouped_dense: rows times the matrix of their group, of several that lie one after another.

In: data (rows, inner); weight (groups, inner, units); group (rows,), integers. Out: (rows, units), row r being
data[r] @ weight[group[r]]. Invariant: groups that no row has are not read; a group outside counts as the nearest. Who
makes it: mixtures of experts (frontend/pytorch/rules/product.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops._types import check_kind
from armillary.ops.nn._windows import Tensor, f32, need_dtype, need_rank, need_shape, need_tensor, reduce_axes, tensor
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type

NAME = "nn.grouped_dense"

grouped_dense = Op(
    NAME, kind=Kind.CONTRACTION, inputs=("data", "weight", "group"), doc="Rows times the matrix of their group."
)


@grouped_dense.infer
def _infer(attrs: None, data: Type, weight: Type, group: Type) -> TensorType:
    x, w = need_rank(NAME, data, 2, "data"), need_rank(NAME, weight, 3, "weight")
    need_dtype(NAME, x, w)
    if x.shape[1] != w.shape[1]:
        raise TypeMismatch(f"{NAME}: data {x} for matrices of {w.shape[1]} rows")
    groups = need_tensor(NAME, group, "group")
    check_kind(NAME, "group", groups, "integer")
    need_shape(NAME, "group", groups, x.shape[:1])
    return TensorType((x.shape[0], w.shape[2]), x.dtype)


@grouped_dense.macs
def _macs(attrs: None, types: list[TensorType], result: TensorType) -> int:
    return int(result.size * types[0].static[1])


@grouped_dense.reference
def _reference(attrs: None, data: Array, weight: Array, group: Array) -> Array:
    picked = weight[np.clip(group.astype(np.int64), 0, len(weight) - 1)]
    result: Array = np.einsum("rk,rku->ru", data.astype(np.float64), picked.astype(np.float64)).astype(data.dtype)
    return result


@grouped_dense.compute
def _compute(attrs: None, data: Tensor, weight: Tensor, group: Tensor) -> Tensor:
    (k,) = reduce_axes([data.shape[1]], ["k"])

    def element(row: te.Expr, unit: te.Expr) -> te.Expr:
        place = te.max(te.min(group(row).astype("int32"), weight.shape[0] - 1), 0)
        return te.sum(data(row, k) * weight(place, k, unit), axis=[k])

    result: Tensor = te.compute((data.shape[0], weight.shape[2]), element, name="grouped_dense")
    return result


@grouped_dense.samples
def _samples() -> Iterator[Sample]:
    yield Sample(None, (f32(5, 24), f32(3, 24, 33), np.array([2, 0, 0, 1, 2], np.int32)), rtol=1e-5, atol=1e-5)
    yield Sample(None, (f32(2, 8), f32(4, 8, 7), np.array([-1, 9], np.int64)), rtol=1e-5, atol=1e-5)


@grouped_dense.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    rows = tensor("int32", 5)
    yield BadSample(None, (f32(5, 24), f32(3, 20, 33), rows), "for matrices of 20 rows")
    yield BadSample(None, (f32(4, 24), f32(3, 24, 33), rows), "group has shape")
    yield BadSample(None, (f32(5, 24), f32(3, 24, 33), f32(5)), "wanted integer")
