"""How tests run programs for other machines on this one, and what they need for it.

In: nothing. Out: `qemu_aarch64`, `qemu_arm`, the words before a program and its arguments; `need`. Invariant: a
program's loader and its C library are of one build. A machine that has Debian's arm64 C library itself (it comes with
arm64 packages) keeps it where the cross compiler's loader would look first, and a loader of one build with a C library
of another hangs.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from armillary.base.config import setting

CROSS_ROOT, CROSS_ROOT_32 = "/usr/aarch64-linux-gnu", "/usr/arm-linux-gnueabihf"


def qemu_aarch64(*options: str) -> list[str]:
    """The emulator with its options and the root of the program's libraries."""
    library = Path(os.environ.get("ARMILLARY_ACL") or "/none").parent  # unpacked with a C library of its own
    roots = [str(root) for root in (library, Path("/")) if (root / "lib/ld-linux-aarch64.so.1").exists()]
    return ["qemu-aarch64-static", *options, "-L", roots[0] if roots else CROSS_ROOT]


def qemu_arm(*options: str) -> list[str]:
    """The emulator of 32-bit Arm, with the libraries of its cross compiler."""
    return ["qemu-arm-static", *options, "-L", CROSS_ROOT_32]


def need(*programs: str) -> None:
    """Skip the test where one of these programs is not installed; in CI, which installs them, it fails."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        assert not setting("CI"), f"CI lacks {missing}"
        pytest.skip(f"needs {', '.join(missing)}")
