"""The light ONNX networks, compiled, give their stored outputs; with drawn weights those of onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import e2e_models as models
import numpy as np
import pytest

NAMES = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
QUICK = ("squeezenet", "shufflenet")
DRAWN = ("densenet121", "inception_v2", "resnet50", *QUICK)  # with drawn weights always
STORED = ("bvlc_alexnet", "squeezenet")  # with their own always: what the others compute is drawn too
LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")  # hundreds of megabytes of weights


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in STORED else pytest.mark.slow) for n in NAMES])
def test_stored_output_on_llvm(name: str) -> None:
    model = models.light_model(name)
    got = models.run(models.compile_light(model), models.light_inputs(model))
    np.testing.assert_allclose(got, models.stored_output(name), rtol=1e-3, atol=1e-7)


@pytest.mark.slow  # 300 kB of C and more each; small networks as C: test_levels.py
@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "shufflenet"])
def test_stored_output_on_c(name: str) -> None:
    model = models.light_model(name)
    got = models.run(models.compile_light(model, "c"), models.light_inputs(model))
    np.testing.assert_allclose(got, models.stored_output(name), rtol=1e-3, atol=1e-7)


def _levels() -> Iterator[Any]:
    """(network, opt level): the highest level for the networks of usual size, lower ones for two small ones."""
    for name in NAMES:
        for level in range(4):
            usual = name in DRAWN and (level == 3 or (name == QUICK[level % 2]))
            yield pytest.param(name, level, id=f"{name}-{level}", marks=() if usual else pytest.mark.slow)


@lru_cache(maxsize=1)
def _drawn(name: str) -> tuple[Any, models.Arrays, models.Array]:
    model = models.with_random_weights(models.light_model(name))
    inputs = models.light_inputs(model)
    return model, inputs, models.by_onnxruntime(model, inputs)


@pytest.mark.parametrize(("name", "level"), list(_levels()))
def test_output_for_drawn_weights_is_that_of_onnxruntime(name: str, level: int) -> None:
    model, inputs, want = _drawn(name)
    error = models.relative_error(models.run(models.compile_light(model, level=level), inputs), want)
    print(f"{name} level {level}: relative error {error:.1e} (seed {models.SEED})")
    assert error < 1e-4
