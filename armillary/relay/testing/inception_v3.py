"""Inception v3: mixed blocks of parallel convolutions.

In: classes, image shape (299 wanted). Out: (IRModule, params) by get_workload. Invariant: the result is a softmax. A
branch is written as rows (channels, kernel, stride, padding); a block joins its branches along the channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, var
from armillary.relay.testing import layers
from armillary.relay.testing.init import create_workload
from armillary.runtime.ndarray import NDArray

Pool = Callable[..., Expr]  # of data and a stride
Size = tuple[int, int]
Row = tuple[int, Size, int]  # channels, kernel, stride; padded to keep the size when the stride is 1
ONE, THREE, FIVE, WIDE, TALL = (1, 1), (3, 3), (5, 5), (1, 7), (7, 1)


def _conv(data: Expr, channels: int, kernel: Size, stride: int, padding: Size, name: str) -> Expr:
    body = layers.conv2d(
        data, channels=channels, kernel_size=kernel, strides=(stride, stride), padding=padding, name=f"{name}_conv1"
    )
    return relay.nn.relu(layers.batch_norm_infer(body, epsilon=2e-5, scale=False, name=f"{name}_bn"))


def _same(data: Expr, rows: Sequence[Row], name: str) -> Expr:
    for n, (channels, kernel, stride) in enumerate(rows):
        padding = (kernel[0] // 2, kernel[1] // 2) if stride == 1 else (0, 0)
        data = _conv(data, channels, kernel, stride, padding, f"{name}_conv_{n}")
    return data


def _max_pool(data: Expr, stride: int = 1) -> Expr:
    return relay.nn.max_pool2d(data, (3, 3), (stride, stride), padding=(2 - stride,) * 2)


def _avg_pool(data: Expr, stride: int = 1) -> Expr:
    return relay.nn.avg_pool2d(data, (3, 3), (stride, stride), padding=(2 - stride,) * 2, count_include_pad=True)


def _block(data: Expr, branches: Sequence[Sequence[Row]], pool: Pool, project: int, name: str) -> Expr:
    """Parallel branches and a pooled one; `project` > 0: a 1x1 convolution after a pool of stride 1, else stride 2."""
    parts = [_same(data, rows, f"{name}_branch{n}") for n, rows in enumerate(branches)]
    if project:
        parts.append(_same(pool(data), [(project, ONE, 1)], f"{name}_pool"))
    else:
        parts.append(pool(data, 2))
    return relay.concatenate(parts, axis=1)


def _block_a(data: Expr, project: int, name: str) -> Expr:
    branches = [[(64, ONE, 1)], [(48, ONE, 1), (64, FIVE, 1)], [(64, ONE, 1), (96, THREE, 1), (96, THREE, 1)]]
    return _block(data, branches, _avg_pool, project, name)


def _block_c(data: Expr, c: int, name: str) -> Expr:
    single, double = [(c, ONE, 1), (c, WIDE, 1), (192, TALL, 1)], [(c, ONE, 1), (c, TALL, 1), (c, WIDE, 1)]
    double += [(c, TALL, 1), (192, WIDE, 1)]
    return _block(data, [[(192, ONE, 1)], single, double], _avg_pool, 192, name)


def _block_e(data: Expr, pool: Pool, name: str) -> Expr:
    """The widest block: two of its branches fork at their end."""
    fork = _same(data, [(384, ONE, 1)], f"{name}_fork")
    deep = _same(data, [(448, ONE, 1), (384, THREE, 1)], f"{name}_deep")
    parts = [_same(data, [(320, ONE, 1)], f"{name}_branch0")]
    for stem, label in ((fork, "fork"), (deep, "deep")):
        parts += [_same(stem, [(384, k, 1)], f"{name}_{label}_{n}") for n, k in enumerate(((1, 3), (3, 1)))]
    parts.append(_same(pool(data), [(192, ONE, 1)], f"{name}_pool"))
    return relay.concatenate(parts, axis=1)


def get_net(batch_size: int, num_classes: int, image_shape: Sequence[int], dtype: str) -> Function:
    """The network as a function."""
    body: Expr = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = _conv(body, 32, THREE, 2, (0, 0), "conv")
    body = _conv(body, 32, THREE, 1, (0, 0), "conv_1")
    body = _conv(body, 64, THREE, 1, (1, 1), "conv_2")
    body = _max_pool(body, 2)
    body = _conv(body, 80, ONE, 1, (0, 0), "conv_3")
    body = _conv(body, 192, THREE, 1, (0, 0), "conv_4")
    body = _max_pool(body, 2)
    for n, project in enumerate((32, 64, 64)):
        body = _block_a(body, project, f"mixed_{n}")
    shrink = [[(384, THREE, 2)], [(64, ONE, 1), (96, THREE, 1), (96, THREE, 2)]]
    body = _block(body, shrink, _max_pool, 0, "mixed_3")
    for n, channels in enumerate((128, 160, 160, 192), 4):
        body = _block_c(body, channels, f"mixed_{n}")
    wide = [(192, ONE, 1), (192, WIDE, 1), (192, TALL, 1), (192, THREE, 2)]
    body = _block(body, [[(192, ONE, 1), (320, THREE, 2)], wide], _max_pool, 0, "mixed_8")
    body = _block_e(_block_e(body, _avg_pool, "mixed_9"), _max_pool, "mixed_10")
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body))
    return layers.function_of(relay.nn.softmax(layers.dense_add_bias(flat, units=num_classes, name="fc1")))


def get_workload(
    batch_size: int = 1, num_classes: int = 1000, image_shape: Sequence[int] = (3, 299, 299), dtype: str = "float32"
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
