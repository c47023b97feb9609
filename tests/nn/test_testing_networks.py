"""Facts about the ready-made networks: their shapes, parameters and names. Their values: tests/e2e."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary.errors import UnsupportedError
from armillary.relay.infer import infer_type
from armillary.relay.testing import inception_v3, mlp, mobilenet, resnet, squeezenet, vgg


def _array(value: Any) -> np.ndarray[Any, Any]:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


WORKLOADS = {
    "mlp": (lambda: mlp.get_workload(2), (2, 1, 28, 28), 10, 109_386),
    "resnet-18": (lambda: resnet.get_workload(), (1, 3, 224, 224), 1000, 11_699_892),
    "resnet-20-cifar": (
        lambda: resnet.get_workload(1, 10, 20, (3, 28, 28)),
        (1, 3, 28, 28),
        10,
        None,
    ),
    "mobilenet": (lambda: mobilenet.get_workload(), (1, 3, 224, 224), 1000, 4_253_864),
    "mobilenet-nhwc": (
        lambda: mobilenet.get_workload(image_shape=(96, 96, 3), layout="NHWC"),
        (1, 96, 96, 3),
        1000,
        4_253_864,
    ),
    "squeezenet-1.0": (lambda: squeezenet.get_workload(), (1, 3, 224, 224), 1000, 1_248_424),
    "squeezenet-1.1": (lambda: squeezenet.get_workload(version="1.1"), (1, 3, 224, 224), 1000, 1_235_496),
    "inception-v3": (lambda: inception_v3.get_workload(), (1, 3, 299, 299), 1000, None),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_network_has_its_shapes_and_published_number_of_parameters(name: str) -> None:
    make, shape, classes, count = WORKLOADS[name]
    module, params = make()
    main = module["main"]
    sizes = {p.name_hint: p.checked_type.static for p in main.params}
    assert sizes.pop("data") == shape and sizes == {name: _array(value).shape for name, value in params.items()}
    assert infer_type(main).ret_type.static == (shape[0], classes)
    assert count is None or sum(_array(p).size for p in params.values()) == count


def test_vgg_11_has_its_published_number_of_parameters() -> None:
    function = vgg.get_net(1, (3, 224, 224), 1000, "float32")
    total = sum(p.checked_type.size for p in function.params if p.name_hint != "data")
    assert total == 132_863_336


def test_the_same_seed_gives_the_same_parameters() -> None:
    first, second = mlp.get_workload(1)[1], mlp.get_workload(1)[1]
    assert all(np.array_equal(_array(first[k]), _array(second[k])) for k in first)


def test_initial_values_follow_the_names() -> None:
    _, params = mobilenet.get_workload()
    bound = np.sqrt(3.0 / 9.0)
    depthwise = _array(params["separable_conv_block_1_depthwise_conv1_weight"])
    assert bound * 0.9 < np.abs(depthwise).max() <= bound
    assert (_array(params["conv_block_1_bn_gamma"]) == 1).all()
    assert (_array(params["conv_block_1_bn_moving_var"]) == 1).all()
    assert (_array(params["fc_bias"]) == 0).all()


def test_unknown_depths_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no 19-layer network"):
        resnet.get_workload(num_layers=19)
    with pytest.raises(UnsupportedError, match="known: 11, 13, 16, 19"):
        vgg.get_workload(1, num_layers=12)
