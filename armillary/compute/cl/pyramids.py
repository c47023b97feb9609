"""Pyramids of OpenCL: the CPU's functions over levels in a device's memory.

In: images and `CLPyramid`s. Out: `CLPyramid`s and images. Invariant: levels, places and bytes are the CPU's
(`functions/vision/pyramid.py`).
"""

from __future__ import annotations

from armillary.compute.cl.vision import PARTS, OnDevice, device_image
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.tensor_info import BorderMode, Format
from armillary.compute.functions.formulas.pyramid import HALVED
from armillary.compute.functions.vision import pyramid
from armillary.compute.functions.vision.base import size_of
from armillary.compute.runtime.tensor import Tensor


class CLPyramid(pyramid.Pyramid):
    """As `Pyramid`, in the device's memory."""

    def _image(self, width: int, height: int, format: Format) -> Tensor:
        return device_image(width, height, format)


class CLGaussianPyramidHalf(OnDevice, pyramid.NEGaussianPyramidHalf):
    """As `NEGaussianPyramidHalf`."""

    def _reduced(self, above: Tensor, below: Tensor, border: BorderMode, constant: int) -> list[IKernel]:
        is_undefined, (width, height) = border is BorderMode.UNDEFINED, size_of(above.info())
        beside = BorderMode.REPLICATE if is_undefined else border  # whose results are outside of the valid region
        region = pyramid.halved_region(above.info(), below.info(), border)
        kernels = self._step(HALVED, [above], [below], beside, constant, (1 - width % 2, 1 - height % 2))
        below.info().set_valid_region(region)
        return kernels


class CLGaussianPyramidOrb(OnDevice, pyramid.NEGaussianPyramidOrb):
    """As `NEGaussianPyramidOrb`."""


class CLLaplacianPyramid(OnDevice, pyramid.NELaplacianPyramid):
    """As `NELaplacianPyramid`."""


class CLLaplacianReconstruct(OnDevice, pyramid.NELaplacianReconstruct):
    """As `NELaplacianReconstruct`."""


PARTS[pyramid.Pyramid] = CLPyramid
PARTS[pyramid.NEGaussianPyramidHalf] = CLGaussianPyramidHalf
