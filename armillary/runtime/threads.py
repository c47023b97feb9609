"""The process-wide thread pool that every executor shares.

In: `ARMILLARY_NUM_THREADS`, `ARMILLARY_BIND_THREADS`, or `config_threadpool`. Out: `pool()`, `num_threads()`.
Invariant: one pool per process, created at first use; an executor uses at most as many threads as the pool had when the
executor was made. A second executor that runs while the pool is busy runs on its own thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from armillary.base.boundary import boundary
from armillary.base.config import setting
from armillary.base.once import once
from armillary.errors import ExecutionError
from armillary.runtime.native_library import ErrorText, native


@once
def pool() -> int:
    """Address of the shared pool."""
    error = ErrorText()
    threads, bind = setting("ARMILLARY_NUM_THREADS"), setting("ARMILLARY_BIND_THREADS")
    pointer: int | None = native().arm_pool_create(threads, int(bind), *error.args)
    if pointer is None:
        raise ExecutionError(error.text(), hint="ARMILLARY_NUM_THREADS says how many")
    return pointer


def num_threads() -> int:
    """Threads that a new executor uses, the caller's included."""
    return int(native().arm_pool_threads(pool()))


@contextmanager
def computing() -> Iterator[None]:
    """Loops of other threads leave this one a CPU, also while it waits for its turn or copies what it was given."""
    threads = pool()
    native().arm_pool_enter(threads)
    try:
        yield
    finally:
        native().arm_pool_leave(threads)


@boundary("config_threadpool", arguments=True)
def config_threadpool(affinity_mode: int = 0, nthreads: int = 0) -> None:
    """Set the number of threads (0: the setting's default); a non-zero `affinity_mode` pins workers to CPUs."""
    error = ErrorText()
    threads = nthreads or setting("ARMILLARY_NUM_THREADS")
    if not isinstance(threads, int):
        raise ExecutionError(f"config_threadpool: {threads!r} threads; wanted a whole number, or 0 for the default")
    if not 0 < threads < 1 << 31:
        raise ExecutionError(f"config_threadpool: {threads} threads; wanted 1 to {(1 << 31) - 1}")
    error.check(native().arm_pool_configure(pool(), threads, int(affinity_mode != 0), *error.args))
