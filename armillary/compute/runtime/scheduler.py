"""Schedulers: who runs the parts of a kernel's window.

In: a kernel and the dimension to split. Out: its work, done. Invariant: the calling thread takes the last part; an
error of any part reaches the caller after all parts have ended. `Scheduler.set` puts another scheduler in place, of
the user's own too. Source: the architecture text, "Multi-threading".
"""

from __future__ import annotations

import contextvars
import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Protocol, runtime_checkable

from armillary.compute.core.kernel import IKernel, ThreadInfo
from armillary.compute.core.loop_kernel import NativeLoop
from armillary.compute.core.window import Window
from armillary.errors import ConfigError, ExecutionError
from armillary.runtime.native_library import ErrorText, Handle, native


class IScheduler(Protocol):
    """What a scheduler does; users' own have the same methods."""

    def schedule(self, kernel: IKernel, split_dimension: int) -> None:
        """Run all of a kernel's window."""

    def set_num_threads(self, num_threads: int) -> None:
        """Use so many threads; 0: as many as there are cores."""

    def num_threads(self) -> int:
        """How many threads are used."""


@runtime_checkable
class CompiledKernel(Protocol):
    """A kernel whose work is one native loop."""

    def native_loop(self, window: Window) -> NativeLoop:
        """All of a window as one loop."""


class SingleThreadScheduler:
    """Runs everything in the calling thread."""

    def schedule(self, kernel: IKernel, split_dimension: int) -> None:
        """Run all of a kernel's window."""
        del split_dimension
        if kernel.window().num_iterations_total() > 0:
            kernel.run(kernel.window(), ThreadInfo())

    def set_num_threads(self, num_threads: int) -> None:
        """One thread is all there is."""
        if num_threads > 1:
            raise ConfigError(f"SingleThreadScheduler has one thread, not {num_threads}", hint="use CPPScheduler")

    def num_threads(self) -> int:
        """One."""
        return 1


class CPPScheduler:
    """Splits windows over a pool of threads: native loops over a native pool, by one call; other kernels over Python's.

    Source: the architecture text, "Multi-threading".
    """

    def __init__(self) -> None:
        self._threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._pool: ThreadPoolExecutor | None = None
        self._native: Handle | None = None

    def set_num_threads(self, num_threads: int) -> None:
        """Use so many threads; 0: as many as there are cores."""
        if num_threads < 0:
            raise ConfigError(f"{num_threads} threads: wanted 0 (all cores) or more")
        self._threads = num_threads or os.cpu_count() or 1
        self._native = None
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def num_threads(self) -> int:
        """How many threads are used."""
        return self._threads

    def schedule(self, kernel: IKernel, split_dimension: int) -> None:
        """Run all of a kernel's window, split along a dimension."""
        window = kernel.window()
        iterations = window.num_iterations(split_dimension)
        threads = min(iterations, self._threads)
        if iterations == 0:
            return
        if not kernel.is_parallelisable() or threads == 1:
            kernel.run(window, ThreadInfo())
        elif isinstance(kernel, CompiledKernel):
            self._run_native(kernel.native_loop(window))
        else:
            self._run_parts([window.split_window(split_dimension, t, threads) for t in range(threads)], kernel)

    def _run_native(self, loop: NativeLoop) -> None:
        data, values = ctypes.addressof(loop.data), ctypes.addressof(loop.values)
        code = native().arm_pool_run(self._pool_of_threads(), loop.address, data, values, loop.extent, self._threads)
        if code:
            raise ExecutionError(f"a compiled kernel failed with code {code}")

    def _pool_of_threads(self) -> int:
        if self._native is None:
            error = ErrorText()
            pointer = native().arm_pool_create(self._threads, 0, *error.args)
            if pointer is None:
                raise ExecutionError(error.text(), hint="set_num_threads says how many")
            self._native = Handle(pointer, native().arm_pool_destroy)
        return self._native.pointer

    def _run_parts(self, parts: list[Window], kernel: IKernel) -> None:
        threads = len(parts)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads - 1, "compute")
        contexts = [contextvars.copy_context() for _ in parts[:-1]]  # what memory groups have acquired
        others = [
            self._pool.submit(context.run, kernel.run, part, ThreadInfo(t, threads))
            for t, (context, part) in enumerate(zip(contexts, parts, strict=False))
        ]
        try:
            kernel.run(parts[-1], ThreadInfo(threads - 1, threads))
        finally:
            errors = [error for other in others if (error := other.exception()) is not None]
        if errors:
            raise errors[0]


class Scheduler:
    """The scheduler that functions use: `Scheduler.get()`, `Scheduler.set(…)`."""

    _present: ClassVar[IScheduler] = CPPScheduler()
    _NAMES: ClassVar[dict[str, type]] = {"ST": SingleThreadScheduler, "CPP": CPPScheduler}

    @classmethod
    def get(cls) -> IScheduler:
        """The scheduler in place."""
        return cls._present

    @classmethod
    def set(cls, scheduler: IScheduler | str) -> None:
        """Put a scheduler in place: "ST", "CPP", or one of the user's own."""
        if isinstance(scheduler, str) and not cls.is_available(scheduler):
            raise ConfigError(f"there is no scheduler {scheduler!r}", hint=f"known: {', '.join(cls._NAMES)}")
        cls._present = cls._NAMES[scheduler]() if isinstance(scheduler, str) else scheduler

    @classmethod
    def get_type(cls) -> str:
        """ "ST", "CPP", or "CUSTOM" for one of the user's own."""
        return next((name for name, kind in cls._NAMES.items() if type(cls._present) is kind), "CUSTOM")

    @classmethod
    def is_available(cls, name: str) -> bool:
        """Whether there is a scheduler of that name."""
        return name in cls._NAMES
