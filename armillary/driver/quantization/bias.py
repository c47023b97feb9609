"""What rounding moves the mean of a layer's results by, for its bias to take back.

In: a convolution or dense layer of constant weights, its weights and the means of its data, before and after rounding.
Out: what is added to its results, one number for each output channel. Invariant: added, the mean over positions and
inputs is that of the float layer whose data are the float network's; at edges, padding counts as data.

Bias correction (Nagel et al. 2019, Data-Free Quantization Through Weight Equalization and Bias Correction): a weight's
rounding does not average out over the terms of a sum, as data behind a ReLU have means above 0; depthwise layers, of
nine terms, suffer most. The means are those of samples here, not of normalisations, so that what clipping of data
loses is taken back with it.
"""

from __future__ import annotations

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.ops.nn.conv import conv2d
from armillary.ops.nn.dense import dense
from armillary.relay.expr import Call
from armillary.relay.types import TensorType


@record
class Means:
    """Means of a tensor along each of its axes but one, for the axis of channels; before and after rounding."""

    exact: Array
    rounded: Array


def channels_of(layer: Call) -> tuple[int, int] | None:
    """The axes of channels of a layer's data and results, or None where the layer's sums have none."""
    if layer.op is dense:
        return -1, -1
    if layer.op is not conv2d or sorted(layer.attrs.kernel_layout) != sorted("OIHW"):
        return None
    data, result = layer.attrs.data_layout, layer.attrs.out_layout or layer.attrs.data_layout
    return (data.index("C"), result.index("C")) if len(data) == len(result) == 4 else None


def means_along(layer: Call, values: Array, rounded: Array) -> Means | None:
    """The means of a layer's data by channel, from samples of it, flat, several in a row."""
    axes = channels_of(layer)
    ty = layer.args[0].checked_type
    if axes is None or not isinstance(ty, TensorType):
        return None
    shape = (-1, *ty.static)
    rest = tuple(k for k in range(len(shape)) if k != axes[0] % len(ty.static) + 1)
    exact, after = (x.reshape(shape).mean(rest, dtype=np.float64) for x in (values, rounded))
    return Means(exact, after)


def correction(layer: Call, means: Means, weight: Array, rounded: Array) -> Array:
    """What the layer's results lack, in a shape that is added to them."""
    axes = channels_of(layer)
    assert axes is not None, "the caller has its means"
    lost = _sums(layer, weight, means.exact) - _sums(layer, rounded, means.rounded)
    rank = 2 if layer.op is dense else 4
    return lost.astype(np.float32).reshape([-1 if k == axes[1] % rank else 1 for k in range(rank)])


def _sums(layer: Call, weight: Array, means: Array) -> Array:
    """The mean of each output channel for data of these means."""
    wide = weight.astype(np.float64)
    if layer.op is dense:
        result: Array = wide @ means
        return result
    layout, groups = layer.attrs.kernel_layout, layer.attrs.groups
    taps = wide.sum((layout.index("H"), layout.index("W")))
    taps = taps if layout.index("O") < layout.index("I") else taps.T
    if len(means) != groups * taps.shape[1]:  # a depthwise layout: its O counts groups, its I what each gives
        result = (taps * means[:, None]).reshape(-1)
    else:
        of_groups = taps.reshape(groups, -1, taps.shape[1])
        result = np.einsum("goi,gi->go", of_groups, means.reshape(groups, -1)).reshape(-1)
    return result
