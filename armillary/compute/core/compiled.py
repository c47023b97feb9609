"""Kernels that our own compiler makes from a formula for one pixel.

In: a `Formula` (types of inputs and outputs, how far it reads, the expression of a pixel) and its options. Out: a
function over windows of padded planes, compiled once for all sizes, and `FormulaKernel`, which runs it. Invariant: a
step covers LANES pixels of a row as one vector; what lies in the padding behind a row may be written, nothing else.
The formulas: `functions/formulas.py`. Loops: `tir/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from armillary import tir
from armillary.base.record import record
from armillary.compute.core.kernel import IKernel, Status, ThreadInfo
from armillary.compute.core.tensor_info import BorderSize, DataType, PaddingSize, TensorInfo, ValidRegion
from armillary.compute.core.window import Coordinates, Dimension, Window
from armillary.driver.te_build import build
from armillary.errors import ExecutionError, TypeMismatch
from armillary.runtime.ndarray import NDArray
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Expr, Var
from armillary.tir.stmt import Buffer, BufferStore, PrimFunc

LANES = 16
Read = Callable[[int, Any, Any], Expr]  # Any: the row and column of an input's pixel, as expressions
Pixel = Callable[[Read, Expr, Expr, tuple[Any, ...]], Sequence[Expr]]  # Any: options


# A compiled function, the planes of each tensor, where their origins are.
_Bound = tuple[Callable[..., object], list[list[NDArray]], tuple[int, ...]]


class PlaneTensor(Protocol):
    """A tensor as kernels see it."""

    def buffer(self) -> npt.NDArray[np.uint8]:
        """All bytes."""

    def info(self) -> TensorInfo:
        """Shape, padding, type."""

    def planes(self) -> npt.NDArray[Any]:  # Any: of the tensor's type
        """The buffer as (planes, padded rows, padded columns)."""


@record(slots=True)
class Formula:
    """One pixel of each output, from pixels of the inputs. `reach`, `reach_y`: pixels that are read on each side.

    An output of several `channels` gets as many values in a row; what is read of an input with channels is numbered
    by them: 3 * x + 1 is the second of three.
    """

    name: str
    inputs: tuple[DataType, ...]
    outputs: tuple[DataType, ...]
    pixel: Pixel
    reach: int = 0
    reach_y: int = -1
    same_size: bool = True
    channels: tuple[int, ...] = ()

    def border(self) -> BorderSize:
        """What is read beside a pixel."""
        rows = self.reach if self.reach_y < 0 else self.reach_y
        return BorderSize(rows, self.reach, rows, self.reach)


@cache
def compiled(formula: Formula, options: tuple[Any, ...]) -> Any:  # Any: a runtime Function
    """The function (inputs, outputs, first row, rows, first column, steps, offsets of each plane's origin)."""
    buffers = [_plane(f"in{k}", kind) for k, kind in enumerate(formula.inputs)]
    results = [_plane(f"out{k}", kind) for k, kind in enumerate(formula.outputs)]
    y0, rows, x0, steps = T.var("y0"), T.var("rows"), T.var("x0"), T.var("steps")
    tops = [T.var(f"top{k}") for k in range(len(buffers) + len(results))]
    lefts = [T.var(f"left{k}") for k in range(len(buffers) + len(results))]
    builder = tir.ir_builder.create()
    with (
        builder.for_range(0, rows, name="row") as row,
        builder.for_range(0, steps, name="step") as step,
        builder.for_range(0, LANES, name="lane", kind="vectorize") as lane,
    ):
        y, x = y0 + row, x0 + step * LANES + lane

        def read(index: int, at_y: Any, at_x: Any) -> Expr:
            return BufferLoad(buffers[index], (at_y + tops[index], at_x + lefts[index]))

        values = iter(formula.pixel(read, y, x, options))
        for k, channels in enumerate(formula.channels or (1,) * len(results)):
            n = len(buffers) + k
            for channel in range(channels):
                place = x + lefts[n] if channels == 1 else x * channels + channel + lefts[n]
                builder.emit(BufferStore(results[k], next(values), (y + tops[n], place)))
    params: tuple[Buffer | Var, ...] = (*buffers, *results, y0, rows, x0, steps, *tops, *lefts)
    function = PrimFunc(params, builder.get(), (("global_symbol", formula.name),))
    return build(function, target="llvm")[formula.name]


def _plane(name: str, kind: DataType) -> Buffer:
    shape = (T.var(f"{name}_rows"), T.var(f"{name}_columns"))
    made: Buffer = tir.decl_buffer(shape, kind.dtype, name=name)
    return made


def objection_to_infos(formula: Formula, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> Status:
    """Whether a formula takes tensors of this information."""
    wanted = (*formula.inputs, *formula.outputs)
    infos = (*inputs, *outputs)
    if len(infos) != len(wanted):
        return Status(f"{formula.name}: {len(infos)} tensors, wanted {len(wanted)}")
    for n, (info, kind) in enumerate(zip(infos, wanted, strict=True)):
        if info.data_type is not kind:
            return Status(f"{formula.name}: tensor {n} is {info.data_type.name}, wanted {kind.name}")
    sizes = {tuple(info.shape) for info in (infos if formula.same_size else outputs)}
    if len(sizes) > 1:
        return Status(f"{formula.name}: tensors of different sizes {sorted(sizes)}")
    return Status()


class FormulaKernel(IKernel):
    """Runs a formula over the window of its first output."""

    def __init__(self, formula: Formula) -> None:
        super().__init__()
        self.formula = formula
        self._inputs: tuple[PlaneTensor, ...] = ()
        self._outputs: tuple[PlaneTensor, ...] = ()
        self._options: tuple[Any, ...] = ()
        self._last: tuple[tuple[int, ...], _Bound] | None = None

    def border_size(self) -> BorderSize:
        """What is read beside the window."""
        return self.formula.border()

    def validate(self, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> Status:
        """Whether tensors of this information can be configured."""
        return objection_to_infos(self.formula, inputs, outputs)

    def configure(
        self,
        inputs: Sequence[PlaneTensor],
        outputs: Sequence[PlaneTensor],
        options: tuple[Any, ...] = (),
        is_border_undefined: bool = False,
    ) -> None:
        """Check tensors, ask for their padding, set the window and the outputs' valid region."""
        status = self.validate([t.info() for t in inputs], [t.info() for t in outputs])
        if not status:
            raise TypeMismatch(status.error_description)
        self._inputs, self._outputs, self._options = tuple(inputs), tuple(outputs), options
        output, around = outputs[0].info(), self.formula.border()
        width, height = output.dimension(0), output.dimension(1)
        side, above = (around.left, around.top) if is_border_undefined else (0, 0)
        room = self._ask_for_room(inputs, outputs, width, side)
        steps = (width - 2 * side + (LANES - 1 if room else 0)) // LANES
        if not room and not is_border_undefined:
            side = max(0, *(around.left - t.info().padding.left for t in inputs))
            above = max(0, *(around.top - t.info().padding.top for t in inputs))
            steps = (width - 2 * side) // LANES
        if steps <= 0 or height <= 2 * above:
            raise TypeMismatch(f"{self.formula.name}: {width}x{height} pixels without padding leave no window")
        window = Window()
        window.set(Window.DimX, Dimension(side, side + steps * LANES, LANES))
        window.set(Window.DimY, Dimension(above, height - above))
        window.set(Window.DimZ, Dimension(0, int(np.prod(output.shape[2:], dtype=np.int64))))
        self._window = window
        covered = min(steps * LANES, width - 2 * side)
        region = ValidRegion(Coordinates(side, above), (covered, height - 2 * above, *output.shape[2:]))
        for tensor in outputs:
            tensor.info().set_valid_region(region)

    def _ask_for_room(
        self, inputs: Sequence[PlaneTensor], outputs: Sequence[PlaneTensor], width: int, side: int
    ) -> bool:
        """Ask for the padding that whole vectors need; whether all of it is there."""
        around = self.formula.border()
        right = max(0, -(-(width - 2 * side) // LANES) * LANES + side - width)
        wanted = PaddingSize(around.top, around.right + right, around.bottom, around.left)
        room = [t.info().extend_padding(wanted if self.formula.same_size else PaddingSize()) for t in inputs]
        return all([*room, *(t.info().extend_padding(PaddingSize(0, right, 0, 0)) for t in outputs)])

    def _run(self, window: Window, info: ThreadInfo) -> None:
        del info
        function, arrays, offsets = self._bound()
        x, y = window.x(), window.y()
        place = (y.start(), y.end() - y.start(), x.start(), window.num_iterations(Window.DimX))
        for z in range(window.z().start(), window.z().end()):
            function(*(planes[z if len(planes) > 1 else 0] for planes in arrays), *place, *offsets)

    def _bound(self) -> _Bound:
        """The function with the planes of the tensors where they are now, and the places of their origins."""
        tensors = (*self._inputs, *self._outputs)
        addresses = tuple(t.buffer().ctypes.data for t in tensors)
        if self._last is None or self._last[0] != addresses:
            pads = [t.info().padding for t in tensors]
            lefts = (p.left * t.info().num_channels() for p, t in zip(pads, tensors, strict=True))
            arrays = [[NDArray(plane) for plane in t.planes()] for t in tensors]
            bound = (compiled(self.formula, self._options), arrays, (*(p.top for p in pads), *lefts))
            self._last = (addresses, bound)
        return self._last[1]


def fill_border(tensor: PlaneTensor, border: BorderSize, value: int | float | None) -> None:
    """Fill the padding that a kernel reads: with a constant, or (None) with the nearest pixel."""
    info, pad, planes = tensor.info(), tensor.info().padding, tensor.planes()
    top, left = pad.top, pad.left
    bottom, right = top + info.dimension(1), left + info.dimension(0)
    if pad.top < border.top or pad.left < border.left or pad.right < border.right or pad.bottom < border.bottom:
        raise ExecutionError(f"the padding {pad} is smaller than the border {border}")
    inside = planes[:, top:bottom]
    inside[:, :, left - border.left : left] = inside[:, :, left : left + 1] if value is None else value
    inside[:, :, right : right + border.right] = inside[:, :, right - 1 : right] if value is None else value
    span = slice(left - border.left, right + border.right)
    planes[:, top - border.top : top, span] = planes[:, top : top + 1, span] if value is None else value
    planes[:, bottom : bottom + border.bottom, span] = planes[:, bottom - 1 : bottom, span] if value is None else value
