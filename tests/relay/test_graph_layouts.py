"""Changed layouts: same results, few conversions, blocks that neighbours agree on, refusals that say why."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import relay
from armillary.base.data_layout import layout
from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.analysis import op_frequency
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Expr, const, var
from armillary.relay.op import Op
from armillary.relay.transform.layout._engine import reshape_of
from armillary.relay.walk import post_order

AVX = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"
T = relay.transform
SHAPE = (1, 16, 6, 6)


class Weights:
    """Random constants from a seed, scaled so that values stay near one through many layers."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int) -> Expr:
        scale = 1 / np.sqrt(max(1, np.prod(shape[1:])))
        return const((scale * self.rng.standard_normal(shape)).astype("float32"))

    def conv(self, x: Expr, out: int, kernel: int = 1, groups: int = 1) -> Expr:
        channels = x.checked_type.shape[1]
        pad = kernel // 2
        weight = self(out, channels // groups, kernel, kernel)
        return relay.nn.relu(relay.nn.conv2d(x, weight, padding=(pad, pad), groups=groups))


def shuffle(x: Expr, groups: int) -> Expr:
    n, c, h, w = x.checked_type.shape
    split = relay.reshape(x, (n, groups, c // groups, h, w))
    return relay.reshape(relay.transpose(split, (0, 2, 1, 3, 4)), (n, c, h, w))


def run(module: IRModule, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return evaluate(module, [np.random.default_rng(3).standard_normal(shape).astype("float32")])


def altered(body: Expr, shape: tuple[int, ...] = SHAPE) -> IRModule:
    """The module in blocked layouts, after checking that it computes the same."""
    before = IRModule.from_expr(body)
    after = T.FoldConstant()(T.AlterOpLayout(AVX)(before))
    np.testing.assert_allclose(run(after, shape), run(before, shape), rtol=1e-4, atol=1e-4)
    assert T.AlterOpLayout(AVX)(after).astext() == after.astext()
    return after


def blocks(module: IRModule) -> set[str]:
    calls = [e for e in post_order(module["main"]) if isinstance(e, Call) and isinstance(e.op, Op)]
    return {c.attrs.out_layout for c in calls if "conv2d_NCHWc" in c.op.name}


def test_concatenated_branches_of_16_24_and_48_channels_share_a_block_of_8() -> None:
    w, x = Weights(1), var("x", shape=SHAPE)
    branches = [w.conv(w.conv(x, c), c, 3) for c in (16, 24, 48)]
    module = altered(relay.nn.global_avg_pool2d(w.conv(relay.concatenate(branches, axis=1), 32)))
    assert op_frequency(module).get("layout_transform") == 1  # the input; the last result is 1x1
    assert blocks(module) == {"NCHW8c", "NCHW16c"}


def test_sums_agree_on_a_block_that_grouped_consumers_can_take() -> None:
    w, x = Weights(2), var("x", shape=SHAPE)
    stem = w.conv(x, 48)
    inner = w.conv(w.conv(stem, 48, 3, groups=48), 48, groups=4)  # 12 channels per group
    module = altered(relay.nn.global_avg_pool2d(w.conv(relay.add(stem, inner), 48, groups=4)))
    assert op_frequency(module).get("layout_transform") == 1
    assert blocks(module) == {"NCHW12c"} or blocks(module) == {"NCHW4c"}


@pytest.mark.parametrize(("channels", "groups"), [(32, 4), (64, 8), (32, 2)])
def test_channel_shuffle_between_grouped_convolutions_needs_no_conversion(channels: int, groups: int) -> None:
    w, x = Weights(channels + groups), var("x", shape=SHAPE)
    y = w.conv(x, channels)
    for _ in range(2):
        y = shuffle(w.conv(y, channels, groups=groups), groups)
        y = relay.add(y, w.conv(w.conv(y, channels, 3, groups=channels), channels, groups=groups))
    module = altered(relay.nn.global_avg_pool2d(y))
    assert op_frequency(module).get("layout_transform") <= 2


def test_groups_of_34_channels_and_the_sums_between_them_stay_plain_where_images_are_large() -> None:
    w, x = Weights(5), var("x", shape=(1, 16, 12, 12))
    y = w.conv(x, 136)
    for _ in range(2):
        y = relay.nn.relu(relay.add(y, w.conv(w.conv(y, 136, groups=4), 136, groups=4)))
    counts = op_frequency(altered(w.conv(y, 32), (1, 16, 12, 12)))
    assert counts["nn.conv2d"] == 4
    assert counts["layout_transform"] <= 4  # around the first convolution and around the last one
    small = var("x", shape=SHAPE)
    assert "nn.conv2d" not in op_frequency(altered(w.conv(w.conv(small, 80), 80, groups=4)))  # 20 per group


def test_means_of_images_without_their_axes_are_taken_on_blocks() -> None:
    w, x = Weights(8), var("x", shape=SHAPE)
    module = altered(relay.mean(w.conv(x, 64, 3), axis=(2, 3)))
    assert op_frequency(module)["layout_transform"] == 1
    rows = altered(relay.mean(w.conv(x, 64, 3), axis=(2,)))
    assert op_frequency(rows)["layout_transform"] == 2


def test_a_pooling_that_skips_elements_before_plain_readers_works_on_blocks() -> None:
    w, x = Weights(6), var("x", shape=(1, 16, 24, 24))
    y = w.conv(w.conv(x, 136), 136, groups=4)
    y = relay.nn.avg_pool2d(y, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    module = altered(w.conv(y, 136, groups=4), (1, 16, 24, 24))
    calls = [e for e in post_order(module["main"]) if isinstance(e, Call) and isinstance(e.op, Op)]
    assert [c.attrs.layout for c in calls if c.op.name == "nn.avg_pool2d"] == ["NCHW8c"]


def test_a_convolution_computes_whole_vectors_though_its_reader_asks_for_small_blocks() -> None:
    w, x = Weights(7), var("x", shape=SHAPE)
    part = relay.strided_slice(w.conv(x, 128), begin=[0, 0, 0, 0], end=[1, 116, 6, 6])
    assert blocks(altered(w.conv(part, 32))) == {"NCHW16c"}


def test_a_slice_of_1x1_images_asks_for_no_small_block() -> None:
    w, x = Weights(9), var("x", shape=SHAPE)
    pooled = relay.nn.global_avg_pool2d(w.conv(x, 112))
    assert blocks(altered(relay.strided_slice(pooled, begin=[0, 0, 0, 0], end=[1, 104, 1, 1]))) == {"NCHW16c"}


def test_reshapes_that_are_no_shuffle_get_plain_tensors() -> None:
    w, x = Weights(3), var("x", shape=SHAPE)
    y = relay.reshape(w.conv(x, 32), (1, 4, 8, 6, 6))
    y = relay.reshape(relay.transpose(y, (0, 2, 1, 4, 3)), (1, 32, 6, 6))
    assert op_frequency(altered(w.conv(y, 16)))["layout_transform"] >= 3


def test_pooling_head_and_dense_need_one_conversion_only() -> None:
    w, x = Weights(4), var("x", shape=SHAPE)
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(w.conv(x, 64, 3)))
    module = altered(relay.nn.softmax(relay.nn.dense(y, w(32, 64))))
    counts = op_frequency(module)
    assert counts["layout_transform"] == 1
    assert counts["nn.contrib_dense_pack"] == 1


@pytest.mark.parametrize(("units", "packed"), [(32, True), (1000, True), (34, True), (3, False)])
@pytest.mark.parametrize("batch", [1, 3])
def test_dense_is_packed_but_for_a_few_units_of_few_rows(units: int, packed: bool, batch: int) -> None:
    x = var("x", shape=(batch, 12))
    module = altered(relay.nn.dense(x, Weights(5)(units, 12)), (batch, 12))
    assert ("nn.contrib_dense_pack" in op_frequency(module)) == packed


def test_pooling_of_stride_one_beside_convolutions_starts_a_blocked_layout() -> None:
    w, x = Weights(6), var("x", shape=SHAPE)
    pooled = relay.nn.max_pool2d(x, (3, 3), (1, 1), padding=(1, 1))
    module = altered(relay.nn.global_avg_pool2d(relay.concatenate([w.conv(x, 16), w.conv(pooled, 16)], axis=1)))
    assert op_frequency(module)["layout_transform"] == 1


def test_weights_that_are_inputs_keep_the_plain_layout() -> None:
    x, weight = var("x", shape=SHAPE), var("w", shape=(16, 16, 1, 1))
    module = IRModule.from_expr(relay.nn.conv2d(x, weight))
    assert T.AlterOpLayout(AVX)(module) is module


@pytest.mark.parametrize("seed", range(8))
def test_random_networks_of_uneven_channels_keep_their_results(seed: int) -> None:
    w = Weights(100 + seed)
    pool: list[Expr] = [var("x", shape=SHAPE)]
    for _ in range(12):
        x = pool[int(w.rng.integers(max(0, len(pool) - 3), len(pool)))]
        c = x.checked_type.shape[1]
        kind = int(w.rng.integers(7))
        if kind <= 1:
            pool.append(w.conv(x, int(w.rng.choice([5, 12, 16, 20, 24, 34, 48])), int(w.rng.choice([1, 3]))))
        elif kind == 2 and c > 1:
            pool.append(w.conv(x, c, 3, groups=c))
        elif kind == 3:
            groups = next(g for g in (4, 3, 2, 1) if c % g == 0)
            pool.append(shuffle(w.conv(x, c * 2, groups=groups), groups))
        elif kind == 4:
            pool.append(relay.concatenate([x, *[p for p in pool[1:][-2:] if p is not x]], axis=1))
        elif kind == 5:
            pool.append(relay.nn.avg_pool2d(x, (3, 3), (1, 1), padding=(1, 1)))
        else:
            same = [p for p in pool if p.checked_type == x.checked_type]
            pool.append(relay.add(x, same[int(w.rng.integers(len(same)))]))
        if pool[-1].checked_type.shape[1] > 96:
            pool.append(w.conv(pool[-1], 16))
    altered(relay.nn.batch_flatten(relay.nn.max_pool2d(pool[-1], (2, 2), (2, 2))))


def test_moving_between_layouts_of_one_pixel_is_a_reshape() -> None:
    nchw, blocked = layout("NCHW"), layout("NCHW16c")
    assert reshape_of((1, 2, 1, 1, 16), blocked, nchw) == (1, 32, 1, 1)
    assert reshape_of((1, 32, 1, 1), nchw, blocked) == (1, 2, 1, 1, 16)
    assert reshape_of((1, 16, 5, 5), nchw, blocked) is None
    assert reshape_of((4, 1, 5, 1, 16), blocked, layout("NHWC")) == (4, 5, 1, 16)
    assert reshape_of((1, 2, 1, 1, 16), blocked, layout("NCHW8c")) == (1, 4, 1, 1, 8)
    assert reshape_of((32, 1, 1, 1), layout("OIHW"), layout("OIHW1i16o")) == (2, 1, 1, 1, 1, 16)
    assert reshape_of((32, 4, 1, 1), layout("OIHW"), layout("OIHW4i16o")) is None


# --- the layouts a user asks for --------------------------------------------------------------------------------------


def converted(body: Expr, desired: dict[str, list[str]]) -> IRModule:
    before = IRModule.from_expr(body)
    after = T.ConvertLayout(desired)(before)
    np.testing.assert_allclose(run(after), run(before), rtol=1e-4, atol=1e-4)
    assert T.ConvertLayout(desired)(after) is after or T.ConvertLayout(desired)(after).astext() == after.astext()
    return after


def test_convolution_transposed_convolution_bias_and_pooling_follow_into_nhwc() -> None:
    w, x = Weights(7), var("x", shape=SHAPE)
    y = relay.nn.bias_add(w.conv(x, 8, 3), w(8))
    y = relay.nn.conv2d_transpose(relay.nn.max_pool2d(y, (2, 2), (2, 2)), w(8, 4, 2, 2), strides=(2, 2))
    y = relay.nn.avg_pool2d(relay.nn.relu(y), (3, 3), (1, 1), padding=(1, 1))
    desired = {"nn.conv2d": ["NHWC", "default"], "nn.conv2d_transpose": ["NHWC", "default"]}
    module = converted(y, desired)
    assert op_frequency(T.FoldConstant()(module))["layout_transform"] == 2  # the input and the output
    assert "NHWC" in module.astext()


def test_pooling_alone_can_be_converted_and_back() -> None:
    x = var("x", shape=SHAPE)
    there = converted(relay.nn.max_pool2d(x, (2, 2)), {"nn.max_pool2d": ["NHWC"]})
    assert op_frequency(there)["layout_transform"] == 2
    back = T.SimplifyExpr()(T.ConvertLayout({"nn.max_pool2d": ["NCHW"]})(there))
    assert "layout_transform" not in op_frequency(back)


@pytest.mark.parametrize(
    ("desired", "error", "message"),
    [
        ({"nn.lrn": ["NHWC"]}, UnsupportedError, r"nn\.lrn cannot be converted"),
        ({"nn.conv3d": ["NCDHW16c"]}, UnsupportedError, "NCDHW16c is blocked"),
        ({"nn.conv2d": ["NHWC16c"]}, UnsupportedError, "NHWC16c blocks other axes than channels"),
        ({"nn.conv2d": ["NCW"]}, UnsupportedError, r"nn\.conv2d has no layout NCW"),
        ({"nn.conv2d": ["NHWC", "HWCN"]}, UnsupportedError, r"nn\.conv2d has no layout HWCN"),
        ({"nn.conv2d": ["default"]}, ConfigError, "the data layout must be named"),
        ({"nn.conv2d": "NHWC"}, ConfigError, "takes a list of a data layout"),
        ({"nn.max_pool2d": ["NHWC", "HWIO"]}, ConfigError, "takes a list of a data layout, got"),
    ],
)
def test_refused_layouts_say_why(desired: dict[str, list[str]], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        T.ConvertLayout(desired)(IRModule.from_expr(var("x", shape=(1,))))
