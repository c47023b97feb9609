"""References of convolutions and poolings, by layout.

In: arrays, strides, paddings as numbers, pairs, "SAME" or "VALID" (`topi/padding.py`). Out: an array. Invariant: one
row of `_CONVOLUTIONS` or `_TRANSPOSED` for each name; the rest is the operator's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary import relay
from armillary.base.aliases import AnyFunction, Array
from armillary.errors import TypeMismatch
from armillary.topi.gradients import pool_back
from armillary.topi.padding import Padding, get_pad_tuple_generic
from armillary.topi.testing.reference import moved, numbers, value_of

Numbers = int | Sequence[int]
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def _convolution(
    a_np: Array,
    w_np: Array,
    stride: Numbers,
    padding: Padding,
    layouts: tuple[str, str],
    groups: int = 1,
    dilation: Numbers = 1,
) -> Array:
    """A convolution in layouts such as ("NHWC", "HWIO")."""
    data, kernel = layouts
    axes = _SPATIAL[len(data) - 2]
    rank = len(axes)
    if data == "HWCN":
        return moved(
            _convolution(moved(a_np, data, "NHWC"), w_np, stride, padding, ("NHWC", kernel), groups), "NHWC", data
        )
    spread = numbers(dilation, rank)
    size = [(w_np.shape[kernel.index(axis)] - 1) * d + 1 for axis, d in zip(axes, spread, strict=True)]
    result: Array = value_of(
        getattr(relay.nn, f"conv{rank}d"),
        [a_np, w_np],
        strides=numbers(stride, rank),
        padding=get_pad_tuple_generic(padding, size),
        dilation=spread,
        groups=groups,
        channels=w_np.shape[kernel.index("O")],
        kernel_size=tuple(w_np.shape[kernel.index(axis)] for axis in axes),
        data_layout=data,
        kernel_layout=kernel,
    )
    return result


def _by_groups(data: str, kernel: str) -> AnyFunction:
    def convolution(a_np: Array, w_np: Array, stride: Numbers, padding: Padding, groups: int = 1) -> Array:
        return _convolution(a_np, w_np, stride, padding, (data, kernel), groups)

    convolution.__doc__ = f"The convolution of {data} and {kernel}."
    return convolution


def group_conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Numbers, padding: Padding, dilation: Numbers, groups: int = 1
) -> Array:
    """The convolution of NCW and OIW."""
    return _convolution(a_np, w_np, stride, padding, ("NCW", "OIW"), groups, dilation)


def _transposed(data: str, kernel: str) -> AnyFunction:
    axes = data[2:]
    rank = len(axes)

    def convolution(
        a_np: Array, w_np: Array, stride: Numbers, padding: Padding, output_padding: Numbers = 0, groups: int = 1
    ) -> Array:
        size = w_np.shape[2:]
        result: Array = value_of(
            getattr(relay.nn, f"conv{rank}d_transpose"),
            [a_np, w_np],
            strides=numbers(stride, rank),
            padding=get_pad_tuple_generic(padding, size),
            output_padding=numbers(output_padding, rank),
            groups=groups,
            channels=w_np.shape[1] * groups,
            kernel_size=tuple(size),
            data_layout=data,
            kernel_layout=kernel,
        )
        return result

    convolution.__doc__ = f"The transposed convolution of {data} and {kernel}."
    return convolution


_NCHW_TRANSPOSED = _transposed("NCHW", "IOHW")


def conv2d_transpose_nhwc_python(
    a_nhwc: Array,
    weight: Array,
    weight_format: str,
    stride: Numbers,
    padding: Padding,
    output_padding: Numbers = 0,
) -> Array:
    """The transposed convolution of NHWC; the letters of `weight_format` are its own: HWIO, HWOI, OIHW or IOHW."""
    if sorted(weight_format) != sorted("HWIO"):
        message = f"conv2d_transpose_nhwc_python: the weight's layout is {weight_format!r}"
        raise TypeMismatch(message, hint="HWIO, HWOI, OIHW or IOHW")
    data, kernel = moved(a_nhwc, "NHWC", "NCHW"), moved(weight, weight_format, "IOHW")
    output: Array = _NCHW_TRANSPOSED(data, kernel, stride, padding, output_padding)
    return moved(output, "NCHW", "NHWC")


def _depthwise(layout: str, kernel: str) -> AnyFunction:
    def convolution(input_np: Array, filter_np: Array, stride: Numbers, padding: Padding) -> Array:
        data, weight = moved(input_np, layout, "NCHW"), moved(filter_np, kernel, "CMHW")
        channels, copies, *size = weight.shape
        steps = numbers(stride, 2)
        if padding == "SAME":  # as many results as steps begin inside the image
            padding = _same(data.shape[2:], size, steps)
        spread = weight.reshape(channels * copies, 1, *size)
        output = _convolution(data, spread, steps, padding, ("NCHW", "OIHW"), channels)
        return moved(output, "NCHW", layout)

    convolution.__doc__ = f"The depthwise convolution of {layout} and {kernel} (M: results of a channel)."
    return convolution


def _same(image: Sequence[int], size: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    totals = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(image, size, steps, strict=True)]
    before = [(t + 1) // 2 for t in totals]
    return (*before, *(t - low for t, low in zip(totals, before, strict=True)))


def depthwise_conv2d_python_nchwc(input_np: Array, filter_np: Array, stride: Numbers, padding: Padding) -> Array:
    """The depthwise convolution of NCHW[x]c and [O/y]1HW1[y]o; its result is in blocks of y."""
    n, blocks, h, w, lanes = input_np.shape
    outer, one, kh, kw, _, inner = filter_np.shape
    data = input_np.transpose(0, 1, 4, 2, 3).reshape(n, blocks * lanes, h, w)
    weight = filter_np.transpose(0, 5, 1, 4, 2, 3).reshape(outer * inner * one, 1, kh, kw)
    grouped = weight.reshape(blocks * lanes, -1, kh, kw)
    output = _depthwise("NCHW", "CMHW")(data, grouped, stride, padding)
    return np.asarray(output).reshape(n, outer, inner, *output.shape[2:]).transpose(0, 1, 3, 4, 2)


def _deformable(layout: str, kernel: str) -> AnyFunction:
    def convolution(
        a_np: Array,
        offset_np: Array,
        w_np: Array,
        stride: Numbers,
        padding: Padding,
        dilation: Numbers,
        deformable_groups: int,
        groups: int,
    ) -> Array:
        weight = moved(w_np, kernel, "OIHW")
        spread = numbers(dilation, 2)
        size = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], spread, strict=True)]
        output: Array = value_of(
            relay.nn.deformable_conv2d,
            [moved(a_np, layout, "NCHW"), moved(offset_np, layout, "NCHW"), weight],
            strides=numbers(stride, 2),
            padding=get_pad_tuple_generic(padding, size),
            dilation=spread,
            deformable_groups=deformable_groups,
            groups=groups,
            channels=weight.shape[0],
            kernel_size=tuple(weight.shape[2:]),
        )
        return moved(output, "NCHW", layout)

    convolution.__doc__ = f"The deformable convolution of {layout} and {kernel}."
    return convolution


def conv2d_backward_weight_python(
    dy_np: Array,
    x_np: Array,
    kernel_size: Sequence[int],
    stride: Numbers,
    padding: Padding,
    layout: str = "NCHW",
    groups: int = 1,
    channels: int | None = None,
) -> Array:
    """The gradient of a convolution by its weight, OIHW or, of NHWC, OHWI."""
    result: Array = value_of(
        relay.nn.conv2d_backward_weight,
        [moved(dy_np, layout, "NCHW"), moved(x_np, layout, "NCHW")],
        strides=numbers(stride, 2),
        padding=get_pad_tuple_generic(padding, kernel_size),
        groups=groups,
        channels=channels,
        kernel_size=tuple(kernel_size),
    )
    return result if layout == "NCHW" else moved(result, "OIHW", "OHWI")


def poolnd_python(
    np_data: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding_before: Sequence[int],
    padding_after: Sequence[int],
    pool_type: str,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    dtype: str = "float32",
    layout: str | None = None,
) -> Array:
    """The largest ("max") or the mean ("avg") of windows over the axes behind N and C, or as `layout` says."""
    rank = len(kernel)
    named: dict[str, object] = {"count_include_pad": count_include_pad} if pool_type == "avg" else {}
    output: Array = value_of(
        getattr(relay.nn, f"{pool_type}_pool{rank}d"),
        [np_data],
        pool_size=tuple(kernel),
        strides=tuple(strides),
        dilation=tuple(dilation),
        padding=(*padding_before, *padding_after),
        ceil_mode=ceil_mode,
        layout=layout or f"NC{_SPATIAL[rank]}",
        **named,
    )
    return output.astype(dtype)


def adaptive_pool(np_data: Array, out_size: Numbers, pool_type: str, layout: str) -> Array:
    """A pooling to a size."""
    rank = len(layout) - 2
    name = f"adaptive_{pool_type}_pool{rank}d"
    return np.asarray(value_of(getattr(relay.nn, name), [np_data], output_size=numbers(out_size, rank), layout=layout))


def pool_grad_nchw(
    a_np: Array,
    out_grad_np: Array,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool,
    count_include_pad: bool = True,
) -> Array:
    """The gradient of a pooling's input."""
    rest = (pool_size, strides, padding, pool_type, ceil_mode, "NCHW", count_include_pad)
    return np.asarray(value_of(lambda g, d: pool_back(g, d, *rest), [out_grad_np, a_np]))


FUNCTIONS: dict[str, AnyFunction] = {
    "conv1d_ncw_python": group_conv1d_ncw_python,
    "group_conv1d_ncw_python": group_conv1d_ncw_python,
    "conv2d_nchw_python": _by_groups("NCHW", "OIHW"),
    "conv2d_nhwc_python": _by_groups("NHWC", "HWIO"),
    "conv2d_hwcn_python": _by_groups("HWCN", "HWIO"),
    "conv3d_ncdhw_python": _by_groups("NCDHW", "OIDHW"),
    "conv3d_ndhwc_python": _by_groups("NDHWC", "DHWIO"),
    "conv1d_transpose_ncw_python": _transposed("NCW", "IOW"),
    "group_conv1d_transpose_ncw_python": _transposed("NCW", "IOW"),
    "conv2d_transpose_nchw_python": _NCHW_TRANSPOSED,
    "conv2d_transpose_nhwc_python": conv2d_transpose_nhwc_python,
    "conv3d_transpose_ncdhw_python": _transposed("NCDHW", "IODHW"),
    "depthwise_conv2d_python_nchw": _depthwise("NCHW", "CMHW"),
    "depthwise_conv2d_python_nhwc": _depthwise("NHWC", "HWCM"),
    "depthwise_conv2d_python_nchwc": depthwise_conv2d_python_nchwc,
    "deformable_conv2d_nchw_python": _deformable("NCHW", "OIHW"),
    "deformable_conv2d_nhwc_python": _deformable("NHWC", "HWIO"),
    "conv2d_backward_weight_python": conv2d_backward_weight_python,
    "pool_grad_nchw": pool_grad_nchw,
    "poolnd_python": poolnd_python,
    "adaptive_pool": adaptive_pool,
}
