"""A node of a model as the table of whom not to ask sees it, and what its rows ask of it.

In: a node, its opset, types, weights and inputs. Out: `Seen`, and conditions: whether a node is one whose answer by one
of the others is known to be none. Invariant: a condition says nothing of whom it blames; rows of onnx_not_true.py do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from armillary.target.cpu import cpu_model

Array = np.ndarray[Any, Any]


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


WEIGHT_PLACES = {
    "MatMulInteger": 1,
    "MatMulIntegerToFloat": 1,
    "DynamicQuantizeMatMul": 1,
    "ConvInteger": 1,
    "QAttention": 1,
    "DynamicQuantizeLSTM": 1,
    "QLinearConv": 3,
    "QLinearMatMul": 3,
    "QGemm": 3,
}


def saturates_pairs(s: Seen) -> bool:
    """Bytes times weights that may be signed, on x86 without dot products of bytes."""
    host = cpu_model("llvm")
    has_dots = host.arch != "x86_64" or {"avx512vnni", "avxvnni"} & host.features
    return not has_dots and not s.reads(TensorProto.UINT8, WEIGHT_PLACES[s.node.op_type])


def skips_pixels(s: Seen) -> bool:
    weights = 3 if s.node.op_type == "QLinearConv" else 1
    kernel = s.get("kernel_shape") or list(s.shape(weights)[2:] if len(s.node.input) > weights else ())
    strides, dilations = s.get("strides", [1] * len(kernel)), s.get("dilations", [1] * len(kernel))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    return s.get("auto_pad", b"").startswith(b"SAME") and any(a > r for a, r in zip(strides, reach))


def reads_padding_alone(s: Seen) -> bool:
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


def odd_scale(s: Seen) -> bool:
    """A scale, or a slope, that is not finite, or so large that products with it are not."""
    scales = [numpy_helper.to_array(s.weights[n]) for n in s.node.input if n in s.weights]
    return any(a.dtype.kind == "f" and not np.all(np.abs(a) < 1e30) for a in [*scales, np.float32(s.get("alpha", 0))])


def has_many_steps(s: Seen) -> bool:
    """Whether one step of the operands may be so many of the result's that an int32 does not count them."""
    last = 3 if s.node.op_type == "QLinearAveragePool" else 6
    scales = [s.value(k) for k in (1, 4, last) if k <= last]
    if any(v is None for v in scales):
        return False
    *operands, result = (np.abs(v.astype(np.float64)) for v in scales)
    largest = [float(np.max(v, initial=0.0)) for v in operands]
    step = math.prod(largest) * 2**8 if s.node.op_type == "QLinearMul" else max(largest)
    return bool(np.any(step > 2.0**21 * result))


def odd_factor(s: Seen) -> bool:
    """Whether the scales of a product over that of the result are no number of float32."""
    scales = [s.value(k) for k in (1, 4, 6)]
    if any(v is None for v in scales):
        return False
    x, weight, result = (v.astype(np.float32) for v in scales)
    with np.errstate(all="ignore"):
        return not np.all(np.isfinite(x * weight / result))


def mixes_pads(s: Seen) -> bool:
    """Whether it matters that the reference takes the pads for top, bottom, left, right: it does with strides of 1."""
    pads = s.get("pads", ())
    return len(pads) == 4 and pads[1] != pads[2] and set(s.get("strides", [1])) == {1} == set(s.get("dilations", [1]))


def leaves_out_pads(s: Seen) -> bool:
    """Whether it matters that the reference, with strides of 1, pads images of two axes alone."""
    pads = s.get("pads", ())
    is_plain = set(s.get("strides", [1])) == {1} == set(s.get("dilations", [1]))
    return len(pads) != 4 and any(pads) and is_plain


def has_far_taps(s: Seen) -> bool:
    """A dilation that an int32 does not hold: along an axis of one tap, else the image would be as large."""
    return bool(max(s.get("dilations", [1])) >= 1 << 31)


def one_corner(s: Seen) -> bool:
    """Corners aligned along an axis of one element."""
    return bool(s.get("align_corners", 0))


def scaled_corners(s: Seen) -> bool:
    """Corners aligned, sizes given as scales: their product with the size may be no integer."""
    by_scales = len(s.node.input) < 4 or not s.node.input[3]
    return bool(by_scales and s.get("coordinate_transformation_mode", b"half_pixel") == b"align_corners")


def begins_before(s: Seen) -> bool:
    """Whether a slice that may walk backwards has a start before the first element of an axis."""
    if len(s.node.input) < 5 or s.node.input[1] not in s.weights:
        return False
    starts = numpy_helper.to_array(s.weights[s.node.input[1]])
    return bool(np.any(starts < -min(s.shape(0), default=0)))


def recurrent(s: Seen) -> bool:
    """Lengths, other activations, clipping, or another direction than forward."""
    lengths = len(s.node.input) > 4 and bool(s.node.input[4])
    more = any(s.get(name) for name in ("activations", "clip", "input_forget", "layout"))
    return lengths or more or s.get("direction", b"forward") != b"forward"


def overflows(s: Seen) -> bool:
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


def is_float(s: Seen) -> bool:
    return any(s.reads(kind) for kind in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16))


def has_no_variance(s: Seen) -> bool:
    """Whether the elements of a normalisation are all equal somewhere, or their squares are infinite, or may be."""
    given, axes = s.value(0), tuple(s.get("axes", (0, 2, 3)))
    if given is None or not given.size or max(axes, default=0) >= given.ndim:
        return True
    wide = given.astype(np.float64)
    return bool(np.any(np.ptp(wide, axis=axes) == 0)) or not np.all(np.abs(wide) < 1e15)


def is_empty_with_negative_axis(s: Seen) -> bool:
    """Whether a tensor without elements is reduced along an axis that is counted from the end."""
    given = s.value(1) if len(s.node.input) > 1 else s.get("axes", s.get("axis", ()))
    return 0 in s.shape(0) and (given is None or bool(np.any(np.asarray(given, np.int64) < 0)))


def is_certain(s: Seen) -> bool:
    """Whether a softmax goes over one element, which is 1."""
    shape, axis = s.shape(0), s.get("axis", -1)
    return int(np.prod(shape[axis:] if s.get("opset", 13) < 13 else shape[axis])) == 1


def odd_weight(s: Seen) -> bool:
    """Whether a weight is no finite number."""
    weight = s.value(1)
    return weight is not None and not np.all(np.isfinite(weight.astype(np.float64)))


def odd_leaf(s: Seen) -> bool:
    """Whether a number of a leaf, of the start of a sum or of a line is not finite."""
    names = ("class_weights", "base_values", "coefficients", "intercepts")
    return not all(np.all(np.isfinite(s.get(name, ()))) for name in names)


def repeats_category(s: Seen) -> bool:
    """Whether a category stands twice in its list."""
    names = [*s.get("cats_int64s", ()), *s.get("cats_strings", ())]
    return len(set(names)) < len(names)


def odd_steps(s: Seen) -> bool:
    """Whether there is no whole number of steps of the result's scale in 1."""
    steps = 1 / np.asarray(1 if (scale := s.value(3)) is None else scale, np.float64)
    return bool(np.any(np.abs(steps - np.round(steps)) > 1e-6))


def declares_otherwise(s: Seen) -> bool:
    """Whether the body declares a state of another shape than that of what is given."""
    body = s.get("body")
    declared = [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in body.input[2:]] if body else []
    return any(tuple(have) != s.shape(k + 2) for k, have in enumerate(declared) if k + 2 < len(s.node.input))


def scans_otherwise(s: Seen) -> bool:
    """Whether the body declares a scan output of another shape than it has by inference."""
    body = GraphProto()
    body.CopyFrom(s.get("body"))
    first = len(body.input) - 1
    declared = [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in body.output[first:]]
    for output in body.output[first:]:
        output.type.tensor_type.ClearField("shape")
    own = {i.name for i in body.input} | {t.name for t in body.initializer} | {o for n in body.node for o in n.output}
    for name in {i for n in body.node for i in n.input if i} - own:  # values of the graph around the loop
        body.input.append(helper.make_tensor_value_info(name, *s.types.get(name, (TensorProto.UNDEFINED, None))))
    made = onnx.shape_inference.infer_shapes(helper.make_model(body, opset_imports=[helper.make_opsetid("", s.opset)]))
    has = [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in made.graph.output[first:]]
    return any(have and have != message for have, message in zip(has, declared))


def rounds_size(s: Seen) -> bool:
    """Whether float32 rounds the product of a size and a scale up to the next integer."""
    scales = s.value(2 if s.opset > 10 else 1)
    if scales is None:
        return False
    sizes = np.asarray(s.shape(0), np.float32)
    return bool(np.any(np.floor(sizes * scales) != np.floor(sizes.astype(np.float64) * scales)))


def has_large_power(s: Seen) -> bool:
    """Whether a power of integers is known to have more digits than float64, or than its type."""
    base, exponent = s.value(0), s.value(1)
    if is_float(s) or base is None or exponent is None:
        return False
    with np.errstate(all="ignore"):
        most = 31 if base.dtype == np.int32 else 53
        return not np.all(exponent * np.log2(np.maximum(np.abs(base.astype(np.float64)), 1)) < most)


def holds_nan(s: Seen) -> bool:
    """Whether a number is none, or may be: one of the inputs holds none or an infinity, or a node makes some."""
    if s.value(0) is None and s.makes_nan:
        return True
    given = [s.value(0)] if s.value(0) is not None else list(s.inputs.values())
    arrays = [a for a in given if isinstance(a, np.ndarray) and a.dtype.kind not in "iubUO"]
    return any(not np.all(np.isfinite(a.astype(np.float64))) for a in arrays)


def odd_state(s: Seen) -> bool:
    """Whether a weight of the state is no finite number."""
    weight = s.value(2)
    return weight is not None and not np.all(np.isfinite(weight.astype(np.float64)))


def has_large(s: Seen) -> bool:
    """Whether a square is that large that float32 loses others beside it."""
    given = s.value(0)
    return given is not None and not np.all(np.abs(given.astype(np.float64)) < 50)


def is_open(s: Seen) -> bool:
    """Whether a bound is not given and a number may be infinite."""
    has_both = all(s.value(k) is not None or s.get(name) is not None for k, name in ((1, "min"), (2, "max")))
    return not has_both and holds_nan(s)


def rounds_places(s: Seen) -> bool:
    """Whether the nearest element is taken, by scales that are no fractions of 64."""
    scales = next((v for k in (2, 1) if (v := s.value(k)) is not None and v.dtype.kind == "f"), np.ones(0))
    return s.get("mode", b"nearest") == b"nearest" and bool(np.any(scales * 64 % 1))
