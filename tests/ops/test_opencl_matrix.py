"""A part of the operator matrix on an OpenCL device: the default target, float32 and integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sampling
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, Var
from armillary.relay.op import OPS

SAMPLES = [  # of each family: maps, reductions, layouts, sums of products, sorting, quantised arithmetic, bytes
    ("tanh", 0),
    ("erf", 0),
    ("floor_divide", 0),
    ("sum", 1),
    ("argmax", 0),
    ("variance", 0),
    ("nn.softmax", 0),
    ("nn.layer_norm", 0),
    ("nn.conv2d", 3),
    ("nn.conv2d", 8),
    ("nn.conv2d_transpose", 0),
    ("nn.conv3d", 0),
    ("nn.max_pool2d", 0),
    ("nn.dense", 0),
    ("concatenate", 0),
    ("transpose", 0),
    ("strided_slice", 0),
    ("gather", 0),
    ("topk", 0),
    ("topk", 7),
    ("image.resize2d", 0),
    ("image.crop_and_resize", 0),  # samples on the border, which a fused multiply-add moves beside it
    ("scatter_elements", 0),
    ("cumsum", 0),
    ("qnn.requantize", 0),
    ("cast", 0),
]


def _leaves(value: Any, name: str, is_constant: bool, params: dict[str, Any]) -> Expr:  # Any: arrays, tuples of them
    if isinstance(value, tuple):
        return Tuple(tuple(_leaves(v, f"{name}_{k}", is_constant, params) for k, v in enumerate(value)))
    if is_constant:
        return Constant(np.asarray(value))
    made = Var(name, sampling.type_of(value))
    params[name] = (made, value)
    return made


TARGETS = ("opencl", "opencl -device=adreno")
SEVERAL_DEVICES = ("annotation.on_device", "device_copy")


@needs_opencl
@pytest.mark.parametrize(("name", "number"), SAMPLES, ids=str)
def test_operator_equals_its_reference_on_opencl(name: str, number: int) -> None:
    check(name, number, TARGETS[number % 2])


@needs_opencl
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OPS) - set(SEVERAL_DEVICES)))
@pytest.mark.parametrize("target", TARGETS)
def test_every_sample_equals_its_reference_on_opencl(name: str, target: str) -> None:
    for number in range(len(sampling.list_samples(OPS[name]))):
        check(name, number, target)


def check(name: str, number: int, target: str) -> None:
    """Compute a sample of the operator matrix on the device and compare it with the reference."""
    op = OPS[name]
    sample = sampling.list_samples(op)[number]
    arrays, fixed = sampling.arrays_of(sample, name), sampling.compile_time_arguments(op, sample)
    params: dict[str, Any] = {}
    args = tuple(_leaves(array, f"x{k}", k in fixed, params) for k, array in enumerate(arrays))
    function = Function([var for var, _ in params.values()], Call(op, args, sample.attrs))
    library = relay.build(armillary.IRModule.from_expr(function), target)
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    for key, (_, value) in params.items():
        graph.set_input(key, value)
    graph.run()
    wanted = op.evaluate(sample.attrs, arrays)
    found = tuple(graph.get_output(k).numpy() for k in range(graph.get_num_outputs()))
    sampling.check_close(found if isinstance(wanted, tuple | list) else found[0], wanted, sample, name)
