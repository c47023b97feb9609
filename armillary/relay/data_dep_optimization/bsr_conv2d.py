"""Convolutions whose weights are mostly zero, as blocks: `bsr_conv2d.convert(func, params, (16, 1), 0.8, "NCHW")`.

In: a function, its parameters, the size of a block, the least part of zeros, the layout of the data. Out: both, with
`nn.sparse_conv2d` for convolutions by 1x1 or 3x3 with stride 1 that keep the image's size and have so many zeros.
Invariant: the results are the same; other convolutions stay.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.errors import TypeMismatch
from armillary.ops.misc.sparse import sparse_conv2d
from armillary.ops.nn._windows import pad_pairs
from armillary.ops.nn.conv import conv2d
from armillary.relay.data_dep_optimization._parameters import New, Params, rewritten
from armillary.relay.data_dep_optimization.bsr_dense import blocks_of, named
from armillary.relay.expr import Call, Expr, Function

_KERNELS = {"NHWC": "HWIO", "NCHW": "OIHW"}
_SIZES = (1, 3)


@boundary("bsr_conv2d.convert", arguments=True)
def convert(
    func: Function,
    params: Params,
    blocksize: tuple[int, int],
    sparsity_threshold: float,
    layout: str = "NHWC",
    kernel_size: int = 1,
) -> tuple[Function, dict[str, Array]]:
    """The function with sparse convolutions whose kernels are `kernel_size` wide and high."""
    return convert2(func, params, blocksize, sparsity_threshold, layout, kernel_size)


@boundary("bsr_conv2d.convert2", arguments=True)
def convert2(
    func: Function,
    params: Params,
    blocksize: tuple[int, int],
    sparsity_threshold: float,
    layout: str,
    kernel_size: int,
    filter_func: Callable[[Call], bool] | None = None,
) -> tuple[Function, dict[str, Array]]:
    """The same; `filter_func(call)` says which convolutions are asked for."""
    if layout not in _KERNELS or kernel_size not in _SIZES:
        message = f"bsr_conv2d: layout {layout!r} and kernel size {kernel_size}"
        raise TypeMismatch(f"{message}, wanted one of {', '.join(_KERNELS)} and 1 or 3")

    def rule(call: Call, weight: Array, new: New) -> Expr | None:
        if not _fits(call, layout, kernel_size) or (filter_func is not None and not filter_func(call)):
            return None
        rows = weight.reshape(len(weight), -1) if layout == "NCHW" else weight.reshape(-1, weight.shape[-1]).T
        blocks = blocks_of(np.ascontiguousarray(rows), blocksize, sparsity_threshold)
        return None if blocks is None else sparse_conv2d(call.args[0], *named(blocks, new), layout, kernel_size)

    return rewritten("bsr_conv2d.convert", func, params, (conv2d.name,), rule)


def _fits(call: Call, layout: str, size: int) -> bool:
    """Whether a convolution has that layout and window, and each place of the image gives one of the result."""
    attrs = call.attrs
    is_plain = attrs.groups == 1 and tuple(attrs.strides) == (1, 1) and tuple(attrs.dilation) == (1, 1)
    is_same = attrs.out_layout in ("", layout) and attrs.out_dtype in ("", str(call.args[0].checked_type.dtype))  # type: ignore[attr-defined]
    if not is_plain or not is_same or (attrs.data_layout, attrs.kernel_layout) != (layout, _KERNELS[layout]):
        return False
    shape = call.args[1].checked_type.shape  # type: ignore[attr-defined]
    window = shape[2:] if layout == "NCHW" else shape[:2]
    return tuple(window) == (size, size) and set(pad_pairs(call.op.name, attrs.padding, 2)) == {(size // 2, size // 2)}
