"""Nodes that depend on parameters alone run when parameters are set, and what only they need is given back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from armillary.artifact import GraphNode, GraphSpec, save_params
from armillary.artifact.package import load_package, save_package
from armillary.errors import ArmillaryError, ArtifactError, ExecutionError
from armillary.runtime import GraphExecutor, Module, NDArray, from_package, load_module

from .conftest import make_package

LOAD = {"load_time": "1"}
RNG = np.random.default_rng(20240)
BOX, OTHER = (RNG.standard_normal((6, 8)).astype(np.float32) for _ in range(2))
X = RNG.standard_normal(48).astype(np.float32)


def spec(extra: tuple[GraphNode, ...] = ()) -> GraphSpec:
    """x + flatten(center(w)), where center and flatten run at load time."""
    nodes = (
        GraphNode("null", "x"),
        GraphNode("null", "w"),
        GraphNode("tvm_op", "center", ((1, 0, 0),), "center", attrs=LOAD),
        GraphNode("tvm_op", "flatten", ((2, 0, 0),), "__nop", attrs=LOAD),
        GraphNode("tvm_op", "add", ((0, 0, 0), (3, 0, 0)), "add"),
        *extra,
    )
    shapes = ((48,), (6, 8), (6, 8), (48,), (48,)) + ((48,),) * len(extra)
    storages = (0, 1, 2, 2, 3, *range(4, 4 + len(extra)))
    count = 4 + len(extra)
    return GraphSpec(nodes, (0, 1), ((4, 0, 0),), shapes, ("float32",) * len(shapes), storages, (-1,) * count)


def want(box: np.ndarray) -> np.ndarray:
    result: np.ndarray = X + (box - box.sum(1, keepdims=True)).reshape(-1)
    return result


@pytest.fixture
def package(library: Path, tmp_path: Path) -> Path:
    """A package whose only parameter is expanded when loaded."""
    path = tmp_path / "net.tar"
    save_package(path, replace(make_package(library), graph_json=spec().to_json(), params=save_params({"w": BOX})))
    return path


def test_load_time_node_gives_its_value_to_every_run(package: Path) -> None:
    graph = load_module(package)["default"]()
    graph.set_input("x", X)
    for _ in range(2):
        graph.run()
        np.testing.assert_allclose(graph.get_output(0).numpy(), want(BOX), rtol=1e-6, atol=1e-6)
    names = {row.name: row.seconds for row in graph.run_nodes(0, graph.num_nodes())}
    assert names["center"] == 0 and names["add"] > 0, "an inference must not run it"


def test_setting_a_parameter_again_runs_its_load_time_nodes_again(package: Path) -> None:
    graph = load_module(package)["default"]()
    graph.set_input("x", X)
    graph.run()
    graph.set_input("w", OTHER)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), want(OTHER), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(graph.get_input("w").numpy(), OTHER)


def test_parameter_with_load_time_nodes_is_never_just_filled_in(package: Path) -> None:
    graph = load_module(package)["default"]()
    graph.set_input("x", X)
    for box in (OTHER, BOX, OTHER):
        graph.set_input("w", box)
        assert not graph.fill("w", box)
        graph.run()
        np.testing.assert_allclose(graph.get_output(0).numpy(), want(box), rtol=1e-6, atol=1e-6)


def test_parameter_that_was_given_back_is_read_again_when_asked_for(package: Path) -> None:
    graph = load_module(package)["default"]()
    graph.set_input("x", X)
    graph.run()
    view = graph.get_input("w")
    np.testing.assert_array_equal(view.numpy(), BOX)
    view.copyfrom(OTHER)  # the view stays the parameter's memory: the next run expands what it holds
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), want(OTHER), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(view.numpy(), OTHER)


def test_parameters_from_bytes_from_arrays_and_shared_give_the_same(library: Path, package: Path) -> None:
    results = []
    for setting in ("bytes", "zero copy", "shared"):
        module = from_package(load_package(package))
        module.stored = None
        graph = module["default"]()
        match setting:
            case "bytes":
                assert graph.load_params(save_params({"w": BOX})) == 1
            case "zero copy":
                graph.set_params({"w": BOX.copy()})
            case "shared":
                graph.share_params(load_module(package)["default"](), save_params({"w": BOX}))
        graph.set_input("x", X)
        graph.run()
        np.testing.assert_array_equal(graph.get_input("w").numpy(), BOX)
        results.append(graph.get_output(0).numpy().tobytes())
    assert len(set(results)) == 1


def test_compact_parameter_is_let_go_of_only_when_it_can_be_had_again(package: Path) -> None:
    module = from_package(load_package(package))
    module.stored = None
    graph = module["default"]()
    graph.set_input_zero_copy("w", NDArray(BOX.copy()))
    graph.set_input("x", X)
    graph.run()
    np.testing.assert_array_equal(graph.get_input("w").numpy(), BOX)
    assert graph.memory_bytes < load_module(package)["default"]().memory_bytes + BOX.nbytes


def test_missing_parameter_is_named(library: Path, package: Path) -> None:
    module = from_package(load_package(package))
    module.stored = None
    graph = module["default"]()
    graph.set_input("x", X)
    with pytest.raises(ExecutionError, match="input w was never set"):
        graph.run()


def test_load_time_node_may_not_read_what_an_inference_computes(module: Module) -> None:
    bad = spec((GraphNode("tvm_op", "late", ((4, 0, 0), (4, 0, 0)), "add", attrs=LOAD),))
    with pytest.raises(ArtifactError, match="load-time node late reads a value of an inference"):
        GraphExecutor(bad.to_json(), module)


def test_inference_may_not_overwrite_what_was_loaded(module: Module) -> None:
    good = spec()
    nodes = (*good.nodes[:4], GraphNode("tvm_op", "add", ((0, 0, 0), (3, 0, 0)), "add"))
    bad = replace(good, nodes=nodes, storage_ids=(0, 1, 2, 2, 2), arena_offsets=(-1,) * 3)
    with pytest.raises(ArtifactError, match="node add overwrites what was computed at load time"):
        GraphExecutor(bad.to_json(), module)


@pytest.mark.parametrize("member", ["mod.so", "mod.json", "mod.params"])
def test_damaged_member_is_named(package: Path, member: str, tmp_path: Path) -> None:
    whole = load_package(package)
    parts = {"mod.so": whole.library, "mod.json": whole.graph_json.encode(), "mod.params": whole.params}
    data = bytearray(package.read_bytes())
    at = data.index(parts[member]) + len(parts[member]) - 9  # a value, or text that still parses
    data[at] ^= 1
    bad = tmp_path / "bad.tar"
    bad.write_bytes(data)
    with pytest.raises(ArtifactError, match=rf"member {member} is damaged: its CRC-32 is \w+, the package records"):
        load_module(bad)["default"]()
    with pytest.raises(ArtifactError, match=f"member {member} is damaged"):
        load_package(bad)


def test_package_without_checksums_still_loads(package: Path, tmp_path: Path) -> None:
    data = package.read_bytes()
    end = data.rindex(b"mod.crc32\0")
    old = tmp_path / "old.tar"
    old.write_bytes(data[:end] + bytes(1024))
    assert load_package(old) == load_package(package)
    graph = load_module(old)["default"]()
    graph.set_input("x", X)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), want(BOX), rtol=1e-6, atol=1e-6)


def test_damaged_checksums_are_refused(package: Path, tmp_path: Path) -> None:
    data = bytearray(package.read_bytes())
    data[data.rindex(b"  mod.so\n") - 1] = ord("x")
    bad = tmp_path / "bad.tar"
    bad.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"member mod\.crc32 is damaged"):
        load_module(bad)


def test_damaged_params_in_a_file_never_crash(library: Path, tmp_path: Path) -> None:
    """The reader of files: the same damage that the reader of bytes gets, without checksums to stop it."""
    blob = save_params({"w": BOX, "other": X})
    package = replace(make_package(library), graph_json=spec().to_json())
    source = np.random.default_rng(7)
    for case in range(60):
        bad = bytearray(blob)
        at = int(source.integers(len(bad)))
        if case % 3 == 0:
            del bad[at:]
        else:
            bad[at] ^= 1 << int(source.integers(8))
        path = tmp_path / "x.tar"
        save_package(path, replace(package, params=bytes(bad)))
        try:
            load_module(path)["default"]()
        except ArmillaryError:
            continue
