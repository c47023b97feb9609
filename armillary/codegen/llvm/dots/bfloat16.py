"""Products of two words of two bfloat16, added to a float32, in LLVM IR.

In: the calls `dot_bf16` (tir/intrinsics.py), and sums with one of them as a side; words: operands.py. Out: IR.
Invariant: the product of the upper numbers of words is added first, then that of the lower, each sum rounded to nearest
even. vdpbf16ps (AVX512-BF16) does so in one instruction, but takes subnormal numbers for 0 and gives 0 for them; bfdot
(AArch64 with bf16) rounds to odd in between. What is computed behind it may be rounded by such instructions, too.
Elsewhere a half becomes a float32 by a shift or a mask, and each product is a multiply-add.
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.codegen.llvm.dots.bytes import in_parts
from armillary.codegen.llvm.state import Emitter
from armillary.codegen.llvm.types import register_type, splat, suffix, vector
from armillary.tir import expr as E

_SUM, _WORD = DType("float32"), DType("uint32")
_HIGH = 0xFFFF0000  # the second half of a word, which is the first half of a float32


def is_bfloat16_dot(e: E.Expr) -> bool:
    """Whether an expression is a sum of the products of bfloat16."""
    return isinstance(e, E.Call) and e.name == "dot_bf16"


def dot_bf16(m: Emitter, e: E.Call) -> str:
    """The two products alone."""
    return added_bfloat16_dot(m, m.zero(e.dtype), e)


def added_bfloat16_dot(m: Emitter, sums: str, e: E.Expr) -> str:
    """`sums` plus the products of bfloat16."""
    assert isinstance(e, E.Call), "is_bfloat16_dot has told"
    a, b, lanes = m.value(e.args[0]), m.value(e.args[1]), e.dtype.lanes
    if not m.cpu.has_bfloat16_dots or lanes == 1:
        return _by_multiply_adds(m, lanes, sums, a, b)
    m.flushes_bfloat16 = True
    if m.cpu.arch == "aarch64":
        width, name = 4, "llvm.aarch64.neon.bfdot.v4f32.v8bf16"
    else:
        width = min(m.cpu.lanes, max(4, 1 << (lanes - 1).bit_length()))
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * width}"

    def part(sums: str, a: str, b: str) -> str:
        kind, pairs = vector("float", width), vector("bfloat", 2 * width)
        x, y = (m.pure(f"bitcast {vector('i32', width)} {v} to {pairs}", v) for v in (a, b))
        return m.intrinsic(kind, name, (kind, sums), (pairs, x), (pairs, y))

    return in_parts(m, lanes, width, part, ((_SUM, sums), (_WORD, a), (_WORD, b)))


def _by_multiply_adds(m: Emitter, lanes: int, sums: str, a: str, b: str) -> str:
    dtype = _SUM.with_lanes(lanes)
    kind = register_type(dtype)
    for how, by in (("and", _HIGH), ("shl", 16)):
        x, y = (_half(m, v, lanes, how, by) for v in (a, b))
        sums = m.intrinsic(kind, f"llvm.fmuladd.{suffix(dtype)}", (kind, x), (kind, y), (kind, sums))
    return sums


def _half(m: Emitter, word: str, lanes: int, how: str, by: int) -> str:
    """One half of each word as a float32."""
    words = vector("i32", lanes)
    bits = m.pure(f"{how} {words} {word}, {splat('i32', str(by), lanes)}", word)
    return m.pure(f"bitcast {words} {bits} to {vector('float', lanes)}", bits)
