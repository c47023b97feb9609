"""Instructions of Arm processors that programs call by LLVM's name: one row each.

In: a name ("llvm.aarch64.neon.sdot", with or without its types) and the dtypes of arguments and result. Out: the row,
its meaning on numpy vectors (used by the interpreter), the symbol that LLVM declares and the feature that it needs.
Invariant: a name or a combination of dtypes that is not here is a TypeMismatch when the call is made; a target without
the feature is refused by the emitter (codegen/llvm/calls.py). Bit-exact: tests run every row under qemu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.base.aliases import AnyFunction
from armillary.base.dtype import DType
from armillary.base.lazy import similar
from armillary.errors import TypeMismatch
from armillary.tir import build
from armillary.tir.expr import Call, Expr, IntImm, StringImm

Array = Any  # a numpy vector of any integer dtype
Types = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VendorIntrinsic:
    """`forms`: (result, argument, …) each; `evaluate(result dtype, *vectors)`; `feature` of `arch`, in LLVM's spelling.

    `typed_by`: whose types LLVM's symbol ends in: 0 the result's, -1 the last argument's.
    """

    name: str
    arch: str
    feature: str
    typed_by: tuple[int, ...]
    forms: tuple[Types, ...]
    evaluate: Callable[..., Array]

    def symbol(self, form: Types) -> str:
        """LLVM's name of the form, types included."""
        return ".".join((self.name, *(_llvm(form[k]) for k in self.typed_by)))


def _llvm(dtype: str) -> str:
    kind = DType(dtype)
    return f"v{kind.lanes}i{kind.bits}" if kind.lanes > 1 else f"i{kind.bits}"


def _pairs(x: Array) -> Array:
    return x.astype(np.int64).reshape(-1, 2).sum(axis=1)


def _dot(to: object, sums: Array, a: Array, b: Array) -> Array:
    products = a.astype(np.int64) * b.astype(np.int64)
    return (sums.astype(np.int64) + products.reshape(-1, 4).sum(axis=1)).astype(to)


def _matrix(to: object, sums: Array, a: Array, b: Array) -> Array:
    left, right = (v.astype(np.int64).reshape(2, 8) for v in (a, b))
    return (sums.astype(np.int64) + (left @ right.T).reshape(-1)).astype(to)


def _rounded_high_half(to: Any, a: Array, b: Array) -> Array:
    """Twice the product's upper half, rounded; only -1 times -1 saturates."""
    bits, top = 8 * to.itemsize, np.iinfo(to).max
    doubled = (a.astype(np.int64) * b.astype(np.int64) + (1 << (bits - 2))) >> (bits - 1)
    return np.minimum(doubled, top).astype(to)


def _rounding_shift(to: Any, x: Array, by: Array) -> Array:
    """Left by the lowest byte of each lane of `by`, right and rounded (half up) where that is negative."""
    bits, wide = 8 * to.itemsize, x.astype(np.int64)
    steps = by.astype(np.int8).astype(np.int64)
    left = np.where(steps < bits, wide << np.clip(steps, 0, bits - 1), 0)
    right = np.clip(-steps, 1, bits + 1)
    return np.where(steps >= 0, left, (wide + (np.int64(1) << (right - 1))) >> right).astype(to)


def _kinds(*forms: str) -> tuple[Types, ...]:
    return tuple(tuple(form.split()) for form in forms)


def _dots(left: str, right: str, bfloat16: bool = True) -> tuple[Types, ...]:
    """Sums of 32 bits of either sign, as they wrap, and bytes of these signs."""
    widths = ((4, 16), (2, 8)) if bfloat16 else ((4, 16),)
    return _kinds(*(f"{s}32x{n} {s}32x{n} {left}x{k} {right}x{k}" for n, k in widths for s in ("int", "uint")))


def _same(signs: Types, arity: int, widths: Types) -> tuple[Types, ...]:
    return tuple((f"{sign}{width}",) * (arity + 1) for sign in signs for width in widths)


def _widened(sign: str, takes: int, keeps: bool, shapes: tuple[tuple[str, str], ...]) -> tuple[Types, ...]:
    """A result of the first shape of each pair, from (where `keeps`) one like it and `takes` of the second."""
    return tuple((f"{sign}{w}",) * (1 + keeps) + (f"{sign}{n}",) * takes for w, n in shapes)


_HALVED = (("16x4", "8x8"), ("16x8", "8x16"), ("32x2", "16x4"), ("32x4", "16x8"))  # pairs of lanes become one
_LONG = (("16x8", "8x8"), ("32x4", "16x4"))  # each lane becomes twice as wide
_BOTH = ("int", "uint")
_D = ("8x8", "16x4", "32x2")
_Q = ("8x16", "16x8", "32x4")
_A64, _A32 = "llvm.aarch64.neon.", "llvm.arm.neon."


def _long_product(to: object, a: Array, b: Array) -> Array:
    return a.astype(to) * b.astype(to)


def _added_pairs(to: object, x: Array) -> Array:
    return _pairs(x).astype(to)


def _neighbours(to: object, a: Array, b: Array) -> Array:
    return _pairs(np.concatenate([a, b])).astype(to)


def _accumulated_pairs(to: object, sums: Array, x: Array) -> Array:
    return (sums.astype(np.int64) + _pairs(x)).astype(to)


def _a64(
    name: str, feature: str, typed_by: tuple[int, ...], forms: tuple[Types, ...], evaluate: Callable[..., Array]
) -> VendorIntrinsic:
    return VendorIntrinsic(_A64 + name, "aarch64", feature, typed_by, forms, evaluate)


def _a32(name: str, typed_by: tuple[int, ...], forms: tuple[Types, ...], evaluate: AnyFunction) -> VendorIntrinsic:
    return VendorIntrinsic(_A32 + name, "arm", "neon", typed_by, forms, evaluate)


def _bits_of(x: Array) -> Array:
    """The bits of each lane, the highest first."""
    words = np.ascontiguousarray(np.atleast_1d(x))
    wide = words.astype(words.dtype.newbyteorder(">")).view(np.uint8)
    return np.unpackbits(wide.reshape(len(words), words.itemsize), axis=1)


def _in_lanes(count: Callable[[Array], Array]) -> Callable[..., Array]:
    """A rule of a row from a function of bits; a number of a number."""

    def evaluate(to: type, x: Array, *_: object) -> Array:
        result = count(_bits_of(x)).astype(to)
        return result if np.ndim(x) else int(result[0])

    return evaluate


def _first_one(bits: Array) -> Array:
    return np.where(bits.any(axis=1), bits.argmax(axis=1), bits.shape[1])


def _everywhere(name: str, evaluate: AnyFunction, *rest: str) -> VendorIntrinsic:
    """A row of any processor, over integers."""
    kinds = [f"{sign}{bits}" for sign in _BOTH for bits in (8, 16, 32, 64)]
    forms = tuple((k, k, *rest) for kind in kinds for k in (kind, *(f"{kind}x{n}" for n in (2, 4, 8, 16))))
    return VendorIntrinsic(f"llvm.{name}", "", "", (0,), forms, evaluate)


_ROWS = (
    _everywhere("ctpop", _in_lanes(lambda bits: bits.sum(axis=1))),
    _everywhere("ctlz", _in_lanes(_first_one), "bool"),  # whether the count of 0 may be anything
    _everywhere("cttz", _in_lanes(lambda bits: _first_one(bits[:, ::-1])), "bool"),
    _a64("sdot", "dotprod", (0, -1), _dots("int8", "int8"), _dot),
    _a64("udot", "dotprod", (0, -1), _dots("uint8", "uint8"), _dot),
    _a64("usdot", "i8mm", (0, -1), _dots("uint8", "int8"), _dot),
    _a64("smmla", "i8mm", (0, -1), _dots("int8", "int8", False), _matrix),
    _a64("ummla", "i8mm", (0, -1), _dots("uint8", "uint8", False), _matrix),
    _a64("usmmla", "i8mm", (0, -1), _dots("uint8", "int8", False), _matrix),
    _a64("smull", "neon", (0,), _widened("int", 2, False, _LONG), _long_product),
    _a64("umull", "neon", (0,), _widened("uint", 2, False, _LONG), _long_product),
    _a64("saddlp", "neon", (0, -1), _widened("int", 1, False, _HALVED), _added_pairs),
    _a64("uaddlp", "neon", (0, -1), _widened("uint", 1, False, _HALVED), _added_pairs),
    _a64("addp", "neon", (0,), _same(_BOTH, 2, (*_D, *_Q)), _neighbours),
    _a64("sqrdmulh", "neon", (0,), _same(("int",), 2, (*_D[1:], *_Q[1:])), _rounded_high_half),
    _a64("srshl", "neon", (0,), _same(("int",), 2, (*_D, *_Q)), _rounding_shift),
    _a32("vpadd", (0,), _same(_BOTH, 2, _D), _neighbours),
    _a32("vpadals", (0, -1), _widened("int", 1, True, _HALVED), _accumulated_pairs),
    _a32("vpadalu", (0, -1), _widened("uint", 1, True, _HALVED), _accumulated_pairs),
)
VENDOR_INTRINSICS = {row.name: row for row in _ROWS}


def row_of(name: str) -> tuple[VendorIntrinsic, list[str]]:
    """The row of a name and the types that the name ends in (u8 as i8, as LLVM's types have no sign)."""
    base, types = name, []
    while base not in VENDOR_INTRINSICS and "." in base:
        base, _, last = base.rpartition(".")
        types.append(last.replace("u", "i"))
    if base not in VENDOR_INTRINSICS:
        close = similar(name, VENDOR_INTRINSICS, 3, 0.6)
        hint = f"similar: {', '.join(close)}" if close else f"there are {', '.join(VENDOR_INTRINSICS)}"
        raise TypeMismatch(f"there is no LLVM intrinsic {name!r} here", hint=hint)
    return VENDOR_INTRINSICS[base], types


def resolved(call: Call) -> tuple[VendorIntrinsic, Types]:
    """The row and the form of a call `call_llvm_pure_intrin(name, …)`; TypeMismatch if there is none."""
    name = call.args[0] if call.args else None
    if not isinstance(name, StringImm):
        raise TypeMismatch(f"{call.name} takes the intrinsic's name first, got {name!r}")
    row, types = row_of(name.value)
    got = (str(call.dtype), *(str(a.dtype) for a in call.args[1:]))
    if got not in row.forms:
        wanted = "; ".join(f"{form[0]} of ({', '.join(form[1:])})" for form in row.forms)
        raise TypeMismatch(f"{row.name}: got {got[0]} of ({', '.join(got[1:])}), wanted one of: {wanted}")
    if types and set(types) != {_llvm(got[k]) for k in row.typed_by}:
        raise TypeMismatch(f"{name.value}: got {got[0]} of ({', '.join(got[1:])}), which is {row.symbol(got)}")
    return row, got


def _intrinsic_call(kind: str, dtype: str, name: str, num_signatures: object, args: tuple[Any, ...]) -> Expr:
    count = num_signatures.value if isinstance(num_signatures, IntImm) else num_signatures
    if not isinstance(name, str):
        raise TypeMismatch(f"{kind}: got a name of type {type(name).__name__}, wanted a text such as {_A64}sdot")
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= len(args):
        raise TypeMismatch(
            f"{kind} of {name}: got {num_signatures!r} for num_signatures, wanted a whole number up to {len(args)}, "
            "how many of the arguments that follow tell the types"
        )
    values = [build.cast(a, "bool") if getattr(a, "dtype", "") == "int1" else a for a in args]
    call = build.call(kind, StringImm(name), *values, dtype=dtype)
    assert isinstance(call, Call), "build.call makes calls"
    resolved(call)
    return call


def call_llvm_pure_intrin(dtype: str, name: str, num_signatures: object, *args: object) -> Expr:
    """A call of an instruction of `VENDOR_INTRINSICS` on vectors: `("int32x4", "llvm.aarch64.neon.sdot", 3, c, a, b)`.

    `num_signatures`: how many arguments tell the types, as LLVM counted once; it is checked and not needed. The result
    has `dtype`, lanes included. TypeMismatch: no such name, or not of these dtypes. UnsupportedError when compiling
    for a processor without it.
    """
    return _intrinsic_call("call_llvm_pure_intrin", dtype, name, num_signatures, args)


def call_llvm_intrin(dtype: str, name: str, num_signatures: object, *args: object) -> Expr:
    """As `call_llvm_pure_intrin`; passes over the loop language treat the call as one with side effects."""
    return _intrinsic_call("call_llvm_intrin", dtype, name, num_signatures, args)
