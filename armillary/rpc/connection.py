"""The client's end of a connection: a socket, frames, deadlines.

In: an address, what is wanted there, the secret. Out: `Connection`, whose `request` sends one message and waits for
its answer. Invariant: every wait has an end; after a failure the connection is closed, and says so when it is used
again. The other end: `serving.py`.
"""

from __future__ import annotations

import hashlib
import logging
import select
import socket
import ssl
import threading
import time
from typing import Protocol

from armillary.base.config import setting
from armillary.errors import ArmillaryError, RPCConnectionError, RPCError
from armillary.rpc import protocol
from armillary.rpc.protocol import AFTER_OPEN, BEFORE_OPEN, PREFIX, TAG_BYTES, Frame, Json, Limits, Seal
from armillary.rpc.secret import find_secret, secret_to_connect

CONNECT_SECONDS = 10.0
_MOMENT = 2.0  # seconds without an answer, after which a wait is told
_LOG = logging.getLogger("RPCClient")
_OTHER_ROLES = {  # what to do where one of these answers instead
    "tracker": "ask it for a device by its key: --rpc-key, or connect_tracker(host, port).request(key)",
    "server": "it has no queue: rpc.connect(host, port), without a key; trackers listen on 9190 unless told otherwise",
}
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


class Transport(Protocol):
    """What a session talks through: a connection, or the worker of this process."""

    def request(
        self, header: dict[str, Json], payload: bytes | memoryview = b"", seconds: float | None = None
    ) -> tuple[Json, bytes | memoryview]:
        """Send one message and wait for its answer."""

    def close(self) -> None:
        """Let go of it."""


class Connection:
    """An open connection; one request at a time, from any thread."""

    def __init__(self, sock: socket.socket, seal: Seal | None, peer: str) -> None:
        self.peer = peer
        self._socket: socket.socket | None = sock
        self._seal = seal
        self._lock = threading.Lock()

    def request(
        self, header: dict[str, Json], payload: bytes | memoryview = b"", seconds: float | None = None
    ) -> tuple[Json, bytes | memoryview]:
        """Send one message and wait for its answer, `seconds` at most."""
        with self._lock:
            self.send(Frame(header, payload))
            frame = self.receive(seconds)
        return protocol.answer(frame.header), frame.payload

    def has_answer(self, seconds: float) -> bool:
        """Whether something comes within so many seconds; it is not read."""
        return bool(select.select([self._open()], [], [], seconds)[0])

    def send(self, frame: Frame) -> None:
        """Send a frame; the peer has a minute to take it."""
        sock = self._open()
        try:
            sock.settimeout(protocol.FRAME_SECONDS)
            for piece in protocol.encode(frame, self._seal):
                sock.sendall(piece)
        except OSError as error:
            self.close()
            raise _lost(self.peer, error) from None

    def receive(self, seconds: float | None = None, limits: Limits = AFTER_OPEN) -> Frame:
        """The next frame; RPCError if none comes within `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            return self._receive(deadline, limits)
        except OSError as error:
            self.close()
            raise _lost(self.peer, error) from None
        except ArmillaryError:
            self.close()
            raise

    def _receive(self, deadline: float | None, limits: Limits) -> Frame:
        prefix = bytes(self._exactly(PREFIX.size, deadline))
        header_size, payload_size, sealed = protocol.sizes(prefix, limits, self._seal is not None)
        rest = time.monotonic() + protocol.FRAME_SECONDS
        header = self._exactly(header_size, rest)
        payload = self._exactly(payload_size, rest)
        tag = self._exactly(TAG_BYTES if sealed else 0, rest)
        return protocol.decode(prefix, bytes(header), memoryview(payload), bytes(tag), self._seal)

    def _exactly(self, size: int, deadline: float | None) -> bytearray:
        sock, data, done = self._open(), bytearray(size), 0
        view = memoryview(data)
        while done < size:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("no answer in time")
            sock.settimeout(left)
            count = sock.recv_into(view[done:])
            if count == 0:
                raise ConnectionResetError("the peer closed the connection")
            done += count
        return data

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise RPCConnectionError(f"{self.peer}: the connection is closed")
        return self._socket

    @property
    def local_host(self) -> str:
        """The address of this end."""
        return str(self._open().getsockname()[0])

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _lost(peer: str, error: OSError) -> RPCError:
    return RPCConnectionError(
        f"{peer}: {error.strerror or error}", hint="is it still running, and reachable from here?"
    )


def check_address(host: object, port: object) -> None:
    """RPCError unless this can be the address of a peer."""
    if not isinstance(host, str) or not host or type(port) is not int or not 0 < port < 65536:
        raise RPCError(f"no address: host {host!r}, port {port!r}", hint="a name or address, and a port of 1 to 65535")


def connect(
    host: str,
    port: int,
    want: dict[str, Json],
    *,
    role: tuple[str, ...] = ("tracker",),
    secret: bytes | None = None,
    insecure: bool | None = None,
    tls: bool | None = None,
    seconds: float = CONNECT_SECONDS,
    wait: float | None = None,
) -> tuple[Connection, Json, bytes | memoryview]:
    """Open a connection; `want` says for what. What the peer answers comes with it.

    `wait` is how long the peer may take to agree, which is told where it takes longer than a moment. A connection that
    ends while both say who they are is opened once again: a flood of strangers pushes out whoever is slow. Secret,
    `insecure` and `tls` default to the settings.
    """
    check_address(host, port)
    proof = secret, insecure, tls
    try:
        connection = _opened(host, port, role, proof, seconds)
    except _PushedOutError:
        connection = _opened(host, port, role, proof, seconds)
    try:
        connection.send(Frame(want))
        if wait is not None and wait > _MOMENT and not connection.has_answer(_MOMENT):
            _LOG.warning("%s is in use: waiting up to %g s", connection.peer, wait)
        frame = connection.receive(wait)
        return connection, protocol.answer(frame.header), frame.payload
    except BaseException:
        connection.close()
        raise


class _PushedOutError(RPCConnectionError):
    """The peer ended the connection before both had said who they are."""


def _opened(
    host: str, port: int, role: tuple[str, ...], proof: tuple[bytes | None, bool | None, bool | None], seconds: float
) -> Connection:
    peer, (secret, insecure, tls) = f"{host}:{port}", proof
    try:
        sock = socket.create_connection((host, port), timeout=seconds)
    except OSError as error:
        hint = f"is a {' or '.join(role)} running there?"
        raise RPCConnectionError(f"{peer}: cannot connect: {error.strerror or error}", hint=hint) from None
    try:
        tune(sock)
        certificate = None
        if setting("ARMILLARY_RPC_TLS") if tls is None else tls:
            encrypted = client_context().wrap_socket(sock, server_hostname=host)
            sock, certificate = encrypted, encrypted.getpeercert(binary_form=True)
        plain = Connection(sock, None, peer)
        try:
            seal = _greet(plain, sock, certificate, role, secret, insecure)
        except RPCConnectionError as error:
            raise _PushedOutError(error.message, hint=error.hint) from None
        return Connection(sock, seal, peer)
    except ssl.SSLError as error:
        sock.close()
        hint = "does it speak TLS? armrpc does not; ARMILLARY_RPC_TLS=0, or tls=False, connects without"
        raise RPCError(f"{peer}: no TLS connection: {error.reason or error}", hint=hint) from None
    except OSError as error:
        sock.close()
        raise _lost(peer, error) from None
    except BaseException:
        sock.close()
        raise


def _greet(
    plain: Connection,
    sock: socket.socket,
    certificate: bytes | None,
    role: tuple[str, ...],
    secret: bytes | None,
    insecure: bool | None,
) -> Seal | None:
    nonce = protocol.new_nonce()
    plain.send(Frame({"rpc": protocol.VERSION, "nonce": nonce}))
    hello = plain.receive(protocol.OPEN_SECONDS, BEFORE_OPEN).header
    allowed = setting("ARMILLARY_RPC_INSECURE") if insecure is None else insecure
    return client_seal(hello, nonce, role, str(sock.getpeername()[0]), certificate, secret or find_secret(), allowed)


def client_seal(
    hello: dict[str, Json],
    nonce: str,
    role: tuple[str, ...],
    host: str,
    certificate: bytes | None,
    secret: bytes | None,
    insecure: bool,
) -> Seal | None:
    """The seal that the peer's hello asks for; refused if the peer is another than was wanted."""
    if "error" in hello:
        protocol.answer(hello)
    other = protocol.checked_nonce(hello)
    peer_role = protocol.text_of(hello, "role", 16)
    if peer_role not in role:
        raise RPCError(f"{host}: this is a {peer_role}, no {' or '.join(role)}", hint=_OTHER_ROLES.get(peer_role, ""))
    proof = secret_to_connect(host, protocol.text_of(hello, "auth", 64), secret, insecure)
    binding = protocol.binding_of(certificate)
    return protocol.seal_of(proof, peer_role, (nonce, other), binding, is_client=True) if proof else None


def client_context() -> ssl.SSLContext:
    """TLS without a certificate authority: the secret's keys hang on the certificate, so nobody can sit between."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def tune(sock: socket.socket) -> None:
    """Small messages go at once, and a peer whose machine is gone is noticed within half a minute."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def fingerprint(secret: bytes | None) -> str:
    """Eight hex digits to compare secrets by eye."""
    return hashlib.sha256(b"fingerprint|" + secret).hexdigest()[:8] if secret else "none"
