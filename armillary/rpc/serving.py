"""The listening end of connections: handshakes, limits, deadlines.

In: an address, the secret, and what to do with a connection that has proved itself. Out: `Listener`, and a `Peer` for
each connection. Invariant: whoever has not proved that it knows the secret costs at most one of `MAX_STRANGERS`
places, 4 KiB and five seconds, and nothing that it sent is acted upon. The connecting end: `connection.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from armillary.base.files import read_regular
from armillary.base.record import record
from armillary.errors import ArmillaryError, AuthError, ConfigError, RPCError, Span
from armillary.rpc import protocol
from armillary.rpc.connection import CONNECT_SECONDS, client_context, client_seal, tune
from armillary.rpc.protocol import AFTER_OPEN, BEFORE_OPEN, PREFIX, TAG_BYTES, Frame, Json, Limits, Seal
from armillary.rpc.waiting import within

MAX_STRANGERS = 64
_LISTEN_BACKLOG = 128


@record(slots=True)
class Tls:
    """A certificate and its key, as PEM files."""

    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        """What the listening side encrypts with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            for file in (self.certificate, self.key):
                read_regular(file)  # a pipe would be waited for
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            message = f"the certificate or its key cannot be used: {error}"
            raise ConfigError(message, span=Span(self.certificate)) from None
        return context

    def binding(self) -> bytes:
        """What the keys of connections hang on: the first certificate of the file."""
        text = Path(self.certificate).read_text("ascii", "replace")
        begin, end = text.find("-----BEGIN CERTIFICATE-----"), text.find("-----END CERTIFICATE-----")
        return protocol.binding_of(ssl.PEM_cert_to_DER_cert(text[begin : end + 25] + "\n"))


class Peer:
    """A connection seen from the listening side, or between a server and its worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seal: Seal | None = None) -> None:
        self.reader, self.writer, self.seal = reader, writer, seal
        address = writer.get_extra_info("peername")
        self.host = str(address[0]) if isinstance(address, tuple) and address else ""
        self.name = f"{self.host}:{address[1]}" if self.host else "local"

    async def read(self, seconds: float | None = None, limits: Limits = AFTER_OPEN) -> Frame:
        """The next frame; RPCError if it is damaged, too large or late, or if there is none to come."""
        try:
            prefix = await within(seconds, self.reader.readexactly(PREFIX.size))
            return await self.read_rest(prefix, limits)
        except TimeoutError:
            raise RPCError(f"{self.name}: no message came in time") from None
        except asyncio.IncompleteReadError:
            raise RPCError(f"{self.name}: the connection was closed") from None
        except OSError as error:
            raise RPCError(f"{self.name}: {error.strerror or error}") from None

    async def read_rest(self, prefix: bytes, limits: Limits) -> Frame:
        """What follows the first bytes of a frame."""
        header_size, payload_size, sealed = protocol.sizes(prefix, limits, self.seal is not None)
        tag_size = TAG_BYTES if sealed else 0

        async def rest() -> tuple[bytes, bytes, bytes]:
            exactly = self.reader.readexactly
            return await exactly(header_size), await exactly(payload_size), await exactly(tag_size)

        header, payload, tag = await within(protocol.FRAME_SECONDS, rest())
        return protocol.decode(prefix, header, payload, tag, self.seal)

    async def write(self, frame: Frame) -> None:
        """Send a frame; the peer has a minute to take it."""
        try:
            self.writer.writelines(protocol.encode(frame, self.seal))
            await within(protocol.FRAME_SECONDS, self.writer.drain())
        except TimeoutError:
            raise RPCError(f"{self.name}: it takes no data") from None
        except OSError as error:
            raise RPCError(f"{self.name}: {error.strerror or error}") from None

    async def refuse(self, error: ArmillaryError) -> None:
        """Tell the peer why it is refused; it may be gone."""
        with contextlib.suppress(RPCError):
            await self.write(Frame(protocol.refusal(error)))

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


@record(slots=True)
class Address:
    """Where a tracker or proxy is, and how to prove oneself there."""

    host: str
    port: int
    secret: bytes | None = None
    insecure: bool = False
    tls: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


async def open_peer(address: Address, role: str, want: dict[str, Json]) -> Peer:
    """Connect to a tracker, proxy or server, prove ourselves, and say what we want; returns when it agreed."""
    return (await open_answered(address, role, want))[0]


async def open_answered(address: Address, role: str, want: dict[str, Json]) -> tuple[Peer, Json]:
    """The same, with what it answered."""
    context = client_context() if address.tls else None
    try:
        opening = asyncio.open_connection(address.host, address.port, ssl=context)
        reader, writer = await within(CONNECT_SECONDS, opening)
    except TimeoutError:
        raise RPCError(f"{address}: cannot connect: no answer in time") from None
    except OSError as error:
        raise RPCError(f"{address}: cannot connect: {error.strerror or error}") from None
    peer = Peer(reader, writer)
    try:
        tune(writer.get_extra_info("socket"))
        nonce = protocol.new_nonce()
        await peer.write(Frame({"rpc": protocol.VERSION, "nonce": nonce}))
        hello = (await peer.read(protocol.OPEN_SECONDS, BEFORE_OPEN)).header
        encrypted = writer.get_extra_info("ssl_object")
        certificate = encrypted.getpeercert(binary_form=True) if encrypted else None
        peer.seal = client_seal(hello, nonce, (role,), peer.host, certificate, address.secret, address.insecure)
        await peer.write(Frame(want))
        answer = protocol.answer((await peer.read(CONNECT_SECONDS)).header)
    except BaseException:
        peer.close()
        raise
    return peer, answer


Handler = Callable[[Peer, dict[str, Json]], Awaitable[None]]
PageHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]


class Listener:
    """Accepts connections, lets them prove themselves, and hands them on."""

    def __init__(
        self,
        role: str,
        handler: Handler,
        *,
        secret: bytes | None = None,
        tls: Tls | None = None,
        page: PageHandler | None = None,
    ) -> None:
        self.role, self.secret, self.tls = role, secret, tls
        self.host, self.port = "", 0
        self._handler, self._page = handler, page
        self._binding = tls.binding() if tls else b""
        self._server: asyncio.Server | None = None
        self._strangers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = logging.getLogger(f"RPC{role.capitalize()}")

    async def start(self, host: str, port: int, port_end: int = 0) -> None:
        """Listen at the first free port in [port, port_end); 0 is any free port."""
        sock = _bound(host, port, max(port_end, port + 1))
        self.host, self.port = host, int(sock.getsockname()[1])
        context = self.tls.context() if self.tls else None
        self._server = await asyncio.start_server(
            self._accept,
            sock=sock,
            ssl=context,
            backlog=_LISTEN_BACKLOG,
            ssl_handshake_timeout=protocol.OPEN_SECONDS if context else None,
        )

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs this in a task"
        self._tasks.add(task)
        self._strangers[task] = writer
        if len(self._strangers) > MAX_STRANGERS:  # the one that has taken longest makes room
            oldest, connection = next(iter(self._strangers.items()))
            del self._strangers[oldest]
            connection.transport.abort()
        try:
            await self._serve(reader, writer, task)
        except ArmillaryError as error:
            self._log.debug("%s", error.message)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError) as error:
            self._log.debug("a connection ended: %s", error)
        except asyncio.CancelledError:  # the program ends: a stream of Python 3.11 would print a traceback of it
            self._log.debug("a connection ended with the program")
        finally:
            self._tasks.discard(task)
            self._strangers.pop(task, None)
            writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> None:
        sock = writer.get_extra_info("socket")
        if sock is not None:
            tune(sock)
        peer = Peer(reader, writer)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + protocol.OPEN_SECONDS
        start = await within(protocol.OPEN_SECONDS, reader.readexactly(4))
        if start in (b"GET ", b"HEAD") and self._page is not None:
            await within(protocol.OPEN_SECONDS, self._page(reader, writer, start))
            return
        try:
            want = await within(max(0.01, deadline - loop.time()), self._open(peer, start))
        except ArmillaryError as error:
            if isinstance(error, AuthError):
                self._log.warning("%s was refused: %s", peer.name, error.message)
            peer.seal = None if isinstance(error, AuthError) else peer.seal
            await peer.refuse(error)
            raise
        self._strangers.pop(task, None)
        try:
            await self._handler(peer, want)
        except ArmillaryError as error:
            await peer.refuse(error)
            raise

    async def _open(self, peer: Peer, start: bytes) -> dict[str, Json]:
        prefix = start + await peer.reader.readexactly(PREFIX.size - len(start))
        hello = await peer.read_rest(prefix, BEFORE_OPEN)
        nonces = protocol.checked_nonce(hello.header), protocol.new_nonce()
        auth = "hmac-sha256" if self.secret else "none"
        await peer.write(Frame({"rpc": protocol.VERSION, "nonce": nonces[1], "role": self.role, "auth": auth}))
        if self.secret:
            peer.seal = protocol.seal_of(self.secret, self.role, nonces, self._binding, is_client=False)
        frame = await peer.read(protocol.OPEN_SECONDS, BEFORE_OPEN)
        return frame.header

    async def stop(self) -> None:
        """Close the door and every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _bound(host: str, port: int, port_end: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        message = f"cannot listen on {host}: {error.strerror or error}"
        raise RPCError(message, hint="name an address of this machine") from None
    last = None
    for candidate in range(port, port_end):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address[0], candidate))
            sock.listen(_LISTEN_BACKLOG)
            sock.setblocking(False)
            return sock
        except OSError as error:
            sock.close()
            last = error
    ports = f"port {port}" if port_end == port + 1 else f"any port of {port} to {port_end - 1}"
    message = f"cannot listen on {host}, {ports}: {last.strerror if last else ''}"
    raise RPCError(message, hint="is another one running? name another --port")
