"""Functions of the compute library compiled ahead of time, for programs in C++ that have no Python where they run.

In: names of functions, a target, a folder, the text's build options (`options.py`). Out: in the folder a static and,
but for bare metal, a shared library, headers with the classes and one that lists what was built, OpenCL sources on
request. Invariant: the kernels are those that the Python library runs (`functions.py`), of any size; each file is
written whole. Archives: `archive.py`. OpenCL: `device.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

from armillary.artifact import FunctionRow
from armillary.base.boundary import boundary
from armillary.base.files import make_folder, write_atomic
from armillary.compute.ahead.archive import archive
from armillary.compute.ahead.device import write_sources
from armillary.compute.ahead.functions import FUNCTIONS, Kernel
from armillary.compute.ahead.options import BuildOptions
from armillary.compute.core.borders import border_function
from armillary.compute.core.compiled import STEP, Formula, row_function
from armillary.compute.core.loops import loops_function
from armillary.compute.core.tensor_info import BorderSize
from armillary.compute.functions.formulas.pyramid import OVERSHOOT
from armillary.compute.functions.stages.stage import Stage, stage_function
from armillary.compute.graph.graph import Graph
from armillary.compute.graph.operations import function_name
from armillary.driver.te_build import build as build_functions
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.tir.stmt import PrimFunc
from armillary.transform import PassContext

_PREFIX = "armillary_compute_"
_PARTS = (
    "",
    "_memory",
    "_schedulers",
    "_images",
    "_layers",
    "_rows",
    "_vision",
    "_points",
    "_colours",
    "_features",
    "_pyramids",
    "_tracking",
    "_hog",
    "_graph",
    "_accessors",
)
_HEADERS = tuple(f"armillary_compute{part}.hpp" for part in (*_PARTS, "_cl"))


@boundary("compute.build", arguments=True)
def build(
    functions: Iterable[str | type] | Graph = tuple(FUNCTIONS),
    target: object = "llvm",
    out: str | os.PathLike[str] = "armillary_compute",
    options: BuildOptions | None = None,
) -> Path:
    """Compile functions, by name or class, or those of a graph's layers, for a target; returns the folder.

    c++ -std=c++11 program.cpp -Iarmillary_compute armillary_compute/libarmillary_compute.a -lpthread
    """
    given = options or BuildOptions()
    if isinstance(functions, Graph):
        functions = dict.fromkeys("NE" + function_name(node.layer.operation, node.hints) for node in functions.nodes())
    names = [each if isinstance(each, str) else each.__name__ for each in functions]
    unknown = [name for name in names if name not in FUNCTIONS]
    if unknown or not names:
        message = f"{unknown[0]!r} cannot be built ahead of time" if unknown else "no function is named"
        raise ConfigError(f"compute.build: {message}", hint=f"known: {', '.join(FUNCTIONS)}")
    kernels = {kernel.name: kernel for name in names for kernel in FUNCTIONS[name]}
    folder = make_folder(Path(out))
    if given.opencl:
        write_sources(folder, kernels.values(), given.embed_kernels)
    if given.neon:
        _write_library(folder, kernels, target, given)
    return folder


def _write_library(folder: Path, kernels: Mapping[str, Kernel], target: object, options: BuildOptions) -> None:
    parts = [function_of(kernel, _PREFIX) for kernel in kernels.values()]
    formulas = [kernel for kernel in kernels.values() if isinstance(kernel, Formula)]
    bordered = dict.fromkeys(kind for f in formulas if f.border() != BorderSize() for kind in f.inputs)
    parts += [border_function(kind, _PREFIX) for kind in bordered]
    with PassContext(config=options.kernel_config()):
        library = build_functions([IRModule({str(f.get_attr("global_symbol")): f}) for f in parts], target=target)
    rows = library.descriptor.functions
    symbols = [phase.symbol for row in rows.values() for phase in row.phases]
    write_atomic(folder / "libarmillary_compute.a", archive(library.objects, symbols))
    if not options.is_bare_metal():
        library.export_library(folder / options.library_name(), options=options.link_options())
        options.link_names(folder)
    write_atomic(folder / "armillary_compute_kernels.hpp", _header(rows, kernels, options).encode())
    for name in _HEADERS:
        write_atomic(folder / name, files("armillary.compute.ahead").joinpath(name).read_bytes())


def function_of(kernel: Kernel, prefix: str = "") -> PrimFunc:
    """The loops of a kernel; its symbol is its name behind a prefix."""
    if isinstance(kernel, Formula):
        return row_function(kernel, prefix)
    return stage_function(kernel, prefix) if isinstance(kernel, Stage) else loops_function(kernel, prefix)


def _header(rows: Mapping[str, FunctionRow], kernels: Mapping[str, Kernel], options: BuildOptions) -> str:
    """Declarations of the kernels, and the table in which the classes find them."""
    lines = [
        "// Kernels of this library, their numbers by name, and how far each reads. Written by armillary.compute.build."
    ]
    lines += ["#pragma once", "#include <stdint.h>", *options.definitions(), ""]
    lines += ['#include "armillary_compute_cl_kernels.hpp"'] * options.opencl
    arguments = "(void *const *data, const int64_t *values, int64_t begin, int64_t end, int64_t thread)"
    lines += [f'extern "C" int32_t {row.phases[0].symbol}{arguments};' for row in rows.values()]
    constants = f"constexpr int STEP = {STEP}, OVERSHOOT = {OVERSHOOT};"
    lines += ["", "namespace armillary { namespace compute { namespace kernels {", constants]
    lines += ["struct Kernel {", "  const char *name;", f"  int32_t (*run){arguments};"]
    lines += [
        "  const char *const *values;",
        "  int reach_x, reach_y;",
        "  const char *types, *numbers; // numbers: i whole, r real",
        "  bool same_size;",
        "};",
        "inline const Kernel *all() {",
    ]
    table = []
    for symbol, row in rows.items():
        name = symbol.removeprefix(_PREFIX)
        kernel = kernels.get(name)
        reach = '0, 0, "", "", true'
        if isinstance(kernel, Formula):
            types = ",".join(kind.name for kind in (*kernel.inputs, *kernel.outputs))
            kinds = "".join("r" if "float" in kind else "i" for kind in kernel.numbers)
            same = str(kernel.same_size).lower()
            reach = f'{kernel.border().left}, {kernel.border().top}, "{types}", "{kinds}", {same}'
        numbers = "".join(f'"{var.name}", ' for var in row.vars)
        lines.append(f"  static const char *const {name}[] = {{{numbers}nullptr}};")
        table.append(f'    {{"{name}", {row.phases[0].symbol}, {name}, {reach}}},')
    lines += [
        "  static const Kernel table[] = {",
        *table,
        "    {nullptr, nullptr, nullptr, 0, 0, nullptr, nullptr, true},",
        "  };",
    ]
    return "\n".join([*lines, "  return table;", "}", "}}} // namespace armillary::compute::kernels", ""])
