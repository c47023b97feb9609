"""Waits that have a limit and are told, tickets of the dead, what a session may make, servers that are killed."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emulators import qemu_aarch64
from farm import Farm, check_sanitizers, make_package, native_server, wait_until

from armillary import rpc
from armillary.base.config import setting
from armillary.contrib.cc import get_cc
from armillary.errors import ExecutionError, RPCConnectionError, RPCError
from armillary.rpc import session as session_module
from armillary.rpc.launch import Launched
from armillary.rpc.session import Session
from armillary.rpc.session_files import MAX_FILES, SessionFiles

HOST = "127.0.0.1"


def test_waiting_for_a_server_in_use_is_told_and_has_an_end(server: Launched, caplog: pytest.LogCaptureFixture) -> None:
    with rpc.connect(HOST, server.port), caplog.at_level(logging.WARNING, "RPCClient"):
        begin = time.monotonic()
        with pytest.raises(RPCError, match=rf"{HOST}:{server.port} was in use for 3 s") as refused:
            rpc.connect(HOST, server.port, wait_timeout=3)
        assert 3 <= time.monotonic() - begin < 10 and "wait_timeout" in refused.value.hint
    assert f"{HOST}:{server.port} is in use: waiting up to 3 s" in caplog.text
    caplog.clear()
    with rpc.connect(HOST, server.port, wait_timeout=20) as session:  # who gave up is no hindrance
        assert session.listdir() == []
    with pytest.raises(RPCError, match="wait_timeout"):
        rpc.connect(HOST, server.port, wait_timeout=-1)


@contextlib.contextmanager
def pushing_out(port: int, times: int) -> Iterator[tuple[int, list[int]]]:
    """A way to a server on which the first connections are closed while they say who they are."""
    with socket.create_server((HOST, 0)) as listening:
        count: list[int] = []

        def carry(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = listening.accept()
                    count.append(1)
                    if len(count) <= times:
                        near.recv(4)
                        near.close()
                        continue
                    far = socket.create_connection((HOST, port))
                    for pair in ((near, far), (far, near)):
                        threading.Thread(target=carry, args=pair, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield int(listening.getsockname()[1]), count
        listening.shutdown(socket.SHUT_RDWR)


def test_who_is_pushed_out_by_a_flood_tries_once_again(server: Launched) -> None:
    with pushing_out(server.port, 1) as (port, count):
        with rpc.connect(HOST, port) as session:
            assert session.listdir() == []
        assert len(count) == 2
    with pushing_out(server.port, 5) as (port, count):
        with pytest.raises(RPCConnectionError):
            rpc.connect(HOST, port)
        assert len(count) == 2


_ASKS = """
import sys, time
from armillary import rpc
client = rpc.connect_tracker("127.0.0.1", int(sys.argv[1]))
connection = client._open()
connection.request({"op": "request", "key": "k", "priority": 1, "wait_ms": 9000}, b"", 20)
print("granted", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["python", "native"])
def test_the_ticket_of_a_dead_client_is_given_back_at_once(kind: str, armrpc: Path) -> None:
    tracker = Launched("rpc_tracker", "--port=0", "--claim-timeout=600")
    client = rpc.connect_tracker(HOST, tracker.port)
    if kind == "native":
        server = native_server([str(armrpc)], f"--tracker={HOST}:{tracker.port}", "--key=k")
    else:
        server = rpc.launch.Server(key="k", tracker_addr=(HOST, tracker.port))

    def states() -> list[str]:
        return [row["state"] for row in client.summary()["server_info"]]

    wait_until(lambda: states() == ["free"])
    process = subprocess.Popen([sys.executable, "-c", _ASKS, str(tracker.port)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "granted\n"
    assert states() == ["granted"]
    process.kill()
    process.wait(10)
    process.stdout.close()
    wait_until(lambda: states() == ["free"], 5)
    for _ in range(3):  # and whoever comes with a ticket keeps its session
        with client.request("k", wait_timeout=10) as session:
            time.sleep(0.5)
            assert session.listdir() == []
    server.terminate()
    tracker.terminate()


def test_folders_count_among_the_files_of_a_session(server: Launched) -> None:
    with rpc.connect(HOST, server.port, session_timeout=200) as session:
        for number in range(MAX_FILES // 2 - 1):  # a file that is gone leaves its folders
            session.upload(b"x", f"a{number}/b/c")
            session.remove(f"a{number}/b/c")
        with pytest.raises(RPCError, match=f"{MAX_FILES} files and folders"):
            session.upload(b"x", "a/b/c/d/e/f/g/h")
    wait_until(lambda: rpc.connect(HOST, server.port, wait_timeout=20).close() is None)


def test_what_is_refused_makes_nothing(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path)
    for number in range(MAX_FILES):
        files.write(f"f{number}", 0, b"")
    for name in ("one", "a/b"):
        with pytest.raises(RPCError, match="files and folders"):
            files.write(name, 0, b"x")
    assert len(list(tmp_path.iterdir())) == MAX_FILES


def test_the_tensors_of_a_session_have_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_TENSOR_BYTES", 1000)
    session = Session(SessionFiles(tmp_path))
    ask = {"op": "alloc", "dtype": "float32", "shape": [100]}
    first = session.handle(ask, b"")[0]["tensor"]
    session.handle(ask, b"")
    with pytest.raises(ExecutionError, match="1000 bytes in all"):
        session.handle(ask, b"")
    session.handle({"op": "release", "tensor": first}, b"")
    session.handle(ask, b"")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def served(farm: Farm, package: Path) -> bool:
    with farm.client.request("board", wait_timeout=20, session_timeout=30) as session:
        session.upload(package)
        return len(session.load_module(package.name)["default"](session.cpu()).input_names) > 0


def lost(kernel: Callable[[], object]) -> None:
    with pytest.raises(RPCError):
        kernel()


@pytest.mark.parametrize("machine", ["host", "aarch64"])
def test_a_native_server_that_is_killed_in_a_trial_registers_again(
    machine: str, farm: Farm, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if machine == "aarch64":
        if "aarch64" not in " ".join(qemu_aarch64()):
            assert not setting("CI")
            pytest.skip("qemu-aarch64-static is needed")
        command = [*qemu_aarch64(), str(request.getfixturevalue("server_for_aarch64"))]
        compiler = ["aarch64-linux-gnu-gcc"]
    else:
        command, compiler = [str(request.getfixturevalue("armrpc"))], list(get_cc())
    package = make_package(tmp_path, compiler)
    work = tmp_path / "work"
    work.mkdir()
    options = f"--tracker={HOST}:{farm.port}", "--key=board", f"--work-dir={work}", "--threads=1"
    server = native_server(command, *options)
    wait_until(lambda: farm.free("board") == 1, 60)
    session = farm.client.request("board", session_timeout=100)
    session.upload(package)
    kernel = session.load_module(package.name)["spin"]
    spin = threading.Thread(target=lost, args=(kernel,))
    spin.start()
    wait_until(lambda: [row["state"] for row in farm.client.summary()["server_info"]] == ["busy"])
    time.sleep(0.5)
    server.process.kill()
    server.process.wait(10)
    spin.join(20)
    assert not spin.is_alive()
    wait_until(lambda: farm.client.summary()["server_info"] == [])
    # started again, it has the number of the one before, as a container's or a board's first program has
    script = f"mkdir {shlex.quote(str(work))}/armrpc-$$-1 && exec " + " ".join(map(shlex.quote, [*command, *options]))
    again = Launched("", command=["env", "ASAN_OPTIONS=handle_segv=0:detect_leaks=0", "sh", "-c", f"{script} --port=0"])
    wait_until(lambda: farm.free("board") == 1, 60)
    assert served(farm, package)
    wait_until(lambda: list(work.iterdir()) == [])
    again.terminate()


def test_a_native_server_whose_registration_dies_makes_another(farm: Farm, armrpc: Path, net: Path) -> None:
    server = native_server([str(armrpc)], f"--tracker={HOST}:{farm.port}", "--key=board")
    wait_until(lambda: farm.free("board") == 1)
    registration = 0
    for is_busy in (False, True):
        killed = registration
        wait_until(lambda killed=killed: len({*children(server.process.pid)} - {killed}) == 1)
        (registration,) = {*children(server.process.pid)} - {killed}
        session = farm.client.request("board") if is_busy else None
        os.kill(registration, signal.SIGKILL)
        wanted = ["busy"] if is_busy else ["free"]
        wait_until(lambda wanted=wanted: [r["state"] for r in farm.client.summary()["server_info"]] == wanted)
        if session is not None:
            assert session.listdir() == []
            session.close()
            wait_until(lambda: farm.free("board") == 1)
    assert served(farm, net)
    server.terminate()
    check_sanitizers(server)
