"""`python -m armillary.runtime`: where the files lie that a C or C++ program needs.

In: one option. Out: a folder on standard output, for a build's command line. Invariant: what is printed exists. In a
wheel the files are installed; in a source tree they are built on first use, into the cache folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import armillary
from armillary.base.c_compiler import need_compiler
from armillary.base.config import setting
from armillary.base.files import make_private_folder
from armillary.errors import ArmillaryError
from armillary.runtime.build_native import INSTALLED, RUNTIME_DIR, build_sdk, source_key

_PARTS = {
    "prefix": ("", "the folder that holds the others; for CMAKE_PREFIX_PATH"),
    "include-dir": ("include", "armillary_runtime.h and armillary.hpp"),
    "library-dir": ("lib", "libarmillary_runtime.so and .a"),
    "cmake-dir": ("lib/cmake/Armillary", "for -DArmillary_DIR"),
    "pkg-config-dir": ("lib/pkgconfig", "for PKG_CONFIG_PATH"),
}


def prefix() -> Path:
    """The folder with `include` and `lib`."""
    if INSTALLED.exists():
        return RUNTIME_DIR
    folder: Path = make_private_folder(setting("ARMILLARY_CACHE_DIR") / "sdk") / source_key()
    if not (folder / "lib" / INSTALLED.name).exists():
        build_sdk(need_compiler(setting("ARMILLARY_CC")), folder)
    return folder


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m armillary.runtime", description="Where the files for C and C++ lie."
    )
    parser.add_argument("--version", action="version", version=armillary.__version__)
    group = parser.add_mutually_exclusive_group(required=True)
    for name, (part, text) in _PARTS.items():
        group.add_argument(f"--{name}", dest="part", action="store_const", const=part, help=text)
    try:
        print(prefix() / parser.parse_args(arguments).part)
    except ArmillaryError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
