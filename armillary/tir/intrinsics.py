"""The named functions that `tir.Call` may use: one row each.

In: a name. Out: its arity, meaning on numpy scalars or arrays (used by the interpreter and by constant folding), and
whether it has side effects. Invariant: a Call whose name is not here does not verify; an emitter refuses with
UnsupportedError a name that it has no rule for. Emitters: `codegen/llvm*.py`, `codegen/c/source.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf as _erf
from typing import TypeAlias

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.lazy import similar
from armillary.errors import TypeMismatch
from armillary.tir import build
from armillary.tir.builtins import RESULTS, foreign_call
from armillary.tir.expr import BOOL, Callee, Expr, ExprLike, StringImm

Unary: TypeAlias = Callable[[ExprLike], Expr]

FLUSHED_BELOW = -87.0  # where exp_flushed is 0: in float32 exp is subnormal from -87.34 on


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """`evaluate` takes numpy values, arguments already evaluated; None: the interpreter handles it itself."""

    name: str
    arity: int  # -1: any number
    evaluate: Callable[..., Array] | None
    pure: bool = True


def _row(name: str, arity: int, evaluate: Callable[..., Array] | None, pure: bool = True) -> Intrinsic:
    return Intrinsic(name, arity, evaluate, pure)


def _popcount(x: Array) -> Array:
    result: Array = np.vectorize(lambda v: bin(int(v) & ((1 << (8 * np.asarray(x).itemsize)) - 1)).count("1"))(x)
    return result


def _clz(x: Array) -> Array:
    bits = 8 * np.asarray(x).itemsize
    result: Array = np.vectorize(lambda v: bits - (int(v) & ((1 << bits) - 1)).bit_length())(x)
    return result


def _exp_flushed(x: Array) -> Array:
    powers, dtype = np.exp(x), np.asarray(x).dtype
    return powers if dtype.itemsize == 8 else np.where(x < FLUSHED_BELOW, 0.0, powers).astype(dtype)[()]


def _word_of_bytes(*values: Array) -> Array:
    stacked = np.ascontiguousarray(np.stack([np.asarray(v) for v in values], axis=-1))
    words = _WORD_OF if len(values) == 4 else _LONG_WORD_OF
    result: Array = stacked.view(words[stacked.dtype.name])[..., 0]
    return result


def _dot_bytes(x: Array, y: Array) -> Array:
    a, b = (np.ascontiguousarray(np.asarray(v)[..., None]).view(_BYTE_OF[v.dtype.name]) for v in (x, y))
    sums: Array = (a.astype(np.int32) * b.astype(np.int32)).sum(axis=-1, dtype=np.int32)
    return sums


def _shuffle(count: Array, *rest: Array) -> Array:
    lanes = np.concatenate([np.atleast_1d(v) for v in rest[: int(count)]])
    return lanes[[int(k) for k in rest[int(count) :]]]


def _pack_bf16(*values: Array) -> Array:
    stacked = np.ascontiguousarray(np.stack([np.asarray(v) for v in values], axis=-1))
    return stacked.view(np.uint32)[..., 0]


def _dot_bf16(x: Array, y: Array) -> Array:
    a, b = (np.ascontiguousarray(np.asarray(v)[..., None]).view(BFLOAT16.numpy).astype(np.float32) for v in (x, y))
    result: Array = (a * b).sum(axis=-1, dtype=np.float32)
    return result


BFLOAT16 = DType("bfloat16")  # what words of two numbers are of
_WORD_OF = {"int8": "int32", "uint8": "uint32"}  # a word has the sign of the four bytes in it
_LONG_WORD_OF = {"int8": "int64", "uint8": "uint64"}  # or of the eight
_BYTE_OF = {word: byte for of in (_WORD_OF, _LONG_WORD_OF) for byte, word in of.items()}
erf = np.vectorize(_erf, otypes=[np.float64])

_ROWS = (
    # unary float functions, as C's
    *(
        _row(n, 1, getattr(np, m))
        for n, m in (
            ("exp", "exp"),
            ("exp2", "exp2"),
            ("log", "log"),
            ("log2", "log2"),
            ("log10", "log10"),
            ("log1p", "log1p"),
            ("expm1", "expm1"),
            ("sqrt", "sqrt"),
            ("sin", "sin"),
            ("cos", "cos"),
            ("tan", "tan"),
            ("asin", "arcsin"),
            ("acos", "arccos"),
            ("atan", "arctan"),
            ("sinh", "sinh"),
            ("cosh", "cosh"),
            ("tanh", "tanh"),
            ("asinh", "arcsinh"),
            ("acosh", "arccosh"),
            ("atanh", "arctanh"),
            ("floor", "floor"),
            ("ceil", "ceil"),
            ("trunc", "trunc"),
            ("nearbyint", "rint"),
            ("fabs", "abs"),
            ("isnan", "isnan"),
            ("isinf", "isinf"),
            ("isfinite", "isfinite"),
        )
    ),
    _row("rsqrt", 1, lambda x: 1 / np.sqrt(x)),
    _row("round", 1, lambda x: np.trunc(x + np.copysign(0.5, x))),  # half away from zero, as C's round
    _row("sigmoid", 1, lambda x: 1 / (1 + np.exp(-x))),
    _row("exp_flushed", 1, _exp_flushed),
    _row("erf", 1, lambda x: erf(x).astype(np.asarray(x).dtype)),
    _row("normcdf", 1, lambda x: (0.5 + 0.5 * erf(x * 0.7071067811865476)).astype(np.asarray(x).dtype)),
    # binary and ternary float functions
    _row("pow", 2, np.power),
    _row("atan2", 2, np.arctan2),
    _row("fmod", 2, np.fmod),
    _row("hypot", 2, np.hypot),
    _row("copysign", 2, np.copysign),
    _row("nextafter", 2, np.nextafter),
    _row("ldexp", 2, np.ldexp),
    _row("fma", 3, lambda a, b, c: a * b + c),
    # integers
    _row("abs", 1, np.abs),
    _row("bitwise_and", 2, np.bitwise_and),
    _row("bitwise_or", 2, np.bitwise_or),
    _row("bitwise_xor", 2, np.bitwise_xor),
    _row("shift_left", 2, np.left_shift),
    _row("shift_right", 2, np.right_shift),
    _row("popcount", 1, _popcount),
    _row("clz", 1, _clz),
    # words of four or eight bytes, the first one lowest, integers of 32 or 64 bits with the bytes' sign; and the int32
    # sum of the products of two words' bytes, which wraps like any int32 when it is added to others
    _row("four_bytes", 4, _word_of_bytes),
    _row("eight_bytes", 8, _word_of_bytes),
    _row("dot_bytes", 2, _dot_bytes),
    _row("dot_symmetric_bytes", 2, _dot_bytes),  # of sums in which no two neighbours have -128 on the right
    # words of two bfloat16, the first one lowest, which are uint32; and the float32 sum of the products of the
    # numbers of two. Added to another sum that is two multiply-adds; instructions for it take subnormal numbers for 0
    # (vdpbf16ps), or round to odd in between (bfdot)
    _row("pack_bf16", 2, _pack_bf16),
    _row("dot_bf16", 2, _dot_bf16),
    # control and types: the interpreter and the emitters have rules of their own
    _row("if_then_else", 3, None),
    _row("likely", 1, lambda x: x),
    # elements of the lanes that a mask has: of a load, 0 in the others; the value of a store, which leaves the others
    _row("masked_load", 2, None),
    _row("masked_value", 2, None),
    _row("reinterpret", 1, None),
    _row("call_extern", -1, None, pure=False),
    _row("call_pure_extern", -1, None),
    # a promise of the program, which no back end here uses; and lanes of vectors (as many as the first argument says)
    # put together by their numbers, which are the last arguments
    _row("assume", 1, lambda x: x),
    _row("shuffle", -1, _shuffle),
    # functions by name that the process which runs a kernel supplies (runtime/packed.py): the name, then numbers, texts
    # and tensors; `trace` gives its last argument unless the function gives a number. A tensor is tvm_stack_make_array(
    # address, sizes, strides or 0, rank, a 0 of its dtype, offset), an address address_of(element, 1 read | 2 written)
    _row("tvm_call_packed", -1, None, pure=False),
    _row("tvm_call_trace_packed", -1, None, pure=False),
    _row("tvm_stack_make_array", 6, None),
    _row("tvm_stack_make_shape", -1, None),
    _row("address_of", -1, None),
    # instructions by LLVM's name, which is the first argument: tir/vendor_intrinsics.py
    _row("call_llvm_pure_intrin", -1, None),
    _row("call_llvm_intrin", -1, None, pure=False),
    _row("vector_reduce_add", 1, None),
    _row("prefetch", -1, None, pure=False),
    _row("thread_sync", -1, None, pure=False),
    # matrix tiles, eight of up to 16 rows of 64 bytes, by constant numbers: tile_zero(tile, rows), tile_load(tile,
    # first element, bytes from row to row, rows), tile_store alike; tile_dot(sums, left, right, is left signed, is
    # right signed) adds to the rows of 16 int32 of `sums` the products of the rows of 64 bytes of `left` and those of
    # `right`, 16 rows of 16 words of four bytes; tile_dot_bf16(sums, left, right) adds to the rows of 16 float32 of
    # `sums` the products of the rows of 32 bfloat16 of `left` and 16 rows of 16 words of two
    _row("tile_zero", 2, None, pure=False),
    _row("tile_load", 4, None, pure=False),
    _row("tile_dot", 5, None, pure=False),
    _row("tile_dot_bf16", 3, None, pure=False),
    _row("tile_store", 4, None, pure=False),
)
INTRINSICS = {row.name: row for row in _ROWS}


def callee_of(name: object) -> Callee | None:
    """What "tir.exp" names: an intrinsic, to be called by `tir.Call`; None for other names."""
    known = isinstance(name, str) and name.startswith("tir.") and name.removeprefix("tir.") in INTRINSICS
    return Callee(str(name)) if known else None


def call_extern(dtype: str, func_name: str, *args: ExprLike) -> Expr:
    """A call of a C function, by name; the linker or this process supplies it."""
    return build.call(
        "call_extern", StringImm(func_name), *args, dtype="void" if isinstance(dtype, str) and not dtype else dtype
    )


def call_pure_extern(dtype: str, func_name: str, *args: ExprLike) -> Expr:
    """As `call_extern`, for a function without side effects."""
    return build.call("call_pure_extern", StringImm(func_name), *args, dtype=dtype)


@boundary("call_intrin", arguments=True)
def call_intrin(dtype: str, name: str, *args: ExprLike) -> Expr:
    """A call of the intrinsic `name` with a result of `dtype`; TypeMismatch if there is none of that many arguments.

    `tir.register_intrin_lowering` makes new ones. Builtins that no back end has (`builtins.py`) can be written.
    """
    name = name.removeprefix("tir.")
    row = INTRINSICS.get(name)
    if row is None and name in RESULTS:
        return foreign_call(dtype, name, args)
    if row is None:
        close = similar(name, INTRINSICS, 3, 0.6)
        raise TypeMismatch(f"there is no intrinsic {name!r}", hint=f"similar: {', '.join(close)}" if close else "")
    if row.arity not in (-1, len(args)):
        raise TypeMismatch(f"intrinsic {name} takes {row.arity} arguments, got {len(args)}")
    return build.call(name, *args, dtype=dtype)


def unary(name: str) -> Unary:
    """The constructor of a one-argument float function: integers are cast to float32 first."""

    def construct(x: ExprLike) -> Expr:
        value = build.convert(x)
        if not value.dtype.is_float:
            value = build.cast(value, "float32")
        is_test = name in ("isnan", "isinf", "isfinite")
        return build.call(name, value, dtype=BOOL.with_lanes(value.dtype.lanes) if is_test else None)

    construct.__name__ = name
    construct.__doc__ = f"{name}(x), element-wise."
    return construct


def four_bytes(*values: ExprLike) -> Expr:
    """The word of four bytes, int8 or uint8: one load where they lie side by side in memory, the first one lowest."""
    values_of = [build.convert(v) for v in values]
    names = {str(v.dtype) for v in values_of}
    if len(values_of) != 4 or len(names) != 1 or (name := names.pop()) not in _WORD_OF:
        raise TypeMismatch(
            f"four_bytes: got {', '.join(str(v.dtype) for v in values_of)}, wanted four int8 or four uint8"
        )
    return build.call("four_bytes", *values_of, dtype=_WORD_OF[name])


def eight_bytes(*values: ExprLike) -> Expr:
    """The word of eight bytes, int8 or uint8: `dot_bytes` of two rows and two columns of them is one instruction of a
    processor with products of matrices of bytes (`CpuModel.has_byte_matrices`)."""
    values_of = [build.convert(v) for v in values]
    names = {str(v.dtype) for v in values_of}
    if len(values_of) != 8 or len(names) != 1 or (name := names.pop()) not in _LONG_WORD_OF:
        got = ", ".join(str(v.dtype) for v in values_of)
        raise TypeMismatch(f"eight_bytes: got {got}, wanted eight int8 or eight uint8")
    return build.call("eight_bytes", *values_of, dtype=_LONG_WORD_OF[name])


def dot_bytes(x: ExprLike, y: ExprLike) -> Expr:
    """The int32 sum of the products of two words' bytes; the signs of the words are those of their bytes.

    `te.sum` of it, and any addition to it, is one instruction where the target has one for these signs
    (`CpuModel.dot_signs`); every target computes all signs, exactly.
    """
    return _dot("dot_bytes", x, y)


def dot_symmetric_bytes(x: ExprLike, y: ExprLike) -> Expr:
    """`dot_bytes` for sums over words of which no two neighbours have a byte of -128 in `y` at the same place.

    Symmetric quantisation has none at all. Two products of int8 then fit 16 bits, in which processors without dot
    products add them (`CpuModel.widens_bytes`); else the sum may be wrong.
    """
    return _dot("dot_symmetric_bytes", x, y)


def _dot(name: str, x: ExprLike, y: ExprLike) -> Expr:
    words = build.convert(x), build.convert(y)
    if any(str(w.dtype) not in _BYTE_OF for w in words) or words[0].dtype.bits != words[1].dtype.bits:
        raise TypeMismatch(
            f"{name}: got {words[0].dtype} and {words[1].dtype}, wanted words (int32 or uint32; or of 64 bits, both)"
        )
    return build.call(name, *words, dtype="int32")


def pack_bf16(first: ExprLike, second: ExprLike) -> Expr:
    """The word of two bfloat16: one load where they lie side by side in memory, the first one lowest."""
    values_of = [build.convert(v) for v in (first, second)]
    if any(v.dtype != BFLOAT16 for v in values_of):
        raise TypeMismatch(f"pack_bf16: got {', '.join(str(v.dtype) for v in values_of)}, wanted two bfloat16")
    return build.call("pack_bf16", *values_of, dtype="uint32")


def dot_bf16(x: ExprLike, y: ExprLike) -> Expr:
    """The float32 sum of the products of the bfloat16 of two words.

    `te.sum` of it, and any addition to it, is one instruction where the target has one (`CpuModel.bfloat16_dots`), else
    two multiply-adds of float32.
    """
    words = build.convert(x), build.convert(y)
    if any(w.dtype != "uint32" for w in words):
        raise TypeMismatch(f"dot_bf16: got {words[0].dtype} and {words[1].dtype}, wanted words (uint32)")
    return build.call("dot_bf16", *words, dtype="float32")


def flipped_bytes(word: ExprLike) -> Expr:
    """A word of bytes of the other sign, each moved by 128: uint8 x is int8 x - 128."""
    value = build.convert(word)
    if str(value.dtype) not in ("int32", "uint32"):
        raise TypeMismatch(f"flipped_bytes: got {value.dtype}, wanted a word (int32 or uint32)")
    other = "uint32" if value.dtype.code == "int" else "int32"
    unsigned = value if other == "int32" else build.call("reinterpret", value, dtype="uint32")
    flipped = build.bitwise_xor(unsigned, build.const(0x80808080, "uint32"))
    return flipped if other == "uint32" else build.call("reinterpret", flipped, dtype="int32")
