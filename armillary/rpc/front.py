"""A server without TLS behind a proxy that has it: `armrpc` on a board, lent under the proxy's address.

In: where the server listens, the name of its queue, the tracker, if there is one. Out: a `Front`: registered at the
tracker for the server, a ticket for each session, and the session's frames carried to the server and back. Invariant:
the server is asked before it is offered; a session ends at both ends together, and with an error the tracker is told.
The proxy: `proxy.py`. Servers that connect by themselves need no front.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable

from armillary.base.record import record
from armillary.errors import ArmillaryError, RPCError
from armillary.rpc import protocol
from armillary.rpc.protocol import Frame, Json, text_of
from armillary.rpc.serving import Address, Peer, open_answered, open_peer

_LOG = logging.getLogger("RPCProxy")
_RETRY = (0.5, 8.0)
Carry = Callable[[Peer, Peer], Awaitable[None]]


@record
class Place:
    """Where clients find the proxy."""

    host: str
    port: int
    tls: bool


class Front:
    """One server that listens, and its place in a queue."""

    def __init__(self, server: Address, key: str, tracker: Address | None) -> None:
        self.server, self.key, self.tracker = server, key, tracker
        self.ticket = ""
        self._control: Peer | None = None
        self._is_busy = False

    def is_for(self, ticket: str, key: str) -> bool:
        """Whether a session is for this server: by its ticket, or without a tracker by its key."""
        if self.tracker is not None:
            return bool(self.ticket) and hmac.compare_digest(self.ticket, ticket)
        return key in ("", self.key)

    async def register(self, place: Place) -> None:
        """Be registered until cancelled; again after the tracker, or the server, was away."""
        pause, said = _RETRY[0], ""
        while True:
            try:
                await self._registered(place)
                pause, said = _RETRY[0], ""
            except ArmillaryError as error:
                if error.message != said:
                    _LOG.warning("%s: %s", self.server, error.message)
                said = error.message
            finally:
                self._control, self.ticket = None, ""
            await asyncio.sleep(pause)
            pause = min(2 * pause, _RETRY[1])

    async def _registered(self, place: Place) -> None:
        assert self.tracker is not None, "registered at one only"
        probe, info = await open_answered(self.server, "server", {"want": "session", "user": "the proxy"})
        probe.close()
        where: dict[str, Json] = {"host": place.host, "port": place.port, "tls": place.tls}
        want: dict[str, Json] = {"want": "serve", "key": self.key, "info": info}
        control = await open_peer(self.tracker, "tracker", want | where)
        self._control = control
        _LOG.info("%s is behind this proxy as %s", self.server, self.key)
        pinging = asyncio.create_task(_ping(control))
        try:
            if not self._is_busy:
                await self._offer()
            while True:
                header = (await control.read(protocol.SILENT_SECONDS)).header
                if header.get("op") == "revoke" and self.ticket and not self._is_busy:
                    await self._offer()
        finally:
            pinging.cancel()
            control.close()

    async def _offer(self) -> None:
        self.ticket = secrets.token_hex(16)
        await self._tell({"op": "free", "ticket": self.ticket})

    async def _tell(self, header: dict[str, Json]) -> None:
        if self._control is not None:
            with contextlib.suppress(RPCError):  # it is told again when it is back
                await self._control.write(Frame(header))

    async def session(self, peer: Peer, want: dict[str, Json], carry: Carry) -> None:
        """Carry one session."""
        taken, self.ticket = self.ticket, ""
        user = text_of(want, "user", default="") or peer.name
        self._is_busy, failure = True, ""
        try:
            await self._tell({"op": "busy", "ticket": taken, "user": user})
            mine = {name: value for name, value in want.items() if name not in ("ticket", "key")}
            other, info = await open_answered(self.server, "server", mine | {"user": user})
            await peer.write(Frame({"ok": info}))
            await carry(peer, other)
        except ArmillaryError as error:
            failure = error.message
            raise
        finally:
            self._is_busy = False
            await self._tell({"op": "done", "error": failure[:2000]})
            if self._control is not None:
                await self._offer()


async def _ping(control: Peer) -> None:
    with contextlib.suppress(RPCError):  # the reader of the connection sees its end, too
        while True:
            await asyncio.sleep(protocol.PING_SECONDS)
            await control.write(Frame({"op": "ping"}))
