"""DaskBuilder: libraries of configurations, compiled by the workers of a Dask cluster.

In: `MeasureInput`s, a client of `dask.distributed` or a scheduler's address (extra `cluster`). Out: a `BuildResult`
each, in order, as `LocalBuilder` gives them; the libraries come back as bytes and lie in a temporary folder here.
Invariant: a build that crashes or takes longer than `timeout` costs one trial; a worker that dies costs a retry on
another one. `spread` computes there what a search needs (features of loops, `tuner/feature_reader.py`). Devices stay on
the tracker: any runner measures. What runs on workers: `build_server.py`.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.build_server import Built, build_there, call_there, packed
from armillary.autotvm.measure.local_builder import BuildFunction, LocalBuilder, Options
from armillary.autotvm.measure.measure import BuildResult, MeasureErrorNo, MeasureInput
from armillary.autotvm.measure.processes import short_error
from armillary.base.arguments import Arguments
from armillary.base.files import write_atomic
from armillary.base.lazy import deferred

if TYPE_CHECKING:
    from pathlib import Path
with deferred():
    import cloudpickle
    import distributed

T = TypeVar("T")
R = TypeVar("R")
logger = logging.getLogger("autotvm")
_CLIENT = ("nthreads",)
RETRIES = 2  # of a build whose worker dies
WAIT = 120.0  # seconds for the cluster, besides those of the builds


class DaskBuilder(LocalBuilder):
    """Compiles on a cluster. `client`: a distributed.Client, or the address of a scheduler. `n_parallel`: builds at a
    time (default: as many as the workers have threads); the other options are those of LocalBuilder."""

    def __init__(
        self,
        client: distributed.Client | str,
        timeout: float = 10,
        n_parallel: int | None = None,
        build_kwargs: Options | None = None,
        build_func: str | BuildFunction = "default",
    ) -> None:
        wanted = "a distributed.Client, or the address of a scheduler"
        Arguments("DaskBuilder", TuningError).provides(
            "client", client, () if isinstance(client, str) else _CLIENT, wanted
        )
        self.client = distributed.Client(client, timeout=30) if isinstance(client, str) else client
        threads = sum(self.client.nthreads().values())
        if not threads:
            raise TuningError("the Dask cluster has no workers", hint="dask worker ADDRESS")
        super().__init__(timeout, n_parallel or threads, build_kwargs, build_func)

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[BuildResult]:
        """Compile each configuration on the cluster; libraries of the batch before are removed."""
        paths = self.fresh_paths(len(measure_inputs))
        how = (self.build_func, self.build_kwargs)
        there = functools.partial(build_there, suffix=self.suffix, seconds=self.timeout)
        works = [packed(inp, *how) for inp in measure_inputs]
        futures = self.client.map(there, works, pure=False, retries=RETRIES)
        rounds = -(-len(works) // max(1, self.n_parallel))
        until = time.monotonic() + WAIT + rounds * self.timeout * (1 + RETRIES)
        return [self._received(path, future, until) for path, future in zip(paths, futures, strict=True)]

    def spread(self, function: Callable[[T], R], works: Sequence[T]) -> list[R | None]:
        """`function` of each of the works, by the workers; None for what none answered. Both travel by value."""
        carried = [cloudpickle.dumps((function, work)) for work in works]
        futures = self.client.map(call_there, carried, pure=False, retries=RETRIES)
        until = time.monotonic() + WAIT
        return [cast("R | None", self._answer(future, until)) for future in futures]

    def _answer(self, future: distributed.Future, until: float) -> object:
        try:
            result: object = future.result(timeout=max(0.1, until - time.monotonic()))
            return result
        except Exception as error:  # of the cluster or of the worker: who asked computes it
            future.cancel()
            logger.warning("a part of a search is done here, not on the cluster: %s", short_error(error))
            return None

    def _received(self, path: Path, future: distributed.Future, until: float) -> BuildResult:
        start = time.monotonic()
        try:
            built: Built = future.result(timeout=max(0.1, until - time.monotonic()))
        except TimeoutError:
            future.cancel()
            message = "no worker of the cluster had compiled it in time"
            return BuildResult("", MeasureErrorNo.BUILD_TIMEOUT, message, time.monotonic() - start)
        except Exception as error:  # of the cluster or of the worker: a result of the trial
            message = f"on the cluster: {short_error(error)}"
            return BuildResult("", MeasureErrorNo.COMPILE_HOST, message, time.monotonic() - start)
        if built.error_no:
            return BuildResult("", built.error_no, built.error, built.seconds)
        write_atomic(path, built.library)
        return BuildResult(str(path), 0, "", built.seconds, built.flop)
