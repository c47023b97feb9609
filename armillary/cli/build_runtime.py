"""Build the runtime as libraries that C, C++ and Java programs link, for this machine or another.

Writes a folder with include/ (armillary_runtime.h, armillary.hpp) and lib/ (libarmillary_runtime.so and .a, the files
of CMake and of pkg-config). CMake finds it by -DCMAKE_PREFIX_PATH=FOLDER. For Android name the NDK's compiler.

examples:
  armc build-runtime -o sdk
  armc build-runtime --target rasp4b64 -o sdk-pi
  armc build-runtime --target armv7a-linux-gnueabihf -o sdk-arm32
  armc build-runtime --cross-compiler $NDK/bin/aarch64-linux-android28-clang -o sdk-android
"""

from __future__ import annotations

import argparse
from pathlib import Path

from armillary.base.c_compiler import as_command, need_compiler
from armillary.base.config import setting
from armillary.cli._console import errors, stages
from armillary.cli.options.models import program_target
from armillary.codegen.toolchain import find_toolchain
from armillary.errors import Span, TargetError
from armillary.runtime.build_native import build_sdk


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc build-runtime`."""
    parser.add_argument("-o", "--output", default="armillary-sdk", help="the folder to write (default: armillary-sdk)")
    parser.add_argument("--target", default="", help="a target, its triple, or a board such as rasp4b64")
    parser.add_argument("--cross-compiler", default="", metavar="CC", help="default: cc, gcc, clang or zig")


def _compiler(args: argparse.Namespace) -> list[str]:
    if args.target:
        return list(find_toolchain(program_target(args.target), args.cross_compiler or None).command)
    return as_command(args.cross_compiler) if args.cross_compiler else need_compiler(setting("ARMILLARY_CC"))


def run(args: argparse.Namespace) -> int:
    """Compile the libraries."""
    compiler, folder = _compiler(args), Path(args.output)
    with stages() as progress:
        progress.start(f"compiling the runtime with {compiler[0]}")
        try:
            libraries = build_sdk(compiler, folder)
        except TargetError as error:
            message = f"the runtime could not be built: {error.message}"
            raise TargetError(message, span=Span(str(folder)), hint=error.hint) from None
    for library in libraries:
        errors.print(f"{library}: {library.stat().st_size / 1e3:.0f} kB", highlight=False)
    return 0
