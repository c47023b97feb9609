"""Borders: what a kernel reads beside the valid pixels, filled with a constant or with the nearest valid pixel.

In: a tensor, how much is read beside its valid region, a border mode. Out: `BorderKernel`, one native loop for each
plane. Invariant: only padding and pixels that are not valid are written; the corners get what lies in their row.
"""

from __future__ import annotations

from armillary import tir
from armillary.base.once import once
from armillary.compute.core.compiled import PlaneTensor, bits_of, plane_addresses, plane_values
from armillary.compute.core.kernel import IKernel, ThreadInfo
from armillary.compute.core.loop_kernel import CompiledLoops, NativeLoop
from armillary.compute.core.regions import sides_of
from armillary.compute.core.tensor_info import BorderMode, BorderSize, DataType
from armillary.compute.core.window import Window
from armillary.tir import build as T
from armillary.tir.expr import BufferLoad, Expr
from armillary.tir.ir_builder import IRBuilder
from armillary.tir.stmt import Buffer, BufferStore, PrimFunc

_SCALARS = ("width", "height", "top", "right", "bottom", "left", "is_constant")


class _Fill:
    """What emits the loops: a plane, and a pixel from which its neighbours in the padding are made."""

    def __init__(self, builder: IRBuilder, plane: Buffer, is_constant: Expr, value: Expr) -> None:
        self._builder, self._plane, self._is_constant, self._value = builder, plane, is_constant, value

    def pixel(self, y: Expr, x: Expr, near_y: Expr, near_x: Expr) -> None:
        """Write one pixel of the padding."""
        near = BufferLoad(self._plane, (near_y, near_x))
        self._builder.emit(BufferStore(self._plane, T.select(self._is_constant, self._value, near), (y, x)))


def border_function(kind: DataType, prefix: str = "") -> PrimFunc:
    """The function over a plane: sizes, the border, whether it is constant, the constant."""
    plane: Buffer = tir.decl_buffer((T.var("plane_rows"), T.var("plane_columns")), kind.dtype, name="plane")
    top_y, left_x, value = T.var("top_plane"), T.var("left_plane"), T.var("value", kind.dtype)
    scalars = {name: T.var(name) for name in _SCALARS}
    width, height, above, right, below, left, is_constant = scalars.values()
    ib, one = tir.ir_builder.create(), T.const(1)
    fill = _Fill(ib, plane, T.not_equal(is_constant, T.const(0)), value)
    last_x, last_y = T.sub(T.add(left_x, width), one), T.sub(T.add(top_y, height), one)
    with ib.for_range(0, 1, name="whole", kind="parallel"):
        with ib.for_range(0, height, name="row") as row:
            y = T.add(top_y, row)
            with ib.for_range(0, left, name="before") as k:
                fill.pixel(y, T.sub(T.sub(left_x, one), k), y, left_x)
            with ib.for_range(0, right, name="behind") as k:
                fill.pixel(y, T.add(T.add(last_x, one), k), y, last_x)
        columns = T.add(width, T.add(left, right))
        for count, edge, sign in ((above, top_y, -1), (below, last_y, 1)):
            with ib.for_range(0, count, name="line") as k, ib.for_range(0, columns, name="column") as column:
                y = T.add(edge, T.mul(T.add(k, one), T.const(sign)))
                x = T.add(T.sub(left_x, left), column)
                fill.pixel(y, x, edge, x)
    symbol = (("global_symbol", f"{prefix}border_{kind.name}"),)
    return PrimFunc((plane, top_y, left_x, *scalars.values(), value), ib.get(), symbol)


@once
def _compiled(kind: DataType) -> CompiledLoops:
    loops = CompiledLoops.built(border_function(kind))
    return loops


class BorderKernel(IKernel):
    """Fills the border around the valid region of one tensor."""

    def __init__(self, tensor: PlaneTensor, size: BorderSize, mode: BorderMode, constant: float) -> None:
        super().__init__()
        self._tensor, self._size, self._mode, self._constant = tensor, size, mode, constant
        self._sides = sides_of(tensor.info().valid_region())
        self.configure_window(Window())

    def is_parallelisable(self) -> bool:
        """One thread does it."""
        return False

    def tensors(self) -> tuple[PlaneTensor, ...]:
        """What is written."""
        return (self._tensor,)

    def native_loops(self) -> tuple[NativeLoop, ...]:
        """A loop of one iteration for each plane."""
        info, size, pad = self._tensor.info(), self._size, self._tensor.info().padding
        x, y, right, bottom = self._sides
        values = plane_values(["plane"], [self._tensor])
        values["top_plane"] += y
        values["left_plane"] += x * info.num_channels()
        values |= {"width": right - x, "height": bottom - y, "is_constant": int(self._mode is BorderMode.CONSTANT)}
        # Where a tensor was allocated before, the kernel's window is as small as its padding.
        values |= {"top": min(size.top, pad.top + y), "left": min(size.left, pad.left + x)}
        values["right"] = min(size.right, info.dimension(0) + pad.right - right)
        values["bottom"] = min(size.bottom, info.dimension(1) + pad.bottom - bottom)
        values["value"] = bits_of(self._constant, info.data_type.dtype)
        loops, tensors = _compiled(info.data_type), self.tensors()
        return tuple(loops.bind_values(plane_addresses(tensors, z), values, 1) for z in range(info.num_planes()))

    def _run(self, window: Window, info: ThreadInfo) -> None:
        del window
        for loop in self.native_loops():
            loop.run(0, 1, info.thread_id)
