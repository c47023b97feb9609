"""Flags of programs of the runtime that watch their own memory: the same for all, so that objects are compiled once.

`watching_threads` lets a process of Python load a runtime that watches accesses of its threads to the same memory.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SANITIZED = ("-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
WATCHING_THREADS = ("-g", "-fsanitize=thread")


def watching_threads(compiler: Sequence[str]) -> tuple[list[str], dict[str, str]] | None:
    """What stands before a command, and the variables of its process; None where the compiler has no such runtime."""
    found = subprocess.run([*compiler, "-print-file-name=libtsan.so"], capture_output=True, text=True, check=False)
    library = Path(found.stdout.strip())
    if not library.is_absolute():
        return None
    fixed = [tool, "-R"] if (tool := shutil.which("setarch")) else []  # addresses that the sanitizer can follow
    return fixed, {"LD_PRELOAD": str(library), "TSAN_OPTIONS": "exitcode=66"}
