"""Convolutions over three axes and transposed ones, with groups, strides and dilation, as others: same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary import IRModule, cpu, relay
from armillary.contrib.graph_executor import GraphModule
from armillary.relay.evaluate import evaluate
from armillary.transform import PassContext

CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {  # operator, data, weight
    "volumes, two groups": ("conv3d", (1, 8, 5, 6, 7), (6, 4, 3, 3, 3), {"groups": 2, "padding": (1, 1, 1)}),
    "volumes, two groups, batch": ("conv3d", (2, 8, 5, 6, 7), (8, 4, 2, 3, 3), {"groups": 2, "strides": (2, 2, 2)}),
    "volumes, depthwise": ("conv3d", (1, 16, 5, 6, 7), (16, 1, 3, 3, 3), {"groups": 16, "padding": (1, 1, 1)}),
    "volumes, depthwise, two each": ("conv3d", (2, 4, 5, 6, 7), (8, 1, 3, 1, 3), {"groups": 4, "dilation": (2, 1, 1)}),
    "volumes, transposed, groups": (
        "conv3d_transpose",
        (1, 8, 3, 6, 7),
        (8, 3, 3, 3, 3),
        {"groups": 2, "strides": (2, 2, 2), "padding": (1, 1, 1)},
    ),
    "volumes, transposed, depthwise": (
        "conv3d_transpose",
        (2, 8, 3, 4, 5),
        (8, 1, 4, 4, 4),
        {"groups": 8, "strides": (2, 2, 2), "padding": (1, 1, 1)},
    ),
    "stride 1": ("conv2d_transpose", (1, 8, 7, 6), (8, 5, 3, 3), {"padding": (1, 1), "output_padding": (0, 0)}),
    "stride 1, groups": ("conv2d_transpose", (2, 8, 7, 6), (8, 3, 3, 2), {"groups": 4, "padding": (1, 0, 0, 1)}),
    "dilation": ("conv2d_transpose", (1, 8, 7, 6), (8, 5, 3, 3), {"dilation": (2, 3), "padding": (2, 1)}),
    "dilation and strides": ("conv2d_transpose", (1, 8, 7, 6), (8, 5, 3, 3), {"dilation": (2, 2), "strides": (2, 2)}),
    "strides, groups": (
        "conv2d_transpose",
        (1, 8, 7, 6),
        (8, 3, 4, 4),
        {"groups": 2, "strides": (2, 2), "padding": (1, 1)},
    ),
    "strides, depthwise": (
        "conv2d_transpose",
        (2, 16, 7, 6),
        (16, 1, 3, 3),
        {"groups": 16, "strides": (2, 2), "padding": (1, 1), "output_padding": (1, 1)},
    ),
    "strides, depthwise, ragged": ("conv2d_transpose", (1, 5, 4, 4), (5, 1, 8, 8), {"groups": 5, "strides": (4, 4)}),
    "one axis, depthwise": (
        "conv1d_transpose",
        (1, 16, 9),
        (16, 1, 4),
        {"groups": 16, "strides": (2,), "padding": (1,)},
    ),
}
GENERIC = ("conv3d", "conv3d_transpose", "conv2d_transpose", "conv1d_transpose")


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_operators_value_without_its_generic_kernel(case: str) -> None:
    name, shape, kernel, attributes = CASES[case]
    rng = np.random.default_rng(0)
    data = rng.standard_normal(shape).astype(np.float32)
    x = relay.var("x", shape=shape, dtype="float32")
    weight = relay.const(rng.standard_normal(kernel).astype(np.float32))
    module = IRModule.from_expr(relay.Function([x], getattr(relay.nn, name)(x, weight, **attributes)))
    with PassContext(opt_level=3):
        library = relay.build(module, target="llvm")
    kernels = [kernel for kernel in library.kernels if any(f"nn_{generic}" in kernel for generic in GENERIC)]
    assert not kernels
    net = GraphModule(library["default"](cpu()))
    net.run(x=data)
    np.testing.assert_allclose(net.get_output(0).numpy(), evaluate(module, {"x": data}), rtol=1e-5, atol=2e-5)
