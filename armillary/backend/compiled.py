"""The engine "armillary": a module compiled for this machine, run by the graph executor.

In: a module without free parameters. Out: a function from named inputs to the outputs in order, which any thread may
call. Invariant: a runner owns its executors; runners of different modules share nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.aliases import Array
from armillary.driver.build import build
from armillary.ir import IRModule
from armillary.runtime.device import cpu
from armillary.runtime.executor_pool import ExecutorPool, Profile
from armillary.transform import PassContext


class Engine:
    """Compiles on construction, runs when called."""

    def __init__(
        self,
        module: IRModule,
        target: str = "llvm -mcpu=native",
        opt_level: int = 3,
        profile: Callable[[], Profile | None] = lambda: None,
    ) -> None:
        with PassContext(opt_level=opt_level):
            factory = build(module, target=target)
        self._pool = ExecutorPool(lambda: factory["default"](cpu(0)))
        self._profile = profile

    def __call__(self, inputs: dict[str, Array]) -> list[Array]:
        return self._pool.run(inputs, self._profile())
