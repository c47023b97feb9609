"""nn.dense, nn.matmul, nn.batch_matmul, nn.contrib_dense_pack: products of matrices.

In: nn.dense: data (…, k), weight (units, k). nn.matmul: (…, m, k) and (k, n), either transposed. nn.batch_matmul:
(b, m, k) and (b, n, k) by default (transpose_b=True); a batch of 1 is broadcast. nn.contrib_dense_pack: weight
(units/n, k, n), its layout NC{n}n, or words of four bytes or two bfloat16, (units/n, k/4, n, 4), its layout NC{n}n4c;
the last block of the former may have columns beyond `units`, which are cut off. Out: (…, units), (…, m, n), (b, m, n).
Invariant: TE is one reduction tagged dense, matmul, batch_matmul or dense_pack. Import of Gemm and MatMul:
rules/nn/dense.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops._dot_operands import BYTES, LONG, dot, terms_per_operand
from armillary.ops.nn._windows import (
    Tensor,
    f32,
    need_dtype,
    need_numbers,
    need_rank,
    need_tensor,
    reduce_axes,
    same_dim,
    tensor,
    wide,
    widened_product,
)
from armillary.ops.nn.conv import result_dtype
from armillary.relay.expr import Call, Expr, Var, tensor_of
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, is_call, state
from armillary.relay.op.facts import Follows, Precision
from armillary.relay.op.macs import product_macs
from armillary.relay.types import ANY_DIM, AnyDim, Dim, TensorType, Type
from armillary.relay.walk import post_order

if TYPE_CHECKING:
    from armillary.ops.nn._windows import OutDtypeAttrs


@record
class DenseAttrs:
    units: int | None = None
    out_dtype: str = ""
    choice: str = ""


@record
class MatmulAttrs:
    units: int | None = None
    out_dtype: str = ""
    transpose_a: bool = False
    transpose_b: bool = False


@record
class BatchMatmulAttrs:
    out_dtype: str = ""
    transpose_a: bool = False
    transpose_b: bool = True
    choice: str = ""  # target/choice.py


@record
class DensePackAttrs:
    weight_layout: str = "NC8n"
    units: int | None = None
    out_dtype: str = ""
    choice: str = ""
    is_symmetric: bool = False  # te.dot_symmetric_bytes


dense = Op("nn.dense", kind=Kind.CONTRACTION, inputs=("data", "weight"), doc="data times the transpose of weight.")
matmul = Op("nn.matmul", kind=Kind.CONTRACTION, inputs=("tensor_a", "tensor_b"), doc="A product of two matrices.")
batch_matmul = Op(
    "nn.batch_matmul",
    kind=Kind.CONTRACTION,
    inputs=("tensor_a", "tensor_b"),
    doc="A product of two matrices for each batch; the second is transposed unless told otherwise.",
)
dense_pack = Op(
    "nn.contrib_dense_pack",
    kind=Kind.CONTRACTION,
    inputs=("data", "weight"),
    doc="A dense layer whose weights lie in blocks of output units.",
)
dense.attrs(DenseAttrs)
matmul.attrs(MatmulAttrs)
batch_matmul.attrs(BatchMatmulAttrs)
dense_pack.attrs(DensePackAttrs)
for _op in (dense, matmul, batch_matmul):
    _op.decompose(partial(widened_product, _op))
for _op in (dense, matmul, batch_matmul, dense_pack):
    _op.macs(product_macs)


def _inner(op: str, k: Dim, wk: Dim, a: TensorType, b: TensorType, hint: str) -> None:
    if not same_dim(k, wk):
        raise TypeMismatch(f"{op}: the inner sizes differ: {k} of {a} and {wk} of {b}", hint=hint)


def _units(op: str, attrs: DenseAttrs | DensePackAttrs | MatmulAttrs, units: Dim) -> None:
    if attrs.units is not None and not same_dim(attrs.units, units):
        raise TypeMismatch(f"{op}: units is {attrs.units}, the weight gives {units}")


def _operands(op: str, attrs: Any, first: Type, second: Type, rank: int) -> tuple[TensorType, TensorType]:
    a, b = need_tensor(op, first), need_tensor(op, second, "weight")
    need_rank(op, b, rank, "weight")
    if a.ndim < 1:
        raise TypeMismatch(f"{op}: data must have at least one dimension, got {a}")
    if not attrs.out_dtype:
        need_dtype(op, a, b)
        need_numbers(op, a)
    return a, b


@dense.complete
def _complete_dense(attrs: DenseAttrs, data: Type | None, weight: Type | None) -> tuple[Type | None, Type | None]:
    if weight is None and isinstance(data, TensorType) and attrs.units is not None:
        weight = TensorType((attrs.units, data.shape[-1]), data.dtype)
    return data, weight


@dense.infer
def _infer_dense(attrs: DenseAttrs, data: Type, weight: Type) -> TensorType:
    a, b = _operands("nn.dense", attrs, data, weight, 2)
    _inner("nn.dense", a.shape[-1], b.shape[1], a, b, "weight is (units, inner); transpose it or use nn.matmul")
    _units("nn.dense", attrs, b.shape[0])
    return TensorType((*a.shape[:-1], b.shape[0]), result_dtype(attrs, a))


@matmul.complete
def _complete_matmul(attrs: MatmulAttrs, first: Type | None, second: Type | None) -> tuple[Type | None, Type | None]:
    if second is None and isinstance(first, TensorType) and first.ndim >= 2 and attrs.units is not None:
        inner = first.shape[-2 if attrs.transpose_a else -1]
        second = TensorType((attrs.units, inner) if attrs.transpose_b else (inner, attrs.units), first.dtype)
    return first, second


@matmul.infer
def _infer_matmul(attrs: MatmulAttrs, first: Type, second: Type) -> TensorType:
    a, b = _operands("nn.matmul", attrs, first, second, 2)
    if a.ndim < 2:
        raise TypeMismatch(f"nn.matmul: tensor_a must have at least 2 dimensions, got {a}")
    m, k = (a.shape[-1], a.shape[-2]) if attrs.transpose_a else (a.shape[-2], a.shape[-1])
    n, wk = (b.shape[0], b.shape[1]) if attrs.transpose_b else (b.shape[1], b.shape[0])
    _inner("nn.matmul", k, wk, a, b, "check transpose_a and transpose_b")
    _units("nn.matmul", attrs, n)
    return TensorType((*a.shape[:-2], m, n), result_dtype(attrs, a))


@batch_matmul.infer
def _infer_batch_matmul(attrs: BatchMatmulAttrs, first: Type, second: Type) -> TensorType:
    op = "nn.batch_matmul"
    a, b = _operands(op, attrs, first, second, 3)
    need_rank(op, a, 3)
    m, k = (a.shape[2], a.shape[1]) if attrs.transpose_a else (a.shape[1], a.shape[2])
    n, wk = (b.shape[1], b.shape[2]) if attrs.transpose_b else (b.shape[2], b.shape[1])
    _inner(op, k, wk, a, b, "check transpose_a and transpose_b (transpose_b is True by default)")
    batch_a, batch_b = a.shape[0], b.shape[0]
    if not same_dim(batch_a, batch_b) and 1 not in (batch_a, batch_b):
        raise TypeMismatch(f"{op}: the batch sizes differ: {batch_a} and {batch_b}")
    batch = batch_b if batch_a == 1 else batch_a
    return TensorType((batch, m, n), result_dtype(attrs, a))


@dense_pack.infer
def _infer_dense_pack(attrs: DensePackAttrs, data: Type, weight: Type) -> TensorType:
    op = dense_pack.name
    if isinstance(weight, TensorType) and weight.ndim == 4:
        return _infer_dot_operands(attrs, *_operands(op, attrs, data, weight, 4))
    a, b = _operands(op, attrs, data, weight, 3)
    _inner(op, a.shape[-1], b.shape[1], a, b, "weight is (units/n, inner, n)")
    blocks, lanes = b.shape[0], b.shape[2]
    if lanes == 0:
        raise TypeMismatch(f"{op}: weight {b} has blocks of no units")
    units: Dim = ANY_DIM
    if not isinstance(blocks, AnyDim) and not isinstance(lanes, AnyDim):
        units = blocks * lanes
        if attrs.units is not None and 0 < units - attrs.units < lanes:
            units = attrs.units
    _units(op, attrs, units)
    return TensorType((*a.shape[:-1], units), result_dtype(attrs, a))


def _infer_dot_operands(attrs: DensePackAttrs, a: TensorType, b: TensorType) -> TensorType:
    op, (chunks, words, lanes, width) = dense_pack.name, b.static
    word = terms_per_operand(a.dtype, b.dtype, attrs.out_dtype)
    if width not in ((BYTES, LONG) if word == BYTES else (word,)) or not lanes:
        wanted = "bytes, (units/n, inner/4, n, 4) or with 8, and out_dtype int32, or bfloat16 in twos and float32"
        raise TypeMismatch(f"{op}: got {a} and weight {b} with out_dtype {attrs.out_dtype!r}, wanted {wanted}")
    _inner(op, a.shape[-1], words * width, a, b, f"weight is (units/n, inner/{width}, n, {width})")
    _units(op, attrs, chunks * lanes)
    return TensorType((*a.shape[:-1], chunks * lanes), DType(attrs.out_dtype))


def product(attrs: OutDtypeAttrs, a: Array, b: Array) -> Array:
    """a @ b, computed and accumulated in out_dtype (float16 in float32)."""
    dtype = result_dtype(attrs, a).numpy
    if np.issubdtype(dtype, np.integer) or np.dtype(dtype).itemsize > a.dtype.itemsize:
        a, b = a.astype(dtype), b.astype(dtype)
    result: Array = np.matmul(wide(a), wide(b)).astype(dtype)
    return result


def _maybe_swap(x: Array, swap: bool) -> Array:
    return x.swapaxes(-1, -2) if swap else x


dense.reference(lambda attrs, data, weight: product(attrs, data, weight.T))


def _reference_matmul(attrs: BatchMatmulAttrs | MatmulAttrs, a: Array, b: Array) -> Array:
    return product(attrs, _maybe_swap(a, attrs.transpose_a), _maybe_swap(b, attrs.transpose_b))


matmul.reference(_reference_matmul)
batch_matmul.reference(_reference_matmul)


@dense_pack.reference
def _reference_pack(attrs: DensePackAttrs, data: Array, weight: Array) -> Array:
    if weight.ndim == 4:
        chunks, words, lanes, width = weight.shape
        weight = weight.transpose(0, 1, 3, 2).reshape(chunks, words * width, lanes)
    return product(attrs, data, weight.transpose(1, 0, 2).reshape(weight.shape[1], -1)[:, : attrs.units])


@dense.compute
def _compute_dense(attrs: DenseAttrs, data: Tensor, weight: Tensor) -> Tensor:
    dtype = result_dtype(attrs, data)
    (k,) = reduce_axes([data.shape[-1]], ["k"])

    def element(*index: te.Expr) -> te.Expr:
        return te.sum(data(*index[:-1], k).astype(dtype) * weight(index[-1], k).astype(dtype), axis=[k])

    return te.compute([*data.shape[:-1], weight.shape[0]], element, name="dense", tag="dense")


@matmul.compute
def _compute_matmul(attrs: MatmulAttrs, a: Tensor, b: Tensor) -> Tensor:
    dtype = result_dtype(attrs, a)
    m, inner = (a.shape[-1], a.shape[-2]) if attrs.transpose_a else (a.shape[-2], a.shape[-1])
    (k,) = reduce_axes([inner], ["k"])

    def element(*index: te.Expr) -> te.Expr:
        *batch, i, j = index
        lhs = a(*batch, k, i) if attrs.transpose_a else a(*batch, i, k)
        rhs = b(j, k) if attrs.transpose_b else b(k, j)
        return te.sum(lhs.astype(dtype) * rhs.astype(dtype), axis=[k])

    units = b.shape[0] if attrs.transpose_b else b.shape[1]
    return te.compute([*a.shape[:-2], m, units], element, name="matmul", tag="matmul")


@batch_matmul.compute
def _compute_batch_matmul(attrs: BatchMatmulAttrs, a: Tensor, b: Tensor) -> Tensor:
    dtype = result_dtype(attrs, a)
    m, inner = (a.shape[2], a.shape[1]) if attrs.transpose_a else (a.shape[1], a.shape[2])
    n = b.shape[1] if attrs.transpose_b else b.shape[2]
    (k,) = reduce_axes([inner], ["k"])
    one_a, one_b = (getattr(t.shape[0], "value", t.shape[0]) in (1,) for t in (a, b))

    def element(batch: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        at_a, at_b = 0 if one_a else batch, 0 if one_b else batch
        lhs = a(at_a, k, i) if attrs.transpose_a else a(at_a, i, k)
        rhs = b(at_b, j, k) if attrs.transpose_b else b(at_b, k, j)
        return te.sum(lhs.astype(dtype) * rhs.astype(dtype), axis=[k])

    return te.compute([b.shape[0] if one_a else a.shape[0], m, n], element, name="batch_matmul", tag="batch_matmul")


@dense_pack.compute
def _compute_pack(attrs: DensePackAttrs, data: Tensor, weight: Tensor) -> Tensor:
    dtype, lanes = result_dtype(attrs, data), weight.shape[2]
    if len(weight.shape) == 4:
        return _compute_dot_operands(attrs, data, weight)
    (k,) = reduce_axes([data.shape[-1]], ["k"])

    def element(*index: te.Expr) -> te.Expr:
        rhs = weight(index[-1] // lanes, k, index[-1] % lanes)
        return te.sum(data(*index[:-1], k).astype(dtype) * rhs.astype(dtype), axis=[k])

    result: Tensor = te.compute(
        [*data.shape[:-1], weight.shape[0] * lanes], element, name="dense_pack", tag="dense_pack"
    )
    columns = te.extents(result)[-1]
    if attrs.units in (None, columns):
        return result
    return te.compute([*data.shape[:-1], attrs.units], lambda *i: result(*i), name="kept", tag="injective")


def _compute_dot_operands(attrs: DensePackAttrs, data: Tensor, weight: Tensor) -> Tensor:
    """Sums of dot products of four bytes, or of two bfloat16."""
    chunks, words, lanes, width = te.static_shape(weight)
    (k,) = reduce_axes([words], ["k"])

    def element(*index: te.Expr) -> te.Expr:
        left = [data(*index[:-1], k * width + part) for part in range(width)]
        right = [weight(index[-1] // lanes, k, index[-1] % lanes, part) for part in range(width)]
        return te.sum(dot(left, right, attrs.is_symmetric), axis=[k])

    return te.compute([*data.shape[:-1], chunks * lanes], element, name="dense_pack", tag="dense_pack")


@dense.samples
def _samples_dense() -> Iterator[Sample]:
    yield Sample(DenseAttrs(), (f32(3, 7), f32(5, 7)))
    yield Sample(DenseAttrs(), (tensor("float16", 3, 9), tensor("float16", 5, 9)), rtol=0.02, atol=0.02)
    yield Sample(DenseAttrs(units=4), (f32(2, 3, 5), f32(4, 5)))
    yield Sample(DenseAttrs(out_dtype="int32"), (tensor("int8", 2, 9), tensor("int8", 3, 9)), (-9, 9))
    yield from (Sample(DenseAttrs(out_dtype=dtype), (f32(5, 7), f32(6, 7)), (-9, 9)) for dtype in ("int32", "float64"))


@matmul.samples
def _samples_matmul() -> Iterator[Sample]:
    yield Sample(MatmulAttrs(), (f32(3, 4), f32(4, 5)))
    yield Sample(MatmulAttrs(transpose_a=True, transpose_b=True), (f32(4, 3), f32(5, 4)))
    yield Sample(MatmulAttrs(), (f32(2, 3, 4), f32(4, 5)))


@batch_matmul.samples
def _samples_batch() -> Iterator[Sample]:
    yield Sample(BatchMatmulAttrs(), (f32(2, 3, 4), f32(2, 5, 4)))
    yield Sample(BatchMatmulAttrs(transpose_a=True, transpose_b=False), (f32(1, 4, 3), f32(3, 4, 5)))
    yield Sample(BatchMatmulAttrs(transpose_b=False), (f32(3, 2, 4), f32(1, 4, 5)))


@dense_pack.samples
def _samples_pack() -> Iterator[Sample]:
    yield Sample(DensePackAttrs(), (f32(2, 6), f32(3, 6, 8)))
    yield Sample(DensePackAttrs(units=19), (f32(2, 6), f32(3, 6, 8)))
    for data, weight in (("uint8", "int8"), ("int8", "uint8"), ("int8", "int8"), ("uint8", "uint8")):
        words = (tensor(data, 5, 12), tensor(weight, 3, 3, 16, 4))
        yield Sample(DensePackAttrs("NC16n4c", out_dtype="int32"), words, (-128, 255))
    pairs = (tensor("bfloat16", 5, 12), tensor("bfloat16", 3, 6, 16, 2))
    yield Sample(DensePackAttrs("NC16n2c", out_dtype="float32"), pairs, (-4, 4))


@dense.bad_samples
def _bad_dense() -> Iterator[BadSample]:
    yield BadSample(DenseAttrs(), (f32(3, 7), f32(7, 5)), "the inner sizes differ: 7")
    yield BadSample(DenseAttrs(units=9), (f32(3, 7), f32(5, 7)), "units is 9, the weight gives 5")


@batch_matmul.bad_samples
def _bad_batch() -> Iterator[BadSample]:
    yield BadSample(BatchMatmulAttrs(), (f32(2, 3, 4), f32(3, 5, 4)), "the batch sizes differ: 2 and 3")
    yield BadSample(BatchMatmulAttrs(), (f32(3, 4), f32(3, 5, 4)), "must have 3 dimensions")


@dense_pack.bad_samples
def _bad_pack() -> Iterator[BadSample]:
    yield BadSample(DensePackAttrs(units=16), (f32(2, 6), f32(3, 6, 8)), "units is 16, the weight gives 24")
    data, attrs = tensor("uint8", 5, 12), DensePackAttrs("NC16n4c", out_dtype="int32")
    yield BadSample(attrs, (data, tensor("int8", 3, 2, 16, 4)), "the inner sizes differ: 12")
    yield BadSample(attrs, (data, tensor("int16", 3, 3, 16, 4)), "wanted bytes")
    yield BadSample(attrs, (data, tensor("int8", 3, 3, 16, 2)), "wanted bytes")
    pairs = (tensor("bfloat16", 5, 12), tensor("bfloat16", 3, 6, 16, 2))
    yield BadSample(DensePackAttrs("NC16n2c"), pairs, "or bfloat16 in twos")


def dense_of_transposed(expr: Call) -> Expr | None:
    """nn.dense(a, transpose(b, (1, 0)))  ->  nn.matmul(a, b)   of float32, if b is computed

    Its kernels read either form; a constant is transposed once, where nn.dense finds it packed.
    """
    a, turned = expr.args
    if not is_call(turned, "transpose") or tuple(axis % 2 for axis in turned.attrs.axes or (1, 0)) != (1, 0):
        return None
    left, right = tensor_of(a), tensor_of(turned)
    if left is None or right is None or left.ndim < 2 or {str(left.dtype), str(right.dtype)} != {"float32"}:
        return None
    if not any(isinstance(e, Var) for e in post_order(turned.args[0])):
        return None
    return matmul(a, turned.args[0], out_dtype=expr.attrs.out_dtype)


dense.simplify(dense_of_transposed)

state("nn.batch_matmul nn.dense nn.matmul", precision=Precision.ALWAYS)
state("nn.contrib_dense_pack nn.dense", follows=Follows.ROWS)
