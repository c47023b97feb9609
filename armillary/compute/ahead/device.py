"""OpenCL sources of functions, for programs that build them where they run.

In: formulas and stages. Out: `cl_kernels/NAME.cl`, or texts in the header, with what the host gives each kernel.
Invariant: the source of a formula is what `CLKernelLibrary` makes for the same formula and border, so that
`CLKernelLibrary.init(folder)` reads it; numbers go as whole words, so that a device without doubles takes all but
convolutions by a matrix. The host: `armillary_compute_cl.hpp`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from armillary.artifact import FunctionRow
from armillary.base.files import make_folder, write_atomic
from armillary.compute.cl.kernels import DEFAULT_PATH, Program, thread_axis
from armillary.compute.cl.loops import BANDS, LoopsProgram
from armillary.compute.cl.tuner import DEFAULT_LWS
from armillary.compute.core.compiled import Formula
from armillary.compute.core.loops import Loops
from armillary.compute.core.tensor_info import BorderMode
from armillary.compute.functions.formulas import flow, geometry, hog
from armillary.compute.functions.stages.stage import Body, Stage
from armillary.compute.functions.vision import statistics
from armillary.driver.te_build import build
from armillary.errors import InternalError
from armillary.tir import build as T
from armillary.tir import reinterpret
from armillary.tir.stmt import IfThenElse, PrimFunc

_ITEMS = 16  # of a group, along a stage's window
# Loops whose bands have a row of so many results each.
_COUNTED = {each.name: 2 for each in (statistics.SUMS, *statistics.EXTREMES.values())}
_COUNTED[statistics.COUNTS.name] = statistics.COUNTERS
_FREE = (flow.TRACK, hog.VOTES, hog.BLOCKS, hog.SCORES)  # loops whose bands share nothing
_ON_HOST = tuple(geometry.scale_boxes(border) for border in ("constant", "replicate"))  # loops over a box
# How programs find it, its file, its loops, which numbers are reals.
Kernel = tuple[str, str, PrimFunc, tuple[str, ...]]


def stage_program(stage: Stage) -> PrimFunc:
    """A stage whose iterations are work-items; its reals are words."""
    body, count = Body(stage), T.var("count")
    axis, words = thread_axis("x", count, _ITEMS), {name: T.var(name) for name in stage.reals}
    params = (*body.buffers, count, *(words.get(name, var) for name, var in body.numbers.items()))
    body.numbers |= {name: reinterpret("float32", word) for name, word in words.items()}
    stage.emit(body, axis.place)
    loops = IfThenElse(T.cast(axis.place < count, "bool"), body.builder.get(), None)
    return PrimFunc(params, axis.bound(loops), (("global_symbol", stage.name),))


def _kernels(kernel: Formula | Stage | Loops) -> Iterator[Kernel]:
    """A stage's kernel, that of loops that count or share nothing; a formula's for each border, of one plane."""
    if isinstance(kernel, Loops):
        if kernel.name in _COUNTED or kernel in _FREE:
            program = LoopsProgram(kernel, (BANDS, _COUNTED[kernel.name]) if kernel.name in _COUNTED else ())
            yield kernel.name, program.name(), program.function(), ()
        return
    if isinstance(kernel, Stage):
        yield kernel.name, kernel.name, stage_program(kernel), kernel.reals
        return
    if kernel in _ON_HOST:
        return
    tensors = (False,) * (len(kernel.inputs) + len(kernel.outputs))
    reals = tuple(f"number{k}" for k, kind in enumerate(kernel.numbers) if kind == "float32")
    for border in BorderMode:
        pixels = Program(kernel, border, tensors, (False, False, True), DEFAULT_LWS)
        yield f"{kernel.name}/{border.name}", pixels.name(), pixels.function(), reals


def write_sources(folder: Path, kernels: Iterable[Formula | Stage | Loops], is_embedded: bool) -> None:
    """Write sources to `cl_kernels`, or with the header that lists the kernels."""
    target, rows = folder / DEFAULT_PATH, []
    for key, file, function, reals in (row for kernel in kernels for row in _kernels(kernel)):
        descriptor = build(function, target="opencl").descriptor
        ((_, text),), (row,) = descriptor.device_code.items(), descriptor.functions.values()
        if not is_embedded:
            write_atomic(make_folder(target) / f"{file}.cl", text.encode())
        source = f'R"opencl({text})opencl"' if is_embedded else "nullptr"
        rows.append(f'    {{"{key}", "{file}", {_launch(row, reals)},\n     {source}}},')
    head = """\
// OpenCL kernels of this library: their arguments ("#n" a tensor, "~x" a real of 32 bits), groups along x, y and z
// ((value + more) / items), work-items of a group, and sources. Written by armillary.compute.build.
#pragma once
#define ARMILLARY_COMPUTE_HAS_CL 1
namespace armillary { namespace compute { namespace kernels {
struct Groups { const char *value; int more, items; };
struct DeviceKernel {
  const char *key, *file, *symbol, *arguments;
  Groups groups[3];
  int items[3];
  const char *source;
};
inline const DeviceKernel *of_device() {
  static const DeviceKernel table[] = {"""
    tail = "    {nullptr, nullptr, nullptr, nullptr, {}, {}, nullptr},\n  };\n  return table;\n}\n}}}\n"
    header = folder / "armillary_compute_cl_kernels.hpp"
    write_atomic(header, "\n".join([head, *rows, tail]).encode())


def _launch(row: FunctionRow, reals: tuple[str, ...]) -> str:
    """The kernel's name, its arguments, groups and work-items."""
    if len(row.launches) != 1:
        raise InternalError(f"{row.name}: {len(row.launches)} launches, wanted one")
    (launch,), names = row.launches, [var.name for var in row.vars]
    words = []
    for arg in launch.args:
        kind, at = arg[0], int(arg[1]) if len(arg) > 1 else 0
        name = names[int(at)] if kind == "var" else ""
        words.append(f"#{at}" if kind == "tensor" else f"~{name}" if name in reals else name)
    groups = [_groups(row.name, count) for count in launch.groups]
    items = ", ".join(map(str, launch.items))
    return f'"{launch.kernel}", "{" ".join(words)}", {{{", ".join(groups)}}}, {{{items}}}'


def _groups(name: str, count: int | str) -> str:
    """How many groups there are, as the host counts them: a number, a value, or one over the items of a group."""
    match = re.fullmatch(r"floordiv\((\w+) \+ (\d+), (\d+)\)|([a-z]\w*)", str(count))
    if isinstance(count, int):
        return f"{{nullptr, {count}, 1}}"
    if match is None:
        raise InternalError(f"{name}: {count} groups, wanted a value or one over the items of a group")
    value, more, items, alone = match.groups()
    return f'{{"{alone or value}", {more or 0}, {items or 1}}}'
