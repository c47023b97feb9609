"""Functions in other processes: results, errors, crashes, deadlines, replacement."""

from __future__ import annotations

import os
import time

import pytest

from armillary.contrib.popen_pool import PopenPoolExecutor, PopenWorker, StatusKind
from armillary.errors import ConfigError, ExecutionError


def test_a_process_answers_fails_dies_and_is_replaced() -> None:
    worker = PopenWorker()
    with pytest.raises(ExecutionError, match="nothing was sent"):
        worker.recv()
    worker.send(divmod, (17, 5))
    assert worker.recv() == (3, 2)
    worker.send(print, ("not a message",), {"flush": True})
    assert worker.recv() is None
    worker.send(os.getpid)
    first = worker.recv()
    worker.send(divmod, (1, 0))
    with pytest.raises(ZeroDivisionError):
        worker.recv()
    worker.send(os.getpid)
    assert worker.recv() == first != os.getpid()
    worker.send(os._exit, (3,))
    with pytest.raises(ChildProcessError):
        worker.recv()
    worker.send(time.sleep, (60,), timeout=0.05)
    with pytest.raises(TimeoutError):
        worker.recv()
    assert not worker.is_alive()
    worker.send(os.getpid)
    assert worker.recv() != first
    worker.join()
    assert not worker.is_alive()


def test_a_process_is_replaced_after_its_uses_and_prepared_each_time() -> None:
    worker = PopenWorker(os.putenv, ("OWN_SETTING", "7"), maximum_uses=2)
    seen = []
    for _ in range(3):
        worker.send(os.getpid)
        seen.append(worker.recv())
    assert seen[0] == seen[1] != seen[2]
    worker.kill()
    with pytest.raises(ConfigError, match="initializer is int"):
        PopenWorker(3)  # type: ignore[arg-type]


def test_a_pool_keeps_the_order_and_tells_how_calls_failed() -> None:
    pool = PopenPoolExecutor(max_workers=2, timeout=20.0)
    assert pool.submit(pow, 2, 10).result() == 1024
    found = list(pool.map_with_error_catching(abs, [-1, "text", -3]))
    assert [r.status for r in found] == [StatusKind.COMPLETE, StatusKind.EXCEPTION, StatusKind.COMPLETE]
    assert (found[0].value, found[2].value) == (1, 3) and isinstance(found[1].value, TypeError)
    pool.close()
    with pytest.raises(ConfigError, match="wanted at least one"):
        PopenPoolExecutor(max_workers=0)
    slow = PopenPoolExecutor(max_workers=1, timeout=0.05)
    assert [r.status for r in slow.map_with_error_catching(time.sleep, [60])] == [StatusKind.TIMEOUT]
    slow.close()
