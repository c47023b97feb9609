"""Windows over channels-last data, as TensorFlow, TFLite and Keras have them.

In: data (batch, spatial…, channels), weights (spatial…, in, out), strides, padding as a word or in pairs. Out: Relay's
operators. Invariant: "SAME" gives ceil(size / stride) results, and where the margin is odd its larger half is behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.errors import UnsupportedError
from armillary.frontend.values import op, shape_of
from armillary.relay.expr import Expr

Pairs = Sequence[tuple[int, int]]
_DATA = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
_KERNEL = {1: "WIO", 2: "HWIO", 3: "DHWIO"}
_GROUPED = {1: "WOI", 2: "HWOI", 3: "DHWOI"}


def same_padding(sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]) -> Pairs:
    """What "SAME" puts before and behind each axis; windows are as wide as dilation makes them."""
    rows = zip(sizes, windows, strides, strict=True)
    totals = [max((-(-size // stride) - 1) * stride + taps - size, 0) for size, taps, stride in rows]
    return [(total // 2, total - total // 2) for total in totals]


def pairs_of(
    padding: str | Pairs, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]
) -> tuple[int, ...]:
    """Padding as Relay's windows take it: all that is before, then all that is behind."""
    pairs = padding if not isinstance(padding, str) else None
    if pairs is None:
        pairs = same_padding(sizes, windows, strides) if padding == "SAME" else [(0, 0)] * len(windows)
    return (*(before for before, _ in pairs), *(behind for _, behind in pairs))


def conv(
    x: Expr,
    kernel: Expr,
    strides: Sequence[int],
    padding: str | Pairs,
    dilation: Sequence[int] | None = None,
    quantised: Sequence[Expr] = (),
) -> Expr:
    """A convolution; fewer channels in the weights than in the data are groups.

    `quantised` has zero points and scales of affine integers, whose sums are in int32.
    """
    groups = shape_of(x)[-1] // max(shape_of(kernel)[-2], 1)
    return _windows(x, kernel, strides, padding, dilation, quantised, groups, is_deep=False)


def depthwise(
    x: Expr,
    kernel: Expr,
    strides: Sequence[int],
    padding: str | Pairs,
    dilation: Sequence[int] | None = None,
    quantised: Sequence[Expr] = (),
) -> Expr:
    """A convolution of each channel alone; the kernel is (spatial…, channels x results of each, 1)."""
    return _windows(x, kernel, strides, padding, dilation, quantised, shape_of(x)[-1], is_deep=True)


def _windows(
    x: Expr,
    kernel: Expr,
    strides: Sequence[int],
    padding: str | Pairs,
    dilation: Sequence[int] | None,
    quantised: Sequence[Expr],
    groups: int,
    is_deep: bool,
) -> Expr:
    shape, size = shape_of(x), shape_of(kernel)
    rank = len(shape) - 2
    dilation = dilation or (1,) * rank
    windows = [(taps - 1) * step + 1 for taps, step in zip(size[:rank], dilation, strict=True)]
    return op(
        f"{'qnn' if quantised else 'nn'}.conv{rank}d",
        x,
        kernel,
        *quantised,
        kernel_size=tuple(size[:rank]),
        channels=size[-2] if is_deep else size[-1],
        strides=tuple(strides),
        padding=pairs_of(padding, shape[1:-1], windows, strides),
        dilation=tuple(dilation),
        groups=groups,
        data_layout=_DATA[rank],
        kernel_layout=(_GROUPED if is_deep else _KERNEL)[rank],
    )


def transposed_conv(x: Expr, kernel: Expr, size: Sequence[int], strides: Sequence[int], padding: str) -> Expr:
    """The gradient of a convolution: data of spatial `size` from its results; the kernel is (spatial…, out, in)."""
    shape, taps = shape_of(x), shape_of(kernel)
    rank = len(shape) - 2
    full = [(n - 1) * step + k for n, step, k in zip(shape[1:-1], strides, taps, strict=False)]
    totals = [max(f - n, 0) if padding == "SAME" else 0 for f, n in zip(full, size, strict=True)]
    more = [n - (f - total) for n, f, total in zip(size, full, totals, strict=True)]
    if any(not 0 <= extra < max(step, 1) for extra, step in zip(more, strides, strict=True)):
        raise UnsupportedError(f"a transposed convolution of {list(shape)} to {list(size)}")
    return op(
        f"nn.conv{rank}d_transpose",
        x,
        kernel,
        kernel_size=tuple(taps[:rank]),
        channels=taps[-2],
        strides=tuple(strides),
        padding=(*(total // 2 for total in totals), *(total - total // 2 for total in totals)),
        output_padding=tuple(more),
        data_layout=_DATA[rank],
        kernel_layout=_GROUPED[rank],
    )


def pool(kind: str, x: Expr, window: Sequence[int], strides: Sequence[int], padding: str | Pairs) -> Expr:
    """A pooling, "max" or "avg"; means are of what lies in the image."""
    shape = shape_of(x)
    rank = len(shape) - 2
    return op(
        f"nn.{kind}_pool{rank}d",
        x,
        pool_size=tuple(window),
        strides=tuple(strides),
        padding=pairs_of(padding, shape[1:-1], window, strides),
        layout=_DATA[rank],
    )


def resize(x: Expr, size: Sequence[int], method: str, corners: bool, centres: bool) -> Expr:
    """Images of another size: "nearest_neighbor", "linear" or "cubic"."""
    mode, rounding = "align_corners" if corners else "half_pixel" if centres else "asymmetric", ""
    if method == "nearest_neighbor":
        mode = "tf_half_pixel_for_nn" if centres and not corners else mode
        rounding = "round_prefer_ceil" if corners else "floor"
    return op(
        "image.resize2d",
        x,
        size=tuple(size),
        layout="NHWC",
        method=method,
        coordinate_transformation_mode=mode,
        rounding_method=rounding,
    )
