"""`runtime.vm`: calling the functions of an executable by name.

In: an executable (`relay.vm.compile`) and a device. Out: tensors, and lists of them for tuples. Invariant: no part of
the compiler is imported here; the executable brings what it needs.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from armillary.artifact import load_params
from armillary.base.aliases import Array
from armillary.base.boundary import boundary, bounded
from armillary.errors import ArtifactError, TypeMismatch
from armillary.runtime.benchmark import BenchmarkResult, Timing, evaluate
from armillary.runtime.device import Device, cpu
from armillary.runtime.executor import GraphExecutor
from armillary.runtime.module import Module
from armillary.runtime.ndarray import NDArray

Result: TypeAlias = "NDArray | list[Result]"


class Compiled(Protocol):
    """What a virtual machine asks of an executable."""

    def function(self, name: str, device: Device) -> tuple[list[str], Callable[..., Result]]:
        """The names of a function's arguments, and a callable."""


_HEAD = struct.Struct("<8sQ")  # what begins the code of an executable: its kind, and the length of the graph
_MAGIC = b"ARMVM\x00\x00\x01"


def pack_code(graph_json: str, params: bytes) -> bytearray:
    """The code of an executable of one function of known shapes: its graph, and its parameters as a blob."""
    graph = graph_json.encode()
    return bytearray(_HEAD.pack(_MAGIC, len(graph)) + graph + params)


class Executable:
    """What `relay.vm.Executable.save` wrote, with its library: `Executable.load_exec(code, lib)`."""

    def __init__(self, graph_json: str, params: Mapping[str, Array], library: Module) -> None:
        self._graph, self._params, self._library = graph_json, dict(params), library

    @staticmethod
    @boundary("load_exec")
    def load_exec(bytecode: bytes | bytearray, lib: object) -> Executable:
        """An executable of its code and the library (`runtime.load_module`). Raises ArtifactError for other bytes."""
        library = getattr(lib, "module", lib)
        if not isinstance(library, Module):
            raise TypeMismatch(f"load_exec: the library is {type(lib).__name__}", hint="runtime.load_module(path)")
        if not isinstance(bytecode, bytes | bytearray | memoryview):
            message = f"load_exec: the code is {type(bytecode).__name__}, wanted bytes"
            raise TypeMismatch(message, hint="code, lib = exe.save()")
        data = bytes(bytecode)
        if len(data) < _HEAD.size or data[: len(_MAGIC)] != _MAGIC:
            raise ArtifactError("load_exec: these bytes are no code of an executable", hint="code, lib = exe.save()")
        _, length = _HEAD.unpack_from(data)
        end = _HEAD.size + length
        if end > len(data):
            raise ArtifactError(f"load_exec: a graph of {length} bytes in {len(data)}")
        try:
            graph = data[_HEAD.size : end].decode()
        except UnicodeDecodeError:
            raise ArtifactError("load_exec: the graph is no text") from None
        return Executable(graph, load_params(data[end:]), library)

    def function(self, name: str, device: Device) -> tuple[list[str], Callable[..., Result]]:
        """The arguments of main, and a call that runs the graph."""
        if name != "main":
            raise TypeMismatch(f"the executable has no function {name!r}; it has: main")
        executor = GraphExecutor(self._graph, self._library, device)
        executor.bind(self._params)
        names = [key for key in executor.input_names if key not in self._params]

        def call(*values: object) -> Result:
            with executor.turn.whole():
                for key, value in zip(names, values, strict=True):
                    executor.set_input(key, value)
                executor.run()
                count = executor.get_num_outputs()
                outputs: list[Result] = [NDArray(executor.get_output(k).numpy()) for k in range(count)]
            return outputs[0] if len(outputs) == 1 else outputs

        return names, call


def profiler_enabled() -> bool:
    """Whether a `VirtualMachine` times its kernels one by one: it does not, `contrib.debugger.debug_executor` does."""
    return False


@bounded
class VirtualMachine:
    """Functions of an executable on a device: `invoke` calls, `set_input` and `run` call in two steps."""

    def __init__(
        self, exe: Compiled, device: Device | Sequence[Device] | None = None, memory_cfg: object = None
    ) -> None:
        del memory_cfg  # buffers are planned when a call is compiled
        if not callable(getattr(exe, "function", None)):
            wanted = "wanted what relay.vm.compile gives"
            raise TypeMismatch(f"VirtualMachine: the executable is {type(exe).__name__}, {wanted}")
        devices = [device] if isinstance(device, Device) or device is None else list(device)
        strangers = [d for d in devices if not isinstance(d, Device | None)]
        if strangers:
            raise TypeMismatch(f"VirtualMachine: {strangers[0]!r} is no device", hint="use armillary.cpu()")
        self._exe, self._device = exe, devices[0] if devices and devices[0] is not None else cpu(0)
        self._callables: dict[str, tuple[list[str], Callable[..., Result]]] = {}
        self._inputs: dict[str, list[object]] = {}
        self._outputs: list[Result] = []

    def invoke(self, func_name: str, *args: object, **kwargs: object) -> Result:
        """Call a function with arguments in order, or by name."""
        if not args and not kwargs:
            args = tuple(self._inputs.get(func_name, ()))
        _, call = self._function(func_name)
        return call(*self._ordered(func_name, args, kwargs))

    def set_input(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Keep the arguments of the next `run`."""
        self._inputs[func_name] = self._ordered(func_name, args, kwargs)

    def run(self, *args: object, **kwargs: object) -> Result:
        """Call the function `main`."""
        return self.invoke("main", *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Call a function and keep its results for `get_outputs`."""
        result = self.invoke(func_name, *args, **kwargs)
        self._outputs = list(result) if isinstance(result, list) else [result]

    def get_outputs(self) -> list[Result]:
        """The results of the last `invoke_stateful`."""
        return self._outputs

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """The place of an argument, -1 if the function has none of that name."""
        names, _ = self._function(func_name)
        return names.index(input_name) if input_name in names else -1

    def benchmark(
        self, device: Device, *args: object, func_name: str = "main", repeat: int = 5, number: int = 5, **kwargs: object
    ) -> BenchmarkResult:
        """Time calls: `repeat` times `number`, after one that compiles."""
        del device  # that of the machine
        _, call = self._function(func_name)
        values = self._ordered(func_name, args, kwargs) or self._inputs.get(func_name, [])

        def measure(count: int) -> float:
            start = time.perf_counter()
            for _ in range(count):
                call(*values)
            return time.perf_counter() - start

        return evaluate(measure, Timing(number=number, repeat=repeat))

    def _function(self, name: str) -> tuple[list[str], Callable[..., Result]]:
        if not isinstance(name, str):
            raise TypeMismatch(f"a function's name is {type(name).__name__}, wanted a string such as 'main'")
        if name not in self._callables:
            self._callables[name] = self._exe.function(name, self._device)
        return self._callables[name]

    def _ordered(self, func_name: str, args: Sequence[object], named: dict[str, object]) -> list[object]:
        names, _ = self._function(func_name)
        strangers = [name for name in named if name not in names[len(args) :]]
        missing = [name for name in names[len(args) :] if name not in named]
        if len(args) > len(names) or strangers or (missing and (args or named)):
            message = f"{func_name}: got {len(args)} arguments and {', '.join(named) or 'none by name'}"
            raise TypeMismatch(f"{message}, wanted {', '.join(names) or 'none'}")
        return [*args, *(named[name] for name in names[len(args) :] if name in named)]
