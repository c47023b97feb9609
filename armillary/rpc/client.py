"""The client: sessions on other machines, and trackers that lend them.

In: an address, or a key at a tracker. Out: `RPCSession`: files go there, modules are loaded, called and timed there.
Invariant: a session belongs to one client and ends when it is closed or dies; every wait ends at the session's
deadline. What the session makes: `remote.py`; the messages: `protocol.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from armillary.artifact import Descriptor
from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary, bounded
from armillary.base.files import regular, scratch_folder
from armillary.errors import ArtifactError, RPCConnectionError, RPCError, RPCSessionTimeoutError, Span
from armillary.rpc.connection import CONNECT_SECONDS, Connection, Transport
from armillary.rpc.connection import connect as open_connection
from armillary.rpc.protocol import CHUNK, Json
from armillary.rpc.remote import RemoteDevice, RemoteModule, RemoteNDArray
from armillary.rpc.session import Session
from armillary.rpc.session_files import SessionFiles
from armillary.runtime.device import Device, cl, cpu, device

T = TypeVar("T")
_GRACE = 5.0  # seconds for the word that the session has expired
_LONGEST = 7 * 86400.0
_MOST_PRIORITY = 1000
_RELEASED_AT_ONCE = 256


class RPCSession:
    """A session on another machine."""

    def __init__(self, transport: Transport, name: str, info: dict[str, Json], seconds: float = 0) -> None:
        self.name, self.info = name, info
        self._transport = transport
        self._end = time.monotonic() + seconds if seconds else None
        self._dead: list[tuple[str, int]] = []
        self._stored = 0

    def request(self, header: dict[str, Json], payload: bytes | memoryview = b"") -> tuple[Json, bytes | memoryview]:
        """Send a request of the protocol and wait for its answer."""
        _check_request(header, payload)
        while self._dead and header["op"] != "release":
            kind, handle = self._dead.pop()
            self.request({"op": "release", kind: handle})
        left = _LONGEST if self._end is None else max(0.0, self._end - time.monotonic()) + _GRACE
        try:
            return self._transport.request(header, payload, left)
        except RPCSessionTimeoutError:
            self.close()
            raise
        except RPCError as error:
            if self._end is not None and time.monotonic() >= self._end:
                self.close()
                raise RPCSessionTimeoutError(f"the session on {self.name} has expired ({error.message})") from None
            raise

    def held(self, kind: str, handle: int, owner: object) -> int:
        """Let go of a handle there when its owner dies here."""
        arguments = Arguments("RPCSession.held", RPCError)
        arguments.text("kind", kind)
        arguments.whole("handle", handle)
        if not hasattr(owner, "__weakref__"):
            arguments.refuse("owner", owner, "an object of a class")
        weakref.finalize(owner, self._dead.append, (kind, handle)).atexit = False
        return handle

    # ---- files

    @boundary("upload", arguments=True, first=1)
    def upload(self, data: str | os.PathLike[str] | bytes | bytearray, target: str | None = None) -> None:
        """Send a file (or bytes, under the name `target`) to the session's folder."""
        arguments = Arguments("RPCSession.upload", RPCError)
        arguments.kind("data", data, (str, os.PathLike, bytes, bytearray), "a path, or bytes")
        arguments.text("target", "" if target is None else target)
        if isinstance(data, bytes | bytearray):
            if target is None:
                raise RPCError("bytes need a name there", hint='upload(data, "name")')
            self._send(target, memoryview(data))
            return
        path = Path(data)
        try:
            with open(path, "rb", opener=regular) as stream:
                name, offset = target or path.name, 0
                while True:
                    piece = stream.read(CHUNK)
                    if piece or not offset:
                        self.request({"op": "write", "path": name, "offset": offset}, piece)
                    offset += len(piece)
                    if len(piece) < CHUNK:
                        return
        except OSError as error:
            raise ArtifactError(f"cannot be read: {error.strerror or error}", span=Span(str(path))) from None

    def _send(self, name: str, data: memoryview) -> None:
        for offset in range(0, max(1, len(data)), CHUNK):
            self.request({"op": "write", "path": name, "offset": offset}, data[offset : offset + CHUNK])

    def stored(self, data: bytes) -> str:
        """Put bytes into a new file there; its name."""
        Arguments("RPCSession.stored", RPCError).kind("data", data, (bytes, bytearray, memoryview), "bytes")
        self._stored += 1
        name = f".sent-{self._stored}"
        self._send(name, memoryview(data))
        return name

    def download(self, path: str) -> bytearray:
        """The bytes of a file there."""
        Arguments("RPCSession.download", RPCError).text("path", path)
        data = bytearray()
        while True:
            value, piece = self.request({"op": "read", "path": path, "offset": len(data), "size": CHUNK})
            data += piece
            if len(data) >= value["size"] or not len(piece):
                return data

    def remove(self, path: str) -> None:
        """Remove a file there."""
        Arguments("RPCSession.remove", RPCError).text("path", path)
        self.request({"op": "remove", "path": path})

    def listdir(self, path: str = "") -> list[str]:
        """Names of the files there whose path begins so."""
        Arguments("RPCSession.listdir", RPCError).text("path", path)
        names: list[str] = json.loads(bytes(self.request({"op": "list"})[1]))
        prefix = path.strip("/")
        return [name for name in names if not prefix or name == prefix or name.startswith(prefix + "/")]

    # ---- modules and devices

    def load_module(self, path: str) -> RemoteModule:
        """Load an uploaded .so or .tar."""
        Arguments("RPCSession.load_module", RPCError).text("path", path)
        value, data = self.request({"op": "load", "path": path})
        return RemoteModule(self, value["module"], Descriptor.from_json(bytes(data)), bool(value["graph"]), path)

    @boundary("sent", arguments=True, first=1)
    def sent(self, value: object) -> RemoteNDArray:  # RemoteNDArray, NDArray, array-likes
        """The value as a tensor there."""
        if isinstance(value, RemoteNDArray):
            if value.session is not self:
                raise RPCError(f"the tensor is of another session, {value.session.name}")
            return value
        array = np.asarray(value)
        dtype = getattr(value, "dtype", array.dtype)
        return self.cpu().empty_elsewhere(array.shape, str(dtype)).copyfrom(value)

    def device(self, dev_type: str, dev_id: int = 0) -> RemoteDevice:
        """A device there, of a kind or a target string."""
        return RemoteDevice.of(self, device(dev_type, dev_id))

    def cpu(self, dev_id: int = 0) -> RemoteDevice:
        """The CPU there."""
        return RemoteDevice.of(self, cpu(dev_id))

    def cl(self, dev_id: int = 0) -> RemoteDevice:
        """An OpenCL device there."""
        return RemoteDevice.of(self, cl(dev_id))

    def own(self, local: Device) -> RemoteDevice:
        """The device there that is like one of ours."""
        return RemoteDevice.of(self, local)

    def close(self) -> None:
        """End the session."""
        self._transport.close()

    def __enter__(self) -> RPCSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<armillary.rpc.RPCSession on {self.name}>"


class _Local:
    """A session of this process: what it makes lives here, behind the same requests."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._session = Session(SessionFiles(self._stack.enter_context(scratch_folder())))
        weakref.finalize(self, self._stack.close)

    def request(
        self, header: dict[str, Json], payload: bytes | memoryview = b"", seconds: float | None = None
    ) -> tuple[Json, bytes | memoryview]:
        """Do it here."""
        _check_request(header, payload)
        value, data = self._session.handle(header, payload)
        return value, bytes(data)

    def close(self) -> None:
        """Remove the folder."""
        self._stack.close()


class LocalSession(RPCSession):
    """A session with the surface of a remote one, in this process: for scripts that run either way."""

    def __init__(self) -> None:
        super().__init__(_Local(), "this machine", {})


def _check_request(header: object, payload: object) -> None:
    arguments = Arguments("RPCSession.request", RPCError)
    try:
        is_message = isinstance(header, dict) and isinstance(header.get("op"), str) and bool(json.dumps(header))
    except (TypeError, ValueError):
        is_message = False
    if not is_message:
        arguments.refuse("header", header, 'a dict of JSON values with "op"')
    arguments.kind("payload", payload, (bytes, bytearray, memoryview), "bytes")


def connect(
    url: str,
    port: int,
    key: str = "",
    session_timeout: float = 0,
    session_constructor_args: object = None,
    enable_logging: bool = False,
    *,
    secret: bytes | None = None,
    insecure: bool | None = None,
    tls: bool | None = None,
    wait_timeout: float = 600,
) -> RPCSession:
    """A session on a server that no tracker lends; waits until it is free, `wait_timeout` seconds at most.

    `session_timeout` is in seconds; 0 leaves it to the server.
    """
    del session_constructor_args, enable_logging  # of old
    _check_proof("rpc.connect", secret, url)
    arguments = Arguments("rpc.connect", RPCError)
    arguments.text("key", key)
    arguments.number("wait_timeout", wait_timeout, 0)
    wait, begin = min(wait_timeout, _LONGEST), time.monotonic()
    try:
        return _session(url, port, key, "", session_timeout, secret, insecure, tls, wait=wait)
    except RPCConnectionError:
        if time.monotonic() - begin < wait:
            raise
        message = f"{url}:{port} was in use for {wait:g} s"
        raise RPCError(message, hint="rpc.connect(…, wait_timeout=…), or a tracker that shares it") from None


def _session(
    host: str,
    port: int,
    key: str,
    ticket: str,
    seconds: float,
    secret: bytes | None,
    insecure: bool | None,
    tls: bool | None,
    wait: float,
) -> RPCSession:
    want = {
        "want": "session",
        "key": key,
        "ticket": ticket,
        "user": user_name(),
        "session_ms": _milliseconds(seconds),
    }
    connection, info, _ = open_connection(
        host, port, want, role=("server", "proxy"), secret=secret, insecure=insecure, tls=tls, wait=wait
    )
    return RPCSession(connection, f"{host}:{port}", info, seconds)


def _milliseconds(seconds: float) -> int:
    Arguments("rpc", RPCError).number("session_timeout", seconds)
    if not 0 <= seconds <= _LONGEST:
        raise RPCError(f"a session of {seconds} s is not possible", hint=f"0 (the server's limit) to {_LONGEST:.0f}")
    return round(seconds * 1000)


def user_name() -> str:
    """How this process is called at a tracker."""
    return f"{socket.gethostname()[:128]}:{os.getpid()}"


@bounded
class TrackerSession:
    """A tracker, as its clients see it; every request has a connection of its own."""

    def __init__(
        self, host: str, port: int, secret: bytes | None, insecure: bool | None, tls: bool | None, user: str = ""
    ) -> None:
        self._address = host, port
        self._proof = secret, insecure, tls
        self._user = user or user_name()
        self.summary()

    def _open(self) -> Connection:
        secret, insecure, tls = self._proof
        want = {"want": "client", "user": self._user}
        return open_connection(*self._address, want, secret=secret, insecure=insecure, tls=tls, wait=CONNECT_SECONDS)[0]

    def _ask(self, header: dict[str, Json], seconds: float) -> tuple[Json, bytes | memoryview]:
        connection = self._open()
        try:
            return connection.request(header, b"", seconds)
        finally:
            connection.close()

    def summary(self) -> dict[str, Json]:
        """Devices, queue, who waits, and what failed."""
        book: dict[str, Json] = json.loads(bytes(self._ask({"op": "summary"}, CONNECT_SECONDS)[1]))
        return book

    def report(self, progress: dict[str, Json]) -> None:
        """Tell of tuning, for the tracker's page: the fields of `progress` in protocol.py."""
        self._ask({"op": "progress", **progress}, CONNECT_SECONDS)

    def text_summary(self) -> str:
        """The tables that `query_rpc_tracker` prints."""
        return summary_text(self.summary())

    def request(
        self,
        key: str,
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 5,
        wait_timeout: float = 600,
        *,
        wait_for_key: float = 5,
    ) -> RPCSession:
        """A session on a device of the key; waits `wait_timeout` seconds at most until one is free, and
        `wait_for_key` seconds while no server has the key at all.

        A device that is lost on the way, or a tracker that is restarted, costs one of `max_retry` attempts.
        """
        arguments = Arguments("TrackerSession.request", RPCError)
        arguments.text("key", key)
        arguments.whole("priority", priority, -_MOST_PRIORITY, _MOST_PRIORITY)
        arguments.whole("max_retry", max_retry, 1)
        for name, seconds in (("wait_timeout", wait_timeout), ("wait_for_key", wait_for_key)):
            arguments.number(name, seconds, 0)
        _milliseconds(session_timeout)
        deadline, last = time.monotonic() + wait_timeout, RPCError("max_retry must be at least 1")
        for attempt in range(max_retry):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                return self._lease(key, priority, session_timeout, left, wait_for_key)
            except RPCError as error:
                last = error
                if "became free within" in error.message or "no device has the key" in error.message:
                    break
                time.sleep(min(2.0, 0.2 * 2**attempt, max(0.0, deadline - time.monotonic())))
        message = f"no session on a device of the key {key!r} at {self._address[0]}:{self._address[1]}: {last.message}"
        raise type(last)(message, hint=last.hint) from last

    def _lease(self, key: str, priority: int, seconds: float, wait: float, wait_for_key: float) -> RPCSession:
        secret, insecure, _ = self._proof
        waits = {"wait_ms": max(1, round(wait * 1000)), "absent_ms": round(min(wait_for_key, _LONGEST) * 1000)}
        request = {"op": "request", "key": key, "priority": priority, **waits}
        connection = self._open()
        try:  # while it is open, the tracker keeps the ticket for us
            lease, _ = connection.request(request, b"", wait + _GRACE)
            return _session(
                lease["host"],
                lease["port"],
                lease["key"],
                lease["ticket"],
                seconds,
                secret,
                insecure,
                bool(lease["tls"]),
                wait=CONNECT_SECONDS,
            )
        finally:
            connection.close()

    def request_and_run(
        self,
        key: str,
        func: Callable[[RPCSession], T],
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 2,
    ) -> T:
        """Run `func(session)` on a device, again on another one if the session is lost."""
        arguments = Arguments("TrackerSession.request_and_run", RPCError)
        arguments.callable("func", func, "a function of a session")
        arguments.whole("max_retry", max_retry, 1)
        last = RPCError("max_retry must be at least 1")
        for _ in range(max_retry):
            with self.request(key, priority, session_timeout) as session:
                try:
                    return func(session)
                except RPCError as error:
                    last = error
        raise RPCError(f"it failed {max_retry} times on devices of the key {key!r}: {last.message}") from last


def connect_tracker(
    url: str,
    port: int,
    *,
    secret: bytes | None = None,
    insecure: bool | None = None,
    tls: bool | None = None,
    user: str = "",
) -> TrackerSession:
    """A tracker's client; `user` is who shares fairly with others (default: this process)."""
    _check_proof("rpc.connect_tracker", secret, url)
    Arguments("rpc.connect_tracker", RPCError).text("user", user)
    return TrackerSession(url, port, secret, insecure, tls, user)


def _check_proof(what: str, secret: object, host: object) -> None:
    arguments = Arguments(what, RPCError)
    arguments.text("url", host)
    arguments.kind("secret", b"" if secret is None else secret, bytes, "bytes", "rpc.secret.read_secret(path)")


def summary_text(book: dict[str, Json]) -> str:
    """The server list and the queue as tables."""
    line = "-" * 30
    lines = ["Server List", line, "server-address           key", line]
    for row in sorted(book["server_info"], key=lambda row: (row["key"], row["addr"])):
        address = ":".join(str(part) for part in row["addr"])
        lines.append(f"{address:>21}    server:{row['key']}")
    lines += [line, "", "Queue Status"]
    width = max([len(key) for key in book["queue_info"]] + [3]) + 4
    title = f"{'key':<{width}}total  free  pending"
    rule = "-" * (len(title) + 1)
    rows = [
        f"{key:<{width}}{row['total']:<5}  {row['free']:<4}  {row['pending']}"
        for key, row in sorted(book["queue_info"].items())
    ]
    return "\n".join([*lines, rule, title, rule, *rows, rule])
