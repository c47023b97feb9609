"""Darknet's `.weights` files: three numbers of the version, the images seen, then float32 values in layers' order.

In: the bytes. Out: arrays, taken one after another as the layers ask for them. Invariant: each is checked against what
the file has left before anything is allocated, and nothing may be left at the end; so the weights of another network
are an error. See layers.py.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from armillary.base.aliases import Array
from armillary.errors import ModelError, Span

_TRANSPOSED = 1000  # from this version on, products are stored by input
_HINT = "the .cfg and the .weights have to be of one network"


class WeightReader:
    """A place in a file of weights."""

    def __init__(self, data: bytes, path: str) -> None:
        self.data, self.path = data, path
        if len(data) < 16:
            raise ModelError(f"it is no file of weights: {len(data)} bytes, the header has 16", span=Span(path))
        major, minor, _ = struct.unpack_from("<3i", data)
        if not (0 <= major < 1 << 16 and 0 <= minor < 1 << 16):
            raise ModelError(f"it is no file of weights: version {major}.{minor}", span=Span(path))
        self.is_transposed = major > _TRANSPOSED or minor > _TRANSPOSED
        is_wide = major * 10 + minor >= 2 and major < _TRANSPOSED and minor < _TRANSPOSED
        self.at = 20 if is_wide else 16  # the count of images has 64 bits since version 0.2

    def take(self, title: str, *shape: int) -> Array:
        """The next values, for a layer that messages call `title`."""
        count = math.prod(shape)
        left = max(len(self.data) - self.at, 0) // 4
        if count > left:
            message = f"it ends early: {title} reads {count} values, {left} are left"
            raise ModelError(message, span=Span(self.path), hint=_HINT)
        array = np.frombuffer(self.data, "<f4", count, self.at).reshape(shape)
        self.at += 4 * count
        return array

    def finish(self, layers: int) -> None:
        """Raise ModelError where values are left."""
        left = len(self.data) - self.at
        if left:
            message = f"{left} bytes are left behind the weights of {layers} layers"
            raise ModelError(message, span=Span(self.path), hint=_HINT)
