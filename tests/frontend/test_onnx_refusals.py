"""Damaged and hostile ONNX models: each is refused with a ModelError that says what and where."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from armillary.cli.main import main
from armillary.errors import ArmillaryError, ModelError, TypeMismatch, UnsupportedError
from armillary.frontend import from_caffe, from_onnx, from_paddle
from armillary.relay.evaluate import evaluate

F32 = TensorProto.FLOAT
node = helper.make_node


def value(name: str, shape: Any, kind: int = F32) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[Any], weights: list[Any] | None = None, inputs: list[Any] | None = None) -> ModelProto:
    graph = helper.make_graph(nodes, "net", inputs or [value("x", [2])], [value("y", None)], weights or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def refusal(made: Any, kind: type[ArmillaryError] = ModelError, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        from_onnx(made, **options)
    return str(caught.value)


@pytest.mark.parametrize("data", [b"", b"not a model at all", b"\x08\x07" * 40])
def test_bytes_that_are_no_model(data: bytes) -> None:
    assert "<bytes>" in refusal(data)


def test_a_file_cut_short_names_the_file(tmp_path: Path) -> None:
    data = model([node("Relu", ["x"], ["y"])]).SerializeToString()
    (tmp_path / "cut.onnx").write_bytes(data[: len(data) // 2])
    assert "cut.onnx" in refusal(tmp_path / "cut.onnx")


def test_a_missing_file() -> None:
    assert "cannot read the model" in refusal("no/such/file.onnx")


def test_something_that_is_no_model() -> None:
    assert "got int" in refusal(42)


def test_a_cycle_names_its_nodes() -> None:
    text = refusal(
        model(
            [
                node("Add", ["x", "b"], ["a"], name="one"),
                node("Add", ["a", "x"], ["b"], name="two"),
                node("Relu", ["b"], ["y"]),
            ]
        )
    )
    assert "cycle" in text and "'one'" in text and "'two'" in text


def test_a_missing_value_names_reader_and_name() -> None:
    text = refusal(model([node("Add", ["x", "ghost"], ["y"], name="sum")]))
    assert "'ghost'" in text and "sum" in text


def test_a_missing_output() -> None:
    assert "'y' is produced by no node" in refusal(model([node("Relu", ["x"], ["z"])]))


def test_a_name_produced_twice() -> None:
    assert "'y' is produced twice" in refusal(model([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]))


def test_an_initialiser_defined_twice() -> None:
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    assert "'w' is defined twice" in refusal(model([node("Add", ["x", "w"], ["y"])], [weight, weight]))


def test_wrong_number_of_raw_bytes() -> None:
    weight = TensorProto(name="w", data_type=F32, dims=[3], raw_data=b"\0" * 8)
    text = refusal(model([node("Add", ["x", "w"], ["y"])], [weight]))
    assert "'w'" in text and "12 bytes, got 8" in text


def test_wrong_number_of_typed_values() -> None:
    weight = TensorProto(name="w", data_type=F32, dims=[3], float_data=[1.0])
    assert "wants 3 values in float_data, got 1" in refusal(model([node("Add", ["x", "w"], ["y"])], [weight]))


def test_negative_and_absurd_dimensions() -> None:
    weight = TensorProto(name="w", data_type=F32, dims=[-3], raw_data=b"")
    assert "negative dimension" in refusal(model([node("Add", ["x", "w"], ["y"])], [weight]))
    weight = TensorProto(name="w", data_type=F32, dims=[1 << 40, 1 << 40], raw_data=b"")
    assert "absurdly large" in refusal(model([node("Add", ["x", "w"], ["y"])], [weight]))
    assert "negative" in refusal(model([node("Relu", ["x"], ["y"])], inputs=[value("x", [-2])]))


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "link.bin", ""])
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\0" * 8)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    weight = TensorProto(name="w", data_type=F32, dims=[2], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    (folder / "m.onnx").write_bytes(model([node("Add", ["x", "w"], ["y"])], [weight]).SerializeToString())
    assert "outside the model's folder" in refusal(folder / "m.onnx")


def test_external_data_of_a_cache_that_links_model_and_data_into_one_folder(tmp_path: Path) -> None:
    store, folder = tmp_path / "blobs", tmp_path / "snapshot"
    store.mkdir()
    folder.mkdir()
    (store / "aaaa").write_bytes(np.array([3, 5], np.float32).tobytes())
    weight = TensorProto(name="w", data_type=F32, dims=[2], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="m.onnx_data")
    made = model([node("Add", ["x", "w"], ["y"])], [weight], [value("x", [2])])
    (store / "bbbb").write_bytes(made.SerializeToString())
    (folder / "m.onnx").symlink_to("../blobs/bbbb")
    (folder / "m.onnx_data").symlink_to("../blobs/aaaa")
    module, _ = from_onnx(folder / "m.onnx")
    assert list(evaluate(module, [np.ones(2, np.float32)])) == [4, 6]


def test_external_data_shorter_than_declared(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 4)
    weight = TensorProto(name="w", data_type=F32, dims=[2], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="w.bin")
    made = model([node("Add", ["x", "w"], ["y"])], [weight])
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    assert "8 bytes, got 4" in refusal(tmp_path / "m.onnx")
    assert "folder is not known" in refusal(made)


def test_strings_and_complex_numbers_are_unsupported() -> None:
    text = refusal(model([node("Relu", ["x"], ["y"])], inputs=[value("x", [2], TensorProto.STRING)]), UnsupportedError)
    assert "string" in text
    text = refusal(
        model([node("Relu", ["x"], ["y"])], inputs=[value("x", [2], TensorProto.COMPLEX64)]), UnsupportedError
    )
    assert "complex64" in text


def test_a_sequence_input_is_unsupported() -> None:
    given = helper.make_tensor_sequence_value_info("x", F32, None)
    assert "sequence" in refusal(model([node("Identity", ["x"], ["y"])], inputs=[given]), UnsupportedError)


def test_too_many_inputs_of_a_node() -> None:
    text = refusal(model([node("Relu", ["x", "x"], ["y"], name="r")]))
    assert "takes 1 to 1 inputs, got 2" in text and "r" in text


def test_an_attribute_of_the_wrong_type() -> None:
    assert "attribute 'axis' is STRING" in refusal(model([node("Softmax", ["x"], ["y"], axis="last")]))


@pytest.mark.parametrize(
    ("op", "inputs", "name", "others"),
    [
        ("Cast", 1, "round_mode", {"to": F32}),
        ("CastLike", 2, "round_mode", {}),
        ("NegativeLogLikelihoodLoss", 2, "reduction", {}),
        ("SoftmaxCrossEntropyLoss", 2, "reduction", {}),
        ("RoiAlign", 3, "coordinate_transformation_mode", {}),
        ("Gelu", 1, "approximate", {}),
        ("BitShift", 2, "direction", {}),
    ],
)
def test_a_word_that_the_standard_does_not_know(op: str, inputs: int, name: str, others: dict[str, int]) -> None:
    x = value("x", [2], TensorProto.UINT8 if op == "BitShift" else F32)
    made = model([node(op, ["x"] * inputs, ["y"], **{name: "likely"}, **others)], inputs=[x])
    made.opset_import[0].version = 24
    assert "likely" in refusal(made, ArmillaryError)


def test_a_missing_required_attribute() -> None:
    assert "lacks the required attribute 'to'" in refusal(model([node("Cast", ["x"], ["y"])]))


def test_a_function_that_calls_itself() -> None:
    body = helper.make_function(
        "mine", "Loop1", ["a"], ["b"], [node("Loop1", ["a"], ["b"], domain="mine")], [helper.make_opsetid("mine", 1)]
    )
    made = model([node("Loop1", ["x"], ["y"], domain="mine")])
    made.opset_import.add(domain="mine", version=1)
    made.functions.append(body)
    assert "calls itself" in refusal(made)


def test_shape_for_an_unknown_input_lists_the_inputs() -> None:
    assert "its inputs are: x" in refusal(model([node("Relu", ["x"], ["y"])]), shape={"data": (1, 2)})


def test_shape_of_the_wrong_rank() -> None:
    assert "1 dimensions" in refusal(model([node("Relu", ["x"], ["y"])]), TypeMismatch, shape={"x": (1, 2)})


def test_shapes_that_contradict_each_other() -> None:
    inputs = [value("x", ["N"]), value("z", ["N"])]
    made = model([node("Add", ["x", "z"], ["y"])], inputs=inputs)
    assert "both 2 and 3" in refusal(made, TypeMismatch, shape={"x": (2,), "z": (3,)})


def test_an_operator_set_of_the_future() -> None:
    made = model([node("Relu", ["x"], ["y"])])
    made.opset_import[0].version = 9999
    assert "operator set 9999" in refusal(made, UnsupportedError)


def test_ill_typed_node_is_named() -> None:
    inputs = [value("x", [2]), value("z", [3])]
    text = refusal(model([node("Add", ["x", "z"], ["y"], name="bad/add")], inputs=inputs), TypeMismatch)
    assert "bad/add" in text


@pytest.mark.parametrize("importer", [from_caffe, from_paddle])
def test_other_importers_say_how_to_go_through_onnx(importer: Any) -> None:
    with pytest.raises(UnsupportedError, match="export to ONNX"):
        importer(object(), {"x": (1,)})


def test_dropout_in_training_mode_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = next(c for c in collect_testcases(None) if c.name == "test_training_dropout_default")
    feed = dict(zip([i.name for i in case.model.graph.input], case.data_sets[0][0], strict=True))
    static = {k: np.asarray(v) for k, v in feed.items() if k in ("r", "t")}
    with pytest.raises(UnsupportedError, match="training mode"):
        from_onnx(case.model, static_inputs=static)


@pytest.mark.parametrize(("name", "way"), [("a.caffemodel", "caffe2onnx"), ("c.pdmodel", "paddle2onnx")])
def test_files_of_other_frameworks_are_named(name: str, way: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(UnsupportedError, match=r"importing .* models directly is not supported") as error:
        from_onnx(str(tmp_path / name))
    assert way in str(error.value)


def test_a_file_of_another_importer_names_it(tmp_path: Path) -> None:
    for file, way in (("b.tflite", r"relay\.frontend\.from_tflite reads it"), ("a.pt", r"torch\.export\.load")):
        (tmp_path / file).write_bytes(b"PK")
        with pytest.raises(UnsupportedError, match=way):
            from_onnx(str(tmp_path / file))


@pytest.mark.parametrize("suffix", [".safetensors", ".gguf", ".ckpt", ".npz", ".params"])
def test_a_file_of_weights_is_no_network(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"net{suffix}"
    path.write_bytes(b"PK")
    with pytest.raises(UnsupportedError, match="a file of weights") as error:
        from_onnx(str(path))
    assert "holds no network" in str(error.value) and str(path) in str(error.value)
    assert main(["compile", str(path), "-o", str(tmp_path / "net.tar")]) == 4


@pytest.mark.parametrize(("suffix", "way"), [(".pkl", "skl2onnx"), (".joblib", "skl2onnx"), (".engine", "ONNX file")])
def test_models_that_other_tools_keep_are_named(suffix: str, way: str, tmp_path: Path) -> None:
    (tmp_path / f"m{suffix}").write_bytes(b"\x80")
    with pytest.raises(UnsupportedError, match="models directly is not supported") as error:
        from_onnx(str(tmp_path / f"m{suffix}"))
    assert way in str(error.value)


def function_of(domain: str, name: str, calls: list[Any]) -> Any:
    opsets = [helper.make_opsetid(d, 18 if not d else 1) for d in ("", "one", "two")]
    return helper.make_function(domain, name, ["a"], ["b"], calls, opsets)


def model_of_functions(functions: list[Any]) -> ModelProto:
    made = model([node(functions[0].name, ["x"], ["y"], domain="one")])
    for domain in ("one", "two"):
        made.opset_import.add(domain=domain, version=1)
    made.functions.extend(functions)
    return made


def test_functions_of_one_name_in_two_domains_may_call_each_other() -> None:
    outer = function_of("one", "f", [node("f", ["a"], ["b"], domain="two")])
    module, _ = from_onnx(model_of_functions([outer, function_of("two", "f", [node("Neg", ["a"], ["b"])])]))
    assert list(np.asarray(evaluate(module["main"], {"x": np.float32([1, 2])}))) == [-1, -2]


def test_functions_that_nest_too_deeply_are_said_to() -> None:
    calls = [function_of("one", f"f{k}", [node(f"f{k + 1}", ["a"], ["b"], domain="one")]) for k in range(40)]
    made = model_of_functions([*calls, function_of("one", "f40", [node("Neg", ["a"], ["b"])])])
    assert "nested more than 32 deep: f0 -> f1" in refusal(made, UnsupportedError)


@pytest.mark.parametrize("keepdims", [-1, 2, 4096, -(2**63)])
def test_a_flag_that_is_neither_0_nor_1(keepdims: int) -> None:
    made = model([node("ReduceMax", ["x"], ["y"], keepdims=keepdims, name="top")])
    text = refusal(made, TypeMismatch)
    assert f"attribute 'keepdims' is {keepdims}, wanted 0 or 1" in text and "'top'" in text


def test_a_model_that_imports_another_domain_alone() -> None:
    made = model([node("Hardmax", ["x"], ["y"])])
    made.opset_import[0].domain = "com.microsoft"
    assert "does not say which operator set it uses" in refusal(made.SerializeToString())
    assert from_onnx(made.SerializeToString(), opset=13)


@pytest.mark.parametrize("where", ["input", "node", "attribute", "inside"])
def test_a_name_that_is_no_text(where: str) -> None:
    inner = helper.make_graph([node("Relu", ["x"], ["QQQQ"])], "inner", [], [value("QQQQ", None)])
    nodes = {
        "input": [node("Add", ["x", "QQQQ"], ["y"])],
        "node": [node("Relu", ["x"], ["y"], name="QQQQ")],
        "attribute": [node("Elu", ["x"], ["y"], QQQQ=1.0)],
        "inside": [node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
    }[where]
    data = model(nodes, inputs=[value("x", [2]), value("c", [], TensorProto.BOOL), value("QQQQ", [2])])
    text = refusal(data.SerializeToString().replace(b"QQQQ", b"Q\xb6QQ"))
    assert r"Q\xb6QQ" in text and "not valid UTF-8" in text


def test_an_operator_set_of_a_contributed_operator() -> None:
    made = model([node("QLinearSoftmax", ["x", "s", "z", "s", "z"], ["y"], domain="com.microsoft", axis=0, opset=-1)])
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    made.graph.initializer.extend(
        [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.uint8(3), "z")]
    )
    made.opset_import.add(domain="com.microsoft", version=1)
    assert "no Softmax of operator set -1" in refusal(made, UnsupportedError)
