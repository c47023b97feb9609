"""Grouped convolutions whose groups become one: whole vectors where they are free, the same values everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from random_net import Net

from armillary import relay
from armillary.backends.cpu.graph.merge_groups import merge_groups
from armillary.backends.cpu.graph.pad_channels import pad_channels
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, var
from armillary.relay.op import Op
from armillary.relay.walk import post_order
from armillary.transform import PassContext

AVX512 = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"
ZEN4 = "llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu"
HASWELL = "llvm -mcpu=haswell -mtriple=x86_64-linux-gnu"
T = relay.transform


def block(channels: int, groups: int, size: int = 14, seed: int = 1) -> tuple[IRModule, tuple[int, ...]]:
    """1x1, grouped 3x3, gate, 1x1, as in RegNet-Y."""
    net, shape = Net(seed), (1, 32, size, size)
    x = var("x", shape=shape)
    y = net.conv(net.conv(x, channels, 1), channels, stride=2, groups=groups)
    gate = relay.sigmoid(net.conv(net.conv(relay.nn.global_avg_pool2d(y), 8, 1), channels, 1))
    return T.InferType()(IRModule.from_expr(net.conv(relay.multiply(y, gate), 32, 1))), shape


def merged(module: IRModule, target: str) -> IRModule:
    wide = T.InferType()(pad_channels.bind(target=target)(module))
    return T.InferType()(merge_groups.bind(target=target)(wide))


def convolutions(module: IRModule, name: str = "nn.conv2d") -> list[Call]:
    calls = [e for e in post_order(module["main"]) if isinstance(e, Call) and isinstance(e.op, Op)]
    return [c for c in calls if c.op.name == name]


def groups(module: IRModule) -> list[int]:
    return [c.attrs.groups for c in convolutions(module) if c.attrs.groups > 1]


def run(module: IRModule, shape: tuple[int, ...]) -> np.ndarray:
    return evaluate(module, [np.random.default_rng(5).standard_normal(shape).astype("float32")])


@pytest.mark.parametrize("target", [AVX512, ZEN4, HASWELL, "llvm -mtriple=aarch64-linux-gnu"])
@pytest.mark.parametrize(("channels", "count"), [(48, 6), (104, 13), (72, 3), (40, 10), (440, 55)])
def test_values_are_the_same_on_every_vector_length(target: str, channels: int, count: int) -> None:
    module, shape = block(channels, count)
    np.testing.assert_allclose(run(merged(module, target), shape), run(module, shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "channels", "before", "after"),
    [
        (AVX512, 48, 6, 3),
        (AVX512, 440, 55, 28),
        (AVX512, 104, 13, 7),
        (AVX512, 160, 10, 10),
        (AVX512, 96, 4, 2),
        (AVX512, 160, 4, 4),
        (ZEN4, 48, 6, 6),
        (ZEN4, 440, 55, 55),
        (HASWELL, 48, 6, 6),
        (HASWELL, 48, 12, 6),
    ],
)
def test_groups_merge_where_half_a_vector_takes_as_long_as_a_whole_one(
    target: str, channels: int, before: int, after: int
) -> None:
    module, _ = block(channels, before)
    assert groups(merged(module, target)) == [after]


def test_added_channels_are_whole_groups() -> None:
    """104 channels in 13 groups become 112; 120 in 5 groups of 24 would need 144, which nobody asks for."""
    module, _ = block(120, 5)
    assert groups(merged(module, AVX512)) == [5]


def test_merged_groups_read_and_write_whole_blocks_that_nothing_copies() -> None:
    module, _ = block(440, 55)
    with PassContext(opt_level=3):
        after = relay.optimize(module, AVX512)[0]
    assert len(convolutions(after, "layout_transform")) == 2  # the input, the output
    grouped = [c for c in convolutions(after, "nn.contrib_conv2d_NCHWc") if c.attrs.groups > 1]
    assert [(c.attrs.groups, c.attrs.data_layout, c.attrs.out_layout) for c in grouped] == [(28, "NCHW16c", "NCHW16c")]
