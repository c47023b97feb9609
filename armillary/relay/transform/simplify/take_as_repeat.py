"""take-as-repeat: a `take` that repeats every element of the last axis is `repeat`.

In: a module in its last layouts, enlargements to the nearest element written as takes at constant places. Out: `repeat`
where the axis is the last one and a power of two of repetitions fills vectors: its places are arithmetic, so that they
are loaded together and shuffled. Invariant: the same elements. Other takes, along rows or of blocks, stay: each of
their places is read for a whole row.

    take(%x, [0, 0, 1, 1, 2, 2], axis=-1)
    ->
    repeat(%x, repeats=2, axis=-1)
"""

from __future__ import annotations

import numpy as np

from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, known_of
from armillary.relay.transform._rules import call, op_name, rewrite_module
from armillary.transform import define_pass

MOST = 16  # repetitions that a vector has lanes for


@define_pass("take-as-repeat")
def take_as_repeat(module: IRModule) -> IRModule:
    """Rewrite takes along the last axis."""
    return rewrite_module(module, _repeat)


def _repeat(expr: Expr) -> Expr | None:
    if not isinstance(expr, Call) or op_name(expr) != "take" or not isinstance(expr.args[1], Constant):
        return None
    data, places = expr.args[0], expr.args[1].data
    ty, attrs = known_of(data), expr.attrs
    if ty is None or attrs.axis is None or attrs.axis % ty.ndim != ty.ndim - 1 or attrs.batch_dims or places.ndim != 1:
        return None
    size = ty.shape[-1]
    if not isinstance(size, int) or not size:
        return None
    times = len(places) // size
    if not 1 < times <= MOST or times & (times - 1) or not np.array_equal(places, np.repeat(np.arange(size), times)):
        return None
    return call("repeat", data, repeats=times, axis=ty.ndim - 1)
