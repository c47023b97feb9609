"""Kernels that our own compiler makes from a formula for one pixel.

In: a `Formula` (types of inputs, outputs and numbers, how far it reads, the expression of a pixel). Out: loops over
the rows of padded planes, compiled once for all sizes and numbers, and `FormulaKernel`, which binds them to tensors.
Invariant: a window steps by STEP pixels of a row; what lies in the padding behind a row may be written, nothing else.
The formulas: `functions/formulas/`. Borders: `core/borders.py`. Loops: `tir/`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from armillary import tir
from armillary.base.once import once
from armillary.base.record import record
from armillary.compute.core.kernel import IKernel, Status, ThreadInfo
from armillary.compute.core.loop_kernel import CompiledLoops, NativeLoop
from armillary.compute.core.regions import Sides, common, eroded, region_of, sides_of, whole
from armillary.compute.core.tensor_info import BorderSize, DataType, PaddingSize, TensorInfo, ValidRegion
from armillary.compute.core.window import Dimension, Window
from armillary.errors import TypeMismatch
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Expr, Var
from armillary.tir.ir_builder import IRBuilder
from armillary.tir.stmt import Buffer, BufferStore, PrimFunc

STEP = 16  # pixels that a window steps by
WIDE = 64  # pixels at once of formulas in 8 and 16 bits
Read = Callable[[int, "Expr | int", "Expr | int"], Expr]  # the row and column of an input's pixel, as expressions
Numbers = tuple[Any, ...]  # Any: expressions, or what they are given: int and float
Pixel = Callable[[Read, Expr, Expr, Numbers], Sequence[Expr]]


class RowPlanes(Protocol):
    """The planes of a function, as what emits a row sees them; inputs come first."""

    def read(self, index: int, y: Expr | int, x: Expr | int) -> Expr:
        """A pixel."""

    def write(self, builder: IRBuilder, index: int, y: Expr | int, x: Expr | int, value: Expr) -> None:
        """Write a value of a plane."""

    def pitch(self, index: int) -> Expr:
        """How far a row of a plane is behind the one above."""


EmitRow = Callable[[IRBuilder, RowPlanes, Expr, Expr, Expr, Numbers], None]  # row, first column, steps, numbers


class PlaneTensor(Protocol):
    """A tensor as kernels see it."""

    def buffer(self) -> npt.NDArray[np.uint8]:
        """All bytes."""

    def address(self) -> int:
        """Where they begin."""

    def info(self) -> TensorInfo:
        """Shape, padding, type."""

    def planes(self) -> npt.NDArray[Any]:  # Any: of the tensor's type
        """The buffer as (planes, padded rows, padded columns)."""


@record(slots=True)
class Formula:
    """One pixel of each output, from pixels of the inputs. `reach`, `reach_y`: pixels that are read on each side.

    An output of several `channels` gets as many values in a row; what is read of an input with channels is numbered
    by them: 3 * x + 1 is the second of three. `numbers`: types of what is given when configured, without a compilation.
    `lanes`: pixels that are computed at once, where a row has as many. `row`, if there is one, emits steps of a whole
    row instead of `pixel`. `own_place`: the first input is read at the pixel that is written alone, so both may be one.
    """

    name: str
    inputs: tuple[DataType, ...]
    outputs: tuple[DataType, ...]
    pixel: Pixel
    reach: int = 0
    reach_y: int = -1
    same_size: bool = True
    channels: tuple[int, ...] = ()
    numbers: tuple[str, ...] = ()
    lanes: int = STEP
    row: EmitRow | None = None
    own_place: bool = False

    def border(self) -> BorderSize:
        """What is read beside a pixel."""
        rows = self.reach if self.reach_y < 0 else self.reach_y
        return BorderSize(rows, self.reach, rows, self.reach)

    def constants(self, values: Numbers) -> Numbers:
        """Numbers as expressions, for code that is made for them alone."""
        return tuple(T.const(v, kind) for v, kind in zip(values, self.numbers, strict=True))


class _Planes:
    """The parameters of a function over planes: buffers with the places of their origins, and numbers."""

    def __init__(self, formula: Formula) -> None:
        kinds = [*((f"in{k}", d) for k, d in enumerate(formula.inputs))]
        kinds += [(f"out{k}", d) for k, d in enumerate(formula.outputs)]
        self.formula = formula
        self.buffers: list[Buffer] = [_plane(name, kind) for name, kind in kinds]
        self.tops = [T.var(f"top_{name}") for name, _ in kinds]
        self.lefts = [T.var(f"left_{name}") for name, _ in kinds]
        self.numbers: list[Var] = [T.var(f"number{k}", dtype) for k, dtype in enumerate(formula.numbers)]

    def read(self, index: int, y: Expr | int, x: Expr | int) -> Expr:
        """A pixel."""
        return BufferLoad(self.buffers[index], (y + self.tops[index], x + self.lefts[index]))

    def write(self, builder: IRBuilder, index: int, y: Expr | int, x: Expr | int, value: Expr) -> None:
        """Write a value of a plane."""
        builder.emit(BufferStore(self.buffers[index], value, (y + self.tops[index], x + self.lefts[index])))

    def pitch(self, index: int) -> Expr:
        """How far a row of a plane is behind the one above."""
        result: Expr = self.buffers[index].shape[1]
        return result

    def store(self, builder: IRBuilder, y: Expr, x: Expr) -> None:
        """Compute one pixel and write it."""
        values, inputs = iter(self.formula.pixel(self.read, y, x, tuple(self.numbers))), len(self.formula.inputs)
        for n, channels in enumerate(self.formula.channels or (1,) * len(self.formula.outputs), inputs):
            for channel in range(channels):
                self.write(builder, n, y, x if channels == 1 else x * channels + channel, next(values))

    def rows(self, builder: IRBuilder, y: Expr, x0: Expr, steps: Expr) -> None:
        """Compute steps of a row: as many as the wide vectors take, then the rest."""
        formula, first, left = self.formula, x0, steps
        if formula.row is not None:
            formula.row(builder, self, y, x0, steps, tuple(self.numbers))
            return
        if formula.lanes > STEP:
            ratio = T.const(formula.lanes // STEP)
            with (
                builder.for_range(0, T.floordiv(steps, ratio), name="wide") as step,
                builder.for_range(0, formula.lanes, name="lane", kind="vectorize") as lane,
            ):
                self.store(builder, y, x0 + step * formula.lanes + lane)
            first = T.add(x0, T.mul(T.floordiv(steps, ratio), T.const(formula.lanes)))
            left = T.floormod(steps, ratio)
        with (
            builder.for_range(0, left, name="step") as step,
            builder.for_range(0, STEP, name="lane", kind="vectorize") as lane,
        ):
            self.store(builder, y, first + step * STEP + lane)


def row_function(formula: Formula, prefix: str = "") -> PrimFunc:
    """One loop over rows; scalars: y0, rows, x0, steps, the numbers, sizes and origins of the planes."""
    planes, builder = _Planes(formula), tir.ir_builder.create()
    y0, rows, x0, steps = T.var("y0"), T.var("rows"), T.var("x0"), T.var("steps")
    with builder.for_range(0, rows, name="row", kind="parallel") as row:
        planes.rows(builder, T.add(y0, row), x0, steps)
    scalars = (y0, rows, x0, steps, *planes.numbers, *planes.tops, *planes.lefts)
    return PrimFunc((*planes.buffers, *scalars), builder.get(), (("global_symbol", prefix + formula.name),))


@once
def compiled(formula: Formula) -> CompiledLoops:
    """The loop of a formula in this process."""
    return CompiledLoops.built(row_function(formula))


def bits_of(value: float, dtype: str) -> int:
    """A number as kernels take it: reals as the bits of a double."""
    if "float" in dtype:
        result: int = struct.unpack("<q", struct.pack("<d", float(value)))[0]
        return result
    return int(value)


def plane_values(names: Sequence[str], tensors: Sequence[PlaneTensor]) -> dict[str, int]:
    """Sizes and origins of planes, as loops take them; of tensors with channels, in values."""
    result: dict[str, int] = {}
    for name, tensor in zip(names, tensors, strict=True):
        info, channels = tensor.info(), tensor.info().num_channels()
        width, height = info.padded()
        result |= {f"{name}_rows": height, f"{name}_columns": width * channels}
        result |= {f"top_{name}": info.padding.top, f"left_{name}": info.padding.left * channels}
    return result


def plane_addresses(tensors: Sequence[PlaneTensor], z: int) -> list[int]:
    """Where plane z of each tensor begins; a tensor of one plane has it for all."""
    return [t.address() + (z * t.info().plane_bytes() if t.info().num_planes() > 1 else 0) for t in tensors]


def _plane(name: str, kind: DataType) -> Buffer:
    shape = (T.var(f"{name}_rows"), T.var(f"{name}_columns"))
    result: Buffer = tir.decl_buffer(shape, kind.dtype, name=name)
    return result


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


def refuse_numbers(formula: Formula, numbers: Sequence[object]) -> None:
    """Raise what is wrong with a formula's numbers: how many they are, or one that its type does not hold."""
    if len(numbers) != len(formula.numbers):
        raise TypeMismatch(f"{formula.name}: {len(numbers)} numbers are given, wanted {len(formula.numbers)}")
    for n, (value, dtype) in enumerate(zip(numbers, formula.numbers, strict=True)):
        if not is_held(value, dtype):
            raise TypeMismatch(f"{formula.name}: number {n} is {value!r:.60}, which {dtype} does not hold")


def is_held(value: object, dtype: str) -> bool:
    """Whether a type holds a number: a whole one of its range, or a real one that does not become infinite."""
    number = value.item() if isinstance(value, np.integer | np.floating) else value
    if not isinstance(number, int | float):
        return False
    if "float" in dtype:
        return (isinstance(number, float) and not math.isfinite(number)) or abs(number) <= float(np.finfo(dtype).max)
    limits = np.iinfo(dtype)
    return limits.min <= number <= limits.max and number == int(number)


def valid_region(
    formula: Formula, inputs: Sequence[PlaneTensor], output: TensorInfo, is_border_undefined: bool
) -> ValidRegion:
    """What is valid of an output: where the inputs are of its size, what is valid of all of them, less the border."""
    region = common([t.info() for t in inputs]) if formula.same_size else whole(output)
    return eroded(region, formula.border()) if is_border_undefined else region


def _memory_of(info: TensorInfo, around: BorderSize) -> Sides:
    """The columns and rows around which so much lies in a tensor's memory."""
    pad = info.padding
    right, bottom = info.dimension(0) + pad.right - around.right, info.dimension(1) + pad.bottom - around.bottom
    return around.left - pad.left, around.top - pad.top, right, bottom


class FormulaKernel(IKernel):
    """Runs a formula over the window of its first output."""

    def __init__(self, formula: Formula) -> None:
        super().__init__()
        self.formula = formula
        self._inputs: tuple[PlaneTensor, ...] = ()
        self._outputs: tuple[PlaneTensor, ...] = ()
        self._numbers: Numbers = ()

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
        numbers: Numbers = (),
        is_border_undefined: bool = False,
        region: ValidRegion | None = None,
    ) -> None:
        """Check tensors, ask for their padding, set the window and the outputs' valid region.

        `region`: what is valid of the outputs; what is valid of all inputs otherwise, where sizes are the same.
        """
        status = self.validate([t.info() for t in inputs], [t.info() for t in outputs])
        if not status:
            raise TypeMismatch(status.error_description)
        refuse_numbers(self.formula, numbers)
        self._inputs, self._outputs, self._numbers = tuple(inputs), tuple(outputs), numbers
        info = outputs[0].info()
        x, y, right, bottom = sides_of(region or valid_region(self.formula, inputs, info, is_border_undefined))
        self._ask_for_room(inputs, outputs, (x, y, right, bottom))
        room = self._room(inputs, outputs)
        x, y, bottom = max(x, room[0]), max(y, room[1]), min(bottom, room[3])
        steps = min(-(-(right - x) // STEP), (room[2] - x) // STEP)
        if steps <= 0 or bottom <= y:
            size = f"{info.dimension(0)}x{info.dimension(1)}"
            message = f"{self.formula.name}: {size} pixels without padding leave no window"
            raise TypeMismatch(message, hint="the valid pixels of the inputs, with their padding, are too few")
        window = Window()
        window.set(Window.DimX, Dimension(x, x + steps * STEP, STEP))
        window.set(Window.DimY, Dimension(y, bottom))
        window.set(Window.DimZ, Dimension(0, int(np.prod(info.shape[2:], dtype=np.int64))))
        self._window = window
        covered = region_of((x, y, min(x + steps * STEP, right), bottom), info.shape)
        for tensor in outputs:
            tensor.info().set_valid_region(covered)

    def _ask_for_room(self, inputs: Sequence[PlaneTensor], outputs: Sequence[PlaneTensor], region: Sides) -> None:
        """Ask for the padding that whole vectors over a region need."""
        around, (x, _, right, _) = self.formula.border(), region
        beyond = max(0, x + -(-(right - x) // STEP) * STEP - outputs[0].info().dimension(0))
        wanted = PaddingSize(around.top, around.right + beyond, around.bottom, around.left)
        for tensor in inputs:
            tensor.info().extend_padding(wanted if self.formula.same_size else PaddingSize())
        for tensor in outputs:
            tensor.info().extend_padding(PaddingSize(0, beyond, 0, 0))

    def _room(self, inputs: Sequence[PlaneTensor], outputs: Sequence[PlaneTensor]) -> Sides:
        """Between which columns and rows a window stays in the memory of all tensors."""
        around = self.formula.border()
        rooms = [_memory_of(t.info(), BorderSize()) for t in outputs]
        rooms += [_memory_of(t.info(), around) for t in inputs if self.formula.same_size]
        left, top, right, bottom = zip(*rooms, strict=True)
        return max(left), max(top), min(right), min(bottom)

    def tensors(self) -> tuple[PlaneTensor, ...]:
        """What is read and written."""
        return (*self._inputs, *self._outputs)

    def native_loops(self) -> tuple[NativeLoop, ...]:
        """All of the window: a loop over the rows of each plane."""
        return tuple(self._loop(self.window(), z) for z in range(self.window().z().start(), self.window().z().end()))

    def _loop(self, window: Window, z: int) -> NativeLoop:
        """The rows of one plane, between the columns of a window."""
        formula, x, y = self.formula, window.x(), self.window().y()
        names = [*(f"in{k}" for k in range(len(formula.inputs))), *(f"out{k}" for k in range(len(formula.outputs)))]
        values = plane_values(names, self.tensors())
        numbers = zip(self._numbers, formula.numbers, strict=True)
        values |= {f"number{k}": bits_of(v, dtype) for k, (v, dtype) in enumerate(numbers)}
        rows = y.end() - y.start()
        values |= {"y0": y.start(), "rows": rows, "x0": x.start(), "steps": window.num_iterations(Window.DimX)}
        return compiled(formula).bind_values(plane_addresses(self.tensors(), z), values, rows)

    def _run(self, window: Window, info: ThreadInfo) -> None:
        first, y = self.window().y().start(), window.y()
        for z in range(window.z().start(), window.z().end()):
            self._loop(window, z).run(y.start() - first, y.end() - first, info.thread_id)
