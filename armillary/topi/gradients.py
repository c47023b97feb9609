"""Gradients that scripts ask for by name: `topi.nn.pool_grad(grads, data, kernel, stride, padding, pool_type)`.

In: the gradient of a pooling's result, its input, and the pooling's attributes. Out: the gradient of the input.
Invariant: the rules are those of `relay.transform.gradient` (`ops/gradient/networks.py`); of equal maxima the first
has the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import relay, te
from armillary.base.aliases import AnyFunction
from armillary.errors import TypeMismatch
from armillary.ops.gradient.networks import avg_pool_back, max_pool_back
from armillary.relay.expr import Expr
from armillary.topi.expression import of_function

_POOLS: dict[str, tuple[AnyFunction, AnyFunction]] = {
    "max": (relay.nn.max_pool2d, max_pool_back),
    "avg": (relay.nn.avg_pool2d, avg_pool_back),
}


def pool_back(
    grads: Expr,
    data: Expr,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Expr:
    """The gradient of a pooling's input, as an expression.

    Raises TypeMismatch for another `pool_type` than "max" and "avg", and for `grads` of another shape than the result.
    """
    if pool_type not in _POOLS:
        raise TypeMismatch(f"pool_grad: pool_type {pool_type!r}, wanted 'max' or 'avg'")
    pool, back = _POOLS[pool_type]
    named: dict[str, object] = {"pool_size": tuple(kernel), "strides": tuple(stride), "padding": tuple(padding)}
    named |= {"ceil_mode": ceil_mode, "layout": layout}
    named |= {"count_include_pad": count_include_pad} if pool_type == "avg" else {}
    call = pool(data, **named)
    have, want = grads.checked_type, call.checked_type
    if have != want:
        raise TypeMismatch(f"pool_grad: the gradient is {have}, the pooling gives {want}")
    result: Expr = back(grads, data, call.attrs)
    return result


def pool_grad(
    grads: te.Tensor,
    data: te.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> te.Tensor:
    """`topi.nn.pool_grad`: the gradient of a pooling's input. Raises as `pool_back`."""
    rest = (kernel, stride, padding, pool_type, ceil_mode, layout, count_include_pad)
    result: te.Tensor = of_function(lambda g, d: pool_back(g, d, *rest), [grads, data], {})
    return result
