"""`relay.dataflow_pattern`, the Relay-era home of the pattern language.

A façade over relay/pattern.py: imports only, no logic.
"""

from __future__ import annotations

from armillary.relay.pattern import (
    AltPattern,
    CallPattern,
    ConstantPattern,
    DFPattern,
    DFPatternCallback,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    TupleGetItemPattern,
    TuplePattern,
    VarPattern,
    WildcardPattern,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    match,
    partition,
    rewrite,
    wildcard,
)

__all__ = [
    "AltPattern", "CallPattern", "ConstantPattern", "DFPattern", "DFPatternCallback", "DominatorPattern", "ExprPattern",
    "FunctionPattern", "IfPattern", "LetPattern", "TupleGetItemPattern", "TuplePattern", "VarPattern",
    "WildcardPattern", "dominates", "has_attr", "has_dtype", "has_shape", "has_type", "is_constant", "is_expr", "is_if",
    "is_let", "is_op", "is_tuple", "is_tuple_get_item", "is_var", "match", "partition", "rewrite", "wildcard",
]  # fmt: skip
