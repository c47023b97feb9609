"""Iterators over tensors: a pointer for each place of a window.

In: a tensor, a window, a function. Out: calls of the function with coordinates, the iterators moved along. Invariant:
`ptr` is a view of the bytes from the element at the present place on; the first dimension changes fastest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from armillary.base.boundary import boundary, bounded
from armillary.compute.core.tensor_info import TensorInfo
from armillary.compute.core.traced import Pointer, Trace, Untraceable, traced
from armillary.compute.core.window import NUM_MAX_DIMENSIONS, Coordinates, Window

Bytes = npt.NDArray[np.uint8]


class HasMemory(Protocol):
    """A tensor, as an iterator sees it."""

    def info(self) -> TensorInfo:
        """Shape and strides."""

    def buffer(self) -> Bytes:
        """All bytes, padding included."""


@bounded
class Iterator:
    """Stands at an element of a tensor."""

    def __init__(self, tensor: HasMemory, window: Window) -> None:
        self._buffer, self._info, self.window = tensor.buffer(), tensor.info(), window
        self._pointer: Pointer | None = None  # while a body is traced
        self.move(Coordinates(*(window[n].start() for n in range(len(self._info.shape)))))

    def move(self, place: Coordinates) -> None:
        """Go to a place."""
        self._refuse_trace()
        self._offset = self._info.offset_element_in_bytes(place)

    def offset(self) -> int:
        """Bytes from the beginning of the buffer."""
        self._refuse_trace()
        return self._offset

    def ptr(self) -> Bytes:
        """The bytes from the element on."""
        if self._pointer is not None:
            return self._pointer  # type: ignore[return-value]  # what a traced body may ask of bytes
        return self._buffer[self._offset :]

    def trace(self, trace: Trace | None) -> None:
        """Stand for the bytes of all places while a body is traced; None: no more."""
        where = self._info.offset_element_in_bytes
        memory = trace.memory(self._buffer, lambda at: where(Coordinates(*at))) if trace is not None else None
        self._pointer = trace.pointer(memory) if trace is not None and memory is not None else None

    def _refuse_trace(self) -> None:
        if self._pointer is not None:
            raise Untraceable


@boundary("execute_window_loop", arguments=True)
def execute_window_loop(
    window: Window, function: Callable[[Coordinates], None], *iterators: Iterator, trace: bool = False
) -> bool:
    """Call a function for each place of a window, with the iterators there; returns whether a kernel did it.

    `trace`: call it once, with symbols for coordinates and pixels, and run what it does as a native kernel. For
    functions that do nothing but read and write pixels (`it.ptr()[0]`, `it.ptr().view(np.float32)[k]`) by arithmetic of
    them, of coordinates and of constants; where the call shows something else, the function is called for each place.
    """
    if trace and window.num_iterations_total() > 0 and _run_traced(window, function, iterators):
        return True
    for place in window.places():
        for iterator in iterators:
            iterator.move(place)
        function(place)
    return False


def _run_traced(window: Window, function: Callable[[Coordinates], None], iterators: tuple[Iterator, ...]) -> bool:
    def attach(trace: Trace | None) -> None:
        for iterator in iterators:
            iterator.trace(trace)

    try:
        run = traced(window, function, attach)
    except Untraceable:
        return False
    finally:
        attach(None)
    run()
    last = [window[n].start() + window[n].step() * (window.num_iterations(n) - 1) for n in range(NUM_MAX_DIMENSIONS)]
    for iterator in iterators:
        iterator.move(Coordinates(*last))
    return True
