"""Networks written in NHWC compute on blocked layouts as those in NCHW do, unless layouts are to stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.driver.build import optimized
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, const, var
from armillary.relay.op import Op
from armillary.relay.walk import post_order
from armillary.target import Target
from armillary.transform import PassContext

RNG = np.random.default_rng(23)
CPUS = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"


def _weight(*shape: int) -> Expr:
    return const((RNG.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype("float32"))


def _conv(x: Expr, channels: int, stride: int = 1, groups: int = 1) -> Expr:
    inner = int(x.checked_type.shape[3])
    weight = _weight(3, 3, inner, 1) if groups > 1 else _weight(3, 3, inner, channels)
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWOI" if groups > 1 else "HWIO"}
    y = relay.nn.conv2d(x, weight, strides=(stride, stride), padding=(1, 1), groups=groups, **layouts)
    return relay.nn.relu(relay.nn.bias_add(y, const(RNG.standard_normal(channels).astype("float32")), axis=3))


def _network(x: Expr) -> Expr:
    y = _conv(x, 16, 2)
    z = _conv(_conv(y, 16, groups=16), 16)
    y = relay.nn.max_pool2d(relay.add(y, z), pool_size=(2, 2), strides=(2, 2), layout="NHWC")
    y = relay.concatenate((y, relay.clip(y, -1.0, 1.0)), axis=3)
    y = relay.nn.global_avg_pool2d(_conv(y, 24), layout="NHWC")
    return relay.nn.softmax(relay.nn.dense(relay.nn.batch_flatten(y), _weight(10, 24)))


def _calls(module: IRModule) -> list[Call]:
    return [e for e in post_order(module["main"]) if isinstance(e, Call) and isinstance(e.op, Op)]


def _optimized(expr: Expr, target: str, **options: Any) -> list[Call]:  # Any: options of a PassContext
    with PassContext(opt_level=3, **options):
        return _calls(optimized(IRModule.from_expr(expr), Target(target), {}))


@pytest.mark.parametrize("target", CPUS)
def test_every_convolution_has_blocks_and_images_change_layout_at_the_ends_alone(target: str) -> None:
    calls = _optimized(_network(var("x", shape=(1, 20, 18, 3))), target)
    convolutions = [c for c in calls if "conv2d" in c.op.name and "weight" not in c.op.name]
    assert len(convolutions) == 4
    assert all("NCHWc" in c.op.name or c.attrs.data_layout == "NCHW" for c in convolutions)
    moved = [c for c in calls if c.op.name in ("layout_transform", "transpose") and len(c.checked_type.shape) > 3]
    assert len(moved) <= 2, moved


def test_where_blocked_layouts_are_off_the_network_stays_as_written() -> None:
    calls = _optimized(_network(var("x", shape=(1, 20, 18, 3))), CPUS[0], disabled_pass=["AlterOpLayout"])
    assert {c.attrs.data_layout for c in calls if c.op.name == "nn.conv2d"} == {"NHWC"}


def test_weights_that_are_inputs_stay_in_their_layout() -> None:
    x, weight = var("x", shape=(1, 8, 8, 4)), var("w", shape=(3, 3, 4, 8))
    y = relay.nn.conv2d(x, weight, padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")
    (conv,) = [c for c in _optimized(y, CPUS[0]) if "conv2d" in c.op.name]
    assert conv.attrs.data_layout == "NHWC"


def test_results_are_those_of_the_reference() -> None:
    module = IRModule.from_expr(_network(var("x", shape=(1, 20, 18, 3))))
    value = RNG.standard_normal((1, 20, 18, 3)).astype("float32")
    with PassContext(opt_level=3):
        graph = relay.build(module, "llvm")["default"](armillary.cpu(0))
    graph.set_input("x", value)
    graph.run()
    np.testing.assert_allclose(graph.get_output(0).numpy(), evaluate(module, [value]), rtol=1e-4, atol=1e-5)


def test_convolutions_of_bytes_use_dot_products_too() -> None:
    x = var("x", shape=(1, 12, 12, 16), dtype="uint8")
    weight = const(RNG.integers(-128, 127, (3, 3, 16, 32)).astype("int8"))
    numbers = (const(np.int32(3)), const(np.int32(0)), const(np.float32(1)), const(np.float32(1)))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    y = relay.qnn.conv2d(x, weight, *numbers, kernel_size=(3, 3), channels=32, padding=(1, 1, 1, 1), **layouts)
    calls = _optimized(y, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")
    assert "cpu.conv2d_NCHWc_int8" in {c.op.name for c in calls}
