"""Expressions of both languages, under the name of Relay-era scripts.

In: a name. Out: what it stands for. Invariant: nothing is here, and nothing imported before it is asked for. Where to
look next: `tir/expr.py`, `relay/expr.py`.
"""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **{name: f"armillary.tir.expr:{name}" for name in ("FloatImm", "IntImm", "Range")},
        "GlobalVar": "armillary.ir:GlobalVar",
        "PrimExpr": "armillary.tir.expr:Expr",
        "RelayExpr": "armillary.relay.expr:Expr",
    },
)
