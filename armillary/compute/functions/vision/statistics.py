"""What an image holds as a whole: histogram, mean and deviation, extremes with their places, running sums.

In: an image of U8 (S16 and F32 where it says so). Out: numbers in objects that users give, or an image. Invariant:
threads count for themselves; the sums are joined once, so that any number of threads gives the same.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from armillary.base.boundary import bounded
from armillary.compute.core.kernel import IKernel, ThreadInfo
from armillary.compute.core.loops import BANDS, Loops, LoopsKernel, Plane
from armillary.compute.core.regions import sides_of
from armillary.compute.core.tensor_info import DataType
from armillary.compute.core.window import Dimension, Window
from armillary.compute.functions.arguments import wrong_type
from armillary.compute.functions.configured import ConfiguredFunction
from armillary.compute.functions.vision.arithmetic import Lut
from armillary.compute.functions.vision.base import RunsKernels, VisionFunction, Work
from armillary.compute.runtime.tensor import Array, Tensor
from armillary.errors import ExecutionError, TypeMismatch
from armillary.tir import build as T
from armillary.tir.expr import Expr
from armillary.tir.ir_builder import IRBuilder

U8, S16, U32, F32 = DataType.U8, DataType.S16, DataType.U32, DataType.F32
_ZERO = T.const(0)
_COPIES = 4  # counters for each value: neighbours of the same value do not wait for one another
COUNTERS: int = 256 * _COPIES


def _count(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
    image, counts = planes
    with ib.for_range(0, rows, "row") as row:
        with ib.for_range(0, T.floordiv(columns, T.const(_COPIES)), "step") as step:
            for copy in range(_COPIES):
                value = image[T.add(y0, row), T.add(T.mul(step, T.const(_COPIES)), T.const(copy))]
                place = ib.let(f"at{copy}", T.add(T.cast(value, "int32"), T.const(256 * copy)))
                counts[_ZERO, place] = T.add(counts[_ZERO, place], T.const(1, "int32"))
        first = T.mul(T.floordiv(columns, T.const(_COPIES)), T.const(_COPIES))
        with ib.for_range(0, T.sub(columns, first), "rest") as rest:
            value = image[T.add(y0, row), T.add(first, rest)]
            place = ib.let("at", T.cast(value, "int32"))
            counts[_ZERO, place] = T.add(counts[_ZERO, place], T.const(1, "int32"))


def _add_up(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
    image, sums = planes
    with ib.for_range(0, rows, "row") as row, ib.for_range(0, columns, "x") as x:
        value = ib.let("value", T.cast(image[T.add(y0, row), x], "int64"))
        sums[_ZERO, _ZERO] = T.add(sums[_ZERO, _ZERO], value)
        sums[_ZERO, T.const(1)] = T.add(sums[_ZERO, T.const(1)], T.mul(value, value))


def _extremes(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
    image, found = planes
    with ib.for_range(0, rows, "row") as row, ib.for_range(0, columns, "x") as x:
        value = ib.let("value", image[T.add(y0, row), x])
        found[_ZERO, _ZERO] = T.minimum(found[_ZERO, _ZERO], value)
        found[_ZERO, T.const(1)] = T.maximum(found[_ZERO, T.const(1)], value)


def _integrate(ib: IRBuilder, planes: Sequence[Plane], y0: Expr, rows: Expr, columns: Expr) -> None:
    image, total = planes
    running = ib.allocate("int32", (1,), "running")
    with ib.for_range(0, rows, "row") as row:
        y = T.add(y0, row)
        running[0] = T.const(0, "int32")
        with ib.for_range(0, columns, "x") as x:
            running[0] = T.add(running[0], T.cast(image[y, x], "int32"))
            above = T.cast(total[T.maximum(T.sub(y, T.const(1)), _ZERO), x], "int32")
            here = T.select(T.greater(y, _ZERO), above, T.const(0, "int32"))
            total[y, x] = T.cast(T.add(running[0], here), "uint32")


COUNTS: Loops = Loops("count_values", ("uint8",), _count, "int32")
SUMS: Loops = Loops("add_up", ("uint8",), _add_up, "int64")
INTEGRAL = Loops("integral_image", ("uint8", "uint32"), _integrate)
EXTREMES: dict[DataType, Loops] = {
    k: Loops(f"extremes_{k.name}", (k.dtype,), _extremes, k.dtype) for k in (U8, S16, F32)
}


class Counting(ConfiguredFunction):
    """A kernel over the valid pixels with a row of partial results for each band."""

    _bands: ClassVar[int] = BANDS
    side: ClassVar[str] = "NE"

    def __init__(self) -> None:
        self._work: RunsKernels | None = None
        self._input: Tensor | None = None

    def _set(self, loops: Loops, input: Tensor, values: int) -> None:
        self._input, self._counts = input, np.zeros((self._bands, values), loops.partial)
        self._sides = sides_of(input.info().valid_region())
        self._work = self._counting(loops, input)

    def _counting(self, loops: Loops, input: Tensor) -> RunsKernels:
        kernel = LoopsKernel(loops)
        kernel.configure([input], self._counts, self._sides)
        return Work([kernel])

    def _partial(self, start: Sequence[float] | int = 0) -> Array:
        """What each band has found."""
        if self._work is None:
            raise ExecutionError(f"{type(self).__name__} is not configured", hint="call configure first")
        self._counts[...] = start
        self._work.run()
        return self._counts

    def _values(self) -> Array:
        """The valid pixels."""
        assert self._input is not None, "configure sets it"
        x, y, right, bottom = self._sides
        return self._input.read()[y:bottom, x:right]


@bounded
class Distribution1D:
    """Counts in `num_bins` bins over [offset, offset + range)."""

    def __init__(self, num_bins: int, offset: int, range: int) -> None:
        if not (1 <= num_bins <= range and offset >= 0 and offset + range <= 256):
            message = f"{num_bins} bins over {range} values from {offset}"
            raise TypeMismatch(f"Distribution1D: {message}, wanted 1 to 256 values of a byte and no more bins")
        self._bins, self._offset, self._range = num_bins, offset, range
        self._counts = np.zeros(num_bins, np.uint32)

    def num_bins(self) -> int:
        """How many counts there are."""
        return self._bins

    def offset(self) -> int:
        """The first value that counts."""
        return self._offset

    def range(self) -> int:
        """How many values count."""
        return self._range

    def buffer(self) -> Array:
        """The counts of all bins."""
        return self._counts

    def bin_of(self) -> Array:
        """The bin of each value from `offset` on."""
        return np.arange(self._range) * self._bins // self._range


def _histogram(counting: Counting) -> Array:
    """How often each value of a byte is there."""
    counts: Array = counting._partial().reshape(-1, 256).sum(0)
    return counts


class NEHistogramKernel(IKernel):
    """Counts the pixels of rows in memory of the caller's, and adds what a thread has counted to the bins.

    `local_hist` holds `memory_needed_per_thread() * num_threads` bytes; a thread uses the part that its number says.
    `window_lut` gets the bin of each value of a byte.
    """

    def __init__(self) -> None:
        super().__init__()
        self._joining = threading.Lock()

    def memory_needed_per_thread(self) -> int:
        """Bytes that a thread counts in."""
        return COUNTERS * np.dtype(COUNTS.partial).itemsize

    def configure(self, input: Tensor, output: Distribution1D, local_hist: Array, window_lut: Array) -> None:
        """Set the image, where the counts go, and the memory that threads use."""
        name, info = type(self).__name__, input.info()
        wrong = wrong_type("the input", info, [U8])
        if wrong:
            raise TypeMismatch(f"{name}: {wrong}")
        needed = self.memory_needed_per_thread()
        if not local_hist.flags.c_contiguous or local_hist.nbytes < needed or window_lut.size < 256:
            message = f"local_hist has {local_hist.nbytes} bytes in a row, window_lut {window_lut.size} values"
            raise TypeMismatch(f"{name}: {message}", hint=f"wanted {needed} for each thread, and 256")
        bins = np.full(256, output.num_bins())  # a value outside the range falls in no bin
        bins[output.offset() : output.offset() + output.range()] = output.bin_of()
        window_lut[:256] = bins
        self._input, self._output, self._bins = input, output, window_lut
        self._rows = local_hist.reshape(-1).view(np.uint8)[: local_hist.nbytes // needed * needed].reshape(-1, needed)
        x, y, right, bottom = sides_of(info.valid_region())
        self.configure_window(Window(Dimension(x, right), Dimension(y, bottom)))

    def _run(self, window: Window, info: ThreadInfo) -> None:
        if info.thread_id >= len(self._rows):
            message = f"NEHistogramKernel: thread {info.thread_id}, but local_hist is for {len(self._rows)} threads"
            raise ExecutionError(message, hint="it holds memory_needed_per_thread() * num_threads bytes")
        counts, counter = self._rows[info.thread_id].view(COUNTS.partial)[None], LoopsKernel(COUNTS, False)
        counts[...] = 0
        sides = (window.x().start(), window.y().start(), window.x().end(), window.y().end())
        counter.configure([self._input], counts, sides)
        counter.run(counter.window(), ThreadInfo())
        sums = np.bincount(self._bins[:256], counts.reshape(-1, 256).sum(0), self._output.num_bins() + 1)
        with self._joining:
            self._output.buffer()[...] += sums[:-1].astype(np.uint32)


class Histogram(Counting):
    """How many pixels fall in each bin."""

    def _bind(self, input: Tensor, output: Distribution1D) -> None:
        self._set(COUNTS, input, COUNTERS)
        self._output = output

    def run(self) -> None:
        """Count the pixels of each bin."""
        values = _histogram(self)
        first, output = self._output.offset(), self._output
        counted = values[first : first + output.range()]
        is_whole = output.num_bins() == output.range()
        output.buffer()[...] = counted if is_whole else np.bincount(output.bin_of(), counted, output.num_bins())


class EqualizeHistogram(Counting):
    """Values by how many pixels are at most as bright."""

    lut_type: ClassVar[type[Lut]] = Lut

    def _bind(self, input: Tensor, output: Tensor) -> None:
        self._set(COUNTS, input, COUNTERS)
        self._table, self._lookup = self.lut_type(256, U8), self.class_of(self.side + "TableLookup")()
        self._lookup.configure(input, self._table, output)

    def run(self) -> None:
        """Count, make the table, look up."""
        sums = np.cumsum(_histogram(self))
        total, least = int(sums[-1]), int(sums[sums > 0][0])
        if total == least:
            table = np.arange(256)
        else:
            part = np.maximum(sums - least, 0).astype(np.float32) / np.float32(total - least)
            table = (part * np.float32(255.0) + np.float32(0.5)).astype(np.uint8)
        self._table.fill(table)
        self._lookup.run()


class Scalar:
    """A number that a function writes."""

    def __init__(self) -> None:
        self.value: float = 0


class MeanStdDev(Counting):
    """The mean and the standard deviation of all pixels."""

    def _bind(self, input: Tensor, mean: Scalar, stddev: Scalar | None) -> None:
        self._set(SUMS, input, 2)
        self._mean, self._deviation = mean, stddev

    def run(self) -> None:
        """Add up the pixels, then their squares where the deviation is wanted."""
        total, squares = (int(v) for v in self._partial().sum(0))
        count = self._values().size
        mean = total / count
        self._mean.value = mean
        if self._deviation is not None:
            self._deviation.value = math.sqrt(max(0.0, squares / count - mean * mean))


class MinMaxLocation(Counting):
    """The least and the greatest value, how often they are there, and where."""

    def _bind(
        self,
        input: Tensor,
        min: Scalar,
        max: Scalar,
        min_loc: list[tuple[int, int]] | None,
        max_loc: list[tuple[int, int]] | None,
        min_count: Scalar | None,
        max_count: Scalar | None,
    ) -> None:
        self._set(EXTREMES[input.info().data_type], input, 2)
        self._found = ((min, min_loc, min_count), (max, max_loc, max_count))

    def run(self) -> None:
        """Search the picture for its least and greatest values, and where they are."""
        values = self._values()
        first = values.flat[0]
        partial = self._partial([first, first])
        ends = (partial[:, 0].min(), partial[:, 1].max())
        for end, (scalar, places, count) in zip(ends, self._found, strict=True):
            scalar.value = end.item()
            if places is not None or count is not None:
                rows, columns = np.nonzero(values == end)
                if count is not None:
                    count.value = len(rows)
                if places is not None:
                    x, y = self._sides[:2]
                    places[:] = list(zip((columns + x).tolist(), (rows + y).tolist(), strict=True))


class IntegralImage(VisionFunction):
    """The sum of all valid pixels above and to the left, a pixel's own included, as U32."""

    def _bind(self, input: Tensor, output: Tensor) -> None:
        kernel = LoopsKernel(INTEGRAL, is_parallel=False)
        region = input.info().valid_region()
        kernel.configure([input, output], sides=sides_of(region))
        output.info().set_valid_region(region)
        self._set_kernels([kernel])
