"""Kernels of OpenCL for loops over rows whose results are not one pixel each (`core/loops.py`).

In: `Loops`, tensors of a device, and the rows of partial results of an array of the host. Out: `CLLoopsKernel`,
enqueued whole: a work-item for each band of rows. Invariant: the emitted loops are the CPU's, bands find the same in
any number; sizes are arguments, so a program serves all of them; partial results go to the device before a kernel, and
come back behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.base.digest import blake2b
from armillary.base.dtype import DType
from armillary.base.record import record
from armillary.compute.cl.kernels import CLKernelLibrary, thread_axis
from armillary.compute.cl.scheduler import CLScheduler, CommandQueue
from armillary.compute.cl.tensor import CLTensor
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.loops import Loops, Partial, Plane
from armillary.compute.core.regions import Sides
from armillary.compute.core.window import Dimension, Window
from armillary.errors import ExecutionError, TypeMismatch
from armillary.runtime.ndarray import DeviceArray
from armillary.tir import build as T
from armillary.tir import decl_buffer, ir_builder
from armillary.tir.expr import Var
from armillary.tir.stmt import Buffer, IfThenElse, PrimFunc

BANDS, _GROUP = 64, 8  # work-items, and how many of them are a group


@record(slots=True)
class LoopsProgram:
    """What a program is made from: loops, and the shape of the partial results."""

    loops: Loops
    partial: tuple[int, ...]

    def name(self) -> str:
        """A name that says which program it is."""
        return f"{self.loops.name}_{blake2b(repr(self.partial).encode()).hexdigest()[:12]}"

    def symbol(self) -> str:
        """The function's name."""
        return self.loops.name

    def function(self) -> PrimFunc:
        """The loops of a band, bound to a work-item; numbers: rows and columns, then the origins of the planes."""
        ib, (rows, columns) = ir_builder.create(), (T.var("rows"), T.var("columns"))
        origins = [(T.var(f"top{k}"), T.var(f"left{k}")) for k in range(len(self.loops.kinds))]
        buffers: list[Buffer] = [
            decl_buffer((T.var(f"rows{k}"), T.var(f"columns{k}")), kind, name=f"t{k}")
            for k, kind in enumerate(self.loops.kinds)
        ]
        planes = [Plane(ib, buffer, *origin) for buffer, origin in zip(buffers, origins, strict=True)]
        axis = thread_axis("x", BANDS, _GROUP)
        first, end = (T.floordiv(T.mul(T.add(axis.place, T.const(n)), rows), T.const(BANDS)) for n in (0, 1))
        if self.partial:
            buffers.append(decl_buffer(self.partial, self.loops.partial, name="partial"))
            planes.append(Plane(ib, buffers[-1], axis.place, T.const(0)))
        self.loops.emit(ib, planes, ib.let("first", first), ib.let("count", T.sub(end, first)), columns)
        body = IfThenElse(T.cast(axis.place < BANDS, "bool"), ib.get(), None)
        params: tuple[Buffer | Var, ...] = (*buffers, rows, columns, *(var for origin in origins for var in origin))
        return PrimFunc(params, axis.bound(body), (("global_symbol", self.loops.name),))


class CLLoopsKernel(IKernel):
    """Loops over the rows of the first tensor, in bands."""

    def __init__(self, loops: Loops) -> None:
        super().__init__()
        self._loops = loops
        self._tensors: tuple[CLTensor, ...] = ()
        self._partial: Partial | None = None
        self._on_device: DeviceArray | None = None
        self._sides: Sides | None = None

    def configure(
        self, tensors: Sequence[CLTensor], partial: Partial | None = None, sides: Sides | None = None
    ) -> None:
        """Set the tensors, and where bands put what they find: an array of (`BANDS`, values).

        `sides`: the part of all tensors, of one size, that counts; all of the first otherwise.
        """
        for tensor in tensors:
            if not isinstance(tensor, CLTensor):
                raise TypeMismatch(f"{self._loops.name}: a {type(tensor).__name__} is no CLTensor")
        self._tensors, self._partial, self._sides = tuple(tensors), partial, sides
        if partial is not None:
            self._on_device = DeviceArray(partial.shape, DType(self._loops.partial), CLScheduler.get().use())
        self.configure_window(Window(Dimension(0, 1), Dimension(0, tensors[0].info().dimension(1))))

    def config_id(self) -> str:
        """Name and sizes."""
        sizes = ([t.info().padded() for t in self._tensors], self._numbers())
        return f"{self._loops.name}_{blake2b(repr(sizes).encode()).hexdigest()[:12]}"

    def _numbers(self) -> list[int]:
        """What a program takes behind the tensors."""
        infos = [t.info() for t in self._tensors]
        x, y, right, bottom = self._sides or (0, 0, infos[0].dimension(0), infos[0].dimension(1))
        origins = ((i.padding.top + y, i.padding.left * i.num_channels() + x) for i in infos)
        return [bottom - y, right - x, *(n for origin in origins for n in origin)]

    def enqueue(self, queue: CommandQueue, window: Window | None = None) -> None:
        """Enqueue the kernel over all bands; with partial results, wait for them."""
        self.window().validate(window or self.window())
        arrays = [t.flat_on_device() for t in self._tensors]
        if self._on_device is not None:
            arrays.append(self._on_device.copyfrom(self._partial))
        program = LoopsProgram(self._loops, self._partial.shape if self._partial is not None else ())
        CLKernelLibrary.get().create_kernel(queue.device, program)(*arrays, *self._numbers())
        queue.count()
        if self._on_device is not None and self._partial is not None:
            self._partial[...] = np.asarray(self._on_device.numpy())

    def _run(self, window: Window, info: object) -> None:
        raise ExecutionError(f"{self._loops.name} runs on a device", hint="run the function")
