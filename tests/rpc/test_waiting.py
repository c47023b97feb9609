"""Servers end what they wait for: after a time, and when they are cancelled, at any moment."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from armillary.rpc.protocol import Frame
from armillary.rpc.serving import Peer
from armillary.rpc.waiting import within


async def _is_ended(work: Callable[[Callable[[], None]], Awaitable[object]]) -> bool:
    """Whether a task ends that does `work`, which gets what cancels the task, and waits for ever then."""

    async def both() -> None:
        await work(lambda: task.cancel() and None)
        await asyncio.Event().wait()

    task = asyncio.create_task(both())
    done, _ = await asyncio.wait({task}, timeout=3)
    if not done:
        task.cancel()
    return bool(done)


@contextlib.asynccontextmanager
async def peers() -> AsyncIterator[tuple[Peer, Peer]]:
    """Two ends of a connection."""
    ends = [Peer(*await asyncio.open_connection(sock=sock)) for sock in socket.socketpair()]
    try:
        yield ends[0], ends[1]
    finally:
        for end in ends:
            end.close()


def test_results_errors_and_limits_of_time() -> None:
    async def fail() -> None:
        raise ValueError("its own")

    async def run() -> None:
        assert await within(5, asyncio.sleep(0, "a")) == await within(None, asyncio.sleep(0, "a")) == "a"
        with pytest.raises(ValueError, match="its own"):
            await within(5, fail())
        event, begin = asyncio.Event(), time.monotonic()
        with pytest.raises(TimeoutError):
            await within(0.05, event.wait())
        assert time.monotonic() - begin < 3

    asyncio.run(run())


def test_a_cancellation_in_the_turn_of_the_result_is_not_lost() -> None:
    async def now(cancel: Callable[[], None]) -> None:
        async def work() -> None:
            cancel()

        await within(5, work())

    assert asyncio.run(_is_ended(now))


def test_a_cancelled_wait_ends_what_it_waits_for() -> None:
    async def run() -> list[str]:
        seen = []

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                seen.append("ended")

        task = asyncio.create_task(within(5, work()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    assert asyncio.run(run()) == ["ended"]


@pytest.mark.parametrize("what", ["write", "read"])
def test_a_peer_that_is_cancelled_as_a_frame_goes_through_ends(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server cancels a request whose client is gone; it once waited for the answer of a kernel without end."""

    async def run() -> bool:
        async with peers() as (one, other):
            await other.write(Frame({"op": "x"}, b"payload"))

            async def work(cancel: Callable[[], None]) -> None:
                inner = one.writer.drain if what == "write" else one.reader.readexactly

                async def then(*arguments: int) -> object:
                    got = await inner(*arguments)
                    if arguments in ((), (0,)):  # the last part
                        cancel()
                    return got

                monkeypatch.setattr(*((one.writer, "drain") if what == "write" else (one.reader, "readexactly")), then)
                await (one.write(Frame({"op": "y"})) if what == "write" else one.read())

            return await _is_ended(work)

    assert asyncio.run(run())
