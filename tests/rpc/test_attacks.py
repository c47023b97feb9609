"""What strangers send: each is refused, and nothing changes."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from farm import check_sanitizers, native_server, wait_until

from armillary import rpc
from armillary.errors import ArmillaryError, AuthError, ConfigError, RPCConnectionError, RPCError
from armillary.rpc import protocol
from armillary.rpc.connection import Connection
from armillary.rpc.connection import connect as open_connection
from armillary.rpc.launch import Launched, Server
from armillary.rpc.protocol import PREFIX, Frame
from armillary.rpc.secret import make_secret, read_secret, secret_to_connect, secret_to_listen
from armillary.rpc.session_files import SessionFiles

MESSAGES = 150  # of garbage for each listener


@pytest.fixture(scope="module")
def secret_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secret") / "rpc-secret"
    make_secret(path)
    return path


@pytest.fixture(scope="module", params=["python", "native"])
def guarded(request: pytest.FixtureRequest, secret_file: Path) -> Iterator[Launched]:
    """A server with a secret."""
    option = f"--secret-file={secret_file}"
    if request.param == "python":
        launched: Launched = Server(key="guarded", options=(option,))
    else:
        launched = native_server([str(request.getfixturevalue("armrpc"))], option, "--key=guarded")
    yield launched
    launched.terminate()
    check_sanitizers(launched)


def raw(server: Launched) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=20)


def greeted(server: Launched, nonce: str) -> tuple[socket.socket, Connection, str]:
    """A connection after the hellos, and the server's nonce."""
    sock = raw(server)
    connection = Connection(sock, None, "server")
    connection.send(Frame({"rpc": 1, "nonce": nonce}))
    return sock, connection, connection.receive(20).header["nonce"]


def is_alive(server: Launched, secret: bytes | None = None) -> bool:
    with rpc.connect(server.host, server.port, secret=secret, session_timeout=30) as session:
        return session.listdir() == []


def test_the_right_secret_opens_a_session(guarded: Launched, secret_file: Path) -> None:
    assert is_alive(guarded, read_secret(secret_file))


@pytest.mark.parametrize("secret", [b"another secret of the same kind", None])
def test_a_wrong_or_missing_secret_is_refused(
    guarded: Launched, secret: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ARMILLARY_CONFIG_DIR", str(tmp_path))
    with pytest.raises(AuthError, match="secrets of the two sides differ" if secret else "there is none here"):
        rpc.connect(guarded.host, guarded.port, secret=secret)


def test_a_client_refuses_a_server_that_does_not_know_the_secret() -> None:
    secret, nonces = b"0123456789abcdef", ("a" * 64, "b" * 64)
    ours = protocol.seal_of(secret, "server", nonces, b"", is_client=True)
    theirs = protocol.seal_of(b"fedcba9876543210", "server", nonces, b"", is_client=False)
    data = b"".join(protocol.encode(Frame({"ok": {}}), theirs))
    header = data[PREFIX.size : -32]
    with pytest.raises(AuthError):
        protocol.decode(data[: PREFIX.size], header, b"", data[-32:], ours)
    for text in ({"ok": {}}, {"ok": {}, "kind": "AuthError"}):
        plain = b"".join(protocol.encode(Frame(text), None))
        with pytest.raises(AuthError):
            protocol.decode(plain[: PREFIX.size], plain[PREFIX.size :], b"", b"", ours)


def test_a_recorded_handshake_fits_no_other_connection(guarded: Launched, secret_file: Path) -> None:
    nonce = protocol.new_nonce()
    first, _, other = greeted(guarded, nonce)
    seal = protocol.seal_of(read_secret(secret_file), "server", (nonce, other), b"", is_client=True)
    recorded = b"".join(protocol.encode(Frame({"want": "session", "key": "guarded"}), seal))
    first.sendall(recorded)
    assert "ok" in Connection(first, seal, "server").receive(20).header
    first.close()
    sock, again, _ = greeted(guarded, nonce)
    sock.sendall(recorded)
    with pytest.raises(AuthError, match="differ"):
        protocol.answer(again.receive(20).header)


def test_a_plain_message_after_the_hello_is_refused(guarded: Launched) -> None:
    for text in ({"want": "session"}, {"want": "session", "kind": "AuthError"}):
        _, connection, _ = greeted(guarded, protocol.new_nonce())
        connection.send(Frame(text))
        with pytest.raises(AuthError):
            protocol.answer(connection.receive(20).header)
        connection.close()


def test_a_changed_byte_ends_the_session(guarded: Launched, secret_file: Path) -> None:
    session = rpc.connect(guarded.host, guarded.port, secret=read_secret(secret_file))
    connection = session._transport
    assert isinstance(connection, Connection) and connection._seal is not None and connection._socket is not None
    data = bytearray(b"".join(protocol.encode(Frame({"op": "list"}), connection._seal)))
    data[-1] ^= 1
    connection._socket.sendall(data)
    connection._socket.settimeout(20)
    with contextlib.suppress(ConnectionResetError):
        assert connection._socket.recv(1) == b""
    assert is_alive(guarded, read_secret(secret_file))


def test_oversized_and_negative_lengths_are_refused_before_anything_is_read(server: Launched) -> None:
    for prefix in (
        struct.pack("<4siq", b"ARM1", -1, 0),
        struct.pack("<4siq", b"ARM1", 10, -1),
        PREFIX.pack(b"ARM1", 5000, 0),
        PREFIX.pack(b"ARM1", 10, 1),
        PREFIX.pack(b"ARMS", 10, 0),
        PREFIX.pack(b"GIT ", 10, 0),
    ):
        with raw(server) as sock:
            sock.sendall(prefix)
            frame = Connection(sock, None, "server").receive(20)
            assert frame.header["kind"] == "RPCError", prefix
            assert sock.recv(1) == b"", prefix
    assert is_alive(server)


def test_oversized_lengths_inside_a_session_end_it(server: Launched) -> None:
    session = rpc.connect(server.host, server.port)
    connection = session._transport
    assert isinstance(connection, Connection) and connection._socket is not None
    connection._socket.sendall(PREFIX.pack(b"ARM1", 100, (1 << 24) + 1))
    with pytest.raises(RPCError, match="closed"):
        connection.receive(20)
    assert is_alive(server)


ESCAPES = (
    "../x",
    "/etc/passwd",
    "a/../../x",
    "",
    ".",
    "a//b",
    "a\0b",
    "x" * 600,
    "a/" * 20 + "b",
    "..\\x",
)


def test_uploads_that_leave_the_folder_are_refused(server: Launched) -> None:
    session = rpc.connect(server.host, server.port)
    for path in ESCAPES:
        with pytest.raises(RPCError) as caught:
            session.request({"op": "write", "path": path, "offset": 0}, b"attack")
        if isinstance(caught.value, RPCConnectionError):  # the native server ends a session that is no client's
            session = rpc.connect(server.host, server.port)
    session.close()
    assert is_alive(server)


@pytest.mark.parametrize("path", [*ESCAPES, "link/x", "link"])
def test_paths_that_leave_the_folder_are_refused(path: str, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir(), outside.mkdir()
    (outside / "x").write_text("kept")
    (inside / "link").symlink_to(outside)
    files = SessionFiles(inside)
    for attempt in (
        lambda: files.write(path, 0, b"attack"),
        lambda: files.read(path, 0, 10),
        lambda: files.path(path),
        lambda: files.remove("link/x" if path == "link" else path),
    ):
        with pytest.raises((RPCError, Exception), match=r"path|refuses"):
            attempt()
    assert (outside / "x").read_text() == "kept" and sorted(p.name for p in tmp_path.iterdir()) == ["inside", "outside"]


def test_the_files_of_a_session_have_a_limit_and_no_holes(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path, max_bytes=100)
    files.write("a", 0, b"x" * 60)
    with pytest.raises(RPCError, match="100 bytes"):
        files.write("b", 0, b"x" * 41)
    with pytest.raises(RPCError, match="in order"):
        files.write("b", 1 << 40, b"x")
    files.write("a", 0, b"y")
    files.write("b", 0, b"x" * 99)
    assert files.read("a", 0, 10) == (b"y", 1)


def garbage(random_: random.Random) -> bytes:
    """A damaged message of some kind."""
    hello = b"".join(protocol.encode(Frame({"rpc": 1, "nonce": protocol.new_nonce()}), None))
    open_ = b"".join(protocol.encode(Frame({"want": random_.choice(["session", "serve", "client", "data", 7])}), None))
    kind = random_.randrange(6)
    if kind == 0:
        return random_.randbytes(random_.randrange(1, 200))
    if kind == 1:
        return PREFIX.pack(b"ARM1", random_.choice([0, 1, 64, 4096]), 0) + random_.randbytes(64)
    if kind == 2:
        text = random_.choice([b"[" * 4000, b"{}", b"null", b'{"rpc":1e999}', b'{"rpc":1,"rpc":1}', b"\xff\xfe"])
        return PREFIX.pack(b"ARM1", len(text), 0) + text
    data = bytearray(hello + open_)
    for _ in range(random_.randrange(1, 6)):
        data[random_.randrange(len(data))] = random_.randrange(256)
    return bytes(data[: random_.randrange(1, len(data) + 1)] if kind == 3 else data)


def throw_garbage(listener: Launched, count: int, seed: int) -> None:
    """Damaged messages of strangers, each on a connection of its own."""
    random_ = random.Random(seed)
    for _ in range(count):
        message = garbage(random_)
        with (
            socket.create_connection((listener.host, listener.port), timeout=20) as sock,
            contextlib.suppress(OSError),  # it may be closed at any moment
        ):
            sock.sendall(message)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):
                pass


def request_nonsense(server: Launched, count: int, seed: int) -> None:
    """Requests with arguments of all kinds, inside a session, which goes on."""
    random_ = random.Random(seed)
    operations = [
        "write",
        "read",
        "remove",
        "load",
        "alloc",
        "put",
        "get",
        "copy",
        "call",
        "time",
        "graph",
        "device",
        "graph_set",
        "graph_output",
        "graph_run",
        "graph_params",
        "graph_time",
        "profile",
        "none",
        None,
    ]
    values = [None, -1, 0, 1, (1 << 63) - 1, "x", "", [], [1], [-1, 3], [1 << 62] * 4, {}, True, "float32", "../x"]
    keys = [
        "path",
        "offset",
        "size",
        "module",
        "tensor",
        "graph",
        "shape",
        "dtype",
        "device",
        "name",
        "tensors",
        "scalars",
        "number",
        "source",
        "target",
        "index",
        "json",
    ]
    with rpc.connect(server.host, server.port) as session:
        tensor = session.cpu().empty_elsewhere((4,), "float32")
        for _ in range(count):
            header = {key: random_.choice(values) for key in random_.sample(keys, random_.randrange(8))}
            header |= {"op": random_.choice(operations)}
            with contextlib.suppress(ArmillaryError):
                session.request(header, random_.randbytes(random_.choice([0, 5, 16, 100])))
        assert tensor.copyfrom(np.full(4, 3, "float32")).numpy().tolist() == [3] * 4


def test_garbage_harms_neither_servers_nor_trackers(server: Launched) -> None:
    tracker = rpc.Tracker()
    for listener in (server, tracker):
        throw_garbage(listener, MESSAGES, seed=7)
    assert is_alive(server)
    assert rpc.connect_tracker(tracker.host, tracker.port).summary()["server_info"] == []
    said = "\n".join([*tracker.lines, *server.lines])
    assert "Traceback" not in said, said
    tracker.terminate()


def test_nonsense_inside_a_session_is_answered_and_the_session_goes_on(server: Launched) -> None:
    request_nonsense(server, 800, seed=11)


@pytest.mark.slow
def test_a_hundred_thousand_damaged_messages_harm_nobody(server: Launched) -> None:
    throw_garbage(server, 20_000, seed=1)
    for seed in range(20):
        request_nonsense(server, 4_000, seed)
    assert is_alive(server) and "Traceback" not in "\n".join(server.lines)


def test_slow_senders_are_dropped_and_do_not_keep_others_out(armrpc: Path) -> None:
    servers = [Server(key="direct"), native_server([str(armrpc)], "--key=direct")]  # side by side: they wait for time
    crowd = [raw(server) for server in servers for _ in range(80)]  # more than may wait to prove themselves
    for sock in crowd:
        sock.sendall(b"AR")
    begin = time.monotonic()
    for server in servers:
        while True:  # of too many who wait, one is dropped: it may be this one
            with contextlib.suppress(RPCConnectionError):
                assert is_alive(server)
                break
            assert time.monotonic() - begin < 4
    assert time.monotonic() - begin < 4 + protocol.OPEN_SECONDS
    for sock in crowd:
        sock.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(4096):  # why it is refused, or nothing
                pass
        sock.close()
    assert time.monotonic() - begin < protocol.OPEN_SECONDS + 5
    for server in servers:
        server.terminate()
        check_sanitizers(server)


def test_listening_off_loopback_needs_a_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARMILLARY_CONFIG_DIR", str(tmp_path))
    monkeypatch.delenv("ARMILLARY_RPC_SECRET", raising=False)
    with pytest.raises(AuthError, match="needs a secret"):
        secret_to_listen("0.0.0.0", None, insecure=False)
    assert secret_to_listen("0.0.0.0", None, insecure=True) is None
    assert secret_to_listen("127.0.0.1", None, insecure=False) is None
    text = make_secret(tmp_path / "rpc-secret")
    assert secret_to_listen("0.0.0.0", None, insecure=False) == text.encode()
    assert (tmp_path / "rpc-secret").stat().st_mode & 0o777 == 0o600
    (tmp_path / "rpc-secret").chmod(0o640)
    with pytest.raises(ConfigError, match="other users may read"):
        secret_to_listen("0.0.0.0", None, insecure=False)


def test_a_peer_off_loopback_without_a_secret_is_not_trusted() -> None:
    with pytest.raises(AuthError, match="could be anybody"):
        secret_to_connect("192.0.2.1", "none", b"0123456789abcdef", insecure=False)
    assert secret_to_connect("192.0.2.1", "none", None, insecure=True) is None


def test_servers_cannot_be_registered_nor_devices_had_without_the_secret(secret_file: Path) -> None:
    tracker = Launched("rpc_tracker", "--port=0", f"--secret-file={secret_file}")
    try:
        for want in ({"want": "serve", "key": "k", "port": 1}, {"want": "client", "user": "u"}):
            with pytest.raises(AuthError):
                open_connection("127.0.0.1", tracker.port, want, secret=b"another secret of the same kind")
        client = rpc.connect_tracker("127.0.0.1", tracker.port, secret=read_secret(secret_file))
        assert client.summary()["server_info"] == []
        wait_until(lambda: any("was refused" in line for line in tracker.lines))
    finally:
        tracker.terminate()
