"""fuse-depthwise: which kernels become one, what is left alone, and that values stay; the rows of a band."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import kernel_pairs
import numpy as np
import pytest
from kernel_pairs import check_on_threads, contractions, made_kernels

from armillary import relay
from armillary.backends.cpu.conv2d.separable.cost import Separable, band_rows
from armillary.driver.explain import explain_function
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Function
from armillary.target import Target
from armillary.target.cpu import cpu_model
from armillary.transform import PassContext

ZEN4 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
RNG = np.random.default_rng(3)
Between = Callable[[Any], Any]


const = partial(kernel_pairs.const, RNG)


def swish(y: Any) -> Any:
    return relay.multiply(y, relay.sigmoid(y))


def as_it_is(y: Any) -> Any:
    return y


def separable(
    shape: tuple[int, ...],
    outputs: int,
    *,
    kernel: int = 3,
    stride: int = 1,
    dilation: int = 1,
    between: Between = relay.nn.relu,
    is_joined: bool = False,
    pointwise: int = 1,
) -> tuple[Function, Any]:
    """relu(conv(between(depthwise(relu(x)) + bias)) + bias), with something added where it is joined; and an input."""
    channels = shape[1]
    x = relay.var("x", shape=shape)
    margin = dilation * (kernel // 2)
    depthwise = relay.nn.conv2d(
        relay.nn.relu(x),
        const(channels, 1, kernel, kernel),
        groups=channels,
        channels=channels,
        kernel_size=(kernel, kernel),
        strides=(stride, stride),
        padding=(margin, margin),
        dilation=(dilation, dilation),
    )
    middle = between(relay.add(depthwise, const(channels, 1, 1)) if between is not as_it_is else depthwise)
    weight, padding = const(outputs, channels, pointwise, pointwise), (pointwise // 2, pointwise // 2)
    y = relay.add(relay.nn.conv2d(middle, weight, padding=padding), const(outputs, 1, 1))
    joined = relay.add(y, x) if is_joined else y
    return relay.Function([x], relay.nn.relu(joined)), RNG.standard_normal(shape).astype("float32")


def kernels(function: Function, target: Target = ZEN4, rows: int = 2) -> list[list[str]]:
    """The convolutions of each kernel."""
    return [contractions(kernel) for kernel in made_kernels(function, target, {"cpu.separable.rows": rows})]


TOGETHER = ["nn.contrib_depthwise_conv2d_NCHWc", "nn.contrib_conv2d_NCHWc"]


SEPARABLE: list[tuple[tuple[int, ...], int, int, dict[str, Any]]] = [  # shape, outputs, rows, options
    ((1, 32, 12, 20), 64, 3, {}),
    ((2, 48, 10, 17), 40, 5, {"stride": 2}),
    ((1, 16, 14, 9), 96, 2, {"kernel": 5, "between": swish}),
    ((1, 64, 8, 31), 64, 4, {"is_joined": True}),
    ((3, 24, 6, 11), 24, 1, {"between": as_it_is}),
    ((1, 32, 18, 18), 16, 6, {"dilation": 3, "between": lambda y: relay.clip(y, 0.0, 6.0)}),
]
LONG_IN_C = (0, 2, 3)  # a C compiler takes seconds for each; the others have strides, blocks that are not full, batches


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize(("shape", "outputs", "rows", "options"), SEPARABLE)
def test_values_stay(shape: tuple[int, ...], outputs: int, rows: int, options: dict[str, Any], target: str) -> None:
    """Strides, kernels, dilations, batches, nothing or much in between, blocks that are not full; 1 to 3 threads."""
    _values_stay(shape, outputs, rows, options, target)


@pytest.mark.parametrize(
    "case", [pytest.param(k, marks=[pytest.mark.slow] if k in LONG_IN_C else []) for k in range(len(SEPARABLE))]
)
def test_values_stay_in_c(case: int) -> None:
    _values_stay(*SEPARABLE[case], "c")


def _values_stay(shape: tuple[int, ...], outputs: int, rows: int, options: dict[str, Any], target: str) -> None:
    function, image = separable(shape, outputs, **options)
    assert TOGETHER in kernels(function, Target(target), rows)
    expected = np.asarray(evaluate(function, [image]))
    check_on_threads(function, image, expected, target, {"cpu.separable.rows": rows})


def test_chains_become_pairs() -> None:
    x = relay.var("x", shape=(1, 32, 16, 16))
    y = x
    for _ in range(2):
        y = relay.nn.conv2d(y, const(32, 1, 3, 3), groups=32, channels=32, kernel_size=(3, 3), padding=(1, 1))
        y = relay.nn.relu(relay.nn.conv2d(relay.nn.relu(y), const(32, 32, 1, 1)))
    assert kernels(relay.Function([x], y)) == [TOGETHER, TOGETHER]


def test_a_result_that_others_read_stays_a_kernel() -> None:
    x = relay.var("x", shape=(1, 32, 16, 16))
    middle = relay.nn.relu(
        relay.nn.conv2d(x, const(32, 1, 3, 3), groups=32, channels=32, kernel_size=(3, 3), padding=(1, 1))
    )
    y = relay.nn.conv2d(middle, const(32, 32, 1, 1))
    assert TOGETHER not in kernels(relay.Function([x], relay.Tuple([y, relay.nn.max_pool2d(middle, (2, 2))])))
    assert TOGETHER not in kernels(relay.Function([x], relay.add(y, middle)))


def test_wider_windows_behind_it_stay_kernels() -> None:
    function, _ = separable((1, 32, 16, 16), 32, pointwise=3)
    assert TOGETHER not in kernels(function)


def test_rows_that_do_not_divide_the_image_are_refused() -> None:
    function, _ = separable((1, 32, 16, 16), 32)
    assert TOGETHER not in kernels(function, rows=3) and TOGETHER not in kernels(function, rows=0)


def test_by_default_what_lies_beyond_the_second_cache_is_joined() -> None:
    small, large = (separable((1, 64, side, side), 64)[0] for side in (56, 256))
    assert TOGETHER not in kernels(small, rows=-1)
    assert TOGETHER in kernels(large, rows=-1)


@pytest.mark.parametrize("name", ["znver4", "graniterapids"])
def test_bands_have_work_and_fit(name: str) -> None:
    cpu = cpu_model(Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={name}"))
    for side, channels, outputs in ((512, 32, 64), (256, 128, 256), (320, 96, 24), (192, 144, 1024)):
        layer = Separable(1, channels, outputs, side, side)
        rows = band_rows(layer, cpu)
        assert rows > 0 and side % rows == 0
        assert layer.between(rows) <= cpu.l2 / 2 and rows * side >= max(128, outputs / 4)
    assert band_rows(Separable(1, 512, 64, 127, 127), cpu) == 0  # a prime: bands of one row have too few pixels
    assert band_rows(Separable(1, 4096, 64, 64, 64), cpu) == 0  # as many rows as have work do not fit


def test_the_explanation_names_both() -> None:
    function, _ = separable((1, 64, 256, 256), 64)
    (kernel,) = [f for f in made_kernels(function, ZEN4, {}) if contractions(f) == TOGETHER]
    with PassContext(opt_level=3):
        message = explain_function(kernel, ZEN4)
    assert message.algorithm == "depthwise and 1x1 convolution in bands of 4 rows"
    assert message.milliseconds > 0 and message.tile.count("x") == 2
