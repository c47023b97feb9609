"""What a function computes, as a Relay expression over its tensors: the same for every pipeline.

In: tensors by name, which of them are weights, and what builds the expression. Out: `Body`: the module to compile, the
weights' values, and the expression over other ones (`applied`), by which a graph becomes one Relay function. Invariant:
a tensor takes part in the shape that `shapes` says, numpy's order, whatever its own; float16 is computed in
float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from armillary import relay
from armillary.base.aliases import Array
from armillary.compute.runtime.tensor import Tensor, shape_of
from armillary.ir import IRModule
from armillary.relay.expr import Function
from armillary.relay.walk import substitute

Node = Any  # Any: an expression of Relay, as its constructors return them
Build = Callable[..., Node]


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
        shapes = shapes or {}
        named = {**self.inputs, **self.weights}
        self.shapes = {name: tuple(shapes.get(name) or shape_of(t.info())) for name, t in named.items()}
        self.kinds = {name: t.info().data_type.dtype for name, t in named.items()}
        self._build = _in_float32(build, tuple(self.kinds.values()), output.info().data_type.dtype)

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
        given = [_reshaped(v, shape_of(tensors[name].info()), shape) for v, (name, shape) in named]
        variables = self._variables()
        body = substitute(self._build(*variables), {id(v): g for v, g in zip(variables, given, strict=True)})
        return relay.reshape(body, newshape=shape_of(self.output.info()))

    def values_of(self, name: str) -> Array:
        """A copy of a weight's values as they are now."""
        return np.array(self.weights[name].array(), order="C").reshape(self.shapes[name])

    def has_constant_weights(self) -> bool:
        """Whether every weight is there and stays as it is."""
        return all(t.is_constant() and t.is_allocated() for t in self.weights.values())


def _in_float32(build: Build, kinds: Sequence[str], output: str) -> Build:
    """What computes on float16 in float32 and rounds its result once; other types as they are."""
    if "float16" not in (*kinds, output):
        return build

    def wide(*values: Node) -> Node:
        pairs = zip(values, kinds, strict=True)
        made = build(*(relay.cast(v, "float32") if kind == "float16" else v for v, kind in pairs))
        return relay.cast(made, "float16") if output == "float16" else made

    return wide


def _reshaped(value: Node, have: tuple[int, ...], want: tuple[int, ...]) -> Node:
    return value if have == want else relay.reshape(value, newshape=want)
