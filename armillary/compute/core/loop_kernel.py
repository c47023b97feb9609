"""Compiled loops as kernels: a window over one native loop.

In: compiled objects and the rows that describe their functions. Out: `NativeLoop`, a function pointer with its
arguments, and `LoopKernel`, an `IKernel` over [0, extent) whose parts any scheduler may run. Invariant: a loop's
arguments are bound in the thread that schedules it; the function writes what [begin, end) covers and, of its scratch
memory, the part of its thread. Kernel ABI: docs/notes/003.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int32, c_int64, c_void_p

from armillary.artifact import FunctionRow
from armillary.codegen.object.jit import LoadedObjects
from armillary.compute.core.kernel import IKernel, ThreadInfo
from armillary.compute.core.window import Dimension, Window
from armillary.driver.library import FunctionLibrary
from armillary.errors import ExecutionError

_Phase = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_int64, c_int64, c_int64)
_Extent = ctypes.CFUNCTYPE(c_int64, c_void_p)


class NativeLoop:
    """One loop with its arguments: `data` are addresses, `values` integers, as the kernel ABI orders them."""

    __slots__ = ("address", "data", "extent", "function", "values")

    def __init__(self, address: int, data: Sequence[int], values: Sequence[int], extent: int) -> None:
        self.address, self.extent = address, extent
        self.function = _Phase(address)
        self.data = (c_void_p * max(1, len(data)))(*data)
        self.values = (c_int64 * max(1, len(values)))(*values)

    def run(self, begin: int, end: int, thread: int) -> None:
        """Do [begin, end) on behalf of a thread; other threads of Python go on meanwhile."""
        code = self.function(ctypes.addressof(self.data), ctypes.addressof(self.values), begin, end, thread)
        if code:
            raise ExecutionError(f"a compiled kernel failed with code {code}")


class CompiledLoops:
    """The loops of one compiled function."""

    def __init__(self, loaded: LoadedObjects, row: FunctionRow) -> None:
        self.loaded, self.row = loaded, row
        self._addresses = [loaded.address(phase.symbol) for phase in row.phases]

    @staticmethod
    def of(library: FunctionLibrary) -> dict[str, CompiledLoops]:
        """The functions of a library by name."""
        loaded = library.loaded()
        return {name: CompiledLoops(loaded, row) for name, row in library.descriptor.functions.items()}

    def bind(self, phase: int, data: Sequence[int], values: Sequence[int]) -> NativeLoop:
        """One loop with arguments; its extent follows from them."""
        extent = self.row.phases[phase].extent
        if isinstance(extent, str):
            numbers = (c_int64 * max(1, len(values)))(*values)
            extent = int(_Extent(self.loaded.address(extent))(ctypes.addressof(numbers)))
        return NativeLoop(self._addresses[phase], data, values, extent)


class LoopKernel(IKernel):
    """A kernel whose work is one native loop, bound to its arguments."""

    def __init__(self, name: str, loop: NativeLoop) -> None:
        super().__init__()
        self.name, self._loop = name, loop
        self._window = Window(Dimension(0, loop.extent))

    def native_loop(self, window: Window) -> NativeLoop:
        """All of a window as one loop."""
        del window
        return self._loop

    def _run(self, window: Window, info: ThreadInfo) -> None:
        self._loop.run(window.x().start(), window.x().end(), info.thread_id)
