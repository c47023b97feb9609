"""Example programs of a library that was built ahead of time.

In: the folder of the library, the functions it has, build options. Out: programs in its `build_dir`, compiled by the C
compiler of the target as C++. Invariant: an example whose functions were not built is left out. Sources: `*.cpp` here.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from armillary.base.c_compiler import run_compiler
from armillary.base.files import make_folder, write_atomic
from armillary.codegen.toolchain import find_toolchain, machine_flags
from armillary.compute.ahead.options import BuildOptions
from armillary.target import Target

_EXAMPLES = {"neon_gaussian": ("NEGaussian3x3",)}


def build_examples(folder: Path, functions: Sequence[str], options: BuildOptions) -> None:
    """Compile the examples that need no other functions."""
    target = Target(options.target())
    tool, place = find_toolchain(target), make_folder(folder / options.build_dir)
    flags = ["-std=c++11", "-O0" if options.debug else "-O2", "-Wall", "-Wextra", *(["-Werror"] * options.Werror)]
    flags += [*(["-fopenmp"] * options.openmp), *shlex.split(options.extra_cxx_flags)]
    libraries = ["-lc++" if tool.is_zig else "-lstdc++", "-lpthread", "-lm", *(["-static"] * options.standalone)]
    for name, needed in _EXAMPLES.items():
        if not set(needed) <= set(functions):
            continue
        source = place / f"{name}.cpp"
        write_atomic(source, files("armillary.compute.ahead").joinpath(source.name).read_bytes())
        inputs = ["-x", "c++", str(source), "-x", "none", str(folder / "libarmillary_compute.a")]
        command = [*tool.command, *machine_flags(target, tool.is_zig), *flags, f"-I{folder}", *inputs, *libraries]
        run_compiler([*command], place / name)
