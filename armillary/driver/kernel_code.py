"""Code for the kernels that the cache lacks: lowering, machine code, notes.

In: a kernel (a fused Relay function) and a target. Out: a `CompiledKernel`, or the text of many. Invariant: a process
that only orders kernels imports nothing of this: no schedule, no emitter and no pass over loops (`kernel_worker.py`
does).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from armillary.artifact.kernel import CompiledKernel
from armillary.backends.base import DeviceCode, backend_of
from armillary.base.dtype import DType
from armillary.base.extent import Extent
from armillary.driver.explain import kernel_attrs
from armillary.driver.lower_fused import lower_fused
from armillary.driver.program_codegen import Kernel
from armillary.errors import ArmillaryError
from armillary.relay.expr import Function
from armillary.relay.types import tensor_fields
from armillary.target import Target
from armillary.tir import build
from armillary.tir.expr import Expr
from armillary.tir.extents import to_expr
from armillary.tir.lower import lower_function
from armillary.tir.printer import print_function
from armillary.tir.stmt import PrimFunc


def lower_kernel(kernel: Kernel, target: Target) -> tuple[DeviceCode, PrimFunc]:
    """The code of a kernel, and the loops it was made from; errors say which kernel."""
    try:
        backend = backend_of(target)
        function = backend.kernel_function(kernel.function, target)
        is_device = bool(backend.device)  # whose work-items rather test a condition than run two copies of a loop
        written = lower_fused(function, target, kernel.name)
        loops = lower_function(written, target, simple=is_device, constant_loops=True)
        phased = backend.lower(loops, kernel.name)
        count = len(tensor_fields(kernel.function.body.checked_type))
        shapes = phased.shapes if function is kernel.function else _shapes(kernel.function)
        return replace(phased, outputs=phased.params[len(phased.params) - count :], shapes=shapes), loops
    except ArmillaryError:
        raise
    except Exception as error:
        error.args = (f"{error} (while lowering kernel {kernel.name}:\n{kernel.text})",)
        raise


def _shapes(function: Function) -> tuple[tuple[Expr, ...], ...]:
    """The shapes of a function's tensors, inputs first: numbers, and expressions over sizes."""
    types = [ty for e in (*function.params, function.body) for ty in tensor_fields(e.checked_type)]
    return tuple(
        tuple(to_expr(d) if isinstance(d, Extent) else build.const(d, DType("int64")) for d in ty.known) for ty in types
    )


def compile_kernel(kernel: Kernel, target: Target, jobs: int) -> CompiledKernel:
    """Machine code and notes of a kernel; LLVM runs as `compile_many` says of `jobs`."""
    phased, _ = lower_kernel(kernel, target)
    module = backend_of(target).build([phased], target, jobs=jobs, cache=None)
    (row,) = module.rows.values()
    (code,) = module.objects or (text.encode() for text in module.sources.values())  # the source, for a device
    needs, notes = module.descriptor.needs, kernel_attrs(kernel.function, target)
    return CompiledKernel(row, code, module.externs, needs, notes)


def kernel_sources(kernels: Sequence[Kernel], target: Target, form: str) -> str:
    """The text of all kernels: tir, ll, asm or c. Lowers them again: the cache keeps no text."""
    parts = []
    for kernel in kernels:
        phased, loops = lower_kernel(kernel, target)
        if form == "tir":
            parts.append(print_function(loops, kernel.name))
        else:
            parts.append(backend_of(target).emit([phased], target).get_source(form))
    return "\n".join(parts)
