"""LLVM IR text to machine code, by LLVM itself.

In: IR text and the strings that name a machine (triple, CPU, features). Out: bytes of an object file, or assembly text.
Invariant: imports nothing but llvmlite and a constant, so that workers start fast; target machines are made once.
The emitter has already unrolled, hoisted and shared, so the pipeline is short: see `_optimise`.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm

from armillary.base.imported import IMPORTS, SCALABLE


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@functools.lru_cache(maxsize=64)
def machine(  # Any: llvmlite has no types
    triple: str, cpu: str, features: str, abi: str = "", opt_level: int = 2
) -> Any:
    """The target machine; ValueError with LLVM's words if the triple is unknown."""
    _initialize()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise ValueError(f"LLVM does not know the triple {triple!r}: {error}") from None
    return target.create_target_machine(
        cpu=cpu, features=features, opt=opt_level, reloc="pic", codemodel="default", abiname=abi, printmc=False
    )


def parse(ir: str, triple: str, tm: Any) -> Any:
    """The verified module of `ir`; ValueError with LLVM's words if it is malformed."""
    own, *others = ir.split(IMPORTS)
    try:
        module = llvm.parse_assembly(own)
        for text in others:
            _import(module, text)
        module.triple = triple
        module.data_layout = str(tm.target_data)
        module.verify()
    except RuntimeError as error:
        raise ValueError(f"LLVM refuses the IR: {error}") from None
    return module


def _import(module: llvm.ModuleRef, text: str) -> None:
    """Join what another module defines, for this one's use alone: two kernels may import the same functions."""
    try:
        other = llvm.parse_assembly(text)
    except RuntimeError as error:
        raise ValueError(f"what a loop imports (pragma import_llvm) is no LLVM IR: {error}") from None
    other.triple, other.data_layout = module.triple, module.data_layout
    names = [f.name for f in other.functions if not f.is_declaration]
    module.link_in(other)
    for name in names:
        module.get_function(name).linkage = llvm.Linkage.internal


def _optimise(module: object, tm: object) -> None:
    """Inline the math functions, then combine, clean up and share what the emitter could not see."""
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(tm, options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_aggressive_dce_pass()
    passes.run(module, builder)


def _vectorise(module: object, tm: object) -> None:
    """LLVM's own pipeline, for its vectors of a length that the machine decides (SCALABLE)."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.loop_interleaving = True
    options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(tm, options)
    builder.getModulePassManager().run(module, builder)


def compile_ir(
    ir: str, triple: str, cpu: str, features: str, form: str = "object", abi: str = "", opt_level: int = 2
) -> bytes:
    """Machine code of `ir`: form is object, assembly or llvm (the optimised IR)."""
    tm = machine(triple, cpu, features, abi, opt_level)
    module = parse(ir, triple, tm)
    _optimise(module, tm)
    if SCALABLE in ir:
        _vectorise(module, tm)
    if form == "llvm":
        return str(module).encode()
    if form == "assembly":
        return str(tm.emit_assembly(module)).encode()
    return bytes(tm.emit_object(module))
