"""What neural-network functions refuse, in the same words from `validate` and `configure`; managed memory."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest

from armillary import compute
from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    Allocator,
    BlobLifetimeManager,
    DataType,
    MemoryManagerOnDemand,
    NormalizationLayerInfo,
    PadStrideInfo,
    PermutationVector,
    PoolingLayerInfo,
    PoolingType,
    PoolManager,
    Size2D,
    Tensor,
    WeightsInfo,
)
from armillary.errors import ExecutionError, TypeMismatch
from tests.compute.nn_oracles import convolved, pooled, tensor

Q8, S32, F32 = DataType.QASYMM8, DataType.S32, DataType.F32
ONE, PAD1 = PadStrideInfo(1, 1, 0, 0), PadStrideInfo(1, 1, 1, 1)
TANH = ActivationLayerInfo(ActivationFunction.TANH, 1.0, 1.0)


def _t(*shape: int, kind: DataType = F32, scale: float = 1.0, offset: int = 0) -> Tensor:
    return tensor(shape=shape, kind=kind, scale=scale, offset=offset)


X, W, B, Y = _t(1, 8, 9, 9), _t(24, 8, 3, 3), _t(24), _t(1, 24, 7, 7)
REFUSED: list[tuple[str, tuple[Any, ...], str]] = [
    ("NEConvolutionLayer", (X, _t(24, 7, 3, 3), B, Y, ONE), "weights are for 7 channels, wanted 8"),
    ("NEConvolutionLayer", (X, W, _t(23), Y, ONE), "biases is 23, wanted 24"),
    ("NEConvolutionLayer", (X, W, B, Y, PAD1), "the output is 7x7x24, wanted 9x9x24"),
    ("NEConvolutionLayer", (X, _t(24, 8, 12, 3), B, Y, ONE), "a 3x12 kernel does not fit"),
    ("NEConvolutionLayer", (_t(1, 8, 9, 9, kind=S32), W, B, Y, ONE), "the input is S32, wanted F32 or F16 or QASYMM8"),
    ("NEConvolutionLayer", (_t(2, 1, 8, 9, 9), W, B, None, ONE), "the input has 5 dimensions, wanted at most 4"),
    ("NEConvolutionLayer", (X, W, B, Y, ONE, WeightsInfo(True)), "reshaped weights are not taken"),
    ("NEConvolutionLayer", (X, W, B, None, ONE, None, Size2D(), None, False, 5), "are for 40 channels, wanted 8"),
    ("NEConvolutionLayer", (X, W, B, None, ONE, None, Size2D(0, 1)), "a dilation of 0x1, wanted at least 1x1"),
    ("NEConvolutionLayer", (X, W, B, None, ONE, None, None, None, False, 0), "num_groups is 0, wanted at least 1"),
    (
        "NEGEMMConvolutionLayer",
        (_t(1, 8, 9, 9, kind=Q8), _t(24, 8, 3, 3, kind=Q8), None, None, ONE, None, None, TANH),
        "a quantised convolution takes activations that clamp",
    ),
    (
        "NEGEMMConvolutionLayer",
        (_t(1, 8, 9, 9, kind=Q8, scale=0.0), _t(24, 8, 3, 3, kind=Q8), None, None, ONE),
        "scales are",
    ),
    (
        "NEGEMMConvolutionLayer",
        (_t(1, 8, 9, 9, kind=Q8), _t(24, 8, 3, 3, kind=Q8, scale=1e-12), None, None, ONE),
        "a ratio of scales is 1e-12",
    ),
    (
        "NEGEMMConvolutionLayer",
        (_t(1, 8, 9, 9, kind=Q8), _t(24, 8, 3, 3, kind=Q8), B, None, ONE),
        "biases is F32, wanted S32",
    ),
    ("NEDirectConvolutionLayer", (_t(1, 8, 9, 9, kind=Q8), W, B, None, ONE), "the input is QASYMM8, wanted F32"),
    ("NEWinogradConvolutionLayer", (X, _t(24, 8, 5, 5), B, None, ONE), "the kernel is 5x5, wanted 3x3"),
    ("NEWinogradConvolutionLayer", (X, W, B, None, PadStrideInfo(2, 1)), "the strides are (2, 1), wanted 1"),
    ("NEFFTConvolutionLayer", (X, W, B, None, PadStrideInfo(2, 1)), "the strides are (2, 1), wanted 1"),
    ("NEFFTConvolutionLayer", (X, _t(24, 8, 5, 16), B, None, ONE), "the kernel is 16x5, wanted at most 15x15"),
    ("NEWinogradConvolutionLayer", (_t(1, 8, 1, 9), W, B, None, PAD1), "a part of the kernel never meets"),
    ("NEDepthwiseConvolutionLayer", (X, _t(9, 3, 3), None, None, ONE), "weights are for 9 channels, wanted 8"),
    ("NEDepthwiseConvolutionLayer", (X, _t(8, 3, 3), None, None, ONE, 0), "depth_multiplier is 0"),
    ("NEGEMM", (_t(3, 4), _t(5, 6), None, None), "a has 4 columns, b has 5 rows"),
    ("NEGEMM", (_t(3, 4), _t(4, 6), _t(3, 5), None), "c is 5x3, wanted 6x3"),
    ("NEGEMM", (_t(2, 3, 4), _t(4, 6), None, None), "matrices have at most 2 dimensions"),
    ("NEGEMMLowpMatrixMultiplyCore", (_t(3, 4), _t(4, 6), None, None), "a is F32, wanted QASYMM8"),
    ("NEFullyConnectedLayer", (_t(2, 5, 3, 3), _t(10, 44), None, None), "the input has 45 values, weights are for 44"),
    ("NEPoolingLayer", (X, None, PoolingLayerInfo(PoolingType.MAX, 10)), "a 10x10 window does not fit"),
    ("NEPoolingLayer", (X, None, PoolingLayerInfo(PoolingType.MAX, 2, PadStrideInfo(1, 1, 2, 0))), "is as large as"),
    ("NEPoolingLayer", (_t(1, 8, 9, 9, kind=Q8), None, PoolingLayerInfo(PoolingType.AVG)), "the input is QASYMM8"),
    (
        "NEPoolingLayer",
        (_t(1, 8, 9, 9, kind=Q8), _t(8, 1, 1, kind=Q8, scale=2.0), PoolingLayerInfo(PoolingType.MAX)),
        "the output has QuantizationInfo(scale=2.0, offset=0)",
    ),
    ("NEActivationLayer", (X, None, ActivationLayerInfo()), "no activation function is given"),
    ("NESoftmaxLayer", (X, None, 1.0, 4), "axis 4 of a tensor of 4 dimensions"),
    ("NENormalizationLayer", (X, None, NormalizationLayerInfo(norm_size=4)), "the size is 4, wanted an odd number"),
    ("NEBatchNormalizationLayer", (X, None, _t(8), _t(7)), "var is 7, wanted 8"),
    ("NEBatchNormalizationLayer", (X, None, _t(8), _t(8), None, None, 0.0), "epsilon is 0.0, wanted above 0"),
    ("NEQuantizationLayer", (X, _t(1, 8, 9, 9)), "the output is F32, wanted QASYMM8"),
    ("NEQuantizationLayer", (X, _t(1, 8, 9, 9, kind=Q8, scale=-1.0)), "the scale is -1.0"),
    ("NEDequantizationLayer", (X, None), "the input is F32, wanted QASYMM8"),
    ("NEReshapeLayer", (X, _t(8, 80)), "648 elements do not become 640"),
    ("NEFlattenLayer", (X, _t(1, 640)), "the output is 640, wanted 648"),
    ("NEPermute", (X, _t(1, 8, 9, 8), PermutationVector(2, 0, 1)), "the output is 8x9x8, wanted 8x9x9"),
    ("NEElementwiseAddition", (X, _t(1, 8, 9, 8), None), "input 2 is 8x9x8, wanted 9x9x8"),
    ("NEElementwiseMax", (X, X, _t(1, 8, 9, 9, kind=S32)), "the output is S32, wanted F32"),
]


@pytest.mark.parametrize(("name", "given", "message"), REFUSED)
def test_validate_and_configure_refuse_in_the_same_words(name: str, given: tuple[Any, ...], message: str) -> None:
    function = getattr(compute, name)
    status = function.validate(*(g.info() if isinstance(g, Tensor) else g for g in given))
    assert not status
    assert status.error_description.startswith(f"{name}: ")
    assert message in status.error_description
    is_optional = name in ("NEActivationLayer", "NEBatchNormalizationLayer")
    at = {"NEGEMM": 3, "NEElementwiseAddition": 2, "NEElementwiseMax": 2, "NEFullyConnectedLayer": 3}.get(name)
    at = 3 if "Convolution" in name or "Lowp" in name else 1 if at is None else at
    tensors = [Tensor() if n == at and g is None and not is_optional else g for n, g in enumerate(given)]
    with pytest.raises(TypeMismatch, match=re.escape(status.error_description)):
        function().configure(*tensors)


def test_concatenations_are_refused_by_input() -> None:
    a, b = _t(2, 3, 4), _t(2, 3, 5)
    layer = compute.NEConcatenateLayer
    assert "1 inputs, wanted at least 2" in layer.validate([a.info()], None, 0).error_description
    assert "axis is 7, wanted 0 to 3" in layer.validate([a.info(), a.info()], None, 7).error_description
    assert "axis is -1, wanted 0 to 3" in layer.validate([a.info(), a.info()], None, -1).error_description
    message = layer.validate([a.info(), b.info()], None, 1).error_description
    assert message == "NEConcatenateLayer: input 1 is 5x3x2 F32, the first is 4x3x2 F32"
    with pytest.raises(TypeMismatch, match=message):
        layer().configure([a, b], Tensor(), 1)
    assert layer.validate([a.info(), b.info()], None, 0)


def test_what_is_not_configured_does_not_run() -> None:
    for name in ("NEGEMM", "NEConvolutionLayer", "NEPermute"):
        with pytest.raises(ExecutionError, match=f"{name} is not configured"):
            getattr(compute, name)().run()


@pytest.mark.parametrize("numbers", [(0, 1), (1, 1, -1), (1, 1, 0, 0, 1)])
def test_strides_and_paddings_that_are_none(numbers: tuple[int, ...]) -> None:
    with pytest.raises(TypeMismatch, match="PadStrideInfo"):
        PadStrideInfo(*numbers)
    with pytest.raises(TypeMismatch, match="names each of 3 dimensions once"):
        PermutationVector(0, 1, 1)


def test_functions_share_managed_memory_and_run_in_threads() -> None:
    rng = np.random.default_rng(4)
    manager = MemoryManagerOnDemand(BlobLifetimeManager(), PoolManager())
    w, b = rng.standard_normal((24, 16, 3, 3)).astype(np.float32), rng.standard_normal(24).astype(np.float32)
    jobs = []
    for _ in range(3):
        x, output = rng.standard_normal((1, 16, 10, 10)).astype(np.float32), Tensor()
        layer = compute.NEConvolutionLayer(manager)
        layer.configure(tensor(x), tensor(w), tensor(b), output, PAD1)
        output.allocator().allocate()
        wanted = convolved(x.astype(float), w.astype(float), PAD1, Size2D()) + b[:, None, None]
        jobs.append((layer, output, wanted))
    with pytest.raises(ExecutionError):
        jobs[0][0].run()  # the manager is not finalized
    manager.set_allocator(Allocator())
    manager.set_num_pools(2)
    manager.finalize()

    def work(layer: Any) -> None:  # Any: a function
        for _ in range(20):
            layer.run()

    threads = [threading.Thread(target=work, args=(layer,)) for layer, _, _ in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, output, wanted in jobs:
        np.testing.assert_allclose(output.array().reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)


def test_a_pipeline_of_functions() -> None:
    rng = np.random.default_rng(6)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((1, 3, 12, 12), (8, 3, 3, 3), (8,)))
    given, hidden, output = tensor(x), Tensor(), Tensor()
    first, second = compute.NEConvolutionLayer(), compute.NEPoolingLayer()
    first.configure(given, tensor(w), tensor(b), hidden, PAD1)
    info = PoolingLayerInfo(PoolingType.MAX, 2, PadStrideInfo(2, 2))
    second.configure(hidden, output, info)
    hidden.allocator().allocate()
    output.allocator().allocate()
    for scale in (1.0, -2.0):
        given.array()[...] = x[0] * scale
        first.run()
        second.run()
        wanted = pooled(convolved(x.astype(float) * scale, w.astype(float), PAD1, Size2D()) + b[:, None, None], info)
        np.testing.assert_allclose(output.array().reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)
