"""The tracker: knows the devices, and sends each client to one that is free.

In: connections of servers, which report when they are free, and of clients, which ask for a device of a key. Out:
leases. Invariant: what a connection holds goes when it ends - a dead client's request, a dead server's devices;
nothing is on disk: after a restart the servers register again. Who is next: `queue.py`; the messages: `protocol.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from typing import Any

from armillary.base.lazy import lazy_names
from armillary.errors import ArmillaryError, RPCError
from armillary.rpc import protocol
from armillary.rpc.connection import check_address
from armillary.rpc.page import serve_page
from armillary.rpc.progress import Curves
from armillary.rpc.protocol import Frame, Json, int_of, text_of
from armillary.rpc.queue import CLAIM_SECONDS, Book, Device, Request
from armillary.rpc.serving import Listener, Peer, Tls

_LOG = logging.getLogger("RPCTracker")
__getattr__, __dir__ = lazy_names(__name__, {"Tracker": "armillary.rpc.launch:Tracker"})  # as a script starts one
_TICK = 1.0
_CLAIMING = 0.3  # seconds after which a server has told that the client came
MAX_WAITING = 4096
MAX_SERVERS = 4096
ABSENT_MS = 5000  # that a request waits while no server has its key, unless it says otherwise; servers come back in 2 s
IDLE_SECONDS = 3600.0  # after which a silent client loses its connection


class TrackerService:
    """Listens, keeps the book, answers."""

    def __init__(
        self, *, secret: bytes | None = None, tls: Tls | None = None, claim_seconds: float = CLAIM_SECONDS
    ) -> None:
        self.book = Book(claim_seconds)
        self.curves = Curves()
        self.started = time.time()
        self._turns: dict[Request, asyncio.Future[Device]] = {}
        self._servers: dict[Device, Peer] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self.listener = Listener("tracker", self._serve, secret=secret, tls=tls, page=self._page)

    async def start(self, host: str, port: int, port_end: int = 0) -> None:
        """Listen at the first free port of the range."""
        await self.listener.start(host, port, port_end)
        self._ticking = asyncio.create_task(self._tick())
        _LOG.info("bind to %s:%d", host, self.port)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.listener.port

    async def stop(self) -> None:
        """Close every connection."""
        if self._ticking is not None:
            self._ticking.cancel()
        await self.listener.stop()

    async def _serve(self, peer: Peer, want: dict[str, Json]) -> None:
        kind = want.get("want")
        if kind == "client":
            await self._client(peer, text_of(want, "user"))
        elif kind == "serve":
            await self._server(peer, want)
        else:
            raise RPCError(f"a tracker has no {str(kind)[:40]!r}", hint="ask it for a device of a key")

    # ---- servers

    async def _server(self, peer: Peer, want: dict[str, Json]) -> None:
        device = self._registered(peer, want)
        if len(self.book.devices) >= MAX_SERVERS:
            raise RPCError(f"the tracker has {MAX_SERVERS} servers already")
        await peer.write(Frame({"ok": {"rpc": protocol.VERSION}}))
        self.book.add(device)
        self._servers[device] = peer
        _LOG.info("%s registered as %s:%d", device.key, device.host, device.port)
        try:
            while True:
                frame = await peer.read(protocol.SILENT_SECONDS)
                await self._from_server(peer, device, frame.header)
        finally:
            del self._servers[device]
            self.book.drop(device, time.monotonic())
            _LOG.info("%s at %s:%d is gone", device.key, device.host, device.port)

    def _registered(self, peer: Peer, want: dict[str, Json]) -> Device:
        key, host, port = text_of(want, "key"), text_of(want, "host", default=""), want.get("port")
        if not key:
            raise RPCError("a server needs a key: the name of its queue")
        check_address(host or peer.host, port)
        info = want.get("info", {})
        if not isinstance(info, dict) or len(info) > 16:
            raise RPCError("info: an object of at most 16 texts is expected")
        info = {text_of({"name": name}, "name", 32): text_of(info, name) for name in info}
        return Device(
            key, host or peer.host, int_of(want, "port", 1, 65535), bool(want.get("tls")), info, since=time.monotonic()
        )

    async def _from_server(self, peer: Peer, device: Device, header: dict[str, Json]) -> None:
        now, op = time.monotonic(), header.get("op")
        if op == "ping":
            await peer.write(Frame({"op": "pong"}))
        elif op == "free":
            ticket = text_of(header, "ticket", 64)
            self.book.free(device, ticket, now)
            self._grant()
        elif op == "busy":
            self.book.busy(device, text_of(header, "ticket", 64), text_of(header, "user"), now)
        elif op == "done":
            failure = text_of({"error": str(header.get("error", "")).replace("\n", " ")}, "error", 4096)
            if failure:
                self.book.fail(device, failure, now)
                _LOG.info("%s:%d: %s", device.host, device.port, failure)
        else:
            raise RPCError(f"a server does not say {str(op)[:40]!r}")

    # ---- clients

    async def _client(self, peer: Peer, user: str) -> None:
        granted: list[Request] = []
        await peer.write(Frame({"ok": {"rpc": protocol.VERSION}}))
        try:
            while True:
                frame = await peer.read(IDLE_SECONDS)
                try:
                    reply = await self._from_client(peer, user or peer.name, frame.header, granted)
                except ArmillaryError as error:
                    reply = Frame(protocol.refusal(error))
                await peer.write(reply)
        finally:
            if granted:
                task = asyncio.ensure_future(self._gone(granted))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _gone(self, granted: list[Request]) -> None:
        """A client has left, with its device or dead: tickets that it did not bring to their server are given back."""
        await asyncio.sleep(_CLAIMING)  # the server tells of a session at its beginning
        for request in granted:
            device = self.book.give_back(request, time.monotonic())
            if device is not None:
                _LOG.info("a client went away with a ticket for %s:%d", device.host, device.port)
                await self._revoke(device)

    async def _revoke(self, device: Device) -> None:
        with contextlib.suppress(RPCError):
            await self._servers[device].write(Frame({"op": "revoke", "ticket": device.ticket}))

    async def _from_client(self, peer: Peer, user: str, header: dict[str, Json], granted: list[Request]) -> Frame:
        if header.get("op") == "summary":
            return Frame({"ok": {}}, self.summary_text().encode())
        if header.get("op") == "progress":
            self.curves.note(user, header, time.monotonic())
            return Frame({"ok": {}})
        if header.get("op") != "request":
            raise RPCError(f"a tracker does not know {str(header.get('op'))[:40]!r}")
        key = text_of(header, "key")
        if len(self.book.waiting) >= MAX_WAITING:
            raise RPCError(f"{MAX_WAITING} requests wait already")
        priority = int_of(header, "priority", -1000, 1000, 1)
        wait = int_of(header, "wait_ms", 1, 7 * 86400 * 1000, 60_000) / 1000
        request = self.book.ask(key, user, priority, time.monotonic())
        turn: asyncio.Future[Device] = asyncio.get_running_loop().create_future()
        self._turns[request] = turn
        gone = asyncio.create_task(peer.reader.read(1))  # a waiting client says nothing: what comes is its end
        try:
            self._grant()
            absent = int_of(header, "absent_ms", 0, 7 * 86400 * 1000, ABSENT_MS) / 1000
            await self._wait({turn, gone}, key, wait, absent)
            if turn.done():
                granted.append(request)
                return self._lease(peer, turn.result(), request)
            if gone.done():
                raise ConnectionResetError(f"{peer.name} left the queue")
            raise self._nobody_free(key, wait)
        finally:
            del self._turns[request]
            self.book.leave(request)
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await gone

    async def _wait(self, ends: set[asyncio.Future[Any]], key: str, wait: float, absent: float) -> None:
        """Until one of `ends` is done, `wait` seconds are over, or for `absent` seconds no device had the key.

        Any: two kinds of results.
        """
        now = time.monotonic()
        until, missing = now + wait, now
        while now < until and not any(end.done() for end in ends):
            if any(device.key == key for device in self.book.devices):
                missing = now
            elif now - missing >= absent:
                return
            left = min(until - now, _TICK, max(0.05, missing + absent - now))
            await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            now = time.monotonic()

    def _lease(self, peer: Peer, device: Device, request: Request) -> Frame:
        host = device.host
        if protocol.is_loopback(host) and not protocol.is_loopback(peer.host):  # it runs beside the tracker
            host = str(peer.writer.get_extra_info("sockname")[0])
        lease = {"host": host, "port": device.port, "ticket": request.ticket, "key": device.key, "tls": device.tls}
        return Frame({"ok": lease})

    def _nobody_free(self, key: str, wait: float) -> RPCError:
        total = sum(device.key == key for device in self.book.devices)
        if not total:
            known = ", ".join(sorted({device.key for device in self.book.devices})) or "none"
            return RPCError(f"no device has the key {key!r}", hint=f"keys with devices: {known}")
        return RPCError(f"no device of the key {key!r} became free within {wait:g} s", hint=f"{total} are in use")

    # ---- both

    def _grant(self) -> None:
        for request in self.book.grant(time.monotonic()):
            turn, device = self._turns.get(request), request.granted
            if turn is not None and not turn.done() and device is not None:
                turn.set_result(device)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            for device in self.book.unclaimed(time.monotonic()):
                _LOG.info("nobody came to %s:%d with the ticket", device.host, device.port)
                await self._revoke(device)

    def summary_text(self) -> str:
        """The book and the curves of tuning as JSON."""
        now = time.monotonic()
        return json.dumps({**self.book.summary(now), "tuning": self.curves.summary(now)})

    async def _page(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, start: bytes) -> None:
        await serve_page(self, reader, writer, start)
