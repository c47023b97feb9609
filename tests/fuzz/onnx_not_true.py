"""Where ONNX Runtime and the reference evaluator of the onnx package are not to be asked.

In: a model and its inputs. Out: whom not to ask, and why. Invariant: a row of `NOT_TRUE` names the operator, whom it
blames, when, and why; nothing else is excused. Who asks: onnx_truth.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

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


@dataclass(frozen=True)
class Seen:
    """A node, its opset, the element types and shapes of what it reads where they are known, weights, and inputs."""

    node: NodeProto
    opset: int
    types: dict[str, tuple[int, tuple[int, ...]]]
    weights: dict[str, TensorProto]
    inputs: dict[str, Any]
    makes_nan: bool  # whether a node of the model has no number for some of what it may read

    def value(self, place: int) -> Array | None:
        """The numbers of an input, where they are given."""
        name = self.node.input[place] if len(self.node.input) > place else ""
        if name in self.weights:
            return numpy_helper.to_array(self.weights[name])
        return self.inputs.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute; an empty list is as good as none."""
        for item in self.node.attribute:
            if item.name == name and (value := helper.get_attribute_value(item)) != []:
                return value
        return default

    def reads(self, kind: int, place: int = 0) -> bool:
        """Whether an input has this element type."""
        return len(self.node.input) > place and self.types.get(self.node.input[place], (0, ()))[0] == kind

    def shape(self, place: int) -> tuple[int, ...]:
        """The shape of an input."""
        return self.types.get(self.node.input[place], (0, ()))[1]


def _skips_pixels(s: Seen) -> bool:
    weights = 3 if s.node.op_type == "QLinearConv" else 1
    kernel = s.get("kernel_shape") or list(s.shape(weights)[2:] if len(s.node.input) > weights else ())
    strides, dilations = s.get("strides", [1] * len(kernel)), s.get("dilations", [1] * len(kernel))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    return s.get("auto_pad", b"").startswith(b"SAME") and any(a > r for a, r in zip(strides, reach))


def _reads_padding_alone(s: Seen) -> bool:
    """Whether a window of a pooling has no element of the image."""
    kernel, sizes = s.get("kernel_shape"), s.shape(0)[2:]
    rank = len(kernel)
    strides, dilations = s.get("strides", [1] * rank), s.get("dilations", [1] * rank)
    pads = s.get("pads", [0] * 2 * rank)
    for k, size, stride, d, low, high in zip(kernel, sizes, strides, dilations, pads[:rank], pads[rank:]):
        steps = max(0, -(-(size + low + high - (k - 1) * d - 1) // stride)) + 1
        for start in range(-low, -low + steps * stride, stride):
            if not any(0 <= start + i * d < size for i in range(k)):
                return True
    return False


def _odd_scale(s: Seen) -> bool:
    """A scale, or a slope, that is not finite, or so large that products with it are not."""
    scales = [numpy_helper.to_array(s.weights[n]) for n in s.node.input if n in s.weights]
    return any(a.dtype.kind == "f" and not np.all(np.abs(a) < 1e30) for a in [*scales, np.float32(s.get("alpha", 0))])


def _has_many_steps(s: Seen) -> bool:
    """Whether one step of the operands may be so many of the result's that an int32 does not count them."""
    last = 3 if s.node.op_type == "QLinearAveragePool" else 6
    scales = [s.value(k) for k in (1, 4, last) if k <= last]
    if any(v is None for v in scales):
        return False
    *operands, result = (np.abs(v.astype(np.float64)) for v in scales)
    largest = [float(np.max(v, initial=0.0)) for v in operands]
    step = math.prod(largest) * 2**8 if s.node.op_type == "QLinearMul" else max(largest)
    return bool(np.any(step > 2.0**21 * result))


def _odd_factor(s: Seen) -> bool:
    """Whether the scales of a product over that of the result are no number of float32."""
    scales = [s.value(k) for k in (1, 4, 6)]
    if any(v is None for v in scales):
        return False
    x, weight, result = (v.astype(np.float32) for v in scales)
    with np.errstate(all="ignore"):
        return not np.all(np.isfinite(x * weight / result))


def _mixes_pads(s: Seen) -> bool:
    """Whether it matters that the reference takes the pads for top, bottom, left, right: it does with strides of 1."""
    pads = s.get("pads", ())
    return len(pads) == 4 and pads[1] != pads[2] and set(s.get("strides", [1])) == {1} == set(s.get("dilations", [1]))


def _leaves_out_pads(s: Seen) -> bool:
    """Whether it matters that the reference, with strides of 1, pads images of two axes alone."""
    pads = s.get("pads", ())
    is_plain = set(s.get("strides", [1])) == {1} == set(s.get("dilations", [1]))
    return len(pads) != 4 and any(pads) and is_plain


def _has_far_taps(s: Seen) -> bool:
    """A dilation that an int32 does not hold: along an axis of one tap, else the image would be as large."""
    return bool(max(s.get("dilations", [1])) >= 1 << 31)


def _one_corner(s: Seen) -> bool:
    """Corners aligned along an axis of one element."""
    return bool(s.get("align_corners", 0))


def _scaled_corners(s: Seen) -> bool:
    """Corners aligned, sizes given as scales: their product with the size may be no integer."""
    by_scales = len(s.node.input) < 4 or not s.node.input[3]
    return bool(by_scales and s.get("coordinate_transformation_mode", b"half_pixel") == b"align_corners")


def _begins_before(s: Seen) -> bool:
    """Whether a slice that may walk backwards has a start before the first element of an axis."""
    if len(s.node.input) < 5 or s.node.input[1] not in s.weights:
        return False
    starts = numpy_helper.to_array(s.weights[s.node.input[1]])
    return bool(np.any(starts < -min(s.shape(0), default=0)))


def _recurrent(s: Seen) -> bool:
    """Lengths, other activations, clipping, or another direction than forward."""
    lengths = len(s.node.input) > 4 and bool(s.node.input[4])
    more = any(s.get(name) for name in ("activations", "clip", "input_forget", "layout"))
    return lengths or more or s.get("direction", b"forward") != b"forward"


def _overflows(s: Seen) -> bool:
    """Whether integers are added up or multiplied beyond their type, or may be."""
    kind = s.types.get(s.node.input[0], (0, ()))[0]
    if kind not in (TensorProto.INT32, TensorProto.INT64):
        return False
    given = s.value(0)
    if given is None or isinstance(given, list):
        return True
    numbers = np.abs(given.astype(np.float64))
    if s.node.op_type in ("ReduceL1", "ReduceSum", "ReduceMean"):
        return float(np.sum(numbers)) >= 2.0 ** (30 if kind == TensorProto.INT32 else 62)
    if s.node.op_type == "ReduceProd":
        most = float(np.sum(np.log2(np.maximum(numbers, 1))))
        return most >= (30 if kind == TensorProto.INT32 else 62)
    return float(np.sum(numbers * numbers)) >= 2.0 ** (30 if kind == TensorProto.INT32 else 62)


def _is_float(s: Seen) -> bool:
    return any(s.reads(kind) for kind in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16))


def _has_no_variance(s: Seen) -> bool:
    """Whether the elements of a normalisation are all equal somewhere, or their squares are infinite, or may be."""
    given, axes = s.value(0), tuple(s.get("axes", (0, 2, 3)))
    if given is None or not given.size or max(axes, default=0) >= given.ndim:
        return True
    wide = given.astype(np.float64)
    return bool(np.any(np.ptp(wide, axis=axes) == 0)) or not np.all(np.abs(wide) < 1e15)


def _is_empty_with_negative_axis(s: Seen) -> bool:
    """Whether a tensor without elements is reduced along an axis that is counted from the end."""
    given = s.value(1) if len(s.node.input) > 1 else s.get("axes", s.get("axis", ()))
    return 0 in s.shape(0) and (given is None or bool(np.any(np.asarray(given, np.int64) < 0)))


def _is_certain(s: Seen) -> bool:
    """Whether a softmax goes over one element, which is 1."""
    shape, axis = s.shape(0), s.get("axis", -1)
    return int(np.prod(shape[axis:] if s.get("opset", 13) < 13 else shape[axis])) == 1


def _odd_weight(s: Seen) -> bool:
    """Whether a weight is no finite number."""
    weight = s.value(1)
    return weight is not None and not np.all(np.isfinite(weight.astype(np.float64)))


def _odd_leaf(s: Seen) -> bool:
    """Whether a number of a leaf or of the start of a sum is not finite."""
    return not np.all(np.isfinite([*s.get("class_weights", ()), *s.get("base_values", ())]))


def _repeats_category(s: Seen) -> bool:
    """Whether a category stands twice in its list."""
    names = [*s.get("cats_int64s", ()), *s.get("cats_strings", ())]
    return len(set(names)) < len(names)


def _odd_steps(s: Seen) -> bool:
    """Whether there is no whole number of steps of the result's scale in 1."""
    steps = 1 / np.asarray(1 if (scale := s.value(3)) is None else scale, np.float64)
    return bool(np.any(np.abs(steps - np.round(steps)) > 1e-6))


def _declares_otherwise(s: Seen) -> bool:
    """Whether the body declares a state of another shape than that of what is given."""
    body = s.get("body")
    declared = [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in body.input[2:]] if body else []
    return any(tuple(have) != s.shape(k + 2) for k, have in enumerate(declared) if k + 2 < len(s.node.input))


def _scans_otherwise(s: Seen) -> bool:
    """Whether the body declares a scan output of another shape than it has by inference."""
    body = GraphProto()
    body.CopyFrom(s.get("body"))
    scans = body.output[len(body.input) - 1 :]
    declared = [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in scans]
    for output in scans:
        output.type.tensor_type.ClearField("shape")
    made = onnx.shape_inference.infer_shapes(helper.make_model(body, opset_imports=[helper.make_opsetid("", s.opset)]))
    has = [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in made.graph.output[len(body.input) - 1 :]]
    return any(have and have != told for have, told in zip(has, declared))


def _holds_nan(s: Seen) -> bool:
    """Whether a number is none, or may be: one of the inputs holds none or an infinity, or a node makes some."""
    if s.value(0) is None and s.makes_nan:
        return True
    given = [s.value(0)] if s.value(0) is not None else list(s.inputs.values())
    arrays = [a for a in given if isinstance(a, np.ndarray) and a.dtype.kind not in "iubUO"]
    return any(not np.all(np.isfinite(a.astype(np.float64))) for a in arrays)


def _odd_state(s: Seen) -> bool:
    """Whether a weight of the state is no finite number."""
    weight = s.value(2)
    return weight is not None and not np.all(np.isfinite(weight.astype(np.float64)))


def _has_large(s: Seen) -> bool:
    """Whether a square is that large that float32 loses others beside it."""
    given = s.value(0)
    return given is not None and not np.all(np.abs(given.astype(np.float64)) < 50)


def _is_open(s: Seen) -> bool:
    """Whether a bound is not given and a number may be infinite."""
    has_both = all(s.value(k) is not None or s.get(name) is not None for k, name in ((1, "min"), (2, "max")))
    return not has_both and _holds_nan(s)


def _rounds_places(s: Seen) -> bool:
    """Whether the nearest element is taken, by scales that are no fractions of 64."""
    scales = next((v for k in (2, 1) if (v := s.value(k)) is not None and v.dtype.kind == "f"), np.ones(0))
    return s.get("mode", b"nearest") == b"nearest" and bool(np.any(scales * 64 % 1))


_PARTIAL = words("Acos Acosh Asin Atanh Log Sqrt Pow Mod ReduceLogSum")
_SAME = "SAME_* with a stride beyond the kernel: the one pads by less than nothing, the other raises"
_CHANNELS = "takes the channels of (N, C) for a spatial axis"
NOT_TRUE: tuple[NotTrue, ...] = (
    NotTrue("MaxPool", BOTH, _SAME, _skips_pixels),
    NotTrue("AveragePool", BOTH, _SAME, _skips_pixels),
    NotTrue("LpPool", BOTH, _SAME, _skips_pixels),
    NotTrue(
        "AffineGrid",
        BOTH,
        "one element, aligned with both corners: either corner or beyond, where PyTorch has the centre",
        _one_corner,
    ),
    NotTrue("MeanVarianceNormalization", ORT, "the difference of two sums: no number where all elements are equal"),
    NotTrue("Shrink", ORT, "float64 by way of float32", lambda s: s.reads(TensorProto.DOUBLE)),
    NotTrue("Slice", REFERENCE, "a start before the first element of a slice backwards is numpy's", _begins_before),
    *(
        NotTrue(
            op,
            BOTH,
            "a sum or a product beyond its type has no meaning: the one clamps it, the other wraps",
            _overflows,
        )
        for op in ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd")
    ),
    *(
        NotTrue(op, ORT, "what is no number counts or not, by where it stands", _holds_nan)
        for op in ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "GlobalMaxPool", "Hardmax")
    ),
    *(
        NotTrue(
            op, ORT, "leaves out the product of the first state, which is 0, with a weight that is infinite", _odd_state
        )
        for op in ("RNN", "GRU", "LSTM")
    ),
    NotTrue("MatMulInteger", ORT, "a product of no terms is left unwritten", lambda s: s.shape(0)[-1:] == (0,)),
    NotTrue("LRN", ORT, "takes squares from a sum that moves along the channels, which cancel", _has_large),
    NotTrue("Clip", BOTH, "an infinity without a bound: the one makes it the largest number, the other not", _is_open),
    NotTrue("Resize", ORT, "rounds places to float32 before they are floored", _rounds_places),
    NotTrue("ReduceLogSumExp", ORT, "integers: adds the whole part of the logarithm", lambda s: not _is_float(s)),
    NotTrue("QLinearSoftmax", ORT, "takes the whole part of how many steps of the scale are in 1", _odd_steps),
    NotTrue(
        "QLinearSoftmax",
        ORT,
        "keeps 32 bits of the operator set: of 2^63 - 1 they are -1, which is before 13",
        lambda s: not -(1 << 31) <= s.get("opset", 13) < 1 << 31,
    ),
    *(
        NotTrue(op, ORT, "multiplies a dilation beyond int32 until it wraps", _has_far_taps)
        for op in ("MaxPool", "AveragePool", "LpPool", "ConvTranspose")
    ),
    NotTrue("Loop", ORT, "no iterations: the shapes that the body declares, not its own", _declares_otherwise),
    NotTrue("Loop", ORT, "no iterations: the body declares a scan output of another shape", _scans_otherwise),
    NotTrue(
        "ConvTranspose",
        BOTH,
        "a weight that is no number: here it meets the zeros between the elements (docs/limits.md)",
        _odd_weight,
    ),
    NotTrue("MaxPool", BOTH, "what is no number does not count; here it is the largest", _holds_nan),
    *(
        NotTrue(op, ORT, "leaves negative axes of a tensor without elements as they are", _is_empty_with_negative_axis)
        for op in words(
            "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
            "ReduceSumSquare ArgMax ArgMin"
        )
    ),
    NotTrue("QLinearSoftmax", ORT, "1 is 256 steps of 1 / 256, which wraps to 0", _is_certain),
    NotTrue(
        "Gemm",
        ORT,
        "forgets beta where the product has no terms",
        lambda s: 0 in s.shape(0) and s.get("beta", 1.0) != 1.0,
    ),
    *(
        NotTrue(op, BOTH, "says nothing of what is no number: here the zero point (docs/limits.md)", _holds_nan)
        for op in ("QuantizeLinear", "DynamicQuantizeLinear")
    ),
    NotTrue(
        "InstanceNormalization",
        ORT,
        "a plane of one element is its bias; the difference of two products of 316 times its size is 1e-5 beside it",
        lambda s: int(np.prod(s.shape(0)[2:])) == 1,
    ),
    NotTrue("HardSwish", BOTH, "float64 by constants of float32", lambda s: s.reads(TensorProto.DOUBLE)),
    *(NotTrue(op, ORT, _SAME, _skips_pixels) for op in ("Conv", "ConvInteger", "QLinearConv", "FusedConv")),
    NotTrue("MaxPool", BOTH, "the largest of no element: the least finite number, no number", _reads_padding_alone),
    NotTrue(
        "Resize", ORT, "rounds the result's size before it aligns the corners, unlike ONNX's tests", _scaled_corners
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
        _skips_pixels,
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
        NotTrue(op, ORT, "what is infinite or no number becomes whatever the processor's conversion says", _odd_scale)
        for op in words(
            "QuantizeLinear QLinearAdd QLinearMul QLinearLeakyRelu QLinearSigmoid QLinearConcat QLinearAveragePool "
            "QLinearGlobalAveragePool"
        )
    ),
    *(
        NotTrue(op, ORT, "more steps than an int32 counts: the least number where the largest is due", _has_many_steps)
        for op in ("QLinearAdd", "QLinearMul", "QLinearAveragePool")
    ),
    *(
        NotTrue(op, BOTH, "the factor of a sum overflows: 0 times it is no number, where here it is 0", _odd_factor)
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
        lambda s: 0 in s.shape(0) and not _is_float(s),
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
    NotTrue("ReduceSumSquare", REFERENCE, "32-bit integers give 64-bit ones", lambda s: not _is_float(s)),
    NotTrue(
        "Pow", REFERENCE, "integers wrap; ONNX Runtime's, and ours, go by way of float64", lambda s: not _is_float(s)
    ),
    NotTrue("QLinearConv", REFERENCE, "mixes up the axes of images of other than two", lambda s: len(s.shape(0)) != 4),
    NotTrue("MaxPool", REFERENCE, "takes the second pad for the third, with strides of 1", _mixes_pads),
    NotTrue("MaxPool", REFERENCE, "with strides of 1, pads images of two axes alone", _leaves_out_pads),
    NotTrue(
        "MaxPool",
        REFERENCE,
        "the places of the largest values count the padding",
        lambda s: len(s.node.output) > 1 and any(s.get("pads", ())),
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
        "OneHotEncoder", REFERENCE, "compares real numbers with integers; others compare their whole part", _is_float
    ),
    NotTrue("OneHotEncoder", BOTH, "a category that stands twice: one place of it, here each", _repeats_category),
    NotTrue("TreeEnsembleClassifier", BOTH, "which score is the largest where one is no number", _odd_leaf),
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
    NotTrue("Resize", REFERENCE, "leaves out what is no number where its weight is 0", _holds_nan),
    NotTrue("MeanVarianceNormalization", REFERENCE, "divides 0 by 0 where all are equal", _has_no_variance),
    NotTrue("LRN", REFERENCE, "as many channels have neighbours as there are images"),
    NotTrue("BatchNormalization", REFERENCE, "before opset 14 it is that of training", lambda s: s.opset < 14),
    *(NotTrue(op, REFERENCE, "knows the plain form only", _recurrent) for op in ("RNN", "GRU", "LSTM")),
    NotTrue(
        "MaxUnpool",
        ORT,
        "takes the indices for places in output_shape, the standard for places in the shape of the pooled image",
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
