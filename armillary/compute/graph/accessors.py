"""Accessors: who fills a graph's inputs and weights, and who reads its outputs.

In: files of images, arrays and labels. Out: `access_tensor(tensor)`, which fills or reads the host's view and says
whether the run goes on. Invariant: a file that does not fit its tensor is refused with both shapes; a `DummyAccessor`
touches nothing, so that speed can be measured without a model's files. Arrays have the tensor's order, in numpy's
way: channels before rows and columns, or behind them in NHWC.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Protocol, TextIO

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary, bounded
from armillary.base.files import read_regular, regular, write_atomic
from armillary.compute.core.layout import DataLayout
from armillary.compute.runtime.ppm import read_image
from armillary.compute.runtime.tensor import Tensor
from armillary.errors import ArtifactError, ConfigError, TypeMismatch


class ITensorAccessor(Protocol):
    """What graphs call; users' own have the same method."""

    def access_tensor(self, tensor: Tensor) -> bool:
        """Fill or read a tensor; false: nothing more to do."""


@bounded
class DummyAccessor:
    """Touches nothing; says to go on `maximum` times, always with 0."""

    def __init__(self, maximum: int = 1) -> None:
        if maximum < 0:
            raise ConfigError(f"DummyAccessor: {maximum} runs, wanted 0 (no end) or more")
        self._maximum, self._count = maximum, 0

    def access_tensor(self, tensor: Tensor) -> bool:
        """Leave the tensor as it is."""
        del tensor
        goes_on = self._maximum == 0 or self._count < self._maximum
        self._count = self._count + 1 if goes_on else 0
        return goes_on


@bounded
class RandomAccessor:
    """Fills tensors with random values of a range, the same for the same seed."""

    def __init__(self, lower: float, upper: float, seed: int = 0) -> None:
        if not lower <= upper:
            raise ConfigError(f"RandomAccessor: values from {lower} to {upper}, wanted an interval")
        self._lower, self._upper, self._rng = lower, upper, np.random.default_rng(seed)

    def access_tensor(self, tensor: Tensor) -> bool:
        """Fill the tensor."""
        target = tensor.array()
        drawn = self._rng.uniform(self._lower, self._upper, target.shape)
        target[...] = drawn if target.dtype.kind == "f" else np.rint(drawn)
        return True


@bounded
class NumPyAccessor:
    """Fills a tensor with an array of numpy's."""

    def __init__(self, values: Array) -> None:
        self._values = np.asarray(values)

    def access_tensor(self, tensor: Tensor) -> bool:
        """Fill the tensor."""
        _fill(tensor, self._values, "the array")
        return True


@bounded
class NumPyBinLoader:
    """Fills a tensor from a .npy file; images and kernels of another layout than the file's are turned."""

    def __init__(self, filename: str | Path, file_layout: DataLayout = DataLayout.NCHW) -> None:
        self._path, self._layout = Path(filename), file_layout

    def access_tensor(self, tensor: Tensor) -> bool:
        """Fill the tensor."""
        try:
            with open(self._path, "rb", opener=regular) as stream:
                values = np.load(stream, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ArtifactError(f"{self._path}: no array could be read: {error}") from None
        if not isinstance(values, np.ndarray):
            raise ArtifactError(f"{self._path}: an archive of arrays, wanted one .npy array")
        layout = tensor.info().data_layout()
        if layout is not self._layout and values.ndim > 2:
            values = np.moveaxis(values, -3, -1) if layout is DataLayout.NHWC else np.moveaxis(values, -1, -3)
        _fill(tensor, values, str(self._path))
        return True


@bounded
class SaveNumPyAccessor:
    """Writes a tensor to a .npy file."""

    def __init__(self, filename: str | Path) -> None:
        self._path = Path(filename)

    def access_tensor(self, tensor: Tensor) -> bool:
        """Write the tensor and end the run."""
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(tensor.array()), allow_pickle=False)
        write_atomic(self._path, buffer.getvalue())
        return False


def _fill(tensor: Tensor, values: Array, what: str) -> None:
    target = tensor.array()
    if _without_ones(values.shape) != _without_ones(target.shape):
        raise TypeMismatch(f"{what} has the shape {values.shape}, the tensor {target.shape}")
    if values.dtype != target.dtype:
        raise TypeMismatch(f"{what} holds {values.dtype}, the tensor {target.dtype}", hint="convert it with astype")
    target[...] = values.reshape(target.shape)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


@bounded
class CaffePreproccessor:
    """Takes a mean from each channel (in the order red, green, blue), as networks of Caffe want it."""

    def __init__(self, mean: tuple[float, float, float] = (0.0, 0.0, 0.0), scale: float = 1.0) -> None:
        self._mean, self._scale = np.array(mean, np.float32), np.float32(scale)

    def preprocess(self, pixels: Array) -> Array:
        """(rows, columns, channels) in float32."""
        return (pixels.astype(np.float32) - self._mean) * self._scale


@bounded
class TFPreproccessor:
    """Maps 0..255 to a range, as networks of TensorFlow want it."""

    def __init__(self, min_range: float = -1.0, max_range: float = 1.0) -> None:
        self._low, self._span = np.float32(min_range), np.float32(max_range - min_range)

    def preprocess(self, pixels: Array) -> Array:
        """(rows, columns, channels) in float32."""
        return pixels.astype(np.float32) / np.float32(255.0) * self._span + self._low


@bounded
class ImageAccessor:
    """Fills a tensor of three planes from an image: PPM, or anything that Pillow reads. Once; then the run ends."""

    def __init__(
        self,
        filename: str | Path,
        bgr: bool = True,
        preprocessor: CaffePreproccessor | TFPreproccessor | None = None,
    ) -> None:
        self._path, self._bgr = Path(filename), bgr
        self._preprocessor = preprocessor or CaffePreproccessor()
        self._is_loaded = False

    def access_tensor(self, tensor: Tensor) -> bool:
        """Fill the tensor, every other time."""
        self._is_loaded = not self._is_loaded
        if self._is_loaded:
            pixels = self._preprocessor.preprocess(read_image(self._path))
            planes = pixels[..., ::-1] if self._bgr else pixels
            if tensor.info().data_layout() is DataLayout.NCHW:
                planes = np.moveaxis(planes, 2, 0)
            if tensor.array().dtype != np.float32:
                raise TypeMismatch(f"{self._path}: images fill tensors of F32, not {tensor.describe()}")
            _fill(tensor, planes, str(self._path))
        return self._is_loaded


@bounded
class TopNPredictionsAccessor:
    """Prints the `top_n` largest elements with the labels of a file, one a line."""

    def __init__(self, labels_path: str | Path, top_n: int = 5, output_stream: TextIO | None = None) -> None:
        try:
            self._labels = read_regular(labels_path).decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{labels_path}: no labels could be read: {error}") from None
        self._top_n, self._stream = top_n, output_stream

    def access_tensor(self, tensor: Tensor) -> bool:
        """Print the best classes and end the run."""
        self._access_predictions_tensor(np.asarray(tensor.array()).ravel())
        return False

    def _access_predictions_tensor(self, scores: Array) -> None:
        stream = self._stream or sys.stdout
        if len(self._labels) < scores.size:
            raise TypeMismatch(f"{len(self._labels)} labels for {scores.size} classes")
        print(f"---------- Top {self._top_n} predictions ----------\n", file=stream)
        for at in np.argsort(-scores, kind="stable")[: self._top_n]:
            print(f"{scores[at]:.4f} - [id = {at}], {self._labels[at]}", file=stream)


@boundary("get_weights_accessor", arguments=True)
def get_weights_accessor(path: str | Path, data_file: str) -> ITensorAccessor:
    """The loader of a file in a folder; without a folder, nothing is loaded."""
    return NumPyBinLoader(f"{path}{data_file}") if str(path) else DummyAccessor()


@boundary("get_input_accessor", arguments=True)
def get_input_accessor(
    image: str | Path, preprocessor: CaffePreproccessor | TFPreproccessor | None = None, bgr: bool = True
) -> ITensorAccessor:
    """What loads an image, or an array from a .npy file; without a name, nothing is loaded."""
    if not str(image):
        return DummyAccessor()
    if Path(image).suffix == ".npy":
        return NumPyBinLoader(image)
    return ImageAccessor(image, bgr, preprocessor)


@boundary("get_output_accessor", arguments=True)
def get_output_accessor(labels_path: str | Path, top_n: int = 5) -> ITensorAccessor:
    """What prints the best classes; without labels, nothing is printed and the run ends."""
    return TopNPredictionsAccessor(labels_path, top_n) if str(labels_path) else DummyAccessor(0)


@boundary("get_random_accessor", arguments=True)
def get_random_accessor(lower: float, upper: float, seed: int = 0) -> RandomAccessor:
    """What fills a tensor with random values."""
    return RandomAccessor(lower, upper, seed)
