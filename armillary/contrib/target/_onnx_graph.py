"""An ONNX graph while it is written: nodes, constants, names; and what opsets spell in two ways.

In: kinds of nodes with names of values. Out: lists for an onnx.GraphProto. Invariant: names are unique; a method gives
the same values in every opset.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from armillary.base.aliases import Array
from armillary.errors import UnsupportedError

_AXES_ARE_INPUTS = 13  # of Squeeze, Unsqueeze, ReduceSum and Split from this opset on
_SOFTMAX_OF_ONE_AXIS = 13
_INTEGER_LIMITS = 12  # Min, Max and Clip of integers

Attribute = int | float | str | Sequence[int] | Sequence[float]


def element_type(dtype: str) -> int:
    """The number that ONNX has for a dtype."""
    if dtype == "bfloat16":
        return int(TensorProto.BFLOAT16)
    try:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    except (TypeError, KeyError, ValueError):
        raise UnsupportedError(f"to_onnx: the dtype {dtype} has no ONNX form") from None


class Graph:
    """Nodes and constants in order."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._taken: set[str] = set()

    def reserve(self, name: str) -> None:
        """Keep a name for an input."""
        self._taken.add(name)

    def _name(self, kind: str) -> str:
        number = len(self._taken)
        while f"{kind}_{number}" in self._taken:
            number += 1
        self._taken.add(f"{kind}_{number}")
        return f"{kind}_{number}"

    def initializer(self, name: str, array: Array) -> None:
        """A value that is known, by this name."""
        self.reserve(name)
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))

    def constant(self, value: object, dtype: str | None = None) -> str:
        """A value that is known; integers are int64 unless said otherwise."""
        array = np.asarray(value, dtype)
        name = self._name("constant")
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, values: Sequence[int]) -> str:
        """A vector of int64."""
        return self.constant(list(values), "int64")

    def nodes_of(self, kind: str, inputs: Sequence[str], count: int, **attrs: Attribute) -> list[str]:
        """A node with several results."""
        names = [self._name(kind) for _ in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, None, None, None, None, **attrs))
        return names

    def node(self, kind: str, inputs: Sequence[str], **attrs: Attribute) -> str:
        """A node with one result."""
        return self.nodes_of(kind, inputs, 1, **attrs)[0]

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """In row-major order; 0 keeps a dimension, -1 is what is left."""
        return self.node("Reshape", [value, self.ints(shape)])

    def transpose(self, value: str, axes: Sequence[int]) -> str:
        """Axes in another order; none where they are in order."""
        return value if list(axes) == sorted(axes) else self.node("Transpose", [value], perm=list(axes))

    def cast(self, value: str, dtype: str) -> str:
        """In another dtype."""
        return self.node("Cast", [value], to=element_type(dtype))

    def squeeze(self, value: str, axes: Sequence[int]) -> str:
        """Without axes of size 1."""
        return self._with_axes("Squeeze", value, axes)

    def unsqueeze(self, value: str, axes: Sequence[int]) -> str:
        """With axes of size 1, at these places of the result."""
        return self._with_axes("Unsqueeze", value, axes)

    def reduce(self, kind: str, value: str, axes: Sequence[int], keeps: bool) -> str:
        """ReduceSum, ReduceMax…"""
        if not axes:
            return self.node("Identity", [value])
        return self._with_axes(kind, value, axes, keepdims=int(keeps))

    def _with_axes(self, kind: str, value: str, axes: Sequence[int], **attrs: int) -> str:
        if not axes:
            return value
        is_input = self.opset >= _AXES_ARE_INPUTS and kind in ("Squeeze", "Unsqueeze", "ReduceSum")
        if is_input:
            return self.node(kind, [value, self.ints(axes)], **attrs)
        return self.node(kind, [value], axes=list(axes), **attrs)

    def split(self, value: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Parts of these sizes."""
        if self.opset >= _AXES_ARE_INPUTS:
            return self.nodes_of("Split", [value, self.ints(sizes)], len(sizes), axis=axis)
        return self.nodes_of("Split", [value], len(sizes), axis=axis, split=list(sizes))

    def softmax(self, kind: str, value: str, axis: int, rank: int) -> str:
        """Softmax or LogSoftmax of one axis."""
        if self.opset >= _SOFTMAX_OF_ONE_AXIS or axis == rank - 1:
            return self.node(kind, [value], axis=axis)
        order = [k for k in range(rank) if k != axis] + [axis]  # before, all axes from `axis` on were one
        turned = self.node(kind, [self.transpose(value, order)], axis=rank - 1)
        return self.transpose(turned, [order.index(k) for k in range(rank)])

    def limited(self, value: str, low: object, high: object, dtype: str) -> str:
        """Between two numbers."""
        if np.dtype(dtype).kind in "iu" and self.opset < _INTEGER_LIMITS:
            message = f"to_onnx: opset {self.opset} limits no integers"
            raise UnsupportedError(message, hint=f"opset_version={_INTEGER_LIMITS}")
        return self.node("Clip", [value, self.constant(low, dtype), self.constant(high, dtype)])
