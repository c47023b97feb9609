"""Layers that make their own parameters: convolutions, dense, batch_norm_infer.

In: data (typed), and the keywords of the operator plus `name`. Out: an expression whose parameters are variables called
`<name>_weight`, `<name>_bias`, `<name>_gamma`… with their types worked out from the data's. Invariant: a parameter that
is given is taken, none is made beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from armillary import relay
from armillary.base.node import post_order
from armillary.errors import TypeMismatch
from armillary.relay.expr import Expr, Function, TupleGetItem, Var, var
from armillary.relay.types import TensorType


def type_of(data: Expr) -> TensorType:
    """The tensor type of an expression."""
    ty = data.checked_type
    if not isinstance(ty, TensorType):
        raise TypeMismatch(f"a layer needs a tensor, got {ty}")
    return ty


def function_of(body: Expr) -> Function:
    """A function over the free variables of `body`, in the order they appear."""
    return Function(tuple(v for v in post_order(body) if isinstance(v, Var)), body)


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """The kernel layout that goes with a data layout."""
    table = {"NCHW": "OIHW", "NCDHW": "OIDHW", "NHWC": "HWOI" if is_depthwise else "HWIO", "NDHWC": "DHWIO"}
    if data_layout not in table:
        raise TypeMismatch(f"no kernel layout goes with {data_layout!r}", hint=f"known: {', '.join(table)}")
    return table[data_layout]


def _weight(data: Expr, name: str, spatial: str, attrs: Mapping[str, Any]) -> Var:
    """The weight of a convolution over the axes `spatial` ("HW", "DHW"), in its kernel layout."""
    ty = type_of(data)
    layout, kernel = attrs.get("data_layout", f"NC{spatial}"), attrs.get("kernel_layout", f"OI{spatial}")
    sides = dict(zip(spatial, np.broadcast_to(attrs["kernel_size"], len(spatial)).tolist(), strict=True))
    size = {"O": attrs["channels"], "I": ty.static[layout.index("C")] // attrs.get("groups", 1), **sides}
    return var(f"{name}_weight", shape=[size[a] for a in kernel], dtype=ty.dtype)


def conv2d(data: Expr, weight: Expr | None = None, **kwargs: Any) -> Expr:
    """nn.conv2d with a weight of its own; keywords: name, and those of nn.conv2d."""
    name = kwargs.pop("name")
    return relay.nn.conv2d(data, weight if weight is not None else _weight(data, name, "HW", kwargs), **kwargs)


def conv3d(data: Expr, weight: Expr | None = None, **kwargs: Any) -> Expr:
    """nn.conv3d with a weight of its own; keywords: name, and those of nn.conv3d."""
    name = kwargs.pop("name")
    return relay.nn.conv3d(data, weight if weight is not None else _weight(data, name, "DHW", kwargs), **kwargs)


def conv2d_transpose(data: Expr, weight: Expr | None = None, **kwargs: Any) -> Expr:
    """nn.conv2d_transpose with a weight (input channels first) of its own; keywords: name, and the operator's."""
    name = kwargs.pop("name")
    if weight is None:
        weight = _weight(data, name, "HW", {"kernel_layout": "IOHW", **kwargs})
    return relay.nn.conv2d_transpose(data, weight, **kwargs)


def dense(data: Expr, weight: Expr | None = None, *, name: str, units: int | None = None, out_dtype: str = "") -> Expr:
    """nn.dense with a weight of its own, which needs `units`."""
    if weight is None:
        if units is None:
            raise TypeMismatch(f"dense {name}: a layer that makes its weight needs units")
        ty = type_of(data)
        weight = var(f"{name}_weight", shape=(units, ty.static[-1]), dtype=ty.dtype)
    return relay.nn.dense(data, weight, units=units, out_dtype=out_dtype)


def bias_add(data: Expr, name: str, axis: int = 1) -> Expr:
    """nn.bias_add with a bias called `<name>_bias`."""
    ty = type_of(data)
    return relay.nn.bias_add(data, var(f"{name}_bias", shape=(ty.static[axis],), dtype=ty.dtype), axis=axis)


def dense_add_bias(
    data: Expr,
    weight: Expr | None = None,
    bias: Expr | None = None,
    units: int | None = None,
    *,
    name: str,
    out_dtype: str = "",
) -> Expr:
    """dense and bias_add."""
    result = dense(data, weight, units=units, name=name, out_dtype=out_dtype)
    return bias_add(result, name, -1) if bias is None else relay.nn.bias_add(result, bias, axis=-1)


def batch_norm_infer(
    data: Expr,
    gamma: Expr | None = None,
    beta: Expr | None = None,
    moving_mean: Expr | None = None,
    moving_var: Expr | None = None,
    **kwargs: Any,
) -> Expr:
    """The first result of nn.batch_norm, with parameters of its own; keywords: name, and those of the operator."""
    name, axis, ty = kwargs.pop("name"), kwargs.get("axis", 1), type_of(data)
    shape = (ty.static[axis],)
    values = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    g, b, mean, variance = (
        v if v is not None else var(f"{name}_{k}", shape=shape, dtype=ty.dtype) for k, v in values.items()
    )
    return TupleGetItem(relay.nn.batch_norm(data, g, b, mean, variance, **kwargs), 0)
