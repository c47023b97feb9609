"""What breaks: servers, trackers and clients that are killed, kernels that hang. No lease and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from farm import WEIGHT, Farm, X, wait_until

from armillary import rpc
from armillary.contrib import graph_executor
from armillary.errors import RPCError, RPCSessionTimeoutError
from armillary.rpc.launch import Launched, Server, Tracker

HOST = "127.0.0.1"
_HOLD = """
import sys, time
from armillary import rpc
session = rpc.connect_tracker("127.0.0.1", int(sys.argv[1])).request("k")
if len(sys.argv) > 2:
    session.upload(sys.argv[2])
    print("held", flush=True)
    session.load_module("net.tar")["spin"]()
print("held", flush=True)
time.sleep(600)
"""


def holder(port: int, *net: Path) -> subprocess.Popen[str]:
    """A client that has a device, in a process of its own."""
    command = [sys.executable, "-c", _HOLD, str(port), *map(str, net)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def workers(server: Launched) -> list[int]:
    """Children of a server that live."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == server.process.pid and words[0] != "Z":
            found.append(int(folder.name))
    return found


def runs(farm: Farm, net: Path) -> bool:
    with farm.client.request("k", session_timeout=60, wait_timeout=30) as session:
        session.upload(net)
        module = graph_executor.GraphModule(session.load_module("net.tar")["default"](session.cpu()))
        module.run(x=X)
        return bool((module.get_output(0).numpy() == X + WEIGHT).all())


@pytest.mark.parametrize("is_hanging", [False, True])
def test_the_lease_of_a_killed_client_comes_back(farm: Farm, net: Path, is_hanging: bool) -> None:
    server = farm.add("k")
    client = holder(farm.port, *([net] if is_hanging else []))
    assert farm.free("k") == 0
    client.kill()
    client.wait(10)
    assert client.stdout is not None
    client.stdout.close()
    wait_until(lambda: farm.free("k") == 1)
    wait_until(lambda: len(workers(server)) == 1)  # the one that stands by
    assert runs(farm, net)


def test_a_killed_server_costs_its_session_and_leaves_nothing(farm: Farm, net: Path) -> None:
    server = farm.add("k")
    farm.add("k")
    session = farm.client.request("k", session_timeout=60)
    session.upload(net)
    before = [pid for s in (server,) for pid in workers(s)]
    addresses = {tuple(row["addr"]): row["state"] for row in farm.client.summary()["server_info"]}
    is_ours = addresses[HOST, server.port] in ("granted", "busy")  # granted, until it tells
    server.process.kill()
    if is_ours:
        with pytest.raises(RPCError):
            session.listdir()
    session.close()
    wait_until(lambda: len(farm.client.summary()["server_info"]) == 1)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in before))
    assert runs(farm, net)


def test_servers_come_back_after_the_tracker_is_restarted(net: Path) -> None:
    tracker = Tracker()
    server = Server(key="k", tracker_addr=(HOST, tracker.port))
    client = rpc.connect_tracker(HOST, tracker.port)
    try:
        with client.request("k", session_timeout=60) as session:
            tracker.process.kill()
            tracker.process.wait(10)
            session.upload(net)  # a session does not need the tracker
            with pytest.raises(RPCError, match="cannot connect"):
                client.summary()
            again = Launched("rpc_tracker", f"--port={tracker.port}")
            wait_until(lambda: [row["state"] for row in client.summary()["server_info"]] == ["busy"])
            assert session.listdir() == ["net.tar"]
        wait_until(lambda: client.summary()["queue_info"]["k"]["free"] == 1)
        with client.request("k", session_timeout=60) as session:
            assert session.listdir() == []
        again.terminate()
    finally:
        server.terminate()
        tracker.terminate()


def test_a_request_waits_for_a_tracker_that_is_being_restarted() -> None:
    tracker = Tracker()
    client = rpc.connect_tracker(HOST, tracker.port)
    tracker.process.kill()
    tracker.process.wait(10)
    found: list[rpc.RPCSession] = []
    asking = threading.Thread(target=lambda: found.append(client.request("k", max_retry=20)), daemon=True)
    asking.start()
    again = Launched("rpc_tracker", f"--port={tracker.port}")
    server = Server(key="k", tracker_addr=(HOST, tracker.port))
    asking.join(30)
    assert found[0].listdir() == []
    found[0].close()
    server.terminate()
    again.terminate()
    tracker.terminate()


def test_a_hanging_kernel_costs_one_session(farm: Farm, net: Path) -> None:
    farm.add("k")
    begin = time.monotonic()

    def spin(session: rpc.RPCSession) -> None:
        session.upload(net)
        session.load_module("net.tar")["spin"]()

    with farm.client.request("k", session_timeout=1) as session:
        with pytest.raises(RPCSessionTimeoutError):
            spin(session)
        assert time.monotonic() - begin < 20
        with pytest.raises(RPCError, match="closed"):
            session.listdir()
    assert runs(farm, net)
    assert "1s session has expired" in farm.client.summary()["failures"][0]["text"]


def test_a_silent_session_ends(net: Path) -> None:
    server = Server(options=("--idle-timeout=1",))
    session = rpc.connect(HOST, server.port)
    time.sleep(1.5)
    with pytest.raises(RPCError):
        session.listdir()
    with rpc.connect(HOST, server.port) as another:
        assert another.listdir() == []
    server.terminate()


def test_nobody_free_is_said_in_time(farm: Farm) -> None:
    with pytest.raises(RPCError, match="no device has the key 'none'"):
        farm.client.request("none", wait_timeout=0.2)
    farm.add("k")
    with (
        farm.client.request("k"),
        pytest.raises(RPCError, match="no device of the key 'k' became free within"),
    ):
        farm.client.request("k", wait_timeout=0.3)
    assert farm.client.summary()["queue_info"]["k"]["pending"] == 0


def test_a_client_that_leaves_the_queue_is_forgotten(farm: Farm) -> None:
    farm.add("k")
    with farm.client.request("k"):
        process = subprocess.Popen([sys.executable, "-c", _HOLD, str(farm.port)], stdout=subprocess.DEVNULL)
        wait_until(lambda: farm.client.summary()["queue_info"]["k"]["pending"] == 1)
        process.kill()
        process.wait(10)
        wait_until(lambda: farm.client.summary()["queue_info"]["k"]["pending"] == 0)


def test_a_ticket_that_nobody_uses_is_given_to_another(farm: Farm) -> None:
    farm.add("k")
    farm.client._ask({"op": "request", "key": "k", "priority": 1, "wait_ms": 1000}, 5)
    begin = time.monotonic()
    with farm.client.request("k", wait_timeout=40) as session:
        assert session.listdir() == []
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(("clients", "seconds"), [(10, 0), pytest.param(50, 300, marks=pytest.mark.slow)])
def test_many_clients_share_two_devices_and_each_gets_its_turns(farm: Farm, clients: int, seconds: int) -> None:
    farm.add("k")
    farm.add("k")
    turns: dict[int, int] = dict.fromkeys(range(clients), 0)
    failures: list[BaseException] = []
    end, longest = time.monotonic() + seconds, max(120, 3 * seconds)  # a turn of everybody, on a busy machine

    def work(number: int) -> None:
        client = rpc.connect_tracker(HOST, farm.port, user=f"user{number}")
        try:
            while not turns[number] or time.monotonic() < end:
                with client.request("k", wait_timeout=longest) as session:
                    session.listdir()
                turns[number] += 1
        except BaseException as error:  # reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end + longest + 80 - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), turns
    assert not failures and min(turns.values()) >= max(1, max(turns.values()) // 3), turns
    wait_until(lambda: farm.free("k") == 2)
    assert farm.client.summary()["waiting"] == [] and farm.client.summary()["failures"] == []


def test_a_server_that_is_told_to_end_leaves_no_process_and_no_folder(net: Path, tmp_path: Path) -> None:
    server = Server()
    session = rpc.connect(HOST, server.port)
    session.upload(net)
    pids = workers(server)
    folders = {os.readlink(f"/proc/{pid}/cwd") for pid in pids if os.path.exists(f"/proc/{pid}/cwd")}
    assert any("armillary-scratch" in folder for folder in folders)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert not any(os.path.exists(folder) for folder in folders if "armillary-scratch" in folder)
    np.testing.assert_equal(server.process.returncode, 0)


def test_a_key_that_no_server_has_is_said_within_seconds_unless_asked_to_wait(farm: Farm) -> None:
    farm.add("here")
    start = time.monotonic()
    with pytest.raises(RPCError, match="no device has the key 'elsewhere'") as caught:
        farm.client.request("elsewhere", wait_for_key=0.5)
    assert time.monotonic() - start < 4 and "keys with devices: here" in str(caught.value)
    late = threading.Timer(1.0, farm.add, ["elsewhere"])
    late.daemon = True
    late.start()
    with farm.client.request("elsewhere", wait_for_key=30) as session:
        assert session.listdir() == []
    late.join(60)
