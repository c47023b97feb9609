"""What a function computes, as a Relay expression over its tensors: the same for every pipeline.

In: tensors by name, which of them are weights, and what builds the expression. Out: `Body`: the module to compile, the
weights' values, and the expression over other ones (`applied`), by which a graph becomes one Relay function. Invariant:
a tensor takes part in the shape that `shapes` says, numpy's order, whatever its own; of an image in NHWC (`shapes` has
an `ImageShape` for it) the expression sees a transposition; float16 is computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from armillary import relay
from armillary.base.aliases import Array
from armillary.compute.core.layout import DataLayout
from armillary.compute.runtime.tensor import Tensor, shape_of
from armillary.ir import IRModule
from armillary.relay.expr import Function
from armillary.relay.walk import substitute

Node = Any  # Any: an expression of Relay, as its constructors return them
Build = Callable[..., Node]


class ImageShape(tuple[int, ...]):
    """A shape (batch, channels, height, width) of an image or of kernels, whatever their tensor's layout."""


class Body:
    """A Relay function over tensors."""

    def __init__(
        self,
        inputs: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        output: Tensor,
        build: Build,
        shapes: Mapping[str, tuple[int, ...]] | None,
    ) -> None:
        self.inputs, self.weights, self.output = dict(inputs), dict(weights), output
        shapes, named = shapes or {}, {**self.inputs, **self.weights}
        is_last = {name: _is_nhwc(t) and isinstance(shapes.get(name), ImageShape) for name, t in named.items()}
        self.shapes = {
            name: _stored(shapes.get(name) or shape_of(t.info()), is_last[name]) for name, t in named.items()
        }
        self.kinds = {name: t.info().data_type.dtype for name, t in named.items()}
        in_nchw = _in_nchw(build, tuple(is_last.values()), _is_nhwc(output) and any(is_last.values()))
        self._build = _in_float32(in_nchw, tuple(self.kinds.values()), output.info().data_type.dtype)

    def _variables(self) -> list[Node]:
        return [relay.var(name, shape=shape, dtype=self.kinds[name]) for name, shape in self.shapes.items()]

    def module(self) -> IRModule:
        """The function alone."""
        variables = self._variables()
        return IRModule.from_expr(Function(tuple(variables), self._build(*variables)))

    def applied(self, values: Sequence[Node]) -> Node:
        """The expression over others: inputs, then weights, of the tensors' shapes; in the output's shape."""
        named = zip(values, self.shapes.items(), strict=True)
        tensors = {**self.inputs, **self.weights}
        operands = [_reshaped(v, shape_of(tensors[name].info()), shape) for v, (name, shape) in named]
        variables = self._variables()
        body = substitute(self._build(*variables), {id(v): g for v, g in zip(variables, operands, strict=True)})
        return relay.reshape(body, newshape=shape_of(self.output.info()))

    def values_of(self, name: str) -> Array:
        """A copy of a weight's values as they are now."""
        return np.array(self.weights[name].array(), order="C").reshape(self.shapes[name])

    def has_constant_weights(self) -> bool:
        """Whether every weight is there and stays as it is."""
        return all(t.is_constant() and t.is_allocated() for t in self.weights.values())


def _is_nhwc(tensor: Tensor) -> bool:
    return tensor.info().data_layout() is DataLayout.NHWC


def _stored(shape: tuple[int, ...], channels_are_last: bool) -> tuple[int, ...]:
    """A shape of NCHW as it lies in memory."""
    return (shape[0], *shape[2:], shape[1]) if channels_are_last else tuple(shape)


def _in_nchw(build: Build, is_last: Sequence[bool], output_is_last: bool) -> Build:
    """What takes images whose channels are last (`is_last`, by parameter), and gives one, by an expression of NCHW."""
    if not any(is_last):
        return build

    def turned(*values: Node) -> Node:
        pairs = zip(values, is_last, strict=True)
        result = build(*(relay.transpose(v, axes=(0, 3, 1, 2)) if last else v for v, last in pairs))
        return relay.transpose(result, axes=(0, 2, 3, 1)) if output_is_last else result

    return turned


def _in_float32(build: Build, kinds: Sequence[str], output: str) -> Build:
    """What computes on float16 in float32 and rounds its result once; other types as they are."""
    if "float16" not in (*kinds, output):
        return build

    def wide(*values: Node) -> Node:
        pairs = zip(values, kinds, strict=True)
        result = build(*(relay.cast(v, "float32") if kind == "float16" else v for v, kind in pairs))
        return relay.cast(result, "float16") if output == "float16" else result

    return wide


def _reshaped(value: Node, have: tuple[int, ...], want: tuple[int, ...]) -> Node:
    return value if have == want else relay.reshape(value, newshape=want)
