"""One graph over the CPU and an OpenCL device: parts compiled for each, values copied, an arena on each device."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_device import needs_opencl

from armillary import device, nd, relay, runtime
from armillary.artifact import GraphSpec
from armillary.codegen.toolchain import find_compiler
from armillary.contrib import graph_executor
from armillary.errors import ArtifactError, TargetError, TypeMismatch, UnsupportedError
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function
from armillary.target import Target
from armillary.transform import PassContext

pytestmark = needs_opencl
BOTH = {"cpu": "llvm", "opencl": "opencl"}
X = np.random.default_rng(1).random((1, 3, 16, 16), dtype="float32")
RNG = np.random.default_rng(0)
W1, W2, W3 = (RNG.normal(size=s).astype("float32") * 0.1 for s in ((16, 3, 3, 3), (16, 16, 3, 3), (10, 16)))


def on(value: Any, kind: int) -> Any:
    return relay.annotation.on_device(value, kind) if kind else value


def network(cpu: int = 1, other: int = 4) -> Function:
    """Convolutions on one device, the first layer and the end on the other; 0, 0: without notes."""
    x = relay.var("x", shape=X.shape)
    first = on(relay.nn.relu(relay.nn.conv2d(x, relay.const(W1), padding=(1, 1))), cpu)
    second = relay.nn.relu(relay.nn.conv2d(first, relay.const(W2), padding=(1, 1)))
    second = relay.nn.relu(relay.nn.conv2d(second, relay.const(W2), padding=(1, 1)))
    pooled = on(relay.nn.global_avg_pool2d(relay.add(on(second, other), first)), cpu)
    return Function([x], relay.nn.softmax(relay.nn.dense(relay.nn.batch_flatten(pooled), relay.const(W3))))


@pytest.fixture(scope="module")
def expected() -> Any:
    return evaluate(network(0, 0), [X])


def run(library: Any, *devices: Any) -> Any:
    module = graph_executor.GraphModule(library["default"](*devices))
    module.set_input("x", X)
    module.run()
    module.run()
    return module.get_output(0).numpy()


@pytest.fixture(scope="module")
def library() -> Any:
    with PassContext(opt_level=3):
        return relay.build(network(), BOTH)


def test_each_part_runs_on_its_device(library: Any, expected: Any) -> None:
    spec = GraphSpec.from_json(library.get_graph_json())
    rows = library.descriptor.functions
    assert set(spec.devices) == {1, 4}
    calls = [(n, spec.devices[spec.entry(i)]) for i, n in enumerate(spec.nodes) if n.func_name in rows]
    assert all(bool(rows[n.func_name].launches) == (place == 4) for n, place in calls), "kernels of their device"
    convolutions = [place for n, place in calls if "conv2d" in n.func_name and "transform" not in n.func_name]
    assert sorted(convolutions) == [1, 4, 4]
    assert [n.func_name for n in spec.nodes].count("__copy") >= 2
    np.testing.assert_allclose(run(library, device("cpu"), device("opencl", 0)), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run(library), expected, rtol=1e-4, atol=1e-6)


def test_each_device_has_an_arena_of_its_own(library: Any) -> None:
    spec = GraphSpec.from_json(library.get_graph_json())
    place = {sid: spec.devices[entry] for entry, sid in enumerate(spec.storage_ids)}
    for kind in (1, 4):
        offsets = [o for sid, o in enumerate(spec.arena_offsets) if place[sid] == kind and o >= 0]
        assert offsets and min(offsets) == 0, "both begin at the beginning"


def test_packages_of_both_forms_hold_both_codes(
    library: Any, expected: Any, tmp_path: Path, built_runner: Callable[..., Path]
) -> None:
    np.savez(tmp_path / "in.npz", x=X)
    armrun = built_runner(find_compiler() or ["cc"])
    for name in ("net.so", "net.tar"):
        library.export_library(tmp_path / name)
        loaded = runtime.load_module(tmp_path / name)
        np.testing.assert_allclose(run(loaded, device("cpu")), expected, rtol=1e-4, atol=1e-6)
        assert [m.type_key for m in loaded.imported_modules] == ["opencl"]
        out = tmp_path / "out.npz"
        files = [f"--input={tmp_path / 'in.npz'}", f"--output={out}", "--run-count=2", "--profile"]
        subprocess.run([armrun, tmp_path / name, *files], check=True, capture_output=True)
        np.testing.assert_allclose(np.load(out)["output_0"], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "targets",
    [
        {1: "llvm", 4: "opencl"},
        {device("cpu"): Target("llvm"), device("opencl"): Target("opencl")},
        ["llvm", Target("opencl")],
    ],
)
def test_targets_are_given_by_number_device_or_as_a_list(targets: Any, expected: Any) -> None:
    np.testing.assert_allclose(run(relay.build(network(), targets)), expected, rtol=1e-4, atol=1e-6)


def test_the_main_device_is_the_configured_one(expected: Any) -> None:
    with PassContext(opt_level=3, config={"relay.fallback_device_type": 4}):
        library = relay.build(network(), BOTH)
    spec = GraphSpec.from_json(library.get_graph_json())
    assert spec.devices[spec.entry(spec.arg_nodes[0])] == 4 and spec.devices[spec.entry(*spec.heads[0][:2])] == 4
    np.testing.assert_allclose(run(library, device("cpu"), device("opencl")), expected, rtol=1e-4, atol=1e-6)


def test_tuples_and_given_weights_cross_between_devices() -> None:
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 4))
    parts = relay.split(relay.negative(x), 2, axis=1)
    left, right = on(parts[0], 4), parts[1]
    product = on(relay.nn.dense(left, w), 1)
    both = on(relay.concatenate([product, relay.exp(right)], axis=1), 4)
    function = Function([x, w], relay.Tuple([both, relay.negative(product)]))
    values = [RNG.random((2, 8), dtype="float32"), RNG.random((4, 4), dtype="float32")]
    low, high = -values[0][:, :4] @ values[1].T, np.exp(-values[0][:, 4:])
    wanted = [np.concatenate([low, high], axis=1), -low]
    for params in ({}, {"w": values[1]}):
        module = graph_executor.GraphModule(relay.build(function, BOTH, params=params)["default"](device("cpu")))
        module.set_input("x", values[0])
        if not params:
            module.set_input("w", values[1])
        module.run()
        for index, value in enumerate(wanted):
            np.testing.assert_allclose(module.get_output(index).numpy(), value, rtol=1e-5, atol=1e-6)


def test_what_two_parts_of_a_device_share_does_not_go_back_and_forth() -> None:
    x = relay.var("x", shape=(4,))
    first = on(relay.exp(x), 4)
    between = on(relay.negative(first), 1)
    last = on(relay.add(first, between), 4)  # of a part of its own: `between` needs the first part
    library = relay.build(Function([x], last), BOTH)
    spec = GraphSpec.from_json(library.get_graph_json())
    assert [n.func_name for n in spec.nodes].count("__copy") == 4, "there, between there and back, back"
    executor = library["default"](device("cpu"))
    executor.set_input("x", np.arange(4, dtype="float32"))
    executor.run()
    wanted = np.exp(np.arange(4.0)) - np.exp(np.arange(4.0))
    np.testing.assert_allclose(executor.get_output(0).numpy(), wanted, atol=1e-5)


def test_values_and_times_of_nodes_can_be_looked_at(library: Any) -> None:
    executor = library["default"](device("cpu"), device("opencl"))
    executor.set_input("x", X)
    assert all(row.seconds > 0 for row in executor.profile())
    text = library.get_source("relay")
    assert "device_type=4" in text and text.count("device_copy") >= 2
    assert "__kernel" in library.get_source("cl") and "define" in library.get_source("ll")


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"cpu": "llvm", "cuda-like": "opencl"}, r"'cuda-like' names no device"),
        ({"cpu": "opencl", "opencl": "opencl"}, r"the target opencl.* is for device type 4, given for device 'cpu'"),
        (["llvm", "c"], r"two targets for device type 1: llvm.* and c"),
        ({}, r"no target is given"),
        ({"cpu": "llvm"}, r"asks for device type 4, the target has device type 1"),
    ],
)
def test_targets_that_do_not_fit(targets: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        relay.build(network(), targets)


def test_notes_and_devices_that_do_not_fit(library: Any) -> None:
    with pytest.raises(TargetError, match=r"on_device asks for device type 2, targets are given for 1, 4"):
        relay.build(network(other=2), BOTH)
    with (
        PassContext(config={"relay.fallback_device_type": 2}),
        pytest.raises(TargetError, match=r"fallback_device_type is 2, targets are given for 1, 4"),
    ):
        relay.build(network(), BOTH)
    with pytest.raises(ArtifactError, match="2 devices are given, but it was built for one"):
        relay.build(network(0, 0), "llvm")["default"](device("cpu"), device("opencl"))
    executor = library["default"](device("cpu"))
    with pytest.raises(TypeMismatch, match="on a device of type 4; without copying it must be on the graph's, type 1"):
        executor.set_input_zero_copy("x", nd.array(X, device("opencl")))


def test_branches_over_several_devices_are_refused() -> None:
    x, flag = relay.var("x", shape=(2,)), relay.var("flag", shape=(), dtype="bool")
    body = relay.If(flag, relay.exp(x), relay.negative(x))
    function = Function([x, flag], relay.add(body, on(relay.tanh(x), 4)))
    with pytest.raises(UnsupportedError, match="branches and loops in a graph over several devices"):
        relay.build(function, BOTH)
