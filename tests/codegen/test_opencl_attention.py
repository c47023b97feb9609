"""Attention on an OpenCL device in three kernels: orders of axes, masks, shared heads; against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.relay.op import get_op
from tests.opencl_device import needs_opencl

pytestmark = needs_opencl
CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [  # Any: attributes
    ("nn.attention", [(1, 197, 3, 64)] * 3, {"scale": 0.125}),
    ("nn.attention", [(2, 9, 6, 16)] * 3, {"scale": 0.25, "heads": 2, "offsets": (0, 2, 4), "out_layout": "BHTD"}),
    (
        "nn.attention",
        [(1, 4, 33, 8), (1, 2, 8, 21), (1, 2, 21, 16)],
        {"query_layout": "BHTD", "key_layout": "BHDT", "value_layout": "BHTD", "shared": 2},
    ),
    ("nn.attention", [(1, 1, 4, 32), (1, 70, 4, 32), (1, 70, 4, 32)], {"scale": 0.2}),
    ("nn.masked_attention", [(2, 50, 3, 8), (2, 60, 3, 8), (2, 60, 3, 8), (2, 1, 1, 60)], {}),
]


@pytest.mark.parametrize(("name", "shapes", "attrs"), CASES)
def test_attention_is_three_kernels(name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any]) -> None:
    op = get_op(name)
    variables = [relay.var(f"v{n}", shape=shape) for n, shape in enumerate(shapes)]
    random = np.random.default_rng(0)
    values = [random.standard_normal(shape).astype("float32") for shape in shapes]
    function = relay.Function(variables, op(*variables, **attrs))
    library = relay.build(armillary.IRModule.from_expr(function), "opencl")
    graph = graph_executor.GraphModule(library["default"](armillary.opencl(0)))
    for variable, value in zip(variables, values, strict=True):
        graph.set_input(variable.name_hint, value)
    graph.run()
    wanted = op.reference_rule(op.make_attrs(named=attrs), *(value.astype("float64") for value in values))
    got = graph.get_output(0).numpy()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * float(np.abs(wanted).max()))
    assert library.get_lib().get_source().count("__kernel") == 3
