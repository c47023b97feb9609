"""Functions that move elements: concatenation, reshape, permutation, and sums of two tensors.

In: tensors of one type. Out: the same elements elsewhere. Invariant: dimensions are the library's, by number whatever
the layout: 0 is the innermost one, along a row (in NHWC: the channels of a pixel).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from armillary import relay
from armillary.compute.core.tensor_info import TensorInfo
from armillary.compute.core.types import PermutationVector
from armillary.compute.functions.arguments import wrong_shape, wrong_type
from armillary.compute.functions.nn import base
from armillary.compute.functions.nn.body import Node
from armillary.compute.runtime.tensor import Tensor


class ConcatenateLayer(base.NeuralFunction):
    """Tensors one after another along a dimension."""

    @classmethod
    def _wrong(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int) -> Iterator[str]:
        if len(inputs) < 2:
            yield f"{len(inputs)} inputs, wanted at least 2"
        first = inputs[0]
        for k, info in enumerate(inputs):
            yield wrong_type(f"input {k}", info, [first.data_type])
            if _without(info, axis) != _without(first, axis):
                yield f"input {k} is {info!r}, the first is {first!r}"
            yield base.wrong_quantization(f"input {k}", info, first)
        yield base.wrong_quantization("the output", output, first)
        yield wrong_shape("the output", output, _joined(inputs, axis))
        if output is not None:
            yield wrong_type("the output", output, [first.data_type])

    def _bind(self, inputs: Sequence[Tensor], output: Tensor, axis: int) -> None:
        infos = [t.info() for t in inputs]
        first = infos[0]
        base.init_output(output, _joined(infos, axis), first.data_type, first.quantization_info(), first.data_layout())
        rank = max(axis + 1, *(info.num_dimensions() for info in infos))
        shapes = {f"x{k}": tuple(info.dimension(n) for n in reversed(range(rank))) for k, info in enumerate(infos)}

        def body(*values: Node) -> Node:
            return relay.concatenate(list(values), axis=rank - 1 - axis)

        operands = {f"x{k}": t for k, t in enumerate(inputs)}
        self._compile(operands, {}, output, body, shapes)


def _without(info: TensorInfo, axis: int) -> tuple[int, ...]:
    return tuple(info.dimension(n) for n in range(6) if n != axis)


def _joined(infos: Sequence[TensorInfo], axis: int) -> tuple[int, ...]:
    rank = max(axis + 1, *(info.num_dimensions() for info in infos))
    return tuple(sum(i.dimension(n) for i in infos) if n == axis else infos[0].dimension(n) for n in range(rank))


class Along(ConcatenateLayer):
    """Along the dimension that its setting says, or another one."""

    @classmethod
    def _wrong(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int | None) -> Iterator[str]:
        yield from super()._wrong(inputs, output, int(cls.setting) if axis is None else axis)

    def _bind(self, inputs: Sequence[Tensor], output: Tensor, axis: int | None) -> None:
        super()._bind(inputs, output, int(self.setting) if axis is None else axis)


class ReshapeLayer(base.NeuralFunction):
    """The same elements in the same order, in the output's shape."""

    @classmethod
    def _wrong(cls, input: TensorInfo, output: TensorInfo) -> Iterator[str]:
        have, wanted = (int(np.prod(info.shape)) for info in (input, output))
        if have != wanted:
            yield f"{have} elements do not become {wanted}"

    def _bind(self, input: Tensor, output: Tensor) -> None:
        shape = tuple(reversed(output.info().shape))

        def body(x: Node) -> Node:
            return relay.reshape(x, newshape=shape)

        self._compile({"x": input}, {}, output, body)


class FlattenLayer(ReshapeLayer):
    """Each image of a batch as one row."""

    @classmethod
    def _wrong(cls, input: TensorInfo, output: TensorInfo | None) -> Iterator[str]:
        row = int(np.prod(input.shape[:3]))
        yield wrong_shape("the output", output, (row, *input.shape[3:]))

    def _bind(self, input: Tensor, output: Tensor) -> None:
        row = int(np.prod(input.info().shape[:3]))
        base.init_output(output, (row, *input.info().shape[3:]), input.info().data_type)
        super()._bind(input, output)


class Permute(base.NeuralFunction):
    """Dimension n of the output is dimension `perm[n]` of the input."""

    @classmethod
    def _wrong(cls, input: TensorInfo, output: TensorInfo | None, perm: PermutationVector) -> Iterator[str]:
        if len(perm) > 4:
            yield f"a permutation of {len(perm)} dimensions, wanted at most 4"
        yield wrong_shape("the output", output, _permuted(input, perm, max(input.num_dimensions(), len(perm))))

    def _bind(self, input: Tensor, output: Tensor, perm: PermutationVector) -> None:
        rank = max(input.info().num_dimensions(), len(perm))
        shape = _permuted(input.info(), perm, rank)
        base.init_output(output, shape, input.info().data_type, input.info().quantization_info())
        order = [*perm, *range(len(perm), rank)]
        axes = tuple(rank - 1 - order[rank - 1 - at] for at in range(rank))

        def body(x: Node) -> Node:
            return relay.transpose(x, axes=axes)

        shapes = {"x": tuple(input.info().dimension(n) for n in reversed(range(rank)))}
        self._compile({"x": input}, {}, output, body, shapes)


def _permuted(info: TensorInfo, perm: PermutationVector, rank: int) -> tuple[int, ...]:
    return tuple(info.dimension(n) for n in (*perm, *range(len(perm), rank)))


class Elementwise(base.NeuralFunction):
    """Two tensors of one shape and type, element by element; its setting is the operator."""

    def _bind(self, input1: Tensor, input2: Tensor, output: Tensor) -> None:
        base.init_like(output, input1.info())
        rule: Callable[[Node, Node], Node] = getattr(relay, self.setting)
        self._compile({"a": input1, "b": input2}, {}, output, rule)
