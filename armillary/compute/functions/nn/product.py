"""Products of matrices: GEMM, fully connected layers, and products of bytes in 32 bits.

In: matrices (columns, rows). Out: alpha * a * b + beta * c. Invariant: the right-hand side of a GEMM is packed at the
first run only, unless `GEMMInfo` says that it changes. Kernels: the compiler's, on register tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary import relay
from armillary.compute.core.layout import DataLayout
from armillary.compute.core.tensor_info import DataType, TensorInfo
from armillary.compute.core.types import ActivationLayerInfo, FullyConnectedLayerInfo, GEMMInfo
from armillary.compute.functions.arguments import wrong_shape, wrong_type
from armillary.compute.functions.nn import base
from armillary.compute.functions.nn.body import Body, Node
from armillary.compute.functions.nn.compiled import Pipeline
from armillary.compute.functions.nn.convolution import CLAMPS, clamp_of
from armillary.compute.functions.nn.requantize import requantized, scale_ratio
from armillary.compute.functions.nn.staged import objection_to_stages, staged_product
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import TypeMismatch


def _product(a: TensorInfo, b: TensorInfo, output: TensorInfo | None, what: str) -> Iterator[str]:
    if max(a.num_dimensions(), b.num_dimensions()) > 2:
        yield "matrices have at most 2 dimensions"
    if a.dimension(0) != b.dimension(1):
        yield f"a has {a.dimension(0)} columns, b has {b.dimension(1)} rows"
    yield wrong_shape(what, output, (b.dimension(0), a.dimension(1)))


class GEMM(base.NeuralFunction):
    """d = alpha * a * b + beta * c."""

    @classmethod
    def _wrong(cls, a: TensorInfo, b: TensorInfo, c: TensorInfo | None, d: TensorInfo | None) -> Iterator[str]:
        yield from _product(a, b, d, "d")
        yield wrong_shape("c", c, (b.dimension(0), a.dimension(1)))

    def _bind(
        self, a: Tensor, b: Tensor, c: Tensor | None, d: Tensor, alpha: float, beta: float, gemm_info: GEMMInfo | None
    ) -> None:
        base.init_output(d, (b.info().dimension(0), a.info().dimension(1)), a.info().data_type)
        info = gemm_info or GEMMInfo()

        def body(x: Node, *others: Node) -> Node:
            named = dict(zip(names, others, strict=True))
            value: Node = relay.nn.matmul(x, named["b"])
            if alpha != 1.0:
                value = value * relay.const(alpha, "float32")
            if "c" in named:
                value = value + named["c"] * relay.const(beta, "float32")
            return base.activated(value, info.activation_info)

        inputs: dict[str, Tensor] = {"a": a}
        weights: dict[str, Tensor] = {}
        (weights if info.reshape_b_only_on_first_run else inputs)["b"] = b
        if c is not None and beta != 0.0:
            inputs["c"] = c
        names = [name for name in (*inputs, *weights) if name != "a"]
        shapes = {"a": _matrix(a.info()), "b": _matrix(b.info()), "c": _matrix(c.info()) if c is not None else (1, 1)}
        if self._stages:
            wrong = "" if self._pipeline_type is Pipeline else "it has no stages"
            wrong = wrong or objection_to_stages(a.info(), 1, info.activation_info)
            if wrong:
                raise TypeMismatch(f"{type(self).__name__}: {wrong}")
            staged = Body(inputs, weights, d, body, shapes)
            self._pipeline = staged_product(staged, (alpha, beta), info.activation_info, self._memory_manager)
            return
        self._compile(inputs, weights, d, body, shapes)


def _matrix(info: TensorInfo) -> tuple[int, int]:
    return info.dimension(1), info.dimension(0)


class GEMMLowpMatrixMultiplyCore(base.NeuralFunction):
    """Products of bytes less their offsets, in 32 bits; plus `c`, and requantised where the output is of bytes."""

    @classmethod
    def _wrong(cls, a: TensorInfo, b: TensorInfo, c: TensorInfo | None, output: TensorInfo | None) -> Iterator[str]:
        yield from _product(a, b, output, "the output")
        yield wrong_shape("c", c, (b.dimension(0),))
        yield base.wrong_scales(output, a, b)

    def _bind(self, a: Tensor, b: Tensor, c: Tensor | None, output: Tensor) -> None:
        base.init_output(output, (b.info().dimension(0), a.info().dimension(1)), DataType.S32)

        def body(x: Node, y: Node, bias: Node | None = None) -> Node:
            return _sums(x, relay.transpose(y, axes=(1, 0)), bias, a.info(), b.info(), output.info(), None)

        weights = {"b": b} | ({"c": c} if c is not None else {})
        shapes = {"a": _matrix(a.info()), "b": _matrix(b.info())}
        self._compile({"a": a}, weights, output, body, shapes)


def _sums(
    x: Node,
    w: Node,
    bias: Node | None,
    a: TensorInfo,
    b: TensorInfo,
    output: TensorInfo,
    act_info: ActivationLayerInfo | None,
) -> Node:
    """x * w^T of bytes."""
    qa, qb = a.quantization_info(), b.quantization_info()
    zeros = [relay.const(q.offset, "int32") for q in (qa, qb)]
    scales = [relay.const(q.scale, "float32") for q in (qa, qb)]
    value = relay.qnn.dense(x, w, zeros[0], zeros[1], scales[0], scales[1])
    if bias is not None:
        value = relay.nn.bias_add(value, bias)
    if output.data_type is DataType.S32:
        return value
    low, high = clamp_of(act_info, output)
    ratio = scale_ratio(qa.scale, qb.scale, output.quantization_info().scale)
    return requantized(value, [ratio], output.quantization_info(), output.data_type, low, high)


class FullyConnectedLayer(base.NeuralFunction):
    """Every output from every input of a batch: weights (inputs, outputs)."""

    @classmethod
    def _wrong(
        cls,
        input: TensorInfo,
        weights: TensorInfo,
        biases: TensorInfo | None,
        output: TensorInfo | None,
        fc_info: FullyConnectedLayerInfo | None,
    ) -> Iterator[str]:
        info = fc_info or FullyConnectedLayerInfo()
        batch, terms, outputs = _connected(input, weights, info)
        rows = weights.dimension(0 if info.transpose_weights else 1)
        if terms != rows:
            yield f"the input has {terms} values, weights are for {rows}"
        yield wrong_shape("biases", biases, (outputs,))
        if biases is not None:
            yield wrong_type("biases", biases, [DataType.S32 if input.data_type.is_quantized else input.data_type])
        yield wrong_shape("the output", output, (outputs, batch))
        yield base.wrong_scales(output, input, weights)
        if input.data_type.is_quantized and info.activation_info.activation not in CLAMPS:
            yield "of bytes, an activation that clamps, or none"

    def _bind(
        self,
        input: Tensor,
        weights: Tensor,
        biases: Tensor | None,
        output: Tensor,
        fc_info: FullyConnectedLayerInfo | None,
    ) -> None:
        info = fc_info or FullyConnectedLayerInfo()
        batch, terms, outputs = _connected(input.info(), weights.info(), info)
        kind = input.info().data_type
        base.init_output(output, (outputs, batch), kind, input.info().quantization_info())

        # Values of an image in the order that the weights were trained for.
        trained, image = info.weights_trained_layout, input.info()
        is_other = image.num_dimensions() > 2 and trained is not image.data_layout()

        def body(x: Node, w: Node, b: Node | None = None) -> Node:
            if is_other:
                x = x if trained is DataLayout.NCHW else relay.transpose(x, axes=(0, 2, 3, 1))
                x = relay.reshape(x, newshape=(batch, terms))
            rows = w if info.transpose_weights else relay.transpose(w, axes=(1, 0))
            if kind.is_quantized:
                return _sums(x, rows, b, input.info(), weights.info(), output.info(), info.activation_info)
            value = relay.nn.dense(x, rows)
            return base.activated(value if b is None else relay.nn.bias_add(value, b), info.activation_info)

        operands = {"w": weights} | ({"b": biases} if biases is not None else {})
        shapes = {"x": base.nchw(image) if is_other else (batch, terms), "w": _matrix(weights.info())}
        self._compile({"x": input}, operands, output, body, shapes)


def _connected(input: TensorInfo, weights: TensorInfo, info: FullyConnectedLayerInfo) -> tuple[int, int, int]:
    """Batch, inputs and outputs; an image's values count as one row, unless a row alone has as many as weights take."""
    outputs = weights.dimension(1 if info.transpose_weights else 0)
    wanted = weights.dimension(0 if info.transpose_weights else 1)
    total = int(np.prod(input.shape))
    if input.num_dimensions() <= 2 and input.dimension(0) == wanted:
        return input.dimension(1), input.dimension(0), outputs
    batch = input.dimension(3) if input.num_dimensions() > 2 else 1
    return batch, total // batch, outputs
