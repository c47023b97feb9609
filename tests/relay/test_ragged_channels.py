"""Channels that meet or are cut apart: whole blocks between convolutions, the same values, packages that stay small."""

from __future__ import annotations

import random

import numpy as np
import pytest
from random_net import Net

from armillary import relay
from armillary.backends.channels.wide_channels import Channels
from armillary.backends.cpu.graph.pad_channels import pad_channels
from armillary.backends.cpu.graph.trim_weights import SHARE, trim_weights
from armillary.base.aligned import Deferred
from armillary.base.node import structural_equal
from armillary.ir import IRModule
from armillary.relay.analysis import op_frequency
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Constant, Expr, Function, const, var
from armillary.relay.op import Op, get_op
from armillary.relay.transform.simplify.canonicalize_ops import canonicalize_ops
from armillary.relay.walk import post_order
from armillary.transform import PassContext

AVX512 = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"
ZEN4 = "llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu"
T = relay.transform
WIDE = 28


def join(*parts: Expr) -> Expr:
    return relay.concatenate(list(parts), axis=1)


def harmonic(net: Net, x: Expr) -> Expr:
    """A block as in HarDNet: 20, 34 and 58 channels meet in concatenations that convolutions read."""
    a = net.conv(x, 20)
    b = net.conv(join(a, x), 34)
    c = net.conv(b, 20)
    d = net.conv(join(c, b, x), 58)
    return net.conv(join(a, c, d), 64, 1)


def split_sums(net: Net, x: Expr) -> Expr:
    """A block as in Res2Net: 104 channels are cut into four, whose sums and convolutions meet again."""
    whole = net.conv(x, 104, 1)
    parts = relay.split(whole, 4, axis=1)
    first = net.conv(parts[0], 26)
    second = net.conv(relay.add(first, parts[1]), 26)
    third = net.conv(relay.add(second, parts[2]), 26)
    return net.conv(join(first, second, third, parts[3]), 64, 1)


def module_of(body: Expr) -> IRModule:
    return T.InferType()(IRModule.from_expr(relay.nn.global_avg_pool2d(body)))


def run(module: IRModule, shape: tuple[int, ...]) -> np.ndarray:
    return evaluate(module, [np.random.default_rng(5).standard_normal(shape).astype("float32")])


def padded(module: IRModule, target: str = AVX512) -> IRModule:
    return T.InferType()(pad_channels.bind(target=target)(T.InferType()(canonicalize_ops(module))))


def channels(module: IRModule) -> list[int]:
    """Output channels of each convolution, in order."""
    calls = [e for e in post_order(module["main"]) if isinstance(e, Call) and isinstance(e.op, Op)]
    return [c.checked_type.shape[1] for c in calls if c.op.name == "nn.conv2d"]


@pytest.mark.parametrize("block", [harmonic, split_sums])
@pytest.mark.parametrize("target", [AVX512, ZEN4, "llvm -mcpu=haswell", "llvm -mtriple=aarch64-linux-gnu"])
def test_values_are_the_same_on_every_vector_length(block, target: str) -> None:
    shape = (1, 32, WIDE, WIDE)
    module = module_of(block(Net(1), var("x", shape=shape)))
    np.testing.assert_allclose(run(padded(module, target), shape), run(module, shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("block", "wanted"), [(harmonic, [32, 48, 32, 64, 64]), (split_sums, [128, 32, 32, 32, 64])])
def test_blocks_meet_whole_and_every_3x3_convolution_is_winograds(block, wanted: list[int]) -> None:
    module = module_of(block(Net(2), var("x", shape=(1, 64, 56, 56))))
    assert channels(padded(module)) == wanted
    with PassContext(opt_level=3):
        after = relay.optimize(module, AVX512)[0]
    counts = op_frequency(after)
    kernels = sum(c.args[1].held.shape[2:] == (3, 3) for c in _convolutions(module))
    assert counts["cpu.conv2d_winograd_NCHWc"] == kernels
    assert counts.get("layout_transform", 0) <= 1  # the input


def test_networks_of_ragged_channels_compile_without_winograd() -> None:
    module = module_of(harmonic(Net(2), var("x", shape=(1, 64, 56, 56))))
    with PassContext(opt_level=3, config={"relay.WinogradConv2D.max_tile": 0}):
        counts = op_frequency(relay.optimize(module, AVX512)[0])
    assert "cpu.conv2d_winograd_NCHWc" not in counts and counts["nn.contrib_conv2d_NCHWc"] > 0


def _convolutions(module: IRModule) -> list[Call]:
    calls = [e for e in post_order(module["main"]) if isinstance(e, Call) and isinstance(e.op, Op)]
    return [c for c in calls if c.op.name == "nn.conv2d"]


def test_groups_that_gain_nothing_stay_as_they_are() -> None:
    net, x = Net(3), var("x", shape=(1, 64, WIDE, WIDE))
    aligned = module_of(net.conv(join(net.conv(x, 32), net.conv(x, 48)), 64))
    assert padded(aligned).astext() == T.InferType()(canonicalize_ops(aligned)).astext()


@pytest.mark.parametrize("reader", ["softmax", "mean", "exp_ratio", "prod"])
def test_what_looks_at_all_channels_or_may_divide_by_zero_reads_the_real_ones(reader: str) -> None:
    net, shape = Net(4), (1, 32, WIDE, WIDE)
    x = var("x", shape=shape)
    both = join(net.conv(x, 20), net.conv(x, 34))
    body = net.conv(both, 32)
    other = {
        "softmax": lambda: relay.nn.softmax(both, axis=1),
        "mean": lambda: relay.mean(both, axis=1, keepdims=True),
        "exp_ratio": lambda: relay.divide(relay.exp(both), relay.add(both, const(np.float32(1e-3)))),
        "prod": lambda: relay.prod(both, axis=1, keepdims=True),
    }[reader]()
    more = net.conv(other, 32, 1)
    module = module_of(relay.add(body, more))
    after = padded(module)
    assert max(channels(after)) == 48  # what only convolutions read is wide nevertheless
    result = run(after, shape)
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result, run(module, shape), rtol=1e-4, atol=1e-5)


def test_outputs_keep_their_channels() -> None:
    net, shape = Net(5), (1, 32, WIDE, WIDE)
    x = var("x", shape=shape)
    both = join(net.conv(x, 20), net.conv(x, 34))
    function = Function((x,), relay.Tuple([both, net.conv(both, 32)]))
    module = T.InferType()(IRModule.from_expr(function))
    after = padded(module)
    assert max(channels(after)) == 48
    for got, wanted in zip(run(after, shape), run(module, shape), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_of_ragged_channels_keep_their_values(seed: int) -> None:
    draw, net, shape = random.Random(seed), Net(seed), (1, 24, 14, 14)
    x = var("x", shape=shape)
    pool = [x]
    for _ in range(10):
        value = draw.choice(pool)
        size = value.checked_type.shape[1]
        kind = draw.choice(["conv", "conv", "conv", "join", "slice", "sum", "pool", "gate", "split"])
        if kind == "conv":
            pool.append(net.conv(value, draw.choice([6, 14, 17, 20, 24, 26, 34, 40, 58]), draw.choice([1, 3])))
        elif kind == "join":
            pool.append(join(*(draw.choice(pool) for _ in range(draw.randint(2, 4)))))
        elif kind == "slice":
            start = draw.randrange(size)
            stop = draw.randint(start + 1, size)
            pool.append(relay.strided_slice(value, begin=(start,), end=(stop,), axes=(1,)))
        elif kind == "split" and size % 2 == 0:
            pool += [relay.split(value, 2, axis=1)[k] for k in range(2)]
        elif kind == "sum":
            pool.append(relay.add(value, net.conv(draw.choice(pool), size, 1)))
        elif kind == "pool":
            pool.append(relay.nn.max_pool2d(value, pool_size=(3, 3), strides=(1, 1), padding=(1, 1)))
        elif kind == "gate":
            gate = relay.sigmoid(net.conv(relay.nn.global_avg_pool2d(value), size, 1))
            pool.append(relay.multiply(value, gate))
    module = module_of(net.conv(join(*pool[-4:]), 24))
    wanted = run(module, shape)
    for target in (AVX512, "llvm -mtriple=aarch64-linux-gnu"):
        np.testing.assert_allclose(run(padded(module, target), shape), wanted, rtol=1e-3, atol=1e-4, err_msg=f"{seed}")


def test_runs_name_the_places_of_real_channels() -> None:
    found = Channels(((20, 12), (7, 0), (9, 7)))
    assert (found.real, found.width, found.added) == (36, 55, 19)
    assert found.merged() == Channels(((20, 12), (16, 7)))
    assert found.places == ((0, 20), (32, 7), (39, 9))
    assert found.cut(20, 16) == Channels(((16, 7),))
    assert found.cut(0, 10) == Channels(((10, 0),))
    value = np.arange(1, 37)
    wide = found.scattered(value, 0)
    assert [wide[start : start + n].tolist() for start, n in found.places] == [
        value[:20].tolist(),
        value[20:27].tolist(),
        value[27:].tolist(),
    ]
    assert wide.sum() == value.sum()


# --- what is stored -------------------------------------------------------------------------------------------------


def stored(module: IRModule) -> int:
    return sum(e.nbytes for e in post_order(module["main"]) if isinstance(e, Constant))


def blocked(outputs: int, inputs: int, real: tuple[int, int]) -> np.ndarray:
    """A packed 3x3 weight of whole blocks of 16 of which only the first channels are not zero."""
    weight = np.zeros((outputs, inputs, 3, 3), "float32")
    weight[: real[0], : real[1]] = np.random.default_rng(6).standard_normal((*real, 3, 3))
    parts = weight.reshape(outputs // 16, 16, inputs // 16, 16, 3, 3)
    return np.ascontiguousarray(parts.transpose(0, 2, 4, 5, 3, 1))


def network(*weights: np.ndarray | Constant) -> IRModule:
    first = weights[0]
    value = var("x", shape=(1, (first.held if isinstance(first, Constant) else first).shape[1], 5, 5, 16))
    for weight in weights:
        attrs = {"data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o", "out_layout": "NCHW16c", "padding": (1, 1)}
        constant = weight if isinstance(weight, Constant) else const(weight)
        value = get_op("nn.contrib_conv2d_NCHWc")(value, constant, **attrs)
    return T.InferType()(IRModule.from_expr(value))


def test_weights_of_many_added_channels_are_stored_without_them() -> None:
    module = network(blocked(32, 32, (18, 18)), blocked(32, 32, (18, 18)))
    after = T.InferType()(trim_weights(module))
    assert op_frequency(after)["cpu.fill_channels"] == 2
    assert stored(after) == 2 * 4 * 9 * 18 * 18
    shape = (1, 2, 5, 5, 16)
    np.testing.assert_array_equal(run(after, shape), run(module, shape))


def test_only_the_largest_are_trimmed_until_the_zeros_are_few() -> None:
    full, ragged, small = blocked(64, 64, (64, 64)), blocked(64, 64, (40, 64)), blocked(64, 64, (62, 64))
    module = network(full, ragged, full, small)
    after = T.InferType()(trim_weights(module))
    assert op_frequency(after)["cpu.fill_channels"] == 1
    zeros = 4 * 9 * 2 * 64
    assert stored(module) - stored(after) == 4 * 9 * 24 * 64
    assert zeros <= SHARE * stored(module)
    assert "cpu.fill_channels" not in op_frequency(trim_weights(network(full, small, full, full)))


class InFile:
    """A weight as if in a file: how much of it was read at a time, and in all."""

    def __init__(self, data: np.ndarray) -> None:
        self.data, self.largest, self.read = data, 0, 0

    def held(self, step: int = 1) -> Deferred:
        return Deferred(self.data.shape, self.data.dtype, lambda: self.data, self.rows, step)

    def rows(self, begin: int, end: int) -> np.ndarray:
        part = self.data[begin:end]
        self.largest, self.read = max(self.largest, part.nbytes), self.read + part.nbytes
        return part


@pytest.mark.parametrize("step", [1, 2])
def test_weights_in_a_file_are_trimmed_as_others_are_piece_by_piece(step: int) -> None:
    weights = [blocked(512, 512, (300, 490)), blocked(512, 512, (512, 512))]
    weights[0][[3, 9], :, :, :, :, 5] = 0  # pruned: zeros amid the others
    files = [InFile(w) for w in weights]
    after, wanted = (
        T.InferType()(trim_weights(network(*ws))) for ws in ([Constant(f.held(step)) for f in files], weights)
    )
    assert op_frequency(after)["cpu.fill_channels"] == 1
    assert [f.largest <= 1 << 20 for f in files] == [True, True]
    assert files[1].read < weights[1].nbytes / 4, "what is full at both ends is not read"
    (compact,) = (e for e in post_order(after["main"]) if isinstance(e, Constant) and len(e.held.shape) == 4)
    assert isinstance(compact.held, Deferred) and stored(after) == stored(wanted)
    (written,) = compact.held.pieces()
    np.testing.assert_array_equal(written, compact.data)
    assert structural_equal(after["main"], wanted["main"])


def test_weight_in_a_file_with_one_odd_zero_is_left_as_it_is() -> None:
    data = blocked(64, 64, (64, 64))
    data[0, 0, 0, 0, 0, :] = 0
    module = network(Constant(InFile(data).held()))
    assert trim_weights(module) is module


def test_a_package_of_ragged_weights_is_hardly_larger_than_they_are() -> None:
    net, x = Net(7), var("x", shape=(1, 64, 56, 56))
    value = x
    for _ in range(4):
        value = net.conv(join(net.conv(value, 18), net.conv(value, 18)), 64)
    module = module_of(value)
    with PassContext(opt_level=3):
        after = relay.optimize(module, AVX512)[0]
    assert stored(after) <= 1.15 * stored(module)


# --- slices in blocked layouts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "block"), [(AVX512, 16), (ZEN4, 8)])
def test_slices_ask_for_half_blocks_only_where_halves_of_vectors_take_half_the_time(target: str, block: int) -> None:
    net, x = Net(8), var("x", shape=(1, 32, 7, 7))
    whole = net.conv(x, 208, 1)
    parts = [relay.strided_slice(whole, begin=(k,), end=(k + 104,), axes=(1,)) for k in (0, 104)]
    module = module_of(net.conv(relay.add(*(net.conv(p, 32, 1) for p in parts)), 16, 1))
    after = T.FoldConstant()(T.AlterOpLayout(target)(module))
    calls = [e for e in post_order(after["main"]) if isinstance(e, Call) and isinstance(e.op, Op)]
    first = next(c for c in calls if c.op.name == "nn.contrib_conv2d_NCHWc")
    assert first.attrs.out_layout == f"NCHW{block}c"
