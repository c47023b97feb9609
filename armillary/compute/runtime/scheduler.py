"""Schedulers: who runs the parts of a kernel's window.

In: a kernel and the dimension to split. Out: its work, done. Invariant: the calling thread takes the last part; an
error of any part reaches the caller after all parts have ended. `Scheduler.set` puts another scheduler in place, of
the user's own too. Source: the architecture text, "Multi-threading".
"""

from __future__ import annotations

import contextvars
import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes.util import find_library
from enum import Enum
from typing import Any, ClassVar, Protocol, runtime_checkable

from armillary.base.once import once
from armillary.compute.core.kernel import CPUInfo, IKernel, ThreadInfo
from armillary.compute.core.loop_kernel import NativeLoop, Program
from armillary.compute.core.switches import log
from armillary.compute.core.window import Window
from armillary.errors import ConfigError, ExecutionError, TypeMismatch
from armillary.runtime.native_library import ErrorText, Handle, native
from armillary.target.host import cpu_name

_Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@once
def cpu_info() -> CPUInfo:
    """The processor of this machine."""
    return CPUInfo(cpu_name(), _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    """A kernel whose work is native loops."""

    def native_loops(self) -> tuple[NativeLoop, ...]:
        """All of the window, as loops that follow one another."""


class _Singleton:
    """A scheduler of which `get()` gives the process's own one."""

    @classmethod
    @once
    def get(cls) -> Any:  # Any: of the class itself
        """The one that `Scheduler.set` puts in place for its type."""
        return cls()


class SingleThreadScheduler(_Singleton):
    """Runs everything in the calling thread."""

    def schedule(self, kernel: IKernel, split_dimension: int) -> None:
        """Run all of a kernel's window."""
        del split_dimension
        log("schedule %s over %s on 1 thread", type(kernel).__name__, kernel.window())
        if kernel.window().num_iterations_total() > 0:
            kernel.run(kernel.window(), ThreadInfo(cpu_info=cpu_info()))

    def run_program(self, program: Program) -> None:
        """Run loops one after another, by one call."""
        program.check(native().arm_pool_run_steps(None, program.steps, program.count, 1, program.failed))

    def set_num_threads(self, num_threads: int) -> None:
        """One thread is all there is."""
        if num_threads > 1:
            raise ConfigError(f"SingleThreadScheduler has one thread, not {num_threads}", hint="use CPPScheduler")

    def num_threads(self) -> int:
        """How many threads run windows: one."""
        return 1


class _Threads(_Singleton):
    """What schedulers of several threads have in common: how many there are, and which window each one gets."""

    def __init__(self) -> None:
        self._threads = _cores()

    def set_num_threads(self, num_threads: int) -> None:
        """Use so many threads; 0: as many as there are cores."""
        if num_threads < 0:
            raise ConfigError(f"{num_threads} threads: wanted 0 (all cores) or more")
        self._threads = num_threads or os.cpu_count() or 1

    def num_threads(self) -> int:
        """How many threads are used."""
        return self._threads

    def schedule(self, kernel: IKernel, split_dimension: int) -> None:
        """Run all of a kernel's window, split along a dimension."""
        window = kernel.window()
        iterations = window.num_iterations(split_dimension)
        threads = min(iterations, self._threads)
        log("schedule %s over %s on %d threads", type(kernel).__name__, window, threads)
        if iterations == 0:
            return
        if not kernel.is_parallelisable() or threads == 1:
            kernel.run(window, ThreadInfo(cpu_info=cpu_info()))
        else:
            self._split(kernel, window, split_dimension, threads)

    def _split(self, kernel: IKernel, window: Window, split_dimension: int, threads: int) -> None:
        raise ExecutionError(f"{type(self).__name__} runs nothing")


class CPPScheduler(_Threads):
    """Splits windows over a pool of threads: native loops over a native pool, by one call; other kernels over Python's.

    Source: the architecture text, "Multi-threading".
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._native: Handle | None = None

    def set_num_threads(self, num_threads: int) -> None:
        """Use so many threads; 0: as many as there are cores. What runs meanwhile ends on the threads it has."""
        with self._lock:
            super().set_num_threads(num_threads)
            self._native = self._pool = None

    def _split(self, kernel: IKernel, window: Window, split_dimension: int, threads: int) -> None:
        if isinstance(kernel, CompiledKernel):
            self.run_program(Program(kernel.native_loops()))
        else:
            self._run_parts([window.split_window(split_dimension, t, threads) for t in range(threads)], kernel)

    def run_program(self, program: Program) -> None:
        """Run loops one after another, each split over the pool, by one call."""
        log("run %d loops on %d threads", program.count, self._threads)
        pool = self._pool_of_threads()  # owned until the loops have run: another thread may set their number
        code = native().arm_pool_run_steps(
            None if pool is None else pool.pointer, program.steps, program.count, program.threads, program.failed
        )
        program.check(code)

    def _pool_of_threads(self) -> Handle | None:
        """The native pool; None for one thread."""
        with self._lock:
            if self._native is None and self._threads > 1:
                error = ErrorText()
                pointer = native().arm_pool_create(self._threads, 0, *error.args)
                if pointer is None:
                    raise ExecutionError(error.text(), hint="set_num_threads says how many")
                self._native = Handle(pointer, native().arm_pool_destroy)
            return self._native

    def _run_parts(self, parts: list[Window], kernel: IKernel) -> None:
        threads = len(parts)
        with self._lock:
            pool = self._pool = self._pool or ThreadPoolExecutor(max(1, self._threads - 1), "compute")
        contexts = [contextvars.copy_context() for _ in parts[:-1]]  # what memory groups have acquired
        others = [
            pool.submit(context.run, kernel.run, part, ThreadInfo(t, threads, cpu_info()))
            for t, (context, part) in enumerate(zip(contexts, parts, strict=False))
        ]
        try:
            kernel.run(parts[-1], ThreadInfo(threads - 1, threads, cpu_info()))
        finally:
            errors = [error for other in others if (error := other.exception()) is not None]
        if errors:
            raise errors[0]


class OMPScheduler(_Threads):
    """Splits windows over the threads of the system's OpenMP (GNU's `libgomp`), which other libraries may share."""

    def __init__(self) -> None:
        super().__init__()
        if not self.is_available():
            raise ConfigError("OMPScheduler: this system has no libgomp", hint="use CPPScheduler")

    @staticmethod
    def is_available() -> bool:
        """Whether the system has OpenMP's runtime."""
        return _openmp() is not None

    def _split(self, kernel: IKernel, window: Window, split_dimension: int, threads: int) -> None:
        openmp = _openmp()
        assert openmp is not None, "the constructor refuses systems without it"
        context, errors = contextvars.copy_context(), []  # what memory groups have acquired

        def body(_: object) -> None:
            # There may be fewer threads than asked for: each takes every n-th part.
            present = openmp.omp_get_num_threads()
            for t in range(openmp.omp_get_thread_num(), threads, present):
                part = window.split_window(split_dimension, t, threads)
                try:
                    context.copy().run(kernel.run, part, ThreadInfo(t, threads, cpu_info()))
                except BaseException as error:
                    errors.append(error)

        openmp.GOMP_parallel(_Body(body), None, threads, 0)
        if errors:
            raise errors[0]


@once
def _openmp() -> Any:  # Any: a library of ctypes
    name = find_library("gomp")
    return ctypes.CDLL(name) if name else None


class Scheduler:
    """The scheduler that functions use: `Scheduler.get()`, `Scheduler.set(…)`."""

    class Type(str, Enum):
        """ST: one thread. CPP: a pool of threads. OMP: OpenMP. CUSTOM: one of the user's own."""

        ST, CPP, OMP, CUSTOM = "ST", "CPP", "OMP", "CUSTOM"

    _KINDS: ClassVar[dict[Scheduler.Type, type[_Singleton]]] = {
        Type.ST: SingleThreadScheduler,
        Type.CPP: CPPScheduler,
        Type.OMP: OMPScheduler,
    }
    _present: ClassVar[IScheduler] = CPPScheduler.get()

    @classmethod
    def get(cls) -> IScheduler:
        """The scheduler in place."""
        return cls._present

    @classmethod
    def set(cls, scheduler: IScheduler | str) -> None:
        """Put a scheduler in place: by its type, or one of the user's own."""
        methods = ("schedule", "num_threads", "set_num_threads")
        if isinstance(scheduler, type) or not (
            isinstance(scheduler, str) or all(callable(getattr(scheduler, name, None)) for name in methods)
        ):
            message = (
                f"Scheduler.set takes a Scheduler.Type, or an object with {', '.join(methods)}; got {scheduler!r:.60}"
            )
            raise TypeMismatch(
                message, hint="a type such as Scheduler.Type.CPP, or an instance of a scheduler of your own"
            )
        cls._present = cls._of_type(scheduler) if isinstance(scheduler, str) else scheduler

    @classmethod
    def _of_type(cls, scheduler: str) -> IScheduler:
        if not cls.is_available(scheduler):
            known = ", ".join(kind.value for kind in cls._KINDS if cls.is_available(kind))
            raise ConfigError(f"there is no scheduler {str(scheduler)!r}", hint=f"known: {known}")
        result: IScheduler = cls._KINDS[cls.Type(scheduler)].get()
        return result

    @classmethod
    def runner(cls) -> Callable[[Program], None] | None:
        """What runs whole programs by one call, unless the scheduler in place is OpenMP's or one of the user's own."""
        present = cls._present
        if type(present) is CPPScheduler or type(present) is SingleThreadScheduler:
            return present.run_program
        return None

    @classmethod
    def get_type(cls) -> Scheduler.Type:
        """The type of the scheduler in place; CUSTOM for one of the user's own."""
        present: object = cls._present
        return next((name for name, kind in cls._KINDS.items() if type(present) is kind), cls.Type.CUSTOM)

    @classmethod
    def is_available(cls, name: str) -> bool:
        """Whether there is a scheduler of that type; those of CUSTOM are set as objects."""
        if name not in [kind.value for kind in cls._KINDS]:
            return False
        return name != cls.Type.OMP or OMPScheduler.is_available()


NEScheduler = Scheduler
