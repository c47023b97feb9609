"""Compiling the C sources of the runtime, for this machine or another.

In: a C compiler command (`["cc"]`, `["aarch64-linux-gnu-gcc"]`, `["python", "-m", "ziglang", "cc", "--target=…"]`).
Out: the library that Python loads and that programs link (shared, static), or `armrun`, the runner without Python.
Invariant: in a source tree the library's name holds a hash of the sources, so a stale build is never loaded; in a wheel
it is `lib/libarmillary_runtime.so`. Sources are compiled one by one, by as many compilers as there are cores. Needs
the standard library only: the build backend runs this file before anything is installed. Folders of `native`: packages
(what is read from files), memory (of users and other graphs), devices, rpc; functions, graphs and threads lie beside.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from armillary.base.c_compiler import archiver_of, is_zig, run_compiler, write_archive
from armillary.base.digest import blake2b
from armillary.base.files import make_folder, scratch_folder, write_atomic
from armillary.base.lazy import deferred

with deferred():  # who loads an installed library compiles nothing
    from concurrent.futures import ThreadPoolExecutor

RUNTIME_DIR = Path(__file__).resolve().parent
NATIVE_DIR = RUNTIME_DIR / "native"
INCLUDE_DIR = RUNTIME_DIR / "include"  # what programs that embed the runtime include
NAME = "libarmillary_runtime"
INSTALLED = RUNTIME_DIR / "lib" / f"{NAME}.so"  # in wheels
LIBRARY_SOURCES = (
    "arm_util.c",
    "arm_cpu.c",
    "arm_pool.c",
    "packages/arm_json.c",
    "arm_extent.c",
    "arm_function.c",
    "arm_module.c",
    "arm_system.c",
    "packages/arm_object.c",
    "arm_packed.c",
    "packages/arm_symbols.c",
    "packages/arm_params.c",
    "arm_plan.c",
    "arm_graph.c",
    "memory/arm_zero_copy.c",
    "arm_sizes.c",
    "arm_concurrent.c",
    "arm_control.c",
    "arm_variants.c",
    "arm_load.c",
    "memory/arm_equal.c",
    "memory/arm_share.c",
    "memory/arm_states.c",
    "memory/arm_stages.c",
    "packages/arm_crc32.c",
    "packages/arm_stream.c",
    "packages/arm_sums.c",
    "arm_trace.c",
    "arm_external.c",
    "devices/arm_device.c",
    "devices/arm_status.c",
    "devices/arm_opencl.c",
    "devices/arm_opencl_program.c",
    "devices/arm_opencl_image.c",
    "devices/arm_opencl_events.c",
    "devices/arm_opencl_wait.c",
    "packages/arm_write.c",
    "packages/arm_file.c",
    "packages/arm_tar.c",
    "packages/arm_package.c",
    "face/arm_c_runtime_api.c",
)
RUNNER_SOURCES = (*LIBRARY_SOURCES, "packages/arm_backtrace.c", "packages/arm_npy.c", "packages/arm_zip.c", "armrun.c")
RPC_SERVER_SOURCES = (
    *LIBRARY_SOURCES,
    "packages/arm_backtrace.c",
    "packages/arm_npy.c",
    "rpc/armrpc_system.c",
    "rpc/armrpc_sha256.c",
    "rpc/armrpc_frames.c",
    "rpc/armrpc_files.c",
    "rpc/armrpc_session.c",
    "rpc/armrpc_serve.c",
    "rpc/armrpc_tracker.c",
    "rpc/armrpc.c",
)
_WARNINGS = ("-Wall", "-Wextra")
_COMMON = ("-std=c11", "-O2", "-fno-strict-aliasing", *_WARNINGS, f"-I{NATIVE_DIR}", f"-I{INCLUDE_DIR}")
_LIBRARIES = ("-lpthread", "-ldl", "-lm")
_SHARED = ("-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{NAME}.so")
_SDK_FILES = frozenset({".h", ".hpp", ".cmake", ".pc"})
_LINKING = frozenset({"-shared", "-static"})  # flags of the whole, of which zig warns where it compiles


def source_key() -> str:
    """Twelve hex digits that change with any C source or header."""
    digest = blake2b()
    for path in sorted([*NATIVE_DIR.rglob("*.[ch]"), *INCLUDE_DIR.rglob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def library_name() -> str:
    """File name of the shared library built from the present sources."""
    return f"{NAME}-{source_key()}.so"


def build_library(compiler: Sequence[str], output: Path, flags: Sequence[str] = ()) -> Path:
    """Compile the shared library to `output`."""
    return _compile(compiler, LIBRARY_SOURCES, output, (*_SHARED, *flags))


def build_sdk(compiler: Sequence[str], folder: Path, flags: Sequence[str] = ()) -> list[Path]:
    """All that a program needs to embed the runtime: headers, both libraries, CMake's and pkg-config's files.

    Without an archiver beside the compiler there is no static library. Returns the libraries.
    """
    for part in ("include", "lib"):
        for source in sorted(path for path in (RUNTIME_DIR / part).rglob("*") if path.suffix in _SDK_FILES):
            target = folder / source.relative_to(RUNTIME_DIR)
            make_folder(target.parent)
            write_atomic(target, source.read_bytes())
    return build_libraries(compiler, folder / "lib", flags)


def build_libraries(compiler: Sequence[str], folder: Path, flags: Sequence[str] = ()) -> list[Path]:
    """Compile the sources once to the shared and, where there is an archiver, the static library in `folder`."""
    archiver = archiver_of(compiler)
    flags = (*_SHARED, *flags)
    make_folder(folder)
    with scratch_folder() as scratch:
        objects = _objects(compiler, LIBRARY_SOURCES, scratch, flags)
        shared = run_compiler([*compiler, *_COMMON, *flags, *objects, *_LIBRARIES], folder / f"{NAME}.so")
        if archiver is None:
            return [shared]
        archive = scratch / f"{NAME}.a"
        write_archive(archiver, objects, archive)
        return [shared, Path(shutil.copy(archive, folder / archive.name))]


def build_runner(compiler: Sequence[str], output: Path, flags: Sequence[str] = ()) -> Path:
    """Compile `armrun` to `output`. Its symbols stay private: a model needs nothing from it."""
    return _compile(compiler, RUNNER_SOURCES, output, flags)


def build_rpc_server(compiler: Sequence[str], output: Path, flags: Sequence[str] = ()) -> Path:
    """Compile `armrpc`, the RPC server that needs no Python."""
    return _compile(compiler, RPC_SERVER_SOURCES, output, flags)


def _compile(compiler: Sequence[str], sources: Sequence[str], output: Path, flags: Sequence[str]) -> Path:
    make_folder(output.parent)
    with scratch_folder() as folder:
        objects = _objects(compiler, sources, folder, flags)
        unwinder = ["-lunwind"] if is_zig(compiler) and "-shared" not in flags else []  # others' compilers bring theirs
        return run_compiler([*compiler, *_COMMON, *flags, *objects, *_LIBRARIES, *unwinder], output)


def _objects(compiler: Sequence[str], sources: Sequence[str], folder: Path, flags: Sequence[str]) -> list[str]:
    of_each = [flag for flag in flags if flag not in _LINKING and not flag.startswith("-Wl,")]

    def compile_one(name: str) -> str:
        object_file = folder / f"{Path(name).name}.o"
        return str(run_compiler([*compiler, *_COMMON, *of_each, "-c", str(NATIVE_DIR / name)], object_file))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_one, sources))
