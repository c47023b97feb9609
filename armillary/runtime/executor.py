"""The graph executor over the native runner.

In: graph JSON, parameters (a blob, or arrays by name), a module, a device. Out: `GraphExecutor`, what
`lib["default"](device)` returns; `contrib.graph_executor.GraphModule` wraps it with the surface users know.
Invariant: one native call per `run()`; whatever memory the graph points at stays alive as long as the executor.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_double, c_int, c_int64, c_size_t, c_void_p, cast
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.artifact import load_params
from armillary.base.aliases import AnyFunction, Array, NumpyDtype
from armillary.base.aligned import aligned, array_of, give_back_memory
from armillary.base.boundary import boundary, bounded, bounded_methods
from armillary.base.dtype import DType
from armillary.base.lazy import lazy_names
from armillary.errors import ArtifactError, ExecutionError, TypeMismatch
from armillary.runtime.benchmark import BenchmarkResult, Timing, check_calls, evaluate
from armillary.runtime.device import Device, computing, cpu, require
from armillary.runtime.dlpack import on_host, tensor_dtype, view
from armillary.runtime.native_library import CDevice, CSpan, CTensor, ErrorText, Handle, native
from armillary.runtime.ndarray import DeviceArray, NDArray, as_bits, check_output, empty, from_dlpack, owner_of_memory
from armillary.runtime.node_times import NodeTime, Span
from armillary.runtime.shared_weights import SharedWeights
from armillary.runtime.stored_params import EmbeddedParams, StoredParams
from armillary.runtime.threads import pool
from armillary.runtime.turns import RAN, READ, SET, Turn

if TYPE_CHECKING:
    from armillary.runtime.module import Module

__getattr__, __dir__ = lazy_names(__name__, {"AotModule": "armillary.contrib.graph_executor:AotModule"})
__path__: list[str] = []  # modules of old scripts lie below: base/old_modules/table.txt

Devices = Device | Sequence[Device] | None  # one, or those of a graph over several
SPANS = 1 << 13  # room for the spans of a trace at first; a run that has more is run again


@bounded
@bounded_methods("get_input_index", "adopt", "output_type", "is_load_time", "node", "num_node_outputs", "node_owner")
@bounded_methods("is_parameter", "get_state")
@bounded_methods("get_function", "time_evaluator")
class GraphExecutor:
    """A graph of compiled functions with its memory."""

    def __init__(self, graph_json: str | bytes, module: Module, device: Devices = None) -> None:
        """Build the executor; ArtifactError if the graph is damaged or does not fit the module.

        Of a graph over several devices, those that are not given are the first of their kind.
        """
        text = graph_json.encode("utf-8") if isinstance(graph_json, str) else graph_json
        devices = computing([device] if isinstance(device, Device) else device or [cpu()])
        self.device = devices[0]
        natives = (CDevice * len(devices))(*(d.native for d in devices))
        self.module = module
        self._error = ErrorText()
        self._held: dict[object, NDArray] = {}  # the users' memory, by input and output
        self._params: set[str] = set()
        self._has_run = False
        self.has_outputs = False  # until something runs, their memory holds nothing of this graph
        self.restore: Callable[[str], Array] | None = None  # values of a parameter that was given back after loading
        pointer = c_void_p()
        status = native().arm_graph_create_over(
            text, len(text), module.handle.pointer, natives, len(devices), pool(), byref(pointer), *self._error.args
        )
        self._error.check(status, ArtifactError)
        self.handle = Handle(pointer.value or 0, native().arm_graph_destroy)
        self._graph = self.handle.pointer
        self._run, self._set = native().arm_graph_run, native().arm_graph_set_input
        error, size = self._error.args
        self._run_args = c_void_p(self._graph), c_void_p(error), c_size_t(size)  # converted once: 0.2 us a call
        self._probe = CTensor()  # of outputs whose place is asked for
        self._types: dict[int, tuple[tuple[int, ...], NumpyDtype, CTensor]] = {}  # by input
        # memory, shape and dtype of inputs that only need their values written there; Any: a numpy dtype
        self._places: dict[str | int, tuple[Array, tuple[int, ...], NumpyDtype]] = {}
        self._outputs: dict[int, NDArray] = {}  # views that were handed out
        self._shown: dict[int, weakref.ref[object]] = {}  # what lives as long as anybody looks at an output
        self._own_outputs: set[int] = set()  # those whose memory `_leave_outputs` has given
        self.turn = Turn(self._leave_outputs)
        self._names = [native().arm_graph_input_name(self._graph, i).decode() for i in range(self.get_num_inputs())]
        self._index = {name: i for i, name in enumerate(self._names)}
        self._variants = native().arm_graph_num_variants(self._graph) > 1
        self._sized = native().arm_graph_num_sizes(self._graph) > 0  # then shapes change with the inputs
        self.sized_json = text if self._sized else b""  # open_shapes.py
        is_state = native().arm_graph_input_is_state
        self.state_names = tuple(n for i, n in enumerate(self._names) if is_state(self._graph, i) == 1)
        self._shared: SharedWeights | None = None  # what other executors may take while this one lives

    # ---- inputs

    def get_num_inputs(self) -> int:
        """Inputs, parameters included."""
        return int(native().arm_graph_num_inputs(self._graph))

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names by index."""
        return tuple(self._names)

    def __repr__(self) -> str:
        types = {name: self.input_type(name) for name in self.free_inputs[:8]}
        inputs = ", ".join(f"{name}: {kind}[{', '.join(map(str, shape))}]" for name, (shape, kind) in types.items())
        return f"GraphExecutor({inputs}; {self.get_num_outputs()} outputs, {self.device})"

    def is_parameter(self, name: str) -> bool:
        """Whether an input has a value of the network's own."""
        return name in self._params

    @property
    def free_inputs(self) -> tuple[str, ...]:
        """Names of the inputs that are neither parameters nor states."""
        is_used = native().arm_graph_input_used if self._variants else lambda *_: True
        used = (n for i, n in enumerate(self._names) if is_used(self._graph, i))
        return tuple(name for name in used if name not in self._params and name not in self.state_names)

    def get_input_index(self, name: str) -> int:
        """Index of an input, or -1."""
        if self._variants:
            return int(native().arm_graph_input_index(self._graph, name.encode()))
        return self._index.get(name, -1)

    def _input(self, key: str | int) -> int:
        if isinstance(key, str):
            if key not in self._index:
                free = ", ".join(self.free_inputs[:8])
                raise ExecutionError(f"Could not find '{key}' in graph's inputs", hint=f"inputs are {free}")
            return self.get_input_index(key)
        if not isinstance(key, int | np.integer) or isinstance(key, bool):
            raise TypeMismatch(f"an input is named by its name or number, got {type(key).__name__} {key!r}")
        if not 0 <= key < len(self._names):
            raise ExecutionError(f"the graph has {len(self._names)} inputs; there is no input {key}")
        return int(key)

    def _picked(self, key: str | int, value: object) -> int:  # as in set_input
        """The input of that name and of the value's shape; the variant that it belongs to runs from now on."""
        name = self._names[self._input(key)] if isinstance(key, int) else key
        if not isinstance(value, NDArray):
            value = from_dlpack(value) if hasattr(value, "__dlpack__") else NDArray(array_of(value, f"input {name!r}"))
        index = native().arm_graph_pick(self._graph, name.encode(), byref(value.tensor), *self._error.args)
        if index < 0:
            self._error.check(-1, TypeMismatch)
        return int(index)

    def _input_info(self, key: str | int) -> CTensor:
        """An input's shape, dtype and device."""
        tensor = CTensor()
        index = self._input(key)
        self._error.check(native().arm_graph_input_info(self._graph, index, byref(tensor), *self._error.args))
        return tensor

    def input_type(self, key: str | int) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype of an input."""
        tensor = self._input_info(key)
        return tuple(tensor.shape[i] for i in range(tensor.ndim)), tensor_dtype(tensor)

    @boundary("get_input", arguments=True)
    def get_input(self, key: str | int) -> NDArray:
        """A view of the memory of an input (zeros at first), for writing in place; read-only memory is copied first.

        What load-time nodes make of a parameter follows at the next run; later writes need a call of their own.
        """
        index = self._input(key)
        self._unshare(index)
        bound = self._held.get(index)
        if bound is not None and not bound.is_writable:
            self._copy_input(index, bound)
        if native().arm_graph_input_released(self._graph, index) == 1 and self.restore is not None:
            self._copy_input(index, self.restore(self._names[index]))
        return self._view(native().arm_graph_input, index)

    def get_state(self, name: str) -> NDArray:
        """A view of an input that runs write: as the last run left it, zeros at first. `set_input` sets it."""
        if name not in self.state_names:
            raise ExecutionError(f"{name!r} is no state", hint=f"states are {', '.join(self.state_names) or 'none'}")
        return self.get_input(name)

    def reset_states(self) -> None:
        """Make all states zero, as before the first run."""
        self._error.check(native().arm_graph_reset_states(self._graph, *self._error.args), ExecutionError)

    @boundary("set_input", arguments=True)
    def set_input(self, key: str | int, value: object) -> None:  # NDArray, DLPack producers, numpy's array-likes
        """Copy a value into an input. A numpy value is converted where its dtype is of the same kind (or an integer).

        Of a graph with variants, the one that takes the shape is chosen.
        """
        if self.fill(key, value):
            return
        self.turn.begin("set_input", lambda: self.is_unset(key))
        self._copy_input(key, value)

    def is_unset(self, key: str | int) -> bool:
        """Whether an input has no value yet. Of a graph with variants: no input of that name is known to."""
        return not self._variants and native().arm_graph_input_is_set(self._graph, self._input(key)) == 0

    def _copy_input(self, key: str | int, value: object) -> None:  # as in set_input
        index = self._picked(key, value) if self._variants else self._input(key)
        self._unshare(index)
        tensor = self._as_it_is(index, value)
        if tensor is None:
            source = self._source(index, value)  # held until the values are copied
            tensor = source.tensor
        status = self._set(self._graph, index, byref(tensor), *self._error.args)
        if status:
            self._error.check(status, TypeMismatch)
        if self._held.pop(index, None) is not None:
            self._outputs.clear()
        if native().arm_graph_input_is_plain(self._graph, index) == 1:
            memory = self._view(native().arm_graph_input, index).memory
            self._places[key] = memory, memory.shape, memory.dtype

    def fill(self, key: str | int, value: object) -> bool:  # as in set_input
        """Set an input that was set before to a numpy array that fits as it is, in 0.3 us; False for anything else."""
        if type(value) is not np.ndarray or not isinstance(key, str | int):
            return False
        place = self._places.get(key)
        if place is None or value.shape != place[1] or value.dtype != place[2]:
            return False
        turn, me = self.turn, get_ident()
        if turn.only == me:
            turn.step = SET
        if turn.only != me:
            turn.begin("set_input")
        place[0][...] = value
        return True

    def _as_it_is(self, index: int, value: object) -> CTensor | None:  # as in set_input
        """The native view of a numpy array that fits as it is; None for anything else. Saves 14 of 17 us."""
        if type(value) is not np.ndarray:
            return None
        known = self._types.get(index)
        if known is None or (self._sized and value.shape != known[0]):
            info = self._input_info(index)
            shape = value.shape if self._sized else tuple(info.shape[: info.ndim])  # sizes are checked where they bind
            known = self._types[index] = (shape, tensor_dtype(info).numpy, on_host(shape, info.dtype))
        if value.shape != known[0] or value.dtype != known[1] or not value.flags.c_contiguous:
            return None
        known[2].data = value.__array_interface__["data"][0]
        return known[2]

    def _source(self, index: int, value: object) -> NDArray:  # as in set_input
        if isinstance(value, NDArray):
            return value
        if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
            return from_dlpack(value)
        array = array_of(value, f"input {self._names[index]!r}")
        wanted = self.input_type(index)[1].numpy
        array = as_bits(array, wanted)
        if array.dtype != wanted and np.can_cast(array.dtype, wanted, "same_kind"):
            array = array.astype(wanted)
        try:
            return NDArray(np.ascontiguousarray(array).reshape(array.shape))
        except TypeMismatch as error:
            raise TypeMismatch(f"{self._names[index]}: {error.message}; {wanted} is wanted") from None

    @boundary("set_input_zero_copy", arguments=True)
    def set_input_zero_copy(self, key: str | int, value: NDArray) -> None:
        """Let an input use the memory of `value` from now on."""
        self.turn.begin("set_input_zero_copy", lambda: self.is_unset(key))
        self._bind_input(key, value)

    def _bind_input(self, key: str | int, value: NDArray) -> None:
        index = self._picked(key, value) if self._variants else self._input(key)
        self._unshare(index)
        status = native().arm_graph_set_input_zero_copy(self._graph, index, byref(value.tensor), *self._error.args)
        self._error.check(status, TypeMismatch)
        self._held[index] = value
        self._outputs.clear()
        self._places.clear()

    @boundary("set_params", arguments=True)
    def set_params(self, params: Mapping[str, object]) -> None:  # arrays
        """Bind parameters; aligned arrays are used where they are, others copied. Unknown names are refused."""
        for name, value in params.items():
            array = value.memory if isinstance(value, NDArray) else array_of(value, f"the parameter {name}")
            if self._input_info(name).device.type == 1:
                self._bind_input(name, NDArray(aligned(array)))
            else:
                self._copy_input(name, NDArray(aligned(array)))
            self._params.add(name)
            if self.restore is not None:
                native().arm_graph_input_stored(self._graph, self._index[name])
        self._has_run = False  # what was expanded can be let go of by the next run

    @boundary("load_params", arguments=True)
    def load_params(self, blob: bytes | bytearray | StoredParams | EmbeddedParams) -> int:
        """Copy in every parameter of a blob that the graph knows; returns how many.

        What depends on parameters alone is computed at once. Compact forms that only this needed are given back if they
        are stored where they can be read again, in a package or a library.
        """
        self._shared = None
        if isinstance(blob, StoredParams | EmbeddedParams):
            count = blob.load(self._graph, self._error)
            self._params.update(n for i, n in enumerate(self._names) if native().arm_graph_input_is_set(self._graph, i))
            self.restore = blob.array
            return count
        if not isinstance(blob, bytes | bytearray):
            raise TypeMismatch(f"parameters are the bytes of a blob, got {type(blob).__name__}")
        unknown, data = c_int(), bytes(blob)
        status = native().arm_graph_load_params(self._graph, data, len(data), byref(unknown), *self._error.args)
        self._error.check(status, ArtifactError)
        for name in load_params(data):
            self._held.pop(self.get_input_index(name), None)
            self._params.add(name)
        return unknown.value

    def finish_loading(self) -> None:
        """Compute now what depends on parameters alone, and let go of what only that needed; a run does it too."""
        self._error.check(native().arm_graph_load(self._graph, *self._error.args))
        for index in [key for key in self._held if isinstance(key, int)]:
            if native().arm_graph_input_released(self._graph, index) == 1:
                del self._held[index]
        give_back_memory()  # the compact forms, before the arena takes its own

    def bind(self, params: Mapping[str, object] | bytes | StoredParams | EmbeddedParams) -> None:  # Any: arrays
        """Set parameters, however they are held."""
        if isinstance(params, bytes | bytearray | StoredParams | EmbeddedParams):
            self.load_params(params)
        else:
            self.set_params(params)

    def publish(self) -> SharedWeights | None:
        """Finish loading, and let other executors use the memory; None if parameters are missing."""
        give_back_memory()  # of the build, before the expanded weights take theirs
        self.finish_loading()
        pointer = native().arm_graph_publish(self._graph)
        if pointer is None:
            return None
        inputs = [(name, i) for i, name in enumerate(self._names) if name in self._params]
        gone = frozenset(n for n, i in inputs if native().arm_graph_input_released(self._graph, i) == 1)
        self._shared = SharedWeights(Handle(pointer, native().arm_weights_release), frozenset(self._params), gone)
        return self._shared

    def adopt(self, weights: SharedWeights, params: Mapping[str, object] | StoredParams | EmbeddedParams) -> None:
        """Take the parameters that another executor of the same graph has loaded (Any: arrays)."""
        if isinstance(params, StoredParams | EmbeddedParams):
            self.restore = params.array
        else:
            self.set_params({name: params[name] for name in params if name not in weights.released})
        status = native().arm_graph_adopt(self._graph, weights.handle.pointer, *self._error.args)
        self._error.check(status, ArtifactError)
        self._params |= weights.params
        self._shared = weights

    def _unshare(self, index: int) -> None:
        """Before a parameter is set or handed out: what this executor has is no longer what others would load."""
        if self._shared is not None and self._names[index] in self._params:
            self._shared = None

    @boundary("share_params", arguments=True)
    def share_params(self, other: GraphExecutor, blob: bytes) -> None:
        """Use the memory of another executor for the parameters that the blob names."""
        for name in load_params(blob):
            if self.get_input_index(name) >= 0:
                self._bind_input(name, other.get_input(name))
                self._params.add(name)

    # ---- outputs

    def get_num_outputs(self) -> int:
        """Number of outputs."""
        return int(native().arm_graph_num_outputs(self._graph))

    @boundary("get_output", arguments=True)
    def get_output(self, index: int) -> NDArray:
        """A view of an output; this thread's next run overwrites it, and before the first one it holds anything.

        Of a graph with named sizes, whose memory moves as they change, it is a copy.
        """
        turn, me = self.turn, get_ident()
        if turn.only == me:
            output = self._shown_output(index)
            if turn.step == RAN:
                turn.step = READ
            if turn.only == me:
                return output
        with turn.lock:
            turn.read()
            return self._shown_output(index)

    def _shown_output(self, index: int) -> NDArray:
        known = self._outputs.get(index)
        if self._sized:
            if known is None or not self._lies_in(known, index):
                known = self._outputs[index] = self._view(native().arm_graph_output, index)
            return known.host_copy()
        if known is not None:
            return known
        output = self._view(native().arm_graph_output, index)
        self._shown[index] = weakref.ref(owner_of_memory(output))
        if self._has_run and not self._variants:  # then its memory stays until an input or output is bound anew
            self._outputs[index] = output
        return output

    def _lies_in(self, known: NDArray, index: int) -> bool:
        """Whether an output still has the memory and the shape of a view of it: making one costs twenty times more."""
        tensor, (graph, *error) = self._probe, self._run_args
        if native().arm_graph_output(graph, index, byref(tensor), *error):
            self._error.check(-1)
        return tensor.data == known.tensor.data and tuple(tensor.shape[: tensor.ndim]) == known.shape

    def output_array(self, index: int) -> Array:
        """A numpy copy of an output."""
        output = self.get_output(index)
        return output.memory if self._sized else output.numpy()

    def _leave_outputs(self) -> None:
        """Give outputs that somebody looks at other memory: what another thread's run overwrites is not theirs."""
        self._outputs.clear()
        shown, self._shown = self._shown, {}
        variant = native().arm_graph_variant(self._graph)
        for index, looked_at in shown.items():
            is_users = ("output", variant, index) in self._held and index not in self._own_outputs
            if looked_at() is not None and not is_users and index < self.get_num_outputs():
                shape, dtype = self.output_type(index)
                place = empty(shape, dtype, self.device)
                self.set_output_zero_copy(index, place)
                self._own_outputs.add(index)

    def output_type(self, index: int) -> tuple[tuple[int, ...], DType]:
        """Shape and dtype of an output."""
        view = self._view(native().arm_graph_output, index)
        return tuple(view.shape), DType(view.dtype)

    @boundary("set_output_zero_copy", arguments=True)
    def set_output_zero_copy(self, index: int, value: NDArray) -> None:
        """Let an output be written to the memory of `value` from now on; it must be no other's, and no input's."""
        if not 0 <= index < self.get_num_outputs():
            raise ExecutionError(f"there is no output {index}: the graph has {self.get_num_outputs()}")
        check_output(value, f"output {index}")
        status = native().arm_graph_set_output_zero_copy(self._graph, index, byref(value.tensor), *self._error.args)
        self._error.check(status, TypeMismatch)
        self._held["output", native().arm_graph_variant(self._graph), index] = value
        self._own_outputs.discard(index)
        self._outputs.clear()

    def _view(self, getter: Any, *where: int) -> NDArray:  # Any: a ctypes function
        tensor = CTensor()
        if any(not -(1 << 31) <= number < 1 << 31 for number in where):  # what C would cut off
            raise ExecutionError(f"there is no output {where[0]}: the graph has {self.get_num_outputs()}")
        self._error.check(getter(self._graph, *where, byref(tensor), *self._error.args))
        dtype = tensor_dtype(tensor)
        place = Device(tensor.device.type, tensor.device.id)
        if place.device_type != 1:
            return DeviceArray(tuple(tensor.shape[: tensor.ndim]), dtype, place, tensor.data or 0, self.handle)
        array = view(tensor, dtype, (self.handle, dict(self._held)))
        if any(not value.is_writable and value.tensor.data == tensor.data for value in self._held.values()):
            array.flags.writeable = False  # an input that is an output too
        return NDArray(array, dtype)

    # ---- running

    def run(self) -> None:
        """Run the graph once."""
        self.turn.begin("run")
        if not self._has_run:
            give_back_memory()  # of the build, before the arena and the expanded weights take theirs
            self.finish_loading()
            self._has_run = True
        if self._run(*self._run_args):
            self._error.check(-1, ExecutionError)
        self.has_outputs = True
        self.turn.ran()

    @boundary("time", arguments=True)
    def time(self, number: int) -> float:
        """Run `number` times; seconds in all."""
        seconds = c_double()
        self._error.check(native().arm_graph_time(self._graph, number, byref(seconds), *self._error.args))
        self.has_outputs = True
        self.turn.end()
        return seconds.value

    def num_nodes(self) -> int:
        """Nodes of the graph, inputs included."""
        return int(native().arm_graph_num_nodes(self._graph))

    @boundary("run_nodes", arguments=True)
    def run_nodes(self, begin: int, end: int) -> list[NodeTime]:
        """Run nodes [begin, end) and time each."""
        seconds = (c_double * max(1, end - begin))()
        status = native().arm_graph_run_range(self._graph, begin, end, seconds, *self._error.args)
        self._error.check(status)
        self.has_outputs = self.has_outputs or end > begin  # who runs parts knows which
        return [NodeTime(*self.node(i), seconds[i - begin]) for i in range(begin, end)]

    def profile(self) -> list[NodeTime]:
        """Run once with a time for each call of a compiled function that an inference makes."""
        rows = self.run_nodes(0, self.num_nodes())
        calls = [(i, row) for i, row in enumerate(rows) if row.function and not row.function.startswith("__")]
        return [row for i, row in calls if not self.is_load_time(i)]

    def trace(self) -> tuple[float, list[Span]]:
        """Run once; the seconds it took, and when each thread was in which kernel, in order of the beginnings."""
        room, length = 0, SPANS
        seconds, count = c_double(), c_int64()
        while length > room:
            room = length
            spans = np.empty(room, CSpan)
            place = cast(spans.ctypes.data, POINTER(CSpan))
            status = native().arm_graph_trace(self._graph, place, room, byref(count), byref(seconds), *self._error.args)
            self._error.check(status)
            length = count.value
        self.has_outputs = True
        rows = [Span(*row) for row in spans[:length].tolist()]
        return seconds.value, sorted(rows, key=lambda span: (span.begin, span.thread, -span.rest))

    def call_seconds(self, number: int = 1000) -> float:
        """What a call from Python costs beside the kernels: the mean of `number` calls that run no node."""
        check_calls("call_seconds", number)
        run = native().arm_graph_run_range
        start = time.perf_counter()
        for _ in range(number):
            run(self._graph, 0, 0, None, *self._error.args)
        return (time.perf_counter() - start) / number

    def is_load_time(self, index: int) -> bool:
        """Whether a node depends on parameters alone, and so runs when they are set."""
        return bool(native().arm_graph_node_is_load(self._graph, index) == 1)

    def node(self, index: int) -> tuple[str, str]:
        """(name, function) of a node; inputs have no function."""
        name = native().arm_graph_node_name(self._graph, index)
        if name is None:
            raise ExecutionError(f"the graph has no node {index}")
        return name.decode(), native().arm_graph_node_function(self._graph, index).decode()

    def num_node_outputs(self, index: int) -> int:
        """Values that a node computes."""
        return int(native().arm_graph_node_outputs(self._graph, index))

    def node_owner(self, index: int) -> int:
        """The branch or loop that runs a node, -1 for the graph itself."""
        return int(native().arm_graph_node_owner(self._graph, index))

    @boundary("get_node_output", arguments=True)
    def get_node_output(self, node: int, index: int = 0) -> NDArray:
        """A view of a node's output; valid until a later node reuses the memory."""
        return self._view(native().arm_graph_node_output, node, index)

    @property
    def memory_bytes(self) -> int:
        """Bytes of arena and workspaces (inputs and parameters not counted)."""
        return int(native().arm_graph_memory(self._graph))

    # ---- the module-like surface

    def get_function(self, name: str) -> AnyFunction:  # Any: as the method
        """A method by its name, as graph modules of old gave their functions."""
        if name not in _FUNCTIONS:
            raise ExecutionError(f"the graph executor has no function {name!r}", hint=f"it has {', '.join(_FUNCTIONS)}")
        function: AnyFunction = getattr(self, name)
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
        measure = self.time if func_name == "run" else self.time_end_to_end
        return lambda *_: evaluate(measure, timing)

    def time_end_to_end(self, number: int) -> float:
        """As `time`, with copies of inputs and outputs."""
        check_calls("time_end_to_end", number)
        start = time.perf_counter()
        for _ in range(number):
            self.run_from_inputs()
        return time.perf_counter() - start


_INPUTS = ("set_input", "set_input_zero_copy", "get_input", "get_input_index", "get_num_inputs", "reset_states")
_OUTPUTS = ("set_output_zero_copy", "get_output", "get_num_outputs")
_FUNCTIONS = (*_INPUTS, *_OUTPUTS, "load_params", "share_params", "run", "run_from_inputs")
