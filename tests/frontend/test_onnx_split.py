"""Files read in two parts give the module that whole ones give, from memory that is held once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary.base.node import post_order, structural_equal
from armillary.errors import ModelError
from armillary.frontend import from_onnx
from armillary.frontend.onnx.split import LARGE, split_model
from armillary.relay.expr import Constant

ROOT = Path(__file__).resolve().parents[2]
RNG = np.random.default_rng(5)
PEAK = """
import sys
import armillary.frontend.onnx.walk
from armillary.frontend import from_onnx
def peak():
    with open("/proc/self/status") as lines:
        return {l.split(":")[0]: int(l.split()[1]) for l in lines if l.startswith("Vm")}["VmHWM"]
before = peak()
module = from_onnx(sys.argv[1])
print(peak() - before)
"""


def _model(rows: int = 96) -> onnx.ModelProto:
    """Large and small weights, of several types, raw and typed."""
    weights = [
        numpy_helper.from_array(RNG.standard_normal((64, rows)).astype(np.float32), "a"),
        numpy_helper.from_array(RNG.standard_normal(rows).astype(np.float32), "small"),
        helper.make_tensor("typed", TensorProto.FLOAT, (rows, 64), RNG.standard_normal(rows * 64).astype(np.float32)),
        numpy_helper.from_array(RNG.standard_normal((64, 2 * rows)).astype(np.float16), "half"),
        numpy_helper.from_array(RNG.integers(-9, 9, (64, 4 * rows)).astype(np.int8), "bytes"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["y"]),
        helper.make_node("Add", ["y", "small"], ["z"]),
        helper.make_node("MatMul", ["z", "typed"], ["t"]),
        helper.make_node("Cast", ["half"], ["h"], to=1),
        helper.make_node("MatMul", ["t", "h"], ["u"]),
        helper.make_node("Cast", ["bytes"], ["b"], to=1),
        helper.make_node("MatMul", ["t", "b"], ["v"]),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (2, 64)), ("u", None))]
    more = helper.make_tensor_value_info("v", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "split", values[:1], [values[1], more], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_the_module_is_that_of_the_whole_file(tmp_path: Path) -> None:
    model = _model()
    path = _saved(model, tmp_path)
    parts = split_model(path)
    assert parts is not None
    assert sorted(parts.large) == [0, 3, 4]  # by number: small and typed ones stay in the message
    assert len(parts.proto) < path.stat().st_size - 3 * LARGE
    module, _ = from_onnx(path)
    assert structural_equal(module["main"], from_onnx(model)[0]["main"])


def _dense(weight: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> onnx.ModelProto:
    """One product with a weight that is used as it is."""
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "a"], ["y"], transB=1)],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, weight.shape[1]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "a")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_large_weights_can_be_used_where_they_are_and_not_be_written_to(tmp_path: Path) -> None:
    module, _ = from_onnx(_saved(_dense(np.ones((128, 64), np.float32)), tmp_path))
    constants = [n.data for n in post_order(module["main"]) if isinstance(n, Constant) and n.data.shape == (128, 64)]
    assert len(constants) == 1
    assert constants[0].ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        constants[0][0, 0] = 1


def test_what_export_of_a_renamed_model_writes_is_whole(tmp_path: Path) -> None:
    path, renamed = _saved(_model(), tmp_path), tmp_path / "renamed.onnx"
    module, _ = from_onnx(path, export_node_renamed_model_path=renamed)
    assert structural_equal(from_onnx(renamed)[0]["main"], module["main"])


def test_a_model_in_two_pieces_is_left_to_the_parser(tmp_path: Path) -> None:
    whole = _model()
    last = onnx.ModelProto()
    last.graph.initializer.append(whole.graph.initializer[-1])
    first = onnx.ModelProto()
    first.CopyFrom(whole)
    del first.graph.initializer[-1]
    path = tmp_path / "pieces.onnx"
    path.write_bytes(first.SerializeToString() + last.SerializeToString())  # messages are merged when parsed
    assert split_model(path) is None
    assert structural_equal(from_onnx(path)[0]["main"], from_onnx(whole)[0]["main"])


@pytest.mark.parametrize("cut", [1, 3000, 40_000])
def test_a_file_cut_short_is_not_readable(cut: int, tmp_path: Path) -> None:
    path = _saved(_model(), tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    assert split_model(path) is None
    with pytest.raises(ModelError, match="not a readable ONNX file"):
        from_onnx(path)


def test_too_few_bytes_of_a_large_weight_are_named(tmp_path: Path) -> None:
    model = _model()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    with pytest.raises(ModelError, match=r"tensor 'a': 6144 values of float32 take 24576 bytes, got 24572"):
        from_onnx(_saved(model, tmp_path))


@pytest.mark.parametrize("data", [b"", b"\x00" * 20_000, b"\xff" * 20_000, b"\x3b" * 20_000, b"\x3a\x05" * 10_000])
def test_other_files_are_not_split(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(data)
    assert split_model(path) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_importing_holds_the_weights_once(tmp_path: Path) -> None:
    path = _saved(_dense(np.ones((100_000, 64), np.float32)), tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    weights = 64 * 100_000 * 4 // 1024
    assert int(done.stdout) < 1.4 * weights, f"{done.stdout.strip()} kB for {weights} kB of weights"
