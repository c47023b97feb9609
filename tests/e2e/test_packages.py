"""Exported packages: the same results in a process without the compiler, in armrun, in threads, at any thread count."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import e2e_models as models
import numpy as np
import pytest

from armillary import nd
from armillary.codegen.build import build_functions  # noqa: F401  (the compiler is loaded here, and not in the child)
from armillary.runtime import load_module

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import sys
import numpy as np
from armillary import runtime
from armillary.contrib import graph_executor

library = runtime.load_module(sys.argv[1])
module = graph_executor.GraphModule(library["default"](runtime.cpu(0)))
module.set_input("data", np.load(sys.argv[2]))
module.run()
np.save(sys.argv[3], module.get_output(0).numpy())
loaded = [name for name in sys.modules if (name + ".").startswith(("llvmlite.", "onnx.", *(
    f"armillary.{part}." for part in ("te", "tir", "relay", "codegen", "driver"))))]
assert not loaded, loaded
"""


@pytest.fixture(scope="module", params=[1, 4], ids=["batch1", "batch4"])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A small residual network, exported both ways, with an input and its double-precision output."""
    module, params, inputs = models.workload(
        "resnet", batch_size=request.param, num_layers=8, image_shape=(3, 28, 28), num_classes=20
    )
    library = models.compiled(module, params)
    folder = tmp_path_factory.mktemp("packages")
    for suffix in ("so", "tar"):
        library.export_library(folder / f"net.{suffix}")
    np.save(folder / "x.npy", inputs["data"])
    want = models.in_double(module, params, inputs)
    assert models.relative_error(models.run(library, inputs), want) < 1e-4
    return {"folder": folder, "inputs": inputs, "want": want, "library": library}


@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_loaded_package_gives_the_same_bits(network: dict[str, object], suffix: str) -> None:
    loaded = load_module(network["folder"] / f"net.{suffix}")
    again = models.run(loaded, network["inputs"])
    assert again.tobytes() == models.run(network["library"], network["inputs"]).tobytes()


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_fresh_process_needs_no_compiler_and_any_thread_count_gives_the_same_bits(
    network: dict[str, object], suffix: str, threads: str, tmp_path: Path
) -> None:
    folder, out = network["folder"], tmp_path / "y.npy"
    arguments = [str(folder / f"net.{suffix}"), str(folder / "x.npy"), str(out)]
    environment = {"PYTHONPATH": str(ROOT), "ARMILLARY_NUM_THREADS": threads, "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert np.load(out).tobytes() == models.run(network["library"], network["inputs"]).tobytes()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_runner_gives_the_same_bits(
    network: dict[str, object], suffix: str, threads: int, runner: Path, tmp_path: Path
) -> None:
    folder, out = network["folder"], tmp_path / "out.npz"
    done = subprocess.run(
        [
            str(runner),
            f"--model={folder / f'net.{suffix}'}",
            f"--input=data={folder / 'x.npy'}",
            f"--output={out}",
            f"--threads={threads}",
            "--run-count=2",
            "--dry-run=1",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with np.load(out) as outputs:
        assert outputs["output_0"].tobytes() == models.run(network["library"], network["inputs"]).tobytes()


def test_inputs_and_outputs_can_be_the_callers_memory(network: dict[str, object]) -> None:
    graph = load_module(network["folder"] / "net.so")["default"]()
    x = nd.array(network["inputs"]["data"])
    y = nd.array(np.full(network["want"].shape, np.nan, np.float32))
    graph.set_input_zero_copy("data", x)
    graph.set_output_zero_copy(0, y)
    graph.run()
    assert models.relative_error(y.numpy(), network["want"]) < 1e-4
    x.copyfrom(np.zeros_like(network["inputs"]["data"]))  # the graph reads this memory
    graph.run()
    zero = models.run(network["library"], {"data": np.zeros_like(network["inputs"]["data"])})
    assert y.numpy().tobytes() == zero.tobytes()


def test_executors_in_several_threads_give_equal_results(network: dict[str, object]) -> None:
    loaded = load_module(network["folder"] / "net.so")
    rng = np.random.default_rng(models.SEED)
    shape = network["inputs"]["data"].shape
    images = [rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(3)]
    want = [models.run(loaded, {"data": image}) for image in images]
    got: dict[int, list[np.ndarray]] = {}

    def serve(k: int) -> None:
        graph = loaded["default"]()
        got[k] = []
        for _ in range(5):
            graph.set_input("data", images[k])
            graph.run()
            got[k].append(np.array(graph.get_output(0).numpy()))

    threads = [threading.Thread(target=serve, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [[y.tobytes() for y in got[k]] for k in range(3)] == [[w.tobytes()] * 5 for w in want]


def test_one_executor_gives_the_same_bits_again(network: dict[str, object]) -> None:
    graph = network["library"]["default"]()
    graph.set_input("data", network["inputs"]["data"])
    results = set()
    for _ in range(3):
        graph.run()
        results.add(graph.get_output(0).numpy().tobytes())
    assert len(results) == 1
