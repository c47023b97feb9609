"""Pooling for Arm Compute Library: operators, means of bytes between casts, and L2 pooling.

In: calls and matches. Out: None or why not, and the nodes nn.*_pool2d. Invariant: data is NHWC and undilated; the node
has the padding as top, left, bottom, right; a mean of bytes is the node of the mean with the bytes' type, which rounds
where integers of Relay are cut.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from armillary.ir import IRModule
from armillary.offload.graph_json import Kernel, attributes
from armillary.offload.rows import (
    BYTES,
    Composite,
    Simple,
    first,
    four,
    inside,
    is_dtype,
    is_per_tensor,
    is_rank,
    is_value,
    name_of,
    tensor,
)
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.pattern import DFPattern, is_constant, is_op, wildcard
from armillary.relay.transform._rules import call, rewrite_module
from armillary.relay.types import TensorType
from armillary.transform import Pass, PassInfo


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
    settings = attributes(pool.attrs)
    if "padding" in settings:
        settings["padding"] = tuple(map(str, four(pool.attrs.padding)))
    return Kernel(name, (data,), settings)


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


def check_quantized(call: Call) -> str | None:
    """Why a mean between dequantize and quantize is not taken."""
    names = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")
    wrong = first(
        is_dtype(call.args[0], "data", *BYTES),
        _check_attrs(call),
        *(is_per_tensor(value, name) for value, name in zip(call.args[1:], names, strict=True)),
        "means of bytes that count padding are not in all versions" if _counts_padding(call) else None,
    )
    return wrong or ("" if _keeps_steps(call.args[1:]) else "the result has other steps than the data") or None


def _keeps_steps(parameters: Sequence[Expr]) -> bool:
    """Whether scale and zero point of the data are those of the result."""
    numbers = [value.data.item() for value in parameters if isinstance(value, Constant) and value.data.size == 1]
    return len(numbers) == 4 and numbers[:2] == numbers[2:]


def quantized_kernel(call: Call) -> Kernel:
    """data"""
    return _node(call, call.args[0], "nn.avg_pool2d")


def _as_window(expr: Expr) -> Expr | None:
    """A mean of whole images between bytes of the same steps is one of windows, which stay bytes.

    qnn.quantize(nn.global_avg_pool2d(qnn.dequantize(x, s, z)), s, z)  ->  … nn.avg_pool2d(…, pool_size=[h, w]) …
    """
    mean = expr.args[0] if isinstance(expr, Call) and name_of(expr) == "qnn.quantize" else None
    source = mean.args[0] if isinstance(mean, Call) and name_of(mean) == "nn.global_avg_pool2d" else None
    if not isinstance(expr, Call) or not isinstance(mean, Call) or not isinstance(source, Call):
        return None
    ty = tensor(source)
    if name_of(source) != "qnn.dequantize" or ty is None or not _keeps_steps((*source.args[1:], *expr.args[1:])):
        return None
    size = tuple(ty.static[mean.attrs.layout.index(axis)] for axis in "HW")
    pool = call("nn.avg_pool2d", source, pool_size=size, layout=mean.attrs.layout)
    return Call(expr.op, (pool, *expr.args[1:]), expr.attrs, expr.span)


def _windows(module: IRModule) -> IRModule:
    return rewrite_module(module, _as_window)


GLOBAL_MEANS_AS_WINDOWS = Pass(_windows, PassInfo("GlobalMeansAsWindows", "GlobalMeansAsWindows", 0, ()))
COMPOSITES = (
    Composite("avg_pool2d", _mean, _check_mean, _mean_kernel),
    Composite("l2_pool2d", _l2, _check_l2, _l2_kernel),
)
SIMPLE = (
    Simple("qnn.avg_pool2d", check_quantized, quantized_kernel),
    *(
        Simple(f"nn.{name}_pool2d", functools.partial(check, dtypes=dtypes), kernel)
        for name, dtypes in (
            ("max", ("float32", *BYTES)),
            ("avg", ("float32",)),
            ("global_max", ("float32", *BYTES)),
            ("global_avg", ("float32",)),
        )
    ),
)
