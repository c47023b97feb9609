"""Kernels over rows whose results are not one pixel each: sums, counts, extremes, running sums.

In: `Loops`: what is read and written, numbers, and a function that emits the loops for rows [y0, y0 + rows). Out:
`LoopsKernel`, a kernel over bands of rows. Invariant: a band has a row of partial results of its own, which the
function joins after the kernel has run, so that any split over any threads gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from armillary import tir
from armillary.base.aliases import Array
from armillary.base.once import once
from armillary.base.record import record
from armillary.compute.core.compiled import PlaneTensor, plane_addresses, plane_values
from armillary.compute.core.kernel import IKernel, ThreadInfo
from armillary.compute.core.loop_kernel import CompiledLoops, NativeLoop
from armillary.compute.core.regions import Sides
from armillary.compute.core.tensor_info import DataType, TensorInfo, TensorShape
from armillary.compute.core.window import Dimension, Window
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Expr, Var
from armillary.tir.ir_builder import IRBuilder
from armillary.tir.stmt import Buffer, BufferStore, PrimFunc

BANDS = 4
Partial = npt.NDArray[np.generic]


class Plane:
    """A buffer of rows; `plane[y, x]` reads, `plane[y, x] = value` writes."""

    def __init__(self, builder: IRBuilder, buffer: Buffer, top: Expr, left: Expr) -> None:
        self._builder, self._buffer, self._top, self._left = builder, buffer, top, left

    def __getitem__(self, at: tuple[Expr, Expr]) -> Expr:
        return BufferLoad(self._buffer, (T.add(at[0], self._top), T.add(at[1], self._left)))

    def __setitem__(self, at: tuple[Expr, Expr], value: Expr) -> None:
        place = (T.add(at[0], self._top), T.add(at[1], self._left))
        self._builder.emit(BufferStore(self._buffer, value, place))

    def pitch(self) -> Expr:
        """How far a row is behind the one above."""
        result: Expr = self._buffer.shape[1]
        return result


class FlatPlane:
    """All bytes of a tensor, its padding too, as one row of a type; bytes that fill no value are left out."""

    def __init__(self, tensor: PlaneTensor, kind: DataType) -> None:
        self._tensor = tensor
        self._info = TensorInfo(TensorShape(tensor.info().total_size() // np.dtype(kind.dtype).itemsize), 1, kind)

    def buffer(self) -> npt.NDArray[np.uint8]:
        """The tensor's bytes, one row after another."""
        return self._tensor.buffer()

    def address(self) -> int:
        """Where they begin."""
        return self._tensor.address()

    def info(self) -> TensorInfo:
        """One row."""
        return self._info

    def planes(self) -> Array:
        """The values as (1, 1, values)."""
        count = self._info.dimension(0) * self._info.element_size()
        return self.buffer()[:count].view(self._info.data_type.dtype).reshape(1, 1, -1)


Emit = Callable[[IRBuilder, Sequence[Plane], Expr, Expr, Expr], None]


@record(slots=True)
class Loops:
    """`emit(builder, planes, first row, rows, columns)`; `kinds`: the types of the planes.

    `partial`: the type of a band's own row, which is the last plane; "" for none.
    """

    name: str
    kinds: tuple[str, ...]
    emit: Emit
    partial: str = ""


def loops_function(loops: Loops, prefix: str = "") -> PrimFunc:
    """One loop over bands; scalars: height, columns, bands, sizes and origins of the planes."""
    names = [f"plane{n}" for n in range(len(loops.kinds))]
    buffers: list[Buffer] = [
        tir.decl_buffer((T.var(f"{name}_rows"), T.var(f"{name}_columns")), kind, name=name)
        for name, kind in zip(names, loops.kinds, strict=True)
    ]
    height, columns, bands = T.var("height"), T.var("columns"), T.var("bands")
    tops, lefts = [T.var(f"top_{name}") for name in names], [T.var(f"left_{name}") for name in names]
    ib = tir.ir_builder.create()
    planes = [Plane(ib, *places) for places in zip(buffers, tops, lefts, strict=True)]
    with ib.for_range(0, bands, name="band", kind="parallel") as band:
        first, end = (T.floordiv(T.mul(T.add(band, T.const(n)), height), bands) for n in (0, 1))
        if loops.partial:
            buffers.append(tir.decl_buffer((T.var("partial_rows"), T.var("partial_columns")), loops.partial, "partial"))
            planes.append(Plane(ib, buffers[-1], band, T.const(0)))
        loops.emit(ib, planes, ib.let("first", first), ib.let("count", T.sub(end, first)), columns)
    params: tuple[Buffer | Var, ...] = (*buffers, height, columns, bands, *tops, *lefts)
    return PrimFunc(params, ib.get(), (("global_symbol", prefix + loops.name),))


@once
def compiled_loops(loops: Loops) -> CompiledLoops:
    """The loop in this process."""
    return CompiledLoops.built(loops_function(loops))


class LoopsKernel(IKernel):
    """Loops over the rows of the first tensor, in bands."""

    def __init__(self, loops: Loops, is_parallel: bool = True) -> None:
        super().__init__()
        self._loops, self._bands = loops, BANDS if is_parallel else 1
        self._tensors: tuple[PlaneTensor, ...] = ()
        self._partial: Partial | None = None
        self._sides: Sides | None = None

    def configure(
        self, tensors: Sequence[PlaneTensor], partial: Partial | None = None, sides: Sides | None = None
    ) -> None:
        """Set the tensors, the window, and where bands put what they find: an array of (BANDS, values).

        `sides`: the part of all tensors, of one size, that counts; all of the first otherwise.
        """
        self._tensors, self._partial, self._sides = tuple(tensors), partial, sides
        self.configure_window(Window(Dimension(0, 1), Dimension(0, self._bands)))

    def is_parallelisable(self) -> bool:
        """Whether rows depend on no other rows."""
        return self._bands > 1

    def tensors(self) -> tuple[PlaneTensor, ...]:
        """What is read and written."""
        return self._tensors

    def native_loops(self) -> tuple[NativeLoop, ...]:
        """One loop over the bands."""
        names = [f"plane{n}" for n in range(len(self._tensors))]
        info, addresses = self._tensors[0].info(), plane_addresses(self._tensors, 0)
        values = plane_values(names, self._tensors)
        x, y, right, bottom = self._sides or (0, 0, info.dimension(0), info.dimension(1))
        values |= {"height": bottom - y, "columns": right - x, "bands": self._bands}
        for name in names:
            values[f"top_{name}"] += y
            values[f"left_{name}"] += x
        if self._partial is not None:
            rows, columns = self._partial.shape
            values |= {"partial_rows": rows, "partial_columns": columns}
            addresses.append(self._partial.ctypes.data)
        return (compiled_loops(self._loops).bind_values(addresses, values, self._bands),)

    def _run(self, window: Window, info: ThreadInfo) -> None:
        self.native_loops()[0].run(window.y().start(), window.y().end(), info.thread_id)
