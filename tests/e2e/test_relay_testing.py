"""The networks of relay.testing build at the highest level; those that are run agree with float64."""

from __future__ import annotations

from typing import Any

import e2e_models as models
import pytest

RUN = {"mlp": {}, "mobilenet": {}, "resnet": {"num_layers": 18}}
BUILT = {"squeezenet": {}, "inception_v3": {}, "vgg": {"num_layers": 11}}
LARGE = (
    "resnet",
    "vgg",
    "inception_v3",
)  # seconds of float64, of weights or kernels: others are run with drawn weights


def _cases(networks: dict[str, dict[str, Any]]) -> list[Any]:
    """The large ones are slow."""
    return [pytest.param(*row, marks=pytest.mark.slow if row[0] in LARGE else ()) for row in networks.items()]


@pytest.mark.parametrize(("name", "options"), _cases(RUN), ids=RUN)
def test_error_against_double_precision(name: str, options: dict[str, Any]) -> None:
    module, params, inputs = models.workload(name, **options)
    library = models.compiled(module, params)
    error = models.relative_error(models.run(library, inputs), models.in_double(module, params, inputs))
    print(f"{name}: relative error {error:.1e} (seed {models.SEED})")
    assert error < 1e-4


@pytest.mark.parametrize("layers", [pytest.param(34, marks=pytest.mark.slow), 50])
def test_small_resnets_agree_with_double_precision(layers: int) -> None:
    module, params, inputs = models.workload("resnet", num_layers=layers, image_shape=(3, 64, 64), num_classes=10)
    error = models.relative_error(
        models.run(models.compiled(module, params), inputs), models.in_double(module, params, inputs)
    )
    print(f"resnet-{layers}: relative error {error:.1e} (seed {models.SEED})")
    assert error < 1e-4


@pytest.mark.parametrize(("name", "options"), _cases(BUILT), ids=BUILT)
def test_network_builds(name: str, options: dict[str, Any]) -> None:
    module, params, inputs = models.workload(name, **options)
    graph = models.compiled(module, params)["default"]()
    assert set(graph.free_inputs) == set(inputs)
    assert graph.get_output(0).numpy().shape == (1, 1000)
