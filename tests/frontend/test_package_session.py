"""Sessions over packages: names, threads, asynchronous runs, bindings, profiles, and options that mean nothing."""

from __future__ import annotations

import json
import tarfile
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from test_session import network

from armillary import InferenceSession, OrtValue, RunOptions, SessionOptions, relay
from armillary.errors import ConfigError, ExecutionError, TypeMismatch, UnsupportedError
from armillary.runtime import session as session_module

X = np.random.default_rng(7).standard_normal((2, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("packages")
    onnx.save(network(2), folder / "net.onnx")
    module, params = relay.frontend.from_onnx(folder / "net.onnx")
    library = relay.build(module, target="llvm -mcpu=native", params=params)
    for name in ("net.tar", "net.so"):
        library.export_library(folder / name)
    with tarfile.open(folder / "net.tar") as archive:
        archive.extractall(folder / "net", filter="data")
    return {"tar": folder / "net.tar", "so": folder / "net.so", "folder": folder / "net", "onnx": folder / "net.onnx"}


@pytest.mark.parametrize("form", ["tar", "so", "folder", "onnx"])
def test_a_package_answers_as_onnx_runtime_does(packages: dict[str, Path], form: str) -> None:
    ours, theirs = InferenceSession(packages[form]), onnxruntime.InferenceSession(str(packages["onnx"]))
    for a, b in zip(ours.get_inputs() + ours.get_outputs(), theirs.get_inputs() + theirs.get_outputs(), strict=True):
        assert (a.name, a.type, a.shape) == (b.name, b.type, b.shape)
    for names in (None, ["h"], ["h", "y"]):
        for a, b in zip(ours.run(names, {"x": X}), theirs.run(names, {"x": X}), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    first = ours.run(None, {"x": X})
    copies = [value.copy() for value in first]
    ours.run(None, {"x": X + 1})
    assert all(np.array_equal(a, b) for a, b in zip(first, copies, strict=True)), "outputs belong to the caller"


@pytest.mark.parametrize("form", ["tar", "onnx"])
def test_eight_threads_never_see_the_values_of_others(packages: dict[str, Path], form: str) -> None:
    session = InferenceSession(packages[form])
    weight = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
    wrong: list[int] = []

    def work(seed: int) -> None:
        for n in range(200):
            x = np.full((2, 4), seed * 1000 + n, np.float32)
            if not np.array_equal(session.run(["h"], {"x": x})[0], x @ weight):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_feed_that_is_refused_does_not_hinder_other_threads(packages: dict[str, Path]) -> None:
    session = InferenceSession(packages["tar"])
    wanted = session.run(["y"], {"x": X})[0]
    engine = session._engine  # past the session's own checks, so that the executor refuses
    seen: list[object] = []

    def refused() -> None:
        with pytest.raises(TypeMismatch):
            engine.run({"x": np.ones((3, 4), np.float32)})

    for work in (refused, lambda: seen.append(session.run(["y"], {"x": X})[0])) * 3:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(seen) == 3 and all(np.array_equal(value, wanted) for value in seen)


def test_an_asynchronous_run_calls_back_with_results_or_with_what_went_wrong(packages: dict[str, Path]) -> None:
    session, done, seen = InferenceSession(packages["tar"]), threading.Semaphore(0), []

    def callback(results: list[np.ndarray], data: object, error: str) -> None:
        seen.append((results, data, error))
        done.release()

    session.run_async(["y"], {"x": X}, callback, "mine")
    assert done.acquire(timeout=60)
    session.run_async(["y"], {"z": X}, callback)
    assert done.acquire(timeout=60)
    (results, data, error), (nothing, _, message) = seen
    np.testing.assert_array_equal(results[0], session.run(["y"], {"x": X})[0])
    assert (data, error, nothing) == ("mine", "", []) and "inputs are ['x'], got ['z']" in message


def test_outputs_are_written_to_the_memory_that_is_bound(packages: dict[str, Path]) -> None:
    session = InferenceSession(packages["tar"])
    wanted, out = session.run(None, {"x": X}), np.zeros((2, 3), np.float32)
    binding = session.io_binding()
    value = OrtValue.ortvalue_from_numpy(X.copy())
    binding.bind_input("x", "cpu", 0, np.float32, value.shape(), value.data_ptr())
    binding.bind_output("h", "cpu", 0, np.float32, out.shape, out.ctypes.data)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(out, wanted[1])
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], wanted[0])
    value.update_inplace(X + 1)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), session.run(["h"], {"x": X + 1})[0])
    with pytest.raises(ExecutionError, match="no output 'q'"):
        binding.bind_output("q")
    with pytest.raises(UnsupportedError, match="cuda:0: values of a session are on the CPU"):
        binding.bind_output("y", "cuda")
    binding.bind_cpu_input("x", X.astype(np.float64))
    with pytest.raises(TypeMismatch, match="'x' is float64, wanted float32"):
        session.run_with_iobinding(binding)


@pytest.mark.parametrize("form", ["tar", "onnx"])
def test_a_profile_names_the_kernels_of_each_run(
    packages: dict[str, Path], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = SessionOptions()
    options.enable_profiling = True
    session = InferenceSession(packages[form], options)
    for _ in range(3):
        session.run(None, {"x": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    assert [event["name"] for event in events].count("model_run") == 3
    nodes = [event for event in events if event["cat"] == "Node"]
    assert len(nodes) >= 3 and all("fused" in event["args"]["function"] and event["dur"] > 0 for event in nodes)
    with pytest.raises(ExecutionError, match="profiling was not enabled"):
        session.end_profiling()


def test_a_session_says_where_its_model_comes_from(packages: dict[str, Path]) -> None:
    meta = InferenceSession(packages["tar"]).get_modelmeta()
    assert (meta.producer_name, meta.graph_name) == ("armillary", "net")
    assert meta.custom_metadata_map["target"].startswith("llvm")
    ours = InferenceSession(packages["onnx"]).get_modelmeta()
    theirs = onnxruntime.InferenceSession(str(packages["onnx"])).get_modelmeta()
    assert (ours.graph_name, ours.producer_name) == (theirs.graph_name, theirs.producer_name)


def test_symbolic_sizes_may_be_fixed_by_an_option(packages: dict[str, Path]) -> None:
    options = SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    session = InferenceSession(network("batch").SerializeToString(), options)
    assert session.get_inputs()[0].shape == [2, 4]


def test_options_without_effect_are_told_and_unknown_ones_refused(packages: dict[str, Path]) -> None:
    options = SessionOptions()
    options.graph_optimization_level = 99  # what scripts set out of habit
    assert options.enable_mem_pattern is True
    with pytest.warns(UserWarning, match="SessionOptions.inter_op_num_threads has no effect"):
        options.inter_op_num_threads = 3
    with pytest.raises(ConfigError, match="no option 'intra_op_threads'") as raised:
        options.intra_op_threads = 3
    assert raised.value.hint == "did you mean intra_op_num_threads?"
    with pytest.raises(ConfigError, match="RunOptions has no option 'speed'"):
        RunOptions().speed = 1
    with pytest.raises(ConfigError, match="InferenceSession has no option 'thread'"):
        InferenceSession(packages["tar"], thread=3)
    with pytest.warns(UserWarning, match="disabled_optimizers has no effect"):
        InferenceSession(packages["tar"], disabled_optimizers=[])


def test_without_the_compiler_a_model_is_refused_with_what_to_do(
    packages: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_OF_MODELS", [])
    with pytest.raises(UnsupportedError, match="armillary-runtime opens packages") as raised:
        InferenceSession(packages["onnx"])
    assert "armc compile net.onnx" in raised.value.hint


def test_a_package_for_several_sizes_takes_each(tmp_path: Path) -> None:
    onnx.save(network("batch"), tmp_path / "net.onnx")
    module, params = relay.frontend.from_onnx(tmp_path / "net.onnx", variants=[{"batch": 1}, {"batch": 3}])
    relay.build(module, target="llvm", params=params).export_library(tmp_path / "net.tar")
    session = InferenceSession(tmp_path / "net.tar")
    assert session.get_inputs()[0].shape == [None, 4]
    assert [(arg.name, arg.shape) for arg in session.get_outputs()] == [("y", [None, None]), ("h", [None, None])]
    for n in (1, 3, 1):
        x = np.full((n, 4), n, np.float32)
        for ours, theirs in zip(session.run(None, {"x": x}), InferenceSession(network(n)).run(None, {"x": x})):
            np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(TypeMismatch):
        session.run(None, {"x": np.ones((2, 4), np.float32)})
