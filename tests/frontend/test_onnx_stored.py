"""Weights that stay in a file until they are used: the same package, little memory, no surprise if the file changes."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import armillary
from armillary.base.node import post_order
from armillary.driver.build import build
from armillary.driver.library import GraphLibrary
from armillary.errors import ModelError
from armillary.frontend import from_onnx
from armillary.frontend.onnx.entry import from_file
from armillary.frontend.onnx.split import LARGE
from armillary.relay.expr import Constant

ROOT = Path(__file__).resolve().parents[2]
RNG = np.random.default_rng(11)
TARGET = "llvm -mcpu=skylake-avx512"
PEAK = """
import sys
from collections.abc import Callable
from pathlib import Path
from armillary.cli.main import main
def now(key):
    with open("/proc/self/status") as lines:
        return {l.split(":")[0]: int(l.split()[1]) for l in lines if l.startswith("Vm")}[key]
small, large, out = sys.argv[1:]
assert main(["compile", small, "-o", out]) == 0
before = now("VmHWM")
assert main(["compile", large, "-o", out]) == 0
print(now("VmHWM") - before)
"""


def _weight(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _network(units: int = 256) -> onnx.ModelProto:
    """Convolutions, one scaled by a batch normalisation, one of 24 channels, and a product: all weights are large."""
    weights = {"w": _weight(64, 32, 3, 3), "v": _weight(24, 64, 3, 3), "d": _weight(units, 24 * 64)}
    weights |= {n: np.abs(_weight(64)) + 0.5 for n in ("scale", "bias", "mean", "var")}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "v"], ["e"], pads=[1, 1, 1, 1]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("Gemm", ["f", "d"], ["y"], transB=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 32, 8, 8))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", [x], [y], [numpy_helper.from_array(v, n) for n, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _saved(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def _saved_outside(model: onnx.ModelProto, path: Path) -> Path:
    """The weights in a file of their own."""
    onnx.save(copy.deepcopy(model), path, save_as_external_data=True, location=f"{path.stem}.data", size_threshold=0)
    return path


def _built(module: Any) -> GraphLibrary:
    with armillary.transform.PassContext(opt_level=3):
        return build(module, target=TARGET)


@pytest.mark.parametrize("suffix", ["tar", "so"])
def test_packages_are_equal_whichever_way_the_model_comes(tmp_path: Path, suffix: str) -> None:
    model = _network()
    path, outside = _saved(model, tmp_path / "net.onnx"), _saved_outside(model, tmp_path / "outside.onnx")
    made = []
    ways = from_onnx(path), from_file(str(path)), from_onnx(model), from_onnx(outside), from_file(str(outside))
    for number, (module, _) in enumerate(ways):
        library = _built(module)
        library.export_library(tmp_path / f"{number}.{suffix}")
        made.append((tmp_path / f"{number}.{suffix}").read_bytes())
        waiting = [v for v in library.params.held.values() if not isinstance(v, np.ndarray)]
        assert len(waiting) == 3
    assert all(package == made[0] for package in made)


def test_what_lies_in_a_file_by_rows_is_what_a_look_gives() -> None:
    library = _built(from_onnx(_network())[0])
    for name, held in library.params.held.items():
        if not isinstance(held, np.ndarray):
            for limit in (1, 10_000, 1 << 30):
                np.testing.assert_array_equal(np.concatenate(list(held.pieces(limit))), library.params[name])


def test_executors_share_a_weight_that_comes_from_a_file() -> None:
    library = _built(from_onnx(_network())[0])
    name = next(n for n, v in library.params.held.items() if not isinstance(v, np.ndarray))
    held = library.params[name]
    assert library.params[name] is held
    assert library.get_params()[name] is held


def test_a_message_may_change_after_it_was_imported() -> None:
    model = _network()
    module, _ = from_onnx(model)
    before = {c.span.name: c.data.copy() for c in post_order(module["main"]) if isinstance(c, Constant) and c.span}
    for tensor in model.graph.initializer:
        tensor.raw_data = bytes(len(tensor.raw_data))
    after = {c.span.name: c.data for c in post_order(module["main"]) if isinstance(c, Constant) and c.span}
    assert all(np.array_equal(before[n], after[n]) for n in before)
    assert any(v.any() for v in after.values())


def test_a_pickle_and_a_deep_copy_have_the_numbers() -> None:
    module, _ = from_onnx(_network())
    held = next(c.held for c in post_order(module["main"]) if isinstance(c, Constant) and c.nbytes >= LARGE)
    assert not isinstance(held, np.ndarray)
    for copied in (pickle.loads(pickle.dumps(held)), copy.deepcopy(held)):
        np.testing.assert_array_equal(copied, held.compute())


def test_files_are_closed_with_the_last_weight(tmp_path: Path) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    path = _saved(_network(), tmp_path / "net.onnx")
    gc.collect()  # modules of other tests
    before = opened()
    modules = [from_onnx(path)[0], from_file(str(path))[0]]
    assert opened() == before + 2
    modules.clear()
    gc.collect()
    assert opened() == before


def test_a_full_disk_leaves_the_weights_of_a_message_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    model = _network()
    wanted = _built(from_onnx(model)[0]).get_params()
    monkeypatch.setattr("armillary.base.stored.os.pwrite", full)
    module, _ = from_onnx(model)
    large = [c for c in post_order(module["main"]) if isinstance(c, Constant) and c.nbytes >= LARGE]
    assert len(large) == 3 and all(isinstance(c.held, np.ndarray) for c in large)
    got = _built(module).get_params()
    assert all(np.array_equal(got[n], wanted[n]) for n in wanted)


def test_a_model_file_that_is_written_to_is_refused_by_name(tmp_path: Path) -> None:
    path = _saved(_network(), tmp_path / "net.onnx")
    module, _ = from_file(str(path))
    with path.open("r+b") as stream:
        stream.write(b"\0" * 64)
    os.utime(path, ns=(1, 1))  # whatever the clock of the file system resolves
    with pytest.raises(ModelError, match="was written to while it was being compiled") as caught:
        _built(module).get_params()
    assert str(path) in str(caught.value) and "compile it again" in str(caught.value)


def test_more_files_of_weights_than_may_stay_open_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("armillary.frontend.onnx.tensor._MOST_FILES", 2)
    path, model = tmp_path / "net.onnx", _network()
    onnx.save(copy.deepcopy(model), path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    module, _ = from_file(str(path))
    held = [c.held for c in post_order(module["main"]) if isinstance(c, Constant) and c.nbytes >= LARGE]
    assert sorted(isinstance(value, np.ndarray) for value in held) == [False, False, True]
    got, wanted = _built(module).get_params(), _built(from_onnx(model)[0]).get_params()
    assert all(np.array_equal(got[n], wanted[n]) for n in wanted)


def test_a_model_file_that_was_replaced_or_removed_is_still_there(tmp_path: Path) -> None:
    path = _saved(_network(), tmp_path / "net.onnx")
    wanted = _built(from_onnx(path)[0]).get_params()
    module, _ = from_file(str(path))
    _saved(_network(), tmp_path / "other.onnx").replace(path)
    path.unlink()
    got = _built(module).get_params()
    assert all(np.array_equal(got[n], wanted[n]) for n in wanted)


@pytest.mark.parametrize("save", [_saved, _saved_outside])
def test_armc_compile_needs_no_memory_for_the_weights(
    tmp_path: Path, save: Callable[[onnx.ModelProto, Path], Path]
) -> None:
    small, large = (save(_network(n), tmp_path / f"{n}.onnx") for n in (16, 8192))  # 0.2 and 50 MB
    arguments = [str(small), str(large), str(tmp_path / "out.tar")]
    command = [sys.executable, "-c", PEAK, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 0.4 * 50_000  # kilobytes; read or packed whole it would be 50,000
