"""One compile for every size is timed beside a compile for each size, and beside ONNX Runtime."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from open_sizes import opened, parsed

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "open_sizes.py"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution of any picture, a rectifier and a mean."""
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["input", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["output"]),
    ]
    x = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    y = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 8, 1, 1])
    graph = helper.make_graph(nodes, "net", [x], [y], [weight])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    return tmp_path / "net.onnx"


def test_a_table_has_a_row_for_each_size_and_the_medians(model: Path) -> None:
    command = [sys.executable, SCRIPT, model, "--sizes", "1,16,16; batch=2,height=9,width=20", "--rounds", "3"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout
    rows = re.findall(r"batch=\d,height=\d+,width=\d+ +([\d.]+) +([\d.]+) +([\d.]+) +(\S+)$", printed, re.MULTILINE)
    assert len(rows) == 2 and all(float(difference) < 1e-5 for *_, difference in rows), printed
    assert re.search(r"^ +median +[\d.]+ +[\d.]+$", printed, re.MULTILINE), printed


def test_networks_are_opened_and_sizes_are_read() -> None:
    dims = opened("resnet18").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["batch", 3, "height", "width"]
    assert parsed("batch=1,seq=8;batch=4, seq=37") == [{"batch": 1, "seq": 8}, {"batch": 4, "seq": 37}]
    with pytest.raises(SystemExit, match="wanted"):
        parsed("batch=one")
