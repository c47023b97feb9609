"""The light ONNX networks, compiled, give their stored outputs; with drawn weights, those of onnxruntime."""

from __future__ import annotations

import e2e_models as models
import numpy as np
import pytest

NAMES = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
    "zfnet512",
)  # fmt: skip
LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")  # hundreds of megabytes of weights


@pytest.mark.parametrize("name", NAMES)
def test_stored_output_on_llvm(name: str) -> None:
    model = models.light_model(name)
    got = models.run(models.compile_light(model), models.light_inputs(model))
    np.testing.assert_allclose(got, models.stored_output(name), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("name", ["resnet50", "shufflenet", "squeezenet"])
def test_stored_output_on_c(name: str) -> None:
    model = models.light_model(name)
    got = models.run(models.compile_light(model, "c"), models.light_inputs(model))
    np.testing.assert_allclose(got, models.stored_output(name), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in NAMES]
)
def test_output_for_drawn_weights_is_that_of_onnxruntime(name: str) -> None:
    model = models.with_random_weights(models.light_model(name))
    inputs = models.light_inputs(model)
    want = models.by_onnxruntime(model, inputs)
    error = models.relative_error(models.run(models.compile_light(model), inputs), want)
    print(f"{name}: relative error {error:.1e} (seed {models.SEED})")
    assert error < 1e-4
