"""fuse-pool: which kernels become one, what is left alone, and that values stay; the rows of a band."""

from __future__ import annotations

from functools import partial
from typing import Any

import kernel_pairs
import numpy as np
import pytest
from kernel_pairs import check_on_threads, contractions, made_kernels

from armillary import relay
from armillary.backends.cpu.conv2d.pooled.cost import Pooled, band_rows
from armillary.driver.explain import explain_function
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

ZEN4 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
RNG = np.random.default_rng(5)
CONV, MAX, AVG = "nn.contrib_conv2d_NCHWc", "nn.max_pool2d", "nn.avg_pool2d"
Pads = tuple[int, int, int, int]


const = partial(kernel_pairs.const, RNG)


def stem(
    shape: tuple[int, ...] = (1, 3, 64, 64),
    outputs: int = 32,
    *,
    kernel: int = 3,
    stride: int = 2,
    window: int = 3,
    step: int = 2,
    pads: Pads = (0, 0, 0, 0),
    is_mean: bool = False,
    dilation: int = 1,
    has_tail: bool = False,
    **options: Any,
) -> tuple[Function, Any]:
    """pool(relu(conv(x) + bias)), with something behind the pooling where it has a tail; and an input."""
    x = relay.var("x", shape=shape)
    padding = (kernel // 2, kernel // 2)
    y = relay.nn.conv2d(x, const(outputs, shape[1], kernel, kernel), strides=(stride, stride), padding=padding)
    y = relay.nn.relu(relay.add(y, const(outputs, 1, 1)))
    pool = relay.nn.avg_pool2d if is_mean else relay.nn.max_pool2d
    y = pool(y, (window, window), (step, step), (dilation, dilation), pads, **options)
    if has_tail:
        y = relay.sigmoid(relay.add(y, const(outputs, 1, 1)))
    return relay.Function([x], y), RNG.standard_normal(shape).astype("float32")


def kernels(function: Function, target: Target = ZEN4, rows: int = 2) -> list[list[str]]:
    """The convolutions and poolings of each kernel."""
    return [contractions(kernel) for kernel in made_kernels(function, target, {"cpu.pooled.rows": rows})]


CASES: list[tuple[int, dict[str, Any]]] = [
    (5, {"shape": (1, 3, 63, 41)}),
    (4, {"pads": (1, 1, 1, 1), "kernel": 7}),
    (8, {"window": 2, "outputs": 48, "has_tail": True}),
    (3, {"shape": (2, 16, 36, 27), "pads": (1, 1, 1, 1), "step": 1, "stride": 2, "outputs": 16}),
    (4, {"is_mean": True, "pads": (1, 0, 2, 1), "count_include_pad": False}),
    (2, {"is_mean": True, "pads": (1, 1, 1, 1), "count_include_pad": True, "has_tail": True}),
    (1, {"ceil_mode": True, "outputs": 40, "pads": (0, 1, 0, 1)}),
    (7, {"dilation": 2, "step": 1}),
    (1, {"step": 3, "window": 2}),
]


def check_values(rows: int, options: dict[str, Any], target: str) -> None:
    function, image = stem(**options)
    expected = np.asarray(evaluate(function, [image]))
    rows = next(n for n in range(rows, 0, -1) if expected.shape[2] % n == 0)
    assert [CONV, AVG if options.get("is_mean") else MAX] in kernels(function, Target(target), rows)
    check_on_threads(function, image, expected, target, {"cpu.pooled.rows": rows})


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize(("rows", "options"), CASES)
def test_values_stay(rows: int, options: dict[str, Any], target: str) -> None:
    """Windows that overlap, touch or leave rows out, padding, means, blocks that are not full; 1 to 3 threads."""
    check_values(rows, options, target)


@pytest.mark.parametrize(
    ("rows", "options"), [*CASES[6:], *(pytest.param(*c, marks=pytest.mark.slow) for c in CASES[:6])]
)
def test_values_stay_on_c(rows: int, options: dict[str, Any]) -> None:
    """The same loops, for which gcc takes seconds each."""
    check_values(rows, options, "c")


def test_a_result_that_others_read_stays_a_kernel() -> None:
    x = relay.var("x", shape=(1, 16, 32, 32))
    middle = relay.nn.relu(relay.nn.conv2d(x, const(32, 16, 3, 3), strides=(2, 2)))
    both = relay.Tuple([relay.nn.max_pool2d(middle, (2, 2), (2, 2)), relay.nn.max_pool2d(middle, (3, 3), (2, 2))])
    assert [CONV, MAX] not in kernels(relay.Function([x], both), rows=1)


def test_what_is_no_direct_convolution_stays_a_kernel() -> None:
    x = relay.var("x", shape=(1, 32, 32, 32))
    grouped = relay.nn.conv2d(x, const(32, 1, 3, 3), groups=32, channels=32, kernel_size=(3, 3))
    winograd = relay.nn.conv2d(x, const(64, 32, 3, 3), padding=(1, 1))
    for made in (grouped, winograd):
        found = kernels(relay.Function([x], relay.nn.max_pool2d(made, (2, 2), (2, 2))), rows=1)
        assert len(found) > 1 and [MAX] in found


def test_large_windows_stay_kernels() -> None:
    assert kernels(stem(window=5)[0], rows=1) == [[CONV], [MAX]]


def test_rows_that_do_not_divide_the_image_are_refused() -> None:
    function, _ = stem((1, 3, 63, 63))  # 15 pooled rows
    assert kernels(function, rows=4) == [[CONV], [MAX]] == kernels(function, rows=0)
    assert kernels(function, rows=5) == [[CONV, MAX]]


def test_by_default_what_lies_beyond_the_second_cache_is_joined() -> None:
    small, large = (stem((1, 3, side, side), 64, pads=(1, 1, 1, 1))[0] for side in (64, 224))
    assert kernels(small, rows=-1) == [[CONV], [MAX]]
    assert kernels(large, rows=-1) == [[CONV, MAX]]


@pytest.mark.parametrize("steps", [27, 147])
def test_bands_fit_and_overlap_little(steps: int) -> None:
    cpu = cpu_model(Target("llvm -mtriple=x86_64-linux-gnu -mcpu=graniterapids"))
    for side, rows in ((111, 55), (112, 56), (256, 128)):
        layer = Pooled(1, 4, 16, side, side, rows, 3, 2, steps)
        found = band_rows(layer, cpu)
        assert found > 0 and rows % found == 0
        assert layer.between(found) <= cpu.l2 / 2 and layer.overlap(found) < 0.1
        assert layer.tasks(found) % 2 == 0 or layer.tasks(found) >= 16


def test_rows_that_are_computed_twice_are_weighed() -> None:
    """Rows of 137 pooled ones, a prime, come one by one: half of a long sum twice costs more than is spared."""
    cpu = cpu_model(Target("llvm -mtriple=x86_64-linux-gnu -mcpu=graniterapids"))
    assert band_rows(Pooled(1, 4, 16, 275, 275, 137, 3, 2, 147), cpu) == 0
    assert band_rows(Pooled(1, 4, 16, 274, 274, 137, 2, 2, 147), cpu) == 1  # windows side by side: nothing is


def test_the_explanation_names_both() -> None:
    function, _ = stem((1, 3, 224, 224), 64, pads=(1, 1, 1, 1))
    (kernel,) = [f for f in made_kernels(function, ZEN4, {}) if contractions(f) == [CONV, MAX]]
    with PassContext(opt_level=3):
        message = explain_function(kernel, ZEN4)
    assert message.algorithm.startswith("convolution and pooling in bands of ")
    assert message.milliseconds > 0 and message.tile.endswith("x2")
