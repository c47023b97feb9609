"""The generator of DCGAN: a random code becomes an image of 64x64 through transposed convolutions.

In: length of the code, image shape, filters. Out: (IRModule, params) by get_workload; the input "data" is the code.
Invariant: each 4x4 transposed convolution doubles the image; batch norm and relu follow all but the last, which ends in
tanh.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary import relay
from armillary.errors import UnsupportedError
from armillary.ir import IRModule
from armillary.relay.expr import Expr, Function, var
from armillary.relay.testing import layers
from armillary.relay.testing.init import create_workload
from armillary.runtime.ndarray import NDArray


def _double(data: Expr, channels: int, name: str) -> Expr:
    return layers.conv2d_transpose(
        data, channels=channels, kernel_size=(4, 4), strides=(2, 2), padding=(1, 1), output_padding=(0, 0), name=name
    )


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: Sequence[int] = (3, 64, 64),
    ngf: int = 128,
    code: Expr | None = None,
    dtype: str = "float32",
) -> Function:
    """The network as a function; `code` replaces the variable "data"."""
    if tuple(oshape[-2:]) != (64, 64):
        raise UnsupportedError(f"dcgan: images are 64x64, got {tuple(oshape)}")
    data = var("data", shape=(batch_size, random_len), dtype=dtype) if code is None else code
    body: Expr = relay.nn.relu(layers.dense(data, units=4 * 4 * ngf * 8, name="dense"))
    body = relay.reshape(body, newshape=(-1, ngf * 8, 4, 4))
    for prefix, channels in (("g2", ngf * 4), ("g3", ngf * 2), ("g4", ngf)):
        body = _double(body, channels, f"{prefix}_deconv")
        body = layers.batch_norm_infer(body, epsilon=1e-5 + 1e-12, scale=False, name=f"{prefix}_batch_norm")
        body = relay.nn.relu(body)
    return layers.function_of(relay.tanh(_double(body, oshape[-3], "g5_deconv")))


def get_workload(
    batch_size: int,
    oshape: Sequence[int] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and random parameters."""
    return create_workload(get_net(batch_size, random_len, oshape, ngf, dtype=dtype))
