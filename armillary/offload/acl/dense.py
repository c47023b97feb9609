"""Dense layers for Arm Compute Library: nn.dense, bias?, and the same of bytes with requantize.

In: matches of the patterns. Out: None or why not, and the nodes nn.dense and qnn.dense. Invariant: data has two
dimensions, weights (units, inner) are constant, the bias is written as (1, units).
"""

from __future__ import annotations

from armillary.offload.graph_json import Kernel
from armillary.offload.rows import (
    BYTES,
    Composite,
    first,
    inside,
    is_dtype,
    is_per_tensor,
    is_rank,
    is_value,
    name_of,
    reshaped,
    scalar,
    steps,
    tensor,
)
from armillary.relay.expr import Call, Constant, Expr
from armillary.relay.pattern import DFPattern, is_constant, is_op, wildcard

_AFTER = ("qnn.requantize", "nn.bias_add", "add")


def _parts(root: Expr) -> tuple[Call, Call | None, Call | None]:
    """The dense layer, its bias and its requantize."""
    parts = steps(root, _AFTER)
    expr: Expr = list(parts.values())[-1].args[0] if parts else root
    assert isinstance(expr, Call), "the pattern has a dense layer"
    return expr, parts.get("nn.bias_add", parts.get("add")), parts.get("qnn.requantize")


def _biased(dense: DFPattern) -> DFPattern:
    return dense.optional(lambda p: is_op("nn.bias_add")(p, is_constant()) | is_op("add")(p, is_constant()))


def pattern() -> DFPattern:
    """nn.dense -> bias?"""
    return _biased(is_op("nn.dense")(wildcard(), is_constant()))


def qnn_pattern() -> DFPattern:
    """qnn.dense -> bias? -> qnn.requantize"""
    dense = is_op("qnn.dense")(wildcard(), *[is_constant() for _ in range(5)])
    return is_op("qnn.requantize")(_biased(dense), wildcard(), wildcard(), is_constant(), is_constant())


def _units(dense: Call) -> int:
    ty = tensor(dense.args[1])
    assert ty is not None, "a constant has a known shape"
    return int(ty.static[0])


def _check_bias(dense: Call, bias: Call | None) -> str | None:
    if bias is None:
        return None
    ty, units = tensor(bias.args[1]), _units(dense)
    if ty is None or ty.size != units:
        return f"the bias is not one number for each of {units} units"
    if name_of(bias) == "nn.bias_add":
        return is_value(bias.attrs.axis, "the axis of nn.bias_add", 1, -1)
    return None if ty.static[-1] == units and len(ty.static) <= 2 else "what is added is not along the units"


def check(root: Expr) -> str | None:
    """Why a dense layer of floats is not taken."""
    dense, bias, _ = _parts(root)
    return first(
        is_rank(dense.args[0], "data", 2),
        is_dtype(dense.args[0], "data", "float32"),
        is_dtype(dense.args[1], "weight", "float32"),
        is_value(dense.attrs.out_dtype or "float32", "out_dtype", "float32"),
        _check_bias(dense, bias),
    )


def qnn_check(root: Expr) -> str | None:
    """Why a dense layer of bytes is not taken."""
    dense, bias, requantize = _parts(root)
    assert requantize is not None, "the pattern has it"
    zero, kernel_zero, scale, kernel_scale = dense.args[2:]
    dtype = str(getattr(dense.args[0].checked_type, "dtype", ""))
    return first(
        is_value(str(requantize.attrs.out_dtype), "out_dtype of requantize", *BYTES),
        is_rank(dense.args[0], "data", 2),
        is_dtype(dense.args[0], "data", *BYTES),
        is_dtype(dense.args[1], "weight", dtype),
        is_dtype(root, "the result", dtype),
        is_value(dense.attrs.out_dtype, "out_dtype", "int32"),
        is_per_tensor(zero, "input_zero_point"),
        is_per_tensor(kernel_zero, "kernel_zero_point"),
        is_per_tensor(scale, "input_scale"),
        is_per_tensor(kernel_scale, "kernel_scale"),
        is_per_tensor(requantize.args[3], "output_scale"),
        is_per_tensor(requantize.args[4], "output_zero_point"),
        _check_bias(dense, bias),
    )


def _bias(dense: Call, bias: Call | None) -> tuple[Constant, ...]:
    return () if bias is None else (reshaped(bias.args[1], (1, _units(dense))),)


def _attrs(dense: Call) -> dict[str, tuple[str, ...]]:
    return {"units": (str(_units(dense)),), "out_dtype": (str(dense.attrs.out_dtype),)}


def kernel(call: Call) -> Kernel:
    """data, weight [, bias]"""
    body, outside = inside(call)
    dense, bias, _ = _parts(body)
    return Kernel("nn.dense", (outside[id(dense.args[0])], dense.args[1], *_bias(dense, bias)), _attrs(dense))


def qnn_kernel(call: Call) -> Kernel:
    """data, weight, zero points, scales [, bias], scale and zero point of the result"""
    body, outside = inside(call)
    dense, bias, requantize = _parts(body)
    assert requantize is not None, "the pattern has it"
    zero, kernel_zero, scale, kernel_scale = dense.args[2:]
    into = (
        scalar(zero, "int32"),
        scalar(kernel_zero, "int32"),
        scalar(scale, "float32"),
        scalar(kernel_scale, "float32"),
    )
    out = (scalar(requantize.args[3], "float32"), scalar(requantize.args[4], "int32"))
    inputs = (outside[id(dense.args[0])], dense.args[1], *into, *_bias(dense, bias), *out)
    return Kernel("qnn.dense", inputs, _attrs(dense))


COMPOSITES = (
    Composite("dense", pattern, check, kernel),
    Composite("qnn_dense", qnn_pattern, qnn_check, qnn_kernel),
)
