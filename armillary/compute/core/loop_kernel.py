"""Compiled loops as kernels: a window over one native loop.

In: compiled objects and the rows that describe their functions. Out: `NativeLoop`, a function pointer with its
arguments, `Program`, such loops in a row that one call runs, and `LoopKernel`, an `IKernel` over [0, extent) whose
parts any scheduler may run. Invariant: a loop's arguments are bound in the thread that schedules it; the function
writes what [begin, end) covers and, of its scratch memory, the part of its thread. ABI: docs/decisions/kernel-abi.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_int32, c_int64, c_void_p

from armillary.artifact import FunctionRow
from armillary.codegen.object.jit import LoadedObjects
from armillary.compute.core.kernel import IKernel, ThreadInfo
from armillary.compute.core.stored_loops import code_of
from armillary.compute.core.switches import kernel_config
from armillary.compute.core.window import Dimension, Window
from armillary.errors import ExecutionError, InternalError
from armillary.tir.stmt import PrimFunc

_MOST_THREADS = 1 << 20
_Phase = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_int64, c_int64, c_int64)
_Extent = ctypes.CFUNCTYPE(c_int64, c_void_p)


class NativeLoop:
    """One loop with its arguments: `data` are addresses, `values` integers, as the kernel ABI orders them.

    It owns the code that it runs, so that who has a loop may run it whatever is made or forgotten elsewhere.
    """

    __slots__ = ("_code", "_row", "address", "data", "extent", "function", "values")

    def __init__(
        self,
        code: LoadedObjects,
        address: int,
        data: Sequence[int],
        values: Sequence[int],
        extent: int,
        row: FunctionRow,
    ) -> None:
        self._code, self.address, self.extent, self._row = code, address, extent, row
        self.function = _Phase(address)
        self.data = (c_void_p * max(1, len(data)))(*data)
        self.values = (c_int64 * max(1, len(values)))(*values)

    def run(self, begin: int, end: int, thread: int) -> None:
        """Do [begin, end) on behalf of a thread; other threads of Python go on meanwhile."""
        self.check(self.function(ctypes.addressof(self.data), ctypes.addressof(self.values), begin, end, thread))

    def check(self, code: int) -> None:
        """Raise what a code other than 0 means."""
        if code:
            asserts = self._row.asserts
            what = asserts[code - 1] if 0 < code <= len(asserts) else f"code {code}"
            raise ExecutionError(f"the compiled kernel {self._row.name} failed: {what}")


class _Step(ctypes.Structure):
    """`arm_loop` of the runtime."""

    _fields_ = (("run", c_void_p), ("data", c_void_p), ("vars", c_void_p), ("extent", c_int64))


class Program:
    """Loops that run one after another, as the runtime takes them: `steps` for `arm_pool_run_steps`.

    `threads`: how many there is scratch memory for, at most.
    """

    __slots__ = ("_failed", "_loops", "count", "failed", "steps", "threads")

    def __init__(self, loops: Sequence[NativeLoop], threads: int = _MOST_THREADS) -> None:
        self._loops = tuple(loops)  # whose code and arguments `steps` points to
        self.threads = threads
        self.count = len(self._loops)
        rows = [_Step(n.address, ctypes.addressof(n.data), ctypes.addressof(n.values), n.extent) for n in self._loops]
        self.steps = (_Step * max(1, self.count))(*rows)
        self._failed = ctypes.c_int(0)
        self.failed = ctypes.addressof(self._failed)

    def check(self, code: int) -> None:
        """Raise what a code other than 0 means."""
        if code:
            self._loops[self._failed.value].check(code)


class CompiledLoops:
    """The loops of one compiled function."""

    def __init__(self, loaded: LoadedObjects, row: FunctionRow) -> None:
        self.loaded, self.row = loaded, row
        self._addresses = [loaded.address(phase.symbol) for phase in row.phases]

    @classmethod
    def built(cls, function: PrimFunc) -> CompiledLoops:
        """A function, built for this process."""
        loaded, descriptor = code_of(function, kernel_config())
        return cls(loaded, descriptor.functions[str(function.get_attr("global_symbol"))])

    def bind_values(self, data: Sequence[int], values: Mapping[str, int], extent: int) -> NativeLoop:
        """The only loop of a function, with scalars by name; it uses no scratch memory."""
        row = self.row
        if len(row.phases) != 1 or row.workspace or row.thread_workspace:
            raise InternalError(f"{row.name}: {len(row.phases)} loops, {row.workspace} bytes; wanted one loop alone")
        scalars = [values[var.name] for var in row.vars]
        return NativeLoop(self.loaded, self._addresses[0], [*data, 0, 0], scalars, extent, row)

    def bind(self, phase: int, data: Sequence[int], values: Sequence[int]) -> NativeLoop:
        """One loop with arguments; its extent follows from them."""
        extent = self.row.phases[phase].extent
        if isinstance(extent, str):
            numbers = (c_int64 * max(1, len(values)))(*values)
            extent = int(_Extent(self.loaded.address(extent))(ctypes.addressof(numbers)))
        return NativeLoop(self.loaded, self._addresses[phase], data, values, extent, self.row)


class LoopKernel(IKernel):
    """A kernel whose work is one native loop, bound to its arguments."""

    def __init__(self, name: str, loop: NativeLoop) -> None:
        super().__init__()
        self.name, self._loop = name, loop
        self._window = Window(Dimension(0, loop.extent))

    def native_loops(self) -> tuple[NativeLoop, ...]:
        """All of the window."""
        return (self._loop,)

    def _run(self, window: Window, info: ThreadInfo) -> None:
        self._loop.run(window.x().start(), window.x().end(), info.thread_id)
