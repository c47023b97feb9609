"""The steps of the command line in Python, as scripts of Relay's time call them: load, tune, compile, run."""

from __future__ import annotations

import argparse
import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from opencl_device import needs_opencl

from armillary import rpc
from armillary.cli.main import main
from armillary.driver import tvmc
from armillary.errors import ArtifactError, ConfigError, ExecutionError, ModelError
from armillary.ir.memory_pools import WorkspaceMemoryPools
from armillary.rpc.launch import Server, Tracker
from armillary.target import Target

X = np.random.default_rng(1).uniform(-1, 1, (1, 4, 6, 6)).astype("float32")
W = np.random.default_rng(0).normal(size=(8, 4, 3, 3)).astype("float32")
WANTED = np.einsum("nchwij,ocij->nohw", np.lib.stride_tricks.sliding_window_view(X, (3, 3), (2, 3)), W)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    value, node = helper.make_tensor_value_info, helper.make_node("Conv", ["x", "w"], ["y"])
    weight = numpy_helper.from_array(W, "w")
    graph = helper.make_graph([node], "g", [value("x", 1, X.shape)], [value("y", 1, WANTED.shape)], [weight])
    path = tmp_path_factory.mktemp("tvmc") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


@needs_opencl
def test_a_model_is_tuned_and_run_on_a_device_of_a_tracker(file: Path, tmp_path: Path) -> None:
    model = tvmc.load(file)
    tracker = Tracker()
    server = Server(key="android", tracker_addr=("127.0.0.1", tracker.port))
    where = {"rpc_key": "android", "hostname": "127.0.0.1", "port": tracker.port}
    try:
        rpc.connect_tracker("127.0.0.1", tracker.port).request("android", wait_for_key=60).close()
        kinds = {"opencl": {"device": "adreno"}}
        log = tvmc.tune(
            model,
            "opencl",
            tmp_path / "net.log",
            tmp_path / "none.log",
            trials=1,
            tuner="random",
            target_host="llvm",
            end_to_end=False,
            additional_target_options=kinds,
            **where,
        )
        assert Path(log).read_text()
        package = tvmc.compile(
            model,
            "opencl, llvm",
            tuning_records=log,
            package_path=tmp_path / "net.tar",
            dump_code="cl",
            additional_target_options=kinds,
        )
        result = tvmc.run(package, device="cl", inputs={"x": X}, benchmark=True, repeat=2, number=1, **where)
    finally:
        server.terminate()
        tracker.terminate()
    assert "__kernel" in (tmp_path / "net.tar.cl").read_text()
    assert "mean (ms)" in result.format_times() and "output_0" in str(result)
    np.testing.assert_allclose(result.get_output("output_0"), WANTED, rtol=1e-4, atol=1e-5)


def test_models_packages_and_results_are_files(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tvmc.load(file, model_format="onnx", shape_dict={"x": X.shape}).save(tmp_path / "model.tar")
    model = tvmc.TVMCModel(model_path=tmp_path / "model.tar")
    model.summary()
    assert "nn.conv2d" in capsys.readouterr().out
    half = {"mixed_precision": True, "mixed_precision_acc_type": "float32"}
    package = tvmc.compile(model, "llvm", dump_offloads="-", disabled_pass=["FoldScaleAxis"], **half)
    assert tvmc.TVMCPackage(package.package_path).graph == package.graph and len(package.params) > 0
    assert capsys.readouterr().out.startswith("nothing is offloaded")
    result = tvmc.run(package, device="cpu", inputs={"x": X})
    result.save(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as stored:
        np.testing.assert_allclose(stored["output_0"], WANTED, rtol=2e-2, atol=2e-2)


def test_what_cannot_be_done_is_said(file: Path, tmp_path: Path) -> None:
    model = tvmc.load(file)
    with pytest.raises(ConfigError, match="there is no form 'caffe' of models"):
        tvmc.load(file, model_format="caffe")
    with pytest.raises(ModelError, match="no archive of PyTorch"):
        tvmc.load(file, model_format="pytorch")
    with pytest.raises(ConfigError, match="a TVMCModel is made of a module or of a file"):
        tvmc.TVMCModel()
    with pytest.raises(ModelError, match="cannot be read as a saved model"):
        tvmc.TVMCModel(model_path=file)
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with pytest.raises(ModelError, match="the tar holds no model"):
        tvmc.TVMCModel(model_path=tmp_path / "empty.tar")
    with pytest.raises(ArtifactError, match="the package lacks"):
        tvmc.TVMCPackage(tmp_path / "empty.tar")
    with pytest.raises(ConfigError, match="pools of memory are of C packages"):
        tvmc.compile(model, "llvm", workspace_pools=WorkspaceMemoryPools([]))
    with pytest.raises(ConfigError, match="--target-opencl-device: the target 'llvm' has no opencl"):
        tvmc.compile(model, "llvm", additional_target_options={"opencl": {"device": "adreno"}})
    with pytest.raises(ConfigError, match=r"tvmc\.tune: argument --trials|tvmc\.tune: argument --repeat"):
        tvmc.tune(model, "llvm", repeat=0)
    with pytest.raises(ExecutionError, match="the run was not timed"):
        tvmc.TVMCResult({}, None).format_times()


def _pools(*words: str) -> WorkspaceMemoryPools | None:
    parser = argparse.ArgumentParser()
    tvmc.workspace_pools.generate_workspace_pools_args(parser)
    targets = [Target("opencl -device=mali", host="llvm")]
    return tvmc.workspace_pools.workspace_pools_recombobulate(parser.parse_args(words), targets)


def test_pools_of_memory_are_options() -> None:
    assert _pools() is None
    one = ["--workspace-pools=sram,flash", "--workspace-pools-targets=sram:llvm", "--workspace-pools-targets=flash:cl"]
    sizes = ["--workspace-pools-size-hint-bytes=sram:400", "--workspace-pools-size-hint-bytes=sram:500"]
    burst = "--workspace-pools-target-burst-bytes=sram:llvm:2"
    pools = _pools(*one[:2], "--workspace-pools=sram", *sizes, burst)
    assert pools is not None and [pool.pool_name for pool in pools.pools] == ["sram"]
    assert pools.pools[0].size_hint_bytes == 500 and pools.pools[0].read_latency_cycles == 0
    assert pools.pools[0].target_burst_bytes == {pools.pools[0].targets[0]: 2}
    with pytest.raises(ConfigError, match='"flash" using undefined Target "cl"'):
        _pools(*one)
    with pytest.raises(ConfigError, match='No target specified for Workspace Pool "sram"'):
        _pools("--workspace-pools=sram")
    with pytest.raises(ConfigError, match="subset of the same TVM targets"):
        _pools(*one[:2], "--workspace-pools=sram", burst.replace("llvm", "c"))
    with pytest.raises(ConfigError, match="got 'many', wanted POOL:NUMBER"):
        _pools(*one[:2], "--workspace-pools=sram", "--workspace-pools-size-hint-bytes=sram:many")


def test_a_log_of_earlier_trials_need_not_be_there(
    file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", str(file), "-o", str(tmp_path / "a.log"), "--tuning-records", "earlier.log", "--tasks", "list"]
    assert main(words) == 0
    message = capfd.readouterr()
    assert "earlier.log: there is no such file yet" in message.err and "Available Tasks" in message.out
