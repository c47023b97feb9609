"""The programs as users start them: init, tracker, server, proxy, query, run, devices, and the tracker's page."""

from __future__ import annotations

import base64
import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from farm import WEIGHT, Farm, X, wait_until

from armillary import rpc
from armillary.cli.main import main
from armillary.errors import AuthError, RPCError
from armillary.rpc import protocol
from armillary.rpc.launch import Launched, Server
from armillary.rpc.page import page_password
from armillary.rpc.programs import parse_address
from armillary.rpc.secret import read_secret

HOST = "127.0.0.1"


def armc(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of settings of its own."""
    monkeypatch.setenv("ARMILLARY_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("ARMILLARY_RPC_SECRET", raising=False)
    return tmp_path / "config"


def test_after_one_init_the_lines_of_the_text_work_off_loopback(
    home: Path, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "armillary.exec.rpc_tracker", "--host=0.0.0.0", "--port=0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 1 and "armc rpc init" in refused.stderr
    assert armc("rpc", "init") == 0
    message = capsys.readouterr().out
    assert "scp -p" in message and (home / "rpc-secret").stat().st_mode & 0o777 == 0o600
    assert armc("rpc", "init") == 4 and armc("rpc", "show") == 0
    assert re.search("fingerprint.*: [0-9a-f]{8}", capsys.readouterr().out)[0] in message  # type: ignore[index]
    tracker = Launched("rpc_tracker", "--host=0.0.0.0", "--port=0")
    assert tracker.lines[0] == f"INFO:RPCTracker:bind to 0.0.0.0:{tracker.port}"
    server = Launched("rpc_server", f"--tracker={HOST}:{tracker.port}", "--key=rk3399", "--port=0", "--host=0.0.0.0")
    client = rpc.connect_tracker("0.0.0.0", tracker.port)
    wait_until(lambda: client.summary()["queue_info"].get("rk3399", {"free": 0})["free"] == 1)
    done = subprocess.run(
        [sys.executable, "-m", "armillary.exec.query_rpc_tracker", "--host=0.0.0.0", f"--port={tracker.port}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"Tracker address 0.0.0.0:{tracker.port}\n" in done.stdout and "rk3399    1      1     0" in done.stdout
    with client.request("rk3399") as session:
        session.upload(net)
        assert session.listdir() == ["net.tar"]
    with pytest.raises(AuthError):
        rpc.connect_tracker(HOST, tracker.port, secret=b"another secret of the same kind")
    server.terminate()
    tracker.terminate()


def test_run_and_devices_work_through_a_tracker(
    farm: Farm, net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    farm.add("board")
    np.savez(tmp_path / "in.npz", x=X)
    place = f"--rpc-tracker={HOST}:{farm.port}"
    code = armc(
        "run",
        net,
        place,
        "--rpc-key=board",
        "-i",
        tmp_path / "in.npz",
        "-o",
        tmp_path / "out.npz",
        "--print-time",
        "--profile",
    )
    assert code == 0
    message = capsys.readouterr().out
    assert "mean (ms)" in message and "add" in message
    with np.load(tmp_path / "out.npz") as outputs:
        np.testing.assert_array_equal(outputs["output_0"], X + WEIGHT)
    assert armc("devices", f"--tracker={HOST}:{farm.port}") == 0
    assert re.search(r"board .*linux .*(free|granted|busy)", capsys.readouterr().out)
    assert armc("run", net, "--rpc-key=board") == 4


def test_an_address_has_a_port_or_takes_the_usual_one() -> None:
    assert parse_address("board:77") == parse_address("board:77", 9190) == ("board", 77)
    assert parse_address("192.168.1.2", 9190) == ("192.168.1.2", 9190)
    for text, default in (("board", None), ("board:x", 9190), ("", 9190), ("board:0", 9190)):
        with pytest.raises(RPCError, match=r"is no address\n.*write HOST:PORT"):
            parse_address(text, default)


@pytest.mark.parametrize("name", ["init", "show", "tracker", "server", "proxy", "query"])
def test_help_says_what_a_program_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        armc("rpc", name, "--help")
    message = capsys.readouterr().out
    assert re.search(r"\n\n[A-Z][a-z]+ [^.]*\.\n\noptions:", message), message


def test_a_tracker_that_is_ended_says_no_more_than_whose_connection_ended(farm: Farm) -> None:
    farm.add("board")
    farm.tracker.terminate()
    farm.tracker._addresses.get(timeout=20)  # all that it wrote has been read
    assert any("board registered" in line for line in farm.tracker.lines)
    assert not [line for line in farm.tracker.lines if "Traceback" in line or "ERROR" in line]


def test_a_proxy_lends_servers_that_cannot_be_reached(farm: Farm, net: Path) -> None:
    proxy = Launched("rpc_proxy", "--port=0", f"--tracker={HOST}:{farm.port}")
    behind = Launched(
        "rpc_server", "--through-proxy", f"--tracker={HOST}:{proxy.port}", "--key=hidden", says="registered with proxy"
    )
    wait_until(lambda: farm.free("hidden") == 1)
    for _ in range(2):
        with farm.client.request("hidden", session_timeout=60) as session:
            assert session.name == f"{HOST}:{proxy.port}"
            session.upload(net)
            graph = session.load_module("net.tar")["default"](session.cpu())
            graph.set_input("x", X)
            graph.run()
            np.testing.assert_array_equal(graph.get_output(0).numpy(), X + WEIGHT)
    wait_until(lambda: farm.free("hidden") == 1)
    behind.terminate()
    wait_until(lambda: farm.client.summary()["server_info"] == [])
    proxy.terminate()


def test_tls_encrypts_and_the_secret_hangs_on_the_certificate(
    tmp_path: Path, home: Path, net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert armc("rpc", "init") == 0
    certificate, key = tmp_path / "board.pem", tmp_path / "board.key"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=board",
            "-days",
            "2",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    file = f"--secret-file={home / 'rpc-secret'}"
    options = f"--tls-cert={certificate}", f"--tls-key={key}"
    tracker = Launched("rpc_tracker", "--port=0", file, *options)
    server = Server(key="k", tracker_addr=(HOST, tracker.port), options=(file, "--tls", *options))
    client = rpc.connect_tracker(HOST, tracker.port, tls=True)
    with client.request("k") as session:
        session.upload(net)
        assert session.download("net.tar") == net.read_bytes()
    with pytest.raises(RPCError):
        rpc.connect_tracker(HOST, tracker.port, tls=False)
    monkeypatch.setattr(protocol, "binding_of", lambda _: b"of somebody in between")
    with pytest.raises(AuthError, match="differ"):
        rpc.connect_tracker(HOST, tracker.port, tls=True)
    tracker.terminate()
    server.terminate()


@pytest.fixture
def guarded(home: Path) -> Iterator[Launched]:
    assert armc("rpc", "init") == 0
    tracker = Launched("rpc_tracker", "--port=0", f"--secret-file={home / 'rpc-secret'}")
    yield tracker
    tracker.terminate()


def get(tracker: Launched, path: str, **fields: str) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(HOST, tracker.port, timeout=20)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in fields.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.headers


def test_the_page_shows_devices_queue_and_failures(farm: Farm, net: Path) -> None:
    farm.add("<b>board</b>")
    with farm.client.request("<b>board</b>") as session:
        session.upload(net)
        with pytest.raises(Exception, match="SIGSEGV"):
            session.load_module("net.tar")["crash"]()
    wait_until(lambda: farm.client.summary()["failures"] != [])
    status, text, headers = get(farm.tracker, "/")
    assert status == 200 and "&lt;b&gt;board&lt;/b&gt;" in text and "<b>board" not in text and "SIGSEGV" in text
    assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["X-Frame-Options"] == "DENY"
    assert json.loads(get(farm.tracker, "/status.json")[1])["queue_info"]["<b>board</b>"]["total"] == 1
    assert get(farm.tracker, "/state.html")[0] == 200 and get(farm.tracker, "/none")[0] == 404


def test_the_page_refuses_other_origins_and_names(farm: Farm) -> None:
    here = f"{HOST}:{farm.port}"
    for fields in (
        {"Origin": "http://evil.example"},
        {"Host": "evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "null"},
        {"Host": f"evil.example:{farm.port}"},
    ):
        assert get(farm.tracker, "/status.json", **fields)[0] == 403, fields
    assert get(farm.tracker, "/status.json", Origin=f"http://{here}", Sec_Fetch_Site="same-origin")[0] == 200


def test_the_page_of_a_tracker_with_a_secret_wants_its_password(guarded: Launched, home: Path) -> None:
    secret = read_secret(home / "rpc-secret")
    for path in ("/", "/status.json", "/state.html"):
        assert get(guarded, path)[0] == 401
        for password in ("", "guess", secret.decode()):  # the secret itself is not for browsers
            coded = base64.b64encode(f"x:{password}".encode()).decode()
            assert get(guarded, path, Authorization=f"Basic {coded}")[0] == 401
        coded = base64.b64encode(f"x:{page_password(secret)}".encode()).decode()
        assert get(guarded, path, Authorization=f"Basic {coded}")[0] == 200
    assert get(guarded, "/", Authorization="Basic ???")[0] == 401
