"""`Executor("aot")`: a network as C source for a machine without an operating system, in Model Library Format.

In: a build for target "c". Out: an `AotLibrary`: a library that runs here like any other, and a tar (or folder) of C
files with `tvmgen_<name>_run(inputs, outputs)`; with a pool of memory the caller passes that, too. Invariant: that
function allocates nothing, starts no thread and calls nothing but <math.h> and <string.h>; values between kernels lie
in one array of known size; it computes what the graph executor computes, bit for bit where the compiler contracts
nothing. The C text: `source.py`.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import platform
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from armillary.artifact import GraphSpec, save_params
from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.files import write_atomic
from armillary.base.lazy import deferred
from armillary.driver.library import GraphLibrary
from armillary.errors import ConfigError, TargetError, UnsupportedError
from armillary.target import Target

with deferred():  # every build asks is_aot, few write C
    from armillary.driver.aot.source import Package, arguments_of, known, main_source, package_header
    from armillary.ir.memory_pools import ConstantMemoryPools, WorkspaceMemoryPools, pool_for

__all__ = ["AotLibrary", "aot_library", "export_model_library_format"]
_UNIT = "#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize"  # how a kernel's C begins
_VERSION = 7  # of Model Library Format
_CONTROLLERS = "cortex-m"
_OF_CALLS = ("executor", "interface-api", "runtime", "system-lib", "unpacked-api")  # attributes of a target, in 0.7


class AotLibrary(GraphLibrary):
    """A network compiled ahead of time: `export_library("x.tar")` writes C; `lib["default"](device)` runs it here."""

    type_key = "AOTExecutorFactory"
    alignment = 64
    relay_text = pool = ""

    @property
    def package(self) -> Package:
        """What the C text is made from."""
        spec = GraphSpec.from_json(self.graph_json)
        values = {**self.params, **self._load_time_values(spec)}
        return Package(self.libmod_name, spec, self.descriptor, values, self.alignment, self.pool)

    @property
    def executor_codegen_metadata(self) -> Mapping[str, object]:
        """Inputs, outputs and bytes of memory, by name."""
        inputs, outputs = arguments_of(self.package)
        return {"inputs": inputs, "outputs": outputs, "workspace_size": self.package.workspace_bytes}

    def _load_time_values(self, spec: GraphSpec) -> dict[str, Array]:
        """Values that depend on parameters alone, by the names of their nodes: constants of the C text."""
        nodes = [k for k, node in enumerate(spec.nodes) if node.is_load_time]
        if not nodes:
            return {}
        executor = self._create()
        for k in spec.arg_nodes:
            if spec.nodes[k].name not in self.params:
                shape, dtype = known(*spec.shapes[spec.entry(k)]), DType(spec.dltypes[spec.entry(k)])
                executor.set_input(spec.nodes[k].name, np.zeros(shape, dtype.numpy))
        executor.run()
        return {spec.nodes[k].name: executor.get_node_output(k).numpy() for k in nodes}

    def files(self) -> dict[str, bytes]:
        """The files of the package by their paths in it."""
        name, package = self.libmod_name, self.package
        kernels = self._kernels()
        texts = {
            f"codegen/host/src/{name}_lib0.c": main_source(package),
            f"codegen/host/include/tvmgen_{name}.h": package_header(package),
            f"src/{name}.relay": self.relay_text,
            "metadata.json": json.dumps(self._metadata(), indent=2),
        }
        params = {f"parameters/{name}.params": save_params(self.get_params())}
        return {path: text.encode() for path, text in texts.items()} | kernels | params

    def _kernels(self) -> dict[str, bytes]:
        """The kernels as C, or as objects where their target makes no C."""
        name = self.libmod_name
        try:
            text = self.get_source("c")
        except TargetError:
            return {f"codegen/host/lib/{name}_lib{k + 1}.o": code for k, code in enumerate(self.objects)}
        units = (_UNIT + unit for unit in text.split(_UNIT)[1:])
        return {f"codegen/host/src/{name}_lib{k + 1}.c": unit.encode() for k, unit in enumerate(units)}

    def _metadata(self) -> dict[str, object]:
        inputs, outputs = arguments_of(self.package)
        size = self.package.workspace_bytes
        memory = {"main": [{"workspace_size_bytes": size, "constants_size_bytes": self.package.constant_bytes}]}
        module = {
            "model_name": self.libmod_name,
            "executors": ["aot"],
            "target": [str(self.target)],
            "style": "full-model",
            "memory": {"functions": memory},
            "inputs": inputs,
            "outputs": outputs,
        }
        stamp = datetime.datetime.fromtimestamp(0, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
        return {"version": _VERSION, "export_datetime": stamp, "modules": {self.libmod_name: module}}

    def _export_package(self, path: Path, make_code: Callable[[], bytes]) -> None:
        """A tar of this library is its C package."""
        del make_code
        export_model_library_format(self, path)


@boundary("micro.export_model_library_format")
def export_model_library_format(mod: AotLibrary, file_name: str | os.PathLike[str]) -> str:
    """Write the C package of a build with Executor("aot") as a tar; the path."""
    if not isinstance(mod, AotLibrary):
        hint = 'relay.build(module, "c", executor=Executor("aot"), runtime=Runtime("crt"))'
        raise ConfigError(f"export_model_library_format: got {type(mod).__name__}, wanted a C package", hint=hint)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in sorted(mod.files().items()):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    write_atomic(Path(file_name), stream.getvalue())
    return str(file_name)


def is_aot(executor: object, target: object) -> bool:
    """Whether a C package is asked for: by the executor, or as 0.7 did by the target (`c -executor=aot`)."""
    named = target.attrs.get("executor") if isinstance(target, Target) else None
    return "aot" in (str(executor), named)


def kernel_target(target: Target) -> Target:
    """The target that kernels are made for, without what a script of 0.7 says there of executor, runtime and calls.

    A microcontroller's C is that of this machine, with vectors of the smallest level.
    """
    if not str(target.attrs.get("mcpu", "")).startswith(_CONTROLLERS):
        attrs = {name: value for name, value in target.attrs.items() if name not in _OF_CALLS}
        return target if attrs == target.attrs else Target({"kind": target.kind.name, "keys": target.keys, **attrs})
    level = " -mcpu=x86-64" if platform.machine() == "x86_64" else ""
    return Target(f"c{level}")


def aot_library(
    graph_library: GraphLibrary,
    relay_text: str,
    alignment: int,
    workspaces: WorkspaceMemoryPools | None,
    constants: ConstantMemoryPools | None,
) -> AotLibrary:
    """The library with its C package; UnsupportedError for a graph that has no plain sequence of calls.

    With pools the memory of a run is the caller's, and constants are counted against theirs: BudgetError where none is
    large enough. Where constants lie is the linker's to say.
    """
    library = AotLibrary(
        graph_library.target,
        graph_library.objects,
        graph_library.descriptor,
        graph_library._externs,
        lambda form: str(graph_library.get_source(form)),
        graph_library.graph_json,
        graph_library.params.held,
        graph_library.libmod_name,
    )
    library.offload_report, library.alignment, library.relay_text = graph_library.offload_report, alignment, relay_text
    if '"state":' in graph_library.graph_json:
        raise UnsupportedError("a C package has no states", hint="executor='graph', or give them as inputs and outputs")
    if alignment <= 0 or alignment & (alignment - 1):
        raise UnsupportedError(f"workspace-byte-alignment is {alignment}, wanted a power of two")
    if workspaces is not None:
        library.pool = pool_for(library.package.workspace_bytes, workspaces.pools, "workspace").pool_name
    if constants is not None:
        pool_for(library.package.constant_bytes, constants.pools, "constants")
    return library
