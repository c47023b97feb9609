"""Kernels that come with the package: those of the library's functions, compiled for the usual levels of processors.

In: the text of a function of loops, and options of passes. Out: its compiled objects with their descriptor, or None.
Invariant: a file of kernels is used where the compiler's files have the names and sizes of those that wrote it, on a
processor that has all of the file's level. The files: `write_pack`, called by `ahead/pack.py` when a wheel is built; a
checkout has none. What is not here is compiled: `stored_loops.py`.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import armillary
from armillary.base.config import setting
from armillary.base.digest import blake2b
from armillary.base.files import write_atomic
from armillary.base.once import once
from armillary.target.cpu_table import X86

FOLDER = Path(__file__).parents[1] / "kernels"
# Vectors of 512 bits, as native code has them: LLVM's x86-64-v4 alone prefers 256.
LEVELS = {
    "x86-64-v4": "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4 -mattr=-prefer-256-bit",
    "x86-64-v3": "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3",
    "x86-64-v2": "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v2",
    "aarch64": "llvm -mtriple=aarch64-linux-gnu",
}
_COMPILER = ("arith", "backends", "codegen", "driver", "ops", "relay", "target", "te", "tir")
_FLAGS = {"sse3": "pni", "lzcnt": "abm", "bmi": "bmi1"}  # as Linux calls them


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry


@once
def compiler_files() -> list[tuple[str, int, int]]:
    """The compiler's files: names from the package on, sizes, times of the last change."""
    root = os.path.dirname(armillary.__file__)
    entries = [entry for name in _COMPILER for entry in _files(os.path.join(root, name))]
    return sorted((e.path[len(root) :], e.stat().st_size, e.stat().st_mtime_ns) for e in entries)


def kernel_key(text: str, config: Mapping[str, object]) -> str:
    """What a kernel is found by: its loops and the options of the passes."""
    return blake2b(repr((text, sorted(config.items()))).encode(), digest_size=16).hexdigest()


def _compiler() -> str:
    rows = [(name, size) for name, size, _ in compiler_files()]
    return blake2b(repr((armillary.__version__, rows)).encode(), digest_size=16).hexdigest()


def write_pack(path: Path, kernels: Mapping[str, bytes]) -> None:
    """Write kernels by their keys."""
    parts = {key: zlib.compress(data, 9) for key, data in kernels.items()}
    head = {"compiler": _compiler(), "lengths": {key: len(part) for key, part in parts.items()}}
    write_atomic(path, b"\n".join([json.dumps(head).encode(), b"".join(parts.values())]))


@once
def _pack() -> dict[str, bytes]:
    """The compressed kernels for this processor by their keys."""
    path = FOLDER / f"{level()}.pack"
    if not path.is_file():
        return {}
    head, _, data = path.read_bytes().partition(b"\n")
    row, result, start = json.loads(head), {}, 0
    if row["compiler"] != _compiler():
        return {}
    for key, size in row["lengths"].items():
        result[key], start = data[start : start + size], start + size
    return result


def level() -> str:
    """The highest level of which this processor has everything; "" where it has none."""
    machine = platform.machine().lower()
    if sys.platform != "linux" or setting("ARMILLARY_HOST_CPU") or machine not in ("x86_64", "aarch64"):
        return ""
    if machine == "aarch64":
        return machine
    with open("/proc/cpuinfo") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    levels = {name: X86[name].features for name in LEVELS if name in X86}
    has = {name: {_FLAGS.get(f, f).replace(".", "_") for f in wanted} <= set(flags) for name, wanted in levels.items()}
    return next((name for name, is_here in has.items() if is_here), "")


def shipped(text: str, config: Mapping[str, object]) -> bytes | None:
    """A kernel for this processor that came with the package, if there is one."""
    part = _pack().get(kernel_key(text, config))
    return zlib.decompress(part) if part is not None else None
