"""Executors over one library have its loaded weights in memory once, until one of them sets its own."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_load_time import OTHER, RNG, W, X, network, run

from armillary.driver.library import GraphLibrary
from armillary.runtime import GraphExecutor, load_module

KINDS = ("library", "tar", "so")
Factory = Callable[[], GraphExecutor]


@pytest.fixture(scope="module")
def library() -> GraphLibrary:
    return network(W)


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, library: GraphLibrary, tmp_path: Path) -> Factory:
    """Gives executors over one library, built here or loaded from a file."""
    if request.param == "library":
        return library["default"]
    library.export_library(tmp_path / f"x.{request.param}")
    return load_module(tmp_path / f"x.{request.param}")["default"]


def weights_at(executor: GraphExecutor, library: GraphLibrary) -> list[int]:
    """Addresses of what load-time nodes computed."""
    nodes = json.loads(library.graph_json)["nodes"]
    early = [i for i, n in enumerate(nodes) if n.get("attrs", {}).get("load_time") == "1"]
    assert early, "the network must have load-time nodes"
    return [executor.get_node_output(i).memory.ctypes.data for i in early]


def parameter(library: GraphLibrary) -> tuple[str, np.ndarray]:
    (item,) = library.get_params().items()
    return item


def test_two_executors_use_the_same_expanded_weights(make: Factory, library: GraphLibrary) -> None:
    first, second = make(), make()
    assert weights_at(first, library) == weights_at(second, library)
    wanted = run(first).tobytes()
    assert run(second).tobytes() == wanted
    del first
    gc.collect()
    assert run(second).tobytes() == run(make()).tobytes() == wanted


def test_parameters_that_inferences_read_are_shared_too(tmp_path: Path) -> None:
    plain = network(W, tile=0)
    plain.export_library(tmp_path / "x.tar")
    module = load_module(tmp_path / "x.tar")
    first, second = module["default"](), module["default"]()
    index = [n["name"] for n in json.loads(plain.graph_json)["nodes"]].index(parameter(plain)[0])
    places = {e.get_node_output(index).memory.ctypes.data for e in (first, second)}
    assert len(places) == 1
    view = second.get_input(parameter(plain)[0])  # for writing: of its own from now on
    assert view.memory.ctypes.data not in places
    view.memory[...] = 0
    assert not run(second).any() and run(first).tobytes() == run(plain["default"]()).tobytes()


@pytest.mark.parametrize("changed", [0, 1])
def test_weights_that_one_executor_sets_are_its_own(make: Factory, library: GraphLibrary, changed: int) -> None:
    executors = [make(), make()]
    before, (name, _) = run(executors[0]).tobytes(), parameter(library)
    other = network(OTHER)
    executors[changed].set_input(name, parameter(other)[1])
    assert run(executors[changed]).tobytes() == run(other["default"]()).tobytes() != before
    assert run(executors[1 - changed]).tobytes() == before
    assert run(make()).tobytes() == before
    assert weights_at(executors[0], library) != weights_at(executors[1], library)


def test_weights_of_executors_that_are_gone_are_loaded_again(make: Factory, library: GraphLibrary) -> None:
    executor = make()
    before, (name, _) = run(executor).tobytes(), parameter(library)
    executor.set_input(name, np.zeros_like(parameter(library)[1]))
    assert not run(executor).any()
    assert run(make()).tobytes() == before


def test_threads_that_come_change_weights_and_go_get_the_right_results(make: Factory, library: GraphLibrary) -> None:
    name, packed = parameter(library)
    other = parameter(network(OTHER))[1]
    wanted = {id(values): run_with(make(), name, values) for values in (packed, other)}
    assert len(set(wanted.values())) == 2
    wrong: list[str] = []
    start = threading.Barrier(6)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        start.wait()
        for turn in range(12):
            executor = make()
            if executor_result(executor) != wanted[id(packed)]:
                wrong.append(f"{seed}.{turn}: what was loaded")
            values = other if random.random() < 0.5 else packed
            if random.random() < 0.7 and run_with(executor, name, values) != wanted[id(values)]:
                wrong.append(f"{seed}.{turn}: what was set")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in RNG.integers(0, 1 << 30, 6).tolist()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def executor_result(executor: GraphExecutor) -> bytes:
    executor.set_input("x", X)
    executor.run()
    return executor.get_output(0).numpy().tobytes()


def run_with(executor: GraphExecutor, name: str, values: np.ndarray) -> bytes:
    executor.set_input(name, values)
    return executor_result(executor)
