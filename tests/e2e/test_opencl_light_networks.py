"""The light networks with drawn weights on an OpenCL device, in buffers and in textures, against the CPU's result.

In textures in three precisions, in buffers in float32.

Half needs a driver that has it: the Python that `.ci/rusticl` prints runs these tests with one. Bounds are of the
largest value; a network of a hundred layers in half is as far off as its type allows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import e2e_models as models
import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary.contrib import graph_executor
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.ir import IRModule

NAMES = ("squeezenet", "shufflenet", "resnet50", "inception_v1", "inception_v2", "densenet121")
LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")
GAINS = {"shufflenet": 0.7}  # else its values reach 195,000 in float32, and float16 ends at 65,504
HALF = {"mixed_precision": True, "mixed_precision_calculation_type": "float16"}
PRECISIONS = (
    pytest.param(None, 1e-4, id="float32"),
    pytest.param({**HALF, "mixed_precision_acc_type": "float32"}, 2e-2, id="float16_acc32"),
    pytest.param({**HALF, "mixed_precision_acc_type": "float16"}, 1e-1, id="float16"),
)


@lru_cache(maxsize=1)
def _drawn(name: str) -> tuple[IRModule, models.Arrays, models.Arrays, models.Array]:
    model = models.with_random_weights(models.light_model(name), GAINS.get(name, 1.0))
    module, params = models.import_light(model)
    inputs = models.light_inputs(model)
    return module, params, inputs, models.run(models.compiled(module, params), inputs)


def _error(name: str, target: str, transforms: dict[str, Any] | None) -> float:
    """Of a network's output on a device, relative to the largest value of the CPU's."""
    module, params, inputs, wanted = _drawn(name)
    library = models.compiled(apply_graph_transforms(module, transforms), params, target)
    graph = graph_executor.GraphModule(library["default"](armillary.opencl()))
    graph.run(inputs)
    error = models.relative_error(np.asarray(graph.get_output(0).numpy()), wanted)
    print(f"{name}: relative error {error:.1e} on {target} (seed {models.SEED})")
    return error


@needs_opencl
@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *LARGE])
@pytest.mark.parametrize(("transforms", "bound"), PRECISIONS)
def test_output_in_textures_is_that_of_the_cpu(name: str, transforms: dict[str, Any] | None, bound: float) -> None:
    assert _error(name, "opencl -device=adreno", transforms) < bound


@needs_opencl
@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *LARGE])
def test_output_in_buffers_is_that_of_the_cpu(name: str) -> None:
    assert _error(name, "opencl", None) < 1e-4
