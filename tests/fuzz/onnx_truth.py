"""What an ONNX model should give: by ONNX Runtime and by the reference evaluator of the onnx package.

In: a model and its inputs. Out: a list of arrays from each, or the exception; `NOT_TRUE` lists where one of the two is
known to be wrong or is not defined, so that it is not asked. Invariant: a row of that table names the operator, whom it
blames, when, and why; `spread` says how far rounding alone moves the outputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]
Arrays = list[Array]
ORT, REFERENCE, BOTH = "ONNX Runtime", "onnx reference", "both"


def by_onnxruntime(model: ModelProto, inputs: dict[str, Any]) -> Arrays:
    """ONNX Runtime's outputs, without its graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def by_reference(model: ModelProto, inputs: dict[str, Any]) -> Arrays:
    """The reference evaluator's outputs."""
    with np.errstate(all="ignore"):
        return [a if isinstance(a, list) else np.asarray(a) for a in ReferenceEvaluator(model).run(None, inputs)]


# --- what is not asked ------------------------------------------------------------------------------------------------


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


class NoTruth(Exception):
    """Nobody is to be asked about a node."""


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
        """The value of an attribute."""
        for item in self.node.attribute:
            if item.name == name:
                return helper.get_attribute_value(item)
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
    """A scale that is not finite, or so large that products with it are not."""
    scales = [numpy_helper.to_array(s.weights[n]) for n in s.node.input if n in s.weights]
    return any(a.dtype.kind == "f" and not np.all(np.abs(a) < 1e30) for a in scales)


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
    if s.node.op_type == "ReduceL1":
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
    if given is None:
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


def _holds_nan(s: Seen) -> bool:
    """Whether a number is none, or may be: one of the inputs holds none or an infinity, or a node makes some."""
    if s.value(0) is None and s.makes_nan:
        return True
    given = [s.value(0)] if s.value(0) is not None else list(s.inputs.values())
    arrays = [a for a in given if isinstance(a, np.ndarray) and a.dtype.kind not in "iubUO"]
    return any(not np.all(np.isfinite(a.astype(np.float64))) for a in arrays)


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
        for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd")
    ),
    *(
        NotTrue(op, ORT, "what is no number counts or not, by where it stands", _holds_nan)
        for op in ("ReduceMax", "ReduceMin")
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
        for op in ("QuantizeLinear", "QLinearAdd", "QLinearMul", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearConcat")
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
    NotTrue("ReduceSumSquare", REFERENCE, "32-bit integers give 64-bit ones", lambda s: not _is_float(s)),
    NotTrue(
        "Pow", REFERENCE, "integers wrap; ONNX Runtime's, and ours, go by way of float64", lambda s: not _is_float(s)
    ),
    NotTrue("QLinearConv", REFERENCE, "mixes up the axes of images of other than two", lambda s: len(s.shape(0)) != 4),
    NotTrue("MeanVarianceNormalization", REFERENCE, "divides 0 by 0 where all are equal", _has_no_variance),
    NotTrue("LRN", REFERENCE, "an even size leaves out the last channel", lambda s: s.get("size", 1) % 2 == 0),
    NotTrue("BatchNormalization", REFERENCE, "before opset 9 it is that of training", lambda s: s.opset < 9),
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
            if row.when(Seen(node, opset, types, weights, inputs, makes_nan)):
                for who in (ORT, REFERENCE) if row.who == BOTH else (row.who,):
                    found[who] = f"{row.op}: {row.why}"
    return found


_OUTSIDE = re.compile(
    "out of (bounds|range)|out-of-bounds|within the inclusive range|must be within|invalid ind(ex|ices)", re.I
)


def truths(model: ModelProto, inputs: dict[str, Array]) -> tuple[dict[str, Arrays], dict[str, str]]:
    """Outputs by who gives them, and why the others do not."""
    skipped, found = not_asked(model, inputs), {}
    for who, ask in ((ORT, by_onnxruntime), (REFERENCE, by_reference)):
        if who not in skipped:
            try:
                found[who] = ask(model, inputs)
            except Exception as error:
                skipped[who] = f"{type(error).__name__}: {error}"
                if who == ORT and _OUTSIDE.search(str(error)):
                    skipped[REFERENCE] = "numpy wraps what lies outside"
    return found, skipped


def node_by_node(model: ModelProto, inputs: dict[str, Array]) -> Arrays:
    """Outputs where each node is asked of ONNX Runtime if it can, else of the reference; it raises if neither is to be.

    One node that ONNX Runtime lacks leaves a whole graph to the reference, which errs more often.
    """
    return _evaluate(model, inputs, None, strict=True)


# --- comparing --------------------------------------------------------------------------------------------------------

_LOST = 256  # units of the last place of the largest number that a spectrum of ONNX Runtime's loses
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def difference(got: Array, want: Array, room: Array | None = None) -> str:
    """Where two arrays differ by more than rounding (`room`: a limit per element); empty if nowhere."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    eps = EPS.get(str(want.dtype))
    if eps is None and room is None:
        same = got == want
    else:
        with np.errstate(all="ignore"):
            have, truth = got.astype(np.float64), want.astype(np.float64)
            finite = np.abs(truth[np.isfinite(truth)])
            limit = 16 * (eps or 0) * (np.abs(truth) + 0.1 * min(float(finite.max(initial=0.0)), 1e30))
            if room is not None and room.shape in ((), want.shape):
                limit = np.fmax(limit, room)
            same = (
                (have == truth) | (np.isnan(have) & np.isnan(truth)) | (np.abs(have - truth) <= limit) | np.isinf(limit)
            )
    if np.all(same):
        return ""
    index = tuple(int(i[0]) for i in np.nonzero(~same)) if want.ndim else ()
    return f"{int(np.sum(~same))} of {want.size} elements; at {list(index)} {got[index]!r} for {want[index]!r}"


def differences(got: Sequence[Array], want: Sequence[Array], room: Sequence[Array] | None = None) -> str:
    """The first output that differs."""
    if len(got) != len(want):
        return f"{len(got)} outputs for {len(want)}"
    for k, (have, truth) in enumerate(zip(got, want, strict=True)):
        if isinstance(have, list) or isinstance(truth, list):
            problem = differences(have, truth) if type(have) is type(truth) else "a sequence for a tensor"
        else:
            problem = difference(have, truth, None if room is None else room[k])
        if problem:
            return f"output {k}: {problem}"
    return ""


# --- how far rounding goes --------------------------------------------------------------------------------------------


_DECIDES = words(
    "Floor Ceil Round ArgMax ArgMin Equal Less LessOrEqual Greater GreaterOrEqual Cast CastLike QuantizeLinear "
    "Sign TopK Unique IsInf IsNaN NonZero Mod Hardmax NonMaxSuppression OneHot Where Range Resize Shrink BitCast "
    "MaxPool Binarizer ThresholdedRelu Upsample RoiAlign"
)
_SUBTRACTS = words(
    "Gelu BiasGelu FastGelu QuickGelu Softplus Elu Selu Celu Mish BlackmanWindow HammingWindow HannWindow"
)  # small results of large terms
_PLACES = words("Resize Upsample GridSample RoiAlign AffineGrid DeformConv")  # what is read lies at a rounded place
_SPECTRA = words(
    "DFT STFT"
)  # ONNX Runtime's are off by a millionth of their largest value, ours by a hundredth of that
_EXACT = words(
    "Abs Neg Relu Identity Reshape Transpose Squeeze Unsqueeze Flatten Concat Slice Gather GatherElements "
    "GatherND Expand Tile Pad Min Max Clip Split Where MaxPool GlobalMaxPool ReduceMax ReduceMin TopK "
    "DepthToSpace SpaceToDepth Trilu ScatterElements ScatterND Compress ReverseSequence Cast CastLike Floor Ceil "
    "Round Sign Constant ConstantOfShape Dropout EyeLike OneHot Range Shape Size"
)


def spread(model: ModelProto, inputs: dict[str, Array], trials: int = 40) -> list[Array]:
    """Per output element, how far it moves when every number that is read moves by a few units of its last place."""
    rng = np.random.default_rng(1)
    base = _evaluate(model, inputs, None)
    moved = [_evaluate(model, inputs, rng) for _ in range(trials)]
    found = []
    with np.errstate(all="ignore"):
        for k, want in enumerate(base):
            if isinstance(want, list) or any(m[k].shape != want.shape for m in moved):
                found.append(np.asarray(np.inf))
                continue
            off = np.max([np.abs(m[k].astype(np.float64) - want.astype(np.float64)) for m in moved], axis=0)
            off = np.where(np.isnan(off), np.inf, off)
            around = float(np.max(off[np.isfinite(off)], initial=0.0)) * 0.25  # one trial may miss an element
            found.append(8 * np.maximum(off, min(around, float(np.median(off)) * 4) if off.size else 0.0))
    return found


def _evaluate(
    model: ModelProto, inputs: dict[str, Array], rng: np.random.Generator | None, strict: bool = False
) -> Arrays:
    """The outputs, node by node. With `rng` what each node reads is moved; `strict` takes no answer known to err."""
    values: dict[str, Any] = dict(inputs)
    values.update({t.name: numpy_helper.to_array(t) for t in model.graph.initializer})
    exact = set(values)
    for node in model.graph.node:
        if node.op_type in _EXACT and all(n in exact for n in node.input if n):
            exact.update(node.output)
        read = [n for n in _read(node) if n in values]
        given = {n: values[n] for n in read}
        if rng is not None:
            fixed = exact if node.op_type in _DECIDES else frozenset()
            given = {n: a if n in fixed else _moved(a, rng) for n, a in given.items()}
        found = _evaluate_one(model, node, given, strict)
        if rng is not None and node.op_type in _SUBTRACTS | _PLACES | _SPECTRA:
            size = _largest(given, node.op_type in _PLACES) * (_LOST if node.op_type in _SPECTRA else 1)
            found = [_shaken(a, size, rng) for a in found]
        values.update(zip([n for n in node.output if n], found))
    results = [values[o.name] for o in model.graph.output]
    names = [o.name for o in model.graph.output]
    return [a if rng is None or n in exact else _moved(a, rng) for n, a in zip(names, results)]


def _largest(given: dict[str, Any], places: bool) -> float:
    """The size of what cancels: 1 or the largest sum of what is read; of coordinates, that times the largest extent."""
    first = next(iter(given.values()))
    added = 0.0
    for value in [first] if places else given.values():
        numbers = np.abs(np.asarray(value, np.float64))
        added += float(np.max(numbers[np.isfinite(numbers)], initial=0.0))
    return max(1.0, added) * (max((1, *np.shape(first))) if places else 1)


def _shaken(value: Any, size: float, rng: np.random.Generator) -> Any:
    eps = EPS.get(str(np.asarray(value).dtype))
    if eps is None:
        return value
    off = eps * size * rng.choice((-1.0, 1.0), np.shape(value))  # as far as it goes: what it decides shows soon
    return (np.asarray(value) + off).astype(np.asarray(value).dtype)


def _read(node: NodeProto) -> list[str]:
    names = dict.fromkeys(n for n in node.input if n)
    for item in node.attribute:
        if item.HasField("g"):
            names.update(dict.fromkeys(n for inner in nodes_of(item.g) for n in inner.input if n))
    return list(names)


def _evaluate_one(model: ModelProto, node: NodeProto, given: dict[str, Any], strict: bool = False) -> Arrays:
    def info(name: str, value: Any) -> onnx.ValueInfoProto:
        if isinstance(value, list):
            kind = helper.np_dtype_to_tensor_dtype(value[0].dtype) if value else 1
            return helper.make_tensor_sequence_value_info(name, kind, None)
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)

    outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
    graph = helper.make_graph([node], "one", [info(n, v) for n, v in given.items()], outputs)
    one = helper.make_model(graph, opset_imports=model.opset_import, ir_version=10, functions=model.functions)
    skipped = not_asked(one, given)
    if ORT not in skipped:
        try:
            return by_onnxruntime(one, given)
        except Exception:
            pass
    if strict and REFERENCE in skipped:
        raise NoTruth(skipped[REFERENCE])
    return by_reference(one, given)


def _moved(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, list):
        return [_moved(v, rng) for v in value]
    eps = EPS.get(str(np.asarray(value).dtype))
    if eps is None:
        return value
    with np.errstate(all="ignore"):
        noise = 1 + eps * rng.uniform(-2, 2, np.shape(value))
        return np.asarray(np.where(np.isfinite(value), np.asarray(value, np.float64) * noise, value)).astype(
            value.dtype
        )
