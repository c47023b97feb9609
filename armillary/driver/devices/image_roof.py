"""How fast an OpenCL device reads textures: from memory, and what caches hold, by kernels that networks are made of.

In: a device with images. Out: GB/s of both, of the fastest kernel. Invariant: the kernels that are timed take maxima of
windows of an image of four channels, so that they read and write pixels and hardly compute: windows side by side read
each pixel once, of an image that no cache holds; windows of a step read each pixel of a small one 4 to 64 times. Used
by `device_roof.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from armillary import relay
from armillary.driver.build import build
from armillary.ir import IRModule
from armillary.runtime import Device
from armillary.target import Target
from armillary.target.texture import PIXEL

TEXTURES = "opencl -device=adreno"
PIXEL_BYTES = 4 * PIXEL
APART, TOGETHER = ((2, 2), (4, 4)), ((2, 1), (4, 1), (8, 1), (2, 2))  # sides of windows, and the steps between them
RUNS = 5  # of which the least counts


def image_rates(device: Device, large: int, small: int) -> tuple[float, float]:
    """GB/s of reading images of `large` and of `small` bytes."""
    return _rate(device, large, APART), _rate(device, small, TOGETHER)


def _rate(device: Device, nbytes: int, windows: Sequence[tuple[int, int]]) -> float:
    """The largest of some windows; pixels that are written count as those that are read."""
    side, rates = math.isqrt(nbytes // PIXEL_BYTES), []
    for (window, step), seconds in zip(windows, _seconds(device, side, windows), strict=True):
        results = ((side - window) // step + 1) ** 2
        rates.append(PIXEL_BYTES * results * (window**2 + 1) / seconds / 1e9)
    return max(rates)


def _seconds(device: Device, side: int, windows: Sequence[tuple[int, int]]) -> list[float]:
    """The least seconds of maxima over windows of an image, which a convolution before them made."""
    x = relay.var("x", shape=(1, PIXEL, side, side))
    weight = relay.const(np.eye(PIXEL, dtype=np.float32)[..., None, None])
    image = relay.nn.conv2d(x, weight, kernel_size=(1, 1), channels=PIXEL)
    pools = [relay.nn.max_pool2d(image, pool_size=(size, size), strides=(step, step)) for size, step in windows]
    library = build(IRModule.from_expr(relay.Function([x], relay.Tuple(pools))), Target(TEXTURES))
    executor = library["default"](device)
    executor.set_input("x", np.ones((1, PIXEL, side, side), np.float32))
    executor.run()
    runs = [[row.seconds for row in executor.profile() if "max_pool2d" in row.function] for _ in range(RUNS)]
    return [min(times) for times in zip(*runs, strict=True)]
