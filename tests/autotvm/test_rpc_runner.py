"""Trials on devices of a tracker: timed, checked, and each failure costs itself."""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Iterator

import pytest
import templates  # noqa: F401  (registers templates)

import armillary
from armillary import autotvm, relay, rpc
from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureInput, MeasureResult, create_measure_batch
from armillary.autotvm.measure.rpc_runner import check_machines
from armillary.autotvm.tuner.network_check import Network
from armillary.errors import RPCError
from armillary.rpc.launch import Server, Tracker

KEY = "board"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a tracker with two servers on this machine."""
    with contextlib.ExitStack() as stack:
        tracker = Tracker()
        stack.callback(tracker.terminate)
        for _ in range(2):
            server = Server(key=KEY, tracker_addr=("127.0.0.1", tracker.port))
            stack.callback(server.terminate)
        client, until = rpc.connect_tracker("127.0.0.1", tracker.port), time.monotonic() + 30
        while client.summary()["queue_info"].get(KEY, {"free": 0})["free"] < 2:
            assert time.monotonic() < until, "the servers did not register"
            time.sleep(0.05)
        yield tracker.port


def measure(task: autotvm.Task, indices: list[int], port: int, seconds: float = 20) -> list[MeasureResult]:
    runner = autotvm.RPCRunner(KEY, "127.0.0.1", port, timeout=seconds, number=2, repeat=3, cooldown_interval=0)
    batch = create_measure_batch(task, autotvm.measure_option(autotvm.LocalBuilder(timeout=60), runner))
    assert runner.n_parallel == 2
    try:
        return batch([MeasureInput(task.target, task, task.config_space.get(i)) for i in indices])
    finally:
        batch.close()


def test_trials_run_on_devices_and_are_timed(port: int) -> None:
    task = autotvm.task.create("test/matmul", (16, 16, 16, "float32"), "llvm")
    results = measure(task, [1, 8, 20], port)
    assert [r.error for r in results] == [""] * 3
    assert all(len(r.costs) == 1 and 0 < r.mean < 1 for r in results)


def test_kernels_of_networks_run_on_devices(port: int) -> None:
    from_args = (("TENSOR", (48, 64), "float32"), ("TENSOR", (6, 64, 16), "float32"), "NC16n", "")
    task = autotvm.task.create("dense_pack.cpu", from_args, "llvm")
    (result,) = measure(task, [int(task.config_space.valid_indices()[0])], port)
    assert result.error == "" and result.mean < 1


@pytest.mark.parametrize(
    ("kind", "error", "seconds"),
    [
        ("answers wrongly", MeasureErrorNo.WRONG_ANSWER, 20),
        ("crashes", MeasureErrorNo.RUNTIME_DEVICE, 20),
        ("hangs", MeasureErrorNo.RUN_TIMEOUT, 3),
    ],
)
def test_a_failure_on_a_device_costs_one_trial(kind: str, error: MeasureErrorNo, seconds: float, port: int) -> None:
    task = autotvm.task.create("test/faulty", (kind,), "llvm")
    bad, good = measure(task, [1, 0], port, seconds)
    assert (bad.error_no, bad.costs) == (error, ()) and bad.error
    assert good.error_no == 0, good.error


def test_a_tracker_without_such_a_device_is_an_error_before_the_first_trial(port: int) -> None:
    task = autotvm.task.create("test/matmul", (16, 16, 16, "float32"), "llvm")
    option = autotvm.measure_option("local", autotvm.RPCRunner("other", "127.0.0.1", port))
    with pytest.raises(RPCError, match="other"):
        create_measure_batch(task, option)


def test_a_tracker_without_devices_is_told_with_how_to_start_a_server() -> None:
    tracker = Tracker()
    task = autotvm.task.create("test/matmul", (16, 16, 16, "float32"), "llvm")
    message = rf"armc rpc server --tracker=127.0.0.1:{tracker.port} --key=board, on the device"
    with pytest.raises(RPCError, match=message):
        create_measure_batch(task, autotvm.measure_option("local", autotvm.RPCRunner(KEY, "127.0.0.1", tracker.port)))
    tracker.terminate()


def test_a_line_of_progress_tells_time_that_passed_whatever_the_clock_does(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = autotvm.callback.progress_bar(4)
    monkeypatch.setattr(time, "time", lambda: 0.0)  # the clock was set
    assert 0 <= float(bar.line().rpartition("| ")[2].removesuffix(" s")) < 60


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("llvm -mtriple=aarch64-linux-gnu", "target llvm .* is for aarch64, devices of the key 'board' are x86_64"),
        ("llvm -mtriple=riscv64-linux-gnu", 'is for riscv64, .*\n.*such as "llvm -mtriple=x86_64-linux-gnu"'),
    ],
)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the server of the test is this machine")
def test_code_that_no_device_of_the_key_runs_is_refused_before_the_first_trial(
    target: str, message: str, port: int
) -> None:
    task = autotvm.task.create("test/matmul", (16, 16, 16, "float32"), target)
    with pytest.raises(TuningError, match=message):
        create_measure_batch(task, autotvm.measure_option("local", autotvm.RPCRunner(KEY, "127.0.0.1", port)))
    relu = relay.Function([x := relay.var("x", shape=(2, 3))], relay.nn.relu(x))
    network = Network(armillary.IRModule.from_expr(relu), {}, target, autotvm.RPCRunner(KEY, "127.0.0.1", port))
    with pytest.raises(TuningError, match=message), network:
        pass


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("llvm -mtriple=aarch64-linux-gnu", "aarch64"),
        ("llvm -mtriple=armv7a-linux-gnueabihf", "aarch64"),
        ("llvm -mtriple=i686-linux-gnu", "x86_64"),
        ("c", "aarch64"),
        ("llvm -mtriple=aarch64-linux-gnu", ""),
    ],
)
def test_code_that_a_device_may_run_is_not_refused(target: str, machine: str) -> None:
    check_machines(armillary.target.Target(target), KEY, [{"arch": machine}])


def test_a_session_of_a_script_is_asked_by_key(port: int) -> None:
    with autotvm.measure.request_remote(KEY, "127.0.0.1", port, timeout=20) as session:
        assert session.cpu() is not None
