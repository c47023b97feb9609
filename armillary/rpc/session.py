"""What a session does: the operations of the protocol over the runtime of this process.

In: requests (header and payload) and the session's folder. Out: answers. Invariant: a handle names what this session
made, and every size, shape and path from outside is checked before it is used. A compiled kernel is not confined by
this: it is native code, which runs in the session's own process (`worker.py`) under the deadline of the server.
"""

from __future__ import annotations

import json
import math
import os
import platform
import struct
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import numpy as np

from armillary.artifact import MAX_NDIM
from armillary.base.aliases import Array
from armillary.base.config import setting
from armillary.base.dtype import DType
from armillary.errors import ArmillaryError, ExecutionError, RPCError, TypeMismatch
from armillary.rpc.protocol import CHUNK, Json, int_of, text_of
from armillary.rpc.session_files import SessionFiles
from armillary.runtime import GraphExecutor, Module, NDArray, empty, load_module
from armillary.runtime.benchmark import Timing, evaluate
from armillary.runtime.device import Device, require
from armillary.runtime.module import Function

MAX_TENSOR_BYTES = 1 << 36  # of all tensors that a session holds
MAX_HANDLES = 1 << 16
_INT64 = 1 << 63
Answer = tuple[Json, bytes | memoryview]


class Session:
    """The things that a client made, by handle."""

    def __init__(self, files: SessionFiles) -> None:
        self.files = files
        self._handles: dict[int, object] = {}
        self._numbers = count(1)
        self._allocated: dict[int, int] = {}  # bytes of tensors by handle
        self._staged: tuple[tuple[int, bool], Array] | None = None  # a tensor on its way from or to a device

    def handle(self, header: dict[str, Json], payload: bytes | memoryview) -> Answer:
        """Do what a request says."""
        operation = _OPERATIONS.get(str(header.get("op")))
        if operation is None:
            raise RPCError(f"a session does not know {str(header.get('op'))[:40]!r}")
        try:
            return operation(self, header, payload)
        except MemoryError:
            raise ExecutionError("the device has no memory for it") from None
        except ArmillaryError:
            raise
        except (ValueError, TypeError, OverflowError) as error:
            raise RPCError(f"{header.get('op')}: unusable arguments: {error}") from None

    def _keep(self, value: object) -> int:
        if len(self._handles) >= MAX_HANDLES:
            raise RPCError(f"a session may hold {MAX_HANDLES} things", hint="let go of some")
        number = next(self._numbers)
        self._handles[number] = value
        return number

    def _get(self, header: dict[str, Json], key: str, kind: type[object]) -> Any:  # Any: an instance of `kind`
        result = self._handles.get(int_of(header, key, 1, _INT64 - 1))
        if not isinstance(result, kind):
            raise RPCError(f"{key}: the session has no {kind.__name__} under the handle {header[key]}")
        return result

    # ---- files

    def _write(self, header: dict[str, Json], payload: bytes | memoryview) -> Answer:
        self.files.write(_path(header), int_of(header, "offset", 0, _INT64 - 1), payload)
        return None, b""

    def _read(self, header: dict[str, Json], _: object) -> Answer:
        data, whole = self.files.read(
            _path(header), int_of(header, "offset", 0, _INT64 - 1), int_of(header, "size", 0, CHUNK)
        )
        return {"size": whole}, data

    def _list(self, *_: object) -> Answer:
        return None, json.dumps(self.files.listing()).encode()

    def _remove(self, header: dict[str, Json], _: object) -> Answer:
        self.files.remove(_path(header))
        return None, b""

    # ---- modules

    def _load(self, header: dict[str, Json], _: object) -> Answer:
        module = load_module(self.files.path(_path(header)))
        text = module.descriptor.to_json()
        descriptor = (text if isinstance(text, str) else str(text, "utf-8")).encode()
        return {"module": self._keep(module), "graph": module.graph_json is not None}, descriptor

    def _release(self, header: dict[str, Json], _: object) -> Answer:
        for key in ("module", "tensor", "graph"):
            if key in header:
                number = int_of(header, key, 1, _INT64 - 1)
                self._handles.pop(number, None)
                self._allocated.pop(number, None)
        return None, b""

    def _prepared(self, header: dict[str, Json]) -> Any:  # Any: a PreparedCall
        module: Module = self._get(header, "module", Module)
        function = module.get_function(text_of(header, "name"))
        if not isinstance(function, Function):
            raise RPCError(f"{header['name']!r} is no compiled function")
        tensors = [self._get({"tensor": t}, "tensor", NDArray) for t in _ints(header, "tensors")]
        return function.prepare(*tensors, *_numbers(function, _ints(header, "scalars")))

    def _call(self, header: dict[str, Json], _: object) -> Answer:
        self._prepared(header).run()
        return None, b""

    def _time(self, header: dict[str, Json], _: object) -> Answer:
        return None, _seconds(self._prepared(header).time, header)

    # ---- tensors

    def _alloc(self, header: dict[str, Json], _: object) -> Answer:
        shape = _ints(header, "shape")
        dtype = DType(text_of(header, "dtype", 32))
        if len(shape) > MAX_NDIM or any(n < 0 for n in shape):
            raise TypeMismatch(f"a tensor cannot have the shape {tuple(shape)}")
        nbytes = math.prod(shape) * dtype.numpy.itemsize
        if sum(self._allocated.values()) + nbytes > MAX_TENSOR_BYTES:
            message = f"the tensors of a session may have {MAX_TENSOR_BYTES} bytes in all"
            raise ExecutionError(f"a tensor of shape {tuple(shape)} is too large: {message}", hint="let go of others")
        number = self._keep(empty(tuple(shape), dtype, _device(header)))
        self._allocated[number] = nbytes
        return {"tensor": number}, b""

    def _device(self, header: dict[str, Json], _: object) -> Answer:
        device = Device(*_pair(header))
        objection = device.objection()
        return {"objection": objection[:1000]}, json.dumps({} if objection else device.facts()).encode()

    def _bytes(self, header: dict[str, Json], size: int, is_read: bool) -> memoryview:
        tensor: NDArray = self._get(header, "tensor", NDArray)
        view = tensor.memory.reshape(-1).view(np.uint8).data
        if tensor.device.device_type != 1:
            view = self._between(header, tensor, is_read)
        offset = int_of(header, "offset", 0, len(view))
        if size > len(view) - offset:
            raise TypeMismatch(f"{size} bytes from {offset} do not lie in a tensor of {len(view)} bytes")
        return view[offset : offset + size]

    def _put(self, header: dict[str, Json], payload: bytes | memoryview) -> Answer:
        view = self._bytes(header, len(payload), is_read=False)
        view[:] = payload
        tensor: NDArray = self._get(header, "tensor", NDArray)
        whole = tensor.size * DType(tensor.dtype).numpy.itemsize
        if tensor.device.device_type != 1 and header["offset"] + len(payload) == whole and self._staged is not None:
            tensor.copyfrom(self._staged[1])
            self._staged = None
        return None, b""

    def _between(self, header: dict[str, Json], tensor: NDArray, is_read: bool) -> memoryview:
        """Bytes of a tensor in a device's memory, on their way: the first piece begins them, the last lets go."""
        key = header["tensor"], is_read
        if header.get("offset") == 0 or self._staged is None or self._staged[0] != key:
            self._staged = key, tensor.numpy() if is_read else np.empty(tensor.shape, DType(tensor.dtype).numpy)
        data: memoryview = self._staged[1].reshape(-1).view(np.uint8).data
        return data

    def _get_bytes(self, header: dict[str, Json], _: object) -> Answer:
        return None, self._bytes(header, int_of(header, "size", 0, CHUNK), is_read=True)

    def _copy(self, header: dict[str, Json], _: object) -> Answer:
        source: NDArray = self._get(header, "source", NDArray)
        source.copyto(self._get(header, "target", NDArray))
        return None, b""

    # ---- graphs

    def _graph(self, header: dict[str, Json], _: object) -> Answer:
        module: Module = self._get(header, "module", Module)
        path = text_of(header, "json", 512, "")
        if path:
            graph = GraphExecutor(self.files.path(path).read_bytes(), module, _device(header))
        else:
            graph = module["default"](_device(header))
        free = set(graph.free_inputs)
        inputs = [
            {"name": name, "shape": list(shape), "dtype": str(dtype), "set": name not in free}
            for name in graph.input_names
            for shape, dtype in (graph.input_type(name),)
        ]
        types = [graph.output_type(index) for index in range(graph.get_num_outputs())]
        outputs = [{"shape": list(shape), "dtype": str(dtype)} for shape, dtype in types]
        return {"graph": self._keep(graph)}, json.dumps({"inputs": inputs, "outputs": outputs}).encode()

    def _graph_set(self, header: dict[str, Json], _: object) -> Answer:
        graph: GraphExecutor = self._get(header, "graph", GraphExecutor)
        graph.set_input(text_of(header, "name", 4096), self._get(header, "tensor", NDArray))
        return None, b""

    def _graph_output(self, header: dict[str, Json], _: object) -> Answer:
        graph: GraphExecutor = self._get(header, "graph", GraphExecutor)
        index = int_of(header, "index", 0, graph.get_num_outputs() - 1)
        tensor = graph.get_output(index)
        return {"tensor": self._keep(tensor), **_type(tensor)}, b""

    def _graph_input(self, header: dict[str, Json], _: object) -> Answer:
        graph: GraphExecutor = self._get(header, "graph", GraphExecutor)
        tensor = graph.get_state(text_of(header, "name", 4096))
        return {"tensor": self._keep(tensor), **_type(tensor)}, b""

    def _graph_reset(self, header: dict[str, Json], _: object) -> Answer:
        cast("GraphExecutor", self._get(header, "graph", GraphExecutor)).reset_states()
        return None, b""

    def _graph_run(self, header: dict[str, Json], _: object) -> Answer:
        cast("GraphExecutor", self._get(header, "graph", GraphExecutor)).run()
        return None, b""

    def _graph_params(self, header: dict[str, Json], _: object) -> Answer:
        graph: GraphExecutor = self._get(header, "graph", GraphExecutor)
        return {"count": graph.load_params(self.files.path(_path(header)).read_bytes())}, b""

    def _graph_time(self, header: dict[str, Json], _: object) -> Answer:
        graph: GraphExecutor = self._get(header, "graph", GraphExecutor)
        graph.finish_loading()
        return None, _seconds(graph.time_end_to_end if header.get("end_to_end") is True else graph.time, header)

    def _profile(self, header: dict[str, Json], _: object) -> Answer:
        graph: GraphExecutor = self._get(header, "graph", GraphExecutor)
        rows = [[row.name, row.function, round(row.seconds * 1e9)] for row in graph.profile()]
        return None, json.dumps(rows).encode()

    def _info(self, *_: object) -> Answer:
        return device_info(), b""


_OPERATIONS: dict[str, Callable[[Session, dict[str, Json], bytes | memoryview], Answer]] = {
    "write": Session._write,
    "read": Session._read,
    "list": Session._list,
    "remove": Session._remove,
    "load": Session._load,
    "release": Session._release,
    "call": Session._call,
    "time": Session._time,
    "alloc": Session._alloc,
    "put": Session._put,
    "get": Session._get_bytes,
    "copy": Session._copy,
    "graph": Session._graph,
    "graph_set": Session._graph_set,
    "graph_output": Session._graph_output,
    "graph_input": Session._graph_input,
    "graph_reset": Session._graph_reset,
    "graph_run": Session._graph_run,
    "graph_params": Session._graph_params,
    "graph_time": Session._graph_time,
    "profile": Session._profile,
    "info": Session._info,
    "device": Session._device,
}


def device_info() -> dict[str, str]:
    """What a server tells of its machine."""
    return {
        "os": platform.system().lower(),
        "arch": platform.machine(),
        "threads": str(setting("ARMILLARY_NUM_THREADS")),
        "server": f"python {platform.python_version()}",
        "process": str(os.getpid()),
    }


def _type(tensor: NDArray) -> dict[str, Json]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype)}


def _pair(header: dict[str, Json]) -> tuple[int, int]:
    pair = _ints(header, "device") or [1, 0]
    if len(pair) != 2 or not all(0 <= n < 256 for n in pair):
        raise RPCError("device: a type and a number are expected")
    return pair[0], pair[1]


def _device(header: dict[str, Json]) -> Device:
    return require(Device(*_pair(header)))


def _path(header: dict[str, Json]) -> str:
    return text_of(header, "path", 512)


def _ints(header: dict[str, Json], key: str) -> list[int]:
    values = header.get(key, [])
    if not isinstance(values, list) or any(type(v) is not int or not -_INT64 <= v < _INT64 for v in values):
        raise RPCError(f"{key}: a list of integers is expected")
    return values


def _numbers(function: Function, bits: list[int]) -> list[float]:
    """Scalars as the kernel's variables want them: floats come as the bits of a double."""
    bound = {dim for arg in function.row.args for dim in arg.shape if isinstance(dim, str)}
    free = [var for var in function.row.vars if var.name not in bound]
    if len(free) != len(bits):
        raise TypeMismatch(f"{function.name}: {len(bits)} scalar arguments given, but {len(free)} are wanted")
    return [struct.unpack("<d", struct.pack("<q", b))[0] if "float" in v.dtype else b for v, b in zip(free, bits)]


def _seconds(measure: Callable[[int], float], header: dict[str, Json]) -> bytes:
    timing = Timing(
        number=int_of(header, "number", 1, 1 << 30, 1),
        repeat=int_of(header, "repeat", 1, 1 << 16, 1),
        min_repeat_ms=int_of(header, "min_repeat_us", 0, 1 << 40, 0) / 1000,
        limit_zero_time_iterations=int_of(header, "zero_limit", 1, 1 << 30, 100),
        cooldown_interval_ms=int_of(header, "cooldown_us", 0, 1 << 40, 0) / 1000,
        repeats_to_cooldown=int_of(header, "cooldown_every", 1, 1 << 30, 1),
        cache_flush_bytes=int_of(header, "flush_bytes", 0, 1 << 32, 0),
    )
    results = evaluate(measure, timing).results
    return struct.pack(f"<{len(results)}d", *results)


def safe_answer(session: Session, header: dict[str, Json], payload: bytes | memoryview) -> tuple[dict[str, Json], Any]:
    """(header of the answer, payload); an error becomes an answer, too. Any: bytes-like."""
    try:
        value, data = session.handle(header, payload)
    except ArmillaryError as error:
        return {"error": error.message[:4000], "kind": type(error).__name__, "hint": error.hint[:1000]}, b""
    return {"ok": value}, data
