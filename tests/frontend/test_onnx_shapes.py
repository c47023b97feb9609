"""Operands that fit one way only, masks of attention, and strides as large as a number can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper

from armillary.driver.build import build
from armillary.errors import ArmillaryError, TypeMismatch
from armillary.frontend import from_onnx
from armillary.frontend.onnx.shapes import _ROWS, check_shapes
from armillary.frontend.onnx.table import contributed, rows
from armillary.relay.types import AnyDim, TensorType, tensor_type
from armillary.runtime import cpu
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
MS, ML, TRAIN = "com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training"
Shape = tuple[int, ...]


def model(op: str, domain: str, given: dict[str, Array], outputs: int = 1, opset: int = 23, **attrs: Any) -> ModelProto:
    """One node; inputs whose names end in an underscore are constants."""
    results = [ValueInfoProto(name=f"y{k}") for k in range(outputs)]
    node = helper.make_node(op, list(given), [r.name for r in results], domain=domain, **attrs)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
        if n and not n.endswith("_")
    ]
    held = [numpy_helper.from_array(a, n) for n, a in given.items() if n.endswith("_")]
    versions = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in ((MS, 1), (ML, 3), (TRAIN, 1)))]
    return helper.make_model(
        helper.make_graph([node], "one", infos, results, held), opset_imports=versions, ir_version=10
    )


def run(made: ModelProto, given: dict[str, Array], level: int = 3) -> list[Array]:
    module, params = from_onnx(made)
    with PassContext(opt_level=level):
        graph = build(module, "llvm", params=params)["default"](cpu(0))
    for name, value in given.items():
        if name and not name.endswith("_"):
            graph.set_input(name, value)
    graph.run()
    return [np.asarray(graph.get_output(k).numpy()) for k in range(graph.get_num_outputs())]


def zeros(*shapes: Shape) -> dict[str, Array]:
    return {f"x{k}": np.zeros(shape, np.float32) for k, shape in enumerate(shapes)}


F, I64 = "float32", "int64"
NUMBERS = {"alpha": 0.9, "beta": 0.9, "norm_coefficient": 0.0}
REFUSED: list[tuple[str, str, int, dict[str, Array], dict[str, Any]]] = [
    ("SkipLayerNormalization", MS, 17, zeros((1, 2, 7), (2, 2, 7), (7,), (7,), (7,)), {}),
    ("SkipSimplifiedLayerNormalization", MS, 17, zeros((1, 2, 7), (2, 2, 7), (7,)), {}),
    ("SkipLayerNormalization", MS, 17, zeros((1, 2, 7), (1, 2, 7), (1,), (7,)), {}),
    ("BiasGelu", MS, 17, zeros((1,), (4,)), {}),
    ("FastGelu", MS, 17, zeros((2, 1), (4,)), {}),
    ("FusedGemm", MS, 17, zeros((13, 31), (31, 1), (1, 2)), {"activation": "Relu"}),
    ("FusedConv", MS, 17, zeros((1, 2, 4, 4), (3, 2, 1, 1), (3,), (2, 3, 4, 4)), {"activation": "Relu"}),
    ("Attention", MS, 17, zeros((1, 3, 4), (4, 12), (1,)), {"num_heads": 2}),
    ("MultiHeadAttention", MS, 17, zeros((1, 3, 4), (2, 5, 4), (2, 5, 4)), {"num_heads": 2}),
    ("MultiHeadAttention", MS, 17, zeros((1, 3, 4), (1, 5, 4), (1, 5, 1), (1,)), {"num_heads": 2}),
    (
        "MultiHeadAttention",
        MS,
        17,
        zeros((1, 3, 4), (1, 5, 4), (1, 5, 4), (12,)) | {"m": np.ones(1, "int32"), "bias": np.zeros((2, 2, 3, 5), F)},
        {"num_heads": 2},
    ),
    ("Gemm", "", 13, zeros((1, 3), (3, 1), (1, 2)), {}),
    ("Gemm", "", 13, zeros((3,), (3, 4)), {}),
    ("PRelu", "", 16, zeros((1, 3, 1), (1, 3, 4)), {}),
    ("LayerNormalization", "", 17, zeros((8, 1), (7,), (7,)), {}),
    ("LayerNormalization", "", 17, zeros((3, 2), (3, 2), (3, 3, 2)), {"axis": 0}),
    ("RMSNormalization", "", 23, zeros((3, 1, 5), (3, 5)), {"axis": 1}),
    ("SwiGLU", "", 28, zeros((2, 4), (1, 4)), {}),
    ("TensorScatter", "", 24, {**zeros((2, 1, 4, 5), (2, 1, 2, 1)), "at": np.zeros(2, I64)}, {}),
    ("RotaryEmbedding", "", 23, zeros((2, 4, 4, 8), (2, 1, 2), (2, 4, 2)), {"rotary_embedding_dim": 4}),
    ("NegativeLogLikelihoodLoss", "", 13, {**zeros((3, 5)), "t": np.zeros(2, I64)}, {}),
    ("Clip", "", 13, zeros((2, 3), (2,)), {}),
    ("Tile", "", 13, {**zeros((4, 1, 11, 1)), "r_": np.full(1, 2)}, {}),
    ("Slice", "", 13, {**zeros((8, 9)), "s_": np.zeros(2, I64), "e_": np.ones(2, I64), "a_": np.arange(1)}, {}),
    ("Range", "", 13, {"a_": np.zeros((), I64), "b_": np.full(2, 3), "c_": np.ones((), I64)}, {}),
    ("HannWindow", "", 17, {"n_": np.array([4, 5])}, {}),
    ("FeatureVectorizer", ML, 17, zeros((2, 3), (1, 2)), {"inputdimensions": [3, 2]}),
    ("Momentum", TRAIN, 17, zeros((), (), (4,), (1, 4), (4,)), {**NUMBERS, "mode": "standard"}),
]


@pytest.mark.parametrize(
    ("op", "domain", "opset", "given", "attrs"), REFUSED, ids=[f"{r[0]}-{k}" for k, r in enumerate(REFUSED)]
)
def test_an_operand_of_another_shape_is_refused(
    op: str, domain: str, opset: int, given: dict[str, Array], attrs: dict[str, Any]
) -> None:
    outputs = 2 if domain == TRAIN else 1
    with pytest.raises(TypeMismatch, match=op):
        from_onnx(model(op, domain, given, outputs, opset, **attrs))


@pytest.mark.parametrize("dilations", [(1, 1), (1, 2)])
@pytest.mark.parametrize("pads", [(0, -1, 0, 0), (-1, 0, 0, 1), (1, -1, 1, 0), (-1, -1, -1, -1), (0, 0, -2, -1)])
def test_blocks_cover_a_part_of_the_image_where_padding_is_negative(pads: Any, dilations: Any) -> None:
    image, block = np.array([6, 7]), np.array([2, 2])
    counts = image + np.reshape(pads, (2, 2)).sum(0) - np.array(dilations) * (block - 1)
    data = np.random.default_rng(0).normal(size=(1, 3 * 4, int(counts.prod()))).astype(np.float32)
    given = {"x": data, "a_": image, "b_": block}
    made = model("Col2Im", "", given, 1, 18, pads=pads, dilations=dilations)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": data})
    np.testing.assert_allclose(run(made, given)[0], wanted, rtol=1e-5, atol=1e-6)  # sums of four


def test_features_of_another_number_are_refused() -> None:
    given = {name: np.zeros((5, columns), np.float32) for name, columns in (("a", 4), ("b", 3), ("c", 3))}
    with pytest.raises(ArmillaryError, match="2 inputdimensions for 3 inputs"):
        from_onnx(model("FeatureVectorizer", ML, given, inputdimensions=[4, 3]))


def test_a_scalar_place_of_a_slice_is_one_axis() -> None:
    parts = {name: np.array(value, np.int64) for name, value in (("s_", 1), ("e_", 3), ("a_", 1), ("t_", 1))}
    given = {"x": np.arange(20, dtype=np.float32).reshape(4, 5), **parts}
    np.testing.assert_array_equal(run(model("Slice", "", given, opset=13), given)[0], given["x"][:, 1:3])


def test_parts_of_another_number_or_size_are_refused() -> None:
    x = zeros((2, 5))
    with pytest.raises(TypeMismatch, match="no 2 equal parts"):
        from_onnx(model("Split", "", x, 2, 17, axis=1))
    with pytest.raises(TypeMismatch, match="3 parts for 2 outputs"):
        from_onnx(model("Split", "", {**x, "s_": np.array([2, 2, 1])}, 2, 17, axis=1))
    assert [y.shape for y in run(model("Split", "", x, 2, 18, axis=1, num_outputs=2), x)] == [(2, 3), (2, 2)]


def test_words_beyond_the_table_of_positions_are_refused() -> None:
    ids = np.zeros((1, 6), np.int32)
    tables = {f"t{k}": np.zeros(s, np.float32) for k, s in enumerate(((20, 4), (5, 4), (2, 4), (4,), (4,)))}
    with pytest.raises(TypeMismatch, match="6 words and 5 rows of positions"):
        from_onnx(model("EmbedLayerNormalization", MS, {"i": ids, "s": ids, **tables}, 2, 17))


def test_scales_of_another_number_of_blocks_are_refused() -> None:
    table, at = np.zeros((20, 20), np.uint8), np.zeros((3, 2), np.int64)
    for scales, zeros_of in (((19, 3), (20, 2)), ((20, 1), (20, 2)), ((20, 3), (19, 2))):
        given = {"t_": table, "i": at, "s_": np.ones(scales, np.float32), "z_": np.zeros(zeros_of, np.uint8)}
        with pytest.raises(TypeMismatch, match="GatherBlockQuantized"):
            from_onnx(model("GatherBlockQuantized", MS, given, 1, 17, block_size=16))


MEL = (4, 16, 8192, 0.0, 4000.0)
SIZES: list[tuple[str, dict[str, Any], str]] = [
    ("HannWindow", {"n_": -5}, "a window of -5 elements"),
    ("BlackmanWindow", {"n_": 0}, "a window of 0 elements"),
    ("AffineGrid", {"t": np.zeros((1, 2, 3), F), "s_": [1, 1, -2, 3]}, "each axis has an element"),
    ("MelWeightMatrix", dict(zip("abcde", (-1, *MEL[1:]), strict=True)), "-1 bins"),
    ("MelWeightMatrix", dict(zip("abcde", (*MEL[:4], 9000.0), strict=True)), "must lie within the spectrum"),
    ("MelWeightMatrix", dict(zip("abcde", (*MEL[:4], np.nan), strict=True)), "must lie within the spectrum"),
    ("MelWeightMatrix", dict(zip("abcde", (*MEL[:2], 0, *MEL[3:]), strict=True)), "must lie within the spectrum"),
    ("Range", {"a_": 0.0, "b_": np.nan, "c_": 1.0}, "no finite number of elements"),
    ("Range", {"a_": -np.inf, "b_": 5.0, "c_": 1.0}, "no finite number of elements"),
]


@pytest.mark.parametrize(("op", "given", "message"), SIZES, ids=[f"{s[0]}-{k}" for k, s in enumerate(SIZES)])
def test_sizes_that_are_none_are_refused_when_importing(op: str, given: dict[str, Any], message: str) -> None:
    held = {n if n == "t" else n.rstrip("_") + "_": np.asarray(v) for n, v in given.items()}
    held = {n: a.astype(F) if a.dtype == np.float64 else a for n, a in held.items()}
    with pytest.raises(TypeMismatch, match=message):
        from_onnx(model(op, "", held, 1, 20))


# --- what is allowed stays so -----------------------------------------------------------------------------------------


def test_patterns_say_the_same_sizes_by_the_same_letters() -> None:
    def fits(op: str, *shapes: Shape | None, domain: str = MS) -> bool:
        try:
            check_shapes(op, domain, [None if s is None else tensor_type(s) for s in shapes])
        except ArmillaryError:
            return False
        return True

    for skip in ((3, 2, 7), (1, 2, 7), (2, 7)):
        assert fits("SkipLayerNormalization", (3, 2, 7), skip, (7,), None, (7,))
    assert not fits("SkipLayerNormalization", (3, 2, 7), (3, 1, 7), (7,))
    assert fits("CausalConvWithState", (2, 4, 8), (4, 1, 3), None, (2, 4, 2), domain="")
    assert not fits("CausalConvWithState", (2, 4, 8), (4, 1, 3), None, (2, 4, 3), domain="")
    assert fits("NegativeLogLikelihoodLoss", (3, 5, 2, 2), (3, 2, 2), (5,), domain="")
    assert not fits("NegativeLogLikelihoodLoss", (3, 5, 2, 2), (3, 2), (5,), domain="")
    assert fits("Range", (1,), (), (1, 1), domain="") and not fits("Range", (2,), (), (), domain="")


def test_sizes_that_are_not_known_fit() -> None:
    unknown = TensorType((AnyDim(), AnyDim(), 7), tensor_type(()).dtype)
    check_shapes("SkipLayerNormalization", MS, [unknown, tensor_type((2, 2, 7)), tensor_type((7,))])
    with pytest.raises(TypeMismatch, match=r"input 2 has shape \(6,\), wanted \(h\) where"):
        check_shapes("SkipLayerNormalization", MS, [unknown, tensor_type((2, 2, 7)), tensor_type((6,))])


def test_rows_name_operators_that_are_imported() -> None:
    known = {f"{row.domain}:{row.name}".lstrip(":") for row in rows()} | {f"{d}:{name}" for d, name in contributed()}
    assert set(_ROWS) <= known


MASKS: tuple[Any, ...] = (
    [3, 2],
    [2, 4, 0, 3],
    [3, 4, 1, 2],
    [[0, 1, -1, 1], [1, 1, 0, 0]],
    [[0, 0, 0, 0], [1, 1, 0, 0]],
)


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("hidden", [-10000.0, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_masks_of_attention_are_ends_ends_and_starts_or_flags(mask: Any, hidden: float, ahead: int) -> None:
    rng = np.random.default_rng(5)
    shapes = {"x": (2, 4, 6), "w_": (6, 18), "b_": (18,)}
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()} | {"m": np.array(mask, np.int32)}
    made = model("Attention", MS, given, 1, 17, num_heads=2, unidirectional=ahead, mask_filter_value=hidden)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {n: given[n] for n in ("x", "m")})
    np.testing.assert_allclose(run(made, given)[0], want, rtol=1e-4, atol=1e-5)


def test_a_mask_of_another_batch_is_refused() -> None:
    given = zeros((1, 3, 4), (4, 12), (12,)) | {"m": np.zeros(3, np.int32)}
    with pytest.raises(ArmillaryError, match="a mask of type"):
        from_onnx(model("Attention", MS, given, 1, 17, num_heads=2))


# --- strides and dilations without end --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("stride", [3, (1 << 63) - 1])
def test_blocks_added_into_an_image_keep_what_is_infinite_in_its_place(stride: int, level: int) -> None:
    x = np.arange(12 * 6, dtype=np.float32).reshape(1, 12, 6)
    x[0, 5, 2] = -np.inf
    given = {"x": x, "image_": np.array([2, 6, 2]), "block_": np.array([2, 2, 1])}
    attrs = {"dilations": [2, 2, 2], "pads": [1, 0, 0, 0, 1, 1], "strides": [stride, 2, 2]}
    whole = np.zeros((1, 3, 3, 7, 3), np.float32)
    for tap, (i, j) in enumerate(np.ndindex(2, 2)):
        for at, (m, n) in enumerate(np.ndindex(3, 2)):
            whole[0, :, 2 * i, 2 * m + 2 * j, 2 * n] += x[0, tap::4, at]
    (got,) = run(model("Col2Im", "", given, 1, 18, **attrs), given, level)
    np.testing.assert_array_equal(got, whole[:, :, 1:, :6, :2])


@pytest.mark.parametrize(
    ("shape", "weight", "attrs"),
    [
        ((1, 2, 1), (2, 1, 2), {"strides": [1 << 62], "group": 2}),
        ((1, 2, 1, 5, 5), (2, 3, 2, 2, 2), {"strides": [1 << 62, 1, 1]}),
        ((1, 2, 5, 1, 5), (2, 1, 2, 2, 2), {"strides": [1, 1 << 40, 1], "group": 2}),
        ((1, 2, 5, 5), (2, 3, 1, 2), {"dilations": [(1 << 63) - 1, 1]}),
        ((1, 2, 2), (2, 1, 2), {"strides": [1 << 23], "pads": [(1 << 23) - 2, 0], "group": 2}),
    ],
    ids=str,
)
def test_a_stride_that_no_second_element_follows_makes_no_weights_of_its_size(
    shape: Shape, weight: Shape, attrs: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal(shape).astype(np.float32), "w_": rng.standard_normal(weight).astype(np.float32)}
    made = model("ConvTranspose", "", given, 1, 22, **attrs)
    np.testing.assert_allclose(run(made, given, 3)[0], run(made, given, 0)[0], rtol=1e-5, atol=1e-5)
