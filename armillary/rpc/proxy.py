"""The proxy: lets clients reach servers that can connect outwards only.

In: connections of servers (`--through-proxy`), addresses of others (`front.py`), and sessions of clients. Out: each
server registered at the tracker under the proxy's address; a session's requests carried to the server, which connects
back for each. Invariant: a client comes with a ticket that a server has given, or is refused; what one end closes is
closed at the other.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Sequence

from armillary.errors import RPCError
from armillary.rpc import protocol
from armillary.rpc.front import Front, Place
from armillary.rpc.protocol import Frame, Json, int_of, text_of
from armillary.rpc.serving import Address, Listener, Peer, Tls, open_peer
from armillary.rpc.waiting import within

_LOG = logging.getLogger("RPCProxy")
_WEEK_MS = 7 * 86400 * 1000
_DIAL_SECONDS = 10.0


class _RegisteredServer:
    """A server behind the proxy."""

    def __init__(self, peer: Peer, want: dict[str, Json]) -> None:
        self.peer, self.want = peer, want
        self.key, self.ticket = text_of(want, "key"), ""


class Proxy:
    """Stands between clients and servers."""

    def __init__(
        self,
        tracker: Address | None,
        custom_host: str = "",
        *,
        secret: bytes | None = None,
        tls: Tls | None = None,
        servers: Sequence[Address] = (),
        key: str = "",
    ) -> None:
        """`servers` listen, and are lent under the `key`; others connect by themselves."""
        self.tracker, self.custom_host, self.tls = tracker, custom_host, tls
        self.listener = Listener("proxy", self._serve, secret=secret, tls=tls)
        self._servers: list[_RegisteredServer] = []
        self._fronts = [Front(server, key, tracker) for server in servers]
        self._registrations: list[asyncio.Task[None]] = []
        self._dialled: dict[str, asyncio.Future[tuple[Peer, asyncio.Event]]] = {}

    async def start(self, host: str, port: int, port_end: int = 0) -> None:
        """Listen at the first free port of the range."""
        await self.listener.start(host, port, port_end)
        _LOG.info("bind to %s:%d", host, self.listener.port)
        place = Place(self.custom_host, self.listener.port, self.tls is not None)
        if self.tracker is not None:
            self._registrations = [asyncio.create_task(front.register(place)) for front in self._fronts]

    async def stop(self) -> None:
        """Close every connection."""
        for task in self._registrations:
            task.cancel()
        await asyncio.gather(*self._registrations, return_exceptions=True)
        await self.listener.stop()

    async def _serve(self, peer: Peer, want: dict[str, Json]) -> None:
        kind = want.get("want")
        if kind == "serve":
            await self._server(peer, want)
        elif kind == "data":
            await self._data(peer, want)
        elif kind == "session":
            await self._session(peer, want)
        else:
            raise RPCError(f"a proxy has no {str(kind)[:40]!r}")

    # ---- servers

    async def _server(self, peer: Peer, want: dict[str, Json]) -> None:
        behind = _RegisteredServer(peer, want)
        upstream = await self._registered(want) if self.tracker is not None else None
        await peer.write(Frame({"ok": {"rpc": protocol.VERSION}}))
        self._servers.append(behind)
        _LOG.info("%s is behind this proxy", behind.key)
        down = asyncio.create_task(self._from_server(behind, upstream))
        ways = {down} if upstream is None else {down, asyncio.create_task(_from_tracker(behind, upstream))}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:  # without its tracker it registers again, here and there
            self._servers.remove(behind)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            if upstream is not None:
                upstream.close()

    async def _registered(self, want: dict[str, Json]) -> Peer:
        assert self.tracker is not None, "asked for with a tracker only"
        ours = {"host": self.custom_host, "port": self.listener.port, "tls": self.tls is not None}
        return await open_peer(self.tracker, "tracker", want | ours)

    async def _from_server(self, behind: _RegisteredServer, upstream: Peer | None) -> None:
        while True:
            header = (await behind.peer.read(protocol.SILENT_SECONDS)).header
            if header.get("op") == "free":
                behind.ticket = text_of(header, "ticket", 64)
            if upstream is not None:
                await upstream.write(Frame(header))
            elif header.get("op") == "ping":
                await behind.peer.write(Frame({"op": "pong"}))

    # ---- sessions

    async def _session(self, peer: Peer, want: dict[str, Json]) -> None:
        ticket, key = text_of(want, "ticket", 64, default=""), text_of(want, "key", default="")
        front = next((f for f in self._fronts if f.is_for(ticket, key)), None)
        if front is not None:
            await front.session(peer, want, _carry)
            return
        behind = next((s for s in self._servers if self._is_for(s, ticket, key)), None)
        if behind is None:
            message = "the ticket is not valid (any more)" if ticket else f"no server with the key {key!r} is free"
            raise RPCError(message)
        taken, behind.ticket = behind.ticket, ""
        dial = {
            "op": "dial",
            "id": secrets.token_hex(16),
            "ticket": taken,
            "key": key,
            "user": text_of(want, "user", default="") or peer.name,
            "session_ms": int_of(want, "session_ms", 0, _WEEK_MS, 0),
        }
        arrival: asyncio.Future[tuple[Peer, asyncio.Event]] = asyncio.get_running_loop().create_future()
        self._dialled[str(dial["id"])] = arrival
        try:
            await behind.peer.write(Frame(dial))
            other, over = await within(_DIAL_SECONDS, arrival)
        except TimeoutError:
            raise RPCError("the server behind the proxy does not answer") from None
        finally:
            self._dialled.pop(str(dial["id"]), None)
        try:
            await _carry(peer, other)
        finally:
            over.set()

    def _is_for(self, behind: _RegisteredServer, ticket: str, key: str) -> bool:
        if self.tracker is not None or ticket:
            return bool(behind.ticket) and hmac.compare_digest(behind.ticket, ticket)
        return behind.key == key and bool(behind.ticket)

    async def _data(self, peer: Peer, want: dict[str, Json]) -> None:
        arrival = self._dialled.pop(text_of(want, "id", 64), None)
        if arrival is None or arrival.done():
            raise RPCError("nobody waits for this connection")
        await peer.write(Frame({"ok": {}}))
        over = asyncio.Event()
        arrival.set_result((peer, over))
        await over.wait()


async def _from_tracker(behind: _RegisteredServer, upstream: Peer) -> None:
    while True:
        await behind.peer.write(Frame((await upstream.read(protocol.SILENT_SECONDS)).header))


async def _carry(one: Peer, other: Peer) -> None:
    """Carry frames both ways until one end closes."""

    async def way(source: Peer, target: Peer) -> None:
        while True:
            await target.write(await source.read())

    ways = [asyncio.create_task(way(one, other)), asyncio.create_task(way(other, one))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in ways:
            task.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        one.close()
        other.close()
