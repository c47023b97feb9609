"""From fused functions to object code, through the disk cache.

In: named kernels (fused Relay functions with their text) and a target. Out: `CompiledKernel`s: one object, one
descriptor row and notes (explain.py) per kernel. Invariant: an entry of the cache is found
again by the text of the function, the target, the pass configuration and the compiler's own sources, so nobody ever
clears it by hand. Lowering (kernel_code.py) runs here, one kernel after another, while worker processes turn earlier
ones into objects.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.artifact import Descriptor, FunctionRow
from armillary.codegen.cache import Cache, cache_key, default_cache
from armillary.codegen.llvm_target import machine_text
from armillary.config import setting
from armillary.digest import blake2b
from armillary.driver.graph_codegen import Kernel
from armillary.lazy import find
from armillary.target import Target
from armillary.transform import ADD_LOWER_PASS, PassContext

if TYPE_CHECKING:
    from armillary.codegen.build import CompiledModule

Progress = Callable[[str, int, int], None]  # stage, done, total
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel's machine code, its descriptor row, the C symbols it needs from elsewhere, and what is told of it."""

    row: FunctionRow
    code: bytes
    externs: tuple[str, ...]
    notes: Mapping[str, str]


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
    for kernel, module, notes in _code().compile_missing(missing, target) if missing else ():
        done[kernel.name] = _store(store, keys[kernel.name], module, notes)
        progress("compile", len(done), len(kernels))
    if missing and store is not None:
        store.trim_at_times()
    return {k.name: done[k.name] for k in kernels}


def kernel_sources(kernels: Sequence[Kernel], target: Target, form: str) -> str:
    """The text of all kernels: tir, ll, asm or c."""
    return str(_code().kernel_sources(kernels, target, form))


def _code() -> Any:  # Any: the module kernel_code, loaded late: it loads the loop language and the emitters
    return find("armillary.driver.kernel_code")


def _context_text() -> str:
    context = PassContext.current()
    config = sorted(context.config.items(), key=str)
    return repr((context.opt_level, context.disabled_pass, context.required_pass, config))


@cache
def compiler_fingerprint() -> str:
    """A hash of the package's own Python sources."""
    digest = blake2b()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _store(store: Cache | None, key: str, module: CompiledModule, notes: Mapping[str, str]) -> CompiledKernel:
    (code,) = module.objects
    (row,) = module.rows.values()
    kernel = CompiledKernel(row, code, module.externs, notes)
    if store is not None:
        told = {"descriptor": module.descriptor.to_json(), "externs": kernel.externs, "notes": notes}
        head = json.dumps(told).encode()
        store.put(key, struct.pack("<I", len(head)) + head + code)
    return kernel


def _read(store: Cache | None, key: str, name: str) -> CompiledKernel | None:
    payload = store.get(key) if store is not None else None
    if payload is None:
        return None
    (size,) = struct.unpack_from("<I", payload)
    head = json.loads(payload[4 : 4 + size])
    row = Descriptor.from_json(head["descriptor"]).functions[name]
    return CompiledKernel(row, payload[4 + size :], tuple(head["externs"]), head["notes"])


def merge_rows(kernels: Mapping[str, CompiledKernel], target: Target) -> Descriptor:
    """The descriptor of all kernels together."""
    return Descriptor(str(target), {name: kernel.row for name, kernel in kernels.items()})
