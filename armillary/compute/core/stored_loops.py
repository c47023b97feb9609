"""Loops that this machine has compiled before: found without lowering them, so without what lowers and compiles.

In: a function as it was written, options of passes. Out: its compiled objects with their descriptor, of the kernel
cache, or nothing. Invariant: an entry is found by the function's text, the processor, the options, and the sizes and
times of the compiler's own files, so a changed compiler finds none; what needs foreign functions is not stored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import armillary
from armillary.artifact import Descriptor
from armillary.base.lazy import deferred
from armillary.base.once import once
from armillary.codegen.workers.cache import cache_key, default_cache
from armillary.driver.library import FunctionLibrary
from armillary.target import Target
from armillary.target.cpu import llvm_cpu
from armillary.tir.stmt import PrimFunc
from armillary.transform import PassContext

with deferred():
    from armillary.driver.te_build import build

_COMPILER = ("arith", "backends", "codegen", "driver", "target", "te", "tir")


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry


@once
def _compiler_sum() -> str:
    """What the compiler's files are now, by name, size and time."""
    root = Path(armillary.__file__).parent
    entries = [entry for name in _COMPILER for entry in _files(str(root / name))]
    rows = sorted((entry.path, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries)
    return cache_key(armillary.__version__, repr(rows))


def library_of(function: PrimFunc, config: Mapping[str, object]) -> FunctionLibrary:
    """A function for this machine: as it was stored, or compiled and stored."""
    target, cache = Target("llvm"), default_cache()
    key = cache_key("loops", str(function), repr(llvm_cpu(target)), repr(sorted(config.items())), _compiler_sum())
    stored = cache.get(key) if cache is not None else None
    if stored is not None:
        return _unpacked(stored, target)
    with PassContext(config=config):
        library = build(function, target=target)
    if cache is not None and not library.externs:
        cache.put(key, _packed(library))
    return library


def _packed(library: FunctionLibrary) -> bytes:
    head = {"lengths": [len(code) for code in library.objects], "descriptor": library.descriptor.to_json()}
    return b"\n".join([json.dumps(head).encode(), b"".join(library.objects)])


def _unpacked(data: bytes, target: Target) -> FunctionLibrary:
    head, _, code = data.partition(b"\n")
    row, objects, start = json.loads(head), [], 0
    for size in row["lengths"]:
        objects.append(code[start : start + size])
        start += size
    return FunctionLibrary(target, objects, Descriptor.from_json(row["descriptor"]))
