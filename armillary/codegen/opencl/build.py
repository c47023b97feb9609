"""Device functions to what a package keeps of them: a row with launches, and OpenCL C.

In: a `DeviceFunction`. Out: its `FunctionRow` and source. Invariant: the arguments of a launch are in the order of the
kernel's parameters. Who joins the sources of a network: `program.py`; who launches:
`runtime/native/devices/arm_opencl_program.c`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armillary.artifact import ArgRow, Descriptor, FunctionRow, VarRow
from armillary.artifact.launches import Count, KernelArg, LaunchRow
from armillary.base.extent import Known, most
from armillary.base.names import Names, printable_name
from armillary.codegen.base import Touched
from armillary.codegen.build import CompiledModule, dimension
from armillary.codegen.opencl.checks import asserts_in
from armillary.codegen.opencl.program import program
from armillary.codegen.opencl.source import emit_source, kernel_symbol
from armillary.codegen.workers.cache import Cache
from armillary.errors import TargetError
from armillary.target.target import Target, check_attributes
from armillary.target.texture import is_texture
from armillary.tir import expr as E
from armillary.tir.extents import from_expr, to_expr
from armillary.tir.phases import DeviceFunction, DeviceKernel
from armillary.tir.printer import print_function
from armillary.tir.stmt import Buffer, PrimFunc
from armillary.tir.substitute import substitute_expr
from armillary.tir.transform.split_phases import buffer_bytes


@dataclass(frozen=True, slots=True)
class OpenCLModule(CompiledModule):
    """Kernels of some functions: sources, and no objects."""

    def get_source(self, form: str = "") -> str:
        """The text of all functions: cl (OpenCL C) or tir."""
        if form in ("", "cl"):
            return program(self.sources.values())
        if form == "tir":
            return "\n".join(print_function(loops, name) for name, loops in self.tir.items())
        raise TargetError(f"no source of form {form!r} for target {self.target}", hint="forms: cl, tir")


def build_kernels(
    functions: Sequence[DeviceFunction],
    target: Target,
    *,
    cache: Cache | None = None,
    jobs: int | None = None,
    tir: Mapping[str, PrimFunc] | None = None,
) -> OpenCLModule:
    """Sources and rows; a driver on the device compiles them, so there is nothing for a cache or for jobs."""
    del cache, jobs
    check_attributes(target)
    built = {function.name: build_device_function(function) for function in functions}
    sources = {name: text for name, (_, text) in built.items()}
    rows, code = {name: row for name, (row, _) in built.items()}, {target.kind.name: program(sources.values())}
    return OpenCLModule(target, (), Descriptor(str(target), rows, device_code=code), sources, tir=dict(tir or {}))


def build_device_function(function: DeviceFunction) -> tuple[FunctionRow, str]:
    """The descriptor's row of a function, and the source of its kernels."""
    names = Names()
    named = {v: names.fresh(printable_name(v.name)) for v in function.vars}
    written = _written(function)
    args = []
    for buffer, shape in zip(function.params, function.shapes, strict=True):
        dims = tuple(dimension(function.name, buffer.name, extent, named) for extent in shape)
        args.append(ArgRow(printable_name(buffer.name), dims, buffer.dtype, "out" if buffer in written else "in"))
    launches = tuple(_launch(function, kernel, named) for kernel in function.kernels)
    variables = tuple(VarRow(name, v.dtype) for v, name in named.items())
    message = tuple(s.message for kernel in function.kernels for s in asserts_in(kernel))
    row = FunctionRow(
        function.name,
        tuple(args),
        (),
        variables,
        _as_row(function.workspace_bytes, named),
        asserts=message,
        launches=launches,
        may_overlap=not function.noalias,
    )
    return row, emit_source(function)


def _written(function: DeviceFunction) -> frozenset[Buffer]:
    touched = Touched()
    buffers = frozenset[Buffer]().union(*(touched.written(kernel.body) for kernel in function.kernels))
    return (buffers & frozenset(function.params)).union(function.outputs)


def _launch(function: DeviceFunction, kernel: DeviceKernel, named: Mapping[E.Var, str]) -> LaunchRow:
    tensors = {buffer: number for number, buffer in enumerate(function.params)}
    args: list[KernelArg] = []
    for buffer in kernel.buffers:
        if buffer in tensors:
            args.append(("image" if is_texture(buffer.scope) else "tensor", tensors[buffer]))
        else:
            size = most(1, buffer_bytes(buffer))
            args.append(("workspace", _as_row(function.workspace[buffer], named), _as_row(size, named)))
    args += [("var", function.vars.index(var)) for var in kernel.vars]
    if asserts_in(kernel):
        args += [("status",), ("call",)]
    x, y, z = (_as_row(groups, named) for groups in kernel.groups)
    return LaunchRow(kernel_symbol(kernel), tuple(args), (x, y, z), kernel.items)


def _as_row(extent: Known, names: Mapping[E.Var, str]) -> Count:
    """A number, or the text of an expression over the names of a function's variables."""
    if isinstance(extent, int):
        return extent
    renamed = substitute_expr(to_expr(extent), {v: E.Var(name, v.dtype) for v, name in names.items()})
    return str(from_expr(renamed))
