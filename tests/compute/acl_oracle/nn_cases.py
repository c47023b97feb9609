"""Random cases of the layers: shapes, paddings, activations, scales, and the call that computes the same.

In: a generator of random numbers. Out: a `Case`, as in `vision_cases.py`. Invariant: shapes are small, as results of
floats are stored; floats may differ by `bound` of the largest, where the library's own approximations decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.compute import (
    ActivationFunction,
    ActivationLayerInfo,
    DataLayout,
    DataType,
    DimensionRoundingType,
    NormalizationLayerInfo,
    NormType,
    PadStrideInfo,
    PermutationVector,
    PoolingLayerInfo,
    PoolingType,
    QuantizationInfo,
    Size2D,
    TensorInfo,
    TensorShape,
)
from tests.compute.acl_oracle.vision_cases import Build, Function, Images, Rng, drawn, like, with_padding
from tests.compute.acl_oracle.wire import Case, Result, Tensor

CLOSE = 2e-6  # sums in another order
FUNCTIONS, ROUNDS = list(ActivationFunction), list(DimensionRoundingType)
BYTES = ("tQASYMM8", "tQASYMM8_SIGNED")


def calling(configure: Callable[[Function, Images], None]) -> Callable[[Case], Result]:
    """Configure, allocate, fill, run, read the last tensor."""

    def ours(case: Case) -> Result:
        tensors = []
        for t in case.tensors:
            made = like(case.side, "Tensor")
            quantization = QuantizationInfo(t.scale or 1.0, t.offset, t.scales)
            layout = DataLayout.NHWC if t.kind[0] == "n" else DataLayout.NCHW
            made.allocator().init(TensorInfo(TensorShape(*t.sizes), 1, DataType[t.kind[1:]], quantization, layout))
            tensors.append(made)
        with_padding(case, tensors)
        function = like(case.side, case.name)
        configure(function, tensors)
        for tensor, given in zip(tensors, case.tensors, strict=True):
            tensor.allocator().allocate()
            tensor.write(given.planes[0].reshape(tensor.read().shape))
        function.run()
        return Result([], (0, 0, 0, 0), [tensors[-1].read().copy()])

    return ours


def _case(name: str, tensors: list[Tensor], params: list[float], configure: Any, bound: float = CLOSE) -> Case:
    """A case whose only output is the last tensor; bytes agree to the bit."""  # Any: as `calling` takes it
    is_real = tensors[-1].kind.endswith("F32")
    return Case(name, tensors, params, calling(configure), bound if is_real else 0.0, has_region=False)


def _floats(rng: Rng, *sizes: int) -> Tensor:
    return drawn(rng, "tF32", sizes, -2.0, 2.0)


def _bytes(rng: Rng, kind: str, *sizes: int, scale: float = 0.0) -> Tensor:
    made = drawn(rng, kind, sizes)
    made.scale = scale or float(np.float32(rng.uniform(0.01, 0.1)))
    made.offset = int(rng.integers(0, 200)) if kind == "tQASYMM8" else int(rng.integers(-40, 40))
    return made


def _activation(rng: Rng, clamps: bool) -> tuple[ActivationLayerInfo | None, list[float]]:
    """An activation that clamps, or none, or (not `clamps`) any; and what the driver takes for it."""
    which = int(rng.choice([-1, 2, 3, 4] if clamps else len(FUNCTIONS)))
    if which < 0:
        return None, [-1, 0, 0]
    a, b = (float(np.float32(v)) for v in (rng.uniform(0.5, 2), rng.uniform(-0.4, 0.4)))
    return ActivationLayerInfo(FUNCTIONS[which], a, b), [which, a, b]


def _strides(rng: Rng, rounds: int = 2) -> tuple[PadStrideInfo, list[float]]:
    """`rounds`: 1 for FLOOR alone: what the library's sums read beside the image by CEIL is not zeros."""
    steps, pads = [int(n) for n in rng.integers(1, 3, 2)], [int(n) for n in rng.integers(0, 2, 4)]
    ceil = int(rng.integers(rounds))
    return PadStrideInfo(*steps, *pads, ROUNDS[ceil]), [*steps, *pads, ceil]


def _same_or_valid(rng: Rng, side: int) -> tuple[PadStrideInfo, list[float]]:
    """The library's Winograd and direct convolutions have as much padding on all sides, or none."""
    pad = int(rng.integers(2)) * (side // 2)
    return PadStrideInfo(1, 1, pad, pad), [1, 1, *(4 * [pad]), 0]


def _layer_activation(rng: Rng) -> Case:
    info, params = _activation(rng, clamps=False)
    assert info is not None and info.activation is not None, "one of all"
    sizes = tuple(int(n) for n in rng.integers(1, (20, 5, 3)))
    low = 0.0 if info.activation is ActivationFunction.SQRT else -4.0
    tensors = [drawn(rng, "tF32", sizes, low, 4.0), _floats(rng, *sizes)]
    return _case("NEActivationLayer", tensors, params, lambda f, t: f.configure(*t, info), bound=2e-6)


def _softmax(rng: Rng) -> Case:
    sizes, beta = (int(rng.integers(1, 24)), int(rng.integers(1, 5))), float(np.float32(rng.uniform(0.5, 2)))
    return _case(
        "NESoftmaxLayer",
        [_floats(rng, *sizes), _floats(rng, *sizes)],
        [beta],
        lambda f, t: f.configure(*t, beta),
        bound=1e-6,
    )


def _ends_in_padding(sizes: tuple[int, ...], window: tuple[int, int], info: PadStrideInfo) -> bool:
    """Whether a last window lies in padding alone: version 20.08 keeps it, later ones and ours drop it."""
    made = info.scaled((sizes[0], sizes[1]), Size2D(*window))
    return any((made[n] - 1) * info.stride()[n] >= sizes[n] + info.pad()[n] for n in (0, 1))


def _pads(info: PadStrideInfo) -> tuple[int, int, int, int]:
    """Left, right, top, bottom."""
    return info.pad_left(), info.pad_right(), info.pad_top(), info.pad_bottom()


def _pooling(rng: Rng) -> Case:
    which, width, height = int(rng.integers(3)), int(rng.integers(2, 4)), int(rng.integers(2, 4))
    info, params = _strides(rng, rounds=2 if which == 0 else 1)
    excludes, is_bytes = int(rng.integers(2)), which == 0 and width == height and bool(rng.integers(2))
    pool = PoolingLayerInfo(list(PoolingType)[which], Size2D(width, height), info, bool(excludes))
    sizes = (int(rng.integers(6, 12)), int(rng.integers(6, 9)), int(rng.integers(1, 3)))
    if _ends_in_padding(sizes, (width, height), info):
        info, params = PadStrideInfo(*info.stride(), *_pads(info)), [*params[:-1], 0]
        pool = PoolingLayerInfo(list(PoolingType)[which], Size2D(width, height), info, bool(excludes))
    made = (*info.scaled(sizes[:2], Size2D(width, height)), sizes[2])
    kind = BYTES[int(rng.integers(2))] if is_bytes else "tF32"
    source = _bytes(rng, kind, *sizes) if is_bytes else _floats(rng, *sizes)
    target = drawn(rng, kind, made)
    target.scale, target.offset = source.scale, source.offset
    given = [which, width, height, excludes, *params]
    bound = 1e-5 if which == 2 else CLOSE
    return _case("NEPoolingLayer", [source, target], given, lambda f, t: f.configure(*t, pool), bound)


def _normalization(rng: Rng) -> Case:
    which, size, scaled = int(rng.integers(3)), int(rng.choice([3, 5])), int(rng.integers(2))
    alpha, beta, kappa = (float(np.float32(v)) for v in (rng.uniform(0.01, 1), rng.choice([0.5, 0.75, 1.0]), 1.5))
    info = NormalizationLayerInfo(list(NormType)[which], size, alpha, beta, kappa, bool(scaled))
    sizes = (int(rng.integers(3, 10)), int(rng.integers(3, 6)), int(rng.integers(2, 5)))
    tensors = [_floats(rng, *sizes), _floats(rng, *sizes)]
    params = [which, size, alpha, beta, kappa, scaled]
    return _case("NENormalizationLayer", tensors, params, lambda f, t: f.configure(*t, info), bound=1e-5)


def _batch_normalization(rng: Rng) -> Case:
    sizes, epsilon = (int(rng.integers(1, 9)), int(rng.integers(1, 5)), int(rng.integers(1, 5))), 1e-3
    numbers = [_floats(rng, sizes[2]) for _ in range(4)]
    numbers[1] = drawn(rng, "tF32", (sizes[2],), 0.5, 2.0)
    tensors = [_floats(rng, *sizes), *numbers, _floats(rng, *sizes)]
    rule = lambda f, t: f.configure(t[0], t[5], *t[1:5], epsilon)  # noqa: E731 - as the others are given
    return _case("NEBatchNormalizationLayer", tensors, [epsilon], rule, bound=2e-6)


def _convolution(name: str, kinds: tuple[str, ...] = ("tF32",), side: int = 0) -> Build:
    """`side`: that of the kernel, 0 for any."""

    def case(rng: Rng) -> Case:
        is_depthwise = name == "NEDepthwiseConvolutionLayer"
        kind = kinds[int(rng.integers(len(kinds)))]
        # With padding on one side alone the library's depthwise kernels of bytes are wrong at the image's first place.
        columns, rows = (side, side) if side else (int(n) for n in rng.integers(1, 4, 2))
        info, params = _same_or_valid(rng, side) if side else _strides(rng, rounds=1)
        if is_depthwise:
            across, down = (int(n) for n in rng.integers(0, (min(2, columns), min(2, rows))))
            info = PadStrideInfo(*info.stride(), across, across, down, down)
            params = [*params[:2], across, across, down, down, 0]
        if columns == rows == 1 and not is_depthwise:  # in NHWC the library forgets their padding
            info, params = PadStrideInfo(*info.stride()), [*params[:2], 0, 0, 0, 0, 0]
        act, first = _activation(rng, clamps=True)
        channels, outputs = int(rng.integers(1, 5)), int(rng.integers(1, 5))
        sizes = (int(rng.integers(5, 9)), int(rng.integers(5, 8)), channels)
        outputs = channels if is_depthwise else outputs
        taps = (columns, rows, channels) if is_depthwise else (columns, rows, channels, outputs)
        made = (*info.scaled(sizes[:2], Size2D(columns, rows)), outputs)
        has_biases = side == 3 or bool(rng.integers(2))
        if kind == "tF32":
            tensors = [_floats(rng, *sizes), _floats(rng, *taps)]
            tensors += [_floats(rng, outputs)] if has_biases else []
            tensors.append(_floats(rng, *made))
        else:
            tensors = [_bytes(rng, kind, *sizes), _bytes(rng, kind, *taps)]
            tensors += [drawn(rng, "tS32", (outputs,), -500, 500)] if has_biases else []
            tensors.append(_bytes(rng, kind, *made, scale=float(np.float32(rng.uniform(0.5, 2)))))

        def configure(function: Function, given: Images) -> None:
            biases = given[2] if has_biases else None
            more = {"act_info": act} if act is not None else {}
            function.configure(given[0], given[1], biases, given[-1], info, **more)

        bound = 2e-5 if side == 3 else CLOSE
        return _case(name, tensors, [*first, *params], configure, bound)

    return case


def _dilated(name: str) -> Build:
    """A convolution whose taps lie apart; of a depthwise one each channel has one to three kernels."""

    def case(rng: Rng) -> Case:
        is_depthwise, kind = name == "NEDepthwiseConvolutionLayer", ("tF32", *BYTES)[int(rng.integers(3))]
        columns, rows = (int(n) for n in rng.integers(2, 4, 2))
        apart, times = Size2D(*(int(n) for n in rng.integers(1, 4, 2))), int(rng.integers(1, 4))
        steps, pads = [int(n) for n in rng.integers(1, 3, 2)], [int(n) for n in rng.integers(0, 2, 2)]
        info = PadStrideInfo(*steps, pads[0], pads[0], pads[1], pads[1])
        act, first = _activation(rng, clamps=True)
        channels, outputs = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        sizes = (int(rng.integers(9, 13)), int(rng.integers(8, 12)), channels)
        outputs = channels * times if is_depthwise else outputs
        taps = (columns, rows, outputs) if is_depthwise else (columns, rows, channels, outputs)
        made = (*info.scaled(sizes[:2], Size2D(columns, rows), apart), outputs)
        if kind == "tF32":
            tensors = [_floats(rng, *shape) for shape in (sizes, taps, (outputs,), made)]
        else:
            tensors = [_bytes(rng, kind, *sizes), _bytes(rng, kind, *taps), drawn(rng, "tS32", (outputs,), -500, 500)]
            tensors.append(_bytes(rng, kind, *made, scale=float(np.float32(rng.uniform(0.5, 2)))))
        more: dict[str, object] = {"dilation": apart, "act_info": act}
        more |= {"depth_multiplier": times} if is_depthwise else {}
        params = [*first, *steps, pads[0], pads[0], pads[1], pads[1], 0, apart.width, apart.height]
        params += [times] if is_depthwise else []
        return _case(name, tensors, params, lambda f, t: f.configure(*t, info, **more))

    return case


def _by_channel(name: str) -> Build:
    """A convolution of bytes whose weights have a scale for each output channel."""
    # With images of QASYMM8 the library's products end in a segmentation fault.
    bytes_alone = _convolution(name, BYTES if "Depthwise" in name else BYTES[1:])

    def case(rng: Rng) -> Case:
        made = bytes_alone(rng)
        weights = made.tensors[1]
        weights.kind, weights.offset = "tQSYMM8_PER_CHANNEL", 0
        weights.scales = tuple(float(np.float32(v)) for v in rng.uniform(0.01, 0.1, weights.sizes[-1]))
        weights.planes = [rng.integers(-127, 128, plane.shape).astype(np.int8) for plane in weights.planes]
        return made

    return case


def _connected_image(rng: Rng) -> Case:
    """The values of images, by weights that are trained for channels first."""
    sizes, outputs, batch = tuple(int(n) for n in rng.integers(1, (6, 5, 5))), int(rng.integers(1, 12)), 1
    tensors = [_floats(rng, *sizes, batch), _floats(rng, int(np.prod(sizes)), outputs), _floats(rng, outputs)]
    tensors.append(_floats(rng, outputs))
    return _case("NEFullyConnectedLayer", tensors, [], lambda f, t: f.configure(*t))


def _connected(rng: Rng) -> Case:
    inputs, outputs, batch = int(rng.integers(1, 30)), int(rng.integers(1, 12)), int(rng.integers(1, 4))
    kind, has_biases = ("tF32", *BYTES)[int(rng.integers(3))], bool(rng.integers(2))
    shapes = ((inputs, batch), (inputs, outputs))
    if kind == "tF32":
        tensors = [_floats(rng, *shape) for shape in shapes]
        tensors += [*([_floats(rng, outputs)] if has_biases else []), _floats(rng, outputs, batch)]
    else:
        tensors = [_bytes(rng, kind, *shape) for shape in shapes]
        tensors += [drawn(rng, "tS32", (outputs,), -500, 500)] if has_biases else []
        tensors.append(_bytes(rng, kind, outputs, batch, scale=1.0))
    rule = lambda f, t: f.configure(t[0], t[1], t[2] if has_biases else None, t[-1])  # noqa: E731 - see above
    return _case("NEFullyConnectedLayer", tensors, [], rule)


def _gemm(rng: Rng) -> Case:
    m, n, k = (int(v) for v in rng.integers(1, (9, 12, 20)))
    alpha, beta = (float(np.float32(v)) for v in rng.uniform(-2, 2, 2))
    tensors = [_floats(rng, k, m), _floats(rng, n, k), _floats(rng, n, m), _floats(rng, n, m)]
    return _case("NEGEMM", tensors, [alpha, beta], lambda f, t: f.configure(*t, alpha, beta), bound=4e-6)


def _quantization(rng: Rng) -> Case:
    sizes = (int(rng.integers(1, 40)), int(rng.integers(1, 4)))
    tensors = [_floats(rng, *sizes), _bytes(rng, BYTES[int(rng.integers(2))], *sizes)]
    return _case("NEQuantizationLayer", tensors, [], lambda f, t: f.configure(*t))


def _dequantization(rng: Rng) -> Case:
    sizes = (int(rng.integers(1, 40)), int(rng.integers(1, 4)))
    tensors = [_bytes(rng, BYTES[int(rng.integers(2))], *sizes), _floats(rng, *sizes)]
    return _case("NEDequantizationLayer", tensors, [], lambda f, t: f.configure(*t))


def _permute(rng: Rng, name: str = "NEPermute") -> Case:
    order = [int(n) for n in rng.permutation(3)]
    sizes = [int(n) for n in rng.integers(1, 7, 3)]
    tensors = [_floats(rng, *sizes), _floats(rng, *(sizes[n] for n in order))]
    return _case(name, tensors, list(map(float, order)), lambda f, t: f.configure(*t, PermutationVector(*order)), 0.0)


def _reshape(rng: Rng) -> Case:
    width, height, planes = (int(n) for n in rng.integers(1, 7, 3))
    tensors = [_floats(rng, width, height, planes), _floats(rng, width * planes, height)]
    return _case("NEReshapeLayer", tensors, [], lambda f, t: f.configure(*t), 0.0)


def _concatenation(name: str, along: int | None = None) -> Build:
    def case(rng: Rng) -> Case:
        axis, count = int(rng.integers(3)) if along is None else along, int(rng.integers(2, 4))
        sizes = [int(n) for n in rng.integers(1, 7, 3)]
        parts = [int(n) for n in rng.integers(1, 5, count)]
        shapes = [[part if n == axis else size for n, size in enumerate(sizes)] for part in (*parts, sum(parts))]
        tensors = [_floats(rng, *shape) for shape in shapes]
        more = [] if along is not None else [axis]
        return _case(name, tensors, [axis], lambda f, t: f.configure(t[:-1], t[-1], *more), 0.0)

    return case


def _two(name: str) -> Build:
    def case(rng: Rng) -> Case:
        sizes, kind = [int(n) for n in rng.integers(1, (20, 6, 4))], ("tF32", "tS32")[int(rng.integers(2))]
        tensors = [drawn(rng, kind, tuple(sizes), -1000, 1000) for _ in range(3)]
        return _case(name, tensors, [], lambda f, t: f.configure(*t), 0.0)

    return case


def _flatten(rng: Rng) -> Case:
    sizes = [int(n) for n in rng.integers(1, 6, 4)]
    tensors = [_floats(rng, *sizes), _floats(rng, int(np.prod(sizes[:3])), sizes[3])]
    return _case("NEFlattenLayer", tensors, [], lambda f, t: f.configure(*t), 0.0)


def _lowp(rng: Rng) -> Case:
    m, n, k = (int(v) for v in rng.integers(1, (12, 20, 40)))
    kind = BYTES[int(rng.integers(2))]
    tensors = [_bytes(rng, kind, k, m), _bytes(rng, kind, n, k), drawn(rng, "tS32", (n, m))]
    rule = lambda f, t: f.configure(t[0], t[1], None, t[2])  # noqa: E731 - as the others are given
    return _case("NEGEMMLowpMatrixMultiplyCore", tensors, [], rule)


def _channels_last(build: Build) -> Build:
    """The same case with images and kernels in NHWC."""

    def case(rng: Rng) -> Case:
        made = build(rng)
        for tensor in made.tensors:
            if len(tensor.sizes) < 3:
                continue
            width, height, channels, *others = tensor.sizes
            tensor.kind, tensor.sizes = f"n{tensor.kind[1:]}", (channels, width, height, *others)
            tensor.planes = [np.ascontiguousarray(np.moveaxis(plane, -3, -1)) for plane in tensor.planes]
        return made

    return case


NEURAL: dict[str, Build] = {
    "NEActivationLayer": _layer_activation,
    "NESoftmaxLayer": _softmax,
    "NEPoolingLayer": _pooling,
    "NENormalizationLayer": _normalization,
    "NEBatchNormalizationLayer": _batch_normalization,
    "NEGEMMConvolutionLayer": _convolution("NEGEMMConvolutionLayer", ("tF32", *BYTES)),
    "NEDirectConvolutionLayer": _convolution("NEDirectConvolutionLayer", side=1),
    "NEWinogradConvolutionLayer": _convolution("NEWinogradConvolutionLayer", side=3),
    "NEConvolutionLayer": _convolution("NEConvolutionLayer", ("tF32", *BYTES)),
    "NEDepthwiseConvolutionLayer": _convolution("NEDepthwiseConvolutionLayer", ("tF32", *BYTES)),
    "NEFullyConnectedLayer": _connected,
    "NEGEMM": _gemm,
    "NEQuantizationLayer": _quantization,
    "NEDequantizationLayer": _dequantization,
    "NEPermute": _permute,
    "NEReshapeLayer": _reshape,
    "CPPPermute": lambda rng: _permute(rng, "CPPPermute"),
    "NEConcatenateLayer": _concatenation("NEConcatenateLayer"),
    "NEWidthConcatenateLayer": _concatenation("NEWidthConcatenateLayer", 0),
    "NEHeightConcatenateLayer": _concatenation("NEHeightConcatenateLayer", 1),
    "NEDepthConcatenateLayer": _concatenation("NEDepthConcatenateLayer", 2),
    **{name: _two(name) for name in ("NEElementwiseAddition", "NEElementwiseMax", "NEElementwiseMin")},
    "NEFlattenLayer": _flatten,
    "NEGEMMLowpMatrixMultiplyCore": _lowp,
    "NEConvolutionLayer by channel": _by_channel("NEConvolutionLayer"),
    "NEDepthwiseConvolutionLayer by channel": _by_channel("NEDepthwiseConvolutionLayer"),
    "NEFullyConnectedLayer images": _connected_image,
    **{f"{name} dilated": _dilated(name) for name in ("NEConvolutionLayer", "NEDepthwiseConvolutionLayer")},
}
_IMAGES = ("NEPoolingLayer", "NEBatchNormalizationLayer", "NENormalizationLayer", "NEFullyConnectedLayer images")
_WITH_CHANNELS = [name for name in NEURAL if "Convolution" in name or name in _IMAGES]
NEURAL |= {f"{name} NHWC": _channels_last(NEURAL[name]) for name in _WITH_CHANNELS}
