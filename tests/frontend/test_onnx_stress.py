"""Small models that are written in unusual ways, and operators that exporters write: the same as ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary.backend import prepare
from armillary.errors import TypeMismatch
from armillary.frontend import from_onnx
from armillary.relay.evaluate import evaluate

node, value, F, I64 = helper.make_node, helper.make_tensor_value_info, TensorProto.FLOAT, TensorProto.INT64
MS, ML = "com.microsoft", "ai.onnx.ml"
Array = np.ndarray[Any, Any]
Case = tuple[Any, dict[str, Array]]
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def f32(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def weight(name: str, array: Any) -> Any:
    return numpy_helper.from_array(np.asarray(array), name)


def model(
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    weights: dict[str, Any] | None = None,
    opset: int = 17,
    **more: Any,
) -> Any:
    graph = helper.make_graph(nodes, "net", inputs, outputs, [weight(n, v) for n, v in (weights or {}).items()])
    for key in ("sparse_initializer",):
        getattr(graph, key).extend(more.pop(key, []))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1), helper.make_opsetid("own", 1)]
    imports.append(helper.make_opsetid(ML, 3))
    return helper.make_model(graph, opset_imports=imports, ir_version=9, **more)


def check(made: Any, inputs: dict[str, Array], engine: str, rtol: float = 2e-4, atol: float = 1e-4) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = made if isinstance(made, str) else made.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    got = prepare(onnx.load(made) if isinstance(made, str) else made, engine=engine).run(inputs)
    assert len(got) == len(expected) > 0
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol)


# --- how a model can be written ---------------------------------------------------------------------------------------


@case
def initialisers_are_listed_as_inputs() -> Case:
    made = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", F, [2, 3]), value("w", F, [3, 4])],
        [value("y", F, [2, 4])],
        {"w": f32(3, 4)},
    )
    return made, {"x": f32(2, 3, seed=1)}


@case
def names_hold_odd_characters() -> Case:
    nodes = [node("Relu", ["x:0/in put"], ['%0 "é\n.1'], name="1"), node("Neg", ['%0 "é\n.1'], ["y.0"], name="2/é")]
    return model(nodes, [value("x:0/in put", F, [3])], [value("y.0", F, [3])]), {"x:0/in put": f32(3)}


@case
def an_output_is_an_input_an_initialiser_and_one_value_twice() -> Case:
    nodes = [
        node("Identity", ["x"], ["a"]),
        node("Identity", ["w"], ["b"]),
        node("Relu", ["x"], ["c"]),
        node("Identity", ["c"], ["d"]),
    ]
    outputs = [value(n, F, [2]) for n in "abcd"]
    return model(nodes, [value("x", F, [2])], outputs, {"w": f32(2)}), {"x": f32(2, seed=1)}


@case
def optional_inputs_are_empty_strings() -> Case:
    nodes = [node("Clip", ["x", "", "top"], ["a"]), node("Resize", ["a", "", "", "sizes"], ["y"], mode="nearest")]
    weights = {"top": np.float32(0.3), "sizes": np.array([1, 1, 4, 6])}
    return model(nodes, [value("x", F, [1, 1, 2, 3])], [value("y", F, [1, 1, 4, 6])], weights), {"x": f32(1, 1, 2, 3)}


@case
def a_weight_is_sparse() -> Case:
    sparse = helper.make_sparse_tensor(weight("w", f32(3)), weight("", np.array([0, 4, 7])), [3, 3])
    made = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", F, [2, 3])],
        [value("y", F, [2, 3])],
        sparse_initializer=[sparse],
    )
    return made, {"x": f32(2, 3, seed=1)}


@case
def functions_of_the_model_call_each_other_with_attributes() -> Case:
    scaled = helper.make_function(
        "own",
        "Scaled",
        ["a"],
        ["b"],
        [node("LeakyRelu", ["a"], ["t"]), node("Add", ["t", "t"], ["b"])],
        [helper.make_opsetid("", 17)],
        ["alpha"],
    )
    reference = scaled.node[0].attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "alpha", onnx.AttributeProto.FLOAT
    twice = helper.make_function(
        "own",
        "Twice",
        ["x"],
        ["z"],
        [node("Scaled", ["x"], ["y"], domain="own", alpha=0.5), node("Scaled", ["y"], ["z"], domain="own", alpha=0.1)],
        [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
    )
    made = model(
        [node("Twice", ["x"], ["y"], domain="own")],
        [value("x", F, [5])],
        [value("y", F, [5])],
        functions=[scaled, twice],
    )
    return made, {"x": f32(5)}


@case
def nodes_that_nothing_needs_and_shapes_that_are_computed() -> Case:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"]),
        node("Unsqueeze", ["n", "zero"], ["n1"]),
        node("Concat", ["n1", "minus"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
        node("Exp", ["x"], ["unused"]),
        node("ConstantOfShape", ["t2"], ["more"], value=helper.make_tensor("v", F, [1], [2.0])),
        node("Abs", ["minus"], ["t2"]),
        node("Add", ["y", "more"], ["z"]),
    ]
    nodes = [nodes[k] for k in (0, 1, 2, 3, 4, 7, 6, 8, 5)]
    weights = {"one": np.int64(1), "zero": np.array([0]), "minus": np.array([-1])}
    return model(nodes, [value("x", F, [2, 3, 4])], [value("z", F, None)], weights), {"x": f32(2, 3, 4)}


@case
def the_oldest_opset() -> Case:
    nodes = [
        node("BatchNormalization", ["x", "g", "g", "g", "g"], ["a"]),
        node("Dropout", ["a"], ["b"], ratio=0.5),
        node("Upsample", ["b"], ["c"], scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"),
        node("Pad", ["c"], ["d"], pads=[0, 0, 1, 1, 0, 0, 1, 1], value=1.5),
        node("Slice", ["d"], ["e"], axes=[2], starts=[1], ends=[4]),
        node("TopK", ["e"], ["f", "places"], k=2, axis=3),
        node("Squeeze", ["f"], ["y"], axes=[0]),
    ]
    made = model(
        nodes,
        [value("x", F, [1, 2, 2, 2])],
        [value("y", F, None), value("places", I64, None)],
        {"g": np.abs(f32(2))},
        7,
    )
    return made, {"x": f32(1, 2, 2, 2)}


@case
def scalars_and_empty_tensors() -> Case:
    nodes = [
        node("Add", ["x", "c"], ["a"]),
        node("Concat", ["e", "e2"], ["b"], axis=0),
        node("ReduceSum", ["b"], ["s"], keepdims=0),
        node("Add", ["a", "s"], ["y"]),
    ]
    weights = {"c": np.float32(2), "e": np.zeros((0, 3), np.float32), "e2": f32(1, 3)}
    return model(nodes, [value("x", F, [])], [value("y", F, [])], weights), {"x": np.array(1.5, np.float32)}


@pytest.mark.parametrize("engine", ["reference", "armillary"])
def test_weights_lie_in_a_file_beside_the_model(engine: str, tmp_path: Path) -> None:
    made, inputs = CASES["initialisers_are_listed_as_inputs"]()
    path = tmp_path / "m.onnx"
    onnx.save_model(made, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert (tmp_path / "w.bin").stat().st_size == 48
    module, _ = from_onnx(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)[0]
    got = prepare(onnx.load(path), engine=engine).run(inputs)[0]
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    np.testing.assert_allclose(evaluate(module["main"], inputs), expected, rtol=1e-5)


# --- operators that exporters and optimisers write --------------------------------------------------------------------


def contrib(op: str, inputs: dict[str, Array], outputs: int = 1, domain: str = MS, **attributes: Any) -> Case:
    names = [f"y{k}" for k in range(outputs)]
    kinds = [value(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    results = [helper.make_empty_tensor_value_info(n) for n in names]
    return model([node(op, list(inputs), names, domain=domain, **attributes)], kinds, results), inputs


def u8(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def steps(name: str, scale: float, zero: int, dtype: str = "uint8") -> dict[str, Array]:
    """The scale and zero point of a quantised tensor."""
    return {f"{name}s": np.array(scale, np.float32), f"{name}z": np.array(zero, dtype)}


X = {"x": f32(2, 5, 8)}  # the scales below are such that no exact value lies half-way between two integers
GEMM = {"a": f32(4, 6), "b": f32(6, 5, seed=1), "c": f32(5, seed=2)}
Q, S8 = {"x": u8(2, 3, 4, 5), **steps("x", 0.05, 120)}, {"x": u8(3, 7).astype("int8"), **steps("x", 0.03, -9, "int8")}
CASES.update(
    {
        "Gelu": lambda: contrib("Gelu", X),
        "FastGelu": lambda: contrib("FastGelu", {**X, "b": f32(8)}),
        "BiasGelu": lambda: contrib("BiasGelu", {**X, "b": f32(8)}),
        "QuickGelu": lambda: contrib("QuickGelu", X, alpha=1.5),
        "FusedMatMul": lambda: contrib("FusedMatMul", {"a": f32(2, 4, 3), "b": f32(2, 4, 5)}, alpha=0.5, transA=1),
        "SkipLayerNormalization": lambda: contrib(
            "SkipLayerNormalization", {**X, "s": f32(2, 5, 8, seed=1), "g": f32(8), "b": f32(8, seed=2)}, epsilon=1e-3
        ),
        "SkipSimplifiedLayerNormalization": lambda: contrib(
            "SkipSimplifiedLayerNormalization", {**X, "s": f32(2, 5, 8, seed=1), "g": f32(8)}
        ),
        "Attention": lambda: contrib("Attention", {**X, "w": f32(8, 24), "b": f32(24)}, num_heads=2),
        "Attention_masked": lambda: contrib(
            "Attention",
            {**X, "w": f32(8, 24), "b": f32(24), "m": np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)},
            num_heads=4,
        ),
        "Attention_causal": lambda: contrib(
            "Attention", {**X, "w": f32(8, 24), "b": f32(24)}, num_heads=2, unidirectional=1
        ),
        "MultiHeadAttention": lambda: contrib(
            "MultiHeadAttention",
            {"q": f32(2, 3, 8), "k": f32(2, 5, 8), "v": f32(2, 5, 8, seed=3), "b": f32(24)},
            num_heads=2,
        ),
        "FusedConv": lambda: contrib(
            "FusedConv", {"x": f32(1, 3, 6, 6), "w": f32(4, 3, 3, 3), "b": f32(4)}, activation="Relu", pads=[1, 1, 1, 1]
        ),
        "QLinearAdd": lambda: contrib(
            "QLinearAdd",
            {
                "a": np.arange(12, dtype=np.uint8),
                "as": np.array(0.1, np.float32),
                "az": np.array(3, np.uint8),
                "b": np.arange(12, dtype=np.uint8)[::-1].copy(),
                "bs": np.array(0.2, np.float32),
                "bz": np.array(5, np.uint8),
                "ys": np.array(0.15, np.float32),
                "yz": np.array(7, np.uint8),
            },
        ),
        "QLinearMul": lambda: contrib(
            "QLinearMul",
            {"a": u8(3, 7), **steps("a", 0.1, 130), "b": u8(7, seed=1), **steps("b", 0.02, 5), **steps("y", 0.29, 90)},
        ),
        "QLinearMul_int8": lambda: contrib(
            "QLinearMul",
            {
                "a": u8(3, 7).astype("int8"),
                **steps("a", 0.1, 3, "int8"),
                "b": u8(3, 1, seed=1).astype("int8"),
                **steps("b", 0.02, -5, "int8"),
                **steps("y", 0.29, -20, "int8"),
            },
        ),
        "QLinearConcat": lambda: contrib(
            "QLinearConcat",
            {
                **steps("y", 0.07, 100),
                "a": u8(2, 3),
                **steps("a", 0.1, 130),
                "b": u8(2, 4, seed=1),
                **steps("b", 0.02, 5),
                "c": u8(2, 1, seed=2),
                **steps("c", 0.07, 100),
            },
            axis=1,
        ),
        "QLinearSigmoid": lambda: contrib("QLinearSigmoid", {**Q, **steps("y", 1 / 256, 0)}),
        "QLinearSigmoid_int8": lambda: contrib("QLinearSigmoid", {**S8, **steps("y", 1 / 256, -128, "int8")}),
        "QLinearLeakyRelu": lambda: contrib("QLinearLeakyRelu", {**Q, **steps("y", 0.04, 60)}, alpha=0.2),
        "QLinearLeakyRelu_zero": lambda: contrib(
            "QLinearLeakyRelu", {**S8, **steps("y", 0.02, -100, "int8")}, alpha=0.0
        ),
        "QLinearGlobalAveragePool": lambda: contrib(
            "QLinearGlobalAveragePool", {**Q, **steps("y", 0.0175, 110)}, channels_last=0
        ),
        "QLinearGlobalAveragePool_channels_last": lambda: contrib(
            "QLinearGlobalAveragePool", {**Q, **steps("y", 0.0175, 110)}, channels_last=1
        ),
        "FusedGemm": lambda: contrib("FusedGemm", GEMM, activation="Relu", alpha=0.5, beta=2.0),
        "FusedGemm_leaky": lambda: contrib(
            "FusedGemm",
            {"a": f32(6, 4), "b": f32(5, 6), "c": f32(4, 1)},
            activation="LeakyRelu",
            activation_alpha=0.3,
            transA=1,
            transB=1,
        ),
        "FusedGemm_tanh": lambda: contrib("FusedGemm", GEMM, activation="Tanh"),
        "SimplifiedLayerNormalization": lambda: contrib(
            "SimplifiedLayerNormalization", {**X, "g": f32(8)}, domain="", axis=-1, epsilon=1e-3
        ),
        "SimplifiedLayerNormalization_by_number": lambda: contrib(
            "SimplifiedLayerNormalization", {**X, "g": f32(8)}, domain="", axis=2
        ),
        "SimplifiedLayerNormalization_two_axes": lambda: contrib(
            "SimplifiedLayerNormalization", {**X, "g": f32(5, 8)}, domain="", axis=1
        ),
        "SimplifiedLayerNormalization_inverse": lambda: contrib(
            "SimplifiedLayerNormalization", {**X, "g": f32(8)}, 2, domain="", axis=-1
        ),
        "Scaler": lambda: contrib(
            "Scaler", {"x": f32(4, 3)}, domain=ML, offset=[0.5, -1.0, 2.0], scale=[2.0, 0.1, 3.0]
        ),
        "Scaler_one_number": lambda: contrib("Scaler", {"x": f32(4, 3)}, domain=ML, offset=[0.5], scale=[2.0]),
        "Scaler_integers": lambda: contrib(
            "Scaler",
            {"x": np.arange(6, dtype=np.int64).reshape(2, 3)},
            domain=ML,
            offset=[1.0, 2.0, 3.0],
            scale=[0.5] * 3,
        ),
        "DynamicQuantizeMatMul": lambda: contrib(
            "DynamicQuantizeMatMul",
            {
                "a": f32(3, 8),
                "b": np.random.default_rng(1).integers(0, 255, (8, 4)).astype(np.uint8),
                "s": np.array([0.02], np.float32),
                "z": np.array([120], np.uint8),
            },
        ),
    }
)


@case
def matmul_n_bits() -> Case:
    rng = np.random.default_rng(0)
    packed, scales = rng.integers(0, 255, (6, 2, 16)).astype(np.uint8), (0.1 * f32(12))
    made = model(
        [node("MatMulNBits", ["x", "w", "s"], ["y"], domain=MS, K=64, N=6, bits=4, block_size=32)],
        [value("x", F, [3, 64])],
        [value("y", F, [3, 6])],
        {"w": packed, "s": scales},
    )
    return made, {"x": f32(3, 64)}


@case
def layer_normalization_before_opset_17() -> Case:
    made = model(
        [node("LayerNormalization", ["x", "g", "b"], ["y"], axis=-1)],
        [value("x", F, [2, 8])],
        [value("y", F, [2, 8])],
        {"g": f32(8), "b": f32(8, seed=1)},
        13,
    )
    return made, {"x": f32(2, 8)}


@case
def a_resize_to_the_same_size_names_every_attribute() -> Case:
    attrs = {"mode": "linear", "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.75}
    attrs["nearest_mode"] = "floor"
    nodes = [node("Resize", ["x", "", "", "sizes"], ["a"], **attrs), node("Relu", ["a"], ["y"])]
    made = model(
        nodes, [value("x", F, [1, 2, 4, 6])], [value("y", F, [1, 2, 4, 6])], {"sizes": np.array([1, 2, 4, 6])}, 13
    )
    return made, {"x": f32(1, 2, 4, 6)}


@case
def an_upsampling_by_one_names_its_mode() -> Case:
    nodes = [node("Upsample", ["x", "scales"], ["a"], mode="linear"), node("Relu", ["a"], ["y"])]
    made = model(nodes, [value("x", F, [1, 2, 4])], [value("y", F, [1, 2, 4])], {"scales": np.ones(3, np.float32)}, 9)
    return made, {"x": f32(1, 2, 4)}


@case
def a_grid_for_one_picture_to_its_edges() -> Case:
    return affine_grid((1, 2, 5, 4), align_corners=0)


@case
def a_grid_for_one_volume_to_its_corners() -> Case:
    return affine_grid((1, 2, 3, 5, 4), align_corners=1)


def affine_grid(size: tuple[int, ...], align_corners: int) -> Case:
    axes = len(size) - 2
    made = model(
        [node("AffineGrid", ["theta", "size"], ["y"], align_corners=align_corners)],
        [value("theta", F, [1, axes, axes + 1])],
        [value("y", F, [1, *size[2:], axes])],
        {"size": np.array(size)},
        20,
    )
    return made, {"theta": f32(1, axes, axes + 1)}


def blocks_to_image(image: tuple[int, ...], block: tuple[int, ...], strides: tuple[int, ...], **more: Any) -> Case:
    rank = len(image)
    pads, dilations = more.get("pads", (0,) * 2 * rank), more.get("dilations", (1,) * rank)
    counts = [
        (image[a] + pads[a] + pads[rank + a] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1 for a in range(rank)
    ]
    shape = (2, 3 * int(np.prod(block)), int(np.prod(counts)))
    made = model(
        [node("Col2Im", ["x", "image", "block"], ["y"], strides=strides, **more)],
        [value("x", F, list(shape))],
        [value("y", F, [2, 3, *image])],
        {"image": np.array(image), "block": np.array(block)},
        18,
    )
    return made, {"x": f32(*shape)}


@case
def blocks_that_overlap_by_half() -> Case:
    return blocks_to_image((10, 12), (4, 4), (2, 2), pads=(1, 1, 1, 1))


@case
def blocks_with_gaps_and_an_image_that_goes_on() -> Case:
    return blocks_to_image((8, 9), (2, 3), (3, 2), pads=(0, 0, 1, 2))


@case
def blocks_that_do_not_divide_by_their_step() -> Case:
    return blocks_to_image((5, 6, 7), (2, 2, 3), (2, 1, 3), pads=(0, 1, 0, 0, 0, 2))


@case
def blocks_that_are_dilated() -> Case:
    return blocks_to_image((11, 10), (3, 3), (1, 2), pads=(2, 1, 2, 1), dilations=(2, 1))


@case
def blocks_that_overlap_more_than_is_added_up() -> Case:
    return blocks_to_image((12, 12), (9, 9), (1, 1))


@pytest.mark.parametrize("engine", ["reference", "armillary"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_it_is_the_same_as_onnx_runtime(name: str, engine: str) -> None:
    check(*CASES[name](), engine)


def test_a_grid_for_another_number_of_axes_is_refused() -> None:
    nodes = [node("AffineGrid", ["theta", "size"], ["y"])]
    sizes = {"size": np.array([2, 3, 8, 8])}
    made = model(nodes, [value("theta", F, [2, 3, 4])], [value("y", F, [2, 8, 8, 2])], sizes, 20)
    with pytest.raises(TypeMismatch, match=r"got theta \(2, 3, 4\) for the size .* wanted theta \(N, 2, 3\) or"):
        from_onnx(made)


def test_the_places_of_a_grid_sample_may_be_of_another_type() -> None:
    def sampled(grid: Any) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(grid.dtype)
        made = model(
            [node("GridSample", ["x", "g"], ["y"])],
            [value("x", F, [1, 2, 4, 5]), value("g", kind, grid.shape)],
            [value("y", F, [1, 2, 3, 3])],
        )
        return prepare(made).run({"x": f32(1, 2, 4, 5), "g": grid})[0]

    places = np.random.default_rng(3).uniform(-1, 1, (1, 3, 3, 2)).astype(np.float32)
    wanted, got = sampled(places), sampled(places.astype(np.float64))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, wanted)
