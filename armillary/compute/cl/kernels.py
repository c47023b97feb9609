"""Kernels of OpenCL that our compiler makes from the formulas of the vision functions.

In: a `Formula`, images, border mode. Out: `CLFormulaKernel`, which is enqueued over a window, and `CLKernelLibrary`,
which compiles each program once and reads sources from a folder on request. Invariant: sizes, numbers and the border's
constant are arguments, so a program serves all of them; a work-item computes one pixel; a pixel beside the image is the
nearest one or a constant by the expression that reads it, so nothing is written outside the window, and the bytes are
those of the CPU's function. The formulas: `functions/formulas/`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from armillary.base.boundary import boundary, bounded_methods
from armillary.base.config import setting
from armillary.base.digest import blake2b
from armillary.base.dtype import DType
from armillary.base.files import make_folder, read_regular, write_atomic
from armillary.base.once import Once, once
from armillary.base.record import record
from armillary.compute.cl.scheduler import CLScheduler, CommandQueue
from armillary.compute.cl.tensor import CLTensor
from armillary.compute.cl.tuner import DEFAULT_LWS, Lws
from armillary.compute.core.compiled import Formula, Numbers, objection_to_infos, refuse_numbers, valid_region
from armillary.compute.core.kernel import IKernel, Status
from armillary.compute.core.regions import Sides, common, sides_of
from armillary.compute.core.tensor_info import BorderMode, BorderSize, DataType, TensorInfo, ValidRegion
from armillary.compute.core.window import Dimension, Window
from armillary.driver.te_build import build
from armillary.errors import ConfigError, ExecutionError, TypeMismatch
from armillary.runtime.device import Device
from armillary.runtime.ndarray import DeviceArray
from armillary.tir import build as T
from armillary.tir import decl_buffer, reinterpret
from armillary.tir.build import as_int
from armillary.tir.expr import BufferLoad, Expr, Var
from armillary.tir.simplify import simplify
from armillary.tir.stmt import Buffer, BufferStore, For, IfThenElse, LoopKind, PrimFunc, Stmt, seq

DEFAULT_PATH = Path("./cl_kernels")
_MOST_SOURCE = 1 << 24  # bytes


@record(slots=True)
class Geometry:
    """Sizes that a kernel is enqueued for: padded planes of each tensor, what is valid of the inputs, the window."""

    planes: tuple[tuple[int, ...], ...]
    origins: tuple[tuple[int, int], ...]
    seen: Sides
    window: tuple[tuple[int, int], ...]

    def values(self) -> list[int]:
        """What `_Arguments` names, in its order."""
        firsts, extents = zip(*self.window, strict=True)
        return [*firsts, *extents, *self.seen, *(n for origin in self.origins for n in origin)]

    def index(self) -> str:
        """The type that counts the values of the largest tensor."""
        return "int32" if max(map(math.prod, self.planes)) < 1 << 31 else "int64"


@record(slots=True)
class Program:
    """What a program is made from.

    `is_deep` are the tensors of several planes, `is_whole` the axes whose groups have no work-item beyond the window
    (a test less: PoCL's median takes a sixth of the time), `index` is the type of places. `in_place`: an output is an
    input too, of which each pixel is read before it is written.
    """

    formula: Formula
    border: BorderMode
    is_deep: tuple[bool, ...]
    is_whole: tuple[bool, ...]
    lws: Lws
    index: str = "int32"
    in_place: bool = False

    def name(self) -> str:
        """A name that says which program it is."""
        return _name(self.formula, (self.border, self.is_deep, self.is_whole, self.lws, self.index, self.in_place))

    def symbol(self) -> str:
        """The function's name."""
        return self.formula.name

    def function(self) -> PrimFunc:
        """Its loops."""
        return _function(self)


def _name(formula: Formula, what: object) -> str:
    return f"{formula.name}_{blake2b(repr(what).encode()).hexdigest()[:12]}"


class Source(Protocol):
    """What a program is made from; equal ones are one program."""

    def name(self) -> str:
        """A name that says which program it is."""

    def symbol(self) -> str:
        """The function's name."""

    def function(self) -> PrimFunc:
        """Its loops, bound to work-groups and work-items."""


class CLKernelLibrary:
    """Builds programs and keeps them; their sources are the compiler's, or those of a folder that `init` names.

    With ARMILLARY_EMBED_KERNELS=0 there are none but the folder's.
    """

    def __init__(self) -> None:
        self._built: Once[Any] = Once()  # Any: a library of functions
        self._path, self._is_read = DEFAULT_PATH, not setting("ARMILLARY_EMBED_KERNELS")
        self._sources: dict[str, str] = {}  # of what was built

    @classmethod
    @once
    def get(cls) -> CLKernelLibrary:
        """The one of this process."""
        return cls()

    @boundary("CLKernelLibrary.init", arguments=True, first=1)
    def init(self, kernel_path: str | Path = DEFAULT_PATH) -> None:
        """Read sources from a folder from now on: `name.cl` as `save_kernels` wrote it, or as a user changed it."""
        folder = Path(kernel_path)
        if not folder.is_dir():
            message = f"{folder} is no folder" if folder.exists() else f"there is no folder {folder}"
            raise ConfigError(message, hint="save_kernels(folder) writes the sources of programs that were built")
        self._path, self._is_read = folder, True

    def get_kernel_path(self) -> Path:
        """The folder that sources are read from, `./cl_kernels` unless `init` named another one."""
        return self._path

    @boundary("CLKernelLibrary.save_kernels", arguments=True, first=1)
    def save_kernels(self, kernel_path: str | Path = DEFAULT_PATH) -> None:
        """Write the source of every program that was built to a folder, as `name.cl`."""
        folder = Path(kernel_path)
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is no folder")
        make_folder(folder)
        for name, source in self._sources.items():
            write_atomic(folder / f"{name}.cl", source.encode())

    def num_programs(self) -> int:
        """How many programs this process has built."""
        return len(self._sources)

    def clear_programs_cache(self) -> None:
        """Forget all programs; the driver's binaries stay on disk."""
        self._built.clear()

    def create_kernel(self, device: Device, program: Source) -> Any:  # Any: a runtime Function
        """The function of a program, built at its first use."""
        library = self._built.get((device, program), lambda: self._build(program))
        return library[program.symbol()]

    def _build(self, program: Source) -> Any:  # Any: a library of functions
        library = build(program.function(), target="opencl")
        ((kind, source),) = library.descriptor.device_code.items()
        if self._is_read:
            source = self._read(program.name(), source)
            library.descriptor = replace(library.descriptor, device_code={kind: source})
        self._sources[program.name()] = source
        return library

    def _read(self, name: str, own: str) -> str:
        """The source of a program in the folder; the compiler's where the folder has none and kernels are embedded."""
        file = self._path / f"{name}.cl"
        if not file.exists():
            if setting("ARMILLARY_EMBED_KERNELS"):
                return own
            message = f"{self._path} has no kernel {name}.cl, and ARMILLARY_EMBED_KERNELS is 0"
            raise ConfigError(message, hint="save_kernels(folder) writes it where kernels are embedded")
        source = read_regular(file, _MOST_SOURCE).decode("utf-8", "replace")
        if _heads(source) != _heads(own):
            message = f"{file} has the kernels {_heads(source)}, wanted {_heads(own)}"
            raise ConfigError(message, hint="save_kernels writes it anew; a changed one keeps its arguments")
        return source


def _heads(source: str) -> list[str]:
    """What the host sees of each kernel: attributes, name and arguments."""
    return [" ".join(head.split()) for head in re.findall(r"__kernel[^{]*", source)]


@bounded_methods("configure")
class CLFormulaKernel(IKernel):
    """A formula over the window of its first output, on a device."""

    def __init__(self, formula: Formula) -> None:
        super().__init__()
        self.formula = formula
        self._tensors: tuple[CLTensor, ...] = ()
        self._program: tuple[tuple[object, ...], BorderMode, float] = ((), BorderMode.UNDEFINED, 0)
        self._seen: Sides = (0, 0, 0, 0)  # what is valid of the inputs: beside it lies the border
        self._words: tuple[int | float, ...] = ()  # the constant and the numbers, as the program takes them

    def validate(self, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> Status:
        """Whether tensors of this information can be configured."""
        return objection_to_infos(self.formula, inputs, outputs)

    def configure(
        self,
        inputs: Sequence[CLTensor],
        outputs: Sequence[CLTensor],
        options: tuple[object, ...] = (),
        border: BorderMode = BorderMode.UNDEFINED,
        constant: float = 0,
        region: ValidRegion | None = None,
    ) -> None:
        """Check tensors and numbers, set the window and the outputs' valid region: `region`, or what the inputs say."""
        status = self.validate([t.info() for t in inputs], [t.info() for t in outputs])
        if not status:
            raise TypeMismatch(status.error_description)
        for tensor in (*inputs, *outputs):
            if not isinstance(tensor, CLTensor):
                raise TypeMismatch(f"{self.formula.name}: a {type(tensor).__name__} is no CLTensor")
        refuse_numbers(self.formula, options)
        values = zip((constant, *options), (_constant_kind(self.formula), *self.formula.numbers), strict=True)
        self._words = tuple(_bits(value, kind) for value, kind in values)
        self._tensors, self._program = (*inputs, *outputs), (options, border, constant)
        info, is_undefined = outputs[0].info(), border is BorderMode.UNDEFINED
        seen = inputs if self.formula.same_size else inputs[:1]
        self._seen = sides_of(common([t.info() for t in seen]))
        covered = region or valid_region(self.formula, inputs, info, is_undefined)
        x, y, right, bottom = sides_of(covered)
        if right <= x or bottom <= y:
            size = f"{info.dimension(0)}x{info.dimension(1)}"
            message = f"{self.formula.name}: {size} pixels without a border leave no window"
            raise TypeMismatch(message, hint="the valid pixels of the inputs are too few")
        planes = int(np.prod(info.shape[2:], dtype=np.int64))
        self.configure_window(Window(Dimension(x, right), Dimension(y, bottom), Dimension(0, planes)))
        for tensor in outputs:
            tensor.info().set_valid_region(covered)

    def config_id(self) -> str:
        """Name, numbers and sizes, by which a tuner knows the kernel."""
        return self._id(self._geometry(self.window()))

    def _id(self, geometry: Geometry) -> str:
        return _name(self.formula, (*self._program, geometry))

    def _geometry(self, window: Window) -> Geometry:
        infos = [t.info() for t in self._tensors]
        planes = tuple(_plane_shape(i) for i in infos)
        origins = tuple((i.padding.top, i.padding.left * i.num_channels()) for i in infos)
        extents = tuple((window[n].start(), window[n].end() - window[n].start()) for n in range(3))
        return Geometry(planes, origins, self._seen, extents)

    def _call(self, device: Device, geometry: Geometry, lws: Lws, arrays: Sequence[DeviceArray]) -> None:
        """Enqueue the kernel's program with what it takes."""
        border = self._program[1]
        is_deep = tuple(sizes[0] > 1 for sizes in geometry.planes)
        is_whole = tuple(extent % items == 0 for (_, extent), items in zip(geometry.window, lws, strict=True))
        inputs = len(self.formula.inputs)
        shared = {id(t) for t in self._tensors[:inputs]} & {id(t) for t in self._tensors[inputs:]}
        is_own = self.formula.own_place or (self.formula.same_size and self.formula.border() == BorderSize())
        in_place = bool(shared) and is_own
        program = Program(self.formula, border, is_deep, is_whole, lws, geometry.index(), in_place)
        CLKernelLibrary.get().create_kernel(device, program)(*arrays, *geometry.values(), *self._words)

    def enqueue(self, queue: CommandQueue, window: Window | None = None) -> None:
        """Enqueue the kernel over a window, with work-groups as the tuner says."""
        whole = window or self.window()
        self.window().validate(whole)
        arrays = [t.array_on_device() for t in self._tensors]
        geometry, tuner = self._geometry(whole), CLScheduler.get().tuner()
        lws = DEFAULT_LWS
        if tuner is not None:
            tried: list[DeviceArray] = []

            def run(lws: Lws) -> None:
                # What is read and written (accumulated images) must not change: trials write elsewhere.
                tried.extend(self._with_other_outputs(arrays, queue.device) if not tried else ())
                self._call(queue.device, geometry, lws, tried)
                queue.finish()

            lws = tuner.choose(self._id(geometry), run, device=queue.device)
        self._call(queue.device, geometry, lws, arrays)
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
    extent: int | Expr
    items: int
    item: Var
    group: Var
    place: Expr

    def bound(self, body: Stmt) -> Stmt:
        """A body for all work-items; those beyond the extent are the body's to leave out."""
        inner = For(self.item, T.const(0), T.const(self.items), LoopKind.THREAD, body, f"threadIdx.{self.name}")
        groups = T.floordiv(T.add(self.extent, self.items - 1), self.items)
        return For(self.group, T.const(0), groups, LoopKind.THREAD, inner, f"blockIdx.{self.name}")


def thread_axis(name: str, extent: int | Expr, items: int) -> ThreadAxis:
    """An axis, x, y or z, of groups of so many work-items."""
    item, group = _VARS[name]
    return ThreadAxis(name, extent, items, item, group, T.add(T.mul(group, items), item))


def _bits(value: Any, kind: str) -> int | float:  # Any: int or float
    """A number as programs take it: a float32 as its bits, for devices without doubles."""
    bits: int = struct.unpack("<i", struct.pack("<f", value))[0] if kind == "float32" else 0
    return bits if kind == "float32" else float(value) if kind == "float64" else int(value)


def _as(kind: str, word: Var) -> Expr:
    """What the word of a number says."""
    result: Expr = reinterpret(kind, word) if kind == "float32" else word
    return result


def _constant_kind(formula: Formula) -> str:
    return "float32" if DataType.F32 in formula.inputs else "int32"


class _Arguments:
    """The parameters of a program: tensors, the window, what is valid, origins of planes, a constant, numbers."""

    def __init__(self, program: Program) -> None:
        formula, kind = program.formula, program.index
        kinds = [*formula.inputs, *formula.outputs]

        def named(*names: str) -> list[Var]:
            return [T.var(name, kind) for name in names]

        deep = [named(f"planes{k}")[0] if is_deep else 1 for k, is_deep in enumerate(program.is_deep)]
        self.buffers: list[Buffer] = [
            decl_buffer((planes, *named(f"rows{k}", f"columns{k}")), of.dtype, f"t{k}")
            for k, (planes, of) in enumerate(zip(deep, kinds, strict=True))
        ]
        self.firsts, self.extents = named("x0", "y0", "z0"), named("across", "down", "deep")
        self.left, self.top, self.right, self.bottom = self.seen = named("left", "top", "right", "bottom")
        self.origins = [named(f"top{k}", f"left{k}") for k in range(len(kinds))]
        self._constant = T.var("constant")
        self.constant: Expr = _as(_constant_kind(formula), self._constant)
        types = ("int32" if kind == "float32" else kind for kind in formula.numbers)
        self._numbers = [T.var(f"number{k}", kind) for k, kind in enumerate(types)]

    def numbers(self, kinds: Sequence[str]) -> Numbers:
        """What is given when configured."""
        return tuple(_as(kind, v) for v, kind in zip(self._numbers, kinds, strict=True))

    def params(self) -> tuple[Buffer | Var, ...]:
        """All, in the order in which they are given."""
        origins = (var for origin in self.origins for var in origin)
        sizes = (*self.firsts, *self.extents, *self.seen)
        return (*self.buffers, *sizes, *origins, self._constant, *self._numbers)


def _function(program: Program) -> PrimFunc:
    """The loops of a program, bound to work-groups and work-items."""
    formula, arguments = program.formula, _Arguments(program)
    axes = [thread_axis(*each) for each in zip("xyz", arguments.extents, program.lws, strict=True)]
    x, y, z = (T.add(axis.place, first) for axis, first in zip(axes, arguments.firsts, strict=True))

    def plane(index: int) -> Expr:
        return z if program.is_deep[index] else T.const(0)

    def read(index: int, at_y: object, at_x: object) -> Expr:  # expressions or numbers
        return _pixel(program, arguments, index, (plane(index), at_y, at_x), (y, x))

    values, stores = iter(formula.pixel(read, y, x, arguments.numbers(formula.numbers))), []
    for n, channels in enumerate(formula.channels or (1,) * len(formula.outputs), len(formula.inputs)):
        top, left = arguments.origins[n]
        for channel in range(channels):
            place = x if channels == 1 else T.add(T.mul(x, channels), channel)
            stores.append(
                BufferStore(arguments.buffers[n], next(values), (plane(n), T.add(y, top), T.add(place, left)))
            )
    body: Stmt = seq(*stores)
    for axis, is_whole in zip(axes, program.is_whole, strict=True):
        if not is_whole:
            body = IfThenElse(T.cast(axis.place < axis.extent, "bool"), body, None)
    for axis in axes:
        body = axis.bound(body)
    return PrimFunc(arguments.params(), body, (("global_symbol", formula.name), ("noalias", not program.in_place)))


_VARS = {name: (Var(f"item_{name}", T.const(0).dtype), Var(f"group_{name}", T.const(0).dtype)) for name in "xyz"}


def _pixel(program: Program, given: _Arguments, index: int, at: Sequence[Any], places: Sequence[Expr]) -> Expr:
    """An input's pixel; beside the image as the border mode says."""  # Any: see `read`
    (top, left), buffer, (z, y, x) = given.origins[index], given.buffers[index], at
    if program.border is BorderMode.UNDEFINED or program.formula.border() == BorderSize():
        return BufferLoad(buffer, (z, T.add(y, top), T.add(x, left)))
    near, inside = [], [T.const(True, "bool")]
    for value, place, first, end in ((y, places[0], given.top, given.bottom), (x, places[1], given.left, given.right)):
        # Windows are inside what is valid: what is read beside a place can lie beyond one end alone.
        away = as_int(simplify(T.sub(value, place))) if program.formula.same_size else None
        clamped = value
        if away is None or away < 0:
            clamped, inside = T.maximum(clamped, first), [*inside, T.greater_equal(value, first)]
        if away is None or away > 0:
            clamped, inside = T.minimum(clamped, end - 1), [*inside, T.less(value, end)]
        near.append(clamped)
    result = BufferLoad(buffer, (z, T.add(near[0], top), T.add(near[1], left)))
    if program.border is BorderMode.REPLICATE:
        return result
    return T.select(T.all_of(*inside), result, T.cast(given.constant, str(buffer.dtype)))
