"""Attention on an OpenCL device, in one kernel or three: orders of axes, masks, shared heads; against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.relay.op import get_op
from armillary.transform import PassContext
from tests.opencl_device import needs_opencl

pytestmark = needs_opencl
Case = tuple[str, list[tuple[int, ...]], dict[str, Any]]  # Any: attributes
STREAMED: list[Case] = [
    ("nn.attention", [(1, 197, 3, 64)] * 3, {"scale": 0.125}),
    (
        "nn.attention",
        [(1, 4, 33, 24), (1, 2, 24, 130), (1, 2, 130, 32)],
        {"query_layout": "BHTD", "key_layout": "BHDT", "value_layout": "BHTD", "shared": 2},
    ),
    ("nn.attention", [(2, 70, 9, 128)] * 3, {"heads": 3, "offsets": (0, 3, 6), "out_layout": "BHTD", "scale": 0.1}),
    ("nn.attention", [(60, 65, 3, 64)] * 3, {"scale": 0.125}),
    ("nn.masked_attention", [(2, 80, 3, 64), (2, 60, 3, 64), (2, 60, 3, 64), (2, 1, 1, 60)], {}),
    ("nn.masked_attention", [(1, 80, 3, 16)] * 3 + [(1, 3, 80, 80)], {}),
]
CASES: list[Case] = [
    ("nn.attention", [(2, 9, 6, 16)] * 3, {"scale": 0.25, "heads": 2, "offsets": (0, 2, 4), "out_layout": "BHTD"}),
    (
        "nn.attention",
        [(1, 4, 33, 8), (1, 2, 8, 21), (1, 2, 21, 12)],
        {"query_layout": "BHTD", "key_layout": "BHDT", "value_layout": "BHTD", "shared": 2},
    ),
    ("nn.attention", [(1, 1, 4, 32), (1, 70, 4, 32), (1, 70, 4, 32)], {"scale": 0.2}),
    ("nn.masked_attention", [(2, 50, 3, 8), (2, 60, 3, 8), (2, 60, 3, 8), (2, 1, 1, 60)], {}),
]


def _compare(case: Case, values: list[NDArray[np.float32]], target: str = "opencl") -> str:
    """The source of a compiled attention whose result was compared with the reference in float64."""
    name, shapes, attrs = case
    op = get_op(name)
    variables = [relay.var(f"v{n}", shape=shape) for n, shape in enumerate(shapes)]
    function = relay.Function(variables, op(*variables, **attrs))
    library = relay.build(armillary.IRModule.from_expr(function), target)
    graph = graph_executor.GraphModule(library["default"](armillary.opencl(0)))
    for variable, value in zip(variables, values, strict=True):
        graph.set_input(variable.name_hint, value)
    graph.run()
    wanted = op.reference_rule(op.make_attrs(named=attrs), *(value.astype("float64") for value in values))
    got = graph.get_output(0).numpy()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * float(np.abs(wanted).max()))
    return str(library.get_lib().get_source())


def _drawn(shapes: list[tuple[int, ...]]) -> list[NDArray[np.float32]]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("case", CASES)
def test_attention_of_few_queries_or_other_features_is_three_kernels(case: Case) -> None:
    assert _compare(case, _drawn(case[1])).count("__kernel") == 3


@pytest.mark.parametrize("target", ["opencl", "opencl -device=adreno"])
@pytest.mark.parametrize("case", STREAMED)
def test_attention_is_one_kernel_without_scores_in_memory(case: Case, target: str) -> None:
    source = _compare(case, _drawn(case[1]), target)
    assert ("for (int term" in source) != ("adreno" in target)  # there the text has each term
    assert source.count("__kernel") == 1
    assert source.count("restrict") == len(case[1]) + 1  # operands and the result, nothing between


def test_masked_keys_and_rows_of_lowest_scores_are_as_the_reference_says() -> None:
    case: Case = ("nn.masked_attention", [(1, 130, 2, 64)] * 3 + [(1, 1, 130, 130)], {"scale": 0.125})
    *operands, _ = _drawn(case[1])
    causal = np.where(np.tri(130, dtype=bool), 0, -np.inf).astype("float32")
    causal[7] = np.finfo("float32").min  # as padding is masked: the row is a mean
    operands[0][0, 100] *= 60.0  # scores that grow from block to block
    _compare(case, [*operands, causal[None, None]])


def test_projections_of_the_same_rows_are_one_product_that_attention_reads() -> None:
    x = relay.var("x", shape=(1, 128, 64))
    random = np.random.default_rng(1)
    weights = {n: (random.standard_normal((64, 64)) / 8).astype("float32") for n in "qkv"}
    heads = [
        relay.transpose(relay.reshape(relay.nn.dense(x, relay.const(w)), (1, 128, 4, 16)), (0, 2, 1, 3))
        for w in weights.values()
    ]
    query, key, value = (relay.reshape(h, (4, 128, 16)) for h in heads)
    scores = relay.nn.softmax(relay.nn.batch_matmul(query, key), axis=-1)
    mixed = relay.nn.batch_matmul(scores, value, transpose_b=False)
    result = relay.reshape(relay.transpose(relay.reshape(mixed, (1, 4, 128, 16)), (0, 2, 1, 3)), (1, 128, 64))
    with PassContext(opt_level=3):
        library = relay.build(armillary.IRModule.from_expr(relay.Function([x], result)), "opencl")
    graph = graph_executor.GraphModule(library["default"](armillary.opencl(0)))
    data = random.standard_normal((1, 128, 64)).astype("float32")
    graph.set_input("x", data)
    graph.run()
    q, k, v = ((data[0].astype("float64") @ w.T).reshape(128, 4, 16).swapaxes(0, 1) for w in weights.values())
    powers = np.exp(q @ k.swapaxes(1, 2))
    wanted = (powers / powers.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(1, 128, 64)
    np.testing.assert_allclose(graph.get_output(0).numpy(), wanted, rtol=0, atol=3e-6 * float(np.abs(wanted).max()))
    names = [line for line in library.get_lib().get_source().splitlines() if "__kernel" in line]
    assert sum("dense" in name for name in names) <= 2 and sum("attention" in name for name in names) == 1
    assert not any("slice" in name for name in names)
