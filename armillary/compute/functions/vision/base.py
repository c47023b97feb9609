"""What every vision function does: set kernels, fill borders, run.

In: images with information, before or after they are allocated. Out: images. Invariant: borders are filled before each
run as their mode says; the scheduler in place does the work, by one call from Python where it is one of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from armillary.compute.core.borders import BorderKernel
from armillary.compute.core.compiled import Formula, FormulaKernel, Numbers, PlaneTensor
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.loop_kernel import NativeLoop, Program
from armillary.compute.core.loops import Loops, LoopsKernel
from armillary.compute.core.tensor_info import BorderSize, DataType, Format, TensorInfo, ValidRegion
from armillary.compute.core.window import Window
from armillary.compute.functions.configured import Border, ConfiguredFunction
from armillary.compute.runtime.scheduler import Scheduler
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ExecutionError

NO_BORDER: Border = Border()
_MOST_PROGRAMS = 64  # sets of addresses whose loops are kept


class NativeKernel(Protocol):
    """A kernel of native loops over tensors."""

    def tensors(self) -> tuple[PlaneTensor, ...]:
        """What it reads and writes."""

    def native_loops(self) -> tuple[NativeLoop, ...]:
        """All of its window, over the tensors where they are now."""


class RunsKernels(Protocol):
    """Kernels that run one after another."""

    def kernels(self) -> tuple[IKernel, ...]:
        """All of them."""

    def run(self) -> None:
        """Run the kernels, one after another."""


class Work:
    """Kernels that run one after another: by one call, or one by one by a scheduler of the user's own."""

    def __init__(self, kernels: Sequence[IKernel], split_dimension: int = Window.DimY) -> None:
        self._kernels, self._split = tuple(kernels), split_dimension
        self._native: tuple[NativeKernel, ...] = tuple(kernels)  # type: ignore[arg-type]  # all of them are
        self._tensors = tuple({id(t): t for k in self._native for t in k.tensors()}.values())
        self._programs: dict[tuple[int, ...], Program] = {}

    def kernels(self) -> tuple[IKernel, ...]:
        """All of them."""
        return self._kernels

    def run(self) -> None:
        """Run them on the scheduler in place."""
        run = Scheduler.runner()
        if run is not None:
            run(self._program())
            return
        for kernel in self._kernels:
            if kernel.is_parallelisable():
                Scheduler.get().schedule(kernel, self._split)
            else:
                kernel.run(kernel.window())

    def _program(self) -> Program:
        """The loops over the tensors where they are now: a memory group may have moved them."""
        key = tuple([t.address() for t in self._tensors])
        result = self._programs.get(key)
        if result is None:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
            result = self._programs[key] = Program([loop for k in self._native for loop in k.native_loops()])
        return result


class VisionFunction(ConfiguredFunction):
    """Steps of a function; most have one, over `formula`."""

    formula: ClassVar[Formula]
    side: ClassVar[str] = "NE"
    tensor_type: ClassVar[type[Tensor]] = Tensor

    def __init__(self) -> None:
        self._works: list[RunsKernels] = []

    def _set(
        self,
        formula: Formula,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        border: Border = NO_BORDER,
        numbers: Numbers = (),
        region: ValidRegion | None = None,
    ) -> None:
        """Set the kernels of one formula."""
        self._set_kernels(self._step(formula, inputs, outputs, border, numbers, region))

    def _set_kernels(self, kernels: Sequence[IKernel]) -> None:
        self._works = [self._work(kernels)]

    # What a function is made of; those of a device have their own (`compute/cl/vision.py`).

    def _step(
        self,
        formula: Formula,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        border: Border = NO_BORDER,
        numbers: Numbers = (),
        region: ValidRegion | None = None,
    ) -> list[IKernel]:
        """The kernels of one formula over images: those that fill the inputs' borders, then its own."""
        kernel, size = FormulaKernel(formula), formula.border()
        has_fills = not border.is_undefined() and size != BorderSize()
        fills = [BorderKernel(t, size, *border) for t in inputs] if has_fills else []
        kernel.configure(inputs, outputs, numbers, border.is_undefined(), region)
        return [*fills, kernel]

    def _loops(self, loops: Loops, tensors: Sequence[Tensor]) -> IKernel:
        kernel = LoopsKernel(loops)
        kernel.configure(tensors)
        return kernel

    def _work(self, kernels: Sequence[IKernel]) -> RunsKernels:
        return Work(kernels)

    def _image(self, width: int, height: int, kind: Format | DataType) -> Tensor:
        return image(width, height, kind)

    def _table(self, width: int, height: int, kind: DataType) -> Tensor:
        """A tensor with memory."""
        result = self._image(width, height, kind)
        result.allocator().allocate()
        return result

    def _row(self, values: Sequence[float]) -> Tensor:
        """Settings, as kernels of loops read them."""
        result = self._table(len(values), 1, DataType.F32)
        result.write(np.array([values], np.float32))
        return result

    def _part(self, name: str) -> VisionFunction:
        """Another function, on the same side."""
        result = self.class_of(self.side + name)()
        assert isinstance(result, VisionFunction), f"{name} works on images"
        return result

    def kernels(self) -> tuple[IKernel, ...]:
        """The kernels of a run, in order."""
        if not self._works:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        return tuple(kernel for work in self._works for kernel in work.kernels())

    def run(self) -> None:
        """Compute the outputs."""
        if not self._works:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        for work in self._works:
            work.run()


def wrong_size(what: str, info: TensorInfo, width: int, height: int) -> str:
    """An objection to a size."""
    have = (info.dimension(0), info.dimension(1))
    return "" if have == (width, height) else f"{what} is {have[0]}x{have[1]}, wanted {width}x{height}"


def size_of(info: TensorInfo) -> tuple[int, int]:
    """Width and height."""
    return info.dimension(0), info.dimension(1)


def image(width: int, height: int, kind: Format | DataType) -> Tensor:
    """A tensor of two dimensions, whose memory is to come."""
    result = Tensor()
    result.allocator().init(TensorInfo(width, height, kind))
    return result
