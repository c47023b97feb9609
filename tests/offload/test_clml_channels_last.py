"""Networks with channels last, as Keras writes them: channels first throughout for OpenCLML, few functions."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.relay.op.contrib import clml
from armillary.relay.transform.layout.use_layouts import use_layouts

RNG = np.random.default_rng(3)
LAYOUTS = {"nn.conv2d": ["NCHW", "OIHW"], "nn.max_pool2d": ["NCHW"], "nn.global_avg_pool2d": ["NCHW"]}


class Network:
    """Layers as `from_keras` writes them; parameters are inputs of these names."""

    def __init__(self) -> None:
        self.params: dict[str, np.ndarray] = {}

    def param(self, *shape: int) -> relay.Expr:
        name = f"p{len(self.params)}"
        self.params[name] = (0.1 + 0.5 * RNG.random(shape)).astype("float32")
        return relay.var(name, shape=shape)

    def conv(self, x: relay.Expr, inputs: int, outputs: int, size: int, stride: int = 1) -> relay.Expr:
        weight = self.param(size, size, inputs, outputs)
        pads = (size // 2, size // 2)
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        shape = {"channels": outputs, "kernel_size": (size, size)}
        y = relay.nn.conv2d(x, weight, strides=(stride, stride), padding=pads, **layouts, **shape)
        return relay.nn.batch_norm(
            relay.nn.bias_add(y, self.param(outputs), axis=3), *(self.param(outputs) for _ in range(4)), axis=3
        )[0]

    def block(self, x: relay.Expr, inputs: int, width: int, stride: int) -> relay.Expr:
        """A bottleneck of ResNet-50."""
        shortcut = self.conv(x, inputs, 4 * width, 1, stride) if inputs != 4 * width else x
        y = relay.nn.relu(self.conv(x, inputs, width, 1, stride))
        y = relay.nn.relu(self.conv(y, width, width, 3))
        return relay.nn.relu(relay.add(shortcut, self.conv(y, width, 4 * width, 1)))


def resnet(blocks: int) -> tuple[armillary.IRModule, dict[str, np.ndarray]]:
    net, x = Network(), relay.var("x", shape=(1, 17, 17, 3))
    y = relay.nn.relu(net.conv(x, 3, 8, 3, 2))
    y = relay.nn.max_pool2d(relay.nn.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (2, 2), layout="NHWC")
    for number in range(blocks):
        y = net.block(y, 8 if number == 0 else 16, 4, 1)
    y = relay.nn.global_avg_pool2d(y, layout="NHWC")
    free = relay.analysis.free_vars(y)
    return armillary.IRModule.from_expr(relay.Function(free, y)), net.params


def computed(module: armillary.IRModule, params: dict[str, np.ndarray]) -> np.ndarray:
    values = {"x": np.random.default_rng(5).random((1, 17, 17, 3), dtype="float32"), **params}
    inputs = [values[p.name_hint] for p in module["main"].params]
    return np.asarray(relay.create_executor("debug", module).evaluate()(*inputs).numpy())


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_residual_network_is_at_most_one_function_for_each_block(blocks: int) -> None:
    module, params = resnet(blocks)
    with armillary.transform.PassContext(opt_level=3):
        parts = clml.partition_for_clml(module, params)
    main = str(parts["main"])
    assert main.count("@tvmgen_default_clml_main_") <= blocks
    assert main.count("layout_transform") <= 2 and "batch_norm" not in main


def test_normalisations_and_biases_follow_through_unbound_parameters() -> None:
    module, params = resnet(2)
    wanted = computed(relay.transform.InferType()(module), params)
    count = str(module).count("nn.conv2d")
    ways = ((use_layouts.bind(desired_layouts=LAYOUTS), 0), (relay.transform.ConvertLayout(LAYOUTS), count))
    for change, biases in ways:  # for scripts a bias is a sum, which is moved before any data is there
        with armillary.transform.PassContext(opt_level=3):
            moved = relay.transform.InferType()(change(module))
        lines = [line for line in str(moved).splitlines() if "layout_transform(" in line]
        assert sum("HWIO" in line for line in lines) == count and ", axis=3" not in str(moved)
        assert len(lines) - count - biases <= 2, lines
        np.testing.assert_allclose(computed(moved, params), wanted, rtol=1e-4)


def test_the_moments_of_a_normalisation_stay_what_they_were() -> None:
    net, x = Network(), relay.var("x", shape=(1, 6, 6, 3))
    y = relay.nn.conv2d(
        x, net.param(3, 3, 3, 4), data_layout="NHWC", kernel_layout="HWIO", channels=4, kernel_size=(3, 3)
    )
    norm = relay.nn.batch_norm(y, *(net.param(4) for _ in range(4)), axis=3)
    body = relay.Tuple([relay.nn.relu(norm[0]), norm[1], norm[2]])
    module = armillary.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    with armillary.transform.PassContext(opt_level=3):
        moved = use_layouts.bind(desired_layouts=LAYOUTS)(relay.transform.InferType()(module))
    values = {"x": RNG.random((1, 6, 6, 3), dtype="float32"), **net.params}

    def results(of: armillary.IRModule) -> list[np.ndarray]:
        inputs = [values[p.name_hint] for p in of["main"].params]
        return [r.numpy() for r in relay.create_executor("debug", of).evaluate()(*inputs)]

    assert "axis=3" not in str(moved)
    for found, wanted in zip(results(moved), results(module), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
