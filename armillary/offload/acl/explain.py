"""What this machine has of Arm Compute Library, in words.

In: where runtime and library may be, and a C++ compiler. Out: a text: what was found and where, which versions are
known to work, what to install or set. Invariant: nothing is fetched, built or changed.
"""

from __future__ import annotations

import platform
from pathlib import Path

from armillary.errors import TargetError
from armillary.offload.acl.build_runtime import compiler_of
from armillary.offload.acl.find_library import INSTALL, KNOWN_VERSIONS, find_library, system_folders


def explain(runtime: Path, library: str = "", cxx: str = "") -> str:
    """Say it, one fact a line; `runtime`: where this machine's would be."""
    lines = [f"processor of this machine: {platform.machine()}; the library is for aarch64"]
    try:
        compiler = compiler_of(cxx)
        library_place = find_library(library, compiler)
        where = library_place.libraries or tuple(system_folders(compiler))
        lines.append(f"compiler: {' '.join(compiler)}")
        lines.append(
            f"library: version {library_place.version or 'unknown'} in {', '.join(map(str, where))}"
            if where
            else "library: none"
        )
    except TargetError as error:
        lines.append(f"library: {error.message}")
    lines.append(f"runtime: {runtime if runtime.exists() else 'not built for this machine'}")
    lines.append(f"versions known to work: {', '.join(KNOWN_VERSIONS)}")
    lines.append(f"to install: {INSTALL}")
    lines.append("then: armc build-external arm_compute_lib [--library FOLDER] [--cross-compiler CXX] -o board/")
    return "\n".join(lines)
