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
from armillary.compute.core.window import Coordinates, Window

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
        self.move(Coordinates(*(window[n].start() for n in range(len(self._info.shape)))))

    def move(self, place: Coordinates) -> None:
        """Go to a place."""
        self._offset = self._info.offset_element_in_bytes(place)

    def offset(self) -> int:
        """Bytes from the beginning of the buffer."""
        return self._offset

    def ptr(self) -> Bytes:
        """The bytes from the element on."""
        return self._buffer[self._offset :]


@boundary("execute_window_loop", arguments=True)
def execute_window_loop(window: Window, function: Callable[[Coordinates], None], *iterators: Iterator) -> None:
    """Call a function for each place of a window, with the iterators there."""
    for place in window.places():
        for iterator in iterators:
            iterator.move(place)
        function(place)
