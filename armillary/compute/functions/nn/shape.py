"""Functions that move elements: concatenation, reshape, permutation, and sums of two tensors.

In: tensors of one type. Out: the same elements elsewhere. Invariant: dimensions are the library's, by number whatever
the layout: 0 is the innermost one, along a row (in NHWC: the channels of a pixel).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from armillary import relay
from armillary.compute.core.kernel import Status
from armillary.compute.core.tensor_info import DataType, TensorInfo
from armillary.compute.core.types import PermutationVector
from armillary.compute.functions.nn import base
from armillary.compute.functions.nn.body import Node
from armillary.compute.runtime.tensor import Tensor


class NEConcatenateLayer(base.NeuralFunction):
    """Tensors one after another along a dimension."""

    @classmethod
    def validate(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int) -> Status:
        """Whether tensors of this information can be configured."""
        if len(inputs) < 2:
            return Status(f"{cls.__name__}: {len(inputs)} inputs, wanted at least 2")
        first = inputs[0]
        others = [_without(info, axis) for info in inputs]
        return base.status_of(
            cls.__name__,
            "" if 0 <= axis < 4 else f"axis {axis}, wanted 0 to 3",
            *(base.wrong_type(f"input {k}", info, (first.data_type,)) for k, info in enumerate(inputs)),
            *(f"input {k} is {i!r}, the first is {first!r}" for k, i in enumerate(inputs) if others[k] != others[0]),
            *(base.wrong_quantization(f"input {k}", info, first) for k, info in enumerate(inputs)),
            base.wrong_quantization("the output", output, first),
            base.wrong_shape("the output", output, _joined(inputs, axis)),
            base.wrong_type("the output", output, (first.data_type,)) if output is not None else "",
        )

    def configure(self, inputs: Sequence[Tensor], output: Tensor, axis: int) -> None:
        """Set the tensors and the dimension."""
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


class _Along(NEConcatenateLayer):
    _axis: ClassVar[int]

    @classmethod
    def validate(cls, inputs: Sequence[TensorInfo], output: TensorInfo | None, axis: int | None = None) -> Status:
        """Whether tensors of this information can be configured."""
        return super().validate(inputs, output, cls._axis if axis is None else axis)

    def configure(self, inputs: Sequence[Tensor], output: Tensor, axis: int | None = None) -> None:
        """Set the tensors."""
        super().configure(inputs, output, self._axis if axis is None else axis)


class NEWidthConcatenateLayer(_Along):
    """Images side by side."""

    _axis = 0


class NEHeightConcatenateLayer(_Along):
    """Images one below another."""

    _axis = 1


class NEDepthConcatenateLayer(_Along):
    """The channels of one image after those of another."""

    _axis = 2


class NEReshapeLayer(base.NeuralFunction):
    """The same elements in the same order, in the output's shape."""

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo) -> Status:
        """Whether tensors of this information can be configured."""
        counts = [int(np.prod(info.shape)) for info in (input, output)]
        return base.status_of(
            cls.__name__,
            base.wrong_type("the output", output, (input.data_type,)),
            f"{counts[0]} elements do not become {counts[1]}" if counts[0] != counts[1] else "",
        )

    def configure(self, input: Tensor, output: Tensor) -> None:
        """Set the tensors; the output's information has the shape."""
        shape = tuple(reversed(output.info().shape))

        def body(x: Node) -> Node:
            return relay.reshape(x, newshape=shape)

        self._compile({"x": input}, {}, output, body)


class NEFlattenLayer(base.NeuralFunction):
    """Each image of a batch as one row."""

    _reshape_type: ClassVar[type[NEReshapeLayer]] = NEReshapeLayer

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None) -> Status:
        """Whether tensors of this information can be configured."""
        row = int(np.prod(input.shape[:3]))
        return base.status_of(
            cls.__name__,
            base.wrong_shape("the output", output, (row, *input.shape[3:])),
            base.wrong_type("the output", output, (input.data_type,)) if output is not None else "",
        )

    def configure(self, input: Tensor, output: Tensor) -> None:
        """Set the tensors."""
        row = int(np.prod(input.info().shape[:3]))
        base.init_output(output, (row, *input.info().shape[3:]), input.info().data_type)
        inner = self._inner = self._reshape_type(self._memory_manager)
        inner.configure(input, output)
        self._pipeline = inner._pipeline


class NEPermute(base.NeuralFunction):
    """Dimension n of the output is dimension `perm[n]` of the input."""

    @classmethod
    def validate(cls, input: TensorInfo, output: TensorInfo | None, perm: PermutationVector) -> Status:
        """Whether tensors of this information can be configured."""
        rank = max(input.num_dimensions(), len(perm))
        return base.status_of(
            cls.__name__,
            "" if len(perm) <= 4 else f"a permutation of {len(perm)} dimensions, wanted at most 4",
            base.wrong_shape("the output", output, _permuted(input, perm, rank)),
            base.wrong_type("the output", output, (input.data_type,)) if output is not None else "",
        )

    def configure(self, input: Tensor, output: Tensor, perm: PermutationVector) -> None:
        """Set the tensors and the order."""
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


class _Arithmetic(base.NeuralFunction):
    """Two tensors of one shape and type, element by element."""

    _name: ClassVar[str]

    @classmethod
    def validate(cls, input1: TensorInfo, input2: TensorInfo, output: TensorInfo | None) -> Status:
        """Whether tensors of this information can be configured."""
        return base.status_of(
            cls.__name__,
            base.wrong_type("input 1", input1, (DataType.F32, DataType.S32)),
            base.wrong_type("input 2", input2, (input1.data_type,)),
            base.wrong_shape("input 2", input2, input1.shape),
            base.wrong_shape("the output", output, input1.shape),
            base.wrong_type("the output", output, (input1.data_type,)) if output is not None else "",
        )

    def configure(self, input1: Tensor, input2: Tensor, output: Tensor) -> None:
        """Set the tensors."""
        base.init_like(output, input1.info())
        rule: Callable[[Node, Node], Node] = getattr(relay, self._name)
        operands = {"a": input1, "b": input2}
        self._compile(operands, {}, output, rule)


class NEElementwiseMax(_Arithmetic):
    """The larger of two."""

    _name = "maximum"


class NEElementwiseMin(_Arithmetic):
    """The smaller of two."""

    _name = "minimum"


class NEElementwiseAddition(_Arithmetic):
    """a + b."""

    _name = "add"
