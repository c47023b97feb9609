"""The graph executor over the native runner.

In: graph JSON, parameters (a blob, or arrays by name), a module, a device. Out: `GraphExecutor`, what
`lib["default"](device)` returns; `contrib.graph_executor.GraphModule` wraps it with the surface users know.
Invariant: one native call per `run()`; whatever memory the graph points at stays alive as long as the executor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from ctypes import byref, c_double, c_int, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.artifact import load_params
from armillary.dtype import DType
from armillary.errors import ArtifactError, ExecutionError, TypeMismatch
from armillary.runtime.benchmark import BenchmarkResult, Timing, evaluate
from armillary.runtime.device import Device, cpu, require
from armillary.runtime.dlpack import Array, tensor_dtype, view
from armillary.runtime.native_library import CTensor, ErrorText, Handle, native
from armillary.runtime.ndarray import ALIGNMENT, NDArray, aligned_copy, from_dlpack
from armillary.runtime.threads import pool

if TYPE_CHECKING:
    from armillary.runtime.module import Module


@dataclass(frozen=True, slots=True)
class NodeTime:
    """How long one node of the graph took."""

    name: str
    function: str
    seconds: float


class GraphExecutor:
    """A graph of compiled functions with its memory."""

    def __init__(self, graph_json: str | bytes, module: Module, device: Device | None = None) -> None:
        """Build the executor; ArtifactError if the graph is damaged or does not fit the module."""
        text = graph_json.encode("utf-8") if isinstance(graph_json, str) else graph_json
        self.device = require(device or cpu())
        self.module = module
        self._error = ErrorText()
        self._held: dict[object, object] = {}
        self._params: set[str] = set()
        pointer = c_void_p()
        status = native().arm_graph_create(
            text, len(text), module.handle.pointer, pool(), byref(pointer), *self._error.args
        )
        self._error.check(status, ArtifactError)
        self._handle = Handle(pointer.value or 0, native().arm_graph_destroy)
        self._graph = self._handle.pointer
        self._run = native().arm_graph_run
        self._names = [native().arm_graph_input_name(self._graph, i).decode() for i in range(self.get_num_inputs())]
        self._index = {name: i for i, name in enumerate(self._names)}

    # ---- inputs

    def get_num_inputs(self) -> int:
        """Inputs, parameters included."""
        return int(native().arm_graph_num_inputs(self._graph))

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names by index."""
        return tuple(self._names)

    @property
    def free_inputs(self) -> tuple[str, ...]:
        """Names of the inputs that are not parameters."""
        return tuple(name for name in self._names if name not in self._params)

    def get_input_index(self, name: str) -> int:
        """Index of an input, or -1."""
        return self._index.get(name, -1)

    def _input(self, key: str | int) -> int:
        if isinstance(key, str):
            if key not in self._index:
                free = ", ".join(self.free_inputs[:8])
                raise ExecutionError(f"Could not find '{key}' in graph's inputs", hint=f"inputs are {free}")
            return self._index[key]
        if not 0 <= key < len(self._names):
            raise ExecutionError(f"the graph has {len(self._names)} inputs; there is no input {key}")
        return int(key)

    def input_type(self, key: str | int) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype of an input."""
        tensor = CTensor()
        index = self._input(key)
        self._error.check(native().arm_graph_input_info(self._graph, index, byref(tensor), *self._error.args))
        return tuple(tensor.shape[i] for i in range(tensor.ndim)), tensor_dtype(tensor)

    def get_input(self, key: str | int) -> NDArray:
        """A view of the memory of an input (zeros at first), for writing in place."""
        return self._view(native().arm_graph_input, self._input(key))

    def set_input(self, key: str | int, value: Any) -> None:  # Any: NDArray, DLPack producers, numpy's array-likes
        """Copy a value into an input. A numpy value is converted if its dtype differs in size only."""
        index = self._input(key)
        source = self._source(index, value)
        status = native().arm_graph_set_input(self._graph, index, byref(source.tensor), *self._error.args)
        self._error.check(status, TypeMismatch)
        self._held.pop(index, None)

    def _source(self, index: int, value: Any) -> NDArray:  # Any: as in set_input
        if isinstance(value, NDArray):
            return value
        if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
            return from_dlpack(value)
        array = np.asarray(value)
        wanted = self.input_type(index)[1].numpy
        if array.dtype != wanted and np.can_cast(array.dtype, wanted, "same_kind"):
            array = array.astype(wanted)
        return NDArray(np.ascontiguousarray(array).reshape(array.shape))

    def set_input_zero_copy(self, key: str | int, value: NDArray) -> None:
        """Let an input use the memory of `value` from now on."""
        index = self._input(key)
        status = native().arm_graph_set_input_zero_copy(self._graph, index, byref(value.tensor), *self._error.args)
        self._error.check(status, TypeMismatch)
        self._held[index] = value

    def set_params(self, params: Mapping[str, Any]) -> None:  # Any: arrays
        """Bind parameters; aligned arrays are used where they are, others copied. Unknown names are refused."""
        for name, value in params.items():
            array = value.memory if isinstance(value, NDArray) else np.asarray(value)
            if array.ctypes.data % ALIGNMENT or not array.flags.c_contiguous:
                array = aligned_copy(array)
            self.set_input_zero_copy(name, NDArray(array))
            self._params.add(name)

    def load_params(self, blob: bytes | bytearray) -> int:
        """Copy in every parameter of a blob that the graph knows; returns how many."""
        count, data = c_int(), bytes(blob)
        status = native().arm_graph_load_params(self._graph, data, len(data), byref(count), *self._error.args)
        self._error.check(status, ArtifactError)
        for name in load_params(data):
            self._held.pop(self.get_input_index(name), None)
            self._params.add(name)
        return count.value

    def share_params(self, other: GraphExecutor, blob: bytes) -> None:
        """Use the memory of another executor for the parameters that the blob names."""
        for name in load_params(blob):
            if self.get_input_index(name) >= 0:
                self.set_input_zero_copy(name, other.get_input(name))
                self._params.add(name)

    # ---- outputs

    def get_num_outputs(self) -> int:
        """Number of outputs."""
        return int(native().arm_graph_num_outputs(self._graph))

    def get_output(self, index: int) -> NDArray:
        """A view of an output; the next run overwrites it."""
        return self._view(native().arm_graph_output, index)

    def set_output_zero_copy(self, index: int, value: NDArray) -> None:
        """Let an output be written to the memory of `value` from now on."""
        status = native().arm_graph_set_output_zero_copy(self._graph, index, byref(value.tensor), *self._error.args)
        self._error.check(status, TypeMismatch)
        self._held["output", index] = value

    def _view(self, getter: Any, *where: int) -> NDArray:  # Any: a ctypes function
        tensor = CTensor()
        self._error.check(getter(self._graph, *where, byref(tensor), *self._error.args))
        dtype = tensor_dtype(tensor)
        return NDArray(view(tensor, dtype, (self._handle, dict(self._held))), dtype)

    # ---- running

    def run(self) -> None:
        """Run the graph once."""
        if self._run(self._graph, *self._error.args):
            self._error.check(-1, ExecutionError)

    def time(self, number: int) -> float:
        """Run `number` times; seconds in all."""
        seconds = c_double()
        self._error.check(native().arm_graph_time(self._graph, number, byref(seconds), *self._error.args))
        return seconds.value

    def num_nodes(self) -> int:
        """Nodes of the graph, inputs included."""
        return int(native().arm_graph_num_nodes(self._graph))

    def run_nodes(self, begin: int, end: int) -> list[NodeTime]:
        """Run nodes [begin, end) and time each."""
        seconds = (c_double * max(1, end - begin))()
        status = native().arm_graph_run_range(self._graph, begin, end, seconds, *self._error.args)
        self._error.check(status)
        return [NodeTime(*self.node(i), seconds[i - begin]) for i in range(begin, end)]

    def profile(self) -> list[NodeTime]:
        """Run once with a time for each call of a compiled function."""
        return [row for row in self.run_nodes(0, self.num_nodes()) if row.function not in ("", "__nop")]

    def node(self, index: int) -> tuple[str, str]:
        """(name, function) of a node; inputs have no function."""
        name = native().arm_graph_node_name(self._graph, index)
        if name is None:
            raise ExecutionError(f"the graph has no node {index}")
        return name.decode(), native().arm_graph_node_function(self._graph, index).decode()

    def get_node_output(self, node: int, index: int = 0) -> NDArray:
        """A view of a node's output; valid until a later node reuses the memory."""
        return self._view(native().arm_graph_node_output, node, index)

    @property
    def memory_bytes(self) -> int:
        """Bytes of arena and workspaces (inputs and parameters not counted)."""
        return int(native().arm_graph_memory(self._graph))

    # ---- the module-like surface

    def get_function(self, name: str) -> Callable[..., Any]:  # Any: as the method
        """A method by its name, as graph modules of old gave their functions."""
        if name not in _FUNCTIONS:
            raise ExecutionError(f"the graph executor has no function {name!r}", hint=f"it has {', '.join(_FUNCTIONS)}")
        function: Callable[..., Any] = getattr(self, name)
        return function

    __getitem__ = get_function

    def run_from_inputs(self, *_: object) -> None:
        """Copy the inputs to themselves, run, and copy the outputs: what an end-to-end timing measures."""
        for name in self.free_inputs:
            if self._index[name] not in self._held:
                self.set_input(name, self.get_input(name).numpy())
        self.run()
        for index in range(self.get_num_outputs()):
            self.get_output(index).numpy()

    def time_evaluator(
        self, func_name: str, dev: Device, number: int = 10, repeat: int = 1, **options: Any
    ) -> Callable[..., BenchmarkResult]:  # Any: the other fields of Timing
        """A callable that times "run" or "run_from_inputs"."""
        if func_name not in ("run", "run_from_inputs"):
            raise ExecutionError(f"only run and run_from_inputs can be timed, not {func_name!r}")
        require(dev)
        try:
            timing = Timing(number=number, repeat=repeat, **options)
        except TypeError as error:
            raise TypeMismatch(f"time_evaluator: {error}") from error
        measure = self.time if func_name == "run" else self._time_end_to_end
        return lambda *_: evaluate(measure, timing)

    def _time_end_to_end(self, number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            self.run_from_inputs()
        return time.perf_counter() - start


_FUNCTIONS = (
    "set_input", "set_input_zero_copy", "set_output_zero_copy", "get_input", "get_input_index", "get_num_inputs",
    "get_output", "get_num_outputs", "load_params", "share_params", "run", "run_from_inputs",
)  # fmt: skip


def create_graph_module(
    graph_json: str | bytes,
    params: Mapping[str, Array] | bytes | None,
    module: Module,
    device: Device | None = None,
) -> GraphExecutor:
    """A graph executor with its parameters set; parameters that the graph does not have are refused."""
    executor = GraphExecutor(graph_json, module, device)
    if isinstance(params, (bytes, bytearray)):
        executor.load_params(params)
    elif params:
        executor.set_params(params)
    return executor
