"""A part of the operator matrix on an OpenCL device: the default target, float32 and integers."""

from __future__ import annotations

import pytest
import sampling
from opencl_device import needs_opencl
from opencl_sample import SEVERAL_DEVICES, check

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
    ("argsort", 1),  # short rows, as many as vectors have lanes
    ("topk", 0),
    ("topk", 7),
    ("image.resize2d", 0),
    ("image.crop_and_resize", 0),  # samples on the border, which a fused multiply-add moves beside it
    ("scatter_elements", 0),
    ("check_values", 0),
    ("check_values", 1),
    ("check_values", 2),
    ("cumsum", 0),
    ("qnn.requantize", 0),
    ("cast", 0),
]


TARGETS = ("opencl", "opencl -device=adreno")


@needs_opencl
@pytest.mark.parametrize(("name", "number"), SAMPLES, ids=str)
def test_operator_equals_its_reference_on_opencl(name: str, number: int) -> None:
    check(name, number, TARGETS[number % 2])


SAMPLES_IN_HALF = [  # the last: steps that lose their digits in half are computed in float32
    ("tanh", 0),
    ("nn.conv2d", 3),
    ("nn.softmax", 0),
    ("nn.contrib_conv2d_NCHWc", 0),
    ("nn.deformable_conv2d", 0),
    ("opencl.conv2d_winograd", 1),
    ("ml.pair_probabilities", 1),
]


@needs_opencl
@pytest.mark.parametrize(("name", "number"), SAMPLES_IN_HALF, ids=str)
def test_operator_in_half_equals_its_reference_on_opencl(name: str, number: int) -> None:
    check(name, number, TARGETS[number % 2], half=True)


@needs_opencl
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(OPS) - set(SEVERAL_DEVICES)))
@pytest.mark.parametrize("target", TARGETS)
def test_every_sample_equals_its_reference_on_opencl(name: str, target: str) -> None:
    for number in range(len(list(sampling.list_samples(OPS[name])))):
        check(name, number, target)
