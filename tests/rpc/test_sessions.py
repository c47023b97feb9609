"""Sessions over real sockets: files, tensors, modules, graphs, timing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from farm import SIZE, WEIGHT, Farm, X, graph

import armillary
from armillary import relay, rpc, te
from armillary.base.config import setting
from armillary.contrib import graph_executor
from armillary.errors import ArtifactError, ExecutionError, RPCError, RPCSessionTimeoutError, TargetError, TypeMismatch
from armillary.rpc.launch import Launched
from armillary.runtime import NDArray


@pytest.fixture
def session(server: Launched) -> Iterator[rpc.RPCSession]:
    with rpc.connect(server.host, server.port, session_timeout=60) as opened:
        yield opened


def test_a_local_session_has_the_same_surface(net: Path) -> None:
    with rpc.LocalSession() as session:
        test_a_package_is_uploaded_loaded_and_run(session, net)
        test_functions_take_remote_tensors_numbers_and_local_arrays(session, net)
        test_errors_there_are_the_same_errors_here(session, net)


def test_a_package_is_uploaded_loaded_and_run(session: rpc.RPCSession, net: Path) -> None:
    session.upload(net)
    module = graph_executor.GraphModule(session.load_module("net.tar")["default"](session.device("llvm -mcpu=x", 0)))
    assert module.get_input_info() == ({"x": (SIZE,)}, {"x": "float32"})
    module.set_input("x", armillary.nd.array(X))
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), X + WEIGHT)
    module.run(x=X.astype("float64") * 2)
    np.testing.assert_array_equal(module.get_output(0, np.zeros(SIZE, "float32")), X * 2 + WEIGHT)


def test_graphs_and_functions_are_timed_there(session: rpc.RPCSession, net: Path) -> None:
    session.upload(net)
    library = session.load_module("net.tar")
    dev = session.cpu()
    result = graph_executor.GraphModule(library["default"](dev)).benchmark(dev, number=3, repeat=4, x=X)
    assert len(result.results) == 4 and 0 < result.min < 1
    a, b, c = (armillary.nd.array(X, dev) for _ in range(3))
    timed = library.time_evaluator("add", dev, number=2, repeat=3, min_repeat_ms=1)(a, b, c)
    assert len(timed.results) == 3 and 0 < timed.mean < 1


def test_what_a_function_returns_there_is_given_here(session: rpc.RPCSession, tmp_path: Path) -> None:
    builder = armillary.tir.ir_builder.create()
    n = te.var("n", "int64")
    builder.emit(armillary.tir.ret(n * 3))
    made = armillary.tir.PrimFunc([n], builder.get()).with_attr("global_symbol", "triple")
    armillary.build(made, target="llvm").export_library(str(tmp_path / "triple.so"))
    session.upload(tmp_path / "triple.so")
    library = session.load_module("triple.so")
    assert library["triple"](14) == 42 and library.entry_func(5) == 15


def test_functions_take_remote_tensors_numbers_and_local_arrays(session: rpc.RPCSession, net: Path) -> None:
    session.upload(net.parent / "lib.so")
    library = session.load_module("lib.so")
    dev = session.cpu()
    a, c = armillary.nd.array(X, dev), armillary.nd.empty((SIZE,), "float32", dev)
    library["add"](a, armillary.nd.array(WEIGHT), c)
    np.testing.assert_array_equal(c.numpy(), X + WEIGHT)
    library["scale"](c, 0.5)
    np.testing.assert_array_equal(np.asarray(c), (X + WEIGHT) / 2)
    here = armillary.nd.array(X)
    library["scale"](here, 3.0)
    np.testing.assert_array_equal(here.numpy(), X * 3)


def test_a_graph_of_ours_runs_over_a_library_there(session: rpc.RPCSession, net: Path) -> None:
    session.upload(net.parent / "lib.so")
    module = graph_executor.create(graph().to_json(), session.load_module("lib.so"), session.cpu())
    module.load_params(armillary.artifact.save_params({"w": WEIGHT}))
    module.set_input("x", X)
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), X + WEIGHT)


def test_files_go_both_ways_in_pieces(session: rpc.RPCSession, tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes((8 << 20) + 12345)
    (tmp_path / "large").write_bytes(data)
    session.upload(tmp_path / "large", "models/large")
    session.upload(b"", "empty")
    assert session.listdir() == ["empty", "models/large"] and session.listdir("models") == ["models/large"]
    assert session.download("models/large") == data and session.download("empty") == b""
    session.remove("models/large")
    with pytest.raises(ArtifactError, match="No such file"):
        session.download("models/large")


def test_tensors_of_every_kind_go_there_and_back(session: rpc.RPCSession) -> None:
    values = np.arange(24).reshape(2, 3, 4) % 2
    for dtype in ("float16", "bfloat16", "int8", "uint8", "bool", "int64", "float8_e4m3fn"):
        tensor = armillary.nd.array(values, session.cpu(), dtype)
        assert tensor.shape == (2, 3, 4) and tensor.dtype == dtype
        np.testing.assert_array_equal(tensor.numpy().astype("int64"), values, dtype)
        other = armillary.nd.empty((2, 3, 4), dtype, session.cpu())
        tensor.copyto(other)
        np.testing.assert_array_equal(np.asarray(other, "int64"), values, dtype)


def test_a_device_says_whether_it_can_be_used(session: rpc.RPCSession) -> None:
    assert session.cpu().exist and not session.cpu(1).exist and not session.device("metal").exist
    with pytest.raises(TargetError, match=r"metal|type 8"):
        armillary.nd.array(X, session.device("metal"))
    with pytest.raises(TargetError, match="of another machine"):
        armillary.nd.from_numpy(X.copy()).copyto(session.cpu()) and NDArray(X, device=session.cpu())


def test_tensors_live_in_the_memory_of_a_device_there(session: rpc.RPCSession) -> None:
    device = session.cl()
    if not device.exist:
        assert not setting("CI"), "CI installs an OpenCL driver"
        pytest.skip(f"no OpenCL device: {device.objection()}")
    assert "name" in device.facts()
    values = np.arange(3 << 20, dtype=np.float32)  # two pieces
    tensor = armillary.nd.array(values, device)
    np.testing.assert_array_equal(tensor.numpy(), values)


def test_what_a_kernel_of_a_device_there_refuses_is_told_here(session: rpc.RPCSession, tmp_path: Path) -> None:
    device = session.cl()
    if not device.exist:
        assert not setting("CI"), "CI installs an OpenCL driver"
        pytest.skip(f"no OpenCL device: {device.objection()}")
    x, places = relay.var("x", shape=(5, 3)), relay.var("places", shape=(2,), dtype="int64")
    rows = relay.take(x, relay.check_values(places, [(-5, 4)], "row"), axis=0, mode="wrap")
    library = relay.build(armillary.IRModule.from_expr(relay.Function([x, places], rows)), "opencl")
    library.export_library(tmp_path / "rows.tar")
    session.upload(tmp_path / "rows.tar")
    module = graph_executor.GraphModule(session.load_module("rows.tar")["default"](device))
    data = np.random.default_rng(0).random((5, 3), "float32")
    for wrong in (5, -6):
        with pytest.raises(ExecutionError, match=rf"row {wrong} is not in \[-5, 4\]"):
            module.run(x=data, places=np.array([0, wrong]))
        module.run(x=data, places=np.array([4, -5]))
        np.testing.assert_array_equal(module.get_output(0).numpy(), data[[4, 0]])


def test_errors_there_are_the_same_errors_here(session: rpc.RPCSession, net: Path) -> None:
    session.upload(net)
    library = session.load_module("net.tar")
    with pytest.raises(ExecutionError, match="no function 'none'"):
        library["none"]
    with pytest.raises(TypeMismatch, match="add"):
        library["add"](X)
    with pytest.raises(TypeMismatch, match="shape"):
        armillary.nd.array(X, session.cpu()).copyfrom(X[1:])
    with pytest.raises(ExecutionError, match="Could not find 'z'"):
        library["default"](session.cpu()).set_input("z", X)
    session.upload(b"no library", "x.so")
    with pytest.raises(ArtifactError, match=r"x\.so"):
        session.load_module("x.so")


def test_things_that_died_here_are_let_go_of_there(server: Launched) -> None:
    with rpc.connect(server.host, server.port) as session:
        for _ in range(3):
            armillary.nd.array(X, session.cpu())
        session.listdir()
        with pytest.raises(RPCError, match="no NDArray under the handle 1"):
            session.request({"op": "get", "tensor": 1, "offset": 0, "size": 4})


def test_a_kernel_that_crashes_ends_its_session_and_no_other(server: Launched, net: Path) -> None:
    with rpc.connect(server.host, server.port) as session:
        session.upload(net)
        with pytest.raises(ExecutionError, match="killed by SIGSEGV"):
            session.load_module("net.tar")["crash"]()
    with rpc.connect(server.host, server.port) as session:
        assert session.listdir() == []


def test_a_kernel_that_does_not_end_meets_the_deadline(server: Launched, net: Path) -> None:
    with rpc.connect(server.host, server.port, session_timeout=1) as session:
        session.upload(net)
        with pytest.raises(RPCSessionTimeoutError, match="1s session has expired"):
            session.load_module("net.tar")["spin"]()
    with rpc.connect(server.host, server.port) as session:
        assert session.listdir() == []


def test_only_the_right_key_is_served_and_the_address_must_answer(server: Launched) -> None:
    with pytest.raises(RPCError, match="this server's key is 'direct'"):
        rpc.connect(server.host, server.port, key="other")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(RPCError, match="cannot connect"):
            rpc.connect("127.0.0.1", free.getsockname()[1])


def test_a_tracker_lends_devices_and_the_table_shows_them(farm: Farm, net: Path) -> None:
    farm.add("rk3399")
    farm.add("rk3399")
    with farm.client.request("rk3399", session_timeout=60) as session:
        session.upload(net)
        module = graph_executor.GraphModule(session.load_module("net.tar")["default"](session.cpu()))
        module.run(x=X)
        np.testing.assert_array_equal(module.get_output(0).numpy(), X + WEIGHT)
        rule = "-" * 31
        text = farm.client.text_summary()
        assert f"{rule}\nkey       total  free  pending\n{rule}\nrk3399    2      1     0\n{rule}" in text
    with pytest.raises(RPCError, match="given out by its tracker"):
        rpc.connect(*farm.client.summary()["server_info"][0]["addr"])


def test_the_tracker_says_where_it_listens_in_the_words_of_old(farm: Farm) -> None:
    assert farm.tracker.lines[0] == f"INFO:RPCTracker:bind to 127.0.0.1:{farm.port}"
