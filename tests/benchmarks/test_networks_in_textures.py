"""An OpenCL device computes MobileNet v2 and ResNet-50 in textures as the CPU does, in three precisions.

Images are of 64 pixels, so that a driver on a CPU ends; errors that were measured are in docs/decisions/opencl.md.
Half needs a driver that has it: the Python that `.ci/rusticl` prints runs these tests with one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu import varied
from mobilenet_v2 import mobilenet_v2
from opencl_device import needs_opencl

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.driver.tvmc.transform import apply_graph_transforms
from armillary.relay import testing
from armillary.relay.expr import Function
from armillary.relay.op import is_call
from armillary.transform import PassContext

WEIGHTS = 3_504_872
SIDE = 64
NETWORKS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "mobilenet_v2": lambda: mobilenet_v2(SIDE),
    "resnet50": lambda: testing.resnet.get_workload(num_layers=50, image_shape=(3, SIDE, SIDE)),
}
HALF = {"mixed_precision": True, "mixed_precision_calculation_type": "float16"}
PRECISIONS = (
    pytest.param(None, 1e-4, id="float32"),
    pytest.param({**HALF, "mixed_precision_acc_type": "float32"}, 2e-2, id="float16_acc32"),
    pytest.param({**HALF, "mixed_precision_acc_type": "float16"}, 1e-1, id="float16"),
)


def test_mobilenet_v2_has_the_published_number_of_weights() -> None:
    _, params = mobilenet_v2(32)
    counted = (array for name, array in params.items() if "mean" not in name and "var" not in name)
    assert sum(int(np.prod(array.shape)) for array in counted) == WEIGHTS


def without_softmax(module: armillary.IRModule) -> armillary.IRModule:
    """A network up to its last softmax, which would hide errors: of drawn weights it is 1 for one class."""
    main = module["main"]
    assert isinstance(main, Function) and is_call(main.body, "nn.softmax")
    return armillary.IRModule.from_expr(Function(main.params, main.body.args[0]))


@needs_opencl
@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("transforms", "bound"), PRECISIONS)
def test_in_textures_it_is_that_of_the_cpu(name: str, transforms: dict[str, Any] | None, bound: float) -> None:
    module, params = NETWORKS[name]()
    module, params = without_softmax(module), varied(params)
    value = np.random.default_rng(5).random((1, 3, SIDE, SIDE)).astype("float32")

    def output(graph: Any, target: str, device: Any) -> Any:
        with PassContext(opt_level=3):
            library = relay.build(graph, target, params=params)
        made = graph_executor.GraphModule(library["default"](device))
        made.run(data=value)
        return np.asarray(made.get_output(0).numpy())

    wanted = output(module, "llvm", armillary.cpu())
    found = output(apply_graph_transforms(module, transforms), "opencl -device=adreno", armillary.opencl())
    assert wanted.std() > 1e-2 * np.abs(wanted).max(), "this output tells nothing"
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    print(f"{name}: relative error {error:.1e}")
    assert error < bound
