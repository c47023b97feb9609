"""What every vision function does: validate, configure, fill borders, run.

In: images with information, before or after they are allocated. Out: images. Invariant: `configure` refuses what
`validate` refuses, with the same text; borders are filled before each run as their mode says; the scheduler in place
does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from armillary.compute.core.compiled import Formula, FormulaKernel, fill_border
from armillary.compute.core.kernel import IKernel, Status
from armillary.compute.core.tensor_info import BorderMode, BorderSize, DataType, Format, TensorInfo
from armillary.compute.core.window import Window
from armillary.compute.runtime.scheduler import Scheduler
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ExecutionError, TypeMismatch

Options = tuple[Any, ...]  # Any: numbers, tuples of numbers


class InterpolationPolicy(Enum):
    """How a pixel between pixels is found."""

    NEAREST_NEIGHBOR, BILINEAR, AREA = "nearest", "bilinear", "area"


class ConvertPolicy(Enum):
    """What becomes of a result that its type does not hold: its low bits, or the nearest value."""

    WRAP, SATURATE = "wrap", "saturate"


class RoundingPolicy(Enum):
    """Where a fraction goes."""

    TO_ZERO, TO_NEAREST_UP, TO_NEAREST_EVEN = "to_zero", "to_nearest_up", "to_nearest_even"


class IFunction(Protocol):
    """What users run."""

    def run(self) -> None:
        """Compute the outputs."""


class Step:
    """One formula over images: a kernel, with the borders of its inputs."""

    def __init__(self, formula: Formula) -> None:
        self._kernel = FormulaKernel(formula)
        self._inputs: Sequence[Tensor] = ()
        self._border, self._constant = BorderMode.UNDEFINED, 0
        self._is_configured = False

    def configure(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        border: BorderMode = BorderMode.UNDEFINED,
        constant: int = 0,
        options: Options = (),
    ) -> None:
        """Set the images and what lies beside the inputs."""
        has_border = self._kernel.border_size() != BorderSize()
        self._kernel.configure(inputs, outputs, options, border is BorderMode.UNDEFINED and has_border)
        self._inputs, self._border, self._constant = inputs, border, constant
        self._is_configured = True

    def kernel(self) -> IKernel:
        """The kernel."""
        return self._kernel

    def run(self) -> None:
        """Fill the borders and schedule the kernel."""
        size = self._kernel.border_size()
        if self._border is not BorderMode.UNDEFINED and size != BorderSize():
            value = self._constant if self._border is BorderMode.CONSTANT else None
            for tensor in self._inputs:
                fill_border(tensor, size, value)
        Scheduler.get().schedule(self._kernel, Window.DimY)


class VisionFunction:
    """One formula over images."""

    formula: Formula

    def __init__(self) -> None:
        self._step: Step | None = None

    @classmethod
    def validate(cls, *infos: TensorInfo) -> Status:
        """Whether tensors of this information can be configured: inputs, then outputs."""
        count = len(cls.formula.inputs)
        return FormulaKernel(cls.formula).validate(infos[:count], infos[count:])

    def _configure(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        border: BorderMode = BorderMode.UNDEFINED,
        constant: int = 0,
        options: Options = (),
        formula: Formula | None = None,
    ) -> None:
        step = Step(formula or self.formula)
        step.configure(inputs, outputs, border, constant, options)
        self._step = step

    def kernels(self) -> tuple[IKernel, ...]:
        """The kernel."""
        return (self._configured().kernel(),)

    def _configured(self) -> Step:
        if self._step is None:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        return self._step

    def run(self) -> None:
        """Compute the outputs."""
        self._configured().run()


class Pipeline:
    """A function of several steps; a subclass configures them."""

    def __init__(self) -> None:
        self._steps: list[IFunction] = []

    def run(self) -> None:
        """Run every step."""
        if not self._steps:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        for step in self._steps:
            step.run()


def refuse(status: Status) -> None:
    """Raise what a status says."""
    if not status:
        raise TypeMismatch(status.error_description)


def objection(name: str, *texts: str) -> Status:
    """The first text that is not empty, as a status."""
    found = next((text for text in texts if text), "")
    return Status(f"{name}: {found}" if found else "")


def wrong_type(what: str, info: TensorInfo, *kinds: DataType) -> str:
    """An objection to a type."""
    wanted = " or ".join(kind.name for kind in kinds)
    return "" if info.data_type in kinds else f"{what} is {info.data_type.name}, wanted {wanted}"


def wrong_size(what: str, info: TensorInfo, width: int, height: int) -> str:
    """An objection to a size."""
    have = (info.dimension(0), info.dimension(1))
    return "" if have == (width, height) else f"{what} is {have[0]}x{have[1]}, wanted {width}x{height}"


def size_of(info: TensorInfo) -> tuple[int, int]:
    """Width and height."""
    return info.dimension(0), info.dimension(1)


def image(width: int, height: int, kind: Format | DataType) -> Tensor:
    """A tensor of two dimensions, whose memory is to come."""
    made = Tensor()
    made.allocator().init(TensorInfo(width, height, kind))
    return made


def row_of(values: Sequence[float]) -> Tensor:
    """An allocated row of float32 values, which kernels read as parameters."""
    made = image(len(values), 1, DataType.F32)
    made.allocator().allocate()
    made.array()[...] = values
    made.mark_as_constant()
    return made
