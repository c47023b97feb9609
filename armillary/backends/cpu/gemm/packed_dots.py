"""Products of bytes or bfloat16 whose right-hand side is computed at run time: it is packed in words of terms first.

In: a fused function anchored at nn.dense, nn.matmul or nn.batch_matmul of int8 or uint8 in int32, or of bfloat16 in
float32 where the target multiplies it. Out: as dense.py, over words of 4 bytes or 2 bfloat16: (…, blocks of columns,
words, columns of a block), zeros behind the last column and the last term. Invariant: the left side's terms come in
words, too; where they are no multiple of a word, or do not lie side by side, in a copy of it.
Constant weights are packed when compiling: nn.contrib_dense_pack.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.cpu.elementwise.default import PACKED
from armillary.backends.cpu.gemm.dense import matmul_tile, sum_of_terms
from armillary.backends.cpu.gemm.space import column_block, is_transposed, padded_columns
from armillary.backends.registry import implement
from armillary.base.dtype import DType
from armillary.ops._dot_operands import BYTES, dot_operands, join
from armillary.ops.nn.dense import BatchMatmulAttrs, DenseAttrs


def packed_dot_product(attrs: DenseAttrs | BatchMatmulAttrs, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The product over a copy of the right-hand side in words of blocks of columns."""
    shape_a, shape_b = te.static_shape(a), te.static_shape(b)
    swap_a, swap_b = is_transposed(attrs, "a") and hasattr(attrs, "transpose_a"), is_transposed(attrs, "b")
    rows, inner = (shape_a[-1], shape_a[-2]) if swap_a else (shape_a[-2], shape_a[-1])
    columns = shape_b[-2] if swap_b else shape_b[-1]
    word = BYTES // DType(a.dtype).bytes
    block, padded, words = column_block(columns), padded_columns(columns), -(-inner // word)
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]

    def left(at: list[te.Expr], i: te.Expr, k: te.Expr) -> te.Expr:
        return a(*at, k, i) if swap_a else a(*at, i, k)

    def number_b(at: list[te.Expr], k: te.Expr, column: te.Expr) -> te.Expr:
        value = b(*at, column, k) if swap_b else b(*at, k, column)
        tests = [te.likely(column < columns)] if padded != columns else []
        tests += [te.likely(k < inner)] if words * word != inner else []
        result: te.Expr = _guarded(value, tests)
        return result

    def operand_b(*index: te.Expr) -> te.Expr:
        *at, chunk, k, lane = index
        result: te.Expr = join([number_b(at, k * word + n, chunk * block + lane) for n in range(word)])
        return result

    def operand_a(*index: te.Expr) -> te.Expr:
        *at, i, k = index
        tests = [[]] * word if words * word == inner else [[te.likely(k * word + n < inner)] for n in range(word)]
        result: te.Expr = join([_guarded(left(at, i, k * word + n), tests[n]) for n in range(word)])
        return result

    packed = te.compute((*batch_b, padded // block, words, block), operand_b, name="packed", tag=PACKED)
    lies_well = words * word == inner and not swap_a and isinstance(a.op, te.PlaceholderOp)
    copied = None if lies_well else te.compute((*batch_a, rows, words), operand_a, name="words", tag=PACKED)

    def term(at_a: list[te.Expr], at_b: list[te.Expr], i: te.Expr, j: te.Expr, k: te.Expr) -> te.Expr:
        left_word = operand_a(*at_a, i, k) if copied is None else copied(*at_a, i, k)
        result: te.Expr = dot_operands(left_word, packed(*at_b, j // block, k, j % block), word)
        return result

    return sum_of_terms((*batch_a, rows), (*batch_b, columns), padded, words, term)


def _guarded(value: te.Expr, tests: list[te.Expr]) -> te.Expr:
    for test in tests:
        value = te.if_then_else(test, value, te.const(0, value.dtype))
    return value


_NAMES = ("packing_words_dense", "packing_words_matmul", "packing_words_batch_matmul")
implement(*_NAMES, family="cpu", compute=packed_dot_product)(matmul_tile)
