"""A plain file is read without the onnx package, and says what that package reads in it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary.frontend import from_onnx
from armillary.frontend.onnx.plain import Message, plain_model
from armillary.frontend.onnx.proto import AttributeType, ElementType
from armillary.ir import IRModule


def network(**attributes: Any) -> onnx.ModelProto:
    """conv, relu and a constant, with a symbolic batch that is bound when importing."""
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1], auto_pad="NOTSET", **attributes),
        helper.make_node("LeakyRelu", ["c"], ["r"], alpha=-0.25),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.array(-3, np.int64))),
        helper.make_node("Cast", ["k"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["r", "f"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="test")


def same(ours: Any, theirs: Any, where: str = "model") -> None:
    """Compare every field that our message has."""
    if not isinstance(ours, Message):
        assert ours == theirs, where
        return
    for name, _, is_repeated in type(ours)._fields.values():
        got, wanted = getattr(ours, name), getattr(theirs, name)
        if is_repeated:
            assert len(got) == len(wanted), f"{where}.{name}"
            for index, pair in enumerate(zip(got, wanted, strict=True)):
                same(*pair, f"{where}.{name}[{index}]")
        else:
            assert ours.HasField(name) == theirs.HasField(name), f"{where}.{name}"
            same(got, wanted, f"{where}.{name}")


def test_a_plain_model_reads_as_the_onnx_package_reads_it() -> None:
    proto = network(dilations=[1, 1])
    model = plain_model(proto.SerializeToString())
    assert model is not None
    same(model, proto)


@pytest.mark.parametrize(
    "file", sorted((Path(onnx.__file__).parent / "backend/test/data").rglob("*.onnx"))[::9], ids=lambda p: p.parent.name
)
def test_files_of_the_standard_read_alike(file: Path) -> None:
    data = file.read_bytes()
    model, proto = plain_model(data), onnx.ModelProto.FromString(data)
    if model is not None:
        same(model, proto)
        return
    values, attributes = (*proto.graph.input, *proto.graph.output), [a for n in proto.graph.node for a in n.attribute]
    more = [a.name for a in attributes if any(a.HasField(f) for f in ("g", "t", "tp", "sparse_tensor"))]
    more += [v.name for v in values if v.type.WhichOneof("value") != "tensor_type"]
    assert more or proto.functions, "nothing in the model is out of the ordinary"


def test_a_damaged_model_is_left_to_the_onnx_package() -> None:
    data = network().SerializeToString()
    rng = random.Random(0)
    for _ in range(400):
        damaged = bytearray(data[: rng.choice((len(data), rng.randrange(len(data))))])
        for _ in range(rng.randrange(3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        model = plain_model(bytes(damaged))
        if model is not None:  # then it is no less a model than the package takes it for
            same(model, onnx.ModelProto.FromString(bytes(damaged)))


def test_models_with_more_in_them_are_left_to_the_onnx_package() -> None:
    with_function, with_sparse = network(), network()
    with_function.functions.add(name="f", domain="d")
    with_sparse.graph.sparse_initializer.add()
    typed = network()
    typed.graph.initializer[0].CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, (8, 3, 3, 3), [0.5] * 216))
    assert [plain_model(m.SerializeToString()) for m in (with_function, with_sparse, typed)] == [None] * 3


def test_a_plain_file_is_imported_without_the_onnx_package(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(network(), path)
    code = (
        "import sys\nfrom armillary import relay\n"
        f"module, _ = relay.frontend.from_onnx({str(path)!r}, shape={{'x': (2, 3, 9, 9)}})\n"
        "print(sorted({'onnx', 'google.protobuf'} & set(sys.modules)))\nprint(module)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, _, text = done.stdout.partition("\n")
    module: IRModule = from_onnx(network(), shape={"x": (2, 3, 9, 9)})[0]
    assert loaded == "[]" and text.strip() == str(module).strip()


def test_the_numbers_of_types_are_the_standard_s() -> None:
    elements = {name: code for name, code in TensorProto.DataType.items() if code}
    attributes = {name: code for name, code in onnx.AttributeProto.AttributeType.items() if code}
    assert {e.name: int(e) for e in ElementType} == elements
    assert {a.name: int(a) for a in AttributeType} == attributes
