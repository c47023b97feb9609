"""What editors and type checkers see: signatures and descriptions of operators, a script whose values have types."""

from __future__ import annotations

import importlib
import inspect
from functools import reduce
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import armillary
from armillary import relay
from armillary.relay.lazy_registry import is_lowered, listed_files, load_operators
from armillary.relay.op import OPS

script = importlib.import_module("tests.docs.typed_script")


def test_the_script_that_the_type_checker_reads_runs(tmp_path: Path) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "net.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    x = np.float32([[1, 2, 3], [0, 1, 0]])
    np.testing.assert_allclose(script.result_of(path, x).numpy(), x @ weight)
    assert relay.transform.InferType()(script.network())["main"].ret_type.shape == (1, 4, 8, 8)


def test_every_operator_has_a_signature_and_says_what_it_computes() -> None:
    load_operators()
    bare = []
    for name in sorted(OPS):
        if is_lowered(name) or not listed_files(name):  # tests beside this one define operators, too
            continue
        function = reduce(getattr, name.split("."), relay)
        message = [line for line in (inspect.getdoc(function) or "").split("\n") if line.strip()]
        if not inspect.signature(function).parameters or not message or message[0].startswith("The operator `"):
            bare.append(name)
    assert bare == []


def test_no_operator_is_hidden_by_a_file_of_its_name() -> None:
    load_operators()
    assert [name for name in sorted(OPS) if "." not in name and find_spec(f"armillary.relay.{name}")] == []


@pytest.mark.parametrize("value", ["module", "library", "executor", "session"])
def test_what_a_script_prints_by_mistake_says_what_it_is(value: str) -> None:
    x = relay.var("x", shape=(2, 3))
    module = armillary.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
    library = relay.build(module, "llvm")
    made = {
        "module": lambda: module,
        "library": lambda: library,
        "executor": lambda: library["default"](armillary.cpu()),
        "session": lambda: relay.create_executor("graph", module, armillary.cpu(), "llvm"),
    }[value]()
    assert " object at 0x" not in repr(made) and len(repr(made)) < 200
