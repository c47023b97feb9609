"""The kinds of test_config.json: a package is uploaded to a server for AArch64, in C, alone and at a tracker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from infrastructure import (
    CONFIG,
    DEFAULTS,
    Device,
    connected,
    emulated,
    module_of,
    partitioned,
    read_config,
    run,
    verify,
)

from armillary import relay, rpc
from armillary.errors import ArtifactError
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, const, var
from armillary.rpc.launch import Launched

RNG = np.random.default_rng(29)


@pytest.fixture(scope="module")
def server_command(local_device: Device, server_for_aarch64: Path) -> list[str]:
    libraries = f"ARMILLARY_EXTERNAL_PATH={local_device.libraries}"
    return ["env", libraries, *emulated(), str(server_for_aarch64), "--port=0"]


@pytest.fixture(params=["remote", "tracker"])
def config_file(request: pytest.FixtureRequest, server_command: list[str], tmp_path: Path) -> Iterator[Path]:
    """A test_config.json of the kind, and the machines that it names."""
    tracker = Launched("rpc_tracker", "--port=0") if request.param == "tracker" else None
    at = [f"--tracker=127.0.0.1:{tracker.port}", "--key=acl"] if tracker is not None else []
    server = Launched("", *at, command=server_command)
    config = {
        "connection_type": request.param,
        "host": "127.0.0.1",
        "port": (tracker or server).port,
        "target": CONFIG["target"],
        "device_key": "acl" if tracker is not None else "",
        "cross_compile": CONFIG["cross_compile"],
    }
    (tmp_path / "test_config.json").write_text(json.dumps(config))
    yield tmp_path / "test_config.json"
    server.terminate()
    if tracker is not None:
        tracker.terminate()


def layers(x: Expr) -> Expr:
    kernel = const(RNG.uniform(-1, 1, (3, 3, 6, 8)).astype("float32"))
    y = relay.nn.conv2d(x, kernel, data_layout="NHWC", kernel_layout="HWIO", padding=(1, 1))
    return relay.nn.max_pool2d(relay.sigmoid(y), pool_size=(2, 2), strides=(2, 2), layout="NHWC")


def test_a_package_is_uploaded_and_computes_as_the_reference(config_file: Path, tmp_path: Path) -> None:
    module = module_of(layers(var("x", shape=(1, 12, 10, 6))))
    after = partitioned(module, 1, 2)
    value = RNG.uniform(-1, 1, (1, 12, 10, 6)).astype("float32")
    with connected(read_config(config_file)) as remote:
        found = run(remote, after, {"x": value}, tmp_path, runs=3)
        verify(found, [evaluate(module, [value])], atol=0.002, rtol=0.01)


def test_a_server_without_the_library_says_so(server_command: list[str], tmp_path: Path) -> None:
    server = Launched("", command=["env", "ARMILLARY_EXTERNAL_PATH=/nowhere", *server_command[2:]])
    config = DEFAULTS | {"connection_type": "remote", "port": server.port, "cross_compile": CONFIG["cross_compile"]}
    after = partitioned(module_of(relay.reshape(var("x", shape=(2, 3)), newshape=(6,))))
    value = np.zeros((2, 3), "float32")
    with connected(config) as remote, pytest.raises(ArtifactError, match=r"whose runtime .* is not there"):
        run(remote, after, {"x": value}, tmp_path)
    server.terminate()


def test_keys_may_be_absent_and_the_file_too(tmp_path: Path) -> None:
    path = tmp_path / "test_config.json"
    with pytest.warns(UserWarning, match="run locally"):
        assert read_config(path)["connection_type"] == "local"
    path.write_text('{"connection_type": "remote", "host": "board", "port": 1}')
    found = read_config(path)
    assert (found["host"], found["device_key"], found["cross_compile"]) == ("board", "", "")
    path.write_text('{"conection_type": "remote"}')
    with pytest.raises(AssertionError, match="known keys are"):
        read_config(path)
    assert set(CONFIG) == set(DEFAULTS) and len(CONFIG) == 6


def test_a_tracker_is_asked_for_the_key(tmp_path: Path) -> None:
    tracker = Launched("rpc_tracker", "--port=0")
    config = DEFAULTS | {"connection_type": "tracker", "port": tracker.port, "device_key": "nothing"}
    client = rpc.connect_tracker("127.0.0.1", tracker.port)
    assert client.summary()["queue_info"] == {}
    with pytest.raises(Exception, match="nothing"), connected(config):
        pass
    tracker.terminate()
