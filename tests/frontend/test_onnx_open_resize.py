"""Resize over open sizes: compiled once, every size equal to ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.errors import UnsupportedError

SIZES = [(1, 5, 7, 9, 3), (2, 4, 4, 8, 8), (1, 6, 6, 1, 13)]  # batch; height and width of the image and of the result


def _model(scales: tuple[float, ...], **attributes: object) -> onnx.ModelProto:
    """A resize by scales or, without any, to the height and width of a second input."""
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", 2, "h", "w"])
    other = helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["n", 2, "h2", "w2"])
    result = helper.make_empty_tensor_value_info("y")
    held = [helper.make_tensor("scales", onnx.TensorProto.FLOAT, [4], scales)] if scales else []
    nodes = (
        []
        if scales
        else [
            helper.make_node("Shape", ["x"], ["first"], start=0, end=2),
            helper.make_node("Shape", ["z"], ["last"], start=2),
            helper.make_node("Concat", ["first", "last"], ["sizes"], axis=0),
        ]
    )
    nodes.append(
        helper.make_node(
            "Resize", ["x", "", "scales" if scales else "", *(() if scales else ("sizes",))], ["y"], **attributes
        )
    )
    graph = helper.make_graph(nodes, "net", [image] if scales else [image, other], [result], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize(
    ("scales", "attributes"),
    [
        ((), {"mode": "linear"}),
        ((), {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
        ((), {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
        ((), {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}),
        ((), {"mode": "cubic"}),
        ((), {"mode": "nearest"}),
        ((), {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}),
        ((), {"mode": "nearest", "nearest_mode": "ceil", "coordinate_transformation_mode": "align_corners"}),
        ((1, 1, 2, 0.5), {"mode": "linear"}),
        ((1, 1, 2, 2), {"mode": "cubic", "exclude_outside": 1}),
        ((1, 1, 1.5, 3), {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}),
    ],
)
def test_one_compile_resizes_images_of_every_size(scales: tuple[float, ...], attributes: dict[str, object]) -> None:
    model = _model(scales, **attributes)
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    module, params = relay.frontend.from_onnx(model)
    network = graph_executor.GraphModule(relay.build(module, target="llvm", params=params)["default"](armillary.cpu()))
    rng = np.random.default_rng(5)
    for batch, height, width, *wanted in SIZES:
        feeds = {"x": rng.random((batch, 2, height, width), np.float32)}
        if not scales:
            feeds["z"] = rng.random((batch, 2, *wanted), np.float32)
        network.run(**feeds)
        np.testing.assert_allclose(network.get_output(0).numpy(), reference.run(None, feeds)[0], rtol=1e-5, atol=1e-5)


def test_what_has_no_form_over_sizes_is_refused_with_what_to_do() -> None:
    module, params = relay.frontend.from_onnx(_model((), mode="linear", antialias=1))
    with pytest.raises(UnsupportedError, match="antialias needs numbers"):
        relay.build(module, target="llvm", params=params)
    with pytest.raises(UnsupportedError, match="no ratio of small numbers"):
        relay.frontend.from_onnx(_model((1, 1, 2.7182818, 1), mode="linear"))


def test_sizes_that_exporters_write_for_strided_convolutions_are_floors() -> None:
    """`(h - 1) / 2 + 1`, an integer division that ONNX cuts towards zero: a picture has rows."""
    one, two = (helper.make_tensor(name, onnx.TensorProto.INT64, [], [n]) for name, n in (("one", 1), ("two", 2)))
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", 2, "h", "w"])
    nodes = [
        helper.make_node("Shape", ["x"], ["first"], start=0, end=2),
        helper.make_node("Shape", ["x"], ["sides"], start=2),
        helper.make_node("Sub", ["sides", "one"], ["less"]),
        helper.make_node("Div", ["less", "two"], ["half"]),
        helper.make_node("Add", ["half", "one"], ["last"]),
        helper.make_node("Concat", ["first", "last"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
    ]
    graph = helper.make_graph(nodes, "net", [image], [helper.make_empty_tensor_value_info("y")], [one, two])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    module, params = relay.frontend.from_onnx(model)
    network = graph_executor.GraphModule(relay.build(module, target="llvm", params=params)["default"](armillary.cpu()))
    for height, width in ((7, 8), (1, 5)):
        x = np.random.default_rng(height).random((2, 2, height, width), np.float32)
        np.testing.assert_allclose(network(x=x)[0], reference.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
