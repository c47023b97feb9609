"""Branches and loops around convolutions in textures, against ONNX Runtime."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.contrib import graph_executor

pytestmark = needs_opencl
ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(5)
WEIGHTS = {"w": (RNG.standard_normal((8, 8, 3, 3)) * 0.1).astype(np.float32)}
WEIGHTS["v"] = WEIGHTS["w"][::-1].copy()
X = RNG.standard_normal((1, 8, 8, 8)).astype(np.float32)
NODE = helper.make_node


def conv(source: str, result: str, weight: str = "w") -> NodeProto:
    return NODE("Conv", [source, weight], [result], pads=[1] * 4)


def graph(nodes: list[NodeProto], outputs: str, inputs: list[ValueInfoProto] | None = None) -> GraphProto:
    return helper.make_graph(nodes, outputs, inputs or [], [ValueInfoProto(name=n) for n in outputs.split()])


def run_both(nodes: list[NodeProto], feeds: dict[str, Any], outputs: str, **constants: Any) -> str:
    """Compares with ONNX Runtime; gives the source of the kernels."""
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in arrays.items()
    ]
    made = graph(nodes, outputs, inputs)
    held = {**WEIGHTS, **{k: np.asarray(v) for k, v in constants.items()}}
    made.initializer.extend(numpy_helper.from_array(v, k) for k, v in held.items())
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    wanted = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, arrays)
    module, params = relay.frontend.from_onnx(model)
    library = relay.build(module, target="opencl -device=adreno", params=params)
    source: str = library.get_lib().imported_modules[0].get_source()
    assert "image2d_t" in source
    network = graph_executor.GraphModule(library["default"](armillary.cl(0)))
    network.run(arrays)
    for index, want in enumerate(wanted):
        np.testing.assert_allclose(network.get_output(index).numpy(), want, atol=1e-5)
    return source


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize(("before", "behind"), [(False, False), (True, True)])
def test_a_branch_reads_and_gives_what_convolutions_compute(taken: bool, before: bool, behind: bool) -> None:
    source, result = "h" if before else "x", "p" if behind else "y"
    branches = {
        "then_branch": graph([conv(source, "a", "v"), NODE("Relu", ["a"], ["b"]), conv("b", "t")], "t"),
        "else_branch": graph([NODE("Identity", [source], ["e"])], "e"),
    }
    nodes = [conv("x", "h")] if before else []
    nodes.append(NODE("If", ["c"], [result], **branches))
    run_both(nodes + ([conv("p", "y", "v")] if behind else []), {"x": X, "c": taken}, "y")


@pytest.mark.parametrize("taken", [True, False])
def test_branches_read_textures_that_were_written_before_them(taken: bool) -> None:
    branches = {
        "then_branch": graph([conv("h", "a", "v"), NODE("Relu", ["a"], ["t"])], "t"),
        "else_branch": graph([NODE("Sigmoid", ["h"], ["e"]), conv("e", "f")], "f"),
    }
    nodes = [conv("x", "h"), NODE("If", ["c"], ["y"], **branches)]
    source = run_both(nodes, {"x": X, "c": taken}, "y")
    written = re.findall(r"void (\w+)\((?:[^;{]*)__write_only image2d_t (\w+)\)", source)
    assert "conv2d_NCHWc" in dict(written).values(), "%h is in a texture"
    assert re.search(r"sigmoid\w*\(__read_only image2d_t p0", source)


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_gives_two_sizes_of_images(taken: bool) -> None:
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    branches = {
        "then_branch": graph([conv("h", "a"), NODE("MaxPool", ["a"], ["b"], **window)], "a b"),
        "else_branch": graph([NODE("Relu", ["h"], ["e"]), NODE("AveragePool", ["h"], ["f"], **window)], "e f"),
    }
    nodes = [conv("x", "h"), NODE("If", ["c"], ["p", "q"], **branches), conv("p", "y"), conv("q", "z", "v")]
    run_both(nodes, {"x": X, "c": taken}, "y z")


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_branches_in_branches(outer: bool, inner: bool) -> None:
    innermost = {
        "then_branch": graph([conv("h", "a")], "a"),
        "else_branch": graph([NODE("Identity", ["h"], ["b"])], "b"),
    }
    branches = {
        "then_branch": graph([NODE("If", ["d"], ["t"], **innermost)], "t"),
        "else_branch": graph([conv("h", "e", "v")], "e"),
    }
    nodes = [conv("x", "h"), NODE("If", ["c"], ["p"], **branches), conv("p", "q"), NODE("Add", ["q", "h"], ["y"])]
    run_both(nodes, {"x": X, "c": outer, "d": inner}, "y")


def test_a_loop_over_convolutions() -> None:
    value = helper.make_tensor_value_info
    inputs = [value("i", TensorProto.INT64, []), value("g", TensorProto.BOOL, []), value("s", 1, X.shape)]
    steps = [conv("s", "a"), NODE("Relu", ["a"], ["r"]), conv("r", "n", "v"), NODE("Identity", ["g"], ["go"])]
    body = graph([*steps, NODE("Identity", ["r"], ["o"])], "go n o", inputs)
    nodes = [conv("x", "h"), NODE("Loop", ["m", "c", "h"], ["p", "z"], body=body), conv("p", "y")]
    run_both(nodes, {"x": X}, "y z", m=np.int64(3), c=np.bool_(True))
    run_both(nodes, {"x": X, "c": True}, "y", m=np.int64(3))  # how many rows z has then only the data says
