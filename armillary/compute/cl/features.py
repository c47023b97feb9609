"""Vision functions of OpenCL that are made of others: corners, edges, histograms of gradients, optical flow.

In: images of a device, as the CPU's functions take them (`functions/vision/`). Out: images, and lists of what was
found, for which a run waits. Invariant: the results are the CPU's; what the CPU follows through a queue of pixels, a
device finds by turns over all pixels until none changes.
"""

from __future__ import annotations

from typing import ClassVar

from armillary.compute.cl.vision import OnDevice
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.regions import sides_of
from armillary.compute.core.tensor_info import DataType
from armillary.compute.core.window import Dimension, Window
from armillary.compute.functions.vision import features, hog
from armillary.compute.functions.vision.base import size_of
from armillary.compute.runtime.tensor import Tensor


class CannyEdge(OnDevice, features.CannyEdge):
    """Edges; what hangs on to them by turns over all pixels."""

    _turns: ClassVar[int] = 16  # between two looks at whether the last one changed anything

    def _trace(self) -> list[IKernel]:
        return []

    def _clear_border(self) -> None:
        """The kernel of crests leaves what is beside the valid region as it was allocated, all zeros."""
        crest, (x, y, right, bottom) = self._works[0].kernels()[-1], sides_of(self._region)
        crest.configure_window(Window(Dimension(x, right), Dimension(y, bottom), Dimension(0, 1)))

    def run(self) -> None:
        """Find the edges."""
        self._clear_border()
        super().run()

    def _spread(self) -> None:
        while True:
            self._spreading.run()
            if not self._frontier.read().any():
                return


class HOGDetector(OnDevice, hog.HOGDetector):
    """Windows; the classifier is brought to the device in each run."""

    def _factors(self, hog: hog.HOG) -> Tensor:
        self._hog, self._classifier = hog, self._table(*size_of(hog.table().info()), DataType.F32)
        return self._classifier

    def update(self) -> None:
        """Bring the classifier to where the kernel reads it."""
        self._classifier.write(self._hog.table().array())
