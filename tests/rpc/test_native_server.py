"""The native server: at a tracker, with a secret, built for AArch64; its arithmetic against Python's."""

from __future__ import annotations

import hashlib
import hmac
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from emulators import qemu_aarch64
from farm import WEIGHT, Farm, X, check_sanitizers, make_package, native_server, wait_until

import armillary
from armillary import rpc, te
from armillary.base.config import setting
from armillary.contrib import graph_executor
from armillary.contrib.cc import get_cc
from armillary.errors import ExecutionError, RPCError, RPCSessionTimeoutError
from armillary.rpc.launch import Launched
from armillary.rpc.protocol import seal_of
from armillary.rpc.secret import make_secret, read_secret
from armillary.runtime import build_native

HOST = "127.0.0.1"
CROSS = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")

_HASHES = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "armrpc.h"
int main(void) {
  static unsigned char data[1000];
  unsigned char out[32];
  char hex[65];
  for (int i = 0; i < 1000; i++) data[i] = (unsigned char)(i * 7);
  for (size_t size = 0; size < 300; size++) {
    armrpc_sha256 hash;
    armrpc_sha256_begin(&hash);
    armrpc_sha256_add(&hash, data, size / 3);
    armrpc_sha256_add(&hash, data + size / 3, size - size / 3);
    armrpc_sha256_end(&hash, out);
    armrpc_hex(out, 32, hex);
    puts(hex);
    armrpc_hmac mac;
    armrpc_hmac_begin(&mac, data, size);
    armrpc_hmac_add(&mac, data, 1000 - size);
    armrpc_hmac_end(&mac, out);
    armrpc_hex(out, 32, hex);
    puts(hex);
  }
  return 0;
}
"""


def test_hashes_are_those_of_the_standard(tmp_path: Path) -> None:
    (tmp_path / "hashes.c").write_text(_HASHES)
    native = build_native.NATIVE_DIR
    sources = [str(tmp_path / "hashes.c"), str(native / "rpc" / "armrpc_sha256.c")]
    flags = ("-O1", f"-I{native}", f"-I{build_native.INCLUDE_DIR}", "-o", str(tmp_path / "hashes"))
    subprocess.run([*get_cc(), *flags, *sources], check=True, timeout=120)
    lines = subprocess.run(
        [str(tmp_path / "hashes")], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    data = bytes(i * 7 % 256 for i in range(1000))
    for size in range(300):
        assert lines[2 * size] == hashlib.sha256(data[:size]).hexdigest()
    assert lines[1::2] == [hmac.new(data[:n], data[: 1000 - n], "sha256").hexdigest() for n in range(300)]


def run_network(session: rpc.RPCSession, net: Path) -> None:
    session.upload(net)
    module = graph_executor.GraphModule(session.load_module("net.tar")["default"](session.cpu()))
    module.set_input("x", X)
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), X + WEIGHT)
    assert module.benchmark(number=2, repeat=3).min > 0
    assert module.benchmark(number=1, repeat=2, end_to_end=True).min > 0
    assert [row.function for row in module.module.profile()] == ["add"]


def run_objects(session: rpc.RPCSession, folder: Path) -> None:
    """Code that the device links when it loads it: a call of its C library, constants, vectors."""
    a = te.placeholder((10,), name="a")
    b = te.compute((10,), lambda i: armillary.tir.call_pure_extern("float32", "sinf", a[i]) + te.exp(a[i]), name="b")
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
    armillary.build(te.create_schedule(b.op), [a, b], target, name="f").export_library(folder / "f.tar")
    with tarfile.open(folder / "f.tar") as made:
        assert made.getnames() == ["mod.o", "mod.crc32"]
    session.upload(folder / "f.tar")
    x = np.linspace(-3, 3, 10, dtype=np.float32)
    data, result = (armillary.nd.array(v, session.cpu()) for v in (x, np.zeros(10, np.float32)))
    session.load_module("f.tar")["f"](data, result)
    np.testing.assert_allclose(result.numpy(), np.sin(x) + np.exp(x), rtol=1e-5, atol=1e-6)


@pytest.fixture
def board(farm: Farm, armrpc: Path) -> Iterator[Launched]:
    server = native_server([str(armrpc)], f"--tracker={HOST}:{farm.port}", "--key=board")
    wait_until(lambda: farm.free("board") == 1)
    yield server
    server.terminate()
    check_sanitizers(server)


def test_it_serves_a_tracker_and_reports_what_happens(farm: Farm, board: Launched, net: Path) -> None:
    for _ in range(3):
        with farm.client.request("board", session_timeout=60) as session:
            wait_until(lambda: farm.client.summary()["server_info"][0]["state"] == "busy")  # granted, until it tells
            run_network(session, net)
    with farm.client.request("board", session_timeout=1) as session:
        session.upload(net)
        with pytest.raises(RPCSessionTimeoutError):
            session.load_module("net.tar")["spin"]()
    with farm.client.request("board") as session:
        session.upload(net)
        with pytest.raises(ExecutionError, match="SIGSEGV"):
            session.load_module("net.tar")["crash"]()
    wait_until(lambda: farm.free("board") == 1)
    texts = [failure["text"] for failure in farm.client.summary()["failures"]]
    assert "SIGSEGV" in texts[0] and "expired" in texts[1]
    with pytest.raises(RPCError, match="given out by its tracker"):
        rpc.connect(HOST, board.port)


def test_it_gives_a_new_ticket_where_nobody_came(farm: Farm, board: Launched) -> None:
    farm.client._ask({"op": "request", "key": "board", "priority": 1, "wait_ms": 1000}, 5)
    with farm.client.request("board", wait_timeout=40) as session:
        assert session.listdir() == []


def test_it_registers_again_after_the_tracker_is_restarted(farm: Farm, board: Launched, net: Path) -> None:
    with farm.client.request("board", session_timeout=60) as session:
        farm.tracker.process.kill()
        farm.tracker.process.wait(10)
        session.upload(net)
        again = Launched("rpc_tracker", f"--port={farm.port}")
        wait_until(lambda: [row["state"] for row in farm.client.summary()["server_info"]] == ["busy"])
    wait_until(lambda: farm.free("board") == 1)
    again.terminate()


def test_it_leaves_no_process_and_no_folder(armrpc: Path, net: Path, tmp_path: Path) -> None:
    server = native_server([str(armrpc)], f"--work-dir={tmp_path}")
    session = rpc.connect(HOST, server.port)
    session.upload(net)
    assert [path.name for path in tmp_path.glob("*/*")] == ["net.tar"]
    session.close()
    wait_until(lambda: list(tmp_path.iterdir()) == [])
    session = rpc.connect(HOST, server.port)
    session.upload(net)
    (tmp_path / "armrpc-4194300-1").mkdir()  # of a server that was killed
    server.terminate()
    assert [path.name for path in tmp_path.iterdir()] == ["armrpc-4194300-1"]
    native_server([str(armrpc)], f"--work-dir={tmp_path}").terminate()
    assert list(tmp_path.iterdir()) == []


def test_it_demands_the_secret_off_loopback(armrpc: Path, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    words = [str(armrpc), "--host=0.0.0.0", "--port=0"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and "needs a secret" in done.stderr
    path = tmp_path / "rpc-secret"
    make_secret(path)
    path.chmod(0o644)
    words.append(f"--secret-file={path}")
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and "chmod 600" in done.stderr
    done = subprocess.run([str(armrpc), "--bad"], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and "usage" in done.stderr


def test_it_says_that_it_has_no_tls(armrpc: Path) -> None:
    done = subprocess.run([str(armrpc), "--tls-cert=x"], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and "there is no TLS in it" in done.stderr and "usage" not in done.stderr
    server = native_server([str(armrpc)])
    with pytest.raises(RPCError, match=r"no TLS connection(.|\n)*armrpc does not"):
        rpc.connect("127.0.0.1", server.port, tls=True)
    with rpc.connect("127.0.0.1", server.port) as session:
        assert session.listdir() == []
    server.terminate()
    check_sanitizers(server)


def test_an_aarch64_server_under_qemu_serves_the_key_rk3399(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if None in CROSS:
        assert not setting("CI"), "CI installs the cross compiler and qemu"
        pytest.skip("aarch64-linux-gnu-gcc and qemu-aarch64-static are needed")
    armrpc: Path = request.getfixturevalue("server_for_aarch64")
    package = make_package(tmp_path, ["aarch64-linux-gnu-gcc"])
    make_secret(tmp_path / "rpc-secret")
    secret, option = read_secret(tmp_path / "rpc-secret"), f"--secret-file={tmp_path / 'rpc-secret'}"
    tracker = Launched("rpc_tracker", "--port=0", option)
    client = rpc.connect_tracker(HOST, tracker.port, secret=secret)
    command = [*qemu_aarch64(), str(armrpc)]
    server = native_server(command, f"--tracker={HOST}:{tracker.port}", "--key=rk3399", option, "--threads=1")
    wait_until(lambda: client.summary()["queue_info"].get("rk3399", {"free": 0})["free"] == 1)
    assert client.summary()["server_info"][0]["info"]["arch"] == "aarch64"
    with client.request("rk3399", session_timeout=100) as session:
        run_network(session, package)
        run_objects(session, tmp_path)
    server.terminate()
    tracker.terminate()


def test_both_ends_derive_the_same_keys() -> None:
    nonces = "1" * 64, "2" * 64
    ours = seal_of(b"0123456789abcdef", "server", nonces, b"", is_client=True)
    theirs = seal_of(b"0123456789abcdef", "server", nonces, b"", is_client=False)
    assert ours.tag(0, b"x") == theirs.tag(1, b"x") and theirs.tag(0, b"x") == ours.tag(1, b"x")
    assert ours.tag(0, b"x") != ours.tag(0, b"x")  # the number of the frame is part of it
