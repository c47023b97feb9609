"""Build functions of the compute library for programs in C++ that have no Python where they run.

Words are functions (all that can be built, without any) and the options of the library's own build, `name=value`:
arch (armv7a, arm64-v8a, arm64-v8.2-a, x86_32, x86_64; default: this machine), os (linux, android, bare_metal), build
(native, cross_compile, embed_only), neon, opencl, embed_kernels, debug, asserts, logging, openmp, cppthreads,
set_soname, examples, Werror, standalone, build_dir, extra_cxx_flags.

examples:
  armc compute build -o sdk
  armc compute build arch=arm64-v8a NEConvolutionLayer NEGaussian5x5 -o board
  armc compute build opencl=1 embed_kernels=0 neon=0 NEMedian3x3 -o kernels
"""

from __future__ import annotations

import argparse

from armillary.cli._console import errors, stages
from armillary.compute.ahead.build import build
from armillary.compute.ahead.examples import build_examples
from armillary.compute.ahead.functions import FUNCTIONS
from armillary.compute.ahead.options import BuildOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc compute`."""
    parser.add_argument("action", choices=["build"], help="write libraries, headers and sources")
    parser.add_argument("words", nargs="*", metavar="FUNCTION|NAME=VALUE", help="what to build, and how")
    parser.add_argument("-o", "--output", default="armillary_compute", help="the folder to write")


def run(args: argparse.Namespace) -> int:
    """Build the library."""
    options = BuildOptions.parse(word for word in args.words if "=" in word)
    names = [word for word in args.words if "=" not in word] or list(FUNCTIONS)
    with stages() as progress:
        progress.start(f"compiling {len(names)} functions for {options.target()}")
        folder = build(names, options.target(), args.output, options)
        if options.examples and options.neon:
            progress.start("compiling examples")
            build_examples(folder, names, options)
    for file in sorted(f for f in folder.rglob("*") if f.is_file()):
        errors.print(f"{file}: {file.stat().st_size / 1e3:.0f} kB", highlight=False)
    return 0
