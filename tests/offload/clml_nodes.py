"""The meaning of the JSON that is written for OpenCLML, in terms of Relay's operators.

In: the text of a function, its constants, inputs. Out: what the nodes say they compute, by the references of the
operators. Invariant: only what the text says is used, so a node that says something else than the graph it was made of
gives other numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from armillary import relay
from armillary.ir import IRModule
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Expr, Function, TupleGetItem, const

Array = np.ndarray[Any, Any]
Attrs = dict[str, tuple[str, ...]]


def numbers(attrs: Attrs, name: str) -> tuple[int, ...]:
    return tuple(map(int, attrs[name]))


def convolution(operator: Callable[..., Expr], attrs: Attrs, values: Sequence[Expr]) -> Expr:
    data, weight, *rest = values
    fields = {name: numbers(attrs, name) for name in ("strides", "padding", "dilation")}
    layout = {"kernel_layout": attrs["kernel_layout"][0], "groups": int(attrs["groups"][0])}
    if attrs["kernel_layout"][0] == "IOHW" and operator is relay.nn.conv2d:  # depthwise: one input channel for each
        weight, layout["kernel_layout"] = relay.transpose(weight, axes=(1, 0, 2, 3)), "OIHW"
    made = operator(
        data, weight, channels=int(attrs["channels"][0]), kernel_size=numbers(attrs, "kernel_size"), **fields, **layout
    )
    has_norm = "batchnorm" in attrs
    vectors = rest[-4:] if has_norm else []
    for bias in rest[: len(rest) - len(vectors)]:
        made = relay.add(made, bias)
    if has_norm:
        axis, epsilon, center, scale = attrs["batchnorm"]
        flat = [relay.reshape(v, newshape=(-1,)) for v in vectors]
        options = {"axis": int(axis), "epsilon": float(epsilon), "center": bool(int(center)), "scale": bool(int(scale))}
        made = TupleGetItem(relay.nn.batch_norm(made, *flat, **options), 0)
    return activated(made, attrs.get("activation_type", ("",))[0])


def activated(value: Expr, name: str) -> Expr:
    assert name in ("", "relu", "relu6")
    if name == "relu6":
        return relay.clip(value, a_min=0.0, a_max=6.0)
    return relay.nn.relu(value) if name == "relu" else value


def dense(attrs: Attrs, values: Sequence[Expr]) -> Expr:
    made = relay.nn.dense(values[0], values[1], units=int(attrs["units"][0]))
    return relay.add(made, values[2]) if len(values) == 3 else made


def norm(attrs: Attrs, values: Sequence[Expr]) -> Expr:
    flat = [relay.reshape(v, newshape=(-1,)) for v in values[1:]]
    return TupleGetItem(relay.nn.batch_norm(values[0], *flat, epsilon=float(attrs["epsilon"][0])), 0)


def pool(name: str) -> Callable[[Attrs, Sequence[Expr]], Expr]:
    def made(attrs: Attrs, values: Sequence[Expr]) -> Expr:
        fields = {key: numbers(attrs, key) for key in ("pool_size", "strides", "padding")}
        return getattr(relay.nn, name)(values[0], **fields)

    return made


def pad(attrs: Attrs, values: Sequence[Expr]) -> Expr:
    top, bottom, left, right = numbers(attrs, "pad_width")
    width = ((0, 0), (0, 0), (top, bottom), (left, right))
    return relay.nn.pad(values[0], pad_width=width, pad_mode=attrs["pad_mode"][0])


MEANING: dict[str, Callable[[Attrs, Sequence[Expr]], Expr]] = {
    "nn.conv2d": lambda a, v: convolution(relay.nn.conv2d, a, v),
    "nn.depthwise_conv2d": lambda a, v: convolution(relay.nn.conv2d, a, v),
    "nn.conv2d_transpose": lambda a, v: convolution(relay.nn.conv2d_transpose, a, v),
    "nn.dense": dense,
    "nn.batch_matmul": lambda a, v: relay.nn.batch_matmul(*v, transpose_b=bool(int(a["transpose_b"][0]))),
    "nn.batch_norm": norm,
    "nn.max_pool2d": pool("max_pool2d"),
    "nn.avg_pool2d": pool("avg_pool2d"),
    "nn.global_max_pool2d": lambda a, v: relay.nn.global_max_pool2d(v[0]),
    "nn.global_avg_pool2d": lambda a, v: relay.nn.global_avg_pool2d(v[0]),
    "nn.relu": lambda a, v: relay.nn.relu(v[0]),
    "nn.relu6": lambda a, v: relay.clip(v[0], a_min=0.0, a_max=6.0),
    "clip": lambda a, v: relay.clip(v[0], a_min=float(a["a_min"][0]), a_max=float(a["a_max"][0])),
    "nn.softmax": lambda a, v: relay.nn.softmax(v[0], axis=1),
    "nn.pad": pad,
    "nn.batch_flatten": lambda a, v: relay.nn.batch_flatten(v[0]),
    "reshape": lambda a, v: relay.reshape(v[0], newshape=numbers(a, "newshape")),
    "concatenate": lambda a, v: relay.concatenate(tuple(v), axis=1),
    "nn.depth_to_space": lambda a, v: relay.nn.depth_to_space(v[0], block_size=int(a["block_size"][0])),
    "nn.upsampling": lambda a, v: relay.nn.upsampling(
        v[0],
        scale_h=float(a["scale_h"][0]),
        scale_w=float(a["scale_w"][0]),
        method="bilinear",
        align_corners=bool(int(a["align_corners"][0])),
    ),
    **{
        name: (lambda a, v, name=name: getattr(relay, name)(*v))  # type: ignore[misc]
        for name in ("add", "subtract", "multiply", "divide", "minimum", "maximum")
    },
}


def computed(source: str, constants: Sequence[Array], inputs: Sequence[Array]) -> list[Array]:
    """What the nodes compute of these inputs."""
    graph = json.loads(source)
    given, held = iter(inputs), iter(constants)
    values: list[Expr] = []
    for node in graph["nodes"]:
        if node["op"] == "input":
            values.append(const(next(given)))
        elif node["op"] == "const":
            values.append(const(next(held)))
        else:
            attrs = {k: tuple(v[0]) for k, v in node["attrs"].items() if isinstance(v, list)}
            made = MEANING[node["name"]](attrs, [values[k] for k, _, _ in node["inputs"]])
            values.append(const(evaluate(IRModule.from_expr(Function((), made)), [])))
        assert list(values[-1].data.shape) == node["attrs"]["shape"][0][0], node["name"]  # type: ignore[attr-defined]
    return [values[k].data for k, _, _ in graph["heads"]]  # type: ignore[attr-defined]
