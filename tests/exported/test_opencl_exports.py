"""Networks that PyTorch exported, on an OpenCL device, in buffers and textures, in three precisions: the CPU's numbers.

Half needs a driver that has it: the Python that `.ci/rusticl` prints runs these tests with one. Bounds are of the
largest value of an output; what was measured is in docs/decisions/opencl.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import e2e_models as models
import numpy as np
import pytest
from opencl_device import needs_opencl
from test_exported import NAMES, cases

import armillary
from armillary.contrib import graph_executor
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.frontend import from_onnx
from armillary.ir import IRModule

HALF = {"mixed_precision": True, "mixed_precision_calculation_type": "float16"}
PRECISIONS = (
    pytest.param(None, 1e-5, id="float32"),
    pytest.param({**HALF, "mixed_precision_acc_type": "float32"}, 1e-2, id="float16_acc32"),
    pytest.param({**HALF, "mixed_precision_acc_type": "float16"}, 2e-2, id="float16"),
)
QUICK = ("lookup", "video")
TARGETS = ("opencl", "opencl -device=adreno")
Case = tuple[IRModule, models.Arrays, models.Arrays, list[models.Array]]


@lru_cache(maxsize=1)
def compiled_cases(name: str) -> list[Case]:
    """Module, parameters, inputs and the outputs of the CPU, for each binding of a network."""
    found = []
    for model, shapes, inputs, _ in cases(name):
        module, params = from_onnx(model, shapes)
        found.append((module, params, inputs, outputs(models.compiled(module, params), inputs, armillary.cpu())))
    return found


def outputs(library: Any, inputs: models.Arrays, device: Any) -> list[models.Array]:
    """Every output on a device."""
    graph = graph_executor.GraphModule(library["default"](device))
    graph.run(inputs)
    return [np.asarray(graph.get_output(k).numpy()) for k in range(graph.get_num_outputs())]


@needs_opencl
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
@pytest.mark.parametrize(("transforms", "bound"), PRECISIONS)
@pytest.mark.parametrize("target", TARGETS)
def test_every_output_is_that_of_the_cpu(
    name: str, transforms: dict[str, Any] | None, bound: float, target: str
) -> None:
    for module, params, inputs, wanted in compiled_cases(name):
        library = models.compiled(apply_graph_transforms(module, transforms), params, target)
        got = outputs(library, inputs, armillary.opencl())
        for k, (have, want) in enumerate(zip(got, wanted, strict=True)):
            assert have.shape == want.shape
            if want.dtype.kind != "f":
                np.testing.assert_array_equal(have, want)
                continue
            error = models.relative_error(have, want)
            print(f"{name} output {k} on {target}: relative error {error:.1e}")
            assert error < bound
