"""nn.narrow_dense: a dense layer of float32 whose weights are 16-bit floats, in memory and in the package.

In: data (…, inner), float32; weight (units, inner), float16 or bfloat16. Out: (…, units), the product with the numbers
that the weights are, in float32. Invariant: nothing is rounded to 16 bits, and no weight is stored in 32. How CPUs
compute it: backends/cpu/gemm/low_bit/operator_narrow.py. Who makes it: files of decoders (generate/blocks.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.base.dtype import DType
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import Tensor, f32, need_rank, need_tensor, reduce_axes, same_dim, tensor
from armillary.relay.op import Array, BadSample, Kind, Op, Sample, state
from armillary.relay.op.facts import Fact
from armillary.relay.types import TensorType, Type

NARROW = "nn.narrow_dense"
TYPES = ("float16", "bfloat16")  # of weights

narrow_dense = Op(
    NARROW, kind=Kind.CONTRACTION, inputs=("data", "weight"), doc="A dense layer whose weights are 16-bit floats."
)
state(NARROW, Fact.READS_NARROW)


@narrow_dense.infer
def _infer(attrs: None, data: Type, weight: Type) -> TensorType:
    x, w = need_tensor(NARROW, data), need_rank(NARROW, weight, 2, "weight")
    if str(x.dtype) != "float32" or str(w.dtype) not in TYPES:
        raise TypeMismatch(f"{NARROW}: data {x} and weight {w}, wanted float32 and {' or '.join(TYPES)}")
    if x.ndim < 1 or not same_dim(x.shape[-1], w.static[1]):
        raise TypeMismatch(f"{NARROW}: data {x} for rows of {w.static[1]} terms")
    return TensorType((*x.shape[:-1], w.static[0]), x.dtype)


@narrow_dense.macs
def _macs(attrs: None, types: list[TensorType], result: TensorType) -> int:
    return int(result.size * types[0].static[-1])


@narrow_dense.reference
def _reference(attrs: None, data: Array, weight: Array) -> Array:
    result: Array = np.matmul(data.astype(np.float64), weight.astype(np.float64).T).astype(np.float32)
    return result


@narrow_dense.compute
def _compute(attrs: None, data: Tensor, weight: Tensor) -> Tensor:
    (k,) = reduce_axes([data.shape[-1]], ["k"])

    def element(*index: te.Expr) -> te.Expr:
        *rows, unit = index
        return te.sum(data(*rows, k) * weight(unit, k).astype("float32"), axis=[k])

    result: Tensor = te.compute([*data.shape[:-1], weight.shape[0]], element, name="narrow_dense", tag="dense")
    return result


def drawn(dtype: str, *shape: int) -> Array:
    """Numbers of that type."""
    result: Array = np.random.default_rng(shape[0]).standard_normal(shape).astype(DType(dtype).numpy)
    return result


@narrow_dense.samples
def _samples() -> Iterator[Sample]:
    yield Sample(None, (f32(3, 40), drawn("float16", 18, 40)), rtol=1e-5, atol=1e-5)
    yield Sample(None, (f32(2, 1, 24), drawn("bfloat16", 7, 24)), rtol=1e-5, atol=1e-5)


@narrow_dense.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(None, (f32(3, 40), f32(18, 40)), "wanted float32 and float16")
    yield BadSample(None, (f32(3, 40), tensor("float16", 18, 32)), "for rows of 32 terms")
