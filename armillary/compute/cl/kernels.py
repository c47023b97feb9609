"""Kernels of OpenCL that our compiler makes from the formulas of the vision functions.

In: a `Formula`, images, border mode. Out: `CLFormulaKernel`, which is enqueued over a window, and `CLKernelLibrary`,
which compiles each program once and can keep the sources in a folder. Invariant: a work-item computes one pixel; a
pixel beside the image is the nearest one or a constant by the expression that reads it, so nothing is written outside
the window, and the bytes are those of the CPU's function. The formulas: `functions/formulas.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from armillary.base.digest import blake2b
from armillary.base.dtype import DType
from armillary.base.files import make_folder, write_atomic
from armillary.base.record import record
from armillary.compute.cl.scheduler import CLScheduler, CommandQueue
from armillary.compute.cl.tensor import CLTensor
from armillary.compute.cl.tuner import DEFAULT_LWS, Lws
from armillary.compute.core.compiled import Formula, objection_to_infos
from armillary.compute.core.kernel import IKernel, Status
from armillary.compute.core.tensor_info import BorderMode, BorderSize, TensorInfo, ValidRegion
from armillary.compute.core.window import Coordinates, Dimension, Window
from armillary.driver.te_build import build
from armillary.errors import ConfigError, ExecutionError, TypeMismatch
from armillary.runtime.device import Device
from armillary.runtime.ndarray import DeviceArray
from armillary.tir import build as T
from armillary.tir import decl_buffer
from armillary.tir.expr import BufferLoad, Expr, Var
from armillary.tir.stmt import Buffer, BufferStore, For, IfThenElse, LoopKind, PrimFunc, Stmt, seq


@record(slots=True)
class Geometry:
    """Sizes that a program is compiled for: padded planes of each tensor, the image, and the window."""

    planes: tuple[tuple[int, ...], ...]
    origins: tuple[tuple[int, int], ...]
    size: tuple[int, int]
    window: tuple[tuple[int, int], ...]


@record(slots=True)
class Program:
    """What a program is made from."""

    formula: Formula
    options: tuple[object, ...]  # numbers, tuples of numbers
    border: BorderMode
    constant: int
    geometry: Geometry
    lws: Lws

    def name(self) -> str:
        """A name that says which program it is, without its LWS."""
        told = repr((self.options, self.border, self.constant, self.geometry))
        return f"{self.formula.name}_{blake2b(told.encode()).hexdigest()[:12]}"

    def symbol(self) -> str:
        """The function's name."""
        return self.formula.name

    def function(self) -> PrimFunc:
        """Its loops."""
        return _function(self)


class Source(Protocol):
    """What a program is made from; equal ones are one program."""

    def name(self) -> str:
        """A name that says which program it is."""

    def symbol(self) -> str:
        """The function's name."""

    def function(self) -> PrimFunc:
        """Its loops, bound to work-groups and work-items."""


class CLKernelLibrary:
    """Builds programs and keeps them; `init(path)` also keeps their sources in a folder."""

    _instance: ClassVar[CLKernelLibrary | None] = None

    def __init__(self) -> None:
        self._built: dict[tuple[Device, Source], Any] = {}  # Any: a library of functions
        self._path: Path | None = None
        self._builds = 0

    @classmethod
    def get(cls) -> CLKernelLibrary:
        """The one of this process."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def init(self, kernel_path: str | Path) -> None:
        """Write the source of every program that is built from now on to a folder, as `name.cl`."""
        folder = Path(kernel_path)
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is no folder")
        make_folder(folder)
        self._path = folder

    def get_kernel_path(self) -> Path | None:
        """The folder of sources, if there is one."""
        return self._path

    def num_programs(self) -> int:
        """How many programs this process has built."""
        return self._builds

    def clear_programs_cache(self) -> None:
        """Forget all programs; the driver's binaries stay on disk."""
        self._built.clear()

    def create_kernel(self, device: Device, program: Source) -> Any:  # Any: a runtime Function
        """The function of a program, built at its first use."""
        library = self._built.get((device, program))
        if library is None:
            self._builds += 1
            library = self._built[device, program] = build(program.function(), target="opencl")
            if self._path is not None:
                source = library.imported_modules[0].get_source()
                write_atomic(self._path / f"{program.name()}.cl", source.encode())
        return library[program.symbol()]


class CLFormulaKernel(IKernel):
    """A formula over the window of its first output, on a device."""

    def __init__(self, formula: Formula) -> None:
        super().__init__()
        self.formula = formula
        self._tensors: tuple[CLTensor, ...] = ()
        self._program: tuple[tuple[object, ...], BorderMode, int] = ((), BorderMode.UNDEFINED, 0)

    def validate(self, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> Status:
        """Whether tensors of this information can be configured."""
        return objection_to_infos(self.formula, inputs, outputs)

    def configure(
        self,
        inputs: Sequence[CLTensor],
        outputs: Sequence[CLTensor],
        options: tuple[object, ...] = (),
        border: BorderMode = BorderMode.UNDEFINED,
        constant: int = 0,
    ) -> None:
        """Check tensors, set the window and the outputs' valid region."""
        status = self.validate([t.info() for t in inputs], [t.info() for t in outputs])
        if not status:
            raise TypeMismatch(status.error_description)
        for tensor in (*inputs, *outputs):
            if not isinstance(tensor, CLTensor):
                raise TypeMismatch(f"{self.formula.name}: a {type(tensor).__name__} is no CLTensor")
        self._tensors, self._program = (*inputs, *outputs), (options, border, constant)
        info = outputs[0].info()
        around = self.formula.border() if border is BorderMode.UNDEFINED else BorderSize()
        side, above = around.left, around.top
        width, height = info.dimension(0), info.dimension(1)
        if width <= 2 * side or height <= 2 * above:
            raise TypeMismatch(f"{self.formula.name}: {width}x{height} pixels without a border leave no window")
        planes = int(np.prod(info.shape[2:], dtype=np.int64))
        rows = Dimension(above, height - above)
        self.configure_window(Window(Dimension(side, width - side), rows, Dimension(0, planes)))
        shape = (width - 2 * side, height - 2 * above, *info.shape[2:])
        for tensor in outputs:
            tensor.info().set_valid_region(ValidRegion(Coordinates(side, above), shape))

    def config_id(self) -> str:
        """Name and sizes, by which a tuner knows the kernel."""
        return self._of(self.window(), DEFAULT_LWS).name()

    def _of(self, window: Window, lws: Lws) -> Program:
        infos = [t.info() for t in self._tensors]
        planes = tuple(_plane_shape(i) for i in infos)
        origins = tuple((i.padding.top, i.padding.left * i.num_channels()) for i in infos)
        first = infos[0]
        extents = tuple((window[n].start(), window[n].end() - window[n].start()) for n in range(3))
        geometry = Geometry(planes, origins, (first.dimension(0), first.dimension(1)), extents)
        return Program(self.formula, *self._program, geometry, lws)

    def enqueue(self, queue: CommandQueue, window: Window | None = None) -> None:
        """Enqueue the kernel over a window, with work-groups as the tuner says."""
        whole = window or self.window()
        self.window().validate(whole)
        arrays = [t.array_on_device() for t in self._tensors]
        tuner = CLScheduler.get().tuner()
        lws = DEFAULT_LWS
        if tuner is not None:
            tried: list[DeviceArray] = []

            def run(lws: Lws) -> None:
                # What is read and written (accumulated images) must not change: trials write elsewhere.
                tried.extend(self._with_other_outputs(arrays, queue.device) if not tried else ())
                CLKernelLibrary.get().create_kernel(queue.device, self._of(whole, lws))(*tried)
                queue.finish()

            lws = tuner.choose(self._of(whole, DEFAULT_LWS).name(), run)
        CLKernelLibrary.get().create_kernel(queue.device, self._of(whole, lws))(*arrays)
        queue.count()

    def _with_other_outputs(self, arrays: Sequence[DeviceArray], device: Device) -> list[DeviceArray]:
        """The arrays, with new ones in place of the outputs."""
        inputs = len(self.formula.inputs)
        return [*arrays[:inputs], *(DeviceArray(a.shape, DType(a.dtype), device) for a in arrays[inputs:])]

    def run(self, *given: object) -> None:  # (queue, window), (window, queue) or (window), as the texts have it
        """Enqueue the kernel over a window."""
        queues = [g for g in given if isinstance(g, CommandQueue)] or [CLScheduler.get().queue()]
        windows = [g for g in given if isinstance(g, Window)]
        self.enqueue(queues[0], windows[0] if windows else None)

    def _run(self, window: Window, info: object) -> None:
        raise ExecutionError(f"{self.formula.name} runs on a device", hint="run(queue, window)")


def _plane_shape(info: TensorInfo) -> tuple[int, ...]:
    """Planes, padded rows, values of a padded row."""
    width, height = info.padded()
    return int(np.prod(info.shape[2:], dtype=np.int64)), height, width * info.num_channels()


@record(slots=True)
class ThreadAxis:
    """An axis of work-groups and work-items: where a work-item is on it, and how many there are."""

    name: str
    extent: int
    items: int
    item: Var
    group: Var
    place: Expr

    def bound(self, body: Stmt) -> Stmt:
        """A body for all work-items; those beyond the extent are the body's to leave out."""
        inner = For(self.item, T.const(0), T.const(self.items), LoopKind.THREAD, body, f"threadIdx.{self.name}")
        groups = T.const(-(-self.extent // self.items))
        return For(self.group, T.const(0), groups, LoopKind.THREAD, inner, f"blockIdx.{self.name}")


def thread_axis(name: str, extent: int, items: int) -> ThreadAxis:
    """An axis, x, y or z, of groups of so many work-items."""
    item, group = _VARS[name]
    return ThreadAxis(name, extent, items, item, group, T.add(T.mul(group, items), item))


def _function(program: Program) -> PrimFunc:
    """The loops of a program, bound to work-groups and work-items."""
    formula, geometry = program.formula, program.geometry
    kinds = [*formula.inputs, *formula.outputs]
    buffers = [
        decl_buffer(shape, kind.dtype, name=f"t{k}")
        for k, (shape, kind) in enumerate(zip(geometry.planes, kinds, strict=True))
    ]
    extents = [extent for _, extent in geometry.window]
    axes = [thread_axis(*given) for given in zip("xyz", extents, program.lws, strict=True)]
    x, y, z = (T.add(axis.place, first) for axis, (first, _) in zip(axes, geometry.window, strict=True))

    def plane(index: int) -> Expr:
        return z if geometry.planes[index][0] > 1 else T.const(0)

    def read(index: int, at_y: object, at_x: object) -> Expr:  # expressions or numbers
        return _pixel(program, buffers, index, plane(index), at_y, at_x)

    values, stores = iter(formula.pixel(read, y, x, formula.constants(program.options))), []
    for n, channels in enumerate(formula.channels or (1,) * len(formula.outputs), len(formula.inputs)):
        top, left = geometry.origins[n]
        for channel in range(channels):
            place = x if channels == 1 else T.add(T.mul(x, channels), channel)
            stores.append(BufferStore(buffers[n], next(values), (plane(n), T.add(y, top), T.add(place, left))))
    body: Stmt = seq(*stores)
    for axis in axes:
        body = IfThenElse(T.cast(axis.place < axis.extent, "bool"), body, None)
    for axis in axes:
        body = axis.bound(body)
    return PrimFunc(tuple(buffers), body, (("global_symbol", formula.name),))


_VARS = {name: (Var(f"item_{name}", T.const(0).dtype), Var(f"group_{name}", T.const(0).dtype)) for name in "xyz"}


def _pixel(program: Program, buffers: Sequence[Buffer], index: int, z: Expr, y: Any, x: Any) -> Expr:
    """An input's pixel; beside the image as the border mode says."""  # Any: see `read`
    top, left = program.geometry.origins[index]
    width, height = program.geometry.size
    if program.border is BorderMode.UNDEFINED or program.formula.border() == BorderSize():
        return BufferLoad(buffers[index], (z, T.add(y, top), T.add(x, left)))
    at_y, at_x = _clamped(y, height), _clamped(x, width)
    found = BufferLoad(buffers[index], (z, T.add(at_y, top), T.add(at_x, left)))
    if program.border is BorderMode.REPLICATE:
        return found
    inside = T.all_of(y >= 0, y < height, x >= 0, x < width)
    return T.select(inside, found, T.const(program.constant, str(buffers[index].dtype)))


def _clamped(at: Any, size: int) -> Expr:  # Any: see `read`
    return T.minimum(T.maximum(at, 0), size - 1)
