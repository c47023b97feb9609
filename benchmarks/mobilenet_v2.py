"""MobileNet v2 as a Relay module: inverted residuals with linear bottlenecks.

In: the side of the image. Out: (module, parameters), as the workloads of relay.testing give them; batch norms are
there, unfolded. Invariant: at 1000 classes it has 3,504,872 weights besides means and variances, as published.
"""

from __future__ import annotations

from typing import Any

from armillary import relay
from armillary.relay.testing import create_workload, layers

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _unit(
    x: Any, name: str, channels: int, kernel: int, *, stride: int = 1, groups: int = 1, clips: bool = True
) -> Any:
    """A convolution, its normalisation, and relu6 if it `clips` (Any: expressions)."""
    pad = (kernel // 2, kernel // 2)
    made = layers.conv2d(
        x,
        name=f"{name}_conv",
        channels=channels,
        kernel_size=(kernel, kernel),
        strides=(stride, stride),
        padding=pad,
        groups=groups,
    )
    made = layers.batch_norm_infer(made, epsilon=1e-5, name=f"{name}_bn")
    return relay.clip(made, 0.0, 6.0) if clips else made


def mobilenet_v2(side: int = 224, classes: int = 1000) -> tuple[Any, dict[str, Any]]:
    """The module and random parameters."""
    x, before, number = relay.var("data", shape=(1, 3, side, side)), 32, 0
    body = _unit(x, "stem", before, 3, stride=2)
    for grow, after, repeats, first in STAGES:
        for stride in (first, *[1] * (repeats - 1)):
            name, inner, shortcut = f"block{number}", before * grow, body
            if grow > 1:
                body = _unit(body, f"{name}_expand", inner, 1)
            body = _unit(body, f"{name}_depthwise", inner, 3, stride=stride, groups=inner)
            body = _unit(body, f"{name}_project", after, 1, clips=False)
            if stride == 1 and before == after:
                body = relay.add(body, shortcut)
            before, number = after, number + 1
    body = relay.nn.global_avg_pool2d(_unit(body, "head", 1280, 1))
    body = layers.dense_add_bias(relay.nn.batch_flatten(body), units=classes, name="fc")
    result: tuple[Any, dict[str, Any]] = create_workload(layers.function_of(relay.nn.softmax(body)))
    return result
