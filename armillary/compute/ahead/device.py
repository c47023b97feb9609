"""OpenCL sources of vision functions, for programs that build them where they run.

In: formulas. Out: `cl_kernels/NAME.cl`, or one header with all of them as texts. Invariant: a source is what
`CLKernelLibrary` makes for the same formula and border, so that `CLKernelLibrary.init(folder)` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from armillary.base.files import make_folder, write_atomic
from armillary.compute.cl.kernels import DEFAULT_PATH, Program
from armillary.compute.cl.tuner import DEFAULT_LWS
from armillary.compute.core.compiled import Formula
from armillary.compute.core.tensor_info import BorderMode
from armillary.driver.te_build import build


def sources_of(formula: Formula) -> dict[str, str]:
    """The source for each border, by the program's name; windows are any, tensors have one plane."""
    tensors = (False,) * (len(formula.inputs) + len(formula.outputs))
    programs = [Program(formula, border, tensors, (False, False, True), DEFAULT_LWS) for border in BorderMode]
    return {
        p.name(): next(iter(build(p.function(), target="opencl").descriptor.device_code.values())) for p in programs
    }


def write_sources(folder: Path, formulas: Iterable[Formula], is_embedded: bool) -> None:
    """Write the sources of formulas, into one header where they are embedded."""
    sources = {name: text for formula in formulas for name, text in sources_of(formula).items()}
    if not is_embedded:
        target = make_folder(folder / DEFAULT_PATH)
        for name, text in sources.items():
            write_atomic(target / f"{name}.cl", text.encode())
        return
    rows = [f'    {{"{name}", R"opencl({text})opencl"}},' for name, text in sources.items()]
    head = ["// Sources of OpenCL kernels, by name. Written by armillary.compute.build.", "#pragma once"]
    head += [
        "namespace armillary { namespace compute { namespace cl {",
        "struct Source {",
        "  const char *name, *text;",
    ]
    head += ["};", "inline const Source *sources() {", "  static const Source all[] = {"]
    tail = ["    {nullptr, nullptr},", "  };", "  return all;", "}", "}}} // namespace armillary::compute::cl", ""]
    write_atomic(folder / "armillary_compute_cl_kernels.hpp", "\n".join([*head, *rows, *tail]).encode())
