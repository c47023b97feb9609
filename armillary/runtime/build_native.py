"""Compiling the C sources of the runtime, for this machine or another.

In: a C compiler command (`["cc"]`, `["aarch64-linux-gnu-gcc"]`, `["python", "-m", "ziglang", "cc", "--target=…"]`).
Out: the shared library that Python loads, or `armrun`, the runner that needs no Python. Invariant: the library's name
holds a hash of the sources, so a stale build is never loaded. Sources are compiled one by one, by as many compilers as
there are cores. Needs the standard library only: the build backend runs this file before anything is installed. Folders
of `native`: packages (what is read from files), memory (of users and other graphs), devices, rpc; functions, graphs and
threads lie beside them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from armillary.base.c_compiler import run_compiler
from armillary.base.digest import blake2b
from armillary.base.files import make_folder, scratch_folder

NATIVE_DIR = Path(__file__).resolve().parent / "native"
LIBRARY_SOURCES = (
    "arm_util.c",
    "arm_cpu.c",
    "arm_pool.c",
    "packages/arm_json.c",
    "arm_function.c",
    "arm_module.c",
    "packages/arm_object.c",
    "arm_packed.c",
    "packages/arm_symbols.c",
    "packages/arm_params.c",
    "arm_plan.c",
    "arm_graph.c",
    "memory/arm_zero_copy.c",
    "arm_concurrent.c",
    "arm_control.c",
    "arm_variants.c",
    "arm_load.c",
    "memory/arm_share.c",
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
)
RUNNER_SOURCES = (*LIBRARY_SOURCES, "packages/arm_npy.c", "packages/arm_zip.c", "packages/arm_tar.c", "armrun.c")
RPC_SERVER_SOURCES = (
    *LIBRARY_SOURCES,
    "packages/arm_npy.c",
    "packages/arm_tar.c",
    "rpc/armrpc_sha256.c",
    "rpc/armrpc_frames.c",
    "rpc/armrpc_files.c",
    "rpc/armrpc_session.c",
    "rpc/armrpc_serve.c",
    "rpc/armrpc_tracker.c",
    "rpc/armrpc.c",
)
_WARNINGS = ("-Wall", "-Wextra")
_COMMON = ("-std=c11", "-O2", "-fno-strict-aliasing", *_WARNINGS, f"-I{NATIVE_DIR}")
_LIBRARIES = ("-lpthread", "-ldl", "-lm")
_LINKING = frozenset({"-shared", "-static"})  # flags of the whole, of which zig warns where it compiles


def source_key() -> str:
    """Twelve hex digits that change with any C source or header."""
    digest = blake2b()
    for path in sorted(NATIVE_DIR.rglob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def library_name() -> str:
    """File name of the shared library built from the present sources."""
    return f"libarmillary_runtime-{source_key()}.so"


def build_library(compiler: Sequence[str], output: Path, flags: Sequence[str] = ()) -> Path:
    """Compile the shared library to `output`."""
    return _compile(compiler, LIBRARY_SOURCES, output, ("-shared", "-fPIC", "-fvisibility=hidden", *flags))


def build_runner(compiler: Sequence[str], output: Path, flags: Sequence[str] = ()) -> Path:
    """Compile `armrun` to `output`. Its symbols stay private: a model needs nothing from it."""
    return _compile(compiler, RUNNER_SOURCES, output, flags)


def build_rpc_server(compiler: Sequence[str], output: Path, flags: Sequence[str] = ()) -> Path:
    """Compile `armrpc`, the RPC server that needs no Python."""
    return _compile(compiler, RPC_SERVER_SOURCES, output, flags)


def _compile(compiler: Sequence[str], sources: Sequence[str], output: Path, flags: Sequence[str]) -> Path:
    make_folder(output.parent)
    of_each = [flag for flag in flags if flag not in _LINKING]

    def compile_one(name: str) -> str:
        made = folder / f"{Path(name).name}.o"
        return str(run_compiler([*compiler, *_COMMON, *of_each, "-c", str(NATIVE_DIR / name)], made))

    with scratch_folder() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
        return run_compiler([*compiler, *_COMMON, *flags, *objects, *_LIBRARIES], output)
