"""What ai.onnx.ml does to features before a model sees them, and to its scores behind it.

In: Scaler, Normalizer, Binarizer, Imputer, LabelEncoder, OneHotEncoder, ArrayFeatureExtractor, FeatureVectorizer,
ZipMap. Out: arithmetic and look-ups. Invariant: strings are refused; a ZipMap gives the table of scores, whose columns
are in the order of its labels (`InferenceSession` makes the dictionaries of it).
"""

from __future__ import annotations

import math

import numpy as np

from armillary.base.aliases import Array, NumpyDtype
from armillary.errors import ModelError, TypeMismatch, UnsupportedError
from armillary.frontend.onnx.node import OnnxNode, from_onnx
from armillary.frontend.onnx.rules._checked import checked
from armillary.frontend.onnx.rules.ml.scores import ML, rows_of
from armillary.ops.nn._windows import call, type_of
from armillary.relay.expr import Expr, const


def _refuse_strings(node: OnnxNode, *names: str) -> None:
    stated = [name for name in names if node.attributes.get(name)]
    if stated:
        raise UnsupportedError(f"{node.op_type} node {node.name!r}: {stated[0]}: strings are not supported")


@from_onnx("Binarizer", domain=ML)
def binarizer(node: OnnxNode) -> Expr:
    """Whether x is above the threshold; integers are above it where they are above the integer below it."""
    x, dtype, threshold = node.input(0), node.type_of(0).dtype, float(node.float("threshold", 0.0))
    if not dtype.is_float:
        ends = np.iinfo(dtype.numpy)
        if math.isnan(threshold) or threshold >= ends.max:
            return call("zeros_like", x)
        if threshold < ends.min:
            return call("ones_like", x)
        threshold = math.floor(threshold)
    above = call("greater", x, const(np.array(threshold, dtype.numpy)))
    return call("cast", above, dtype=str(dtype))


@from_onnx("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: OnnxNode) -> Expr:
    """Columns by number."""
    columns = node.type_of(0).static[-1]
    moved = node.type_of(0).size // max(columns, 1) * node.type_of(1).size
    x, places = node.input(0), call("reshape", checked(node, 1, [(0, columns - 1)], "column", moved), newshape=(-1,))
    if node.type_of(0).ndim == 1:
        x = call("expand_dims", x, axis=0)
    return call("take", x, places, axis=-1)


@from_onnx("Scaler", domain=ML)
def scaler(node: OnnxNode) -> Expr:
    """(x - offset) · scale, each one number or one per feature."""
    parts = [np.asarray(node.floats(name, ()), np.float32) for name in ("offset", "scale")]
    features = node.type_of(0).shape[-1] if node.type_of(0).ndim else 1
    for name, part in zip(("offset", "scale"), parts, strict=True):
        if part.size not in (1, features):
            problem = f"{node.op_type} node {node.name!r}: {part.size} numbers in {name} for {features} features"
            raise ModelError(problem, hint="one for all, or one for each")
    wide = "float64" if str(node.type_of(0).dtype) == "float64" else "float32"
    offset, scale = (const((p.reshape(()) if p.size == 1 else p).astype(wide)) for p in parts)
    return call("cast", (call("cast", node.input(0), dtype=wide) - offset) * scale, dtype="float32")


@from_onnx("Normalizer", domain=ML)
def normalizer(node: OnnxNode) -> Expr:
    """Rows divided by their largest element, their sum of absolute values, or their length; rows of 0 stay."""
    x, norm = rows_of(node), str(node.string("norm", "MAX"))
    if norm == "MAX":
        size = call("max", x, axis=(1,), keepdims=True)
    elif norm == "L1":
        size = call("sum", call("abs", x), axis=(1,), keepdims=True)
    elif norm == "L2":
        size = call("sqrt", call("sum", x * x, axis=(1,), keepdims=True))
    else:
        raise ModelError(f"{node.op_type} node {node.name!r}: norm {norm!r}", hint="MAX, L1, L2")
    one = const(np.float32(1))
    result = x / call("where", call("equal", size, const(np.float32(0))), one, size)
    return result if node.type_of(0).ndim == 2 else call("reshape", result, newshape=node.type_of(0).static)


@from_onnx("Imputer", domain=ML)
def imputer(node: OnnxNode) -> Expr:
    """A value for each element that is missing: NaN, or equal to a number."""
    x, ty = node.input(0), node.type_of(0)
    kind = "float" if ty.dtype.is_float else "int64"
    values_imputed = np.asarray(
        node.floats(f"imputed_value_{kind}s", ()), np.float32 if ty.dtype.is_float else np.int64
    )
    filled, fits = _as(values_imputed, ty.dtype.numpy)
    if filled.size not in (1, ty.static[-1]):
        raise ModelError(f"{node.op_type} node {node.name!r}: {filled.size} values for {ty.static[-1]} features")
    if not fits.all():
        raise ModelError(f"{node.op_type} node {node.name!r}: {values_imputed[~fits][0]} is none of {ty.dtype}")
    missing, may_be = _as(np.asarray(node.float(f"replaced_value_{kind}", 0)), ty.dtype.numpy)
    for name in ("float", "int64"):
        node.attributes.get(f"imputed_value_{name}s"), node.attributes.get(f"replaced_value_{name}")
    if not may_be:
        return x
    is_missing = call("not_equal", x, x) if missing != missing else call("equal", x, const(missing))
    return call("where", is_missing, const(filled.reshape(()) if filled.size == 1 else filled), x)


def _as(values: Array, dtype: NumpyDtype) -> tuple[Array, Array]:
    """Values in another type, and which of them that type has; NaN is a value of each floating-point type."""
    with np.errstate(invalid="ignore"):
        cast_values = values.astype(dtype)
        is_same = cast_values.astype(values.dtype) == values
    return cast_values, is_same | (np.isnan(values) & (cast_values.dtype.kind == "f"))


@from_onnx("LabelEncoder", domain=ML)
def label_encoder(node: OnnxNode) -> Expr:
    """The value of the first key that equals x, else the default: keys in order, and a search among them.

    Before version 4 NaN equals no key, as in ONNX Runtime; where a key stands twice the standard says nothing.
    """
    _refuse_strings(node, "keys_strings", "values_strings", "classes_strings")
    keys, values = _mapping(node, "keys"), _mapping(node, "values")
    if keys.shape != values.shape or not keys.size:
        raise ModelError(f"{node.op_type} node {node.name!r}: {keys.size} keys, {values.size} values")
    tensor = node.attributes.get("default_tensor")
    whole, real = node.attributes.get("default_int64", -1), node.attributes.get("default_float", -0.0)
    chosen = tensor if tensor is not None else real if values.dtype.kind == "f" else whole
    node.attributes.get("default_string")
    default = const(np.asarray(chosen).reshape(-1)[0].astype(values.dtype))
    x, dtype = node.input(0), node.type_of(0).dtype.numpy
    keys, fits = _as(keys, dtype)  # a key that is no number of this type equals no element
    keys, order = np.unique(keys[fits], return_index=True)
    values = values[fits][order]
    has_nan = bool(keys.size and np.isnan(keys[-1]))
    is_nan = has_nan and node.opset >= 4
    table = keys[:-1] if has_nan else keys
    result = call("broadcast_to", default, shape=node.type_of(0).static)
    if table.size:
        place = _place(x, table)
        equal = call("equal", call("take", const(table), place, axis=0), x)
        result = call("where", equal, call("take", const(values[: table.size]), place, axis=0), default)
    return call("where", call("not_equal", x, x), const(values[-1]), result) if is_nan else result


def _place(x: Expr, table: Array) -> Expr:
    """Of each element the number of the last key that is no greater, found by halving; 0 where there is none."""
    place: Expr = call("zeros_like", call("cast", x, dtype="int32"))
    step = 1 << max(table.size - 1, 0).bit_length() >> 1
    last = const(np.int32(table.size - 1))
    while step:
        ahead = call("minimum", place + const(np.int32(step)), last)
        reached = call("less_equal", call("take", const(table), ahead, axis=0), x)
        place = call("where", reached, ahead, place)
        step >>= 1
    return place


def _mapping(node: OnnxNode, side: str) -> Array:
    """Keys or values, whichever type the node gives them in."""
    for name, dtype in (("tensor", None), ("int64s", np.int64), ("floats", np.float32)):
        entries = node.attributes.get(f"{side}_{name}")
        if entries is not None and len(entries):
            return np.asarray(entries, dtype).reshape(-1)
    raise UnsupportedError(f"{node.op_type} node {node.name!r}: it has no {side} that are numbers")


@from_onnx("OneHotEncoder", domain=ML)
def one_hot_encoder(node: OnnxNode) -> Expr:
    """1 at the place of the category that equals x; with zeros=0 one must (not checked: a row of zeros)."""
    _refuse_strings(node, "cats_strings")
    node.int("zeros", 1)
    categories = np.asarray(node.ints("cats_int64s", ()), np.int64)
    if not categories.size:
        raise ModelError(f"{node.op_type} node {node.name!r} has no categories")
    x = call("cast", call("expand_dims", node.input(0), axis=-1), dtype="int64")
    return call("cast", call("equal", x, const(categories)), dtype="float32")


@from_onnx("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: OnnxNode) -> Expr:
    """The columns of all inputs side by side, as float32."""
    sizes, parts = node.ints("inputdimensions", ()), []
    if sizes and len(sizes) != len(node.present):
        message = f"{len(sizes)} inputdimensions for {len(node.present)} inputs"
        raise ModelError(f"{node.op_type} node {node.name!r}: {message}")
    for k, x in enumerate(node.present):
        ty = type_of(x)
        columns = ty.static[-1] if ty.ndim else 1
        if k < len(sizes) and int(sizes[k]) != columns:
            raise UnsupportedError(
                f"{node.op_type} node {node.name!r}: {columns} columns of input {k}, wanted {sizes[k]}"
            )
        parts.append(call("cast", call("reshape", x, newshape=(-1, columns)), dtype="float32"))
        rows = {type_of(part).static[0] for part in parts}
        if len(rows) > 1:
            raise TypeMismatch(f"{node.op_type} node {node.name!r}: {sorted(rows)} rows, wanted as many in all inputs")
    return parts[0] if len(parts) == 1 else call("concatenate", tuple(parts), axis=1)


@from_onnx("ZipMap", domain=ML)
def zip_map(node: OnnxNode) -> Expr:
    """The table of scores as it is: a column for each label."""
    columns, ty = (node.attributes.get(f"classlabels_{kind}") or () for kind in ("int64s", "strings")), node.type_of(0)
    counts = [len(c) for c in columns]
    if ty.ndim and max(counts) != ty.static[-1]:
        raise ModelError(f"{node.op_type} node {node.name!r}: {max(counts)} labels for scores {ty}")
    return node.input(0)
