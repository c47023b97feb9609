"""The networks of relay.testing compute the same at opt levels 0 to 3, and what float64 says.

Images are small, so that the float64 reference is quick. The small networks run always; every depth of every family is
`slow`. What the networks are (their parameters, their names) is tested in tests/nn.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import e2e_models as models
import pytest

Options = dict[str, Any]
Network = tuple[str, Options]
TEN = {"num_classes": 10}

SMALL: dict[str, Network] = {
    "dcgan": ("dcgan", {"ngf": 16, "random_len": 20}),
    "dqn": ("dqn", {"image_shape": (4, 44, 44)}),
    "lstm": ("lstm", {"iterations": 5, "num_hidden": 24, "batch_size": 2}),
    "resnet_3d-8": ("resnet_3d", {"num_layers": 8, "image_shape": (3, 4, 20, 20), **TEN}),
    "mobilenet-nhwc": ("mobilenet", {"image_shape": (32, 32, 3), "layout": "NHWC", **TEN}),
}
LARGE: dict[str, Network] = {
    "densenet-121": ("densenet", {"densenet_size": 121, "image_shape": (3, 32, 32), "classes": 10}),
    "densenet-161": ("densenet", {"densenet_size": 161, "image_shape": (3, 32, 32), "classes": 10}),
    "densenet-169": ("densenet", {"densenet_size": 169, "image_shape": (3, 32, 32), "classes": 10}),
    "densenet-201": ("densenet", {"densenet_size": 201, "image_shape": (3, 32, 32), "classes": 10}),
    "dcgan-128": ("dcgan", {}),
    "inception_v3": ("inception_v3", {"image_shape": (3, 107, 107), **TEN}),
    "lstm-20": ("lstm", {"iterations": 20, "num_hidden": 64}),
    "mobilenet": ("mobilenet", {"image_shape": (3, 64, 64), **TEN}),
    "resnet_3d-18": ("resnet_3d", {"num_layers": 18, "image_shape": (3, 8, 56, 56), **TEN}),
    "resnet_3d-50": ("resnet_3d", {"num_layers": 50, "image_shape": (3, 8, 56, 56), **TEN}),
    "squeezenet-1.0": ("squeezenet", {"version": "1.0", "image_shape": (3, 64, 64), **TEN}),
    "squeezenet-1.1": ("squeezenet", {"version": "1.1", "image_shape": (3, 64, 64), **TEN}),
    **{
        f"resnet-{n}": ("resnet", {"num_layers": n, "image_shape": (3, 64, 64), **TEN})
        for n in (18, 34, 50, 101, 152, 200, 269)
    },
    **{
        f"vgg-{n}{'-bn' if bn else ''}": ("vgg", {"num_layers": n, "batch_norm": bn, "image_shape": (3, 32, 32), **TEN})
        for n in (11, 13, 16, 19)
        for bn in (False, True)
    },
}
CASES = [  # levels 1 and 2 in turns
    pytest.param(name, level, id=f"{name}-{level}", marks=() if level in (0, 1 + k % 2, 3) else pytest.mark.slow)
    for k, name in enumerate(SMALL)
    for level in range(4)
]
CASES += [
    pytest.param(name, level, id=f"{name}-{level}", marks=pytest.mark.slow) for name in LARGE for level in range(4)
]


@lru_cache(maxsize=2)
def _network(name: str) -> tuple[tuple[Any, Any, models.Arrays], models.Array]:
    family, options = (SMALL | LARGE)[name]
    network = models.workload(family, **options)
    return network, models.in_double(*network)


@pytest.mark.parametrize(("name", "level"), CASES)
def test_level_agrees_with_double_precision(name: str, level: int) -> None:
    (module, params, inputs), want = _network(name)
    error = models.relative_error(models.run(models.compiled(module, params, level=level), inputs), want)
    print(f"{name} level {level}: relative error {error:.1e} (seed {models.SEED})")
    assert error < 3e-5


@pytest.mark.parametrize("name", SMALL)
def test_parameters_may_stay_inputs(name: str) -> None:
    (module, params, inputs), want = _network(name)
    error = models.relative_error(models.run(models.compiled(module, {}), {**params, **inputs}), want)
    assert error < 3e-5
