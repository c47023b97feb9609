"""Linear models, support vectors, features, and files of scikit-learn give what ONNX Runtime gives."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import armillary
from armillary import relay
from armillary.errors import ArmillaryError

ML = "ai.onnx.ml"
MODELS = sorted((Path(__file__).parent / "models").glob("*.onnx"))
Array = np.ndarray[Any, Any]
_RNG = np.random.default_rng(11)


def floats(*shape: int) -> list[float]:
    found: list[float] = _RNG.standard_normal(int(np.prod(shape))).astype(np.float32).tolist()
    return found


def model(op: str, x: Array, outputs: dict[str, int], **attributes: Any) -> bytes:
    node = helper.make_node(op, ["x"], list(outputs), domain=ML, **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind, list(x.shape))], made)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def assert_agrees(op: str, x: Array, outputs: dict[str, int] | None = None, **attributes: Any) -> None:
    data = model(op, x, outputs or {"y": TensorProto.FLOAT}, **attributes)
    want = onnxruntime.InferenceSession(data).run(None, {"x": x})
    got = armillary.InferenceSession(data).run(None, {"x": x})
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(a, b)


X = _RNG.standard_normal((9, 4)).astype(np.float32)
LABELLED = {"label": TensorProto.INT64, "y": TensorProto.FLOAT}


@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(targets: int) -> None:
    assert_agrees("LinearRegressor", X, targets=targets, coefficients=floats(targets, 4), intercepts=floats(targets))


@pytest.mark.parametrize(
    ("targets", "post"), [(1, "NONE"), (1, "LOGISTIC"), (3, "NONE"), (3, "SOFTMAX"), (3, "LOGISTIC")]
)
def test_linear_classifier(targets: int, post: str) -> None:
    labels = [5, 2, 8][: max(2, targets)]
    learnt = {"coefficients": floats(targets, 4), "intercepts": floats(targets)}
    assert_agrees("LinearClassifier", X, LABELLED, classlabels_ints=labels, post_transform=post, **learnt)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors_of_each_kernel(kernel: str) -> None:
    machine = {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 3.0], "support_vectors": floats(6, 4)}
    assert_agrees("SVMRegressor", X, n_supports=6, coefficients=floats(6), rho=[0.2], **machine)


def test_one_class_and_linear_support_vectors() -> None:
    more = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "coefficients": floats(4), "rho": [0.2]}
    assert_agrees("SVMRegressor", X, one_class=1, n_supports=0, **more)
    more = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "coefficients": floats(3, 4), "rho": [0.2]}
    assert_agrees("SVMClassifier", X, LABELLED, classlabels_ints=[4, 1, 2], **more)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("chances", [False, True])
def test_pairs_of_classes(classes: int, chances: bool) -> None:
    pairs, sizes = classes * (classes - 1) // 2, [2, 1, 3, 1][:classes]
    machine = {"kernel_type": "RBF", "kernel_params": [0.3, 0.0, 0.0], "support_vectors": floats(sum(sizes), 4)}
    machine |= {"coefficients": floats(classes - 1, sum(sizes)), "rho": floats(pairs), "vectors_per_class": sizes}
    if chances:
        machine |= {"prob_a": [-1.5] * pairs, "prob_b": [0.2] * pairs}
    assert_agrees("SVMClassifier", X, LABELLED, classlabels_ints=[3, 1, 4, 5][:classes], **machine)


def test_features_are_prepared() -> None:
    rows = np.concatenate([X, np.zeros((1, 4), np.float32)])
    for norm in ("MAX", "L1", "L2"):
        assert_agrees("Normalizer", rows, norm=norm)
    holes = np.where(np.abs(X) < 0.5, np.nan, X).astype(np.float32)
    assert_agrees("Imputer", holes, imputed_value_floats=floats(4), replaced_value_float=float("nan"))
    whole = {"y": TensorProto.INT64}
    numbers = np.array([[3, -1, 7], [0, 7, 12]], np.int64)
    assert_agrees("Imputer", numbers, whole, imputed_value_int64s=[5], replaced_value_int64=7)
    assert_agrees("OneHotEncoder", numbers, cats_int64s=[7, 3, 0], zeros=1)


def test_labels_are_encoded() -> None:
    numbers, whole = np.array([3, -1, 7, 0, 99, -99, 12], np.int64), {"y": TensorProto.INT64}
    keys = [7, -1, 12, 3, 0, 40]
    assert_agrees("LabelEncoder", numbers, whole, keys_int64s=keys, values_int64s=[1, 2, 3, 4, 5, 6], default_int64=-7)
    assert_agrees("LabelEncoder", numbers, keys_int64s=keys[:1], values_floats=[0.5], default_float=2.5)
    reals = np.array([1.5, -0.5, 2.0, 7.0], np.float32)
    assert_agrees("LabelEncoder", reals, whole, keys_floats=[2.0, -0.5, 1.5], values_int64s=[10, 20, 30])
    twice = np.array([np.nan, 2, -0.0, 9], np.float32)
    assert_agrees("LabelEncoder", numbers, keys_int64s=[*keys, *keys], values_floats=np.arange(12.0).tolist())
    assert_agrees("LabelEncoder", twice, whole, keys_floats=[2.0, np.nan, 0.0, 2.0], values_int64s=[10, 20, 30, 40])


_WHOLE = np.array([[-3, -1, 0, 1, 2, 7]])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("threshold", [-0.5, 0.5, 2.0, 3e9, 1e30, -1e30, np.inf, -np.inf, np.nan])
def test_integers_are_compared_with_a_threshold_that_is_none(threshold: float, dtype: type) -> None:
    x, kind = _WHOLE.astype(dtype), {"y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}
    (got,) = armillary.InferenceSession(model("Binarizer", x, kind, threshold=threshold)).run(None, {"x": x})
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, x > np.float32(threshold))


def test_numbers_that_a_type_does_not_have_equal_no_element() -> None:
    x, whole = _WHOLE.astype(np.int32), {"y": TensorProto.INT32}
    far = model("Imputer", x, whole, imputed_value_int64s=[5], replaced_value_int64=(1 << 32) + 1)
    np.testing.assert_array_equal(armillary.InferenceSession(far).run(None, {"x": x})[0], x)
    odd = model("LabelEncoder", x, {"y": TensorProto.INT64}, keys_floats=[1.5, 2.0], values_int64s=[10, 20])
    np.testing.assert_array_equal(armillary.InferenceSession(odd).run(None, {"x": x})[0], np.where(x == 2, 20, -1))
    with pytest.raises(ArmillaryError, match="1099511627776 is none of int32"):
        armillary.InferenceSession(model("Imputer", x, whole, imputed_value_int64s=[1 << 40]))


def test_an_offset_is_taken_from_float64() -> None:
    assert_agrees("Scaler", np.array([[0.1, 1e8 + 0.5]]), offset=[0.1, 1e8], scale=[1e9, 1.0])


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_files_of_scikit_learn(path: Path) -> None:
    theirs, ours = onnxruntime.InferenceSession(str(path)), armillary.InferenceSession(path)
    (given,) = theirs.get_inputs()
    x = (np.random.default_rng(1).random((17, given.shape[1])) * 5).astype(np.float32)
    for a, b in zip(ours.run(None, {given.name: x}), theirs.run(None, {given.name: x}), strict=True):
        if isinstance(b, list):  # of dictionaries, from a ZipMap
            assert [list(row) for row in a] == [list(row) for row in b]
            a, b = (np.array([list(row.values()) for row in table]) for table in (a, b))
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max())
        else:
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
    assert [(arg.name, arg.type) for arg in ours.get_outputs()] == [(a.name, a.type) for a in theirs.get_outputs()]


def test_a_compiled_network_numbers_classes_whose_labels_are_strings() -> None:
    path = next(path for path in MODELS if path.stem == "strings_dt")
    with pytest.warns(UserWarning, match="gives the numbers of the classes: 0 'setosa', 1 'versicolor'"):
        module, _ = relay.frontend.from_onnx(path, {"X": (5, 4)})
    assert [str(ty.dtype) for ty in module["main"].body.checked_type.fields] == ["int64", "float32"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        session = armillary.InferenceSession(path)
        assert session.run(["output_label"], {"X": np.ones((2, 4), np.float32)})[0].dtype == object


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("LinearRegressor", {"targets": 2, "coefficients": [1.0] * 9}, "9 coefficients, wanted 2x4"),
        (
            "SVMRegressor",
            {"n_supports": 1, "coefficients": [1.0], "rho": [0.0], "kernel_type": "RBF"},
            "vectors of 0 features",
        ),
        ("Normalizer", {"norm": "L3"}, "norm 'L3'"),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0]}, "2 values for 4 features"),
        ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, "strings are not supported"),
        ("LabelEncoder", {"keys_int64s": [1], "values_strings": ["a"]}, "strings are not supported"),
        ("OneHotEncoder", {"cats_strings": ["a", "b"]}, "strings are not supported"),
        (
            "CategoryMapper",
            {"cats_strings": ["a"], "cats_int64s": [1]},
            "cannot be imported",
        ),
    ],
)
def test_what_does_not_fit_is_refused(op: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArmillaryError, match=message):
        armillary.InferenceSession(model(op, X, {"y": TensorProto.FLOAT}, **attributes))
