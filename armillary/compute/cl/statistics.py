"""What an image of a device holds as a whole: histogram, mean and deviation, extremes with their places, running sums.

In: a `CLImage`. Out: numbers in objects of the host, for which a run waits, or an image. Invariant: the numbers are the
CPU's (`functions/vision/statistics.py`); sums of bands are joined by the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from armillary.base.once import once
from armillary.compute.cl import vision
from armillary.compute.cl.loops import BANDS, CLLoopsKernel
from armillary.compute.cl.vision import CLLut, DeviceWork
from armillary.compute.core.compiled import Formula, Numbers, Read
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.loops import Loops
from armillary.compute.core.tensor_info import DataType
from armillary.compute.functions.vision import statistics
from armillary.compute.functions.vision.base import RunsKernels, size_of
from armillary.compute.functions.vision.features import ZEROS
from armillary.compute.runtime.tensor import Tensor
from armillary.tir import build as T
from armillary.tir.expr import Expr

U8, U32 = DataType.U8, DataType.U32


class OnDevice(statistics.Counting):
    """Counting by work-items of a device."""

    side: ClassVar[str] = "CL"
    _bands: ClassVar[int] = BANDS

    def _counting(self, loops: Loops, input: Tensor) -> RunsKernels:
        kernel = CLLoopsKernel(loops)
        kernel.configure([input], self._counts, self._sides)  # type: ignore[list-item]  # it checks them
        return DeviceWork([kernel])


class EqualizeHistogram(OnDevice, statistics.EqualizeHistogram):
    """With a table of the device."""

    lut_type = CLLut


@once
def _added(kind: DataType) -> Formula:
    """A pixel and the one so many columns and rows before it; nothing is beside the image."""

    def pixel(read: Read, y: Expr, x: Expr, numbers: Numbers) -> Sequence[Expr]:
        across, down = numbers
        before = read(0, T.sub(y, down), T.sub(x, across))
        return [T.add(T.cast(read(0, y, x), "uint32"), T.cast(before, "uint32"))]

    return Formula(f"added_{kind.name}", (kind,), (U32,), pixel, 1, numbers=("int32", "int32"))


class IntegralImage(vision.OnDevice, statistics.IntegralImage):
    """Sums of 2, 4, 8 … pixels along rows, then along columns."""

    def _bind(self, input: Tensor, output: Tensor) -> None:
        width, height = size_of(input.info())
        steps = [(1 << n, 0) for n in range(max(1, (width - 1).bit_length()))]
        steps += [(0, 1 << n) for n in range((height - 1).bit_length())]
        between = [self._image(width, height, U32) for _ in range(2)]
        kernels: list[IKernel] = []
        source = input
        for n, step in enumerate(steps):
            target = output if n == len(steps) - 1 else between[n % 2]
            formula = _added(source.info().data_type)
            kernels += self._step(formula, [source], [target], ZEROS, step)
            source = target
        self._set_kernels(kernels)
        for tensor in between:
            tensor.allocator().allocate()
