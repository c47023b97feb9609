"""Functions of topi whose arguments are in another order than the operator's attributes.

In: tensors and attributes as old scripts pass them. Out: TE tensors. Invariant: each function only reorders and names
arguments; the computation is the operator's. `FUNCTIONS` maps the name, with its module before a dot, to the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary import te
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.relay.op import OPS
from armillary.tir import build as T
from armillary.topi.operators import compute
from armillary.topi.utils import get_const_tuple

Tensor = te.Tensor
Pair = int | Sequence[int]


def _pair(value: Pair) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)


def conv2d(
    data: Tensor, kernel: Tensor, strides: Pair, padding: Any, dilation: Pair, data_layout: str = "NCHW",
    kernel_layout: str = "", out_dtype: str | None = None,
) -> Any:  # fmt: skip
    """`topi.nn.conv2d`."""
    shape = get_const_tuple(kernel.shape)
    layout = kernel_layout or {"NCHW": "OIHW", "NHWC": "HWIO", "HWCN": "HWIO"}.get(data_layout, "OIHW")
    size = tuple(shape[layout.index(axis)] for axis in "HW")
    named = {
        "strides": _pair(strides), "padding": padding if isinstance(padding, int) else tuple(padding),
        "dilation": _pair(dilation), "channels": shape[layout.index("O")], "kernel_size": size,
        "data_layout": data_layout, "kernel_layout": layout, "out_dtype": out_dtype or "",
    }  # fmt: skip
    return _with_known(("nn.conv2d"), [data, kernel], named)


def depthwise_conv2d_nchw(
    data: Tensor, kernel: Tensor, stride: Pair, padding: Any, dilation: Pair, out_dtype: str | None = None
) -> Any:
    """`topi.nn.depthwise_conv2d_nchw`: a filter of (channels, multiplier, height, width)."""
    channels, multiplier, *size = get_const_tuple(kernel.shape)
    flat = te.compute(
        (channels * multiplier, 1, *size), lambda o, i, h, w: kernel(o // multiplier, o % multiplier + i * 0, h, w),
        name="kernel", tag="injective",
    )  # fmt: skip
    named = {
        "strides": _pair(stride), "padding": padding, "dilation": _pair(dilation), "groups": channels,
        "channels": channels * multiplier, "kernel_size": tuple(size), "out_dtype": out_dtype or "",
    }  # fmt: skip
    return _with_known("nn.conv2d", [data, flat], named)


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None, **options: Any
) -> Any:
    """`topi.nn.dense`."""
    _only_defaults("nn.dense", options)
    product = _with_known("nn.dense", [data, weight], {"out_dtype": out_dtype or ""})
    return product if bias is None else compute("add", [product, bias])


def pool2d(
    data: Tensor, kernel: Pair, stride: Pair, dilation: Pair, padding: Any, pool_type: str, ceil_mode: bool = False,
    layout: str = "NCHW", count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """`topi.nn.pool2d`."""
    named: dict[str, Any] = {
        "pool_size": _pair(kernel), "strides": _pair(stride), "dilation": _pair(dilation), "padding": tuple(padding),
        "layout": layout, "ceil_mode": ceil_mode,
    }  # fmt: skip
    if pool_type == "avg":
        named["count_include_pad"] = count_include_pad
    return _with_known(f"nn.{pool_type}_pool2d", [data], named)


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Any:
    """`topi.nn.global_pool`."""
    return _with_known(f"nn.global_{pool_type}_pool2d", [data], {"layout": layout})


def leaky_relu(data: Tensor, alpha: float) -> Any:
    """`topi.nn.leaky_relu`."""
    return compute("nn.leaky_relu", [data], (), {"alpha": alpha})


def flatten(data: Tensor) -> Any:
    """`topi.nn.flatten`: all axes behind the first as one."""
    return compute("nn.batch_flatten", [data])


def scale_shift_nchw(data: Tensor, scale: Tensor, shift: Tensor) -> Any:
    """`topi.nn.scale_shift_nchw`."""

    def element(b: Any, c: Any, h: Any, w: Any) -> Any:
        return data(b, c, h, w) * scale(c) + shift(c)

    return te.compute(data.shape, element, name="scale_shift", tag="broadcast")


def pad(
    data: Tensor, pad_before: Sequence[Any], pad_after: Sequence[Any] | None = None, pad_value: Any = 0.0,
    name: str = "pad", **options: Any,
) -> Any:  # fmt: skip
    """`topi.nn.pad`: elements before and after each axis."""
    _only_defaults("nn.pad", {k: v for k, v in options.items() if k != "attrs"})
    after = pad_before if pad_after is None else pad_after
    shape = [extent + low + high for extent, low, high in zip(data.shape, pad_before, after, strict=True)]
    value = T.cast(pad_value, str(data.dtype))

    def element(*axes: Any) -> Any:
        inside, where = [], []
        for axis, low, extent in zip(axes, pad_before, data.shape, strict=True):
            where.append(axis - low)
            inside += [axis >= low, axis < extent + low]
        return te.if_then_else(T.all_of(*inside), data(*where), value)

    return te.compute(tuple(shape), element, name=name, tag="injective,pad")


def matmul(a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False) -> Any:
    """`topi.matmul`."""
    return _with_known("nn.matmul", [a, b], {"transpose_a": transp_a, "transpose_b": transp_b})


def take(a: Tensor, indices: Tensor, axis: int | None = None, batch_dims: int = 0, mode: str = "clip") -> Any:
    """`topi.take`."""
    return compute("take", [a, indices], (), {"axis": axis, "batch_dims": batch_dims, "mode": mode})


def full(shape: Sequence[Any], dtype: str, fill_value: Any) -> Any:
    """`topi.full`."""
    return te.compute(tuple(shape), lambda *_: T.const(fill_value, dtype), name="full", tag="elemwise")


def full_like(x: Tensor, fill_value: Any) -> Any:
    """`topi.full_like`."""
    return full(x.shape, str(x.dtype), fill_value)


def zeros_like(x: Tensor) -> Any:
    """`topi.zeros_like`."""
    return full_like(x, 0)


def elemwise_sum(xs: Sequence[Tensor]) -> Any:
    """`topi.elemwise_sum`: the sum of tensors of one shape."""
    if not xs:
        raise TypeMismatch("topi.elemwise_sum needs at least one tensor")
    total = xs[0]
    for x in xs[1:]:
        total = compute("add", [total, x])
    return total


def _reduction(operator: str) -> Callable[..., Any]:
    def reduce(data: Tensor, axis: Any = None, keepdims: bool = False, **options: Any) -> Any:
        return compute(operator, [data], (), {"axis": axis, "keepdims": keepdims, **options})

    reduce.__name__ = operator
    reduce.__doc__ = f"`topi.{operator}`: over `axis` (all, if None)."
    return reduce


def _only_defaults(name: str, options: dict[str, Any]) -> None:
    wrong = sorted(key for key, value in options.items() if value not in (None, False, ""))
    if wrong:
        raise UnsupportedError(f"topi.{name}: the option {wrong[0]!r} is not supported here")


def _with_known(operator: str, tensors: Sequence[Any], named: dict[str, Any]) -> Any:
    """Attributes that the operator does not have are left out where they are empty."""
    op = OPS[operator]
    fields = getattr(op.attrs_class, "__dataclass_fields__", {})
    return compute(op, tensors, (), {k: v for k, v in named.items() if k in fields})


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "elemwise_sum": elemwise_sum, "full": full, "full_like": full_like, "matmul": matmul, "take": take,
    "zeros_like": zeros_like, "nn.conv2d": conv2d, "nn.dense": dense, "nn.depthwise_conv2d_nchw": depthwise_conv2d_nchw,
    "nn.flatten": flatten, "nn.global_pool": global_pool, "nn.leaky_relu": leaky_relu, "nn.pad": pad,
    "nn.pool2d": pool2d, "nn.scale_shift_nchw": scale_shift_nchw,
    "nn.conv2d_nchw": lambda a, w, s, p, d, out_dtype=None: conv2d(a, w, s, p, d, "NCHW", "", out_dtype),
    "nn.conv2d_nhwc": lambda a, w, s, p, d, out_dtype="float32": conv2d(a, w, s, p, d, "NHWC", "", out_dtype),
    **{name: _reduction(name) for name in ("sum", "max", "min", "prod", "all", "any", "argmax", "argmin")},
}  # fmt: skip
