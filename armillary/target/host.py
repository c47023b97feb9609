"""The machine we run on: LLVM's view of its CPU, and its caches.

In: nothing (LLVM's CPU detection and /sys). Out: triple, CPU name, features, cache sizes, cached for the process.
Invariant: features are what the processor reports, so they hold even where LLVM guesses the CPU's name wrong.
Importing this module loads LLVM (0.1 s); `cpu.py` does so only for native targets.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path

import llvmlite.binding as llvm


@functools.cache
def triple() -> str:
    """LLVM's triple of this process."""
    return str(llvm.get_process_triple())


@functools.cache
def cpu_name() -> str:
    """The CPU as LLVM names it; it may be a near relative, so rely on `features`."""
    return str(llvm.get_host_cpu_name())


@functools.cache
def features() -> dict[str, bool]:
    """Every feature LLVM knows, and whether this processor has it; empty where LLVM cannot tell."""
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM has no detection for this architecture
        return {}


@functools.cache
def caches() -> dict[int, int]:
    """Bytes of the data caches by level, from /sys; empty where there is none."""
    found: dict[int, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind in ("Data", "Unified") and size.endswith("K"):
            found[int(level)] = int(size[:-1]) * 1024
    return found


def machine() -> str:
    """The architecture as the operating system names it."""
    return platform.machine()
