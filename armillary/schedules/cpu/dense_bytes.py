"""Products of bytes whose right-hand side is computed at run time: it is packed in words of four terms first.

In: a fused function anchored at nn.dense, nn.matmul or nn.batch_matmul of int8 or uint8, in int32. Out: as dense.py,
over words: (…, blocks of columns, words, columns of a block), zeros behind the last column and the last term.
Invariant: the left side's terms come in words, too; where they are no multiple of four, or do not lie side by side, in
a copy of it.
Constant weights are packed when compiling: nn.contrib_dense_pack.
"""

from __future__ import annotations

from typing import Any

from armillary import te
from armillary.ops.nn_dense import WORD
from armillary.relay.types import TensorType
from armillary.schedules.cpu.default import PACKED
from armillary.schedules.cpu.dense import (
    column_block,
    explain_product,
    is_transposed,
    matmul_tile,
    padded_columns,
)
from armillary.schedules.registry import Workload, implement


def _can_pack(workload: Workload) -> str | None:
    data, other = workload.types
    if not isinstance(data, TensorType) or not isinstance(other, TensorType) or workload.attrs.out_dtype != "int32":
        return "only sums in int32 come in words"
    if {str(data.dtype), str(other.dtype)} - {"int8", "uint8"}:
        return "only bytes come in words"
    columns = other.static[-2 if is_transposed(workload.attrs, "b") else -1]
    if data.ndim < 2:
        return "a vector is not packed"
    return f"{columns} columns are fewer than a vector" if columns < WORD else None


def packed_words(attrs: Any, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The product over a copy of the right-hand side in words of blocks of columns."""
    shape_a, shape_b = te.static_shape(a), te.static_shape(b)
    swap_a, swap_b = is_transposed(attrs, "a") and hasattr(attrs, "transpose_a"), is_transposed(attrs, "b")
    rows, inner = (shape_a[-1], shape_a[-2]) if swap_a else (shape_a[-2], shape_a[-1])
    columns = shape_b[-2] if swap_b else shape_b[-1]
    block, padded, words = column_block(columns), padded_columns(columns), -(-inner // WORD)
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]

    def left(at: list[Any], i: Any, k: Any) -> Any:
        return a(*at, k, i) if swap_a else a(*at, i, k)

    def byte_b(at: list[Any], k: Any, column: Any) -> Any:
        value = b(*at, column, k) if swap_b else b(*at, k, column)
        tests = [te.likely(column < columns)] if padded != columns else []
        tests += [te.likely(k < inner)] if words * WORD != inner else []
        return _guarded(value, tests)

    def word_b(*index: Any) -> Any:
        *at, chunk, k, lane = index
        return te.four_bytes(*(byte_b(at, k * WORD + n, chunk * block + lane) for n in range(WORD)))

    def word_a(*index: Any) -> Any:
        *at, i, k = index
        tests = [] if words * WORD == inner else [[te.likely(k * WORD + n < inner)] for n in range(WORD)]
        return te.four_bytes(*(_guarded(left(at, i, k * WORD + n), tests[n] if tests else []) for n in range(WORD)))

    packed = te.compute((*batch_b, padded // block, words, block), word_b, name="packed", tag=PACKED)
    lies_well = words * WORD == inner and not swap_a and isinstance(a.op, te.PlaceholderOp)
    copied = None if lies_well else te.compute((*batch_a, rows, words), word_a, name="words", tag=PACKED)
    k = te.reduce_axis((0, words), name="k")

    def element(*index: Any) -> Any:
        *batch, i, j = index
        at_a = [0 if size == 1 else x for size, x in zip(batch_a, batch, strict=False)]
        at_b = [0 if size == 1 else x for size, x in zip(batch_b, batch, strict=False)]
        word = word_a(*at_a, i, k) if copied is None else copied(*at_a, i, k)
        return te.sum(te.dot_bytes(word, packed(*at_b, j // block, k, j % block)), axis=k)

    batch = tuple(max(x, y) for x, y in zip(batch_a, batch_b or (1,) * len(batch_a), strict=True))
    product: te.Tensor = te.compute((*batch, rows, padded), element, name="product", tag="packed_product")
    if padded == columns:
        return product
    kept: te.Tensor = te.compute((*batch, rows, columns), lambda *i: product(*i), name="kept", tag="injective")
    return kept


def _guarded(value: Any, tests: list[Any]) -> Any:
    for test in tests:
        value = te.if_then_else(test, value, te.const(0, value.dtype))
    return value


for _name in ("nn.dense", "nn.matmul", "nn.batch_matmul"):
    implement(
        _name, family="cpu", name=f"packing_bytes_{_name.removeprefix('nn.')}", when=_can_pack, compute=packed_words,
        explain=explain_product, priority=11,
    )(matmul_tile)  # fmt: skip
