"""What an ONNX model should give: by ONNX Runtime and by the reference evaluator of the onnx package.

In: a model and its inputs. Out: a list of arrays from each, or the exception, where nobody is known to be wrong
(onnx_not_true.py). Invariant: `spread` says how far rounding alone moves the outputs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_not_true import ORT, REFERENCE, nodes_of, not_asked, words

Array = np.ndarray[Any, Any]
Arrays = list[Array]


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


# --- who is asked -----------------------------------------------------------------------------------------------------


class NoTruth(Exception):
    """Nobody is to be asked about a node."""


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


def in_float64(model: ModelProto, inputs: dict[str, Array]) -> Arrays:
    """Outputs node by node in float64 where the model says float32; it raises if a node has no truth.

    float32 loses digits of long sums: ONNX Runtime's softmax over 393,216 equal numbers sums to 0.9999.
    """
    wanted = by_onnxruntime(model, inputs)
    found = _evaluate(model, inputs, None, strict=True, wide=True)
    with np.errstate(all="ignore"):
        return [np.asarray(a).astype(np.asarray(w).dtype) for a, w in zip(found, wanted, strict=True)]


# --- comparing --------------------------------------------------------------------------------------------------------

_LOST = 256  # units of the last place of the largest number that a spectrum of ONNX Runtime's loses
_GRAINS = 4  # multiples of the least number above 0 that products below the normal ones may be off
LEAST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def difference(got: Array, want: Array, room: Array | None = None) -> str:
    """Where two arrays differ by more than rounding (`room`: a limit per element); empty if nowhere."""
    got, want = np.asarray(got), np.asarray(want)
    is_open = room is not None and room.shape == () and bool(np.isinf(room))  # its shape is not settled either
    if is_open and got.dtype == want.dtype and got.ndim == want.ndim and got.shape != want.shape:
        return ""
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
            limit = np.fmax(limit, _GRAINS * LEAST.get(str(want.dtype), 0.0))
            if room is not None and eps is not None:  # ONNX Runtime's polynomials lose digits below the normal numbers
                limit = np.fmax(limit, LEAST[str(want.dtype)] / eps)
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
    "Gelu BiasGelu FastGelu QuickGelu Softplus Elu Selu Celu Mish BlackmanWindow HammingWindow HannWindow Sigmoid "
    "RNN GRU LSTM"
)  # small results of large terms; ONNX Runtime's sigmoid of -20 is 0, its tanh inside of an RNN is 8e-6 off near 0
_KEPT = {"QLinearSoftmax": (3,)}  # ONNX Runtime takes one scale of the result alone
_PLACES = words("Resize Upsample GridSample RoiAlign AffineGrid DeformConv")  # what is read lies at a rounded place
_SPECTRA = words(
    "DFT STFT"
)  # ONNX Runtime's are off by a millionth of their largest value, ours by a hundredth of that
_SUMS = words("Softmax LogSoftmax ReduceSum ReduceMean ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare")
_LONG = 4096  # terms; of more, sums of equal ones are off by the root of their number
_TILES = words("Conv FusedConv")  # transforms (Winograd, Fourier) lose digits of the largest number of a tile
_EXACT = words(
    "Abs Neg Relu Identity Reshape Transpose Squeeze Unsqueeze Flatten Concat Slice Gather GatherElements "
    "GatherND Expand Tile Pad Min Max Clip Split Where MaxPool GlobalMaxPool ReduceMax ReduceMin TopK "
    "DepthToSpace SpaceToDepth Trilu ScatterElements ScatterND Compress ReverseSequence Cast CastLike Floor Ceil "
    "Round Sign Constant ConstantOfShape Dropout EyeLike OneHot Range Shape Size"
)


_PATIENCE = 20.0  # seconds; the reference takes long for large windows


def spread(model: ModelProto, inputs: dict[str, Array], trials: int = 40) -> list[Array]:
    """Per output element, how far it moves when every number that is read moves by a few units of its last place."""
    rng = np.random.default_rng(1)
    base = _evaluate(model, inputs, None)
    moved, start = [], time.monotonic()
    while len(moved) < trials and time.monotonic() - start < _PATIENCE:
        moved.append(_evaluate(model, inputs, rng))
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
    model: ModelProto,
    inputs: dict[str, Array],
    rng: np.random.Generator | None,
    strict: bool = False,
    wide: bool = False,
) -> Arrays:
    """The outputs, node by node. With `rng` what each node reads is moved; `strict` takes no answer known to err."""
    values: dict[str, Any] = dict(inputs)
    values.update({t.name: numpy_helper.to_array(t) for t in model.graph.initializer})
    if wide:
        values = {name: _widened(value) for name, value in values.items()}
    exact = set(values)
    for node in model.graph.node:
        if node.op_type in _EXACT and all(n in exact for n in node.input if n):
            exact.update(node.output)
        read = [n for n in _read(node) if n in values]
        given = {n: values[n] for n in read}
        if rng is not None:
            fixed = exact if node.op_type in _DECIDES else {node.input[k] for k in _KEPT.get(node.op_type, ())}
            given = {n: a if n in fixed else _moved(a, rng) for n, a in given.items()}
            if node.op_type == "NonZero" and node.input[0] not in exact:
                given = {n: _without_one(a, rng) for n, a in given.items()}
        found = _evaluate_one(model, node, given, strict)
        if rng is not None:
            found = _by_other_algorithms(node, given, found, rng)
        if wide:
            found = [_widened(a) for a in found]
        values.update(zip([n for n in node.output if n], found))
    results = [values[o.name] for o in model.graph.output]
    names = [o.name for o in model.graph.output]
    return [a if rng is None or n in exact else _moved(a, rng) for n, a in zip(names, results)]


def _by_other_algorithms(node: NodeProto, given: dict[str, Any], found: Arrays, rng: np.random.Generator) -> Arrays:
    """Results moved by what one algorithm loses beside another, beyond the rounding of what is read."""
    op = node.op_type
    if op in _SUBTRACTS | _PLACES | _SPECTRA:
        size = _largest(given, op in _PLACES) * (_LOST if op in _SPECTRA else 1)
        if op in _PLACES:
            size *= max(1, *(extent for a in (*given.values(), *found) for extent in np.shape(a)))
        return [_shaken(a, size, rng) for a in found]
    if op in _TILES and max(given[node.input[1]].shape[2:], default=1) > 2:
        return [_shaken(a, _largest({"": a}, False), rng) for a in found]
    if op in _SUMS and (terms := max(np.size(a) for a in given.values())) > _LONG:
        return [_moved(a, rng, terms**0.5 / 8) for a in found]
    return found


def _widened(value: Any) -> Any:
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype == np.float32 else value


def _without_one(value: Array, rng: np.random.Generator) -> Array:
    """A zero in one place: how many there are rounding decides."""
    made = np.array(value)
    made.reshape(-1)[rng.integers(0, max(made.size, 1), min(made.size, 1))] = 0
    return made


def _largest(given: dict[str, Any], places: bool) -> float:
    """The size of what cancels: 1 or the largest sum of what is read; of places, the largest of what lies there."""
    first = next(iter(given.values()))
    added = 0.0
    for value in [first] if places else given.values():
        numbers = np.abs(np.asarray(value, np.float64))
        added += float(np.max(numbers[np.isfinite(numbers)], initial=0.0))
    return max(1.0, added)


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


def _moved(value: Any, rng: np.random.Generator, units: float = 2.0) -> Any:
    if isinstance(value, list):
        return [_moved(v, rng, units) for v in value]
    eps = EPS.get(str(np.asarray(value).dtype))
    if eps is None:
        return value
    with np.errstate(all="ignore"):
        noise = 1 + eps * rng.uniform(-units, units, np.shape(value))
        return np.asarray(np.where(np.isfinite(value), np.asarray(value, np.float64) * noise, value)).astype(
            value.dtype
        )
