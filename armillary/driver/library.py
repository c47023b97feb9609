"""What a build returns: compiled functions, for a graph with its JSON and parameters; runnable here, exportable.

In: object code, descriptor, and for networks the graph and parameters. Out: runtime modules on this machine (objects
are loaded in place, no linker runs), or files: a shared library, or the package tar. Invariant: a file is complete or
absent; what is exported computes what runs here.
"""

from __future__ import annotations

import _ctypes
import ctypes
import io
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.artifact import Descriptor, params_size, write_params
from armillary.artifact.library_sums import TRAILER, seal, trailer
from armillary.artifact.modules import ImportedModule, imported_modules
from armillary.artifact.package import Package, WriteBehind, save_network, save_package
from armillary.base.aliases import AnyFunction, Array
from armillary.base.aligned import Deferred, aligned
from armillary.base.boundary import boundary
from armillary.base.digest import blake2b
from armillary.base.files import check_writable, replacing, scratch_folder, write_atomic, written_atomically
from armillary.base.lazy import deferred
from armillary.codegen.object.elf_append import head_for_blob
from armillary.codegen.object.elf_link import Tail
from armillary.codegen.object.elf_merge import merged_object
from armillary.codegen.toolchain import compile_c, is_cross, link_shared, link_without_compiler, links_itself
from armillary.errors import ConfigError, ExecutionError, InternalError, TargetError, TypeMismatch
from armillary.target import Target
from armillary.target.target import host_target

if TYPE_CHECKING:
    from armillary.offload.report import OffloadReport
    from armillary.runtime import Device, GraphExecutor, Module

with deferred():
    from armillary import runtime  # who only exports runs nothing
    from armillary.codegen.c.constants import linked_parameters

with deferred():
    from armillary.codegen.object.jit import LoadedObjects
with deferred():
    from armillary.codegen import system_lib
    from armillary.codegen.object.registration import Network
Compiler = AnyFunction | str | Sequence[str] | None
Weight = Array | Deferred
Data = bytes | Mapping[str, Weight]  # what a data symbol holds: bytes, or parameters
_PARAMS = "armillary_params"
_PLACE_HOLDER = b"\0" * 64


class FunctionLibrary:
    """Compiled functions. Callable by name on this machine, exportable for any."""

    type_key = "library"

    def __init__(
        self,
        target: Target,
        objects: Sequence[bytes],
        descriptor: Descriptor,
        externs: Sequence[str] = (),
        source: Callable[[str], str] | None = None,
    ) -> None:
        self.target, self.objects, self.descriptor = target, tuple(objects), descriptor
        self._host = host_target(target)
        self._externs, self._source = tuple(externs), source
        self.other_names: dict[str, str] = {}  # of functions, by what else they may be asked for
        self.is_system_lib = False  # objects of it register themselves where they are linked
        self.are_kernels = False  # a network's, whose names say what they compute
        self.linked = Weights({})  # parameters that are part of the code: the executor's option link-params

    @property
    def externs(self) -> tuple[str, ...]:
        """Foreign functions that the objects call."""
        return self._externs

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the compiled functions."""
        return tuple(self.descriptor.functions)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.kernels)} kernels for {self.target})"

    def loaded(self) -> Any:  # Any: a LoadedObjects, which loads late
        """The code in this process, by symbol; TargetError when it was compiled for another machine."""
        if is_cross(self._host):
            raise TargetError(
                f"code for target {self.target} cannot run in this process",
                hint="export_library, then run it on the device (armrun) or under an emulator",
            )
        return LoadedObjects(self.objects, self._externs)

    @cached_property
    def module(self) -> Module:
        """The functions loaded into this process, to be called by name."""
        loaded = self.loaded()

        def resolve(symbol: str) -> int:
            try:
                address: int = loaded.address(symbol)
                return address
            except ExecutionError:
                return 0

        module = runtime.Module.from_symbols(self.descriptor, resolve, keep_alive=loaded)
        if self.linked:
            module.stored = self._linked_blob()
        return module

    is_dso_exportable = True

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether a function of that name is compiled here."""
        return isinstance(name, str) and self.other_names.get(name, name) in self.descriptor.functions

    @boundary("import_module", arguments=True, first=1)
    def import_module(self, module: FunctionLibrary) -> None:
        """Take in the functions of another library for the same target: called by name here, exported with these."""
        if not isinstance(module, FunctionLibrary) or str(module.target) != str(self.target):
            got = f"code for {module.target}" if isinstance(module, FunctionLibrary) else type(module).__name__
            raise TypeMismatch(f"import_module: got {got}, wanted functions compiled for {self.target}")
        own, other = self.descriptor, module.descriptor
        twice = sorted(own.functions.keys() & other.functions.keys())
        if twice or (own.device_code and other.device_code):
            message = f"both have a function {twice[0]!r}" if twice else "both have kernels of a device"
            raise TypeMismatch(f"import_module: {message}", hint="compile them as one: build([module, module])")
        needs = tuple(dict.fromkeys((*own.needs, *other.needs)))
        functions, code = {**own.functions, **other.functions}, {**own.device_code, **other.device_code}
        self.descriptor = replace(own, functions=functions, needs=needs, device_code=code)
        self.objects = (*self.objects, *module.objects)
        self.other_names = {**module.other_names, **self.other_names}
        self._externs = tuple(dict.fromkeys((*self._externs, *module._externs)))
        sources = self._source, module._source
        self._source = lambda form: "\n".join(source(form) for source in sources if source is not None)
        self.__dict__.pop("module", None)  # what was loaded lacks the new functions

    def get_function(self, name: str, query_imports: bool = False) -> Any:  # Any: a runtime Function
        return self.module[self.other_names.get(name, name) if isinstance(name, str) else name]

    def __getitem__(self, name: str) -> Any:  # Any: a runtime Function
        return self.get_function(name)

    def __call__(self, *args: object) -> float | None:  # arrays and numbers
        """Call the only function (or the one named default_function or main); what it returns, where it returns."""
        return self.module(*args)

    @property
    def entry_name(self) -> str:
        return self.kernels[0]

    def time_evaluator(self, func_name: str, dev: Device, **options: int) -> AnyFunction:  # fields of runtime Timing
        return self.module.time_evaluator(func_name, dev, **options)

    @property
    def imported_modules(self) -> list[ImportedModule]:
        """The kernels of devices, and the functions that libraries compute."""
        return imported_modules(self.descriptor)

    def get_source(self, fmt: str = "") -> str:
        """The text of the functions: "ll" (or "c" for the C target) by default; also "asm", "c", "tir"."""
        if not isinstance(fmt, str):
            raise TypeMismatch(f"the form of a text is a string, got {fmt!r}", hint='such as "ll", "asm", "c" or "tir"')
        text = self._source(fmt) if self._source is not None else ""
        if self.linked and fmt in ("c", "") and self._host.kind.name == "c":
            return text + linked_parameters(self.linked)
        return text

    @boundary("save")
    def save(self, file_name: str | os.PathLike[str], fmt: str = "") -> None:
        """Write one object file (.o), LLVM IR (.ll), assembly (.s) or C (.c), by suffix or `fmt`.

        An object holds the functions and their descriptor: what `contrib.cc.create_shared` links of it can be loaded.
        One of a target with `-system-lib` registers them where it is linked, for `runtime.system_lib()`.
        """
        form = fmt or Path(file_name).suffix.lstrip(".")
        if form in ("o", "obj") and self.is_system_lib:
            self._export_static(Path(file_name).with_suffix(".o"), None, None)
        elif form in ("o", "obj"):
            merged = merged_object(self.objects, self._data())
            if merged is None and len(self.objects) == 1:
                merged = self.objects[0]  # of another kind of machine: the code alone
            if merged is None:
                message = f"the objects of target {self.target} cannot be joined to one"
                raise ConfigError(message, hint="use export_library")
            write_atomic(file_name, merged)
        elif form in ("ll", "s", "asm", "c", "tir"):
            write_atomic(file_name, self.get_source({"s": "asm"}.get(form, form)).encode())
        else:
            raise ConfigError(f"cannot save as {form!r}", hint="known: o, ll, s, c, tir")

    def _export_static(self, path: Path, network: Network | None, linker: Compiler) -> None:
        """Write what registers itself where it is linked: the functions, and a network."""
        held = self.weights.held if network is not None and isinstance(self, GraphLibrary) else {}
        stream = io.BytesIO()
        write_params(stream.write, held)
        parts = self.objects, self.descriptor, network, stream.getvalue()
        objects = system_lib.linked_objects(self._host, *parts, are_kernels=self.are_kernels)
        data = None if network is None else partial(self._data_object, {network.params_symbol: held})
        system_lib.write_static(path, self._host, objects, data, linker if callable(linker) else None)

    def _data_object(self, data: Mapping[str, Data], folder: Path) -> Path:
        """An object that defines data symbols, by a compiler."""
        source = "__asm__(" + _quoted("\n".join(_data_lines(data, folder))) + ");\n"
        return compile_c(source, folder / "data.o", self._host)

    def _data(self) -> dict[str, bytes]:
        """Data symbols of the exported library."""
        data = {"armillary_descriptor": self.descriptor.to_json().encode() + b"\0"}
        if self.linked and not isinstance(self, GraphLibrary):  # which writes them as its parameters
            blob = self._linked_blob()
            data |= {_PARAMS: blob, "armillary_params_size": len(blob).to_bytes(8, "little")}
        return data

    def _linked_blob(self) -> bytes:
        stream = io.BytesIO()
        write_params(stream.write, self.linked.held)
        return stream.getvalue()

    def _sealed(self, output: Path, data: Mapping[str, Data], cc: Compiler, options: Sequence[str]) -> None:
        """Link, with a checksum at the end of the file."""
        with replacing(output, 0o777) as draft:
            self._link(draft, data, cc, options)
            seal(draft)
            if not callable(cc):
                self._check_loadable(draft)

    def _check_loadable(self, path: Path) -> None:
        """Open a library once, where it can be, before it takes its name."""
        if is_cross(self._host):
            return
        try:
            handle = ctypes.CDLL(str(path), os.RTLD_NOW | os.RTLD_LOCAL)
            _ = handle.armillary_descriptor
        except (OSError, AttributeError) as error:
            raise InternalError(f"the library that was made cannot be loaded: {error}") from error
        _ctypes.dlclose(handle._handle)

    def _link(self, output: Path, data: Mapping[str, Data], cc: Compiler, options: Sequence[str]) -> None:
        plain = {name: value for name, value in data.items() if isinstance(value, bytes) and value is not _PLACE_HOLDER}
        linked = self._link_without_compiler(plain, cc, options) if len(plain) == len(data) else None
        if linked is not None:
            write_atomic(output, linked, 0o777)
            return
        with scratch_folder() as folder:
            if not callable(cc):
                lines = _data_lines(data, folder)
                text = folder / "data.s"  # the compiler that links assembles it too: one process less
                text.write_text("\n".join(lines) + "\n")
                link_shared([*self.objects, text], output, self._host, list(options), cc=cc)
                return
            blob = self._data_object(data, folder)
            paths = [_written(folder / f"part{i}.o", code) for i, code in enumerate(self.objects)]
            cc(str(output), [*map(str, paths), str(blob)], list(options))

    def _link_without_compiler(
        self, data: Mapping[str, bytes], cc: Compiler, options: Sequence[str], tail: Tail | None = None
    ) -> bytes | None:
        """The library by our own linker; None where the caller names a compiler or its options, or it has to be one."""
        return None if cc is not None or options else link_without_compiler(self.objects, data, self._host, tail)

    @boundary("export_library")
    def export_library(
        self,
        file_name: str | os.PathLike[str],
        fcompile: Callable[..., object] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | None = None,
        *,
        cc: str | Sequence[str] | None = None,
        options: Sequence[str] = (),
        linked: bool = False,
    ) -> None:
        """Write a shared library (any suffix but .tar) or a package (.tar); of a target with -system-lib an object (.o)
        or a static library (.a), too.

        `cc` names the (cross) compiler that links; `fcompile(output, objects, options)` links instead of it. With
        neither a package holds an object, which the machine that loads it links in memory; it holds a library where
        `linked` says so, and for machines other than x86-64 and AArch64.
        """
        del workspace_dir  # a temporary folder is always used
        if not isinstance(file_name, str | os.PathLike) or "\0" in str(file_name):
            raise ConfigError(f"export_library: the file is {file_name!r}, wanted its path")
        path = Path(file_name).expanduser()
        if path.suffix.lower() in (".dll", ".dylib", ".exe", ".lib", ".pyd"):
            raise ConfigError(
                f"export_library: {path.name} would be a library of another system than Linux or Android",
                hint="export to a .so file, or to a package (.tar)",
            )
        if path.suffix.lower() in (".zip", ".gz", ".tgz", ".whl", ".onnx", ".json", ".params"):
            raise ConfigError(
                f"export_library: {path.name} would be no {path.suffix} file",
                hint="export to a package (.tar), or to a .so file",
            )
        compiler = fcompile or cc
        if getattr(fcompile, "output_format", "") == "tar":  # contrib.tar.tar: a package is what is asked for
            compiler = cc
            if path.suffix != ".tar":
                raise ConfigError(f"export_library: tar.tar writes packages, {path.name} is none", hint="name it x.tar")
        system = getattr(fcompile, "system", "")
        if system and system in self._host.mtriple and links_itself(self._host):
            compiler = cc  # contrib.ndk without an NDK: our own linker
        if self.is_system_lib and path.suffix in system_lib.SUFFIXES:
            self._export_static(path, self._network(), compiler)
        elif path.suffix == ".tar":
            self._export_package(path, lambda: self._code(compiler, [*options, *(addons or ())], linked))
        else:
            self._export(path, compiler, [*options, *(addons or ())])

    def _network(self) -> Network | None:
        """What is registered beside the functions."""
        return None

    def _export(self, path: Path, cc: Compiler, options: Sequence[str]) -> None:
        self._sealed(path, self._data(), cc, options)

    def _export_package(self, path: Path, make_code: Callable[[], bytes]) -> None:
        save_package(path, Package(make_code()))

    def _code(self, cc: Compiler, options: Sequence[str], linked: bool) -> bytes:
        """What a package holds: one object of all, or a library where somebody asks for it or it has to be."""
        data = self._data()
        if not (linked or cc is not None or options) and links_itself(self._host):
            result = merged_object(self.objects, data)
            if result is not None:
                return result
        with scratch_folder() as folder:
            library = folder / "mod.so"
            self._sealed(library, data, cc, options)
            return library.read_bytes()


class Weights(Mapping[str, Array]):
    """Parameters by name. `held` has them as they are kept; what lies in a file is in memory while somebody uses it."""

    def __init__(self, params: Mapping[str, Weight]) -> None:
        self.held = {n: v if isinstance(v, Deferred) else aligned(np.asarray(v)) for n, v in params.items()}
        self._read: weakref.WeakValueDictionary[str, Array] = weakref.WeakValueDictionary()

    def __getitem__(self, name: str) -> Array:
        held = self.held[name]
        if not isinstance(held, Deferred):
            return held
        result = self._read.get(name)
        if result is None:
            result = self._read[name] = held.compute()
        return result

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


class GraphLibrary(FunctionLibrary):
    """A compiled network: `lib["default"](device)` is an executor; iterating gives (graph JSON, lib, params)."""

    type_key = "GraphExecutorFactory"

    def __init__(
        self,
        target: Target,
        objects: Sequence[bytes],
        descriptor: Descriptor,
        externs: Sequence[str],
        source: Callable[[str], str],
        graph_json: str,
        params: Mapping[str, Weight],
        name: str = "default",
    ) -> None:
        super().__init__(target, objects, descriptor, externs, source)
        self.graph_json, self.libmod_name = graph_json, name
        self.params = Weights(params)
        self.are_kernels = True
        self.offload_report: OffloadReport | None = None  # what runs where, and why

    @property
    def weights(self) -> Weights:
        """The parameters, those too that are linked in."""
        return self.linked or self.params

    def link_params(self) -> None:
        """Make the parameters part of the code: the functions carry them, and `params` has none to be set."""
        self.linked, self.params = self.params, Weights({})

    def __repr__(self) -> str:
        size = sum(weight.nbytes for weight in self.weights.held.values()) / 1e6
        count = len(self.kernels), len(self.weights)
        return f"GraphLibrary({count[0]} kernels for {self.target}; {count[1]} parameters, {size:.1f} MB)"

    def __getitem__(self, name: str) -> Any:  # Any: an executor factory, or a runtime Function
        if name in (self.libmod_name, "default"):
            return self._create
        if name == "debug_create":
            return lambda _, *devices: self._create(*devices)
        if name == "remove_params":
            return self._without_params
        if name in ("get_graph_json", "get_graph_params"):
            return self.get_graph_json if name == "get_graph_json" else self.get_params
        return super().__getitem__(name)

    def _create(self, *devices: Device) -> GraphExecutor:
        library = weakref.ref(self)  # an executor that outlives the library lets go of compact weights

        def restore(name: str) -> Array:
            return _param_of(library(), name)

        loaded = vars(self).setdefault("_loaded", runtime.shared_weights.LoadedOnce())  # one, whichever thread is first
        return runtime.create_graph_module(self.graph_json, self.weights, self.module, devices, restore, loaded)

    def _without_params(self) -> GraphLibrary:
        """The network without its parameters, which whoever runs it sets: set_input(**params) or load_params."""
        parts = self.target, self.objects, self.descriptor, self._externs, self.get_source, self.graph_json
        result = GraphLibrary(*parts, {}, self.libmod_name)
        result.linked = self.linked
        result.is_system_lib, result.offload_report = self.is_system_lib, self.offload_report
        return result

    def get_lib(self) -> FunctionLibrary:
        """The compiled functions without the graph."""
        library = FunctionLibrary(self.target, self.objects, self.descriptor, self._externs, self._source)
        library.is_system_lib, library.are_kernels, library.linked = self.is_system_lib, True, self.linked
        return library

    @property
    def lib(self) -> FunctionLibrary:
        """The same, as an attribute."""
        return self.get_lib()

    def get_params(self) -> dict[str, Array]:
        return dict(self.params)

    def get_graph_json(self) -> str:
        return self.graph_json

    def get_executor_config(self) -> str:
        return self.graph_json

    def __iter__(self) -> Iterator[str | FunctionLibrary | dict[str, Array]]:  # the three parts
        message = "unpacking a build into (graph, lib, params) is the old form; use the library itself"
        warnings.warn(message, DeprecationWarning, 2)
        return iter((self.graph_json, self.get_lib(), self.get_params()))

    def _network(self) -> Network:
        symbol = f"{_PARAMS}_{blake2b(self.graph_json.encode(), digest_size=8).hexdigest()}"
        return Network(self.libmod_name, self.graph_json, symbol, params_size(self.weights.held))

    def _export(self, path: Path, cc: Compiler, options: Sequence[str]) -> None:
        graph, size = self.graph_json.encode(), params_size(self.weights.held)
        data: dict[str, bytes] = self._data() | {
            "armillary_graph_json": graph + b"\0",
            "armillary_graph_json_size": len(graph).to_bytes(8, "little"),
            "armillary_params_size": size.to_bytes(8, "little"),
        }
        if callable(cc) or not self._append_params(path, data, size, cc, options):
            self._sealed(path, data | {_PARAMS: self.weights.held}, cc, options)

    def _export_package(self, path: Path, make_code: Callable[[], bytes]) -> None:
        save_network(path, make_code, self.graph_json, self.weights.held)

    def _append_params(
        self, path: Path, data: Mapping[str, bytes], size: int, cc: Compiler, options: Sequence[str]
    ) -> bool:
        """Write the parameters behind the rest of the library; False where a linker made one that does not allow it."""
        check_writable(path)
        head, mode = self._link_without_compiler(data, cc, options, Tail(_PARAMS, size)), 0o777
        if head is None:
            head, mode = self._head_with_place_holder(data, size, cc, options)
        if head is None:
            return False
        most = size + len(head) + TRAILER
        with written_atomically(path, mode, most) as file, WriteBehind(file, sums=True) as stream:
            stream.write(head)
            stream.section()
            write_params(stream.write, self.weights.held)
            head_crc, params_crc = stream.section()
            stream.write(trailer(size + len(head), head_crc, len(head), size, params_crc))
            stream.section()  # everything is in the file
            if isinstance(name := getattr(file, "name", None), str):
                file.flush()
                self._check_loadable(Path(name))
        return True

    def _head_with_place_holder(
        self, data: Mapping[str, bytes], size: int, cc: Compiler, options: Sequence[str]
    ) -> tuple[bytes | None, int]:
        """What a compiler links, changed so that parameters may follow (None if it cannot be), and the file's mode."""
        with scratch_folder() as folder:
            linked = folder / "mod.so"
            self._link(linked, {**data, _PARAMS: _PLACE_HOLDER}, cc, options)
            return head_for_blob(linked.read_bytes(), _PARAMS, size), linked.stat().st_mode & 0o777


def _param_of(library: GraphLibrary | None, name: str) -> Array:
    if library is None:
        hint = "keep the library, or call get_input before the first run"
        raise ExecutionError(f"the values of parameter {name!r} went with the library", hint=hint)
    return library.weights[name]


def _data_lines(data: Mapping[str, Data], folder: Path) -> list[str]:
    """Lines of assembly that define each symbol from a file: constant time for any size. They add a note, too.

    The place holder is in a section of its own, and the program header of the notes is for `elf_append.py` to take.
    """
    lines = ['.section .note.armillary,"a",%note', ".balign 4", ".long 10, 0, 1", '.asciz "armillary"', ".balign 4"]
    for name, value in data.items():
        path = _written(folder / f"{name}.bin", value)
        section = '.section .armillary.params,"a",%progbits' if value is _PLACE_HOLDER else ".section .rodata"
        lines += [
            section,
            ".balign 64",
            f".globl {name}",
            f".type {name}, %object",
            f"{name}:",
            f".incbin {_quoted(str(path))}",
            f".size {name}, {path.stat().st_size}",
        ]
    return [*lines, '.section .note.GNU-stack,"",%progbits', ".text"]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _written(path: Path, data: Data) -> Path:
    with path.open("wb") as stream:
        if isinstance(data, bytes):
            stream.write(data)
        else:
            write_params(stream.write, data)
    return path
