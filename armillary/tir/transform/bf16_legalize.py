"""`bf16-legalize`: arithmetic of narrow float types goes through float32.

In: expressions of bfloat16 (and of other float types when asked). Out: operands cast to float32, the operation
in float32,
its result cast back: each operation still rounds to the narrow type. Invariant: memory keeps its dtype; every value
is what the interpreter gives for the narrow operation. A cast straight back and forth is kept (it rounds).
"""

from __future__ import annotations

from armillary.base.dtype import DType
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.substitute import ExprMapper, map_stmt
from armillary.tir.transform.loop_pass import prim_pass, with_body

_ARITHMETIC = (E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max, E.TruncMod, E.FloorDiv, E.FloorMod)
_COMPARISONS = (E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE)
_MOVES = frozenset(
    {
        "if_then_else",
        "reinterpret",
        "pack_bf16",
        "tile_load",
        "tile_store",
        "prefetch",
        "call_extern",
        "call_pure_extern",
    }
)


def bf16_legalize(func: S.PrimFunc, dtypes: tuple[str, ...] = ("bfloat16",)) -> S.PrimFunc:
    """Compute narrow floats in float32.

    H[0] = H[1] + H[2]  ->  H[0] = bfloat16(float32(H[1]) + float32(H[2]))      where H is Buffer[(8,), bfloat16]
    """
    narrow = frozenset(DType(name) for name in dtypes)
    if not narrow:
        return func
    mapper = ExprMapper(lambda e: _rule(e, narrow))

    def visit(item: S.Stmt) -> S.Stmt:
        return map_stmt(item, mapper, visit)

    return with_body(func, visit(func.body))


def _rule(item: E.Expr, narrow: frozenset[DType]) -> E.Expr | None:
    if isinstance(item, _ARITHMETIC) and item.dtype.element in narrow:
        a, b = _wide(item.a), _wide(item.b)
        return build.cast(type(item)(a, b), item.dtype)
    if isinstance(item, _COMPARISONS) and item.a.dtype.element in narrow:
        return type(item)(_wide(item.a), _wide(item.b))
    if isinstance(item, E.Cast):
        return _cast(item, narrow)
    if isinstance(item, E.Call) and item.name not in _MOVES and any(a.dtype.element in narrow for a in item.args):
        args = tuple(_wide(a) if a.dtype.element in narrow else a for a in item.args)
        if item.dtype.element not in narrow:
            return E.Call(item.dtype, item.name, args)
        return build.cast(E.Call(DType("float32").with_lanes(item.dtype.lanes), item.name, args), item.dtype)
    return None


def _cast(item: E.Cast, narrow: frozenset[DType]) -> E.Expr | None:
    """Conversions between a narrow float and anything but float32 pass through float32."""
    source, to = item.value.dtype.element, item.dtype.element
    if source in narrow and to != "float32":
        return build.cast(_wide(item.value), item.dtype)
    if to in narrow and source != "float32" and source.is_float and source.bits < 32:
        return E.Cast(item.dtype, _wide(item.value))
    return None


def _wide(item: E.Expr) -> E.Expr:
    return build.cast(item, DType("float32").with_lanes(item.dtype.lanes))


BF16Legalize = prim_pass("bf16-legalize", "tir.BF16Legalize")(bf16_legalize)
