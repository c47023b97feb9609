"""PPM and PGM files: binary P5 and P6 images in and out.

In: a path. Out: an image's information and contents, in grey (0.2126 R + 0.7152 G + 0.0722 B for colour files).
Invariant: a file that is damaged or not of this kind is refused by name before a pixel is written.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from armillary.base.boundary import boundary
from armillary.base.files import read_regular, regular, write_atomic
from armillary.compute.core.tensor_info import Format, TensorInfo
from armillary.compute.runtime.tensor import Bytes, Tensor
from armillary.errors import ArtifactError, ExecutionError, UnsupportedError

_HEADER = re.compile(rb"(P[56])(?:\s|#[^\n]*\n)+(\d{1,6})(?:\s|#[^\n]*\n)+(\d{1,6})(?:\s|#[^\n]*\n)+(\d{1,5})\s")
_GREY = np.array([0.2126, 0.7152, 0.0722], np.float32)


def read_pnm(path: str | Path) -> Bytes:
    """A binary PGM or PPM file as (rows, columns, 1 or 3 channels)."""
    try:
        data = read_regular(path, 1 << 32)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from None
    head = _HEADER.match(data)
    if head is None:
        raise ArtifactError(f"{path}: no binary PGM or PPM file (P5 or P6)")
    channels = 3 if head[1] == b"P6" else 1
    width, height, largest = (int(head[n]) for n in (2, 3, 4))
    size = width * height * channels
    if largest > 255 or size == 0 or len(data) - head.end() < size:
        raise ArtifactError(f"{path}: {width}x{height} pixels up to {largest} do not fit its {len(data)} bytes")
    return np.frombuffer(data, np.uint8, size, head.end()).reshape(height, width, channels)


def read_image(path: str | Path) -> Bytes:
    """An image as (rows, columns, red green blue): PPM and PGM by this module, other kinds by Pillow."""
    if Path(path).suffix.lower() in (".ppm", ".pgm", ".pnm"):
        return np.broadcast_to(read_pnm(path), (*read_pnm(path).shape[:2], 3))
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError(
            f"{path}: Pillow is not installed", hint="pip install pillow, or use a PPM file"
        ) from None
    try:
        with open(path, "rb", opener=regular) as stream, Image.open(stream) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: no image could be read: {error}") from None


class PPMLoader:
    """`open`, `init_image`, `fill_image`, as the library's examples use it."""

    def __init__(self) -> None:
        self._pixels: Bytes | None = None

    def is_open(self) -> bool:
        """Whether a file was read."""
        return self._pixels is not None

    def open(self, path: str | Path) -> None:
        """Read a file."""
        pixels = read_pnm(path)
        parts = np.moveaxis(pixels, 2, 0) * _GREY[: pixels.shape[2], None, None]
        grey = pixels[..., 0] if len(parts) == 1 else (parts[0] + parts[1] + parts[2]).astype(np.uint8)  # cut, as Arm's
        self._pixels = np.ascontiguousarray(grey)

    def _opened(self) -> Bytes:
        if self._pixels is None:
            raise ExecutionError("no file is open", hint="call open(path) first")
        return self._pixels

    def init_image(self, image: Tensor, format: Format) -> None:
        """Give an image the file's size."""
        if format is not Format.U8:
            raise UnsupportedError(f"files are read as Format.U8, not {format}")
        height, width = self._opened().shape
        image.allocator().init(TensorInfo(width, height, format))

    def fill_image(self, image: Tensor) -> None:
        """Copy the pixels into an allocated image."""
        pixels, target = self._opened(), image.array()
        if target.shape != pixels.shape:
            raise ExecutionError(f"the image is {target.shape}, the file {pixels.shape} (rows, columns)")
        target[...] = pixels


@boundary("save_to_ppm", arguments=True)
def save_to_ppm(image: Tensor, path: str | Path) -> None:
    """Write a U8 image as a binary PGM file."""
    pixels = image.array()
    if pixels.ndim != 2 or pixels.dtype != np.uint8:
        raise UnsupportedError(f"a file holds a U8 image of two dimensions, got {pixels.dtype} {pixels.shape}")
    height, width = pixels.shape
    write_atomic(path, f"P5\n{width} {height}\n255\n".encode() + np.ascontiguousarray(pixels).tobytes())
