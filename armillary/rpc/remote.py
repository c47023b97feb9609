"""Things of a session as the client holds them: tensors, modules, graphs on another machine.

In: handles that the session gave. Out: objects with the surface of `runtime`'s NDArray, Module and GraphExecutor.
Invariant: an object lives as long as its session; when it dies here, the next request lets go of it there. The
session: `client.py`.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.artifact import Descriptor, FunctionRow
from armillary.base.aliases import AnyFunction, Array
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.errors import ExecutionError, RPCError, TypeMismatch
from armillary.rpc.protocol import CHUNK, Json
from armillary.runtime import BenchmarkResult, NDArray, NodeTime
from armillary.runtime.benchmark import FLUSH_DEFAULT, SessionResult, Timing
from armillary.runtime.device import Device, ElsewhereDevice
from armillary.runtime.dlpack import dtype_of_array
from armillary.runtime.module import make_timing, result_tensor, scalar_bits

if TYPE_CHECKING:
    from armillary.rpc.client import RPCSession


class RemoteDevice(ElsewhereDevice):
    """A device of a session's machine."""

    __slots__ = ("session",)
    session: RPCSession

    @staticmethod
    def of(session: RPCSession, local: Device) -> RemoteDevice:
        """The session's device of this kind and number."""
        if not isinstance(local, Device):
            raise TypeMismatch(f"RemoteDevice.of: got {type(local).__name__}, wanted a device such as cpu(0)")
        result = RemoteDevice(local.device_type, local.device_id)
        object.__setattr__(result, "session", session)
        return result

    def objection(self) -> str:
        """Why the session's machine cannot use it; "" where it can."""
        return str(self._asked()[0]["objection"])

    def facts(self) -> dict[str, str]:
        """What the driver there tells."""
        result: dict[str, str] = json.loads(bytes(self._asked()[1]))
        return result

    def _asked(self) -> tuple[Json, bytes | memoryview]:
        return self.session.request({"op": "device", "device": [self.device_type, self.device_id]})

    def sync(self) -> None:
        """Wait until the device has finished: every request does."""

    @boundary("empty_elsewhere", arguments=True, first=1)
    def empty_elsewhere(self, shape: tuple[int, ...], dtype: str) -> RemoteNDArray:
        """An uninitialised tensor there."""
        kind = DType(dtype)
        header = {"op": "alloc", "shape": list(shape), "dtype": str(kind), "device": [self.device_type, self.device_id]}
        value, _ = self.session.request(header)
        return RemoteNDArray(self.session, value["tensor"], shape, kind, self)


class RemoteNDArray:
    """A tensor on another machine."""

    def __init__(
        self, session: RPCSession, handle: int, shape: tuple[int, ...], dtype: DType, device: RemoteDevice
    ) -> None:
        self.session, self.handle = session, session.held("tensor", handle, self)
        self.shape, self.dtype, self.device = shape, dtype, device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    ctx = property(lambda self: self.device)

    def numpy(self) -> Array:
        """A numpy copy, fetched."""
        result = np.empty(self.shape, self.dtype.numpy)
        view = result.reshape(-1).view(np.uint8).data
        for offset in range(0, len(view), CHUNK):
            size = min(CHUNK, len(view) - offset)
            _, data = self.session.request({"op": "get", "tensor": self.handle, "offset": offset, "size": size})
            view[offset : offset + size] = data
        return result

    asnumpy = numpy

    @boundary("copyfrom", arguments=True, first=1)
    def copyfrom(self, source: object) -> RemoteNDArray:  # whatever numpy.asarray takes, or an NDArray
        """Send values; shapes must be equal."""
        if isinstance(source, RemoteNDArray) and source.session is self.session:
            self.session.request({"op": "copy", "source": source.handle, "target": self.handle})
            return self
        array = source.memory if isinstance(source, NDArray) else np.asarray(source)
        if array.shape != self.shape:
            raise TypeMismatch(f"cannot copy a tensor of shape {array.shape} into one of shape {self.shape}")
        if array.dtype != self.dtype.numpy and not np.can_cast(array.dtype, self.dtype.numpy, "same_kind"):
            raise TypeMismatch(f"cannot copy {array.dtype} values into a tensor of {self.dtype}")
        plain = np.ascontiguousarray(array, self.dtype.numpy).reshape(-1).view(np.uint8)
        for offset in range(0, len(plain), CHUNK):
            piece = plain[offset : offset + CHUNK].data
            self.session.request({"op": "put", "tensor": self.handle, "offset": offset}, piece)
        return self

    def copyto(self, target: Any, mem_copy: bool = True) -> RemoteNDArray | NDArray:
        """Copy into another tensor, or to a device as a new one."""
        if isinstance(target, RemoteNDArray):
            return target.copyfrom(self)
        return NDArray(self.numpy(), self.dtype).copyto(target)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # Any: numpy's protocol
        return self.numpy().astype(dtype or self.dtype.numpy, copy=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<armillary.rpc.RemoteNDArray shape={self.shape}, {self.dtype}, {self.device} of {self.session.name}>"


class RemoteFunction:
    """A compiled function on another machine."""

    def __init__(self, module: RemoteModule, row: FunctionRow) -> None:
        self.module, self.row, self.name = module, row, row.name

    def __call__(self, *args: object) -> float | None:  # RemoteNDArray and numbers; others are copied there
        """Run once; outputs are written in place. What the program returns, an int, a bool or a float, is given."""
        result = result_tensor(self.row, args)
        header, retained = self.bound("call", (*args, *(() if result is None else (result,))))
        self.module.session.request(header)
        for original, sent in retained:
            if isinstance(original, NDArray):  # what it wrote comes back
                original.copyfrom(sent.numpy())
        return None if result is None else result.numpy().item()

    def bound(self, op: str, args: Sequence[object]) -> tuple[dict[str, Json], list[tuple[Any, RemoteNDArray]]]:
        """A request with these arguments, and the tensors that it needs."""
        numbers = [a for a in args if isinstance(a, (int, float, np.generic))]
        handles = [a for a in args if not isinstance(a, (int, float, np.generic))]
        retained = [(a, self.module.session.sent(a)) for a in handles]
        header = {
            "op": op,
            "module": self.module.handle,
            "name": self.name,
            "tensors": [t.handle for _, t in retained],
            "scalars": scalar_bits(self.row, numbers),
        }
        return header, retained


class RemoteModule:
    """A module that was loaded on another machine."""

    type_key = "rpc"
    entry_name = "main"

    def __init__(self, session: RPCSession, handle: int, descriptor: Descriptor, has_graph: bool, path: str) -> None:
        self.session, self.handle = session, session.held("module", handle, self)
        self.descriptor, self.has_graph, self.path = descriptor, has_graph, path

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the compiled functions."""
        return tuple(self.descriptor.functions)

    def get_function(self, name: str, query_imports: bool = False) -> Any:  # Any: a function or a factory
        """The function of a name; "default" makes graph executors if the module holds a graph."""
        if name in self.descriptor.functions:
            return RemoteFunction(self, self.descriptor.functions[name])
        if name == "default" and self.has_graph:
            return self.create_executor
        known = ", ".join(list(self.functions)[:8])
        raise ExecutionError(f"the module has no function {name!r}", hint=f"it has {known}")

    __getitem__ = get_function

    @property
    def entry_func(self) -> RemoteFunction:
        """The only function of the module."""
        if len(self.functions) != 1:
            message = f"the module has {len(self.functions)} functions; name the one to call"
            raise ExecutionError(message, hint='mod["name"](…)')
        return RemoteFunction(self, self.descriptor.functions[self.functions[0]])

    def __call__(self, *args: object) -> object:  # as in RemoteFunction.__call__
        """Call the only function of the module; what it returns, where it returns."""
        return self.entry_func(*args)

    def create_executor(self, device: Device | None = None) -> RemoteGraphExecutor:
        """A graph executor there, with the package's graph and parameters."""
        return RemoteGraphExecutor(self, "", _own_device(self.session, device))

    def create_graph(self, graph_json: str, device: Device | None = None) -> RemoteGraphExecutor:
        """A graph executor there, over a graph of ours."""
        return RemoteGraphExecutor(self, graph_json, _own_device(self.session, device))

    def time_evaluator(
        self, func_name: str, dev: Device, number: int = 10, repeat: int = 1, **options: object
    ) -> Callable[..., BenchmarkResult]:  # Any: the other fields of Timing
        """A callable that times the function there on given arguments."""
        function = self.entry_func if func_name == self.entry_name else self.get_function(func_name)
        if not isinstance(function, RemoteFunction):
            raise ExecutionError(f"{func_name!r} is not a compiled function", hint="time the executor's run instead")
        words = timing_words(make_timing(number, repeat, options))

        def measure(*args: object) -> BenchmarkResult:  # as in RemoteFunction.__call__
            header, _alive = function.bound("time", args)
            return _result(self.session.request(header | words)[1])

        return measure


class RemoteGraphExecutor:
    """A graph executor on another machine; `GraphModule` wraps it as it does a local one."""

    is_remote_graph = True

    def __init__(self, module: RemoteModule, graph_json: str, device: RemoteDevice) -> None:
        self.module, self.device, self.session = module, device, module.session
        path = self.session.stored(graph_json.encode()) if graph_json else ""
        where = [device.device_type, device.device_id]
        value, data = self.session.request({"op": "graph", "module": module.handle, "json": path, "device": where})
        described = json.loads(bytes(data))
        self.handle = self.session.held("graph", value["graph"], self)
        self._inputs: dict[str, Json] = {row["name"]: row for row in described["inputs"]}
        self._outputs: list[Json] = described["outputs"]
        self._sent: dict[str, RemoteNDArray] = {}

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names by index."""
        return tuple(self._inputs)

    @property
    def free_inputs(self) -> tuple[str, ...]:
        """Names of the inputs that are not parameters."""
        return tuple(name for name, row in self._inputs.items() if not row["set"])

    def get_num_inputs(self) -> int:
        """Inputs, parameters included."""
        return len(self._inputs)

    def get_num_outputs(self) -> int:
        """Number of outputs."""
        return len(self._outputs)

    def get_input_index(self, name: str) -> int:
        """Index of an input, or -1."""
        return self.input_names.index(name) if name in self._inputs else -1

    def _name(self, key: str | int) -> str:
        if isinstance(key, int) and 0 <= key < len(self._inputs):
            return self.input_names[key]
        if key not in self._inputs:
            raise ExecutionError(f"Could not find '{key}' in graph's inputs", hint=f"inputs: {self.free_inputs[:8]}")
        return str(key)

    def input_type(self, key: str | int) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype of an input."""
        row = self._inputs[self._name(key)]
        return tuple(row["shape"]), DType(row["dtype"])

    def output_type(self, index: int) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype of an output."""
        row = self._outputs[index]
        return tuple(row["shape"]), DType(row["dtype"])

    def fill(self, key: str | int, value: object) -> bool:  # array-likes
        """There is no short way to a tensor of another machine."""
        return False

    def set_input(self, key: str | int, value: object) -> None:  # array-likes
        """Send a value to an input."""
        name = self._name(key)
        tensor = value if isinstance(value, RemoteNDArray) and value.session is self.session else None
        if tensor is None:
            array = value.memory if isinstance(value, NDArray) else np.asarray(value)
            tensor = self._sent.get(name)
            if tensor is None or tensor.shape != array.shape:
                wanted = self.input_type(name)[1]
                dtype = wanted if array.dtype.kind == wanted.numpy.kind else dtype_of_array(array)
                tensor = self._sent[name] = self.device.empty_elsewhere(array.shape, dtype)
            tensor.copyfrom(array)
        self.session.request({"op": "graph_set", "graph": self.handle, "name": name, "tensor": tensor.handle})

    def set_input_zero_copy(self, key: str | int, value: object) -> None:  # array-likes
        """Memory of this machine cannot be used there."""
        raise RPCError("an input of a remote graph cannot use memory of this machine", hint="use set_input")

    set_output_zero_copy = set_input_zero_copy

    def set_params(self, params: Mapping[str, object]) -> None:  # arrays
        """Send parameters by name."""
        for name, value in params.items():
            self.set_input(name, value)
            self._inputs[name]["set"] = True

    def load_params(self, blob: bytes | bytearray) -> int:
        """Send a params blob; how many of its parameters the graph has."""
        path = self.session.stored(bytes(blob))
        value, _ = self.session.request({"op": "graph_params", "graph": self.handle, "path": path})
        self.session.remove(path)
        return int(value["count"])

    def get_input(self, key: str | int) -> Any:  # Any: see the error
        """Inputs stay there."""
        raise RPCError(f"the input {self._name(key)!r} of a remote graph cannot be read back")

    def get_state(self, name: str) -> RemoteNDArray:
        """An input that runs write, as it is there when it is fetched; `set_input` sets it."""
        value, _ = self.session.request({"op": "graph_input", "graph": self.handle, "name": name})
        return RemoteNDArray(self.session, value["tensor"], tuple(value["shape"]), DType(value["dtype"]), self.device)

    def reset_states(self) -> None:
        """Make all states zero."""
        self.session.request({"op": "graph_reset", "graph": self.handle})

    def get_output(self, index: int) -> RemoteNDArray:
        """An output, as it is there when it is fetched."""
        if not 0 <= index < len(self._outputs):
            raise ExecutionError(f"the graph has {len(self._outputs)} outputs; there is no output {index}")
        value, _ = self.session.request({"op": "graph_output", "graph": self.handle, "index": index})
        return RemoteNDArray(self.session, value["tensor"], tuple(value["shape"]), DType(value["dtype"]), self.device)

    def run(self) -> None:
        """Run the graph once."""
        self.session.request({"op": "graph_run", "graph": self.handle})

    def profile(self) -> list[NodeTime]:
        """Run once with a time for each call of a compiled function."""
        _, data = self.session.request({"op": "profile", "graph": self.handle})
        return [NodeTime(name, function, nanoseconds / 1e9) for name, function, nanoseconds in json.loads(bytes(data))]

    def time_evaluator(
        self, func_name: str, dev: Device, number: int = 10, repeat: int = 1, **options: object
    ) -> Callable[..., BenchmarkResult]:  # Any: the other fields of Timing
        """A callable that times "run" or "run_from_inputs" there."""
        if func_name not in ("run", "run_from_inputs"):
            raise ExecutionError(f"only run and run_from_inputs can be timed, not {func_name!r}")
        words = timing_words(make_timing(number, repeat, options))
        header = {"op": "graph_time", "graph": self.handle, "end_to_end": func_name != "run"} | words
        return lambda *_: _result(self.session.request(header)[1])

    def __getitem__(self, name: str) -> AnyFunction:  # Any: as the method
        if name not in (
            "set_input",
            "get_output",
            "get_num_inputs",
            "get_num_outputs",
            "load_params",
            "run",
            "reset_states",
        ):
            raise ExecutionError(f"a remote graph executor has no function {name!r}")
        function: AnyFunction = getattr(self, name)
        return function


def _own_device(session: RPCSession, device: Device | None) -> RemoteDevice:
    if device is None:
        return session.cpu()
    if not isinstance(device, RemoteDevice) or device.session is not session:
        raise RPCError(f"the module is on another machine than {device}", hint="use remote.cpu() of its session")
    return device


def timing_words(timing: Timing) -> dict[str, Json]:
    """The fields of a timing request."""
    return {
        "number": timing.number,
        "repeat": timing.repeat,
        "min_repeat_us": round(timing.min_repeat_ms * 1000),
        "zero_limit": timing.limit_zero_time_iterations,
        "cooldown_us": round(timing.cooldown_interval_ms * 1000),
        "cooldown_every": timing.repeats_to_cooldown,
        "flush_bytes": max(timing.cache_flush_bytes, FLUSH_DEFAULT if timing.f_preproc else 0),
    }


def _result(data: bytes | memoryview) -> BenchmarkResult:
    return SessionResult(struct.unpack(f"<{len(data) // 8}d", data))
