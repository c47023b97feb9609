"""Where ONNX Runtime and the reference evaluator of the onnx package are not to be asked.

In: a model and its inputs. Out: whom not to ask, and why. Invariant: a row of `NOT_TRUE` names the operator, whom it
blames, when, and why; nothing else is excused. Who asks: onnx_truth.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto
from onnx_seen import (
    WEIGHT_PLACES,
    Seen,
    begins_before,
    declares_otherwise,
    has_far_taps,
    has_large,
    has_large_power,
    has_many_steps,
    has_no_variance,
    holds_nan,
    is_certain,
    is_empty_with_negative_axis,
    is_float,
    is_open,
    leaves_out_pads,
    mixes_pads,
    odd_factor,
    odd_leaf,
    odd_scale,
    odd_state,
    odd_steps,
    odd_weight,
    one_corner,
    overflows,
    reads_padding_alone,
    recurrent,
    repeats_category,
    rounds_places,
    rounds_size,
    saturates_pairs,
    scaled_corners,
    scans_otherwise,
    skips_pixels,
)

Array = np.ndarray[Any, Any]
ORT, REFERENCE, BOTH = "ONNX Runtime", "onnx reference", "both"


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


@dataclass(frozen=True)
class NotTrue:
    """`who` is not asked about models that hold such a node."""

    op: str
    who: str
    why: str
    when: Callable[[Seen], bool] = lambda seen: True


_PARTIAL = words("Acos Acosh Asin Atanh Log Sqrt Pow Mod ReduceLogSum")
_SAME = "SAME_* with a stride beyond the kernel: the one pads by less than nothing, the other raises"
_CHANNELS = "takes the channels of (N, C) for a spatial axis"
NOT_TRUE: tuple[NotTrue, ...] = (
    NotTrue("MaxPool", BOTH, _SAME, skips_pixels),
    NotTrue("AveragePool", BOTH, _SAME, skips_pixels),
    NotTrue("LpPool", BOTH, _SAME, skips_pixels),
    NotTrue(
        "AffineGrid",
        BOTH,
        "one element, aligned with both corners: either corner or beyond, where PyTorch has the centre",
        one_corner,
    ),
    NotTrue("MeanVarianceNormalization", ORT, "the difference of two sums: no number where all elements are equal"),
    NotTrue("Shrink", ORT, "float64 by way of float32", lambda s: s.reads(TensorProto.DOUBLE)),
    NotTrue("Slice", REFERENCE, "a start before the first element of a slice backwards is numpy's", begins_before),
    *(
        NotTrue(
            op,
            BOTH,
            "a sum or a product beyond its type has no meaning: the one clamps it, the other wraps",
            overflows,
        )
        for op in ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd")
    ),
    *(
        NotTrue(op, ORT, "what is no number counts or not, by where it stands", holds_nan)
        for op in ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "GlobalMaxPool", "Hardmax")
    ),
    *(
        NotTrue(
            op, ORT, "leaves out the product of the first state, which is 0, with a weight that is infinite", odd_state
        )
        for op in ("RNN", "GRU", "LSTM")
    ),
    *(
        NotTrue(op, ORT, "without dot products of bytes it adds pairs of products in 16 bits", saturates_pairs)
        for op in WEIGHT_PLACES
    ),
    NotTrue("MatMulInteger", ORT, "a product of no terms is left unwritten", lambda s: s.shape(0)[-1:] == (0,)),
    NotTrue("LRN", ORT, "takes squares from a sum that moves along the channels, which cancel", has_large),
    NotTrue("Clip", BOTH, "an infinity without a bound: the one makes it the largest number, the other not", is_open),
    NotTrue("Resize", ORT, "rounds places to float32 before they are floored", rounds_places),
    NotTrue("Resize", REFERENCE, "one element less where float32 rounds its size up to an integer", rounds_size),
    NotTrue("ReduceLogSumExp", ORT, "integers: adds the whole part of the logarithm", lambda s: not is_float(s)),
    NotTrue("QLinearSoftmax", ORT, "takes the whole part of how many steps of the scale are in 1", odd_steps),
    NotTrue(
        "QLinearSoftmax",
        ORT,
        "keeps 32 bits of the operator set: of 2^63 - 1 they are -1, which is before 13",
        lambda s: not -(1 << 31) <= s.get("opset", 13) < 1 << 31,
    ),
    *(
        NotTrue(op, ORT, "multiplies a dilation beyond int32 until it wraps", has_far_taps)
        for op in ("MaxPool", "AveragePool", "LpPool", "ConvTranspose")
    ),
    NotTrue("Loop", ORT, "no iterations: the shapes that the body declares, not its own", declares_otherwise),
    NotTrue("Loop", ORT, "no iterations: the body declares a scan output of another shape", scans_otherwise),
    NotTrue(
        "ConvTranspose",
        BOTH,
        "a weight that is no number: here it meets the zeros between the elements (docs/limits.md)",
        odd_weight,
    ),
    NotTrue("MaxPool", BOTH, "what is no number does not count; here it is the largest", holds_nan),
    *(
        NotTrue(op, ORT, "leaves negative axes of a tensor without elements as they are", is_empty_with_negative_axis)
        for op in words(
            "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
            "ReduceSumSquare ArgMax ArgMin"
        )
    ),
    NotTrue("QLinearSoftmax", ORT, "1 is 256 steps of 1 / 256, which wraps to 0", is_certain),
    NotTrue(
        "Gemm",
        ORT,
        "forgets beta where the product has no terms",
        lambda s: 0 in s.shape(0) and s.get("beta", 1.0) != 1.0,
    ),
    *(
        NotTrue(op, BOTH, "says nothing of what is no number: here the zero point (docs/limits.md)", holds_nan)
        for op in ("QuantizeLinear", "DynamicQuantizeLinear")
    ),
    NotTrue(
        "QuantizeLinear",
        BOTH,
        "0 by a scale of 0 is no number: here the zero point (docs/limits.md)",
        lambda s: (scale := s.value(1)) is not None and not np.all(scale.astype(np.float64)),
    ),
    NotTrue(
        "InstanceNormalization",
        ORT,
        "a plane of one element is its bias; the difference of two products of 316 times its size is 1e-5 beside it",
        lambda s: int(np.prod(s.shape(0)[2:])) == 1,
    ),
    NotTrue("HardSwish", BOTH, "float64 by constants of float32", lambda s: s.reads(TensorProto.DOUBLE)),
    *(NotTrue(op, ORT, _SAME, skips_pixels) for op in ("Conv", "ConvInteger", "QLinearConv", "FusedConv")),
    NotTrue("MaxPool", BOTH, "the largest of no element: the least finite number, no number", reads_padding_alone),
    NotTrue(
        "Resize", ORT, "rounds the result's size before it aligns the corners, unlike ONNX's tests", scaled_corners
    ),
    NotTrue(
        "Resize",
        REFERENCE,
        "a result of one element lies at 0, by the standard; here at -0.5, or as one of several",
        lambda s: s.get("coordinate_transformation_mode", b"half_pixel") == b"pytorch_half_pixel",
    ),
    NotTrue("Hardmax", REFERENCE, "before opset 13 it is of all axes from one on, as one", lambda s: s.opset < 13),
    NotTrue("ArrayFeatureExtractor", REFERENCE, "counts columns below 0 from the end, which ONNX Runtime refuses"),
    NotTrue(
        "GlobalMaxPool", REFERENCE, "takes the last two axes, whatever their number", lambda s: len(s.shape(0)) != 4
    ),
    NotTrue("GlobalAveragePool", REFERENCE, _CHANNELS, lambda s: len(s.shape(0)) < 3),
    NotTrue(
        "ConvTranspose",
        BOTH,
        "SAME_* with a stride beyond the kernel: the one gives a smaller result than the standard, the other shifts it",
        skips_pixels,
    ),
    NotTrue(
        "ConvTranspose",
        REFERENCE,
        "adds the wrong part of the bias to each group",
        lambda s: s.get("group", 1) > 1 and len(s.node.input) > 2,
    ),
    NotTrue(
        "Loop",
        REFERENCE,
        "joins the scan outputs of the iterations where they are stacked",
        lambda s: len(s.node.output) > len(s.node.input) - 2,
    ),
    NotTrue(
        "Col2Im",
        ORT,
        "one axis with a dilation: mixes up the channels",
        lambda s: s.shape(1) == (1,) and max(s.get("dilations", [1])) > 1,
    ),
    NotTrue(
        "Col2Im", ORT, "three and more axes: leaves out most of the image", lambda s: s.shape(1) not in ((1,), (2,))
    ),
    NotTrue("Optional", REFERENCE, "an optional that is an output comes as a list of one"),
    NotTrue(
        "Scaler", REFERENCE, "keeps integers where the result is float32", lambda s: not s.reads(TensorProto.FLOAT)
    ),
    NotTrue("SVMClassifier", REFERENCE, "joins probabilities of pairs otherwise", lambda s: bool(s.get("prob_a"))),
    NotTrue("SVMClassifier", ORT, "a limit that is no number", lambda s: bool(np.isnan(s.get("rho", [0])).any())),
    NotTrue("GridSample", REFERENCE, "cubic: other pixels at borders", lambda s: b"cubic" in s.get("mode", b"")),
    NotTrue("Normalizer", REFERENCE, "MAX is of absolute values", lambda s: s.get("norm", b"MAX") == b"MAX"),
    NotTrue("Erf", REFERENCE, "float64 through float32", lambda s: s.reads(TensorProto.DOUBLE)),
    *(
        NotTrue(
            op,
            BOTH,
            "SAME_* with dilations: the one forgets them where it pads, the other gives a smaller result or zeros",
            lambda s: s.get("auto_pad", b"").startswith(b"SAME") and max(s.get("dilations", [1])) > 1,
        )
        for op in ("MaxPool", "AveragePool", "LpPool")
    ),
    *(
        NotTrue(op, ORT, "what is infinite or no number becomes whatever the processor's conversion says", odd_scale)
        for op in words(
            "QuantizeLinear QLinearAdd QLinearMul QLinearLeakyRelu QLinearSigmoid QLinearConcat QLinearAveragePool "
            "QLinearGlobalAveragePool QLinearWhere"
        )
    ),
    *(
        NotTrue(op, ORT, "more steps than an int32 counts: the least number where the largest is due", has_many_steps)
        for op in ("QLinearAdd", "QLinearMul", "QLinearAveragePool")
    ),
    *(
        NotTrue(op, BOTH, "the factor of a sum overflows: 0 times it is no number, where here it is 0", odd_factor)
        for op in ("QLinearConv", "QLinearMatMul")
    ),
    NotTrue(
        "MaxPool",
        REFERENCE,
        "of three axes the places of the largest values are mixed up",
        lambda s: len(s.node.output) > 1 and len(s.shape(0)) == 5,
    ),
    NotTrue("ReduceMean", ORT, "says 0 for the mean of nothing, which is no number", lambda s: 0 in s.shape(0)),
    NotTrue(
        "ReduceMean",
        REFERENCE,
        "the mean of no integers: no number, as an integer",
        lambda s: 0 in s.shape(0) and not is_float(s),
    ),
    *(
        NotTrue(
            op,
            REFERENCE,
            "the rate's type becomes that of the tensors",
            lambda s: s.types.get(s.node.input[0], (0, ()))[0] != s.types.get(s.node.input[2], (0, ()))[0],
        )
        for op in ("Momentum", "Adam", "Adagrad")
    ),
    *(
        NotTrue(
            op,
            REFERENCE,
            "the rate's correction is of float64, and so may be the result",
            lambda s: s.reads(TensorProto.FLOAT) and bool(np.any(s.value(1)) if s.value(1) is not None else True),
        )
        for op in ("Adam", "Adagrad")
    ),
    NotTrue("Adam", REFERENCE, "takes alpha and beta from 1 in float32", lambda s: s.reads(TensorProto.DOUBLE)),
    NotTrue("ReduceSumSquare", REFERENCE, "32-bit integers give 64-bit ones", lambda s: not is_float(s)),
    NotTrue("Pow", REFERENCE, "integers wrap; here what does not fit is as float64 has it", lambda s: not is_float(s)),
    NotTrue(
        "Pow", ORT, "integers: by float64, or, with 2 or 3 along the last axis, products that wrap", has_large_power
    ),
    NotTrue("QLinearConv", REFERENCE, "mixes up the axes of images of other than two", lambda s: len(s.shape(0)) != 4),
    NotTrue("MaxPool", REFERENCE, "takes the second pad for the third, with strides of 1", mixes_pads),
    NotTrue("MaxPool", REFERENCE, "with strides of 1, pads images of two axes alone", leaves_out_pads),
    NotTrue(
        "MaxPool",
        REFERENCE,
        "the places of the largest values count the padding",
        lambda s: len(s.node.output) > 1 and (any(s.get("pads", ())) or s.get("auto_pad", b"").startswith(b"SAME")),
    ),
    NotTrue(
        "MaxPool",
        REFERENCE,
        "SAME_LOWER: the result is rounded down",
        lambda s: s.get("auto_pad", b"") == b"SAME_LOWER" and max(s.get("strides", [1])) > 1,
    ),
    NotTrue("AveragePool", REFERENCE, "before opset 7 the padding counts", lambda s: s.opset < 7),
    NotTrue("RoiAlign", REFERENCE, "before opset 16 places are those of opset 16", lambda s: s.opset < 16),
    NotTrue("LayerNormalization", REFERENCE, "means of float64 are float64", lambda s: s.reads(TensorProto.DOUBLE)),
    NotTrue(
        "LpPool",
        REFERENCE,
        "dilations before opset 18, which has them first: it leaves them out, ONNX Runtime refuses them",
        lambda s: s.opset < 18 and max(s.get("dilations", [1])) > 1,
    ),
    NotTrue(
        "OneHotEncoder", REFERENCE, "compares real numbers with integers; others compare their whole part", is_float
    ),
    NotTrue("OneHotEncoder", BOTH, "a category that stands twice: one place of it, here each", repeats_category),
    *(
        NotTrue(op, BOTH, "which score is the largest where one is no number", odd_leaf)
        for op in ("TreeEnsembleClassifier", "LinearClassifier")
    ),
    NotTrue(
        "Unique",
        REFERENCE,
        "along an axis: orders what is to stay in order",
        lambda s: s.get("axis") is not None and s.get("sorted", 1) == 0,
    ),
    NotTrue(
        "TreeEnsembleClassifier",
        REFERENCE,
        "takes the sums of one class for probabilities",
        lambda s: len(set(s.get("class_ids", ()))) == 1,
    ),
    NotTrue(
        "Attention",
        REFERENCE,
        "fills up a mask of one column, which the standard broadcasts",
        lambda s: len(s.node.input) > 3 and s.shape(3)[-1:] == (1,),
    ),
    NotTrue("Resize", REFERENCE, "leaves out what is no number where its weight is 0", holds_nan),
    NotTrue("MeanVarianceNormalization", REFERENCE, "divides 0 by 0 where all are equal", has_no_variance),
    NotTrue("LRN", REFERENCE, "as many channels have neighbours as there are images"),
    NotTrue("BatchNormalization", REFERENCE, "before opset 14 it is that of training", lambda s: s.opset < 14),
    *(NotTrue(op, REFERENCE, "knows the plain form only", recurrent) for op in ("RNN", "GRU", "LSTM")),
    NotTrue(
        "MaxUnpool",
        REFERENCE,
        "takes the indices for places in what the windows cover, ONNX Runtime and PyTorch for places in output_shape",
        lambda s: len(s.node.input) > 2,
    ),
    NotTrue("DynamicQuantizeLSTM", ORT, "rounds also what its products read to bytes; here they read floats"),
    *(
        NotTrue(
            op,
            BOTH,
            "periodic says yes or no; the one and the other count with it",
            lambda s: s.get("periodic", 1) not in (0, 1),
        )
        for op in ("HannWindow", "HammingWindow", "BlackmanWindow")
    ),
    NotTrue("Gelu", BOTH, "float64 by constants of float32", lambda s: s.reads(TensorProto.DOUBLE)),
)
_BY_OPERATOR: dict[str, list[NotTrue]] = {}
for _row in NOT_TRUE:
    _BY_OPERATOR.setdefault(_row.op, []).append(_row)


def nodes_of(graph: GraphProto) -> Iterator[NodeProto]:
    """All nodes, those of bodies too."""
    for node in graph.node:
        yield node
        for item in node.attribute:
            if item.HasField("g"):
                yield from nodes_of(item.g)


def _types(model: ModelProto) -> dict[str, tuple[int, tuple[int, ...]]]:
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # what cannot be inferred is not known
        graph = model.graph
    found = {t.name: (t.data_type, tuple(t.dims)) for t in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        kind = info.type.tensor_type
        found.setdefault(info.name, (kind.elem_type, tuple(d.dim_value for d in kind.shape.dim)))
    return found


def _is_met(row: NotTrue, seen: Seen) -> bool:
    try:
        return row.when(seen)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # not as the operator's nodes are
        return True


def not_asked(model: ModelProto, inputs: dict[str, Any]) -> dict[str, str]:
    """Whom not to ask about this model with these inputs, and why."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    found: dict[str, str] = {}
    types: dict[str, tuple[int, tuple[int, ...]]] = {}
    weights = {t.name: t for t in model.graph.initializer}
    makes_nan = any(node.op_type in _PARTIAL for node in nodes_of(model.graph))
    for node in nodes_of(model.graph):
        if any(a.type == AttributeProto.UNDEFINED for a in node.attribute):
            why = f"{node.op_type}: an attribute without a type: the one refuses it, the other does not read it"
            return {ORT: why, REFERENCE: why}
        for row in _BY_OPERATOR.get(node.op_type, ()):
            types = types or _types(model)
            if _is_met(row, Seen(node, opset, types, weights, inputs, makes_nan)):
                for who in (ORT, REFERENCE) if row.who == BOTH else (row.who,):
                    found[who] = f"{row.op}: {row.why}"
    return found
