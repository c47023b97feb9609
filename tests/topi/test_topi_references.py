"""`topi.testing`: references that scripts compare kernels with, against sums written out here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary import te, topi
from armillary.errors import TypeMismatch
from armillary.topi import testing

_RNG = np.random.default_rng(3)


def draw(*shape: int) -> Any:
    return _RNG.standard_normal(shape).astype(np.float32)


def plain_conv(x: Any, w: Any, stride: int, pads: tuple[int, ...]) -> Any:
    """The convolution of NCHW and OIHW, one window at a time."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    high, wide = ((x.shape[a] - w.shape[a]) // stride + 1 for a in (2, 3))
    made = np.zeros((x.shape[0], w.shape[0], high, wide), np.float32)
    for i, j in np.ndindex(high, wide):
        at = x[:, :, i * stride : i * stride + w.shape[2], j * stride : j * stride + w.shape[3]]
        made[:, :, i, j] = np.einsum("nchw,ochw->no", at, w)
    return made


@pytest.mark.parametrize(
    ("padding", "pads"), [(1, (1, 1, 1, 1)), ((2, 1), (2, 1, 2, 1)), ("SAME", (1, 1, 1, 0)), ("VALID", (0, 0, 0, 0))]
)
def test_convolutions_of_each_layout(padding: Any, pads: tuple[int, ...]) -> None:
    x, w = draw(2, 4, 7, 6), draw(5, 4, 3, 2)
    want = plain_conv(x, w, 2, pads)
    got = testing.conv2d_nchw_python(x, w, 2, padding)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    last, hwio = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
    got = testing.conv2d_nhwc_python(last, hwio, 2, padding)
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), want, rtol=1e-4, atol=1e-5)
    got = testing.conv2d_hwcn_python(x.transpose(2, 3, 1, 0), hwio, (2, 2), padding)
    np.testing.assert_allclose(got.transpose(3, 2, 0, 1), want, rtol=1e-4, atol=1e-5)


def test_groups_depth_and_transposes() -> None:
    x, w = draw(1, 4, 6, 6), draw(4, 2, 3, 3)  # two results for each channel
    each = [plain_conv(x[:, c : c + 1], w[c][:, None], 1, (1, 1, 1, 1)) for c in range(4)]
    want = np.concatenate(each, axis=1)
    np.testing.assert_allclose(testing.depthwise_conv2d_python_nchw(x, w, 1, "SAME"), want, rtol=1e-4, atol=1e-5)
    grouped = testing.conv2d_nchw_python(x, w.reshape(8, 1, 3, 3), 1, 1, 4)
    np.testing.assert_allclose(grouped, want, rtol=1e-4, atol=1e-5)
    nhwc = testing.depthwise_conv2d_python_nhwc(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 0, 1), 1, "SAME")
    np.testing.assert_allclose(nhwc.transpose(0, 3, 1, 2), want, rtol=1e-4, atol=1e-5)
    data, kernel = draw(1, 3, 4, 4), draw(3, 2, 3, 3)
    spread = testing.dilate_python(data, (1, 1, 2, 2))
    flipped = kernel[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    want = plain_conv(spread, flipped, 1, (1, 1, 2, 2))
    got = testing.conv2d_transpose_nchw_python(data, kernel, 2, 1, (1, 1))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    turned = kernel.transpose(2, 3, 1, 0)  # (height, width, out, in)
    last = testing.conv2d_transpose_nhwc_python(data.transpose(0, 2, 3, 1), turned, "HWOI", 2, 1, (1, 1))
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), want, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeMismatch, match="the weight's layout is 'HWXY'"):
        testing.conv2d_transpose_nhwc_python(data, kernel, "HWXY", 2, 1)


def test_poolings_ignore_their_padding() -> None:
    x = -np.abs(draw(1, 2, 5, 5)) - 1
    rest = ((3, 3), (2, 2), (1, 1), (1, 1), (1, 1))
    largest = testing.poolnd_python(x, *rest, "max")
    assert largest[0, 0, 0, 0] == x[0, 0, :2, :2].max()
    mean = testing.poolnd_python(x, *rest, "avg", count_include_pad=False)
    np.testing.assert_allclose(mean[0, 1, 0, 0], x[0, 1, :2, :2].mean(), rtol=1e-5)
    assert testing.poolnd_python(x, *rest, "avg")[0, 1, 0, 0] == pytest.approx(x[0, 1, :2, :2].sum() / 9, rel=1e-5)
    np.testing.assert_allclose(
        testing.adaptive_pool(x, (1, 1), "avg", "NCHW"), x.mean((2, 3), keepdims=True), rtol=1e-5
    )


def test_products_norms_and_softmax() -> None:
    x, w, b = draw(3, 4), draw(5, 4), draw(5)
    want = np.maximum(x @ w.T + b, 0)
    np.testing.assert_allclose(testing.dense(x, w, b, use_bias=True, use_relu=True), want, rtol=1e-4, atol=1e-5)
    left, right = draw(2, 3, 4), draw(2, 5, 4)
    got = testing.batch_matmul(left, right)
    np.testing.assert_allclose(got, left @ right.transpose(0, 2, 1), rtol=1e-4, atol=1e-5)
    power = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(testing.softmax_python(x), power, rtol=1e-5)
    np.testing.assert_allclose(testing.log_softmax_python(x), np.log(power), rtol=1e-4)
    data, mean, var = draw(2, 3, 4), draw(3), np.abs(draw(3))
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    made = testing.batch_norm(data, ones, zeros, mean, var, 1, 1e-5, True, True, True, 0.25)
    own = data.mean((0, 2))
    np.testing.assert_allclose(made[0].mean((0, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(made[1], 0.75 * mean + 0.25 * own, rtol=1e-4, atol=1e-6)
    plain = testing.batch_norm(data, ones, zeros, mean, var, 1, 1e-5, True, True, False, 0.25)
    want = (data - mean[:, None]) / np.sqrt(var[:, None] + 1e-5)
    np.testing.assert_allclose(plain[0], want, rtol=1e-4, atol=1e-5)
    whole = testing.group_norm_python(data, ones, zeros, 1, 1, [2])
    weight = np.ones((3, 4), np.float32)
    np.testing.assert_allclose(whole, testing.layer_norm_python(data, weight, None, (1, 2)), atol=1e-5)


def test_slices_and_positions() -> None:
    x = draw(5, 6)
    assert (testing.strided_slice_python(x, [4, 0], [0, 5], [-1, 2]) == x[4:0:-1, 0:5:2]).all()
    assert (testing.strided_slice_python(x, [1, 2], [2, -1], [1, 1], "size") == x[1:3, 2:]).all()
    assert (testing.slice_axis_python(x, 1, 2) == x[:, 2:]).all()
    want, v = x.copy(), draw(2, 6)
    want[1:3] = v
    assert (testing.strided_set_python(x, v, [1], [3], [1]) == want).all()
    assert testing.one_hot(np.array([2, 0], np.int32), 3, -1, 3, -1, "int32").tolist() == [[-1, -1, 3], [3, -1, -1]]
    big = testing.resize2d_python(x[None, None], (2, 2), "NCHW", "nearest_neighbor", "asymmetric")
    assert (big[0, 0] == x.repeat(2, 0).repeat(2, 1)).all()
    with pytest.raises(TypeMismatch, match="2 dimensions with layout 'NCHW'"):
        testing.resize2d_python(x, (2, 2))


def test_every_old_name_is_there() -> None:
    for name in testing.__all__:
        assert callable(getattr(testing, name)), name
        assert getattr(testing, name).__doc__, name
    assert topi.testing is testing


def test_schedules_by_target() -> None:
    mine = {"generic": "any", "cpu": "processor", "opencl": "card"}
    assert testing.dispatch("llvm", mine) == "processor"
    assert testing.dispatch("opencl", {"generic": "any", "cpu": "processor"}) == "any"
    with pytest.raises(TypeMismatch, match=r"none of \['cuda'\] is for"):
        testing.dispatch("llvm", {"cuda": 1})
    x = draw(4, 6)
    device, schedule = armillary.cpu(0), testing.get_injective_schedule("llvm")
    testing.compare_numpy_tvm([x], np.maximum(x, 0), "llvm", device, topi.nn.relu, schedule)
    with pytest.raises(AssertionError):
        testing.compare_numpy_tvm([x], x, "llvm", device, topi.nn.relu, schedule)
    compute, schedule = testing.get_conv2d_nchw_implement("llvm")
    a, w = te.placeholder((1, 4, 6, 6), name="a"), te.placeholder((4, 4, 3, 3), name="w")
    made = compute(a, w, 1, 1, 1)
    with armillary.target.Target("llvm"):
        function = armillary.build(schedule([made]), [a, w, made], "llvm")
    values, result = [draw(1, 4, 6, 6), draw(4, 4, 3, 3)], armillary.nd.empty((1, 4, 6, 6))
    function(*map(armillary.nd.array, values), result)
    np.testing.assert_allclose(result.numpy(), testing.conv2d_nchw_python(*values, 1, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_loss_of_one_prediction(reduction: str) -> None:
    predictions, weights = np.array([-0.5, -1.5, -2.5], "float32"), np.array([1.0, 3.0, 2.0], "float32")
    want = {"none": 4.5, "sum": 4.5, "mean": 1.5}[reduction]
    got = topi.testing.nll_loss(predictions, np.array(1, "int32"), weights, reduction, -100)
    np.testing.assert_allclose(got, want, rtol=1e-6)
