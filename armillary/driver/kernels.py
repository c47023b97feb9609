"""From fused functions to object code, through the disk cache.

In: named kernels (fused Relay functions with their text) and a target. Out: `CompiledKernels`: one object and one
descriptor row per kernel. Invariant: an entry of the cache is found again by the text of the function, the target, the
pass configuration and the compiler's own sources, so nobody ever clears it by hand. Lowering runs here, one kernel
after another, while worker processes turn earlier ones into objects.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from armillary.artifact import Descriptor, FunctionRow
from armillary.codegen.build import CompiledModule, build_functions, machine_text
from armillary.codegen.cache import Cache, cache_key, default_cache
from armillary.config import setting
from armillary.driver.graph_codegen import Kernel
from armillary.driver.lower_fused import lower_fused
from armillary.errors import ArmillaryError
from armillary.relay.types import tensor_fields
from armillary.target import Target
from armillary.tir.lower import ADD_LOWER_PASS, lower_function
from armillary.tir.phases import PhasedFunction
from armillary.tir.printer import print_function
from armillary.tir.stmt import PrimFunc
from armillary.tir.transform.split_phases import split_phases
from armillary.transform import PassContext

Progress = Callable[[str, int, int], None]  # stage, done, total
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel's machine code, its descriptor row and the C symbols it needs from elsewhere."""

    row: FunctionRow
    code: bytes
    externs: tuple[str, ...]


def no_progress(stage: str, done: int, total: int) -> None:
    """The progress callback that shows nothing."""


def compile_kernels(
    kernels: Sequence[Kernel], target: Target, progress: Progress = no_progress
) -> dict[str, CompiledKernel]:
    """Compile every kernel, reading what the cache has and writing what it lacks."""
    context = PassContext.current()
    store = None if context.get(ADD_LOWER_PASS) else default_cache()  # code of the user's is no part of the key
    is_watched = any(i.needs_kernels for i in context.instruments)
    common = (machine_text(target), setting("ARMILLARY_CC"), _context_text(), compiler_fingerprint())
    keys = {k.name: cache_key("kernel", k.text, *common) for k in kernels}
    found = {k.name: None if is_watched else _read(store, keys[k.name], k.name) for k in kernels}
    missing = [k for k in kernels if found[k.name] is None]
    done = {name: kernel for name, kernel in found.items() if kernel is not None}
    progress("compile", len(done), len(kernels))
    with ThreadPoolExecutor(max_workers=max(1, setting("ARMILLARY_COMPILE_JOBS"))) as pool:
        futures: list[tuple[Kernel, Future[CompiledModule]]] = []
        for kernel in missing:
            phased, _ = lower_kernel(kernel, target)
            futures.append((kernel, pool.submit(_compile_one, phased, target)))
        for kernel, future in futures:
            done[kernel.name] = _store(store, keys[kernel.name], future.result())
            progress("compile", len(done), len(kernels))
    if missing and store is not None:
        store.trim_at_times()
    return {k.name: done[k.name] for k in kernels}


def lower_kernel(kernel: Kernel, target: Target) -> tuple[PhasedFunction, PrimFunc]:
    """The phases of a kernel, and the loops they were cut from; errors say which kernel."""
    try:
        loops = lower_function(lower_fused(kernel.function, target, kernel.name), target)
        phased = split_phases(loops, kernel.name)
        count = len(tensor_fields(kernel.function.body.checked_type))
        return replace(phased, outputs=phased.params[len(phased.params) - count :]), loops
    except ArmillaryError:
        raise
    except Exception as error:
        error.args = (f"{error} (while lowering kernel {kernel.name}:\n{kernel.text})",)
        raise


def kernel_sources(kernels: Sequence[Kernel], target: Target, form: str) -> str:
    """The text of all kernels: tir, ll, asm or c. Lowers them again: the cache keeps no text."""
    parts = []
    for kernel in kernels:
        phased, loops = lower_kernel(kernel, target)
        if form == "tir":
            parts.append(print_function(loops, kernel.name))
        else:
            parts.append(build_functions([phased], target, cache=None).get_source(form))
    return "\n".join(parts)


def _compile_one(phased: PhasedFunction, target: Target) -> CompiledModule:
    return build_functions([phased], target, jobs=0, cache=None)  # in a worker: LLVM takes 50 MB, kept for good


def _context_text() -> str:
    context = PassContext.current()
    config = sorted(context.config.items(), key=str)
    return repr((context.opt_level, context.disabled_pass, context.required_pass, config))


@cache
def compiler_fingerprint() -> str:
    """A hash of the package's own Python sources."""
    digest = sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _store(store: Cache | None, key: str, module: CompiledModule) -> CompiledKernel:
    (code,) = module.objects
    (row,) = module.rows.values()
    kernel = CompiledKernel(row, code, module.externs)
    if store is not None:
        head = json.dumps({"descriptor": module.descriptor.to_json(), "externs": kernel.externs}).encode()
        store.put(key, struct.pack("<I", len(head)) + head + code)
    return kernel


def _read(store: Cache | None, key: str, name: str) -> CompiledKernel | None:
    payload = store.get(key) if store is not None else None
    if payload is None:
        return None
    (size,) = struct.unpack_from("<I", payload)
    head = json.loads(payload[4 : 4 + size])
    row = Descriptor.from_json(head["descriptor"]).functions[name]
    return CompiledKernel(row, payload[4 + size :], tuple(head["externs"]))


def merge_rows(kernels: Mapping[str, CompiledKernel], target: Target) -> Descriptor:
    """The descriptor of all kernels together."""
    return Descriptor(str(target), {name: kernel.row for name, kernel in kernels.items()})
