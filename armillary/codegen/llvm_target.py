"""Targets to LLVM's machines, and IR text to objects and assembly for them.

In: a `Target` and IR text. Out: bytes of an object, or text. Invariant: a triple, CPU or IR that LLVM refuses is a
TargetError or InternalError, never a crash. The compilation itself: `machine.py`; in parallel: `pool.py`.
"""

from __future__ import annotations

import dataclasses

from armillary.codegen import machine
from armillary.codegen.pool import Request
from armillary.errors import InternalError, TargetError
from armillary.target.cpu import llvm_cpu
from armillary.target.target import Target, as_target

VERSION = machine.VERSION


def request(ir: str, target: Target, form: str = "object") -> Request:
    """What a compile worker needs to compile `ir` for `target`."""
    found = llvm_cpu(target)
    return Request(ir, found.triple, found.cpu, found.features, form, found.abi, found.opt_level)


def check_target(target: Target) -> None:
    """Refuse a triple that LLVM does not know."""
    found = llvm_cpu(target)
    try:
        machine.machine(found.triple, found.cpu, found.features, found.abi, found.opt_level)
    except ValueError as error:
        raise TargetError(str(error), hint="-mtriple is, for example, aarch64-linux-gnu or x86_64-linux-gnu") from None


def _emit(ir: str, target: Target | str, form: str) -> bytes:
    where = as_target(target)
    check_target(where)
    try:
        return machine.compile_ir(**dataclasses.asdict(request(ir, where, form)))
    except ValueError as error:
        raise InternalError(str(error)) from None


def emit_object(ir: str, target: Target | str) -> bytes:
    """The object file of IR text."""
    return _emit(ir, target, "object")


def emit_assembly(ir: str, target: Target | str) -> str:
    """The assembly of IR text, as it would go into the object."""
    return _emit(ir, target, "assembly").decode()
