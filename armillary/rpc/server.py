"""The server: offers this machine, one session at a time, each in a process of its own.

In: connections of clients, with a ticket of the tracker if there is one. Out: sessions. Invariant: a session ends with
its client, at its deadline, or when its process dies; then its process group is killed, its folder removed, the
tracker told. The server registers again whenever the tracker is back. The session's process: `worker.py`; messages:
`protocol.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import time

from armillary.base.lazy import lazy_names
from armillary.base.record import record
from armillary.errors import ArmillaryError, ExecutionError, RPCError, RPCSessionTimeoutError
from armillary.rpc import protocol
from armillary.rpc.protocol import Frame, Json, int_of, text_of
from armillary.rpc.serving import Address, Listener, Peer, Tls, open_peer
from armillary.rpc.session import device_info
from armillary.rpc.worker_process import WorkerProcess

_LOG = logging.getLogger("RPCServer")
__getattr__, __dir__ = lazy_names(__name__, {"Server": "armillary.rpc.launch:Server"})  # as a script starts one
_RETRY = 0.2, 2.0  # seconds between attempts to reach the tracker: at first, at most
_WEEK_MS = 7 * 86400 * 1000


@record(slots=True)
class ServerOptions:
    """What a server is told when it starts."""

    key: str = ""
    tracker: Address | None = None
    through_proxy: bool = False
    custom_host: str = ""
    custom_port: int = 0
    tls: Tls | None = None
    secret: bytes | None = None
    max_session_seconds: float = 86400.0
    idle_seconds: float = 3600.0
    memory_bytes: int = 0


class DeviceServer:
    """Listens, registers, runs sessions."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.listener = Listener("server", self._serve, secret=options.secret, tls=options.tls)
        self._turn = asyncio.Lock()  # for the session
        self._standing_by = asyncio.Lock()  # for `_standby`
        self._ticket = ""
        self._user = ""  # of the session that runs
        self._is_stopping = False
        self._control: Peer | None = None
        self._standby: WorkerProcess | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clearing: set[asyncio.Future[None]] = set()

    async def start(self, host: str, port: int, port_end: int = 0) -> None:
        """Listen at the first free port of the range (a server behind a proxy does not), and register."""
        self._standby = await WorkerProcess.start(self.options.memory_bytes)
        if not self.options.through_proxy:
            await self.listener.start(host, port, port_end)
            _LOG.info("bind to %s:%d", host, self.listener.port)
        if self.options.tracker is not None:
            self._spawn(self._registration(self.options.tracker))

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]  # a coroutine
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _clear(self, worker: WorkerProcess) -> None:
        """Remove a session's folder beside the next session, which does not wait for it."""
        task = asyncio.ensure_future(worker.clear())
        self._clearing.add(task)
        task.add_done_callback(self._clearing.discard)

    async def stop(self) -> None:
        """End sessions and registration."""
        self._is_stopping = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.listener.stop()
        await asyncio.gather(*self._clearing, return_exceptions=True)
        if self._standby is not None:
            await self._standby.end()

    # ---- the tracker

    async def _registration(self, address: Address) -> None:
        pause, said = _RETRY[0], ""
        while True:
            try:
                await self._registered(address)
                pause, said = _RETRY[0], ""
            except ArmillaryError as error:
                if error.message != said:
                    _LOG.warning("tracker: %s", error.message)
                said = error.message
            finally:
                self._control = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _RETRY[1])

    async def _registered(self, address: Address) -> None:
        options = self.options
        want = {
            "want": "serve",
            "key": options.key,
            "host": options.custom_host,
            "port": options.custom_port or self.listener.port or 1,
            "tls": options.tls is not None,
            "info": device_info(),
        }
        role = "proxy" if options.through_proxy else "tracker"
        control = await open_peer(address, role, want)
        self._control = control
        _LOG.info("registered with %s %s as %s", role, address, options.key)
        pinging = asyncio.create_task(_ping(control))
        try:
            if self._turn.locked():
                await control.write(Frame({"op": "busy", "ticket": "", "user": self._user}))
            else:
                await self._offer()
            while True:
                await self._from_tracker((await control.read(protocol.SILENT_SECONDS)).header, address)
        finally:
            pinging.cancel()
            control.close()

    async def _from_tracker(self, header: dict[str, Json], address: Address) -> None:
        op = header.get("op")
        if op == "revoke" and self._ticket and not self._turn.locked():
            await self._offer()
        elif op == "dial":
            self._spawn(self._dialled(address, header))

    async def _dialled(self, address: Address, header: dict[str, Json]) -> None:
        try:
            peer = await open_peer(address, "proxy", {"want": "data", "id": text_of(header, "id", 64)})
        except ArmillaryError as error:
            _LOG.warning("proxy: %s", error.message)
            return
        try:
            async with self._turn:
                await self._session(peer, header)
        except ArmillaryError as error:
            await peer.refuse(error)
        finally:
            peer.close()

    async def _tell(self, header: dict[str, Json]) -> None:
        if self._control is not None:
            with contextlib.suppress(RPCError):  # it is told again when it is back
                await self._control.write(Frame(header))

    async def _offer(self) -> None:
        self._ticket = secrets.token_hex(16)
        await self._tell({"op": "free", "ticket": self._ticket})

    # ---- sessions

    async def _serve(self, peer: Peer, want: dict[str, Json]) -> None:
        if want.get("want") != "session":
            raise RPCError(f"a server has no {str(want.get('want'))[:40]!r}", hint="it runs sessions")
        key, ticket = text_of(want, "key", default=""), text_of(want, "ticket", 64, default="")
        if key and key != self.options.key:
            raise RPCError(f"this server's key is {self.options.key!r}, not {key!r}")
        if self.options.tracker is not None:
            if not ticket or not hmac.compare_digest(ticket, self._ticket):
                message = "the ticket is not valid (any more)" if ticket else "this server is given out by its tracker"
                raise RPCError(message, hint=f"connect_tracker({str(self.options.tracker)!r}).request(key)")
            self._ticket = ""
        async with self._turn:
            if not peer.reader.at_eof():
                await self._session(peer, want)

    async def _session(self, peer: Peer, want: dict[str, Json]) -> None:
        self._user = text_of(want, "user", default="") or peer.name
        milliseconds = int_of(want, "session_ms", 0, _WEEK_MS, 0)
        seconds = min(milliseconds / 1000 or self.options.max_session_seconds, self.options.max_session_seconds)
        worker = await self._taken()
        await self._tell({"op": "busy", "ticket": text_of(want, "ticket", 64, default=""), "user": self._user})
        _LOG.info("session of %s begins", self._user)
        begin, failure = time.monotonic(), ""
        try:
            await peer.write(Frame({"ok": device_info()}))
            failure = await _Pump(peer, worker, begin + seconds, seconds, self.options.idle_seconds).run()
        except ArmillaryError as error:
            failure = error.message
            raise
        finally:
            await worker.kill()
            self._clear(worker)
            self._user = ""
            _LOG.info("session ended after %.1f s%s", time.monotonic() - begin, f": {failure}" if failure else "")
            if not self._is_stopping:
                self._spawn(self._ready(failure))

    async def _taken(self) -> WorkerProcess:
        """The process that stands by, or one that is made now."""
        async with self._standing_by:
            worker, self._standby = self._standby, None
            return worker or await WorkerProcess.start(self.options.memory_bytes)

    async def _ready(self, failure: str) -> None:
        """Report the end, prepare the next process, and be free again."""
        async with self._standing_by:
            if self._standby is None:
                self._standby = await WorkerProcess.start(self.options.memory_bytes)
        await self._tell({"op": "done", "error": failure[:2000]})
        if self.options.tracker is not None:
            async with self._turn:
                await self._offer()


class _Pump:
    """Carries requests from the client to the worker, and answers back, until one of them ends or time is over."""

    def __init__(self, peer: Peer, worker: WorkerProcess, deadline: float, seconds: float, idle: float) -> None:
        self.peer, self.worker = peer, worker
        self.deadline, self.seconds, self.idle = deadline, seconds, idle

    async def run(self) -> str:
        """Serve until the end; what went wrong, or ""."""
        from_client = asyncio.create_task(self.peer.read())
        try:
            while True:
                await asyncio.wait({from_client}, timeout=min(self._left(), self.idle))
                if not from_client.done():
                    raise self._expired()
                try:
                    request = from_client.result()
                except RPCError:
                    return ""  # the client has closed: the usual end
                from_client = asyncio.create_task(self.peer.read())
                reply = await self._answer(request, from_client)
                if reply is None:
                    return "the client went away during a request"
                await self.peer.write(reply)
        finally:
            from_client.cancel()
            with contextlib.suppress(ArmillaryError, asyncio.CancelledError):
                await from_client

    def _left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    async def _answer(self, request: Frame, from_client: asyncio.Task[Frame]) -> Frame | None:
        """The worker's answer; None if the client went away meanwhile."""
        answer = asyncio.create_task(self._ask(request))
        try:
            waiting: set[asyncio.Task[Frame]] = {answer, from_client}
            while not answer.done():
                await asyncio.wait(waiting, timeout=self._left(), return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    break
                if self._left() == 0:
                    raise self._expired()
                if from_client.done():
                    if from_client.exception() is not None:
                        return None
                    waiting = {answer}
            return await self._checked(answer)
        finally:
            answer.cancel()
            with contextlib.suppress(ArmillaryError, asyncio.CancelledError):
                await answer

    async def _ask(self, request: Frame) -> Frame:
        await self.worker.peer.write(request)
        return await self.worker.peer.read()

    async def _checked(self, answer: asyncio.Task[Frame]) -> Frame:
        try:
            return answer.result()
        except RPCError:
            raise ExecutionError(await self.worker.epitaph()) from None

    def _expired(self) -> RPCError:
        if self._left() > 0:
            return RPCSessionTimeoutError(f"the session was silent for {self.idle:g} s and has ended")
        hint = "pass a longer session_timeout, or look for a kernel that does not end"
        return RPCSessionTimeoutError(f"Your {self.seconds:g}s session has expired", hint=hint)


async def _ping(control: Peer) -> None:
    with contextlib.suppress(RPCError):  # the reader of the connection sees its end, too
        while True:
            await asyncio.sleep(protocol.PING_SECONDS)
            await control.write(Frame({"op": "ping"}))
