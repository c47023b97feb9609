"""Waits with an end, for servers.

In: what is waited for, and for how long. Out: its result, or `TimeoutError`. Invariant: whoever is cancelled while it
waits ends, whatever it waits for. `asyncio.wait_for` of Python 3.10 and 3.11 returns the result instead where that came
in the same turn of the loop (CPython's issue 86296); a session whose client was killed as it sent a request then waited
for ever. Used by: `serving.py`, `proxy.py`, `worker_process.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(seconds: float | None, work: Awaitable[T]) -> T:
    """The result of `work`; TimeoutError, and the end of it, if there is none after `seconds` (None: no limit)."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _ended(task)
        raise
    if not task.done():
        await _ended(task)
        if task.cancelled():
            raise TimeoutError
    return task.result()


async def _ended(task: asyncio.Future[T]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # looked at, so that asyncio prints no warning
