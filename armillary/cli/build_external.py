"""Build the runtime of a library that parts of a graph are offloaded to.

Compiles the C++ sources that come with the package against the library, for this machine or (cross compiler) for
another, to libarmillary_external_<library>.so. Without -o it goes where this machine looks for it. Packages with
offloaded functions find the file beside them, or by ARMILLARY_EXTERNAL_PATH. The library is searched in --library or
ARMILLARY_ACL (ON: the folder acl, then the system; OFF; or a folder, in which `.`, lib and build are searched); what is
missing is named. --explain says what was found, what is known to work and what to install. --fetch fills a folder with
the library: from Debian packages or a release (--from; --target-lib: architecture and extensions), or else by apt.

examples:
  armc build-external arm_compute_lib --fetch acl
  armc build-external arm_compute_lib --fetch acl --from arm_compute-v21.08-bin-linux.tar.gz \\
      --target-lib linux-arm64-v8a-neon
  armc build-external arm_compute_lib
  armc build-external arm_compute_lib --cross-compiler aarch64-linux-gnu-g++ -o board/
  armc build-external clml --library ~/opencl-ml-sdk --cross-compiler aarch64-linux-android28-clang++ -o phone/
  armc build-external arm_compute_lib --explain --cross-compiler aarch64-linux-gnu-g++
  armc build-external arm_compute_lib --library ~/arm_compute-v21.08 --cross-compiler aarch64-linux-gnu-g++ -o board/
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from armillary.base.files import make_folder, make_private_folder
from armillary.cli._console import errors, stages
from armillary.errors import ConfigError
from armillary.offload.acl import build_runtime as acl
from armillary.offload.acl.explain import explain
from armillary.offload.acl.install_library import install_library
from armillary.offload.clml import build_runtime as clml
from armillary.runtime.external import built_folder, external_file

_BUILDERS: dict[str, Callable[..., Path]] = {"arm_compute_lib": acl.build_runtime, "clml": clml.build_runtime}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc build-external`."""
    parser.add_argument("NAME", help=f"the library: {', '.join(_BUILDERS)}")
    parser.add_argument("-o", "--output", default="", help="the file or folder to write (default: where it is found)")
    parser.add_argument("--library", default="", metavar="FOLDER", help="default: ARMILLARY_ACL, ADRENO_OPENCL")
    parser.add_argument("--cross-compiler", default="", metavar="CXX", help="default: c++, g++ or clang++")
    parser.add_argument("--explain", action="store_true", help="build nothing: say what is there, and what to install")
    parser.add_argument("--fetch", default="", metavar="FOLDER", help="build nothing: put the library into a folder")
    parser.add_argument("--from", dest="files", nargs="+", default=[], metavar="FILE", help="what --fetch unpacks")
    parser.add_argument("--target-lib", default="", metavar="NAME", help="which library of a release")
    options = parser.add_argument("--cross-compiler-options", default="", metavar="OPTIONS")
    options.help = "behind an equals sign: --cross-compiler-options=-O3"


def run(args: argparse.Namespace) -> int:
    """Compile the runtime."""
    builder = _BUILDERS.get(args.NAME)
    if builder is None:
        raise ConfigError(f"there is no runtime to build for {args.NAME!r}", hint=f"known: {', '.join(_BUILDERS)}")
    if (args.explain or args.fetch) and args.NAME != "arm_compute_lib":
        option = "--explain" if args.explain else "--fetch"
        raise ConfigError(f"{option} knows nothing of {args.NAME}", hint="it is for arm_compute_lib")
    if args.fetch:
        version = install_library(args.fetch, args.files, args.target_lib)
        print(f"Arm Compute Library {version or 'of an unknown version'} in {args.fetch}")
        return 0
    if args.explain:
        print(explain(built_folder() / external_file(args.NAME), args.library, args.cross_compiler))
        return 0
    output = Path(args.output) if args.output else make_private_folder(built_folder())
    if args.output.endswith("/"):
        make_folder(output)
    with stages() as progress:
        progress.start(f"compiling the runtime of {args.NAME}")
        path = builder(output, args.cross_compiler, args.library, args.cross_compiler_options.split())
    errors.print(f"{path}: {path.stat().st_size / 1e3:.0f} kB", highlight=False)
    return 0
