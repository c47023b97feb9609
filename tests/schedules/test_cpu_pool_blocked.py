"""Pooling in blocks and with channels last agrees with the reference: odd sizes, ceil mode, NaN, threads, consumers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from armillary import relay
from armillary.driver.build import build
from armillary.relay.evaluate import evaluate
from armillary.runtime import cpu
from armillary.runtime.threads import config_threadpool
from armillary.transform import PassContext


def run(function: Any, data: np.ndarray) -> np.ndarray:
    with PassContext(opt_level=3):
        graph = build(function, "llvm")["default"](cpu(0))
    graph.set_input("x", data)
    graph.run()
    return graph.get_output(0).numpy().copy()


def pooled(kind: str, shape: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> Any:
    x = relay.var("x", shape=shape, dtype=dtype)
    y = getattr(relay.nn, f"{kind}_pool2d")(x, layout=f"NCHW{shape[-1]}c" if len(shape) == 5 else "NHWC", **attrs)
    if dtype != "float32":
        return relay.Function([x], y)
    return relay.Function([x], relay.tanh(y * relay.const(np.float32(0.5))))


CASES = [
    ((1, 2, 12, 13, 16), {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)}),
    ((1, 2, 13, 13, 16), {"pool_size": (3, 3), "strides": (2, 2), "ceil_mode": True}),
    ((2, 1, 14, 12, 16), {"pool_size": (3, 3), "strides": (2, 2), "ceil_mode": True, "padding": (0, 1)}),
    ((1, 3, 9, 31, 8), {"pool_size": (3, 2), "padding": (1, 0, 0, 1), "dilation": (1, 2)}),
    ((1, 1, 7, 7, 16), {"pool_size": (5, 5), "padding": (2, 2)}),
    ((1, 1, 6, 5, 4), {"pool_size": (2, 3), "strides": (2, 3)}),
    ((1, 2, 8, 9, 6), {"pool_size": (2, 2), "strides": (3, 1)}),
    ((1, 1, 1, 1, 16), {"pool_size": (1, 1)}),
    ((1, 1, 9, 9, 16), {"pool_size": (7, 7), "padding": (3, 3)}),
    ((2, 3, 14, 13, 16), {"pool_size": (13, 13), "padding": (6, 6)}),
    ((1, 2, 19, 20, 8), {"pool_size": (4, 5), "padding": (1, 4, 2, 0), "dilation": (2, 1)}),
    ((1, 2, 21, 20, 16), {"pool_size": (5, 5), "strides": (2, 3), "padding": (2, 2), "ceil_mode": True}),
    ((1, 1, 33, 40, 16), {"pool_size": (31, 27), "padding": (15, 13)}),
    ((1, 2, 60, 60, 4), {"pool_size": (30, 30), "strides": (30, 30)}),
    ((1, 1, 80, 9, 16), {"pool_size": (71, 3), "strides": (5, 1), "padding": (35, 1)}),
    ((1, 1, 5, 90, 8), {"pool_size": (2, 66), "padding": (1, 30)}),
]


@pytest.mark.parametrize(("shape", "attrs"), CASES)
@pytest.mark.parametrize("kind", ["max", "avg", "avg including padding"])
def test_blocked_pooling_agrees_with_the_reference(shape: tuple[int, ...], attrs: dict[str, Any], kind: str) -> None:
    more = {"count_include_pad": True} if "including" in kind else {}
    function = pooled(kind[:3], shape, **attrs, **more)
    data = np.random.default_rng(0).standard_normal(shape).astype("float32") - np.float32(2)
    np.testing.assert_allclose(run(function, data), evaluate(function, [data]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [3, 5])
def test_a_window_with_nan_has_no_other_maximum(size: int) -> None:
    x = relay.var("x", shape=(1, 1, 15, 15, 16))
    pads = (size // 2, size // 2)
    function = relay.Function(
        [x], relay.nn.max_pool2d(x, pool_size=(size, size), strides=(2, 2), padding=pads, layout="NCHW16c")
    )
    data = np.random.default_rng(1).standard_normal((1, 1, 15, 15, 16)).astype("float32")
    for place in ((0, 0), (4, 7), (7, 4), (14, 14)):
        data[0, 0, place[0], place[1], ::3] = np.nan
    got = run(function, data)
    np.testing.assert_array_equal(got, evaluate(function, [data]))
    missing = np.isnan(got[..., 0]).sum()
    assert missing and np.isnan(got[..., ::3]).sum() == 6 * missing and not np.isnan(got[..., 1::3]).any()


def test_a_window_of_minus_infinities_keeps_them() -> None:
    function = pooled("max", (1, 1, 9, 9, 16), pool_size=(3, 3), padding=(1, 1))
    data = np.full((1, 1, 9, 9, 16), -np.inf, "float32")
    np.testing.assert_array_equal(run(function, data), evaluate(function, [data]))


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_number_of_threads_gives_the_same_bits(threads: int) -> None:
    function = pooled("avg", (1, 3, 27, 29, 16), pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    data = np.random.default_rng(2).standard_normal((1, 3, 27, 29, 16)).astype("float32")
    one = run(function, data)
    try:
        config_threadpool(0, threads)
        np.testing.assert_array_equal(run(function, data), one)
    finally:
        config_threadpool(0, 2)


CHANNELS_LAST = [
    ((1, 13, 12, 64), {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)}),
    ((2, 9, 7, 48), {"pool_size": (3, 3), "strides": (2, 2), "ceil_mode": True}),
    ((1, 6, 19, 32), {"pool_size": (2, 3), "padding": (1, 0, 0, 1), "dilation": (2, 1)}),
    ((1, 4, 4, 96), {"pool_size": (2, 2), "strides": (3, 1)}),
    ((1, 3, 40, 16), {"pool_size": (1, 16), "padding": (0, 7)}),
    ((1, 5, 5, 24), {"pool_size": (3, 3)}),  # no whole vectors everywhere: the default schedule
    ((1, 9, 9, 32), {"pool_size": (5, 5), "padding": (2, 2)}),  # a large window: so, too
]


@pytest.mark.parametrize(("shape", "attrs"), CHANNELS_LAST)
@pytest.mark.parametrize("kind", ["max", "avg", "avg including padding", "max of bytes"])
def test_pooling_with_channels_last_agrees_with_the_reference(
    shape: tuple[int, ...], attrs: dict[str, Any], kind: str
) -> None:
    more = {"count_include_pad": True} if "including" in kind else {}
    dtype = "int8" if "bytes" in kind else "float32"
    function = pooled(kind[:3], shape, dtype, **attrs, **more)
    rng = np.random.default_rng(0)
    data = rng.integers(-128, 128, shape) if dtype == "int8" else rng.standard_normal(shape) - 2
    given = data.astype(dtype)
    np.testing.assert_allclose(run(function, given), evaluate(function, [given]), rtol=1e-5, atol=1e-6)


def test_means_with_channels_last_are_divided_in_the_registers_that_hold_their_sums() -> None:
    x = relay.var("x", shape=(1, 29, 29, 64))
    function = relay.Function([x], relay.nn.avg_pool2d(x, pool_size=(3, 3), strides=(2, 2), layout="NHWC"))
    with PassContext(opt_level=3):
        code = build(function, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72").get_source("asm")
    body = max(re.split(r"^\.LBB\w+:", code, flags=re.MULTILINE), key=lambda block: block.count("fadd"))
    assert body.count("fdiv") == body.count("fadd") // 9 > 0
