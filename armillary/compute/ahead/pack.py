"""Writes the kernels that come with a wheel: `python -m armillary.compute.ahead.pack FOLDER [LEVEL…]`.

In: a folder, levels of processors. Out: a file for each level, of the kernels of all functions that are built ahead of
time (`functions.py`), of halves and of borders. Invariant: a kernel's key is that of the function which
Python compiles otherwise (`core/shipped.py` reads them). Run by the build backend; takes 20 s of a processor a level.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from armillary.base.files import make_folder
from armillary.compute.ahead.build import function_of
from armillary.compute.ahead.functions import FUNCTIONS
from armillary.compute.core.borders import border_function
from armillary.compute.core.shipped import LEVELS, kernel_key, write_pack
from armillary.compute.core.stored_loops import packed
from armillary.compute.core.switches import kernel_config
from armillary.compute.core.tensor_info import DataType
from armillary.compute.functions.formulas.geometry import halved
from armillary.driver.te_build import build
from armillary.target import Target
from armillary.tir.stmt import PrimFunc
from armillary.transform import PassContext

_BORDERED = (DataType.U8, DataType.S16, DataType.S32, DataType.F32)


def _functions(names: Sequence[str]) -> Iterator[PrimFunc]:
    for kernel in dict.fromkeys(kernel for name in names for kernel in FUNCTIONS[name]):
        yield function_of(kernel)
    yield from (function_of(halved(policy)) for policy in ("nearest", "bilinear"))
    yield from (border_function(kind) for kind in _BORDERED)


def write_level(folder: Path, level: str, names: Sequence[str] = tuple(FUNCTIONS)) -> Path:
    """Compile the functions' kernels for a level; the file."""
    config, kernels = kernel_config(), {}
    with PassContext(config=config):
        for function in _functions(names):
            library = build(function, target=Target(LEVELS[level]))
            if not library.externs:
                kernels[kernel_key(str(function), config)] = packed(library)
    path = folder / f"{level}.pack"
    write_pack(path, kernels)
    return path


def main(folder: str, *levels: str) -> int:
    """Write one level; of several each in a process of its own."""
    chosen = levels or tuple(LEVELS)
    if len(chosen) == 1:
        write_level(make_folder(Path(folder)), chosen[0])
        return 0
    command = [sys.executable, "-m", "armillary.compute.ahead.pack", folder]
    parts = [subprocess.Popen([*command, level]) for level in chosen]
    return max(part.wait() for part in parts)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
