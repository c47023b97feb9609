"""ONNX operators on tensors without elements: a size of 0 that the importer writes into a reshape stays a size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from armillary.backend.compiled import Engine
from armillary.frontend import from_onnx
from armillary.relay.evaluate import evaluate

MICROSOFT = "com.microsoft"


def _f(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


NONE = np.zeros(0, np.float32)  # an input that is left out
# what: (operator, attributes, inputs, which of them are weights, shape of the result, opset)
CASES: dict[str, tuple[str, dict[str, Any], list[np.ndarray], tuple[int, ...], tuple[int, ...], int]] = {
    "softmax over many axes": ("Softmax", {"axis": 1}, [_f(3, 0, 4)], (), (3, 0, 4), 11),
    "softmax of no rows": ("LogSoftmax", {"axis": 1}, [_f(0, 2, 4)], (), (0, 2, 4), 11),
    "hardmax": ("Hardmax", {"axis": 1}, [_f(0, 2, 3)], (), (0, 2, 3), 11),
    "flatten of no rows": ("Flatten", {"axis": 1}, [_f(0, 2, 3)], (), (0, 6), 13),
    "flatten of no columns": ("Flatten", {"axis": 1}, [_f(3, 0, 2)], (), (3, 0), 13),
    "flatten at the end": ("Flatten", {"axis": 2}, [_f(3, 0)], (), (0, 1), 13),
    "products of no matrices": ("MatMul", {}, [_f(0, 2, 3, 4), _f(1, 1, 4, 5)], (), (0, 2, 3, 5), 13),
    "products of no rows": ("MatMul", {}, [_f(2, 3, 0, 4), _f(2, 3, 4, 5)], (), (2, 3, 0, 5), 13),
    "products over nothing": ("MatMul", {}, [_f(2, 3, 2, 0), _f(1, 3, 0, 5)], (), (2, 3, 2, 5), 13),
    "determinants": ("Det", {}, [_f(0, 2, 3, 3)], (), (0, 2), 11),
    "einsum of a diagonal": ("Einsum", {"equation": "bii->bi"}, [_f(0, 3, 3)], (), (0, 3), 12),
    "einsum": ("Einsum", {"equation": "bij,bjk->bik"}, [_f(2, 0, 3), _f(2, 3, 4)], (), (2, 0, 4), 12),
    "resize along one axis": (
        "Resize",
        {"mode": "linear"},
        [_f(2, 0, 4, 5), NONE, NONE, _i(2, 0, 4, 9)],
        (1, 2, 3),
        (2, 0, 4, 9),
        13,
    ),
    "blocks to image": ("Col2Im", {}, [_f(0, 4, 4), _i(3, 3), _i(2, 2)], (1, 2), (0, 1, 3, 3), 18),
    "deformed convolution": (
        "DeformConv",
        {"kernel_shape": [2, 2]},
        [_f(0, 1, 3, 3), _f(1, 1, 2, 2), _f(0, 8, 2, 2)],
        (1,),
        (0, 1, 2, 2),
        19,
    ),
    "unpooling": (
        "MaxUnpool",
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        [_f(0, 1, 2, 2), np.zeros((0, 1, 2, 2), np.int64)],
        (),
        (0, 1, 4, 4),
        11,
    ),
    "recurrence over no rows": (
        "RNN",
        {"hidden_size": 5},
        [_f(3, 0, 4), _f(1, 5, 4), _f(1, 5, 5)],
        (1, 2),
        (3, 1, 0, 5),
        14,
    ),
    "attention": (
        "Attention",
        {"num_heads": 2},
        [_f(0, 3, 8), _f(8, 24), _f(24)],
        (1, 2),
        (0, 3, 8),
        17,
    ),
    "tf-idf": (
        "TfIdfVectorizer",
        {
            "mode": "TF",
            "min_gram_length": 1,
            "max_gram_length": 1,
            "max_skip_count": 0,
            "ngram_counts": [0],
            "ngram_indexes": [0, 1],
            "pool_int64s": [2, 3],
        },
        [np.zeros((0, 4), np.int64)],
        (),
        (0, 2),
        9,
    ),
}


def _model(name: str) -> tuple[ModelProto, dict[str, np.ndarray]]:
    kind, attrs, arrays, weights, _, opset = CASES[name]
    domain = MICROSOFT if kind == "Attention" else ""
    names = [f"x{k}" for k in range(len(arrays))]
    given = {n: a for k, (n, a) in enumerate(zip(names, arrays, strict=True)) if k not in weights}
    types = {np.dtype(np.float32): 1, np.dtype(np.int64): 7}
    inputs = [helper.make_tensor_value_info(n, types[a.dtype], a.shape) for n, a in given.items()]
    stored = [numpy_helper.from_array(arrays[k], names[k]) for k in weights]
    used = [n if arrays[k].size or k not in weights else "" for k, n in enumerate(names)]
    node = helper.make_node(kind, used, ["y"], domain=domain, **attrs)
    graph = helper.make_graph([node], "empty", inputs, [helper.make_tensor_value_info("y", 1, None)], stored)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets), given


@pytest.mark.parametrize("name", CASES)
def test_operators_take_tensors_without_elements(name: str) -> None:
    model, given = _model(name)
    module, params = from_onnx(model)
    want = np.asarray(evaluate(module["main"], [*given.values(), *params.values()]))
    (got,) = Engine(module)(given)
    assert want.shape == got.shape == CASES[name][4]
    np.testing.assert_array_equal(got, want)
