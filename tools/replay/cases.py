"""The programs of the replay: small networks, and single layers as users write them.

In: nothing. Out: `CASES`, name -> a function that gives an IRModule and its parameters. Invariant: deterministic, and
small enough that all of them are lowered for four CPUs within three minutes; each mechanism of the CPU back end is
reached by one of them at least. Names are stable: a recording is compared by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from armillary import relay  # noqa: E402
from armillary.relay import testing  # noqa: E402

Program = tuple[Any, dict[str, Any]]  # Any: an IRModule; arrays
Case = Callable[[], Program]
_SEED = 7


def _values(shape: Sequence[int], dtype: str) -> Any:  # Any: an array of any dtype
    random = np.random.default_rng(_SEED)
    if dtype in ("int8", "uint8", "int32"):
        return random.integers(0 if dtype == "uint8" else -100, 100, shape).astype(dtype)
    values = (random.standard_normal(shape) * 0.1).astype("float32")
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def _constant(shape: Sequence[int], dtype: str = "float32") -> Any:  # Any: a Constant
    return relay.const(_values(shape, dtype))


def _program(body: Any, *inputs: Any) -> Program:  # Any: expressions
    return relay.IRModule.from_expr(relay.Function(list(inputs), body)), {}


def _network(name: str, **options: Any) -> Program:  # Any: the options of each network
    module, params = getattr(testing, name).get_workload(**options)
    return module, params


def _onnx(name: str, batch: int, side: int) -> Program:
    import networks  # benchmarks/networks.py, which needs onnx

    return relay.frontend.from_onnx(networks.build(name, batch, side))  # type: ignore[no-any-return]


def _mixed(name: str, **options: Any) -> Program:  # Any: as in _network
    module, params = _network(name, **options)
    module = relay.transform.InferType()(module)
    return relay.transform.ToMixedPrecision("float16")(module), params


def _conv(
    channels: tuple[int, int],
    side: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    groups: int = 1,
    dtype: str = "float32",
    batch: int = 1,
    dilation: int = 1,
    layout: str = "NCHW",
    tail: str = "relu",
) -> Program:
    """A convolution with its bias and what follows it."""
    inputs, outputs = channels
    shape = (batch, inputs, side, side) if layout == "NCHW" else (batch, side, side, inputs)
    kernels = (outputs, inputs // groups, kernel, kernel)
    order = "OIHW"
    if layout == "NHWC":
        kernels, order = (kernel, kernel, inputs // groups, outputs), "HWIO"
        if groups > 1:
            kernels, order = (kernel, kernel, outputs, inputs // groups), "HWOI"
    data = relay.var("data", shape=shape, dtype=dtype)
    result = relay.nn.conv2d(
        data,
        _constant(kernels, dtype),
        strides=(stride, stride),
        padding=(dilation * (kernel // 2),) * 2,
        groups=groups,
        channels=outputs,
        kernel_size=(kernel, kernel),
        dilation=(dilation, dilation),
        data_layout=layout,
        kernel_layout=order,
    )
    axis = 1 if layout == "NCHW" else 3
    result = relay.nn.bias_add(result, _constant((outputs,), dtype), axis=axis)
    return _program(_TAILS[tail](result), data)


def _separable(x: Any) -> Any:  # Any: expressions
    return relay.nn.relu(relay.nn.conv2d(relay.nn.relu(x), _constant((48, 32, 1, 1)), channels=48, kernel_size=(1, 1)))


_TAILS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "relu": lambda x: relay.nn.relu(x),
    "gelu": lambda x: relay.nn.gelu(x),
    "silu": lambda x: relay.multiply(x, relay.sigmoid(x)),
    "max_pool": lambda x: relay.nn.max_pool2d(relay.nn.relu(x), pool_size=(3, 3), strides=(2, 2), padding=(1, 1)),
    "avg_pool": lambda x: relay.nn.global_avg_pool2d(relay.nn.relu(x)),
    "add": lambda x: relay.nn.relu(relay.add(x, relay.exp(x))),
    "separable": _separable,
}


def _transpose(channels: tuple[int, int], side: int, kernel: int, stride: int) -> Program:
    inputs, outputs = channels
    data = relay.var("data", shape=(1, inputs, side, side))
    weight = _constant((inputs, outputs, kernel, kernel))
    result = relay.nn.conv2d_transpose(
        data, weight, strides=(stride, stride), padding=(1, 1), channels=outputs, kernel_size=(kernel, kernel)
    )
    return _program(relay.nn.relu(result), data)


def _conv1d() -> Program:
    data = relay.var("data", shape=(1, 32, 64))
    result = relay.nn.conv1d(data, _constant((32, 32, 3)), padding=(1,), channels=32, kernel_size=(3,))
    return _program(relay.nn.relu(result), data)


def _conv3d() -> Program:
    data = relay.var("data", shape=(1, 16, 6, 12, 12))
    weight = _constant((32, 16, 3, 3, 3))
    result = relay.nn.conv3d(data, weight, padding=(1, 1, 1), channels=32, kernel_size=(3, 3, 3))
    return _program(relay.nn.relu(result), data)


def _dense(rows: int, inner: int, units: int, dtype: str = "float32", tail: str = "relu") -> Program:
    data = relay.var("data", shape=(rows, inner), dtype=dtype)
    result = relay.nn.dense(data, _constant((units, inner), dtype), units=units)
    result = relay.nn.bias_add(result, _constant((units,), dtype))
    return _program(_TAILS[tail](result), data)


def _batch_matmul(batch: int, rows: int, inner: int, columns: int, transpose_b: bool) -> Program:
    a = relay.var("a", shape=(batch, rows, inner))
    b = relay.var("b", shape=(batch, columns, inner) if transpose_b else (batch, inner, columns))
    return _program(relay.nn.batch_matmul(a, b, transpose_b=transpose_b), a, b)


def _attention(tokens: int, heads: int, size: int, masked: bool = False) -> Program:
    shape = (1, tokens, heads, size)
    query, key, value = (relay.var(name, shape=shape) for name in ("q", "k", "v"))
    if masked:
        mask = relay.var("mask", shape=(1, 1, tokens, tokens))
        return _program(relay.nn.masked_attention(query, key, value, mask, scale=0.125), query, key, value, mask)
    return _program(relay.nn.attention(query, key, value, scale=0.125), query, key, value)


def _of(rule: Callable[[Any], Any], *shape: int, dtype: str = "float32") -> Program:
    """A function of one tensor."""
    data = relay.var("data", shape=shape, dtype=dtype)
    return _program(rule(data), data)


def _quantized_conv(
    channels: tuple[int, int], side: int, kernel: int, groups: int = 1, dtype: str = "uint8"
) -> Program:
    inputs, outputs = channels
    zero = 0 if dtype == "int8" else 12
    data = relay.var("data", shape=(1, inputs, side, side), dtype=dtype)
    number, scale = (lambda v: relay.const(v, "int32")), (lambda v: relay.const(v, "float32"))
    result = relay.qnn.conv2d(
        data,
        _constant((outputs, inputs // groups, kernel, kernel), "int8"),
        number(zero),
        number(0),
        scale(0.05),
        scale(0.02),
        kernel_size=(kernel, kernel),
        channels=outputs,
        padding=(kernel // 2,) * 2,
        groups=groups,
        out_dtype="int32",
    )
    result = relay.nn.bias_add(result, _constant((outputs,), "int32"))
    result = relay.qnn.requantize(result, scale(0.001), number(0), scale(0.04), number(zero), out_dtype=dtype)
    return _program(result, data)


def _quantized_dense(rows: int, inner: int, units: int) -> Program:
    data = relay.var("data", shape=(rows, inner), dtype="uint8")
    number, scale = (lambda v: relay.const(v, "int32")), (lambda v: relay.const(v, "float32"))
    weight = _constant((units, inner), "int8")
    result = relay.qnn.dense(data, weight, number(7), number(0), scale(0.05), scale(0.02), units=units)
    return _program(relay.qnn.dequantize(result, scale(0.001), number(0)), data)


def _rules() -> dict[str, Case]:
    nn, image = relay.nn, relay.image
    of: Callable[..., Case] = partial(partial, _of)
    return {
        "softmax-rows": of(lambda x: nn.softmax(x), 32, 1000),
        "softmax-across": of(lambda x: nn.softmax(x, axis=1), 1, 21, 24, 24),
        "softmax-short": of(lambda x: nn.softmax(x), 400, 6),
        "log-softmax": of(lambda x: nn.log_softmax(x), 16, 512),
        "layer-norm": of(lambda x: nn.layer_norm(x, _constant((256,)), _constant((256,))), 64, 256),
        "group-norm": of(lambda x: nn.group_norm(x, _constant((32,)), _constant((32,)), 8), 1, 32, 14, 14),
        "lrn": of(lambda x: nn.lrn(x), 1, 64, 13, 13),
        "max-pool": of(lambda x: nn.max_pool2d(x, (3, 3), strides=(2, 2), padding=(1, 1)), 1, 32, 28, 28),
        "avg-pool": of(lambda x: nn.avg_pool2d(x, (2, 2), strides=(2, 2)), 1, 3, 28, 28),
        "global-pool-planes": of(lambda x: nn.global_avg_pool2d(x), 1, 20, 17, 17),
        "sum": of(lambda x: relay.sum(x, axis=(2, 3)), 1, 40, 12, 12),
        "mean-rows": of(lambda x: relay.mean(x, axis=-1), 64, 333),
        "max-across": of(lambda x: relay.max(x, axis=0), 64, 100),
        "argmax": of(lambda x: relay.argmax(x, axis=-1), 32, 500),
        "argmax-across": of(lambda x: relay.argmax(x, axis=1), 1, 21, 16, 16),
        "topk": of(lambda x: relay.topk(x, k=5, axis=-1), 8, 200),
        "sort": of(lambda x: relay.sort(x, axis=-1), 8, 128),
        "cumsum": of(lambda x: relay.cumsum(x, axis=1), 8, 128),
        "transpose": of(lambda x: relay.transpose(x, (0, 2, 3, 1)), 1, 48, 14, 14),
        "transpose-2d": of(lambda x: relay.transpose(x), 120, 200),
        "concatenate": of(lambda x: relay.concatenate([x, nn.relu(x)], axis=1), 1, 24, 14, 14),
        "elementwise": of(lambda x: relay.tanh(relay.exp(x) + relay.erf(x)), 1000, dtype="float32"),
        "elementwise-float16": of(lambda x: relay.sigmoid(x) * x, 1000, dtype="float16"),
        "upsampling": of(lambda x: nn.upsampling(x, 2.0, 2.0), 1, 16, 14, 14),
        "resize-linear": of(lambda x: image.resize2d(x, size=(20, 20), method="linear"), 1, 16, 14, 14),
        "pad-mirror": of(lambda x: nn.mirror_pad(x, pad_width=((0, 0), (0, 0), (2, 2), (2, 2))), 1, 8, 14, 14),
        "depth-to-space": of(lambda x: nn.depth_to_space(x, 2), 1, 32, 10, 10),
        "shuffle-channels": of(
            lambda x: relay.reshape(
                relay.transpose(relay.reshape(x, (1, 4, 16, 10, 10)), (0, 2, 1, 3, 4)), (1, 64, 10, 10)
            ),
            1,
            64,
            10,
            10,
        ),
        "take": of(lambda x: relay.take(_constant((100, 64)), x, axis=0), 20, dtype="int32"),
    }


def _convolutions() -> dict[str, Case]:
    plan: dict[str, tuple[Any, ...]] = {
        "3x3-64-56": ((64, 64), 56),
        "3x3-128-28": ((128, 128), 28),
        "3x3-256-14": ((256, 256), 14),
        "3x3-64-128-14": ((128, 64), 14),
        "3x3-stride": ((64, 128), 28, 3, 2),
        "1x1-256-14": ((256, 64), 14, 1),
        "1x1-stride": ((64, 128), 28, 1, 2),
        "1x1-wide": ((64, 256), 28, 1),
        "7x7-first": ((3, 64), 64, 7, 2),
        "3x3-first": ((3, 32), 48, 3, 2),
        "5x5-48": ((48, 48), 24, 5),
        "11x11": ((16, 16), 32, 11),
        "narrow-output": ((64, 3), 32),
        "ragged-30-50": ((30, 50), 20),
        "1-to-1": ((1, 1), 40),
    }
    cases: dict[str, Case] = {f"conv2d-{name}": partial(_conv, *args) for name, args in plan.items()}
    more: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "batch": (((32, 32), 14), {"batch": 4}),
        "depthwise": (((64, 64), 28), {"groups": 64}),
        "depthwise-stride-5x5": (((48, 48), 28, 5, 2), {"groups": 48}),
        "grouped": (((64, 64), 14), {"groups": 4}),
        "dilated": (((32, 32), 28), {"dilation": 2}),
        "nhwc": (((32, 64), 14), {"layout": "NHWC"}),
        "gelu": (((32, 64), 14, 1), {"tail": "gelu"}),
        "silu": (((32, 64), 14), {"tail": "silu"}),
        "add": (((64, 64), 14), {"tail": "add"}),
        "pooled": (((3, 64), 56, 7, 2), {"tail": "max_pool"}),
        "averaged": (((64, 64), 14, 1), {"tail": "avg_pool"}),
        "separable": (((32, 32), 28), {"groups": 32, "tail": "separable"}),
        "float16": (((64, 64), 14), {"dtype": "float16"}),
        "bfloat16": (((64, 64), 14), {"dtype": "bfloat16"}),
        "bfloat16-first": (((3, 64), 48, 7, 2), {"dtype": "bfloat16"}),
        "bfloat16-1x1": (((128, 64), 14, 1), {"dtype": "bfloat16"}),
    }
    return cases | {f"conv2d-{name}": partial(_conv, *args, **named) for name, (args, named) in more.items()}


CASES: dict[str, Case] = {
    **_convolutions(),
    "conv2d-transpose-2x": partial(_transpose, (32, 16), 14, 4, 2),
    "conv2d-transpose-3x3": partial(_transpose, (16, 32), 14, 3, 1),
    "conv1d": _conv1d,
    "conv3d": _conv3d,
    "dense-1-row": partial(_dense, 1, 512, 1000),
    "dense-4-rows": partial(_dense, 4, 256, 256, tail="gelu"),
    "dense-128-rows": partial(_dense, 128, 256, 512),
    "dense-ragged": partial(_dense, 17, 100, 61),
    "dense-bfloat16": partial(_dense, 64, 256, 256, "bfloat16"),
    "dense-float16": partial(_dense, 1, 256, 512, "float16", "none"),
    "batch-matmul-nt": partial(_batch_matmul, 8, 64, 32, 64, True),
    "batch-matmul-nn": partial(_batch_matmul, 8, 64, 64, 32, False),
    "batch-matmul-1": partial(_batch_matmul, 8, 1, 64, 32, False),
    "attention-64": partial(_attention, 64, 4, 32),
    "attention-1024": partial(_attention, 1024, 2, 64),
    "attention-masked": partial(_attention, 50, 4, 32, True),
    "qnn-conv2d-3x3": partial(_quantized_conv, (32, 64), 14, 3),
    "qnn-conv2d-1x1-int8": partial(_quantized_conv, (64, 64), 14, 1, 1, "int8"),
    "qnn-conv2d-depthwise": partial(_quantized_conv, (32, 32), 14, 3, 32),
    "qnn-conv2d-first": partial(_quantized_conv, (3, 32), 32, 3),
    "qnn-dense": partial(_quantized_dense, 32, 256, 128),
    "qnn-dense-1-row": partial(_quantized_dense, 1, 256, 128),
    **_rules(),
    "net-resnet18": partial(_onnx, "resnet18", 1, 64),
    "net-resnet18-224": partial(_onnx, "resnet18", 1, 224),
    "net-resnet50": partial(_onnx, "resnet50", 1, 96),
    "net-mobilenet_v1": partial(_onnx, "mobilenet_v1", 1, 64),
    "net-squeezenet": partial(_onnx, "squeezenet1_1", 1, 64),
    "net-squeezenet-224": partial(_onnx, "squeezenet1_1", 1, 224),
    "net-resnet18-float16": partial(_mixed, "resnet", image_shape=(3, 32, 32), num_classes=10),
    "net-mlp": partial(_network, "mlp", batch_size=8),
    "net-dqn": partial(_network, "dqn", batch_size=1),
    "net-dcgan": partial(_network, "dcgan", batch_size=1, ngf=16),
    "net-lstm": partial(_network, "lstm", iterations=2, num_hidden=32),
    "net-resnet-nhwc": partial(_network, "resnet", image_shape=(32, 32, 3), num_classes=10, layout="NHWC"),
}
