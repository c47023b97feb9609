"""Runners by the names of scripts: `LocalRunner` and `RPCRunner` are AutoTVM's.

In: how often a trial runs (`EvaluatorConfig`), where the devices are (`RPCConfig`). Out: what `tune_tir(runner=…)`
takes. Invariant: one trial runs at a time on a device; its result is checked against the plain function.
"""

from __future__ import annotations

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure import local_runner, rpc_runner
from armillary.base.record import record
from armillary.rpc.client import TrackerSession, connect_tracker


@record
class EvaluatorConfig:
    """Calls in a row, how many such rows, and the least milliseconds of one."""

    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False


@record
class RPCConfig:
    """The tracker and the key of the devices, all of which must be stated."""

    tracker_host: str | None = None
    tracker_port: int | str | None = None
    tracker_key: str | None = None
    session_priority: int = 1
    session_timeout_sec: int = 10

    def address(self) -> tuple[str, int, str]:
        """Host, port and key; TuningError says what is missing."""
        known = {"tracker_host": self.tracker_host, "tracker_port": self.tracker_port, "tracker_key": self.tracker_key}
        missing = [name for name, value in known.items() if value is None]
        if missing:
            raise TuningError(f"RPCConfig: {', '.join(missing)} is not known", hint=f"{missing[0]}= states it")
        return str(self.tracker_host), int(self.tracker_port or 0), str(self.tracker_key)

    def connect_tracker(self) -> TrackerSession:
        """A session with the tracker."""
        host, port, _ = self.address()
        return connect_tracker(host, port)


class LocalRunner(local_runner.LocalRunner):
    """Runs on this machine."""

    def __init__(
        self, timeout_sec: float = 30.0, evaluator_config: EvaluatorConfig | None = None, **options: object
    ) -> None:
        del options  # functions of the old worker, which are not called
        how = evaluator_config or EvaluatorConfig()
        super().__init__(
            timeout_sec, how.number, how.repeat, how.min_repeat_ms, enable_cpu_cache_flush=how.enable_cpu_cache_flush
        )


class RPCRunner(rpc_runner.RPCRunner):
    """Runs on devices behind a tracker."""

    def __init__(
        self,
        rpc_config: RPCConfig | None = None,
        evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0,
        alloc_repeat: int = 1,
        max_workers: int | None = None,
        **options: object,
    ) -> None:
        del alloc_repeat, options  # functions of the old worker, which are not called
        where, how = rpc_config or RPCConfig(), evaluator_config or EvaluatorConfig()
        host, port, key = where.address()
        super().__init__(
            key,
            host,
            port,
            where.session_priority,
            where.session_timeout_sec,
            max_workers,
            how.number,
            how.repeat,
            how.min_repeat_ms,
            cooldown_sec,
            how.enable_cpu_cache_flush,
        )


class Runner:
    """Makes runners by their names."""

    @staticmethod
    def create(kind: str = "local", **options: object) -> LocalRunner | RPCRunner:
        """The runner of a name: local, rpc."""
        if kind not in ("local", "rpc"):
            raise TuningError(f"there is no runner {kind!r:.60}", hint="there are: local, rpc")
        return LocalRunner(**options) if kind == "local" else RPCRunner(**options)  # type: ignore[arg-type]
