"""Convolutions by the real library: the 15 trials of the text's test set, in float32 and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from infrastructure import Device, library_functions, module_of, nodes, operators, partitioned, run, verify

from armillary import relay
from armillary.offload.report import offload_report
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Constant, Expr, const, var
from armillary.relay.op.contrib.arm_compute_lib import partition_for_arm_compute_lib

RNG = np.random.default_rng(7)


@dataclass(frozen=True)
class Trial:
    """A layer: kernel and padding down and across, stride, channels of the result, data (H, W, C), what else it has."""

    kernel: tuple[int, int]
    pad: tuple[int, int]
    stride: int
    channels: int
    shape: tuple[int, int, int]
    has: str = ""  # of pad (an operator of its own), bias, relu
    is_depthwise: bool = False


TRIALS = (
    Trial((2, 2), (1, 1), 1, 4, (10, 10, 14)),
    Trial((2, 1), (2, 2), 1, 7, (12, 15, 16), "relu"),
    Trial((3, 3), (2, 1), 1, 4, (10, 10, 14), "bias"),
    Trial((3, 3), (1, 1), 1, 16, (12, 15, 16)),
    Trial((5, 5), (1, 1), 2, 4, (10, 10, 14), "pad"),
    Trial((1, 3), (1, 1), 1, 7, (20, 20, 20), "relu"),
    Trial((2, 2), (2, 2), 1, 4, (20, 20, 20), "bias"),
    Trial((5, 5), (1, 1), 2, 4, (10, 10, 14), "pad"),
    Trial((3, 3), (2, 1), 1, 7, (20, 20, 20)),
    Trial((3, 3), (1, 1), 2, 16, (10, 10, 14), "bias relu"),
    Trial((3, 3), (1, 1), 1, 20, (20, 20, 20), "relu", True),
    Trial((5, 5), (2, 2), 1, 20, (20, 20, 20), "bias", True),
    Trial((3, 3), (2, 2), 2, 14, (10, 10, 14), "pad", True),
    Trial((5, 5), (0, 0), 1, 20, (20, 20, 20), "", True),
    Trial((3, 3), (1, 1), 2, 14, (10, 10, 14), "bias relu", True),
)
SCALE, ZERO, KERNEL_SCALE, KERNEL_ZERO = 0.25, {"uint8": 100, "int8": -20}, 0.03, {"uint8": 130, "int8": 3}


def weight(trial: Trial, dtype: str) -> Constant:
    shape = (*trial.kernel, trial.shape[2], 1 if trial.is_depthwise else trial.channels)
    if dtype == "float32":
        return const(RNG.uniform(-1, 1, shape).astype("float32"))
    info = np.iinfo(dtype)
    return const(RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype))


def attributes(trial: Trial) -> dict[str, object]:
    return {
        "kernel_size": trial.kernel,
        "strides": (trial.stride,) * 2,
        "data_layout": "NHWC",
        "padding": (0, 0, 0, 0) if "pad" in trial.has else (*trial.pad, *trial.pad),
        "kernel_layout": "HWOI" if trial.is_depthwise else "HWIO",
        "channels": trial.channels,
        "groups": trial.shape[2] if trial.is_depthwise else 1,
    }


def padded(trial: Trial, x: Expr, value: float) -> Expr:
    if "pad" not in trial.has:
        return x
    down, across = trial.pad
    return relay.nn.pad(x, pad_width=((0, 0), (down, down), (across, across), (0, 0)), pad_value=value)


def layer(trial: Trial, x: Expr) -> Expr:
    y = relay.nn.conv2d(padded(trial, x, 0.0), weight(trial, "float32"), **attributes(trial))
    if "bias" in trial.has:
        y = relay.nn.bias_add(y, const(RNG.uniform(-1, 1, trial.channels).astype("float32")), axis=3)
    return relay.nn.relu(y) if "relu" in trial.has else y


def qnn_layer(trial: Trial, x: Expr, dtype: str) -> Expr:
    numbers = (const(ZERO[dtype]), const(KERNEL_ZERO[dtype]), const(SCALE), const(KERNEL_SCALE))
    y = relay.qnn.conv2d(padded(trial, x, float(ZERO[dtype])), weight(trial, dtype), *numbers, **attributes(trial))
    if "bias" in trial.has:
        y = relay.nn.bias_add(y, const(RNG.integers(-500, 500, trial.channels).astype("int32")), axis=3)
    if "relu" in trial.has:
        y = relay.nn.relu(y)
    terms = np.prod(trial.kernel) * (1 if trial.is_depthwise else trial.shape[2])
    scale = const(np.float32(SCALE * KERNEL_SCALE * 74 * 74 * np.sqrt(terms) / 32))
    zero = const(np.int32(128 if dtype == "uint8" else 0))
    return relay.qnn.requantize(
        y, const(np.float32(SCALE * KERNEL_SCALE)), const(np.int32(0)), scale, zero, out_dtype=dtype
    )


def data(dtype: str, index: int) -> np.ndarray:
    shape = (1, *TRIALS[index].shape)
    if dtype == "float32":
        return RNG.uniform(-1, 1, shape).astype(dtype)
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_trials_are_those_of_the_reference(device: Device, dtype: str, tmp_path: Path) -> None:
    given = [data(dtype, k) for k in range(len(TRIALS))]
    xs = [var(f"x{k}", shape=value.shape, dtype=dtype) for k, value in enumerate(given)]
    layers = [layer(t, x) if dtype == "float32" else qnn_layer(t, x, dtype) for t, x in zip(TRIALS, xs, strict=True)]
    module = module_of(*layers)
    after = partitioned(module, 0, len(TRIALS))
    found = run(device, after, {x.name_hint: value for x, value in zip(xs, given, strict=True)}, tmp_path)
    expected = [evaluate(module_of(one), [value]) for one, value in zip(layers, given, strict=True)]
    normal, depthwise = slice(0, 10), slice(10, None)
    if dtype == "float32":
        verify(found, expected, atol=0.002, rtol=0.01)
    else:
        verify(found[normal], expected[normal], atol=1, rtol=0)
        verify(found[depthwise], expected[depthwise], atol=2, rtol=0)


def test_kernels_strides_and_dilations_may_differ_down_and_across(device: Device, tmp_path: Path) -> None:
    x = var("x", shape=(1, 11, 17, 6))
    kernel = const(RNG.uniform(-1, 1, (3, 2, 6, 5)).astype("float32"))
    common = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    conv = relay.nn.conv2d(x, kernel, strides=(2, 1), padding=(1, 2, 0, 1), **common)
    dilated = relay.nn.conv2d(x, kernel, dilation=(2, 3), **common)
    module = module_of(conv, dilated)
    value = RNG.uniform(-1, 1, (1, 11, 17, 6)).astype("float32")
    found = run(device, partitioned(module, 0, 2), {"x": value}, tmp_path)
    verify(found, evaluate(module, [value]), atol=0.002, rtol=0.01)


def test_nchw_models_are_converted_so_that_they_offload(device: Device, tmp_path: Path) -> None:
    x = var("x", shape=(1, 3, 16, 16))
    first = const(RNG.uniform(-1, 1, (8, 3, 3, 3)).astype("float32"))
    second = const(RNG.uniform(-1, 1, (8, 1, 3, 3)).astype("float32"))
    bias = const(RNG.uniform(-1, 1, (8, 1, 1)).astype("float32"))
    y = relay.nn.relu(relay.add(relay.nn.conv2d(x, first, padding=(1, 1)), bias))
    y = relay.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2))
    y = relay.nn.conv2d(y, second, padding=(1, 1), groups=8)
    module = module_of(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)))
    after = partition_for_arm_compute_lib(module)
    assert len(library_functions(after)) == 5  # with a reshape
    assert set(operators(after["main"])) <= {"layout_transform", "nn.batch_flatten"}
    value = RNG.uniform(-1, 1, (1, 3, 16, 16)).astype("float32")
    verify(run(device, after, {"x": value}, tmp_path), [evaluate(module, [value])], atol=0.002, rtol=0.01)


def leaf(op: str, dtype: str, *shape: int) -> dict[str, object]:
    return {"op": op, "name": "", "attrs": {"shape": [[list(shape)]], "dtype": [[dtype]]}}


def expected_nodes(trial: Trial, dtype: str) -> list[dict[str, object]]:
    """The JSON of a trial, as the text's test set has it."""
    (kh, kw), (height, width, inner), units = trial.kernel, trial.shape, trial.channels
    is_float, (down, across) = dtype == "float32", trial.pad
    rows = [leaf("input", dtype, 1, height, width, inner)]
    rows += [leaf("const", dtype, *((1, kh, kw, units) if trial.is_depthwise else (units, kh, kw, inner)))]
    rows += [] if is_float else [leaf("const", d) for d in ("int32", "int32", "float32", "float32")]
    rows += [leaf("const", "float32" if is_float else "int32", 1, 1, 1, units)] if "bias" in trial.has else []
    rows += [] if is_float else [leaf("const", d) for d in ("float32", "int32")]
    size = [(n + 2 * p - k) // trial.stride + 1 for n, p, k in ((height, down, kh), (width, across, kw))]
    attrs: dict[str, object] = {"num_inputs": str(len(rows)), "num_outputs": "1"}
    attrs |= {"shape": [[[1, *size, units]]], "dtype": [[dtype]], "data_layout": [["NHWC"]], "out_layout": [[""]]}
    attrs |= {"groups": [[str(inner if trial.is_depthwise else 1)]], "dilation": [["1", "1"]]}
    attrs |= {"kernel_layout": [["IHWO" if trial.is_depthwise else "OHWI"]], "channels": [[str(units)]]}
    attrs |= {"out_dtype": [["" if is_float else "int32"]], "kernel_size": [[str(kh), str(kw)]]}
    attrs |= {"padding": [[str(p) for p in (down, across, down, across)]], "strides": [[str(trial.stride)] * 2]}
    attrs |= {"activation_type": [["relu"]]} if "relu" in trial.has else {}
    name = f"{'nn' if is_float else 'qnn'}.{'depthwise_' if trial.is_depthwise else ''}conv2d"
    inputs = [[k, 0, 0] for k in range(len(rows))]
    return [*rows, {"op": "kernel", "name": name, "inputs": inputs, "attrs": attrs}]


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8"])
def test_nodes_of_the_trials(dtype: str) -> None:
    xs = [var(f"x{k}", shape=(1, *trial.shape), dtype=dtype) for k, trial in enumerate(TRIALS)]
    layers = [layer(t, x) if dtype == "float32" else qnn_layer(t, x, dtype) for t, x in zip(TRIALS, xs, strict=True)]
    found = nodes(partitioned(module_of(*layers), 0, len(TRIALS)))
    assert found == [expected_nodes(trial, dtype) for trial in TRIALS]


def reason(expr: Expr, of: str = "conv2d") -> str:
    after = partitioned(module_of(expr), len(operators(module_of(expr)["main"])), 0)
    return "; ".join(row.reason for row in offload_report(after, ["arm_compute_lib"]).rows if of in row.what)


def test_what_is_refused_says_why() -> None:
    def conv(shape: tuple[int, ...] = (1, 8, 8, 4), kernel: tuple[int, ...] = (3, 3, 4, 4), **attrs: object) -> Expr:
        common = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        return relay.nn.conv2d(var("x", shape=shape), const(np.ones(kernel, "float32")), **{**common, **attrs})

    assert reason(conv((2, 8, 8, 4))) == "the batch is 2, wanted 1"
    assert reason(conv(kernel=(3, 3, 2, 4), groups=2)) == "the convolution has 2 groups; one, or depthwise, is possible"
    four = {"kernel_layout": "HWOI", "groups": 4}
    assert reason(conv(kernel=(2, 2, 4, 1), **four)) == "a depthwise kernel of 2x2, wanted 3x3 or 5x5"
    message = "strides of a depthwise convolution is (1, 2), wanted (1, 1) or (2, 2)"
    assert reason(conv(kernel=(3, 3, 4, 1), strides=(1, 2), **four)) == message
    x = var("x", shape=(1, 8, 8, 4), dtype="float64")
    wide = relay.nn.conv2d(x, const(np.ones((3, 3, 4, 4))), data_layout="NHWC", kernel_layout="HWIO")
    assert reason(wide) == "data is float64, wanted float32"


def test_pads_that_the_library_does_not_have_stay_in_the_graph(device: Device, tmp_path: Path) -> None:
    x = var("x", shape=(1, 8, 8, 4))
    kernel = const(RNG.uniform(-1, 1, (3, 3, 4, 4)).astype("float32"))
    width = ((0, 0), (1, 1), (1, 1), (0, 0))
    pads = (relay.nn.pad(x, pad_width=width, pad_value=1.5), relay.nn.pad(x, pad_width=width, pad_mode="reflect"))
    common = {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": (1, 0)}
    module = module_of(*(relay.nn.conv2d(pad, kernel, **common) for pad in pads))
    value = RNG.uniform(-1, 1, (1, 8, 8, 4)).astype("float32")
    verify(run(device, partitioned(module, 2, 2), {"x": value}, tmp_path), evaluate(module, [value]), 0.002, 0.01)
    both = module_of(relay.nn.conv2d(relay.nn.pad(x, pad_width=width), kernel, **common))  # pads twice
    verify(run(device, partitioned(both, 0, 1), {"x": value}, tmp_path), [evaluate(both, [value])], 0.002, 0.01)


def test_padded_1x1_convolutions_of_stride_1_stay_in_the_graph(device: Device, tmp_path: Path) -> None:
    """The library takes the image for the matrix; with other strides it does not, and `nn.pad` may stay alone."""
    x = var("x", shape=(1, 6, 7, 4))
    kernel = const(RNG.uniform(-1, 1, (1, 1, 4, 5)).astype("float32"))
    common = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    refused = relay.nn.conv2d(x, kernel, padding=(0, 1, 0, 0), **common)
    assert "a 1x1 convolution of stride 1 has padding" in reason(refused, "nn.conv2d")
    apart = relay.nn.conv2d(relay.nn.pad(x, pad_width=((0, 0), (1, 0), (0, 1), (0, 0))), kernel, **common)
    wide = relay.nn.conv2d(x, kernel, padding=(1, 1), strides=(1, 2), **common)
    module, value = module_of(refused, apart, wide), RNG.uniform(-1, 1, (1, 6, 7, 4)).astype("float32")
    verify(run(device, partitioned(module, 2, 2), {"x": value}, tmp_path), evaluate(module, [value]), 0.002, 0.01)


def by_channel(trial: Trial, dtype: str, kernel_zero: int = 0, kernel_dtype: str = "int8") -> Expr:
    """A layer of bytes whose kernel has a scale for each channel of the result."""
    x = var(f"x_{dtype}_{trial.is_depthwise}", shape=(1, *trial.shape), dtype=dtype)
    scales = RNG.uniform(0.01, 0.05, trial.channels).astype("float32")
    numbers = (const(ZERO[dtype]), const(np.full(trial.channels, kernel_zero, "int32")), const(SCALE), const(scales))
    y = relay.qnn.conv2d(x, weight(trial, kernel_dtype), *numbers, **attributes(trial))
    terms = np.prod(trial.kernel) * (1 if trial.is_depthwise else trial.shape[2])
    scale = const(np.float32(SCALE * 0.03 * 74 * 74 * np.sqrt(terms) / 32))
    zero = const(np.int32(128 if dtype == "uint8" else 0))
    into = const((scales * np.float32(SCALE)).astype("float32"))
    return relay.qnn.requantize(y, into, const(np.int32(0)), scale, zero, axis=3, out_dtype=dtype)


def test_scales_by_channel(device: Device, tmp_path: Path) -> None:
    """Of int8 and of uint8 data, in full and depthwise convolutions."""
    layers = [by_channel(TRIALS[k], dtype) for k in (3, 10) for dtype in ("int8", "uint8")]
    module = module_of(*layers)
    values = [data(dtype, k) for k in (3, 10) for dtype in ("int8", "uint8")]
    inputs = {p.name_hint: value for p, value in zip(module["main"].params, values, strict=True)}
    found = run(device, partitioned(module, 0, 4), inputs, tmp_path)
    verify(found, evaluate(module, values), atol=1, rtol=0)


def test_scales_by_channel_want_kernels_around_zero() -> None:
    message = "kernel_zero_point is not 0, which scales by channel and data of the other sign want"
    assert message in reason(by_channel(TRIALS[3], "int8", kernel_zero=3), "requantize")
    by_bytes = by_channel(TRIALS[3], "uint8", 0, "uint8")
    assert "with scales by channel, is uint8, wanted int8" in reason(by_bytes, "requantize")
