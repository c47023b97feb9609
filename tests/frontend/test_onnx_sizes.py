"""Files with open axes: compiled once, run at every size, equal to ONNX Runtime."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import armillary
from armillary import relay
from armillary.base.extent import size
from armillary.contrib import graph_executor
from armillary.errors import ArmillaryError

RNG = np.random.default_rng(3)
WIDTH, HEADS = 32, 4


def _weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.2).astype("float32")


class _File:
    """Nodes and initialisers of a model, in the order they are added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.held: dict[str, np.ndarray] = {}

    def add(self, op: str, inputs: str, output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs.split(), output.split(), **attributes))
        return output

    def hold(self, **arrays: Any) -> None:
        self.held |= {name: np.asarray(array) for name, array in arrays.items()}

    def model(self, *inputs: Any, outputs: str = "y") -> onnx.ModelProto:
        held = [numpy_helper.from_array(array, name) for name, array in self.held.items()]
        results = [helper.make_empty_tensor_value_info(name) for name in outputs.split()]
        graph = helper.make_graph(self.nodes, "net", list(inputs), results, held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _transformer() -> onnx.ModelProto:
    """An attention block as exporters write it: heads by Shape, Gather, Concat and Reshape; positions by Range."""
    file = _File()
    file.hold(emb=_weights(100, WIDTH), pos=_weights(64, WIDTH), scale=np.float32((WIDTH // HEADS) ** 0.5))
    file.hold(zero=np.int64(0), one=np.int64(1), first=[0], split=[HEADS, WIDTH // HEADS], width=[WIDTH])
    file.hold(gamma=np.ones(WIDTH, "float32"), beta=_weights(WIDTH), w1=_weights(WIDTH, 64), w2=_weights(64, WIDTH))
    file.hold(**{f"w{k}": _weights(WIDTH, WIDTH) for k in "qkvo"})
    file.add("Shape", "ids", "shape")
    file.add("Gather", "shape zero", "b")
    file.add("Gather", "shape one", "s")
    file.add("Unsqueeze", "b first", "b1")
    file.add("Unsqueeze", "s first", "s1")
    file.add("Range", "zero s one", "places")
    file.add("Gather", "pos places", "positions")
    file.add("Gather", "emb ids", "words")
    file.add("Add", "words positions", "x")
    file.add("Concat", "b1 s1 split", "heads", axis=0)
    file.add("Concat", "b1 s1 width", "joined", axis=0)
    for k in "qkv":
        file.add("MatMul", f"x w{k}", f"{k}0")
        file.add("Reshape", f"{k}0 heads", f"{k}1")
        file.add("Transpose", f"{k}1", f"{k}2", perm=[0, 2, 3, 1] if k == "k" else [0, 2, 1, 3])
    file.add("MatMul", "q2 k2", "a0")
    file.add("Div", "a0 scale", "a1")
    file.add("Softmax", "a1", "a2", axis=-1)
    file.add("MatMul", "a2 v2", "a3")
    file.add("Transpose", "a3", "a4", perm=[0, 2, 1, 3])
    file.add("Reshape", "a4 joined", "a5")
    file.add("MatMul", "a5 wo", "a6")
    file.add("Add", "a6 x", "r0")
    file.add("LayerNormalization", "r0 gamma beta", "r1", axis=-1)
    file.add("MatMul", "r1 w1", "f0")
    file.add("Erf", "f0", "f1")
    file.add("Mul", "f0 f1", "f2")
    file.add("MatMul", "f2 w2", "f3")
    file.add("Add", "f3 r1", "y")
    return file.model(helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch", "seq"]))


def _encoder() -> onnx.ModelProto:
    """Convolutions, pooling and a skip connection over an image of open height and width."""
    file = _File()
    file.hold(w0=_weights(8, 3, 3, 3), w1=_weights(8, 8, 3, 3), w2=_weights(4, 16, 1, 1), b2=_weights(4))
    file.add("Conv", "x w0", "c0", pads=[1, 1, 1, 1], strides=[2, 2])
    file.add("Relu", "c0", "r0")
    file.add("Conv", "r0 w1", "c1", pads=[1, 1, 1, 1], group=1)
    file.add("Concat", "c1 r0", "j", axis=1)
    file.add("DepthToSpace", "j", "d", blocksize=2)
    file.add("MaxPool", "j", "p", kernel_shape=[2, 2], strides=[2, 2])
    file.add("Conv", "p w2 b2", "c2")
    file.add("GlobalAveragePool", "c2", "g")
    file.add("Flatten", "g", "y")
    axes = ["batch", 3, "height", "width"]
    return file.model(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, axes), outputs="y c2 d")


def _sizes_as_data() -> onnx.ModelProto:
    """A size that is data: the mean of a sum over an open axis, a slice up to half of it, a constant of its length."""
    file = _File()
    file.hold(zero=[0], one=[1], two=[2], half=[0])
    file.add("Shape", "x", "shape")
    file.add("Gather", "shape one", "n")
    file.add("Cast", "n", "nf", to=onnx.TensorProto.FLOAT)
    file.add("ReduceSum", "x one", "total", keepdims=1)
    file.add("Div", "total nf", "mean")
    file.add("Div", "n two", "middle")
    file.add("Slice", "x zero middle one", "front")
    file.add("ConstantOfShape", "n", "zeros")
    file.add("Add", "x zeros", "same")
    return file.model(
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", "n"]), outputs="mean front same"
    )


def _random(kind: Any, shape: tuple[int, ...]) -> np.ndarray:
    if kind == "int64":
        return RNG.integers(0, 100, shape)
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize(
    ("model", "name", "kind", "shapes"),
    [
        (_transformer, "ids", "int64", [(1, 5), (2, 16), (8, 64), (3, 1), (1, 33), (2, 16)]),
        (_encoder, "x", "float32", [(1, 3, 24, 32), (2, 3, 17, 9), (1, 3, 8, 8), (3, 3, 33, 40)]),
        (_sizes_as_data, "x", "float32", [(3, 8), (1, 7), (5, 100), (2, 2)]),
    ],
)
def test_one_compile_runs_every_size(model: Any, name: str, kind: str, shapes: list[tuple[int, ...]]) -> None:
    file = model()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    reference = onnxruntime.InferenceSession(file.SerializeToString(), options)
    module, params = relay.frontend.from_onnx(file)
    network = graph_executor.GraphModule(relay.build(module, "llvm", params=params)["default"](armillary.cpu()))
    for shape in shapes:
        given = _random(kind, shape)
        network.run(**{name: given})
        for index, wanted in enumerate(reference.run(None, {name: given})):
            result = network.get_output(index).numpy()
            assert result.shape == wanted.shape, (shape, index)
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def test_shape_arithmetic_of_an_exported_network_leaves_no_operator_of_shapes() -> None:
    module, _ = relay.frontend.from_onnx(_transformer())
    text = module.astext(show_meta_data=False)
    assert "shape_of" not in text and " sizes(" not in text
    assert "newshape=[batch{0, 2147483647, 1, 1}, seq{0, 2147483647, 1, 128}, 4, 8]" in text


def _checked(model: onnx.ModelProto, feeds: list[dict[str, Any]]) -> graph_executor.GraphModule:
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    module, params = relay.frontend.from_onnx(model)
    net = graph_executor.GraphModule(relay.build(module, "llvm", params=params)["default"](armillary.cpu()))
    for feed in feeds:
        net.run(**feed)
        for k, wanted in enumerate(reference.run(None, feed)):
            np.testing.assert_allclose(net.get_output(k).numpy(), wanted, rtol=1e-4, atol=1e-4)
    return net


def test_positions_that_are_fewer_than_a_typical_length_are_taken() -> None:
    file = _File()
    file.hold(table=_weights(1, 77, 8), zero=[0], one=np.int64(1), axis=[1])
    file.add("Shape", "x", "shape")
    file.add("Gather", "shape one", "s")
    file.add("Unsqueeze", "s zero", "end")
    file.add("Slice", "table zero end axis", "positions")
    file.add("Add", "x positions", "y")
    model = file.model(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "seq", 8]))
    _checked(model, [{"x": _weights(2, n, 8)} for n in (3, 77)])


def test_a_signal_is_longer_than_its_windows_before_anything_is_set() -> None:
    file = _File()
    file.hold(w=_weights(4, 1, 10), v=_weights(4, 4, 8))
    file.add("Conv", "x w", "h", strides=[5])
    file.add("Conv", "h v", "y", strides=[2])
    model = file.model(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 1, "samples"]))
    _checked(model, [{"x": _weights(2, 1, n)} for n in (60, 401)])


def test_memory_does_not_grow_with_the_sizes_that_are_met() -> None:
    net = _checked(_transformer(), [{"ids": RNG.integers(0, 100, (4, 64))}])
    for k in range(600):
        net.run(ids=RNG.integers(0, 100, (int(RNG.integers(1, 5)), int(RNG.integers(1, 65)))))
        if k == 100:
            before = _resident()
    assert _resident() < before + (2 << 20)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_open_axes_are_split_at_positions() -> None:
    x = relay.var("x", relay.TensorType((size("n", 3), 4)))
    parts = relay.split(x, indices_or_sections=(1, 3), axis=0)
    body = relay.Tuple([parts[0], relay.multiply(parts[2], relay.const(2.0))])
    library = relay.build(armillary.IRModule.from_expr(relay.Function([x], body)), "llvm")
    net = graph_executor.GraphModule(library["default"](armillary.cpu()))
    for n in (3, 9):
        value = _weights(n, 4)
        net.run(x=value)
        np.testing.assert_array_equal(net.get_output(0).numpy(), value[:1])
        np.testing.assert_array_equal(net.get_output(1).numpy(), value[3:] * 2)
    equal = relay.Function([x], relay.split(x, indices_or_sections=2, axis=0).astuple())
    library = relay.build(armillary.IRModule.from_expr(equal), "llvm")
    net = graph_executor.GraphModule(library["default"](armillary.cpu()))
    net.run(x=value[:8])
    np.testing.assert_array_equal(net.get_output(1).numpy(), value[4:8])
    with pytest.raises(ArmillaryError, match="must be equal"):
        net.run(x=value)


@pytest.mark.parametrize(("opset", "parts", "counts"), [(13, 2, (4, 6, 10)), (18, 3, (4, 7, 9))])
def test_open_axes_are_split_into_equal_parts(opset: int, parts: int, counts: tuple[int, ...]) -> None:
    """The last part of three is shorter, or empty."""
    names, attrs = [f"y{k}" for k in range(parts)], {"num_outputs": parts} if opset >= 18 else {}
    file = _File()
    file.add("Split", "x", " ".join(names), axis=0, **attrs)
    model = file.model(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4]), outputs=" ".join(names))
    model.opset_import[0].version = opset
    _checked(model, [{"x": _weights(n, 4)} for n in counts])


def test_casts_to_float16_over_open_axes_are_computed() -> None:
    file = _File()
    file.hold(w=_weights(8, 4).astype("float16"))
    file.add("Cast", "x", "h", to=onnx.TensorProto.FLOAT16)
    file.add("MatMul", "h w", "m")
    file.add("Cast", "m", "y", to=onnx.TensorProto.FLOAT)
    model = file.model(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 8]))
    module, params = relay.frontend.from_onnx(model)
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, "llvm", params=params)
    net = graph_executor.GraphModule(library["default"](armillary.cpu()))
    for n in (1, 5):
        x = _weights(n, 8)
        net.run(x=x)
        wanted = x.astype("float16").astype("float32") @ file.held["w"].astype("float32")
        np.testing.assert_allclose(net.get_output(0).numpy(), wanted, rtol=5e-3, atol=5e-3)


def test_an_input_takes_the_shape_that_the_sizes_of_another_say() -> None:
    file = _File()
    file.hold(first=[0], rest=[-1], one=[1])
    file.add("Shape", "ids", "batch", start=0, end=1)
    file.add("Concat", "batch rest", "rows", axis=0)
    file.add("Reshape", "mask rows", "by_row")
    file.add("Add", "ids by_row", "y")
    file.add("Concat", "batch one", "counts", axis=0)
    file.add("Tile", "line counts", "z")
    axes = {"ids": ["b", "s"], "mask": ["c", "t"], "line": [1, "n"]}
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims) for name, dims in axes.items()]
    shapes = [((2, 5), (2, 5), (1, 4)), ((1, 1), (1, 1), (1, 1)), ((3, 7), (3, 7), (1, 9))]
    feeds = [{k: _weights(*shape) for k, shape in zip(axes, row, strict=True)} for row in shapes]
    net = _checked(file.model(*inputs, outputs="y z"), feeds)
    with pytest.raises(ArmillaryError, match="must be equal"):
        net.run(ids=_weights(2, 5), mask=_weights(3, 5), line=_weights(1, 4))


@pytest.mark.parametrize(("frame", "onesided"), [(12, 1), (256, 0)])  # one product, and two steps
def test_frames_of_a_signal_of_any_length_are_transformed(frame: int, onesided: int) -> None:
    file = _File()
    file.hold(step=np.int64(5), window=np.hanning(frame).astype("float32"), size=np.int64(frame))
    file.add("STFT", "x step window size", "y", onesided=onesided)
    model = file.model(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "samples", 1]))
    net = _checked(model, [{"x": _weights(b, frame + n, 1)} for b, n in ((1, 0), (3, 4), (2, 60))])
    with pytest.raises(ArmillaryError, match="must be equal"):
        net.run(x=_weights(1, frame - 1, 1))


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "Conv"])
def test_data_that_is_shorter_than_a_window_is_refused(op: str) -> None:
    file = _File()
    file.hold(w=_weights(2, 2, 1, 4))
    more = {} if op == "Conv" else {"kernel_shape": [1, 4]}
    file.add(op, "x w" if op == "Conv" else "x", "y", strides=[1, 2], **more)
    net = _checked(
        file.model(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", 2, 3, "w"])),
        [{"x": _weights(b, 2, 3, w)} for b, w in ((1, 4), (2, 5), (3, 18))],
    )
    for w, message in ((3, r"min\(4, w\) = 3, .* is 4 = 4: they must be equal"), (1, "w = 1, which lies outside")):
        with pytest.raises(ArmillaryError, match=message):
            net.run(x=_weights(2, 2, 3, w))
