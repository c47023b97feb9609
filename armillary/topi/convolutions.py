"""Convolutions by layout: `topi.nn.conv2d_nhwc(data, kernel, stride, padding, dilation, out_dtype)` and its kin.

In: tensors, and attributes in each function's own order. Out: what `nn.conv*` computes of them. Invariant: one row of
`_FORWARD` or `_TRANSPOSED` for each name: the operator and the layouts of data and weight; nothing else differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from armillary import te
from armillary.errors import UnsupportedError
from armillary.topi.operators import single
from armillary.topi.padding import Padding, get_pad_tuple_generic
from armillary.topi.utils import get_const_tuple

Tensor = te.Tensor
Function = Callable[..., Tensor]
Numbers = int | Sequence[int]
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_FORWARD = {  # name: rank, layouts
    "conv1d_ncw": (1, "NCW", "OIW"),
    "conv1d_nwc": (1, "NWC", "WIO"),
    "conv2d_nchw": (2, "NCHW", "OIHW"),
    "conv2d_nhwc": (2, "NHWC", "HWIO"),
    "conv2d_hwcn": (2, "HWCN", "HWIO"),
    "conv3d_ncdhw": (3, "NCDHW", "OIDHW"),
    "conv3d_ndhwc": (3, "NDHWC", "DHWIO"),
}
_TRANSPOSED = {
    "conv1d_transpose_ncw": (1, "NCW", "IOW"),
    "conv2d_transpose_nchw": (2, "NCHW", "IOHW"),
    "conv3d_transpose_ncdhw": (3, "NCDHW", "IODHW"),
}


def per_axis(value: Numbers, rank: int) -> tuple[int, ...]:
    """One number for each of `rank` axes, from such numbers or one for all."""
    values = (value,) if isinstance(value, int) else get_const_tuple(value)
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def convolution(
    rank: int,
    data: Tensor,
    kernel: Tensor,
    strides: Numbers,
    padding: Padding,
    dilation: Numbers,
    data_layout: str,
    kernel_layout: str,
    out_dtype: str | None,
    groups: int = 1,
) -> Tensor:
    """A convolution of any layout; its padding may be "SAME" or "VALID"."""
    shape, steps = get_const_tuple(kernel.shape), per_axis(dilation, rank)
    size = tuple(shape[kernel_layout.index(axis)] for axis in _SPATIAL[rank])
    span = [(k - 1) * d + 1 for k, d in zip(size, steps, strict=True)]
    named = {
        "strides": per_axis(strides, rank),
        "padding": get_pad_tuple_generic(padding, span),
        "dilation": steps,
        "groups": groups,
        "channels": shape[kernel_layout.index("O")],
        "kernel_size": size,
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
        "out_dtype": _result(out_dtype, data),
    }
    return single(f"nn.conv{rank}d", [data, kernel], named)


def _result(out_dtype: str | None, data: Tensor) -> str:
    return str(out_dtype) if out_dtype is not None and str(out_dtype) not in ("", str(data.dtype)) else ""


def _forward(name: str, grouped: bool) -> Function:
    rank, data_layout, kernel_layout = _FORWARD[name]

    def plain(
        data: Tensor,
        kernel: Tensor,
        strides: Numbers = 1,
        padding: Padding = "VALID",
        dilation: Numbers = 1,
        out_dtype: str | None = None,
        *,
        groups: int = 1,
        **options: object,
    ) -> Tensor:
        groups = int(groups)
        if isinstance(out_dtype, int):  # conv3d takes groups before the result's type
            groups, out_dtype = out_dtype, None
        _only_layouts(name, options)
        return convolution(
            rank, data, kernel, strides, padding, dilation, data_layout, kernel_layout, out_dtype, groups
        )

    def of_groups(
        data: Tensor,
        kernel: Tensor,
        strides: Numbers,
        padding: Padding,
        dilation: Numbers,
        groups: int,
        out_dtype: str | None = None,
    ) -> Tensor:
        return convolution(
            rank, data, kernel, strides, padding, dilation, data_layout, kernel_layout, out_dtype, groups
        )

    def with_groups(
        data: Tensor,
        kernel: Tensor,
        strides: Numbers,
        padding: Padding,
        dilation: Numbers,
        groups: int = 1,
        out_dtype: str | None = None,
    ) -> Tensor:
        return of_groups(data, kernel, strides, padding, dilation, groups, out_dtype)

    return of_groups if grouped else with_groups if rank == 3 else plain


def _transposed(name: str, grouped: bool) -> Function:
    rank, data_layout, kernel_layout = _TRANSPOSED[name]

    def apply(
        data: Tensor,
        kernel: Tensor,
        strides: Numbers,
        padding: Padding,
        out_dtype: str | None,
        output_padding: Numbers,
        groups: int = 1,
    ) -> Tensor:
        shape = get_const_tuple(kernel.shape)
        size = shape[2:]
        named = {
            "strides": per_axis(strides, rank),
            "padding": get_pad_tuple_generic(padding, size),
            "output_padding": per_axis(output_padding, rank),
            "groups": groups,
            "channels": shape[1] * groups,
            "kernel_size": size,
            "data_layout": data_layout,
            "kernel_layout": kernel_layout,
            "out_dtype": _result(out_dtype, data),
        }
        return single(f"nn.conv{rank}d_transpose", [data, kernel], named)

    if grouped:
        return apply
    return lambda data, kernel, strides, padding, out_dtype=None, output_padding=0: apply(
        data, kernel, strides, padding, out_dtype, output_padding
    )


def conv2d(
    data: Tensor,
    kernel: Tensor,
    strides: Numbers,
    padding: Padding,
    dilation: Numbers,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """`topi.nn.conv2d`."""
    letters = kernel_layout or {"NCHW": "OIHW", "NHWC": "HWIO", "HWCN": "HWIO"}.get(data_layout, "OIHW")
    return convolution(2, data, kernel, strides, padding, dilation, data_layout, letters, out_dtype)


def conv1d(
    data: Tensor,
    kernel: Tensor,
    strides: Numbers = 1,
    padding: Padding = "VALID",
    dilation: Numbers = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """`topi.nn.conv1d`."""
    letters = kernel_layout or ("OIW" if data_layout == "NCW" else "WIO")
    return convolution(1, data, kernel, strides, padding, dilation, data_layout, letters, out_dtype, groups)


def depthwise_conv2d_nchw(
    data: Tensor, kernel: Tensor, stride: Numbers, padding: Padding, dilation: Numbers, out_dtype: str | None = None
) -> Tensor:
    """`topi.nn.depthwise_conv2d_nchw`: a filter of (channels, multiplier, height, width)."""
    channels, multiplier, *size = get_const_tuple(kernel.shape)
    flat = te.compute(
        (channels * multiplier, 1, *size),
        lambda o, i, h, w: kernel(o // multiplier, o % multiplier + i * 0, h, w),
        name="kernel",
        tag="injective",
    )
    return convolution(2, data, flat, stride, padding, dilation, "NCHW", "OIHW", out_dtype, channels)


def depthwise_conv2d_nhwc(
    data: Tensor,
    kernel: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    kernel_layout: str = "HWOI",
    out_dtype: str | None = None,
) -> Tensor:
    """`topi.nn.depthwise_conv2d_nhwc`: a filter of (height, width, channels, multiplier)."""
    if kernel_layout not in ("HWOI", "HWIO"):  # the type of the result stood here
        kernel_layout, out_dtype = "HWOI", kernel_layout
    height, width, *last = get_const_tuple(kernel.shape)
    channels, multiplier = last if kernel_layout == "HWOI" else last[::-1]

    def element(h: te.Expr, w: te.Expr, i: te.Expr, o: te.Expr) -> te.Expr:
        at = (o // multiplier, o % multiplier + i * 0)
        return kernel(h, w, *(at if kernel_layout == "HWOI" else at[::-1]))

    flat = te.compute((height, width, 1, channels * multiplier), element, name="kernel", tag="injective")
    return convolution(2, data, flat, stride, padding, dilation, "NHWC", "HWIO", out_dtype, channels)


def blocked(
    data: Tensor,
    kernel: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    layout: str,
    out_layout: str,
    out_dtype: str | None = None,
) -> Tensor:
    """`topi.nn.conv2d_NCHWc`: data and weight in blocks of channels."""
    return _in_blocks(data, kernel, stride, padding, dilation, out_layout, out_dtype, depthwise=False)


def blocked_depthwise(
    data: Tensor,
    kernel: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    layout: str,
    out_layout: str,
    out_dtype: str | None = None,
) -> Tensor:
    """`topi.nn.depthwise_conv2d_NCHWc`."""
    return _in_blocks(data, kernel, stride, padding, dilation, out_layout, out_dtype, depthwise=True)


def _in_blocks(
    data: Tensor,
    kernel: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_layout: str,
    out_dtype: str | None,
    depthwise: bool,
) -> Tensor:
    """Whole channels for the operator, and blocks of its result again; copies are inlined into it."""
    n, chunks, height, width, block = get_const_tuple(data.shape)
    outer, inner, rows, columns, i_block, o_block = get_const_tuple(kernel.shape)[:6]
    if len(kernel.shape) != 6:
        raise UnsupportedError(f"a weight of {len(kernel.shape)} axes is not taken here", hint="OIHWio has six")
    plain = te.compute(
        (n, chunks * block, height, width),
        lambda b, c, h, w: data(b, c // block, h, w, c % block),
        name="data",
        tag="injective",
    )
    flat = te.compute(
        (outer * o_block, inner * i_block, rows, columns),
        lambda o, i, h, w: kernel(o // o_block, i // i_block, h, w, i % i_block, o % o_block),
        name="kernel",
        tag="injective",
    )
    groups = chunks * block if depthwise else chunks * block // (inner * i_block)
    convolved = convolution(2, plain, flat, stride, padding, dilation, "NCHW", "OIHW", out_dtype, groups)
    match = re.search(r"(\d+)c", str(out_layout))
    lanes = int(match[1]) if match else o_block
    _, channels, height, width = get_const_tuple(convolved.shape)
    return te.compute(
        (n, channels // lanes, height, width, lanes),
        lambda b, c, h, w, l: convolved(b, c * lanes + l, h, w),  # noqa: E741
        name="blocks",
        tag="injective",
    )


def _only_layouts(name: str, options: Mapping[str, object]) -> None:
    wrong = sorted(set(options) - {"data_layout", "kernel_layout", "auto_scheduler_rewritten_layout"})
    if wrong:
        raise UnsupportedError(f"topi.nn.{name}: the option {wrong[0]!r} is not supported here")


FUNCTIONS: dict[str, Function] = {
    **{f"nn.{name}": _forward(name, grouped=False) for name in _FORWARD},
    **{f"nn.group_{name}": _forward(name, grouped=True) for name in _FORWARD},
    **{f"nn.{name}": _transposed(name, grouped=False) for name in _TRANSPOSED},
    **{f"nn.group_{name}": _transposed(name, grouped=True) for name in _TRANSPOSED},
    "nn.conv2d": conv2d,
    "nn.conv1d": conv1d,
    "nn.conv2d_winograd_nhwc": _forward("conv2d_nhwc", grouped=False),
    "nn.conv2d_winograd_nchw": _forward("conv2d_nchw", grouped=False),
    "nn.depthwise_conv2d_nchw": depthwise_conv2d_nchw,
    "nn.depthwise_conv2d_nhwc": depthwise_conv2d_nhwc,
    "nn.conv2d_NCHWc_int8": blocked,
    "nn.conv2d_NCHWc": blocked,
    "nn.depthwise_conv2d_NCHWc": blocked_depthwise,
}
