"""`relay.loops.while_loop`: a loop as a function that calls itself.

In: a condition and a body as Python functions over expressions, and the loop's variables. Out: a function value; called
with the first values, it gives a tuple of the last ones. Invariant: `Loop` nodes, which are compiled, are another form
(relay/expr.py); this one is interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary.relay.expr import Expr, Function, If, Let, Tuple, Var, as_expr


def while_loop(
    cond: Callable[..., Expr], loop_vars: Sequence[Expr], loop_bodies: Callable[..., Sequence[object]]
) -> Expr:
    """While `cond` of the variables holds, they become what `loop_bodies` gives."""
    fresh = [
        Var(v.name_hint if isinstance(v, Var) else f"arg{k}", v.checked_type, None) for k, v in enumerate(loop_vars)
    ]
    loop = Var("while_loop")
    again = loop(*map(as_expr, loop_bodies(*fresh)))
    body = If(cond(*fresh), again, Tuple(tuple(fresh)))
    return Let(loop, Function(tuple(fresh), body), loop)
