"""Pooling for Arm Compute Library: operators, means of bytes between casts, and L2 pooling.

In: calls and matches. Out: None or why not, and the nodes nn.*_pool2d. Invariant: data is NHWC and undilated; the node
has the padding as top, left, bottom, right; a mean of bytes is the node of the mean with the bytes' type.
"""

from __future__ import annotations

import functools

import numpy as np

from armillary.offload.graph_json import Kernel, attributes
from armillary.offload.rows import (
    BYTES,
    Composite,
    Simple,
    first,
    four,
    inside,
    is_dtype,
    is_rank,
    is_value,
    name_of,
)
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.pattern import DFPattern, is_constant, is_op, wildcard
from armillary.relay.types import TensorType


def _check_attrs(call: Call) -> str | None:
    attrs = call.attrs
    local = None if name_of(call).startswith("nn.global") else is_value(tuple(attrs.dilation), "dilation", (1, 1))
    layouts = (is_value(attrs.layout, "layout", "NHWC"), is_value(attrs.out_layout, "out_layout", "", "NHWC"))
    return first(*layouts, is_rank(call.args[0], "data", 4), local) or _check_last_window(call)


def _check_last_window(call: Call) -> str | None:
    """The library counts each window that ceil_mode adds, Relay those that begin on the data or before it."""
    attrs, data, result = call.attrs, call.args[0].checked_type, call.checked_type
    if not getattr(attrs, "ceil_mode", False) or not isinstance(data, TensorType) or not isinstance(result, TensorType):
        return None
    top, left, bottom, right = four(attrs.padding)
    for axis, pads, size, step in zip(
        (1, 2), ((top, bottom), (left, right)), attrs.pool_size, attrs.strides, strict=True
    ):
        counted = -(-(data.static[axis] + sum(pads) - size) // step) + 1
        if counted != result.static[axis]:
            return f"ceil_mode: the library counts {counted} windows along axis {axis}, the last one behind the data"
    return None


def check(call: Call, dtypes: tuple[str, ...]) -> str | None:
    """Why a pooling operator is not taken."""
    return first(_check_attrs(call), is_dtype(call.args[0], "data", *dtypes))


def _node(pool: Call, data: Expr, name: str) -> Kernel:
    found = attributes(pool.attrs)
    if "padding" in found:
        found["padding"] = tuple(map(str, four(pool.attrs.padding)))
    return Kernel(name, (data,), found)


def kernel(call: Call) -> Kernel:
    """data"""
    return _node(call, call.args[0], name_of(call))


def _mean() -> DFPattern:
    cast = is_op("cast")(wildcard())
    return is_op("cast")(is_op("nn.avg_pool2d")(cast) | is_op("nn.global_avg_pool2d")(cast))


def _check_mean(root: Expr) -> str | None:
    assert isinstance(root, Call) and isinstance(root.args[0], Call), "the pattern has a pooling between casts"
    pool = root.args[0]
    cast = pool.args[0]
    assert isinstance(cast, Call), "the pattern has a cast"
    dtype = str(getattr(cast.args[0].checked_type, "dtype", ""))
    return first(
        is_dtype(cast.args[0], "data", *BYTES),
        is_dtype(cast, "what is pooled", "int32"),
        is_dtype(root, "the result", dtype),
        _check_attrs(pool),
        "means of bytes that count padding are not in all versions" if _counts_padding(pool) else None,
    )


def _counts_padding(pool: Call) -> bool:
    return bool(getattr(pool.attrs, "count_include_pad", False)) and any(four(pool.attrs.padding))


def _mean_kernel(call: Call) -> Kernel:
    body, outside = inside(call)
    pool = body.args[0]  # type: ignore[attr-defined]
    return _node(pool, outside[id(pool.args[0].args[0])], name_of(pool))


def _l2() -> DFPattern:
    return is_op("sqrt")(is_op("nn.avg_pool2d")(is_op("power")(wildcard(), is_constant())))


def _check_l2(root: Expr) -> str | None:
    pool = root.args[0]  # type: ignore[attr-defined]
    power = pool.args[0]
    exponent = power.args[1]
    assert isinstance(exponent, Constant), "the pattern has a constant"
    squared = None if np.all(exponent.data == 2) else "the exponent is not 2"
    same = None if power.checked_type == power.args[0].checked_type else "the exponent has dimensions of its own"
    return first(squared, same, is_dtype(power.args[0], "data", "float32"), _check_attrs(pool))


def _l2_kernel(call: Call) -> Kernel:
    body, outside = inside(call)
    pool = body.args[0]  # type: ignore[attr-defined]
    return _node(pool, outside[id(pool.args[0].args[0])], "nn.l2_pool2d")


COMPOSITES = (
    Composite("avg_pool2d", _mean, _check_mean, _mean_kernel),
    Composite("l2_pool2d", _l2, _check_l2, _l2_kernel),
)
SIMPLE = tuple(
    Simple(f"nn.{name}_pool2d", functools.partial(check, dtypes=dtypes), kernel)
    for name, dtypes in (
        ("max", ("float32", *BYTES)),
        ("avg", ("float32",)),
        ("global_max", ("float32", *BYTES)),
        ("global_avg", ("float32",)),
    )
)
