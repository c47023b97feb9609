"""Kernels of 1x1 convolutions on one row of pixels: what is taken and what is left; values and descriptors stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.backends.cpu.graph._collapse_rows import collapse_rows
from armillary.contrib import graph_executor
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Function
from armillary.relay.op import is_primitive
from armillary.relay.walk import post_order
from armillary.target import Target
from armillary.transform import PassContext

TWO_PORTS = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=graniterapids")
ONE_PORT = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")


def network(
    shape: tuple[int, ...], outputs: int, *, is_joined: bool = False, kernel: int = 1, stride: int = 1
) -> tuple[Function, Any]:
    """relu(conv(conv(x)) + bias), with x added where it is joined; and its input."""
    rng = np.random.default_rng(5)
    channels = shape[1]
    x = relay.var("x", shape=shape)

    def conv(data: Any, i: int, o: int) -> Any:
        weight = relay.const((rng.standard_normal((o, i, kernel, kernel)) / i).astype("float32"))
        bias = relay.const(rng.standard_normal((o, 1, 1)).astype("float32"))
        strides, padding = (stride, stride), (kernel // 2, kernel // 2)
        return relay.add(relay.nn.conv2d(data, weight, strides=strides, padding=padding), bias)

    y = conv(relay.nn.relu(conv(x, channels, outputs)), outputs, channels)
    joined = relay.add(y, x) if is_joined else y
    return relay.Function([x], relay.nn.relu(joined)), rng.standard_normal(shape).astype("float32")


def kernels(function: Function, target: Target) -> list[Function]:
    with PassContext(opt_level=3):
        main = relay.optimize(function, target)[0]["main"]
    return [e.op for e in post_order(main) if isinstance(e, Call) and is_primitive(e.op)]


def flattened(function: Function, target: Target) -> int:
    return sum(collapse_rows(f, target) is not f for f in kernels(function, target))


@pytest.mark.parametrize("tile", ["", "9x3", "6x4", "14x2"])
@pytest.mark.parametrize(
    ("shape", "outputs"),
    [((1, 64, 19, 19), 64), ((1, 112, 13, 17), 160), ((2, 80, 7, 7), 48), ((1, 128, 37, 35), 224), ((1, 32, 9, 1), 32)],
)
def test_values_are_those_of_the_other_layout(shape: tuple[int, ...], outputs: int, tile: str) -> None:
    """Widths that no tile divides, blocks that no tile divides, bands of tiles with and without a rest."""
    function, image = network(shape, outputs, is_joined=True)
    expected = np.asarray(evaluate(function, [image]))
    with PassContext(opt_level=3, config={"cpu.tile": tile}):
        library = relay.build(function, target="llvm")
    executor = graph_executor.GraphModule(library["default"](armillary.cpu()))
    executor.run(x=image)
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=2e-4, atol=2e-4)


def test_a_kernel_with_its_bias_and_its_sum_sees_one_row() -> None:
    function, _ = network((1, 64, 19, 17), 64, is_joined=True)
    changed = [made for f in kernels(function, TWO_PORTS) if (made := collapse_rows(f, TWO_PORTS)) is not f]
    assert len(changed) == 2
    assert changed[0].body.checked_type.shape == (1, 4, 1, 323, 16)
    assert (1, 4, 1, 1, 16) in [p.checked_type.shape for p in changed[0].params]  # the bias stays one value a channel


@pytest.mark.parametrize("changes", [{"kernel": 3}, {"stride": 2}])
def test_windows_and_strides_stay_images(changes: dict[str, int]) -> None:
    function, _ = network((1, 64, 20, 20), 64, **changes)  # type: ignore[arg-type]
    assert flattened(function, TWO_PORTS) == 0


def test_one_port_keeps_rows() -> None:
    function, _ = network((1, 64, 19, 17), 64)
    assert flattened(function, TWO_PORTS) == 2
    assert flattened(function, ONE_PORT) == 0


def test_the_descriptor_says_the_shapes_of_the_caller() -> None:
    function, _ = network((1, 64, 19, 17), 64)
    with PassContext(opt_level=3):
        library = relay.build(function, target=TWO_PORTS)
    shapes = {arg.shape for row in library.descriptor.functions.values() for arg in row.args}
    assert (1, 4, 19, 17, 16) in shapes and (1, 4, 1, 323, 16) not in shapes
