"""Textures: two-dimensional images whose pixels hold four numbers, and how tensors lie in them.

In: a scope and a shape whose last axis has four elements. Out: rows and columns of the image. Invariant: an image holds
the elements in the order of memory, row after row, so that a copy from a buffer is a copy of bytes; the axes before a
scope's cut are its rows, those behind it, but the last, its columns. Who gives tensors these scopes:
`backends/opencl/graph/annotate_memory_scope.py`; who reads and writes images: `codegen/opencl/texel.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

PIXEL = 4  # numbers
LAST_CHANNELS = f"NHWC{PIXEL}c"  # the layout of images that come with their channels last
BUFFER = "global"
TEXTURE, WEIGHT, NHWC = "global.texture", "global.texture-weight", "global.texture-nhwc"
_CUTS: dict[str, Callable[[int], int]] = {
    TEXTURE: lambda rank: rank - 2,  # NCHW4c: N * C * H rows of W pixels
    WEIGHT: lambda rank: 1,  # OIHW4o: O rows of I * H * W pixels
    NHWC: lambda rank: 2 if rank > 3 else 1,  # NHWC4c: N * H rows of W * C pixels
}
SCOPES = tuple(_CUTS)


def is_texture(scope: str) -> bool:
    """Whether memory of a scope is an image."""
    return scope in _CUTS


def cut(scope: str, rank: int) -> int:
    """How many axes make up the rows."""
    return _CUTS[scope](rank)


def image_size(scope: str, shape: Sequence[int]) -> tuple[int, int]:
    """(Rows, columns) of the image of a tensor."""
    at = cut(scope, len(shape))
    return math.prod(shape[:at]), math.prod(shape[at:-1])
