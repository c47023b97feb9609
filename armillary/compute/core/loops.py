"""Kernels over rows whose results are not one pixel each: sums, counts, extremes, running sums.

In: `Loops`: what is read and written, numbers, and a function that emits the loops for rows [y0, y0 + rows). Out:
`LoopsKernel`, a kernel over the rows of an image. Invariant: every thread has a row of partial results of its own (the
text's `memory_needed_per_thread * num_threads`), which the function joins after the kernel has run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from armillary import tir
from armillary.base.record import record
from armillary.compute.core.compiled import PlaneTensor
from armillary.compute.core.kernel import IKernel, ThreadInfo
from armillary.compute.core.window import Dimension, Window
from armillary.driver.te_build import build
from armillary.runtime.ndarray import NDArray
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Expr, Var
from armillary.tir.ir_builder import IRBuilder
from armillary.tir.stmt import Buffer, BufferStore, PrimFunc


class Plane:
    """A buffer of rows; `plane[y, x]` reads, `plane[y, x] = value` writes."""

    def __init__(self, builder: IRBuilder, buffer: Buffer, top: Expr, left: Expr) -> None:
        self._builder, self._buffer, self._top, self._left = builder, buffer, top, left

    def __getitem__(self, at: tuple[Expr, Expr]) -> Expr:
        return BufferLoad(self._buffer, (T.add(at[0], self._top), T.add(at[1], self._left)))

    def __setitem__(self, at: tuple[Expr, Expr], value: Expr) -> None:
        place = (T.add(at[0], self._top), T.add(at[1], self._left))
        self._builder.emit(BufferStore(self._buffer, value, place))


Emit = Callable[[IRBuilder, Sequence[Plane], Expr, Expr, Expr, tuple[int, ...]], None]


@record(slots=True)
class Loops:
    """`emit(builder, planes, first row, rows, columns, options)`; `kinds`: the types of the planes."""

    name: str
    kinds: tuple[str, ...]
    emit: Emit


@cache
def compiled_loops(loops: Loops, options: tuple[int, ...]) -> Any:  # Any: a runtime Function
    """The function (planes, first row, rows, columns, offsets of each plane's origin)."""
    buffers = []
    for n, kind in enumerate(loops.kinds):
        buffers.append(tir.decl_buffer((T.var(f"rows{n}"), T.var(f"columns{n}")), kind, name=f"plane{n}"))
    y0, rows, columns = T.var("y0"), T.var("rows"), T.var("columns")
    tops = [T.var(f"top{n}") for n in range(len(buffers))]
    lefts = [T.var(f"left{n}") for n in range(len(buffers))]
    builder = tir.ir_builder.create()
    planes = [Plane(builder, *given) for given in zip(buffers, tops, lefts, strict=True)]
    loops.emit(builder, planes, y0, rows, columns, options)
    params: tuple[Buffer | Var, ...] = (*buffers, y0, rows, columns, *tops, *lefts)
    function = PrimFunc(params, builder.get(), (("global_symbol", loops.name),))
    return build(function, target="llvm")[loops.name]


class LoopsKernel(IKernel):
    """Loops over the rows of the first tensor; the last plane is the thread's own row of `partial`, if there is one."""

    def __init__(self, loops: Loops, is_parallel: bool = True) -> None:
        super().__init__()
        self._loops, self._is_parallel = loops, is_parallel
        self._tensors: tuple[PlaneTensor, ...] = ()
        self._options: tuple[int, ...] = ()
        self._partial: Any = None  # Any: an array, a row for each thread

    def configure(self, tensors: Sequence[PlaneTensor], options: tuple[int, ...] = ()) -> None:
        """Set the tensors and the window."""
        self._tensors, self._options = tuple(tensors), options
        info = tensors[0].info()
        self.configure_window(Window(Dimension(0, 1), Dimension(0, info.dimension(1))))

    def set_partial(self, partial: Any) -> None:  # Any: an array of (threads, values)
        """Where threads put what they find."""
        self._partial = partial

    def is_parallelisable(self) -> bool:
        """Whether rows depend on no other rows."""
        return self._is_parallel

    def _run(self, window: Window, info: ThreadInfo) -> None:
        function = compiled_loops(self._loops, self._options)
        pads = [t.info().padding for t in self._tensors]
        planes = [NDArray(t.planes()[0]) for t in self._tensors]
        tops, lefts = [p.top for p in pads], [p.left for p in pads]
        if self._partial is not None:
            planes.append(NDArray(self._partial[info.thread_id : info.thread_id + 1]))
            tops.append(0)
            lefts.append(0)
        y = window.y()
        function(*planes, y.start(), y.end() - y.start(), self._tensors[0].info().dimension(0), *tops, *lefts)
