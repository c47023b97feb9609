"""Neural-network functions of the compute library against plain numpy, on random shapes, strides and paddings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from armillary import compute, relay
from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    ConvolutionMethod,
    CPPScheduler,
    DataType,
    DimensionRoundingType,
    FullyConnectedLayerInfo,
    GEMMInfo,
    NormalizationLayerInfo,
    NormType,
    PaddingSize,
    PadStrideInfo,
    PermutationVector,
    PoolingLayerInfo,
    PoolingType,
    Scheduler,
    SingleThreadScheduler,
    Size2D,
    Tensor,
    Window,
)
from armillary.errors import ExecutionError, TypeMismatch
from armillary.transform import PassContext
from tests.compute.nn_oracles import activated, convolved, pooled, requantized, tensor

Array = np.ndarray[Any, Any]
FEW, MANY = range(3), [pytest.param(n, marks=pytest.mark.slow) for n in range(3, 50)]
SEEDS = [*FEW, *MANY]
F32 = DataType.F32
Function = ActivationFunction


@pytest.fixture(autouse=True)
def _scheduler() -> Iterator[None]:
    before = Scheduler.get()
    yield
    Scheduler.set(before)


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _result(function: Any, output: Tensor) -> Array:  # Any: one of the functions
    if not output.is_allocated():
        output.allocator().allocate()
    output.array()[...] = 77
    function.run()
    first = output.array().copy()
    function.run()
    assert np.array_equal(first, output.array()), "a second run, with packed weights, agrees"
    return first


def _close(found: Array, wanted: Array, terms: int = 1) -> None:
    scale = float(np.abs(wanted).max(initial=1.0))
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=2e-5, atol=1e-6 * scale * max(2, terms**0.5))


def _info(rng: np.random.Generator, most: int = 3, pad: int = 3) -> PadStrideInfo:
    strides, pads = rng.integers(1, most + 1, 2), rng.integers(0, pad, 4)
    rounds = list(DimensionRoundingType)[int(rng.integers(2))]
    return PadStrideInfo(*map(int, strides), *map(int, pads), round=rounds)


CLAMPS = [
    None,
    ActivationLayerInfo(Function.RELU),
    ActivationLayerInfo(Function.BOUNDED_RELU, 1.5),
    ActivationLayerInfo(Function.LU_BOUNDED_RELU, 1.0, -0.5),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["NEConvolutionLayer", "NEGEMMConvolutionLayer", "NEDirectConvolutionLayer"])
def test_convolutions(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    is_direct = name == "NEDirectConvolutionLayer"
    groups = 1 if is_direct else int(rng.choice([1, 1, 2]))
    n, channels, outputs = int(rng.integers(1, 3)), groups * int(rng.integers(1, 20)), groups * int(rng.integers(1, 26))
    rows, columns = map(int, rng.integers(1, 6, 2))
    dilation = Size2D() if is_direct else Size2D(*map(int, rng.choice([1, 1, 2], 2)))
    height, width = (int(v) + 10 for v in rng.integers(0, 9, 2))
    info, act = _info(rng), CLAMPS[int(rng.integers(4))]
    x, w, b = _floats(rng, n, channels, height, width), _floats(rng, outputs, channels // groups, rows, columns), None
    if rng.integers(4):
        b = _floats(rng, outputs)
    function, output = getattr(compute, name)(), Tensor()
    biases = tensor(b) if b is not None else None
    if is_direct:
        function.configure(tensor(x), tensor(w), biases, output, info, act)
    else:
        more = {"dilation": dilation, "act_info": act, "num_groups": groups}
        function.configure(tensor(x), tensor(w), biases, output, info, **more)
    wanted = convolved(x.astype(float), w.astype(float), info, dilation, groups)
    wanted = activated(wanted + (0 if b is None else b[:, None, None]), act)
    assert output.info().shape == tuple(reversed(wanted.shape))
    _close(_result(function, output), wanted, channels * rows * columns)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["NEWinogradConvolutionLayer", "NEWinogradLayer", "NEConvolutionLayer"])
def test_winograd(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, channels, outputs = (int(v) for v in rng.integers(1, (3, 40, 40)))
    outputs = outputs if seed else 24
    x, w = _floats(rng, n, channels, *map(int, rng.integers(3, 16, 2))), _floats(rng, outputs, channels, 3, 3)
    b = _floats(rng, outputs)
    info, act = PadStrideInfo(1, 1, *map(int, rng.integers(0, 3, 4))), CLAMPS[int(rng.integers(4))]
    function, output = getattr(compute, name)(), Tensor()
    function.configure(tensor(x), tensor(w), tensor(b), output, info, act_info=act)
    wanted = activated(convolved(x.astype(float), w.astype(float), info, Size2D()) + b[:, None, None], act)
    _close(_result(function, output), wanted, channels * 9)
    assert any("winograd" in kernel.name for kernel in function.kernels())


STAGES = {
    "NEGEMMConvolutionLayer": (
        ["reshape_weights", "transpose_1x12"],
        ["fill_border_float32", "im2col", "interleave_8x4", "blocked_gemm_8x12", "col2im"],
    ),
    "NEDirectConvolutionLayer": ([], ["fill_border_float32", "direct_convolution"]),
    "NEWinogradConvolutionLayer": (
        ["permute_weights", "winograd_transform_weights_4x4"],
        [
            "permute_input",
            "winograd_transform_input_4x4",
            "batched_gemm",
            "winograd_transform_output_4x4",
            "permute_output",
        ],
    ),
    "NEFFTConvolutionLayer": (
        ["fourier_place_weights", "fourier_rows", "fourier_columns_of_weights"],
        [
            *("permute_input", "fourier_rows", "fourier_columns", "batched_gemm"),
            *("fourier_columns_back", "fourier_rows_back", "permute_output"),
        ],
    ),
}


@pytest.mark.parametrize("outputs", [12, 24])
@pytest.mark.parametrize("name", STAGES)
def test_stages_come_in_the_order_of_the_text(name: str, outputs: int) -> None:
    rng = np.random.default_rng(outputs)
    x, w, b = _floats(rng, 1, 19, 8, 11), _floats(rng, outputs, 19, 3, 3), _floats(rng, outputs)
    function, output = getattr(compute, name)(stages=True), tensor(shape=(1, outputs, 8, 11))
    function.configure(tensor(x), tensor(w), tensor(b), output, PadStrideInfo(1, 1, 1, 1))
    output.allocator().allocate()
    kernels = function.kernels()
    once = function._pipeline.once_kernels()
    assert ([k.name for k in once], [k.name for k in kernels]) == STAGES[name]
    for kernel in kernels:
        assert not output.array().any(), "only the last stage writes the output"
        Scheduler.get().schedule(kernel, Window.DimX)
    wanted = convolved(x.astype(float), w.astype(float), PadStrideInfo(1, 1, 1, 1), Size2D()) + b[:, None, None]
    _close(output.array(), wanted, 19 * 9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", STAGES)
def test_stages_of_convolutions(name: str, seed: int) -> None:
    """Sizes, strides, holes, paddings of memory, activations and a memory manager at random."""
    rng = np.random.default_rng(seed)
    n, channels, outputs, height, width = (int(v) for v in rng.integers(1, (3, 20, 30, 40, 40)))
    is_fourier, is_winograd = name.startswith("NEFFT"), name.startswith("NEWino")
    side = 3 if is_winograd else int(rng.integers(1, 16 if is_fourier else 6))
    strides, dilation = (1, 1), Size2D()
    if is_winograd and rng.integers(2):
        height, width = height % 4 - 6, width  # tiles of 2x2
    if not is_winograd and not is_fourier:
        strides = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    if name == "NEGEMMConvolutionLayer":
        dilation = Size2D(*map(int, rng.integers(1, 3, 2)))
    x, w = _floats(rng, n, channels, height + 9, width + 9), _floats(rng, outputs, channels, side, side)
    b, act = _floats(rng, outputs), CLAMPS[int(rng.integers(4))]
    info = PadStrideInfo(*strides, *map(int, rng.integers(0, side, 4)))
    manager = compute.MemoryManagerOnDemand(compute.OffsetLifetimeManager(), compute.PoolManager())
    function, output, image = getattr(compute, name)(manager, stages=True), Tensor(), Tensor()
    image.allocator().init(compute.TensorInfo(compute.TensorShape(width + 9, height + 9, channels, n), 1, F32))
    image.info().extend_padding(compute.PaddingSize(*map(int, rng.integers(0, 4, 4))))
    image.allocator().allocate()
    image.array()[...] = x.reshape(image.array().shape)
    more = {"dilation": dilation} if name == "NEGEMMConvolutionLayer" else {}
    function.configure(image, tensor(w), tensor(b), output, info, act_info=act, **more)
    output.info().extend_padding(compute.PaddingSize(*map(int, rng.integers(0, 4, 4))))
    manager.set_allocator(compute.Allocator())
    manager.set_num_pools(1)
    manager.finalize()
    wanted = activated(convolved(x.astype(float), w.astype(float), info, dilation, 1) + b[:, None, None], act)
    terms = (
        (100 if is_winograd else 4) * channels * side * side
    )  # one sum, in order; F(4x4, 3x3) errs five times as far
    _close(_result(function, output), wanted, terms)
    _close(_result(function, output), wanted, terms)


@pytest.mark.parametrize("side", [1, 3, 4, 9, 15])
def test_a_convolution_by_fourier_transforms(side: int) -> None:
    """Without stages the compiler's algorithm, from four rows on; kernels and steps that transforms do not have."""
    rng = np.random.default_rng(side)
    x, w, b = _floats(rng, 2, 20, 19, 23), _floats(rng, 12, 20, side, side), _floats(rng, 12)
    info, function, output = PadStrideInfo(1, 1, side // 2, side // 2), compute.NEFFTConvolutionLayer(), Tensor()
    function.configure(tensor(x), tensor(w), tensor(b), output, info)
    _close(
        _result(function, output),
        convolved(x.astype(float), w.astype(float), info, Size2D()) + b[:, None, None],
        20 * side**2,
    )
    assert any("fourier" in kernel.name for kernel in function.kernels()) == (side >= 4)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_stages_of_products(seed: int, once: bool) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = (int(v) for v in rng.integers(1, 70, 3))
    a, b, c = _floats(rng, m, k), _floats(rng, k, n), _floats(rng, m, n)
    function, output = compute.NEGEMM(stages=True), Tensor()
    function.configure(tensor(a), tensor(b), tensor(c), output, 1.5, -0.5, compute.GEMMInfo(once))
    assert {kernel.name for kernel in function._pipeline.once_kernels()} <= {"transpose_1x12", "transpose_1x16"}
    _close(_result(function, output), 1.5 * (a.astype(float) @ b) - 0.5 * c, k)


def test_layers_without_stages_say_so() -> None:
    rng = np.random.default_rng(0)
    x, w = tensor(_floats(rng, 1, 4, 9, 9)), tensor(_floats(rng, 4, 1, 3, 3))
    grouped, depthwise = compute.NEGEMMConvolutionLayer(stages=True), compute.NEDepthwiseConvolutionLayer(stages=True)
    with pytest.raises(TypeMismatch, match="stages take one group, got 4"):
        grouped.configure(x, w, None, Tensor(), PadStrideInfo(), num_groups=4)
    with pytest.raises(TypeMismatch, match="it has no stages"):
        depthwise.configure(x, tensor(_floats(rng, 4, 3, 3)), None, Tensor(), PadStrideInfo())


def test_the_rule_for_the_method() -> None:
    def method(
        w: tuple[int, ...] = (24, 8, 3, 3), kind: DataType = F32, biases: bool = True, stride: int = 1, **more: Any
    ) -> ConvolutionMethod:  # Any: options of the rule
        x, weights = tensor(shape=(1, 8, 9, 9), kind=kind), tensor(shape=w, kind=kind)
        b = tensor(shape=(w[0],)).info() if biases else None
        info = PadStrideInfo(stride, stride, 1, 1)
        return compute.NEConvolutionLayer.get_convolution_method(x.info(), weights.info(), b, None, info, **more)

    assert method() is ConvolutionMethod.WINOGRAD
    others = [
        method((24, 8, 5, 5)),
        method(kind=DataType.QASYMM8),
        method(biases=False),
        method(stride=2),
        method(dilation=Size2D(2, 2)),
        method((24, 4, 3, 3), num_groups=2),
    ]
    assert others == [ConvolutionMethod.GEMM] * len(others)


@pytest.mark.parametrize("seed", SEEDS)
def test_depthwise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, channels, multiplier = (int(v) for v in rng.integers(1, (3, 36, 4)))
    rows, columns = map(int, rng.integers(1, 6, 2))
    x, w = _floats(rng, n, channels, 13, 12), _floats(rng, channels * multiplier, rows, columns)
    b = _floats(rng, channels * multiplier)
    info, act, dilation = _info(rng), CLAMPS[int(rng.integers(4))], Size2D(*map(int, rng.choice([1, 1, 2], 2)))
    function, output = compute.NEDepthwiseConvolutionLayer(), Tensor()
    function.configure(tensor(x), tensor(w), tensor(b), output, info, multiplier, act, dilation)
    wanted = convolved(x.astype(float), w[:, None].astype(float), info, dilation, channels) + b[:, None, None]
    _close(_result(function, output), activated(wanted, act), rows * columns)


def _bytes(rng: np.random.Generator, kind: DataType, *shape: int) -> Array:
    low, high = (0, 256) if kind is DataType.QASYMM8 else (-128, 128)
    return rng.integers(low, high, shape).astype(kind.dtype)


def _offset(rng: np.random.Generator, kind: DataType) -> int:
    return int(rng.integers(0, 256) if kind is DataType.QASYMM8 else rng.integers(-128, 128))


def _clamped(kind: DataType, act: ActivationLayerInfo | None, scale: float, offset: int) -> tuple[int, int]:
    low, high = (0, 255) if kind is DataType.QASYMM8 else (-128, 127)
    if act is None:
        return low, high
    least = act.b if act.activation is Function.LU_BOUNDED_RELU else 0.0
    low = max(low, int(np.floor(least / scale + 0.5)) + offset)
    return low, high if act.activation is Function.RELU else min(high, int(np.floor(act.a / scale + 0.5)) + offset)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [DataType.QASYMM8, DataType.QASYMM8_SIGNED])
@pytest.mark.parametrize("which", ["convolution", "depthwise", "connected", "product"])
def test_products_of_bytes_are_exact(which: str, kind: DataType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    channels, outputs = int(rng.integers(1, 20)), int(rng.integers(1, 20))
    outputs = channels if which == "depthwise" else outputs
    (sx, sw, sy), (zx, zw, zy) = rng.uniform(0.01, 0.1, 3), (_offset(rng, kind) for _ in range(3))
    sy = float(sx * sw * rng.choice([0.3, 20.0, 200.0]))
    act, info, b = CLAMPS[int(rng.integers(4))], _info(rng), rng.integers(-3000, 3000, outputs).astype(np.int32)
    act = None if which == "product" else act
    biases = tensor(b, kind=DataType.S32)
    if which in ("convolution", "depthwise"):
        groups = channels if which == "depthwise" else 1
        x, w = _bytes(rng, kind, 2, channels, 9, 10), _bytes(rng, kind, outputs, channels // groups, 3, 2)
        sums = convolved(x.astype(np.int64) - zx, w.astype(np.int64) - zw, info, Size2D(), groups)
        sums += b[:, None, None]
    else:
        x, w = _bytes(rng, kind, 5, channels), _bytes(rng, kind, outputs, channels)
        sums = (x.astype(np.int64) - zx) @ (w.astype(np.int64) - zw).T + b
    given = w[:, 0] if which == "depthwise" else w.T if which == "product" else w
    output = tensor(shape=sums.shape, kind=kind, scale=sy, offset=zy)
    first = tensor(x, kind=kind, scale=float(sx), offset=zx)
    second = tensor(np.ascontiguousarray(given), kind=kind, scale=float(sw), offset=zw)
    function: Any  # one of four functions
    if which == "convolution":
        function = compute.NEConvolutionLayer()
        function.configure(first, second, biases, output, info, act_info=act)
    elif which == "depthwise":
        function = compute.NEDepthwiseConvolutionLayer()
        function.configure(first, second, biases, output, info, act_info=act)
    elif which == "connected":
        function = compute.NEFullyConnectedLayer()
        more = FullyConnectedLayerInfo(activation_info=act or ActivationLayerInfo())
        function.configure(first, second, biases, output, more)
    else:
        function = compute.NEGEMMLowpMatrixMultiplyCore()
        function.configure(first, second, biases, output)
    wanted = requantized(sums, (float(sx), float(sw), sy), zy, *_clamped(kind, act, sy, zy))
    assert np.array_equal(_result(function, output).reshape(wanted.shape), wanted)


@pytest.mark.parametrize("seed", [*SEEDS, 103])
def test_gemm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = (int(v) for v in rng.integers(1, 50, 3))
    alpha, beta = [(1.0, 0.0), (2.5, 0.0), (0.5, 1.5), (1.0, 1.0)][int(rng.integers(4))]
    a, b, c = _floats(rng, m, k), _floats(rng, k, n), _floats(rng, m, n)
    info = GEMMInfo(bool(rng.integers(2)) or seed > 100, CLAMPS[int(rng.integers(4))] or ActivationLayerInfo())
    function, output, right = compute.NEGEMM(), Tensor(), tensor(b)
    function.configure(tensor(a), right, tensor(c), output, alpha, beta, info)
    wanted = activated(alpha * (a.astype(float) @ b) + beta * c, info.activation_info)
    _close(_result(function, output), wanted, k)
    right.array()[...] = 2 * b
    function.run()
    again = activated(2 * alpha * (a.astype(float) @ b) + beta * c, info.activation_info)
    _close(output.array(), wanted if info.reshape_b_only_on_first_run else again, k)


def test_products_of_bytes_in_32_bits() -> None:
    rng = np.random.default_rng(1)
    a, b = _bytes(rng, DataType.QASYMM8, 7, 33), _bytes(rng, DataType.QASYMM8, 33, 9)
    function, output = compute.NEGEMMLowpMatrixMultiplyCore(), Tensor()
    first, second = tensor(a, kind=DataType.QASYMM8, offset=12), tensor(b, kind=DataType.QASYMM8, offset=250)
    function.configure(first, second, None, output)
    assert output.info().data_type is DataType.S32
    assert np.array_equal(_result(function, output), (a.astype(int) - 12) @ (b.astype(int) - 250))


@pytest.mark.parametrize("seed", SEEDS)
def test_fully_connected(seed: int) -> None:
    rng = np.random.default_rng(seed)
    image = (int(rng.integers(2, 6)), *(int(v) for v in rng.integers(1, 7, 3)))
    terms, outputs = int(np.prod(image[1:])), int(rng.integers(1, 40))
    x, w, b = _floats(rng, *image), _floats(rng, outputs, terms), _floats(rng, outputs)
    is_matrix, flipped = bool(rng.integers(2)), bool(rng.integers(2))
    act = CLAMPS[int(rng.integers(4))] or ActivationLayerInfo()
    function, output = compute.NEFullyConnectedLayer(), Tensor()
    function.configure(
        tensor(x.reshape(image[0], terms) if is_matrix else x),
        tensor(w if flipped else np.ascontiguousarray(w.T)),
        tensor(b),
        output,
        FullyConnectedLayerInfo(flipped, act),
    )
    _close(_result(function, output), activated(x.reshape(image[0], -1).astype(float) @ w.T + b, act), terms)


@pytest.mark.parametrize("seed", [*range(6), *[pytest.param(n, marks=pytest.mark.slow) for n in range(6, 80)]])
def test_pooling(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = list(PoolingType)[seed % 3]
    size = Size2D(*map(int, rng.integers(1, 5, 2)))
    pads = [int(rng.integers(0, side)) for side in (size.width, size.width, size.height, size.height)]
    rounds = list(DimensionRoundingType)[int(rng.integers(2))]
    moves = PadStrideInfo(*map(int, rng.integers(1, 4, 2)), *pads, round=rounds)
    info = PoolingLayerInfo(kind, size, moves, bool(rng.integers(2)))
    if seed % 7 == 3:
        info = PoolingLayerInfo(kind)
    x = _floats(rng, int(rng.integers(1, 3)), int(rng.integers(1, 20)), *map(int, rng.integers(5, 14, 2)))
    function, output = compute.NEPoolingLayer(), Tensor()
    function.configure(tensor(x), output, info)
    wanted = pooled(x.astype(float), info)
    assert output.info().shape == tuple(reversed(wanted.shape))
    _close(_result(function, output), wanted)


@pytest.mark.parametrize("kind", [DataType.QASYMM8, DataType.QASYMM8_SIGNED])
def test_the_largest_of_bytes(kind: DataType) -> None:
    x = _bytes(np.random.default_rng(3), kind, 2, 5, 8, 9)
    info, output = PoolingLayerInfo(PoolingType.MAX, 3, PadStrideInfo(2, 2, 1, 1)), Tensor()
    function = compute.NEPoolingLayer()
    function.configure(tensor(x, kind=kind, scale=0.5, offset=3), output, info)
    assert np.array_equal(_result(function, output), pooled(x, info))
    assert output.info().quantization_info().offset == 3


@pytest.mark.parametrize("function", list(Function))
@pytest.mark.parametrize("in_place", [False, True])
def test_activations(function: ActivationFunction, in_place: bool) -> None:
    rng = np.random.default_rng(5)
    x = _floats(rng, 3, 5, 7) * 3
    x = np.abs(x) if function is Function.SQRT else x
    info, given, layer = ActivationLayerInfo(function, 1.25, 0.5), tensor(x), compute.NEActivationLayer()
    output = given if in_place else Tensor()
    layer.configure(given, None if in_place else output, info)
    if not in_place:
        output.allocator().allocate()
    layer.run()
    _close(output.array(), activated(x.astype(float), info))


@pytest.mark.parametrize("seed", SEEDS)
def test_softmax(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 12, int(rng.integers(1, 5))))
    x, beta, axis = _floats(rng, *shape) * 20, float(rng.choice([1.0, 0.3])), int(rng.integers(len(shape)))
    function, output = compute.NESoftmaxLayer(), Tensor()
    function.configure(tensor(x), output, beta, axis)
    at = len(shape) - 1 - axis
    e = np.exp(beta * (x.astype(float) - x.max(at, keepdims=True)))
    np.testing.assert_allclose(_result(function, output).reshape(shape), e / e.sum(at, keepdims=True), 1e-4, 1e-7)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", list(NormType))
def test_normalisation(kind: NormType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, is_scaled = int(rng.choice([1, 3, 5])), bool(rng.integers(2))
    x = _floats(rng, 2, int(rng.integers(1, 12)), *map(int, rng.integers(3, 10, 2)))
    info = NormalizationLayerInfo(kind, size, 0.3, 0.75, 1.5, is_scaled)
    axes = {NormType.IN_MAP_1D: (3,), NormType.IN_MAP_2D: (2, 3), NormType.CROSS_MAP: (1,)}[kind]
    sums = x.astype(float) ** 2
    for axis in axes:
        sides = [(size // 2, size // 2) if n == axis else (0, 0) for n in range(4)]
        sums = np.lib.stride_tricks.sliding_window_view(np.pad(sums, sides), size, axis).sum(-1)
    count = size ** len(axes) if is_scaled else 1
    function, output = compute.NENormalizationLayer(), Tensor()
    function.configure(tensor(x), output, info)
    _close(_result(function, output), x / (1.5 + 0.3 / count * sums) ** 0.75)


@pytest.mark.parametrize("seed", SEEDS)
def test_batch_normalisation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    channels = int(rng.integers(1, 20))
    x, (mean, beta, gamma) = _floats(rng, 2, channels, 5, 7), (_floats(rng, channels) for _ in range(3))
    var, act = rng.uniform(0.1, 2, channels).astype(np.float32), CLAMPS[int(rng.integers(4))]
    has = bool(rng.integers(2))
    given, function = tensor(x), compute.NEBatchNormalizationLayer()
    more = (tensor(beta), tensor(gamma)) if has else (None, None)
    function.configure(given, None, tensor(mean), tensor(var), *more, 0.01, act)
    function.run()
    column = (slice(None), None, None)
    wanted = (x - mean[column].astype(float)) / np.sqrt(var[column] + 0.01)
    _close(given.array(), activated(wanted * gamma[column] + beta[column] if has else wanted, act))


@pytest.mark.parametrize("kind", [DataType.QASYMM8, DataType.QASYMM8_SIGNED])
def test_quantisation_there_and_back(kind: DataType) -> None:
    x = np.linspace(-40, 40, 161, dtype=np.float32).reshape(7, 23)
    low, high = (0, 255) if kind is DataType.QASYMM8 else (-128, 127)
    stored, back = tensor(shape=x.shape, kind=kind, scale=0.25, offset=9), Tensor()
    function = compute.NEQuantizationLayer()
    function.configure(tensor(x), stored)
    found = _result(function, stored)
    assert np.array_equal(found, np.clip(np.trunc(x / 0.25 + np.copysign(0.5, x)) + 9, low, high))
    other = compute.NEDequantizationLayer()
    other.configure(stored, back)
    back.allocator().allocate()
    other.run()
    assert np.array_equal(back.array(), (found.astype(np.float32) - 9) * np.float32(0.25))


@pytest.mark.parametrize("seed", [*SEEDS, 111])
def test_moving_elements(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = [int(n) for n in rng.integers(1, 8, 4)]
    kind = [F32, DataType.S32, DataType.U8][seed % 3]
    parts, axis = [], int(rng.integers(3)) if seed < 100 else 2
    shape[0] = 1 if seed > 100 else shape[0]  # parts that lie one after another
    for size in rng.integers(1, 6, 3):
        shape[3 - axis] = int(size)
        parts.append((rng.standard_normal(shape) * 50).astype(np.int64).clip(0, 90).astype(kind.dtype))
    name = ["NEWidthConcatenateLayer", "NEHeightConcatenateLayer", "NEDepthConcatenateLayer"][axis]
    for function, more in ((getattr(compute, name)(), ()), (compute.NEConcatenateLayer(), (axis,))):
        output = Tensor()
        function.configure([tensor(p, kind=kind) for p in parts], output, *more)
        assert np.array_equal(_result(function, output), np.concatenate(parts, 3 - axis))
    x, order = parts[0], [int(n) for n in rng.permutation(4)]
    output, function = Tensor(), compute.NEPermute()
    function.configure(tensor(x, kind=kind), output, PermutationVector(*order))
    axes = [3 - order[3 - n] for n in range(4)]
    assert np.array_equal(_result(function, output), x.transpose(axes))
    output, function = tensor(shape=(x.size,), kind=kind), compute.NEReshapeLayer()
    function.configure(tensor(x, kind=kind), output)
    assert np.array_equal(_result(function, output).ravel(), x.ravel())
    output, function = Tensor(), compute.NEFlattenLayer()
    function.configure(tensor(x, kind=kind), output)
    assert np.array_equal(_result(function, output).ravel(), x.ravel())
    assert output.info().dimension(0) == x[0].size


@pytest.mark.parametrize("kind", [F32, DataType.S32])
def test_two_tensors(kind: DataType) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-99, 99, (3, 5, 7)).astype(kind.dtype) for _ in range(2))
    rules = {"NEElementwiseMax": np.maximum, "NEElementwiseMin": np.minimum, "NEElementwiseAddition": np.add}
    for name, rule in rules.items():
        function, output = getattr(compute, name)(), Tensor()
        function.configure(tensor(a, kind=kind), tensor(b, kind=kind), output)
        assert np.array_equal(_result(function, output), rule(a, b))


def test_any_scheduler_gives_the_same_bytes_and_padding_stays() -> None:
    rng = np.random.default_rng(9)
    x, w, b = _floats(rng, 1, 17, 12, 13), _floats(rng, 24, 17, 3, 3), _floats(rng, 24)
    found = []
    for threads in (0, 1, 2, 3):
        scheduler = CPPScheduler() if threads else SingleThreadScheduler()
        scheduler.set_num_threads(threads or 1)
        Scheduler.set(scheduler)
        function = compute.NEConvolutionLayer()
        given = tensor(shape=x.shape)
        given.info().init_auto_padding(given.info().shape, F32)
        output = tensor(shape=(1, 24, 12, 13))
        output.info().init_auto_padding(output.info().shape, F32)
        function.configure(given, tensor(w), tensor(b), output, PadStrideInfo(1, 1, 1, 1))
        given.allocator().allocate()
        output.allocator().allocate()
        given.array()[...] = x
        output.planes()[...] = 5
        function.run()
        found.append(output.planes().copy())
        with pytest.raises(ExecutionError, match=r"has padding or is input and output.*"):
            function.kernels()
    assert all(np.array_equal(found[0], other) for other in found)
    assert (found[0][:, :4] == 5).all(), "rows of padding are untouched"
    _close(
        output.array(),
        convolved(x.astype(float), w.astype(float), PadStrideInfo(1, 1, 1, 1), Size2D()) + b[:, None, None],
        17 * 9,
    )


@pytest.mark.parametrize(
    "name", ["NEGEMMConvolutionLayer", "NEWinogradConvolutionLayer", "NEDepthwiseConvolutionLayer"]
)
def test_a_layer_runs_the_kernels_of_the_compiler_on_aligned_memory(name: str) -> None:
    rng = np.random.default_rng(5)
    taps = (32, 3, 3) if "Depthwise" in name else (32, 32, 3, 3)
    layer, output = getattr(compute, name)(), Tensor()
    given = tensor(_floats(rng, 1, 32, 10, 10)), tensor(_floats(rng, *taps)), tensor(_floats(rng, 32)), output
    layer.configure(*given, PadStrideInfo(1, 1, 1, 1))
    output.allocator().allocate()
    weights = {weight: layer.body.values_of(weight) for weight in layer.body.weights}
    with PassContext(opt_level=3, config=layer._config):
        library = relay.build(layer.body.module(), target="llvm", params=weights)
    rows = library.descriptor.functions.values()
    known = {phase.symbol for row in rows for phase in row.phases}
    kernels = layer.kernels()
    assert {kernel.name for kernel in kernels} <= known, "the same functions, by name"
    for kernel in kernels:
        for loop in kernel.native_loops():
            assert not any(address % 64 for address in loop.data), kernel.name


def test_padding_that_a_tensor_gets_later_is_seen() -> None:
    values = _floats(np.random.default_rng(1), 3, 5)
    function, output = compute.NEActivationLayer(), tensor(shape=values.shape)
    function.configure(tensor(values), output, ActivationLayerInfo(Function.RELU))
    output.allocator().allocate()
    function.run()
    dense = output.array().copy()
    for _ in range(2):
        output.allocator().free()
        output.info().extend_padding(PaddingSize(1, 2, 1, 3))
        output.allocator().allocate()
        function.run()
        assert np.array_equal(output.array(), dense) and (dense == np.maximum(values, 0)).all()
