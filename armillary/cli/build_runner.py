"""Build the native runner, which runs packages without Python, or the native RPC server.

Compiles `armrun` (`--rpc-server`: `armrpc`) from the C sources that come with the package, for this machine or (cross
compiler) for another: by its target, triple or board the compiler is found. For 64-bit Android without its NDK zig
makes a program that takes packages of objects (net.tar), no libraries. With --external the program holds a library that
parts of a graph are offloaded to, linked statically: the board needs nothing beside it.

examples:
  armc build-runner -o armrun
  armc build-runner --target armv7a-linux-gnueabihf -o armrun-arm32
  armc build-runner --target rasp4b64 --rpc-server -o armrpc-arm64
  armc build-runner --target aarch64-linux-android28 -o armrun-android
  armc build-runner --cross-compiler aarch64-linux-gnu-gcc --cross-compiler-options=-static -o armrun-arm64
  armc build-runner --external arm_compute_lib --target aarch64-linux-gnu -o armrun-acl
  armc build-runner --rpc-server --cross-compiler aarch64-linux-gnu-gcc -o armrpc-arm64
  armc build-runner --cross-compiler "python -m ziglang cc --target=aarch64-linux-musl" -o armrun-arm64
"""

from __future__ import annotations

import argparse
from pathlib import Path

from armillary.base.c_compiler import as_command, need_compiler
from armillary.base.config import setting
from armillary.base.files import check_writable, scratch_folder
from armillary.cli._console import errors, stages
from armillary.cli.options.models import program_target
from armillary.codegen.toolchain import program_toolchain
from armillary.errors import Span, TargetError
from armillary.offload.acl.build_runtime import build_object
from armillary.runtime.build_native import build_rpc_server, build_runner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc build-runner`."""
    parser.add_argument("-o", "--output", help="the program to write (default: armrun, or armrpc)")
    parser.add_argument("--rpc-server", action="store_true", help="build armrpc, the server of RPC sessions")
    parser.add_argument("--target", default="", help="a target, its triple, or a board such as rasp4b64")
    parser.add_argument("--external", choices=("arm_compute_lib",), help="link this library into the program")
    parser.add_argument("--library", default="", metavar="FOLDER", help="where it is (default: ARMILLARY_ACL)")
    parser.add_argument("--cross-compiler", default="", metavar="CC", help="default: cc, gcc, clang or zig")
    options = parser.add_argument("--cross-compiler-options", default="", metavar="OPTIONS")
    options.help = "behind an equals sign: --cross-compiler-options=-static"


def _compiler(args: argparse.Namespace) -> list[str]:
    if args.target:
        return list(program_toolchain(program_target(args.target), args.cross_compiler or None).command)
    return as_command(args.cross_compiler) if args.cross_compiler else need_compiler(setting("ARMILLARY_CC"))


def _of_cxx(compiler: list[str]) -> list[str]:
    """The C++ compiler of the same name."""
    folder, slash, name = compiler[0].rpartition("/")
    for own, other in (("gcc", "g++"), ("clang", "clang++"), ("cc", "c++")):
        if name.endswith(own):
            return [folder + slash + name.removesuffix(own) + other, *compiler[1:]]
    raise TargetError(f"which C++ compiler goes with {compiler[0]}?", hint="--cross-compiler <triple>-gcc")


def run(args: argparse.Namespace) -> int:
    """Compile the runner."""
    compiler = _compiler(args)
    kind, build = ("RPC server", build_rpc_server) if args.rpc_server else ("runner", build_runner)
    path = Path(args.output or ("armrpc" if args.rpc_server else "armrun"))
    check_writable(path)
    with stages() as progress:
        progress.start(f"compiling the {kind} with {compiler[0]}")
        try:
            with scratch_folder() as folder:
                flags = args.cross_compiler_options.split()
                if args.external:
                    flags += build_object(folder / "external.o", _of_cxx(compiler), args.library)
                build(compiler, path, flags)
        except TargetError as error:
            raise TargetError(f"the {kind} could not be built: {error.message}", span=Span(str(path))) from None
    errors.print(f"{path}: {path.stat().st_size / 1e3:.0f} kB", highlight=False)
    if "android" in args.target and "-static" in compiler:
        errors.print("static, without Android's NDK: it runs packages of objects (net.tar), no libraries (net.so)")
    return 0
