"""Tensors of a folder of safetensors files, read when they are asked for.

In: a folder. Out: `Tensors`: arrays by name, whose numbers stay in the files. Invariant: nothing outside a file's data
is read; sizes are checked against shapes and types before. The format: 8 bytes with the length of a JSON header, the
header, the data.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import each_rows, looked_at
from armillary.base.dtype import DType
from armillary.base.stored import FilePart, HeldFile
from armillary.errors import ModelError
from armillary.generate.blocks import GROUP, Packed, Weight, quantized

Json = dict[str, Any]  # Any: JSON
_TYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I8": "int8",
    "U8": "uint8",
}
_LONGEST_HEADER = 100_000_000


class Tensors:
    """The tensors of all files of a folder, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: dict[str, tuple[Path, int, Json]] = {}
        self._held: dict[Path, HeldFile] = {}
        for file in sorted(folder.glob("*.safetensors")):
            begin, header = _header(file)
            for name, entry in header.items():
                if name != "__metadata__":
                    self.places[name] = file, begin, entry
        if not self.places:
            raise ModelError(f"{folder}: there is no safetensors file")

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def float32(self, name: str) -> Array:
        """A tensor in float32."""
        array: Array = looked_at(self.stored(name)).astype(np.float32)
        return array

    def matrix(self, name: str, bits: int) -> Weight | Packed:
        """A weight in float32 or its 16-bit floats, or packed in so many bits where its rows are whole groups."""
        stored = self.stored(name)
        kind = stored.dtype if stored.dtype.itemsize == 2 else np.dtype(np.float32)
        weight = each_rows(stored, stored.shape[1], kind, lambda rows: rows.astype(kind, copy=False))
        return quantized(weight, bits) if bits and weight.shape[1] % GROUP == 0 else weight

    def stored(self, name: str) -> Weight:
        """A tensor as it is stored, in its file."""
        if name not in self.places:
            raise ModelError(f"{self.folder}: there is no tensor {name!r}", hint=f"it has {len(self.places)} others")
        file, begin, entry = self.places[name]
        try:
            dtype, shape = DType(_TYPES[entry["dtype"]]).numpy, tuple(int(n) for n in entry["shape"])
            first, last = (int(n) for n in entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise ModelError(f"{file}: the entry of tensor {name!r} is {entry}") from None
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if min(shape, default=0) < 0 or first < 0 or last - first != size or begin + last > file.stat().st_size:
            raise ModelError(f"{file}: tensor {name!r} of {size} bytes lies at {first} to {last}")
        if not size:
            return np.zeros(shape, dtype)
        if file not in self._held:
            self._held[file] = HeldFile(os.open(file, os.O_RDONLY | os.O_CLOEXEC), str(file))
        part = FilePart(self._held[file], begin + first, size)
        return part.stored(shape, dtype) if shape else part.read().view(dtype).reshape(shape)


def _header(file: Path) -> tuple[int, Json]:
    """Where the data begins, and the entries."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > min(_LONGEST_HEADER, file.stat().st_size - 8):
            raise ModelError(f"{file}: a header of {length} bytes is longer than the file")
        try:
            header = json.loads(stream.read(length))
        except ValueError as error:
            raise ModelError(f"{file}: the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise ModelError(f"{file}: the header is no object")
    return 8 + length, header
