"""Modules of compiled functions.

In: a shared library, a package tar, or (for code compiled in this process) a descriptor and a resolver of symbols.
Out: `Module`; `mod["name"]` is callable with tensors, `mod["default"](device)` makes a graph executor.
Invariant: a Module keeps alive what its code lives in; every call checks count, dtype, shape and layout natively.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_double, c_int64, c_size_t, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from armillary.artifact import RETURNED, Descriptor, FunctionRow, load_params
from armillary.artifact.modules import ImportedModule, imported_modules
from armillary.artifact.package import (
    GRAPH,
    LIBRARY,
    OBJECT,
    PARAMS,
    Package,
    code_member,
    graph_text,
    is_object,
    open_folder,
    open_package,
    read_member,
)
from armillary.base.aliases import AnyFunction, Array
from armillary.base.boundary import boundary, bounded
from armillary.base.dtype import DType
from armillary.base.files import scratch_folder
from armillary.errors import ArtifactError, ExecutionError, TypeMismatch
from armillary.runtime.benchmark import BenchmarkResult, Timing, evaluate
from armillary.runtime.device import Device
from armillary.runtime.executor import Devices, GraphExecutor
from armillary.runtime.external import set_external_path
from armillary.runtime.native_library import CTensor, ErrorText, Handle, Resolver, native
from armillary.runtime.ndarray import NDArray, array, check_output, empty, from_dlpack
from armillary.runtime.packed import supply_functions, take_raised
from armillary.runtime.shared_weights import LoadedOnce
from armillary.runtime.stored_params import EmbeddedParams, StoredParams
from armillary.runtime.threads import pool


@bounded
class Function:
    """One compiled function. Tensors are passed in order, outputs included; scalars follow in the order of its vars."""

    def __init__(self, module: Module, row: FunctionRow) -> None:
        self.module = module
        self.row = row
        self.name = row.name

    def __call__(self, *args: object) -> float | None:  # NDArray, numpy arrays, DLPack producers, numbers
        """Run once; outputs are written in place. What the program returns, an int, a bool or a float, is given."""
        result = result_tensor(self.row, args)
        call = self.prepare(*args, *(() if result is None else (result,)))
        call.run()
        return None if result is None else result.numpy().item()

    def prepare(self, *args: object) -> PreparedCall:  # as in __call__
        """Check and bind the arguments once, for calls that repeat."""
        return PreparedCall(self, args)


def result_tensor(row: FunctionRow, args: Sequence[object]) -> NDArray | None:
    """The tensor for what a function returns, where the caller gives none."""
    last = row.args[-1] if row.args else None
    tensors = sum(not _is_number(arg) for arg in args)
    if last is None or last.name != RETURNED or tensors >= len(row.args):
        return None
    return empty((1,), last.dtype)


class PreparedCall:
    """A function bound to its arguments."""

    def __init__(self, function: Function, args: Sequence[object]) -> None:  # as in Function.__call__
        tensors = [_as_tensor(arg) for arg in args if not _is_number(arg)]
        for index, (arg, tensor) in enumerate(zip(function.row.args, tensors)):
            if arg.role == "out":
                check_output(tensor, f"{function.name}: argument {index} ({arg.name})")
        arguments = _without_sizes(function.row, [arg for arg in args if _is_number(arg)], [t.shape for t in tensors])
        scalars = scalar_bits(function.row, arguments)
        self._keep = (function.module, tensors)
        self._error = ErrorText()
        table = (CTensor * max(1, len(tensors)))(*(t.tensor for t in tensors))
        numbers = (c_int64 * max(1, len(scalars)))(*scalars)
        pointer = c_void_p()
        handle = function.module.handle.pointer
        index = native().arm_module_find(handle, function.name.encode())
        status = native().arm_call_create(
            handle, index, table, len(tensors), numbers, len(scalars), pool(), byref(pointer), *self._error.args
        )
        self._error.check(status, TypeMismatch)
        self._handle = Handle(pointer.value or 0, native().arm_call_destroy)

    def run(self) -> None:
        """Run the network once, with the inputs that are set."""
        self._check(native().arm_call_run(self._handle.pointer, *self._error.args))

    def time(self, number: int) -> float:
        """Run `number` times; seconds in all."""
        seconds = c_double()
        self._check(native().arm_call_time(self._handle.pointer, number, byref(seconds), *self._error.args))
        return seconds.value

    def _check(self, status: int) -> None:
        try:
            self._error.check(status)
        except ExecutionError as error:
            raise error from take_raised(error.message)


def _is_number(arg: object) -> bool:
    return isinstance(arg, (int, float, np.generic)) and not isinstance(arg, np.ndarray)


def _as_tensor(arg: object) -> NDArray:  # as in Function.__call__
    if isinstance(arg, NDArray):  # lanes of vectors are an axis to kernels
        kind = DType(arg.dtype)
        return arg if kind.lanes == 1 else NDArray(arg.memory, kind.element)
    if isinstance(arg, np.ndarray):
        return NDArray(arg)
    if hasattr(arg, "__dlpack__"):
        return from_dlpack(arg)
    raise TypeMismatch(f"a tensor is expected, got {type(arg).__name__}", hint="pass armillary.nd.array(...)")


def _without_sizes(row: FunctionRow, values: list[object], shapes: list[tuple[int, ...]]) -> list[object]:
    """The scalars that shapes do not tell, where a caller gives sizes, too: the function's variables in their order."""
    message = {dim: size for arg, shape in zip(row.args, shapes) for dim, size in zip(arg.shape, shape)}
    free = [var for var in row.vars if var.name not in message]
    listed, rest = row.vars[: len(values)], row.vars[len(values) :]
    if len(values) <= len(free) or len(listed) < len(values) or any(var.name not in message for var in rest):
        return values
    for var, value in zip(listed, values):
        if var.name in message and value != message[var.name]:
            raise TypeMismatch(f"{row.name}: {var.name} is given as {value}, the tensors have {message[var.name]}")
    return [value for var, value in zip(listed, values) if var.name not in message]


def scalar_bits(row: FunctionRow, values: list[Any]) -> list[int]:  # Any: python and numpy numbers
    """Scalar arguments as the kernel's variables: floats as the bits of a double."""
    bound = {dim for arg in row.args for dim in arg.shape if isinstance(dim, str)}
    free = [var for var in row.vars if var.name not in bound]
    if len(values) != len(free):
        raise TypeMismatch(f"{row.name}: {len(values)} scalar arguments given, but {len(free)} are wanted")
    result = []
    for var, value in zip(free, values):
        if "float" in var.dtype:
            result.append(struct.unpack("<q", struct.pack("<d", float(value)))[0])
        else:
            if int(value) != value or not -(1 << 63) <= int(value) < 1 << 63:
                raise TypeMismatch(f"{row.name}: scalar {var.name} must be an integer of 64 bits, got {value}")
            result.append(int(value))
    return result


@boundary("graph executor", arguments=True)
def create_graph_module(
    graph_json: str | bytes,
    params: Mapping[str, Array] | bytes | StoredParams | EmbeddedParams | None,
    module: Module,
    device: Devices = None,
    restore: Callable[[str], Array] | None = None,
    loaded: LoadedOnce | None = None,
) -> GraphExecutor:
    """A graph executor with its parameters set; parameters that the graph does not have are refused.

    `restore` gives the values of a parameter again, so that the executor need not keep those that it has expanded.
    Executors with the same `loaded`, graph and parameters have them in memory once.
    """
    executor = GraphExecutor(graph_json, module, device)
    executor.restore = restore
    if params and loaded is not None and not isinstance(params, bytes | bytearray):
        loaded.bind(executor, params)
    elif params:
        executor.bind(params)
    return executor


@bounded
class Module:
    """A set of compiled functions, perhaps with a graph and its parameters."""

    def __init__(self, handle: Handle, keep_alive: object = None, path: str = "") -> None:
        supply_functions()
        self.handle = handle
        self.path = path
        self._keep_alive = keep_alive
        self._loaded = LoadedOnce()
        text = _native_bytes(native().arm_module_descriptor, handle)
        self.descriptor = Descriptor.from_json(text or b"")
        if any(row.external is not None for row in self.descriptor.functions.values()):
            set_external_path()
        graph = _native_bytes(native().arm_module_graph_json, handle)
        self.graph_json: str | None = None if graph is None else graph.decode("utf-8", "strict")
        embedded = EmbeddedParams(handle)
        self.stored: EmbeddedParams | StoredParams | bytes | None = embedded if embedded.exists else None

    def __repr__(self) -> str:
        graph = "" if self.graph_json is None else ' and a network: ["default"](armillary.cpu()) makes its executor'
        count, origin = len(self.descriptor.functions), f"{self.path}: " if self.path else ""
        return f"Module({origin}{count} function{'s' * (count != 1)}{graph})"

    @staticmethod
    def from_symbols(descriptor: Descriptor | str, resolve: Callable[[str], int], keep_alive: object = None) -> Module:
        """A module over code that is in memory; `resolve` maps a symbol to its address (0: unknown)."""
        text = (descriptor.to_json() if isinstance(descriptor, Descriptor) else descriptor).encode("utf-8")
        error, pointer = ErrorText(), c_void_p()
        callback = Resolver(lambda _, name: resolve(name.decode()) or None)
        status = native().arm_module_create(text, len(text), callback, None, byref(pointer), *error.args)
        error.check(status, ArtifactError)
        return Module(Handle(pointer.value or 0, native().arm_module_release), keep_alive)

    @property
    def params(self) -> bytes | None:
        """The params blob that came with the module, read from where it is stored."""
        return self.stored if isinstance(self.stored, bytes) or self.stored is None else self.stored.read()

    @property
    def type_key(self) -> str:
        return "library"

    @property
    def imported_modules(self) -> list[ImportedModule]:
        """The kernels of devices, and the functions that libraries compute."""
        return imported_modules(self.descriptor)

    @property
    def lib(self) -> Module:
        """The compiled functions: the module itself."""
        return self

    def get_lib(self) -> Module:
        """The compiled functions: the module itself."""
        return self

    def set_folder(self, folder: str | Path) -> None:
        """Say where the package lies: libraries for its offloaded functions may lie beside it."""
        error = ErrorText()
        error.check(native().arm_module_set_folder(self.handle.pointer, os.fsencode(folder), *error.args))

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the compiled functions."""
        return tuple(self.descriptor.functions)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a compiled function of that name."""
        return isinstance(name, str) and name in self.descriptor.functions

    def get_function(self, name: str, query_imports: bool = False) -> Any:  # Any: a Function or a factory
        """The function of a name; "default" is the factory of graph executors if the module holds a graph.

        `TVMSystemLibEntryPoint` is there as in libraries of the C runtime: it gives the module of what is linked here.
        """
        if not isinstance(name, str):
            raise ExecutionError(f"functions have names, got {name!r}", hint='pass a string, such as "default"')
        if name in self.descriptor.functions:
            return Function(self, self.descriptor.functions[name])
        if self.graph_json is not None and name in _OF_GRAPHS:
            return partial(_OF_GRAPHS[name], self)
        if name == SYSTEM_LIB_ENTRY:
            return lambda: self
        known = ", ".join(list(self.functions)[:8])
        raise ExecutionError(f"the module has no function {name!r}", hint=f"it has {known}")

    def __getitem__(self, name: str) -> Any:  # Any: see get_function
        return self.get_function(name)

    @property
    def entry_func(self) -> Function:
        """The only function of the module."""
        names = self.functions
        if len(names) != 1:
            raise ExecutionError(f"the module has {len(names)} functions; name the one to call", hint='mod["name"](…)')
        return Function(self, self.descriptor.functions[names[0]])

    def __call__(self, *args: object) -> float | None:  # as in Function.__call__
        """Call the only function of the module."""
        return self.entry_func(*args)

    def get_graph_params(self) -> dict[str, NDArray]:
        """The stored parameters, by the names of the graph."""
        if self.stored is None:
            return {}
        blob = self.stored if isinstance(self.stored, bytes) else self.stored.read()
        return {name: array(value) for name, value in load_params(blob).items()}

    def debug_create(self, name: str, *devices: Device) -> GraphExecutor:
        """A graph executor, for a debug executor to look into."""
        del name  # of the graph: there is one
        return self.create_executor(*devices)

    def create_executor(self, *devices: Device) -> GraphExecutor:
        """A graph executor over the module's own graph and parameters."""
        if self.graph_json is None:
            raise ExecutionError("the module holds no graph", hint="export it from relay.build")
        return create_graph_module(self.graph_json, self.stored, self, devices, loaded=self._loaded)

    def time_evaluator(
        self, func_name: str, dev: Device, number: int = 10, repeat: int = 1, **options: object
    ) -> Callable[..., BenchmarkResult]:  # Any: the other fields of Timing
        """A callable that times the function on given arguments."""
        is_entry = isinstance(func_name, str) and func_name == self.entry_name
        function = self.entry_func if is_entry else self.get_function(func_name)
        if not isinstance(function, Function):
            raise ExecutionError(f"{func_name!r} is not a compiled function", hint="time the executor's run instead")
        timing = make_timing(number, repeat, options)
        return lambda *args: evaluate(function.prepare(*args).time, timing)

    entry_name = "main"


def make_timing(number: int, repeat: int, options: dict[str, Any]) -> Timing:  # Any: fields of Timing
    """Timing from keyword arguments; an unknown one is a TypeMismatch."""
    try:
        return Timing(number=number, repeat=repeat, **options)
    except TypeError as error:
        raise TypeMismatch(f"time_evaluator: {error}") from error


def _native_bytes(getter: AnyFunction, handle: Handle) -> bytes | None:
    size = c_size_t()
    pointer = getter(handle.pointer, byref(size))
    return None if pointer is None else ctypes.string_at(pointer, size.value)


@boundary("open_library", arguments=True)
def open_library(path: str | Path) -> Module:
    """Load a shared library of compiled functions."""
    error, pointer = ErrorText(), c_void_p()
    status = native().arm_module_open(os.fsencode(path), byref(pointer), *error.args)
    error.check(status, ArtifactError, hint="load a file that `armc compile` or export_library wrote for this machine")
    return Module(Handle(pointer.value or 0, native().arm_module_release), path=str(path))


@boundary("runtime.from_package", arguments=True)
def from_package(package: Package) -> Module:
    """Load the library of a package and give it the package's graph and parameters."""
    module = _from_bytes(package.library, OBJECT if is_object(package.library) else LIBRARY)
    if package.graph_json:
        module.graph_json, module.stored = package.graph_json, package.params
    return module


def _from_bytes(library: bytes, member: str, origin: str = "the package") -> Module:
    with scratch_folder() as folder:
        path = folder / member
        path.write_bytes(library)
        try:
            module = open_library(path)
            module.set_folder("")
            return module
        except ArtifactError as error:  # the user knows the package, not the file that it was unpacked to
            message = error.message.replace(str(path), f"{origin}: {member}")
            raise ArtifactError(message, span=error.span, hint=error.hint) from None


def _open_tar(path: str | Path) -> Module:
    """Parameters stay in the file until an executor reads them."""
    with open_package(path) as (stream, members):
        code = code_member(members)
        module = _from_bytes(read_member(stream, code, path), code.name, str(path))
        module.set_folder(Path(path).resolve().parent)
        if GRAPH in members:
            module.graph_json = graph_text(read_member(stream, members[GRAPH], path), path)
            module.stored = StoredParams(stream, members[PARAMS], path)
    return module


def _open_folder(path: Path) -> Module:
    """The members of a package, unpacked."""
    with open_folder(path) as (files, members):
        code = code_member(members)
        library, graph = (read_member(files[name], members[name], path) for name in (code.name, GRAPH))
        module = _from_bytes(library, code.name, str(path))
        module.graph_json = graph_text(graph, path)
        module.stored = StoredParams(files[PARAMS], members[PARAMS], path)
        module.set_folder(path.resolve())
    return module


@boundary("load_module", arguments=True)
def load_module(path: str | Path, fmt: str = "") -> Module:
    """Load a `.so`, a package `.tar` or the folder that one was unpacked to, or an object (`fmt` overrides the suffix).

    Objects, in a package too, are linked in memory: no linker is needed. Raises ArtifactError.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeMismatch(f"a package is named by its path, got {type(path).__name__}")
    path = Path(path).expanduser()
    kind = fmt or Path(path).suffix.lstrip(".")
    if not Path(path).exists():
        raise ArtifactError(f"{path}: there is no such file")
    if Path(path).is_dir():
        return _open_folder(Path(path))
    if kind in ("so", "o"):
        return open_library(path)
    if kind == "tar":
        return _open_tar(path)
    hint = "load a .so, .o or .tar that `armc compile` or export_library wrote"
    raise ArtifactError(f"{path}: unknown kind of module {kind!r}", hint=hint)


class SystemModule(Module):
    """All that is registered; `module["name"]` is a function, or the factory of a network's executors by its name."""

    prefix = ""

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the networks that are linked in with their graphs."""
        names: list[str] = []
        while (name := native().arm_system_network(len(names))) is not None:
            names.append(name.decode())
        return tuple(names)

    def get_function(self, name: str, query_imports: bool = False) -> object:  # a Function or a factory
        """The function called prefix + name, else the one called name; "default" makes the only network's executor."""
        if isinstance(name, str) and self.prefix + name in self.descriptor.functions:
            return super().get_function(self.prefix + name)
        if isinstance(name, str) and name in self.networks and name not in self.descriptor.functions:
            return partial(Module.create_executor, _system_module(name))
        if name == "default" and self.graph_json is None and len(self.networks) > 1:
            known = ", ".join(self.networks)
            raise ExecutionError(f"{len(self.networks)} networks are linked in: {known}", hint="name one of them")
        return super().get_function(name, query_imports)


@boundary("runtime.system_lib", arguments=True)
def system_lib(symbol_prefix: str = "") -> SystemModule:
    """The functions that are linked into this process, by objects of builds with -system-lib.

    A function is looked for as `symbol_prefix` and its name first, then by its name alone.
    """
    if not isinstance(symbol_prefix, str):
        raise TypeMismatch(f"system_lib: the prefix is {type(symbol_prefix).__name__}, wanted a string")
    module = _system_module(None)
    module.prefix = symbol_prefix
    return module


def _system_module(network: str | None) -> SystemModule:
    error, pointer = ErrorText(), c_void_p()
    name = None if network is None else network.encode()
    error.check(native().arm_module_system(name, byref(pointer), *error.args), ArtifactError)
    return SystemModule(Handle(pointer.value or 0, native().arm_module_release), path="the system library")


SYSTEM_LIB_ENTRY = "TVMSystemLibEntryPoint"
_OF_GRAPHS: dict[str, AnyFunction] = {  # functions that a module with a graph has beside its kernels
    "default": Module.create_executor,
    "debug_create": Module.debug_create,
    "get_graph_json": lambda module: module.graph_json,
    "get_graph_params": Module.get_graph_params,
}
