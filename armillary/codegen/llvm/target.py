"""Targets to LLVM's machines, and IR text to objects and assembly for them.

In: a `Target` and IR text. Out: bytes of an object, or text. Invariant: a triple, CPU or IR that LLVM refuses is a
TargetError or InternalError, never a crash. The compilation itself: `machine.py`; in parallel: `pool.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import platform
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import llvmlite

from armillary.base.lazy import similar
from armillary.codegen.workers.pool import Request
from armillary.errors import InternalError, TargetError
from armillary.target.cpu import LlvmCpu, architecture, cpu_model, is_native, llvm_cpu
from armillary.target.cpu_table import OTHER, TABLES
from armillary.target.target import Target, as_target

VERSION = f"llvmlite-{llvmlite.__version__}"
_ROOT = str(Path(__file__).resolve().parents[3])
_PROBE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from armillary.codegen.llvm.machine import compile_ir; "
    "compile_ir('', *sys.argv[2:5])"
)


def _machine() -> ModuleType:  # the module armillary.codegen.llvm.machine, loaded late because it loads LLVM (50 MB)
    return importlib.import_module("armillary.codegen.llvm.machine")


def machine_text(target: Target) -> str:
    """What a target means on this machine, for cache keys: a native target is another CPU elsewhere."""
    model = cpu_model(target)
    caches = (model.l1, model.l2, model.l3)
    sizes = (model.vector_bits, model.vector_registers, model.fma_ports, model.fma_latency, *caches)
    return repr((str(target), llvm_cpu(target), sizes, sorted(model.features), VERSION))


def request(ir: str, target: Target, form: str = "object") -> Request:
    """What a compile worker needs to compile `ir` for `target`."""
    cpu = llvm_cpu(target)
    return Request(ir, cpu.triple, cpu.cpu, cpu.features, form, cpu.abi, cpu.opt_level)


def check_target(target: Target) -> None:
    """Refuse a triple, CPU or feature that LLVM does not know."""
    cpu = llvm_cpu(target)
    unknown = "" if _is_listed(target) else _unknown_name(cpu)
    if unknown:
        what = f"target {target}: LLVM does not know {unknown} of {cpu.triple}"
        rows = TABLES.get(architecture(cpu.triple), OTHER)
        close = similar(cpu.cpu, rows, 3, 0.6) if unknown.startswith("the processor") else []
        raise TargetError(what, hint=f"check -mcpu and -mattr{'; similar: ' + ', '.join(close) if close else ''}")
    if is_native(target):
        return  # LLVM named it itself
    try:
        _machine().machine(cpu.triple, cpu.cpu, cpu.features, cpu.abi, cpu.opt_level)
    except ValueError as error:
        raise TargetError(str(error), hint="-mtriple is, for example, aarch64-linux-gnu or x86_64-linux-gnu") from None


def _is_listed(target: Target) -> bool:
    """Whether the names of a target are in our tables, or are what the processor reports."""
    rows = TABLES.get(architecture(target.mtriple or platform.machine()), OTHER)
    names = {name for row in rows.values() for name in row.features}
    is_known = not target.mcpu or target.mcpu in rows or target.mcpu == "native"
    return is_native(target) or (is_known and names.issuperset(item.lstrip("+-") for item in target.mattr))


@functools.lru_cache(maxsize=64)
def _unknown_name(cpu: LlvmCpu) -> str:
    """The CPU or feature that LLVM ignores (it says so on stderr) or dies of: asked in a process of its own."""
    arguments = (_ROOT, cpu.triple, cpu.cpu, cpu.features)
    done = subprocess.run([sys.executable, "-c", _PROBE, *arguments], capture_output=True, text=True, check=False)
    match = re.search(r"'([^']*)' is not a recognized (processor|feature)", done.stderr)
    return f"the {match[2]} {match[1]}" if match is not None else ""


def _emit(ir: str, target: Target | str, form: str) -> bytes:
    where = as_target(target)
    check_target(where)
    try:
        return bytes(_machine().compile_ir(**dataclasses.asdict(request(ir, where, form))))
    except ValueError as error:
        raise InternalError(str(error)) from None


def emit_object(ir: str, target: Target | str) -> bytes:
    """The object file of IR text."""
    return _emit(ir, target, "object")


def emit_assembly(ir: str, target: Target | str) -> str:
    """The assembly of IR text, as it would go into the object."""
    return _emit(ir, target, "assembly").decode()
