"""Random windowed operators - convolutions, transposed ones, poolings - over images that are small beside windows.

In: a random generator. Out: a `Drawn`: a Relay function of one operator, perhaps between what is folded into it, and
the arrays of its inputs. Values are small integers, so that sums are exact in every order. Invariant: what is drawn
has a type; the shapes are odd on purpose: paddings of a kernel or more, strides beyond the image, axes of size 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary import relay
from armillary.errors import TypeMismatch
from armillary.relay.expr import Expr, Function

Array = np.ndarray[Any, Any]
LETTERS = {1: "W", 2: "HW", 3: "DHW"}
MOST = 200_000  # products of one case: the reference is numpy's


@dataclass(frozen=True)
class Drawn:
    """A case: its function, its inputs, and what tells it apart."""

    function: Function
    arrays: list[Array]
    text: str


@dataclass
class _Draw:
    """One case in the making."""

    random: np.random.Generator
    inputs: list[Expr]
    arrays: list[Array]

    def size(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def sizes(self, count: int, low: int, high: int) -> tuple[int, ...]:
        return tuple(self.size(low, high) for _ in range(count))

    def pick(self, *values: Any) -> Any:
        return values[self.size(0, len(values) - 1)]

    def values(self, shape: tuple[int, ...]) -> Array:
        return self.random.integers(-3, 4, shape).astype(np.float32)

    def argument(self, shape: tuple[int, ...], *, is_constant: bool = False) -> Expr:
        values = self.values(shape)
        if is_constant:
            return relay.const(values)
        self.inputs.append(relay.var(f"p{len(self.inputs)}", shape=shape))
        self.arrays.append(values)
        return self.inputs[-1]


def draw(seed: int) -> Drawn:
    """The case of a seed; another one where what it draws first has no type."""
    for number in range(1000):
        made = _Draw(np.random.default_rng([seed, number]), [], [])
        rule = made.pick(_convolution, _convolution, _convolution, _transposed, _pooling)
        try:
            body = _surrounded(made, rule(made))
            function = Function(tuple(made.inputs), body)
            if _products(function) <= MOST:
                return Drawn(function, made.arrays, f"seed {seed}: {relay.astext(function, show_meta_data=False)}")
        except TypeMismatch:
            continue
    raise AssertionError(f"seed {seed} draws nothing that has a type")


def _products(function: Function) -> int:
    """A bound on the products of all convolutions."""
    sizes = [p.checked_type.size for p in function.params]
    body: Any = relay.transform.InferType()(relay.IRModule.from_expr(function))["main"].body
    return int(np.prod([body.checked_type.size, max(1, max(sizes) // 4)]))


def _image(d: _Draw, rank: int, channels: int) -> tuple[int, ...]:
    most = {1: 24, 2: 9, 3: 5}[rank]
    if d.size(0, 3) == 0:
        return (d.pick(1, 1, 2), channels, *d.sizes(rank, 1, 2))
    return (d.pick(1, 1, 2), channels, *d.sizes(rank, 1, most))


def _window(d: _Draw, sizes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """A kernel, strides, dilations and paddings; now and then the result is as large as the image, as with SAME."""
    rank = len(sizes)
    kernel, strides = d.sizes(rank, 1, d.pick(1, 3, 3, 5)), d.sizes(rank, 1, d.pick(1, 2, 2, 4))
    dilation, padding = d.sizes(rank, 1, d.pick(1, 1, 3)), d.sizes(2 * rank, 0, d.pick(0, 1, 3, 6))
    if d.size(0, 2) == 0:
        span = [(k - 1) * step + 1 for k, step in zip(kernel, dilation, strict=True)]
        wanted = [d.pick(size, size, -(-size // stride)) for size, stride in zip(sizes, strides, strict=True)]
        rows = zip(wanted, strides, span, sizes, strict=True)
        total = [max(0, (want - 1) * stride + reach - size) for want, stride, reach, size in rows]
        before = [d.pick(0, 0, both // 2, -(-both // 2)) for both in total]
        padding = (*before, *(both - first for both, first in zip(total, before, strict=True)))
    return {"kernel": kernel, "dilation": dilation, "padding": padding, "strides": strides}


def _channels(d: _Draw) -> tuple[int, int, int]:
    """Channels of the data, of the result, and groups."""
    groups = d.pick(1, 1, 1, d.size(2, 5), 8, 16)
    if d.size(0, 1):
        return groups * d.pick(1, 1, 2, 3), groups * d.pick(1, 1, 2, 3), groups
    return groups * d.pick(1, 2, 8, 16), groups * d.pick(1, 4, 8, 16), groups


def _laid_out(d: _Draw, rank: int, data: Expr, kernel_layout: str) -> tuple[Expr, dict[str, str], bool]:
    """Now and then with the channels last."""
    plain = f"NC{LETTERS[rank]}"
    if d.size(0, 4):
        return data, {"data_layout": plain, "kernel_layout": kernel_layout}, False
    moved = relay.transpose(data, axes=(0, *range(2, rank + 2), 1))
    return moved, {"data_layout": f"N{LETTERS[rank]}C", "kernel_layout": kernel_layout}, True


def _convolution(d: _Draw) -> Expr:
    rank = d.pick(1, 2, 2, 2, 3)
    of_data, units, groups = _channels(d)
    image, is_constant = _image(d, rank, of_data), bool(d.size(0, 1))
    win, data = _window(d, image[2:]), d.argument(image)
    outer = (units, of_data // groups)
    if groups == of_data > 1 and units % groups == 0 and d.size(0, 2) == 0:
        outer = (groups, units // groups)  # (channels, multiplier)
    weight = d.argument((*outer, *win["kernel"]), is_constant=is_constant)
    data, layouts, is_last = _laid_out(d, rank, data, f"OI{LETTERS[rank]}")
    made = getattr(relay.nn, f"conv{rank}d")(
        data, weight, strides=win["strides"], padding=win["padding"], dilation=win["dilation"], groups=groups, **layouts
    )
    return relay.transpose(made, axes=(0, rank + 1, *range(1, rank + 1))) if is_last else made


def _transposed(d: _Draw) -> Expr:
    rank = d.pick(1, 2, 2, 3)
    of_data, units, groups = _channels(d)
    image, is_constant = _image(d, rank, of_data), bool(d.size(0, 1))
    win, data = _window(d, image[2:]), d.argument(image)
    weight = d.argument((of_data, units // groups, *win["kernel"]), is_constant=is_constant)
    extra = tuple(d.size(0, stride - 1) for stride in win["strides"])
    made: Expr = getattr(relay.nn, f"conv{rank}d_transpose")(
        data,
        weight,
        strides=win["strides"],
        padding=win["padding"],
        dilation=win["dilation"],
        groups=groups,
        output_padding=extra,
    )
    return made


def _pooling(d: _Draw) -> Expr:
    rank, kind = d.pick(1, 2, 2, 3), d.pick("max", "avg")
    image = _image(d, rank, d.pick(1, 3, 8, 16, 17))
    win, data = _window(d, image[2:]), d.argument(image)
    more = {"count_include_pad": bool(d.size(0, 1))} if kind == "avg" else {}
    made: Expr = getattr(relay.nn, f"{kind}_pool{rank}d")(
        data,
        pool_size=win["kernel"],
        strides=win["strides"],
        padding=win["padding"],
        dilation=win["dilation"],
        ceil_mode=bool(d.size(0, 1)),
        **more,
    )
    return made


def _surrounded(d: _Draw, body: Expr) -> Expr:
    """What a build folds into the operator: constants per channel, an activation, a second convolution, a slice."""
    shape = body.checked_type.static
    if d.size(0, 2) == 0:
        body = relay.add(body, d.argument((shape[1], *(1,) * (len(shape) - 2)), is_constant=bool(d.size(0, 1))))
        body = relay.nn.relu(body) if d.size(0, 1) else body
    if d.size(0, 5) == 0:
        body = relay.strided_slice(body, begin=(0,), end=(max(1, shape[2] - 1),), strides=(1,), axes=(2,))
    if len(shape) == 4 and d.size(0, 5) == 0:
        weight = d.argument((d.pick(1, 8, 16), shape[1], *d.sizes(2, 1, 3)), is_constant=True)
        body = relay.nn.conv2d(body, weight, padding=d.sizes(4, 0, 3), strides=d.sizes(2, 1, 2))
    return body
