"""Convolutions and poolings whose windows are as large as their images or larger: every level gives the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from window_draw import Drawn, draw

from armillary import relay
from armillary.relay.evaluate import evaluate
from armillary.transform import PassContext

Array = np.ndarray[Any, Any]
LEVELS = (0, 1, 2, 3)
SEEDS, USUAL = 200, 60  # of all, of a usual run: `make fuzz` draws windows too
AT_ONCE = 10  # cases of a test


def _built(function: relay.Function, arrays: list[Array], level: int) -> Array:
    with PassContext(opt_level=level):
        graph = relay.build(function, "llvm")["default"]()
    for parameter, value in zip(function.params, arrays, strict=True):
        graph.set_input(parameter.name_hint, value)
    graph.run()
    return np.asarray(graph.get_output(0).numpy())


def _check(case: Drawn) -> None:
    wanted = np.asarray(evaluate(case.function, case.arrays))
    for level in LEVELS:
        got = _built(case.function, case.arrays, level)
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3, err_msg=f"level {level}, {case.text}")


@pytest.mark.parametrize(
    "first", [n if n < USUAL else pytest.param(n, marks=pytest.mark.slow) for n in range(0, SEEDS, AT_ONCE)]
)
def test_random_windows_are_those_of_the_reference(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        _check(draw(seed))


def test_a_window_of_far_taps_is_not_the_whole_image() -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    image = relay.var("x", shape=x.shape)
    body = relay.nn.max_pool2d(image, pool_size=(2, 2), strides=(2, 2), dilation=(1, 2), ceil_mode=True)
    _check(Drawn(relay.Function([image], body), [x], "dilated pooling"))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("is_constant", [False, True])
def test_depthwise_weights_may_have_a_multiplier(rank: int, is_constant: bool) -> None:
    random = np.random.default_rng(rank)
    x, w = (random.integers(-3, 4, (*s, *(3,) * rank)).astype(np.float32) for s in ((1, 16), (16, 2)))
    inputs = [relay.var("x", shape=x.shape)] + ([] if is_constant else [relay.var("w", shape=w.shape)])
    weight = relay.const(w) if is_constant else inputs[1]
    body = getattr(relay.nn, f"conv{rank}d")(inputs[0], weight, groups=16, channels=32, kernel_size=w.shape[2:])
    _check(Drawn(relay.Function(inputs, body), [x] if is_constant else [x, w], "multiplier"))


WIDE = [  # data, weight, strides, padding, dilation, groups: results as large as the images, with strides
    ((1, 8, 1, 4), (16, 1, 1, 1), (2, 2), (0, 0, 0, 3), (1, 1), 8),
    ((1, 1, 1, 2), (4, 1, 3, 1), (3, 2), (1, 0, 3, 1), (1, 2), 1),
    ((1, 2, 3, 4), (2, 2, 1, 1), (1, 2), (0, 0, 0, 3), (1, 1), 1),
    ((1, 1, 1, 1), (1, 1, 2, 1), (2, 2), (0, 0, 1, 0), (1, 1), 1),
    ((1, 4, 6), (4, 4, 1), (2,), (0, 5), (1,), 1),
    ((1, 2, 2, 2, 2), (4, 2, 1, 1, 1), (2, 2, 2), (0, 0, 0, 1, 1, 1), (1, 1, 1), 1),
]


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(("data", "weight", "strides", "padding", "dilation", "groups"), WIDE)
def test_strides_hold_where_the_result_is_as_large_as_the_image(
    data: tuple[int, ...],
    weight: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    is_constant: bool,
) -> None:
    random = np.random.default_rng(0)
    x, w = (random.integers(1, 9, shape).astype(np.float32) for shape in (data, weight))
    inputs = [relay.var("x", shape=data)] + ([] if is_constant else [relay.var("w", shape=weight)])
    operator = getattr(relay.nn, f"conv{len(data) - 2}d")
    body = operator(
        inputs[0],
        relay.const(w) if is_constant else inputs[1],
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )
    assert body.checked_type.static[2:] == data[2:]
    _check(Drawn(relay.Function(inputs, body), [x] if is_constant else [x, w], str(body.attrs)))


@pytest.mark.parametrize("strides", [(1, 2**31 - 1), (2**31 - 1, 2**30)])
def test_a_stride_longer_than_any_image_is_one_output(strides: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    x, w = (random.integers(1, 9, shape).astype(np.float32) for shape in ((1, 5, 9, 6), (3, 5, 5, 3)))
    inputs = [relay.var("x", shape=x.shape), relay.var("w", shape=w.shape)]
    body = relay.nn.conv2d(*inputs, strides=strides, padding=(2, 1))
    assert body.checked_type.static[3] == 1
    _check(Drawn(relay.Function(inputs, body), [x, w], str(body.attrs)))
