"""TLS in front of the native server: a proxy that has it lends a server that has not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from farm import WEIGHT, X, check_sanitizers, native_server, wait_until

from armillary import rpc
from armillary.cli.main import main
from armillary.errors import AuthError, RPCError
from armillary.rpc.launch import Launched

HOST = "127.0.0.1"


def certificate(folder: Path) -> tuple[str, str]:
    """Options of a program that encrypts."""
    pem, key = folder / "board.pem", folder / "board.key"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    request += ["-subj", "/CN=board", "-days", "2", "-keyout", str(key), "-out", str(pem)]
    subprocess.run(request, check=True, capture_output=True)
    return f"--tls-cert={pem}", f"--tls-key={key}"


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The option that names the secret, which clients have, too."""
    monkeypatch.setenv("ARMILLARY_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("ARMILLARY_RPC_SECRET", raising=False)
    assert main(["rpc", "init"]) == 0
    return f"--secret-file={tmp_path / 'config' / 'rpc-secret'}"


def runs(session: rpc.RPCSession, net: Path) -> None:
    session.upload(net)
    graph = session.load_module("net.tar")["default"](session.cpu())
    graph.set_input("x", X)
    graph.run()
    np.testing.assert_array_equal(graph.get_output(0).numpy(), X + WEIGHT)


def test_a_tracker_lends_a_native_server_by_tls(armrpc: Path, net: Path, tmp_path: Path, secret: str) -> None:
    tls = certificate(tmp_path)
    tracker = Launched("rpc_tracker", "--port=0", secret, *tls)
    board = native_server([str(armrpc)], "--key=rk3399", secret)
    options = (f"--server={HOST}:{board.port}", "--key=rk3399", f"--tracker={HOST}:{tracker.port}", "--tls", secret)
    front = Launched("rpc_proxy", "--port=0", *options, *tls)
    client = rpc.connect_tracker(HOST, tracker.port, tls=True)

    def free() -> bool:
        return bool(client.summary()["queue_info"].get("rk3399", {"free": 0})["free"])

    for _ in range(2):
        wait_until(free)
        with client.request("rk3399", session_timeout=60) as session:
            assert session.name == f"{HOST}:{front.port}"
            runs(session, net)
            assert not free()
    wait_until(free)
    board.terminate()
    with pytest.raises(RPCError, match="cannot connect"):
        client.request("rk3399", session_timeout=60)
    failed = client.summary()["failures"]
    assert any("cannot connect" in str(row) for row in failed)
    check_sanitizers(board)
    front.terminate()
    tracker.terminate()


def test_without_a_tracker_the_front_is_connected_to(armrpc: Path, net: Path, tmp_path: Path, secret: str) -> None:
    board = native_server([str(armrpc)], "--key=rk3399", secret)
    front = Launched(
        "rpc_proxy", "--port=0", f"--server={HOST}:{board.port}", "--key=rk3399", secret, *certificate(tmp_path)
    )
    with rpc.connect(HOST, front.port, key="rk3399", tls=True) as session:
        runs(session, net)
    with pytest.raises(RPCError, match="no server with the key 'other' is free"):
        rpc.connect(HOST, front.port, key="other", tls=True)
    with pytest.raises(RPCError):
        rpc.connect(HOST, front.port, key="rk3399", tls=False)
    with pytest.raises(AuthError):
        rpc.connect(HOST, front.port, key="rk3399", tls=True, secret=b"another secret of the same kind")
    front.terminate()
    board.terminate()
    check_sanitizers(board)


def test_servers_of_a_tracker_need_a_key() -> None:
    words = ["--server=127.0.0.1:9", "--tracker=127.0.0.1:9190", "--port=0"]
    with pytest.raises(RPCError, match="servers of a tracker need --key"):
        Launched("rpc_proxy", *words)
