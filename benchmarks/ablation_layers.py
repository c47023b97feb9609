"""Layers as exporters write them, for passes that none of the programs of tools/replay shows: one layer for each pass.

In: nothing. Out: `LAYERS`, a function for each name that makes a module and its params, as tools/replay/cases.py has
them; sizes are those of the networks named beside. Used by benchmarks/ablation.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary import relay
from armillary.ir import IRModule

Program = Callable[[], tuple[IRModule, dict[str, Any]]]  # Any: an NDArray or an array


def _weight(*shape: int, dtype: str = "float32") -> relay.Expr:
    random = np.random.default_rng(math.prod(shape))
    return relay.const((random.standard_normal(shape) / math.sqrt(math.prod(shape[1:]) or 1)).astype("float32"), dtype)


def _of(body: Callable[..., relay.Expr], *shapes: tuple[int, ...], dtype: str = "float32") -> Program:
    def program() -> tuple[IRModule, dict[str, Any]]:
        given = [relay.var(f"x{k}", shape=shape, dtype=dtype) for k, shape in enumerate(shapes)]
        return IRModule.from_expr(relay.Function(given, body(*given))), {}

    return program


def _conv(x: relay.Expr, channels: int, kernel: int = 1, inputs: int = 0, **attrs: Any) -> relay.Expr:
    attrs.setdefault("padding", (kernel // 2, kernel // 2))
    return relay.nn.conv2d(x, _weight(channels, inputs, kernel, kernel), **attrs)


def _gelu(x: relay.Expr) -> relay.Expr:  # BERT
    half, root = relay.const(0.5), relay.const(1 / math.sqrt(2))
    return x * (half + half * relay.erf(x * root))


def _layer_norm(x: relay.Expr) -> relay.Expr:  # BERT, as opset 9 to 16 has it
    off = x - relay.mean(x, axis=-1, keepdims=True)
    spread = relay.mean(off * off, axis=-1, keepdims=True) + relay.const(1e-5)
    return off / relay.sqrt(spread) * _weight(768) + _weight(768)


def _attention(q: relay.Expr, k: relay.Expr, v: relay.Expr) -> relay.Expr:  # BERT: 12 heads, 128 tokens
    scores = relay.nn.batch_matmul(q, k, transpose_b=True) * relay.const(0.125)
    return relay.nn.batch_matmul(relay.nn.softmax(scores, axis=-1), v, transpose_b=False)


def _lrn(x: relay.Expr) -> relay.Expr:  # AlexNet, as PyTorch exports it
    square = relay.reshape(x * x, (1, 1, 64, 729))
    square = relay.nn.pad(square, pad_width=((0, 0), (0, 0), (2, 2), (0, 0)))
    mean = relay.reshape(relay.nn.avg_pool2d(square, pool_size=(5, 1)), (1, 64, 27, 27))
    return x / relay.power(mean * relay.const(1e-4) + relay.const(1.0), relay.const(0.75))


def _last(x: relay.Expr, channels: int, kernel: int, inputs: int, **attrs: Any) -> relay.Expr:
    y = _conv(relay.transpose(x, axes=[0, 3, 1, 2]), channels, kernel, inputs, **attrs)
    return relay.transpose(y, axes=[0, 2, 3, 1]) + _weight(channels)


def _channels_last(x: relay.Expr) -> relay.Expr:  # MobileNet v2 by tf2onnx: transposed around each convolution
    y = relay.transpose(x, axes=[0, 2, 3, 1])
    for _ in range(3):
        wide = relay.nn.relu(_last(y, 96, 1, 32))
        y = _last(relay.nn.relu(_last(wide, 96, 3, 1, groups=96)), 32, 1, 96) + y
    return relay.mean(y, axis=(1, 2))


def _causal(x: relay.Expr) -> relay.Expr:  # WaveNet, TCN
    for far in (1, 2, 4):
        y = relay.nn.conv1d(x, _weight(64, 64, 3), padding=(2 * far, 2 * far), dilation=(far,))
        y = relay.strided_slice(y, begin=(0,), end=(-2 * far,), axes=(2,))
        x = relay.nn.relu(y + _weight(64, 1)) + x
    return x


def _far_taps(x: relay.Expr) -> relay.Expr:  # DeepLab's head on small images
    return relay.nn.relu(_conv(x, 256, 3, 256, padding=(24, 24), dilation=(24, 24)))


def _enlarged(x: relay.Expr) -> relay.Expr:  # FCN: enlarged by 32, by channel
    return relay.nn.conv2d_transpose(x, _weight(64, 1, 9, 9), strides=(4, 4), padding=(4, 4), channels=1)


def _mixed_tokens(x: relay.Expr) -> relay.Expr:  # SegFormer, PVTv2: a depthwise convolution between dense layers
    wide = relay.nn.dense(x, _weight(256, 64))
    image = relay.reshape(relay.transpose(wide, axes=[0, 2, 1]), newshape=(1, 256, 28, 28))
    image = _conv(image, 256, 3, 1, groups=256)
    tokens = relay.transpose(relay.reshape(image, newshape=(1, 256, 784)), axes=[0, 2, 1])
    return relay.nn.dense(_gelu(tokens), _weight(64, 256))


def _atrous(x: relay.Expr) -> relay.Expr:  # DeepLab, as TensorFlow writes dilation
    y = relay.nn.space_to_batch_nd(x, block_shape=(2, 2), paddings=((2, 2), (2, 2)))
    y = relay.nn.conv2d(y, _weight(3, 3, 64, 64), data_layout="NHWC", kernel_layout="HWIO")
    return relay.nn.batch_to_space_nd(y, block_shape=(2, 2), crops=((0, 0), (0, 0)))


def _pyramid(*images: relay.Expr) -> relay.Expr:  # SegFormer's head
    how = {"method": "linear", "coordinate_transformation_mode": "half_pixel"}
    large = [relay.image.resize2d(x, size=(56, 56), **how) for x in images[1:]]
    return relay.nn.relu(_conv(relay.concatenate((images[0], *large), axis=1), 128, 1, 384))


def _groups(x: relay.Expr) -> relay.Expr:  # RegNet-Y
    return relay.nn.relu(_conv(x, 440, 3, 8, groups=55))


def _vocabulary(x: relay.Expr) -> relay.Expr:  # BERT's last layer, in bfloat16
    return relay.nn.dense(x, _weight(30522, 256, dtype="bfloat16"))


def _several_readers(x: relay.Expr) -> relay.Expr:  # pictures as bytes
    y = relay.cast(x, "float32") * relay.const(1 / 255.0) - _weight(3, 1, 1)
    return relay.Tuple([relay.exp(y), relay.mean(y, axis=(2, 3)), relay.max(y, axis=(1,))])


def _separable(x: relay.Expr) -> relay.Expr:  # MobileNet v1 at 1024
    return relay.nn.relu(_conv(relay.nn.relu(_conv(x, 64, 3, 1, groups=64)), 128, 1, 64))


def _halves(x: relay.Expr) -> relay.Expr:  # ResNet's stem in bfloat16
    y = relay.nn.conv2d(x, _weight(64, 64, 3, 3, dtype="bfloat16"), padding=(1, 1))
    y = relay.nn.max_pool2d(relay.nn.relu(y), pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    return relay.nn.conv2d(y, _weight(64, 64, 3, 3, dtype="bfloat16"), padding=(1, 1))


LAYERS: dict[str, Program] = {
    "exported-gelu": _of(_gelu, (1, 128, 3072)),
    "exported-layer-norm": _of(_layer_norm, (1, 128, 768)),
    "exported-attention": _of(_attention, (12, 128, 64), (12, 128, 64), (12, 128, 64)),
    "exported-attention-512": _of(_attention, (12, 512, 64), (12, 512, 64), (12, 512, 64)),
    "exported-argmax": _of(lambda x: relay.argmax(x, axis=1), (1, 21, 256, 256)),  # DeepLab's result
    "exported-lrn": _of(_lrn, (1, 64, 27, 27)),
    "exported-channels-last": _of(_channels_last, (1, 32, 28, 28)),
    "exported-causal": _of(_causal, (1, 64, 512)),
    "exported-far-taps": _of(_far_taps, (1, 256, 16, 16)),
    "exported-enlarged": _of(_enlarged, (1, 64, 32, 32)),
    "exported-mixed-tokens": _of(_mixed_tokens, (1, 784, 64)),
    "exported-atrous": _of(_atrous, (1, 32, 32, 64)),
    "exported-pyramid": _of(_pyramid, *((1, 128, side, side) for side in (56, 28, 14))),
    "exported-groups": _of(_groups, (1, 440, 14, 14)),
    "exported-vocabulary": _of(_vocabulary, (16, 256), dtype="bfloat16"),
    "exported-several-readers": _of(_several_readers, (1, 3, 512, 512), dtype="uint8"),
    "exported-separable": _of(_separable, (1, 64, 512, 512)),
    "exported-halves": _of(_halves, (1, 64, 56, 56), dtype="bfloat16"),
}
