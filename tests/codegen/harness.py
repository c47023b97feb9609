"""Run functions of the loop language through a code generator in this process.

In: PrimFuncs and numpy arrays. Out: the arrays, changed in place. Invariant: nothing but the kernel ABI is used, with
two windows per phase and guard bytes around the workspaces.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from host_cpu import needs

from armillary.codegen.build import CompiledModule, build_functions
from armillary.codegen.object.jit import LoadedObjects
from armillary.codegen.workers.cache import Cache, default_cache
from armillary.tir import stmt as S
from armillary.tir.transform.split_phases import split_phases

KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
EXTENT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


def compiled(functions: list[S.PrimFunc], target: str, cache: Cache | None = None) -> CompiledModule:
    """Functions f0, f1, … built for a target."""
    phased = [split_phases(function, f"f{k}") for k, function in enumerate(functions)]
    return build_functions(phased, target, jobs=1, cache=cache or default_cache())


def run(function: S.PrimFunc, target: str, *arrays: np.ndarray[Any, Any], scalars: tuple[int, ...] = ()) -> int:
    """Call every phase in two windows (the second one first); the first non-zero return code, or 0.

    Skips the test where this machine cannot run the target's code.
    """
    needs(target)
    module = compiled([function], target)
    row = module.rows["f0"]
    code = LoadedObjects(module.objects, module.externs)
    shared = np.zeros(row.workspace + 64, np.uint8)
    private = np.zeros(row.thread_workspace * 2 + 64, np.uint8)
    bases = [(-block.ctypes.data % 64) + block.ctypes.data for block in (shared, private)]
    data = (ctypes.c_void_p * (len(arrays) + 2))(*[a.ctypes.data for a in arrays], *bases)
    variables = (ctypes.c_int64 * max(1, len(scalars)))(*scalars)
    for phase in row.phases:
        call = KERNEL(code.address(phase.symbol))
        extent = phase.extent if isinstance(phase.extent, int) else EXTENT(code.address(phase.extent))(variables)
        for thread, (begin, end) in enumerate(((extent // 2, extent), (0, extent // 2))):
            status = call(data, variables, begin, end, thread)
            if status:
                return int(status)
    return 0
