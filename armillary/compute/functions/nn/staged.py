"""Convolutions and products as stages that a scheduler splits one by one: the mode `stages=True` of the layers.

In: tensors of float32 (width, height, channels, batch), how a kernel moves, a method. Out: `StagedPipeline`: kernels in
the text's order, and those that run once over the weights. Invariant: memory between stages is managed: its lifetime
begins with the stage that writes it and ends with the last one that reads it. Kernels: `functions/stages/`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping

import numpy as np

from armillary.base.record import record
from armillary.compute.core.kernel import IKernel
from armillary.compute.core.layout import DataLayout
from armillary.compute.core.tensor_info import DataType, TensorInfo, TensorShape
from armillary.compute.core.types import ActivationFunction, ActivationLayerInfo, ConvolutionMethod
from armillary.compute.core.window import Window
from armillary.compute.functions.nn.body import Body
from armillary.compute.functions.stages import fourier, images, products, tiles, winograd
from armillary.compute.functions.stages.stage import LANES, Stage, StageKernel
from armillary.compute.functions.vision.base import Work
from armillary.compute.runtime.memory.manager import MemoryGroup, MemoryManagerOnDemand
from armillary.compute.runtime.tensor import Tensor

Numbers = dict[str, int | float]


@record(slots=True)
class Moves:
    """A convolution: image, kernel and output as (x, y), padding as (left, top)."""

    batch: int
    channels: int
    outputs: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    output: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    act_info: ActivationLayerInfo | None

    def limits(self) -> Numbers:
        """Between which values an output stays."""
        return limits(self.act_info)

    def numbers(self) -> Numbers:
        """What kernels take of it."""
        pairs = {"kernel": self.kernel, "stride": self.stride, "dilation": self.dilation}
        flat: Numbers = {f"{name}_{axis}": value[n] for name, value in pairs.items() for n, axis in enumerate("xy")}
        flat |= {"channels": self.channels, "outputs": self.outputs}
        return flat | {"out_rows": self.output[1], "out_columns": self.output[0]}

    def padded(self, columns: int) -> tuple[int, int]:
        """Columns and rows of an image with its border, of which so many output columns read."""
        last = (columns - 1, self.output[1] - 1)
        ends = [last[n] * self.stride[n] + (self.kernel[n] - 1) * self.dilation[n] + 1 for n in (0, 1)]
        return max(ends[0], self.pad[0] + self.size[0]), max(ends[1], self.pad[1] + self.size[1])


def limits(act_info: ActivationLayerInfo | None) -> Numbers:
    """Between which values an activation that clamps leaves its input."""
    which = act_info.activation if act_info else None
    high = act_info.a if act_info and which not in (None, ActivationFunction.RELU) else math.inf
    low = act_info.b if act_info and which is ActivationFunction.LU_BOUNDED_RELU else 0.0 if which else -math.inf
    return {"low": low, "high": high}


def objection_to_stages(input: TensorInfo, groups: int, act_info: ActivationLayerInfo | None) -> str:
    """Why a layer has no stages, "" where it has."""
    clamps = (ActivationFunction.RELU, ActivationFunction.BOUNDED_RELU, ActivationFunction.LU_BOUNDED_RELU, None)
    if input.data_type is not DataType.F32:
        return f"stages compute F32, the input is {input.data_type.name}"
    if input.data_layout() is not DataLayout.NCHW:
        return f"stages take the layout NCHW, the input has {input.data_layout().name}"
    if groups != 1:
        return f"stages take one group, got {groups}"
    if act_info is not None and act_info.activation not in clamps:
        return f"stages take an activation that clamps, got {act_info.activation}"
    return ""


@record(slots=True)
class Step:
    """A stage with what it is bound to; `image` is the tensor whose padding its numbers tell."""

    stage: Stage
    tensors: tuple[Tensor, ...]
    count: int
    numbers: Mapping[str, int | float]
    image: Tensor | None = None

    def kernel(self) -> StageKernel:
        """The kernel, over tensors whose padding is what it stays."""
        placed = _places(self.image.info()) if self.image is not None else {}
        return StageKernel(self.stage, self.tensors, self.count, {**self.numbers, **placed})


def _places(info: TensorInfo) -> Numbers:
    _, pitch, plane, *_ = info.strides_in_bytes()
    return {"offset": info.offset_first_element_in_bytes() // 4, "pitch": pitch // 4, "plane": plane // 4}


class Plan:
    """Steps as they are written down: those of each run, those that run once, and the memory between them."""

    def __init__(self, memory_manager: MemoryManagerOnDemand | None) -> None:
        self.group = MemoryGroup(memory_manager)
        self.once: list[Step] = []
        self.each: list[Step] = []
        self.fills: list[tuple[Tensor, Callable[[], np.ndarray[tuple[int, ...], np.dtype[np.float32]]]]] = []

    def begin(self, size: int) -> Tensor:
        """Memory whose lifetime begins here."""
        tensor = _floats(size)
        self.group.manage(tensor)
        return tensor

    def end(self, *tensors: Tensor) -> None:
        """Let the lifetimes of the stages' tensors end."""
        for tensor in tensors:
            tensor.allocator().allocate()

    def constant(self, size: int) -> Tensor:
        """Memory of the function's own, for what is computed once."""
        tensor = _floats(size)
        tensor.allocator().allocate()
        return tensor

    def weights(self, body: Body, name: str, size: int = 0) -> Tensor:
        """A copy of weights, taken before the first run, filled up with zeros; zeros where there are none."""
        has = name in body.weights
        tensor = self.constant(max(size, math.prod(body.shapes[name]) if has else 1))
        if has:
            self.fills.append((tensor, lambda: body.values_of(name).ravel()))
        return tensor


def _floats(size: int) -> Tensor:
    tensor = Tensor()
    tensor.allocator().init(TensorInfo(TensorShape(size), 1, DataType.F32))
    return tensor


class StagedPipeline:
    """Steps over tensors: those of the weights at the first run (or `prepare`), the others at each."""

    def __init__(self, body: Body, plan: Plan) -> None:
        self.body, self._plan = body, plan
        self._lock = threading.Lock()
        self._work: Work | None = None
        self._are_weights_taken = False
        if body.has_constant_weights():
            self._take_weights()  # who knows them may free them now

    def once_kernels(self) -> tuple[IKernel, ...]:
        """What `prepare` does, in order."""
        return tuple(step.kernel() for step in self._plan.once)

    def prepare(self) -> None:
        """Transform the weights, unless it is done."""
        with self._lock:
            if self._work is not None:
                return
            self._take_weights()
            self._work = Work([step.kernel() for step in self._plan.each], Window.DimX)

    def _take_weights(self) -> None:
        if self._are_weights_taken:
            return
        for tensor, values in self._plan.fills:
            taken = values()
            tensor.array()[: taken.size] = taken
        Work(self.once_kernels(), Window.DimX).run()
        self._are_weights_taken = True

    def kernels(self) -> tuple[IKernel, ...]:
        """What a run does, in order."""
        self.prepare()
        assert self._work is not None, "prepare sets it"
        return self._work.kernels()

    def run(self) -> None:
        """Run each stage on the scheduler in place."""
        with self._plan.group:
            self.prepare()
            assert self._work is not None, "prepare sets it"
            self._work.run()


def _bordered(plan: Plan, moves: Moves, input: Tensor, columns: int) -> tuple[Tensor, Numbers]:
    """The image with its border, in memory of its own."""
    width, height = moves.padded(columns)
    planes = moves.batch * moves.channels
    out = plan.begin(planes * width * height)
    sizes: Numbers = {"padded": width, "padded_rows": height}
    own: Numbers = {"rows": moves.size[1], "columns": moves.size[0], "top": moves.pad[1], "left": moves.pad[0]}
    plan.each.append(Step(images.FILL_BORDER, (input, out), planes, sizes | own, input))
    return out, sizes


def _direct(plan: Plan, body: Body, moves: Moves, input: Tensor, output: Tensor) -> None:
    image, sizes = _bordered(plan, moves, input, -(-moves.output[0] // LANES) * LANES)
    weights, biases = plan.weights(body, "w"), plan.weights(body, "b", moves.outputs)
    numbers = moves.numbers() | sizes | moves.limits()
    count = moves.batch * -(-moves.outputs // images.OUTPUTS)
    stage = images.direct(moves.stride[0] == 1)
    plan.each.append(Step(stage, (image, weights, biases, output), count, numbers, output))
    plan.end(image)


def _gemm(plan: Plan, body: Body, moves: Moves, input: Tensor, output: Tensor) -> None:
    rows, terms = moves.batch * moves.output[0] * moves.output[1], moves.channels * math.prod(moves.kernel)
    tile, lines = products.best_tile(rows, moves.outputs), moves.batch * moves.output[1]
    whole_rows, whole = tile.whole(rows, moves.outputs)
    weights, biases = plan.weights(body, "w"), plan.weights(body, "b", moves.outputs)
    turned, panels = plan.constant(terms * moves.outputs), plan.constant(terms * whole)
    of_weights: Numbers = {"terms": terms, "outputs": moves.outputs, "columns": moves.outputs, "offset": 0}
    of_weights["pitch"] = moves.outputs
    plan.once += [
        Step(images.RESHAPE_WEIGHTS, (weights, turned), terms, of_weights),
        Step(products.transpose(tile), (turned, panels), whole // tile.columns, of_weights),
    ]
    image, sizes = _bordered(plan, moves, input, moves.output[0])
    matrix = plan.begin(rows * terms)
    plan.each.append(Step(images.IM2COL, (image, matrix), lines, moves.numbers() | sizes))
    plan.end(image)
    blocks = plan.begin(whole_rows * terms)
    numbers: Numbers = {"rows": rows, "terms": terms, "offset": 0, "pitch": terms, "columns": whole, "whole": whole}
    count = whole_rows // tile.rows
    plan.each.append(Step(products.interleave(tile), (matrix, blocks), count, numbers))
    plan.end(matrix)
    product = plan.begin(whole_rows * whole)
    plan.each.append(Step(products.blocked_gemm(tile), (blocks, panels, product), count, numbers))
    plan.end(blocks)
    placed = moves.numbers() | moves.limits() | {"whole": whole}
    plan.each.append(Step(images.COL2IM, (product, biases, output), lines, placed, output))
    plan.end(product)


# Stages one after another: a stage, how much it writes, how many iterations it has, its numbers.
_Link = tuple[Stage, int, int, Numbers]


def _chain(plan: Plan, tensor: Tensor, *links: _Link) -> Tensor:
    """Stages of each run, each of what the one before wrote."""
    for stage, size, count, numbers in links:
        out = plan.begin(size)
        plan.each.append(Step(stage, (tensor, out), count, numbers))
        plan.end(tensor)
        tensor = out
    return tensor


def _chain_once(plan: Plan, tensor: Tensor, *links: _Link) -> Tensor:
    """Stages that run once."""
    for stage, size, count, numbers in links:
        out = plan.constant(size)
        plan.once.append(Step(stage, (tensor, out), count, numbers))
        tensor = out
    return tensor


class _Tiled:
    """What a convolution by transforms of tiles has, of so many outputs along x and y and so many products."""

    def __init__(self, plan: Plan, body: Body, moves: Moves, tile: tuple[int, int], products: int) -> None:
        self.plan, self.moves, self.products = plan, moves, products
        self.whole, self.whole_outputs = (-(-n // LANES) * LANES for n in (moves.channels, moves.outputs))
        across, down = (-(-n // side) for n, side in zip(moves.output, tile, strict=True))
        self.lines, self.tiles = moves.batch * down, moves.batch * down * across
        self.whole_tiles = -(-self.tiles // tiles.TILE.rows) * tiles.TILE.rows
        self.weights, self.biases = plan.weights(body, "w"), plan.weights(body, "b", self.whole_outputs)
        sizes = moves.numbers() | {"whole": self.whole, "whole_channels": self.whole, "tile_x": tile[0]}
        sizes |= {"whole_outputs": self.whole_outputs, "whole_tiles": self.whole_tiles, "tile_y": tile[1]}
        sizes |= {"tile_rows": down, "tile_columns": across, "columns": moves.size[0], "rows": moves.size[1]}
        self.numbers: Numbers = sizes | {"left": moves.pad[0], "top": moves.pad[1]}
        outer: Numbers = {"whole": self.whole_outputs, "channels": moves.outputs}
        outer |= {"rows": moves.output[1], "columns": moves.output[0]}
        self.outer = self.numbers | outer | moves.limits()

    def image(self, input: Tensor) -> Tensor:
        """The input with channels last."""
        lines, out = self.moves.batch * self.moves.size[1], math.prod(self.moves.size) * self.moves.batch
        image = self.plan.begin(out * self.whole)
        self.plan.each.append(Step(tiles.PERMUTE_INPUT, (input, image), lines, self.numbers, input))
        return image

    def multiply(self, points: Tensor, panels: Tensor) -> Tensor:
        """The products."""
        product = self.plan.begin(self.products * self.whole_tiles * self.whole_outputs)
        step = Step(tiles.BATCHED_GEMM, (points, panels, product), self.products, self.numbers)
        self.plan.each.append(step)
        self.plan.end(points)
        return product

    def finish(self, stage: Stage, values: Tensor, output: Tensor) -> None:
        """The stage that writes pixels, then channels in front again."""
        lines = self.moves.batch * self.moves.output[1]
        image = self.plan.begin(lines * self.moves.output[0] * self.whole_outputs)
        self.plan.each.append(Step(stage, (values, self.biases, image), self.lines, self.outer))
        self.plan.end(values)
        self.plan.each.append(Step(tiles.PERMUTE_OUTPUT, (image, output), lines, self.outer, output))
        self.plan.end(image)


def _winograd(plan: Plan, body: Body, moves: Moves, input: Tensor, output: Tensor) -> None:
    side = winograd.tile_of(moves.size)
    products = winograd.side_of(side) ** 2
    t = _Tiled(plan, body, moves, (side, side), products)
    kernels, n = t.whole * t.whole_outputs, t.numbers
    panels = _chain_once(
        plan,
        t.weights,
        (winograd.PERMUTE_WEIGHTS, 9 * kernels, t.whole, n),
        (winograd.transform_weights(side), products * kernels, t.whole_outputs // LANES, n),
    )
    points = products * t.whole_tiles * t.whole
    tiled = _chain(plan, t.image(input), (winograd.transform_input(side), points, t.lines, n))
    t.finish(winograd.transform_output(side), t.multiply(tiled, panels), output)


def _fourier(plan: Plan, body: Body, moves: Moves, input: Tensor, output: Tensor) -> None:
    tile = tuple(fourier.LARGEST + 2 - side for side in moves.kernel)
    t = _Tiled(plan, body, moves, (tile[0], tile[1]), fourier.POINTS)
    kernels, whole, n = t.whole * t.whole_outputs, t.whole, t.numbers
    side = fourier.LARGEST + 1
    # Weights are images of one tile, a batch of channels whose channels are outputs.
    placed: Numbers = {"whole": t.whole_outputs, "rows": side, "columns": side, "left": 0, "top": 0}
    placed |= {
        "tile_rows": 1,
        "tile_columns": 1,
        "point_step": kernels,
        "tile_step": LANES,
        "vector_step": whole * LANES,
    }
    panels = _chain_once(
        plan,
        t.weights,
        (fourier.PLACE_WEIGHTS, fourier.PLACES * kernels, whole, n),
        (fourier.ROWS, fourier.PLACES * kernels, whole, n | placed),
        (fourier.COLUMNS_OF_WEIGHTS, fourier.POINTS * kernels, whole, n | placed),
    )
    n = n | {"point_step": t.whole_tiles * whole, "tile_step": whole, "vector_step": LANES}
    points = _chain(
        plan,
        t.image(input),
        (fourier.ROWS, fourier.PLACES * t.tiles * whole, t.lines, n),
        (fourier.COLUMNS, fourier.POINTS * t.whole_tiles * whole, t.lines, n),
    )
    back = (fourier.COLUMNS_BACK, fourier.PLACES * t.tiles * t.whole_outputs, t.lines, t.outer)
    t.finish(fourier.ROWS_BACK, _chain(plan, t.multiply(points, panels), back), output)


_METHODS: Mapping[ConvolutionMethod, Callable[[Plan, Body, Moves, Tensor, Tensor], None]] = {
    ConvolutionMethod.DIRECT: _direct,
    ConvolutionMethod.GEMM: _gemm,
    ConvolutionMethod.WINOGRAD: _winograd,
    ConvolutionMethod.FFT: _fourier,
}


def staged_convolution(
    method: ConvolutionMethod, body: Body, moves: Moves, memory_manager: MemoryManagerOnDemand | None
) -> StagedPipeline:
    """The stages of a method; `body` has the input `x`, weights `w` and, if there are any, biases `b`."""
    plan = Plan(memory_manager)
    _METHODS[method](plan, body, moves, body.inputs["x"], body.output)
    return StagedPipeline(body, plan)


def staged_product(
    body: Body, scales: tuple[float, float], act_info: ActivationLayerInfo | None, manager: MemoryManagerOnDemand | None
) -> StagedPipeline:
    """alpha * a * b + beta * c of the body's tensors; a `b` among the weights is transposed once."""
    plan, a, (rows, terms), columns = Plan(manager), body.inputs["a"], body.shapes["a"], body.shapes["b"][1]
    tile = products.best_tile(rows, columns)
    whole_rows, whole = tile.whole(rows, columns)
    numbers: Numbers = {"rows": rows, "terms": terms, "columns": columns, "offset": 0, "pitch": columns}
    count, panels_count = whole_rows // tile.rows, whole // tile.columns
    if "b" in body.weights:
        panels = plan.constant(terms * whole)
        plan.once.append(Step(products.transpose(tile), (plan.weights(body, "b"), panels), panels_count, numbers))
    else:
        b, panels = body.inputs["b"], plan.begin(terms * whole)
        plan.each.append(Step(products.transpose(tile), (b, panels), panels_count, numbers, b))
    blocks = plan.begin(whole_rows * terms)
    plan.each.append(Step(products.interleave(tile), (a, blocks), count, numbers, a))
    product, wide = plan.begin(whole_rows * whole), numbers | {"columns": whole}
    plan.each.append(Step(products.blocked_gemm(tile), (blocks, panels, product), count, wide))
    plan.end(blocks, *(() if "b" in body.weights else (panels,)))
    added: Numbers = {"alpha": scales[0], "beta": scales[1], "whole": whole, "c_pitch": 0, "c_step": 0, "c_offset": 0}
    c = body.inputs.get("c")
    if c is not None:
        places = _places(c.info())
        added |= {"c_pitch": places["pitch"], "c_offset": places["offset"], "c_step": 1}
    outer = (product, plan.constant(1) if c is None else c, body.output)
    plan.each.append(Step(products.MATRIX_ADDITION, outer, rows, numbers | added | limits(act_info), body.output))
    plan.end(product)
    return StagedPipeline(body, plan)
