"""Pyramids of OpenCL: the CPU's functions over levels in a device's memory.

In: images and `CLPyramid`s. Out: `CLPyramid`s and images. Invariant: levels, places and bytes are the CPU's
(`functions/vision/pyramid.py`).
"""

from __future__ import annotations

from armillary.compute.cl.vision import OnDevice, device_image
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.tensor_info import BorderMode, Format
from armillary.compute.functions.configured import Border
from armillary.compute.functions.formulas.pyramid import HALVED
from armillary.compute.functions.vision import pyramid
from armillary.compute.functions.vision.base import size_of
from armillary.compute.runtime.tensor import Tensor


class CLPyramid(pyramid.Pyramid):
    """As `Pyramid`, in the device's memory."""

    def _image(self, width: int, height: int, format: Format) -> Tensor:
        return device_image(width, height, format)


class GaussianPyramidHalf(OnDevice, pyramid.GaussianPyramidHalf):
    """Halves, whose borders the kernel computes."""

    def _reduced(self, above: Tensor, below: Tensor, border: Border) -> list[IKernel]:
        width, height = size_of(above.info())
        beside = Border(BorderMode.REPLICATE) if border.is_undefined() else border  # what it changes is not valid
        region = pyramid.halved_region(above.info(), below.info(), border)
        kernels = self._step(HALVED, [above], [below], beside, (1 - width % 2, 1 - height % 2))
        below.info().set_valid_region(region)
        return kernels


class LaplacianPyramid(OnDevice, pyramid.LaplacianPyramid):
    """Differences of levels in the device's memory."""

    pyramid_type = CLPyramid
