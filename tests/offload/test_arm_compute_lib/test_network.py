"""Networks of the text's test set, whole: VGG-16, SqueezeNet, a quantised MobileNet; MobileNet: test_runtime.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from infrastructure import Device, module_of, operators, partitioned, run, verify
from quantized_networks import quantized_mobilenet

import armillary
from armillary import relay
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import var
from armillary.relay.testing import squeezenet, vgg

RNG = np.random.default_rng(31)


@pytest.mark.parametrize("name", ["vgg16", "squeezenet"])
def test_networks_in_float(device: Device, name: str, tmp_path: Path) -> None:
    """What stays: one change of layout, flattening, softmax, of VGG-16 also two relus behind dense layers."""
    if name == "vgg16":  # thirteen convolutions, five poolings, a reshape, three dense layers
        module, params = vgg.get_workload(1, 10, (3, 32, 32), num_layers=16)
        kept, offloaded = 5, 22
    else:  # 26 convolutions, three poolings, a mean and a reshape; the eight concatenations are off
        module, params = squeezenet.get_workload(1, 10, "1.1", (3, 64, 64))
        kept, offloaded = 11, 31
    after = partitioned(module, kept, offloaded, params=params)
    shape = tuple(module["main"].params[0].checked_type.shape)
    value = RNG.uniform(-1, 1, [int(d) for d in shape]).astype("float32")
    graph = relay.build(module, "llvm", params=params)["default"](armillary.cpu(0))
    graph.set_input("data", value)
    graph.run()
    verify(run(device, after, {"data": value}, tmp_path), [graph.get_output(0).numpy()], atol=0.002, rtol=0.01)


def test_a_quantised_mobilenet(device: Device, tmp_path: Path) -> None:
    """27 convolutions, a mean, the reshape and a dense layer in the library; nothing stays but softmax's part."""
    x = var("x", shape=(1, 64, 64, 3), dtype="uint8")
    module = module_of(quantized_mobilenet(x, width=0.25, num_classes=10))
    after = partitioned(module, 2, 30)
    assert operators(after["main"]) == ["qnn.dequantize", "nn.softmax"]
    value = RNG.integers(0, 255, (1, 64, 64, 3), endpoint=True).astype("uint8")
    (found,), wanted = run(device, after, {"x": value}, tmp_path), evaluate(module, [value])
    assert found.argmax() == wanted.argmax()
    np.testing.assert_allclose(found, wanted, atol=0.05)  # each layer of the library may round one step off
