"""Fewer and cheaper operators with the same values, on any target.

Constants: fold_constant, fold_scale_axis, dynamic_to_static. Algebra: simplify_expr, simplify_inference,
canonicalize_*, fast_math. Sharing: eliminate_common_subexpr, combine_parallel_*. Users' rules: legalize.
"""
