"""The graph executor's surface as Relay-era scripts know it.

In: `lib["default"](device)`, or graph JSON with a library. Out: `GraphModule`. Invariant: no logic of its own beyond
conversions; `armillary.runtime.executor` does the work, and is imported with the first graph: see `relay/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from armillary.base.boundary import boundary
from armillary.base.lazy import deferred
from armillary.errors import ExecutionError, TypeMismatch, UnsupportedError

if TYPE_CHECKING:
    from armillary.base.aliases import Array
    from armillary.base.dtype import DType
    from armillary.runtime import BenchmarkResult, Device, GraphExecutor, Module, NDArray
    from armillary.runtime.open_shapes import Shape

with deferred():
    from armillary import runtime
    from armillary.runtime.open_shapes import open_shapes


@boundary("graph_executor.create", arguments=True)
def create(graph_json_str: str, libmod: object, device: Device | list[Device]) -> GraphModule:  # see library_module
    """A graph module from graph JSON and a library; parameters that are not linked in are set later."""
    if hasattr(libmod, "create_graph"):  # a module of an RPC session
        return GraphModule(libmod.create_graph(graph_json_str, device[0] if isinstance(device, list) else device))
    module = library_module(libmod)
    linked = module.stored if module.graph_json is None else None  # parameters that are part of the code
    return GraphModule(runtime.create_graph_module(graph_json_str, linked, module, device))


def library_module(library: object) -> Module:  # a runtime Module, or what relay.build and lib.get_lib() return
    """The runtime module of a library."""
    module = getattr(library, "module", library)
    if not isinstance(module, runtime.Module):
        raise TypeMismatch(
            f"a graph needs a library of compiled functions, got {type(library).__name__}",
            hint="pass lib.get_lib() of a build, or runtime.load_module(path)",
        )
    return module


class GraphModule:
    """Runs a compiled graph: set inputs, run, get outputs."""

    def __init__(self, module: GraphExecutor) -> None:
        if not isinstance(module, runtime.GraphExecutor) and not getattr(module, "is_remote_graph", False):
            raise TypeMismatch(
                f"GraphModule takes what lib['default'](device) returns, got {type(module).__name__}",
                hint="GraphModule(lib['default'](armillary.cpu()))",
            )
        self.module = module
        self._turn = getattr(module, "turn", None) or runtime.turns.Turn()

    @boundary("network", arguments=True)
    def __call__(self, inputs: Mapping[str, object] | None = None, /, **named: object) -> list[Array]:
        """Set the inputs, given as a dict or by name, run, and copy the outputs: one step, from any thread."""
        with self._turn.whole(lambda: any(map(self.module.is_unset, {**(inputs or {}), **named}))):
            self._set_inputs_of_run(inputs, named)
            self.module.run()
            return [self.module.get_output(index).numpy() for index in range(self.get_num_outputs())]

    @boundary("set_input", arguments=True)
    def set_input(self, /, key: str | int | None = None, value: object = None, **params: object) -> None:  # array-likes
        """Copy in one input by name or index, and parameters by name (largest first; unknown names are ignored)."""
        if not isinstance(key, str | int) and (key is not None or value is not None):
            key, value = self._inputs_of_these_names(key, value, params)
        if key is None and value is not None:
            raise TypeMismatch("set_input: a value without the name or number of its input")
        if key is not None and not self.module.fill(key, value):
            self.module.set_input(key, value)
        if params:
            self._set_all({name: data for name, data in params.items() if self.module.get_input_index(name) >= 0})

    def _inputs_of_these_names(self, key: object, value: object, params: dict[str, object]) -> tuple[Any, Any]:
        """What is left of `key` and `value` after inputs that are called so, which go to `params`."""
        has_key, has_value = (self.module.get_input_index(name) >= 0 for name in ("key", "value"))
        if key is not None and has_key:
            params["key"], key = key, None
        if key is None and value is not None and has_value:
            params["value"], value = value, None
        return key, value

    def _set_all(self, inputs: Mapping[str, object]) -> None:
        others = [name for name, data in inputs.items() if not self.module.fill(name, data)]
        for name in sorted(others, key=lambda k: -_size(inputs[k])):
            self.module.set_input(name, inputs[name])

    def _set_inputs_of_run(self, inputs: Mapping[str, object] | None, named: dict[str, object]) -> None:
        if inputs is not None and not isinstance(inputs, Mapping):
            raise TypeMismatch(
                f"run takes a dict of inputs by name, got {type(inputs).__name__}", hint="run({'data': array})"
            )
        if inputs or named:
            self._set_all({**(inputs or {}), **named})

    def set_input_zero_copy(self, /, key: str | int | None = None, value: object = None, **params: object) -> None:
        """Bind inputs to the memory of NDArrays."""
        if not isinstance(key, str | int) and (key is not None or value is not None):
            key, value = self._inputs_of_these_names(key, value, params)
        if key is not None:
            self.module.set_input_zero_copy(key, _ndarray(value))
        for name, data in params.items():
            if self.module.get_input_index(name) >= 0:
                self.module.set_input_zero_copy(name, _ndarray(data))

    def set_output_zero_copy(self, key: str | int, value: NDArray) -> None:
        """Let output `key` be written to the memory of an NDArray."""
        self.module.set_output_zero_copy(_output_index(key), _ndarray(value))

    def __repr__(self) -> str:
        return f"GraphModule({self.module!r})"

    @boundary("run", arguments=True)
    def run(self, inputs: Mapping[str, object] | None = None, /, **input_dict: object) -> None:
        """Set the inputs, given as a dict or by name, then run once. A name that is no input is an ExecutionError."""
        self._set_inputs_of_run(inputs, input_dict)
        self.module.run()

    def get_num_outputs(self) -> int:
        """Number of outputs."""
        return self.module.get_num_outputs()

    def get_num_inputs(self) -> int:
        """Number of inputs, parameters included."""
        return self.module.get_num_inputs()

    @boundary("get_input", arguments=True)
    def get_input(self, index: str | int, out: NDArray | None = None) -> NDArray:
        """An input, as a view or copied into `out`."""
        value = self.module.get_input(index)
        return value if out is None else value.copyto(out)

    @boundary("get_state", arguments=True)
    def get_state(self, name: str) -> NDArray:
        """A state (`relay.build(states=)`), as the last run left it; zeros at first. `set_input` sets it."""
        return self.module.get_state(name)

    def reset_states(self) -> None:
        """Make all states zero, as before the first run."""
        self.module.reset_states()

    @boundary("get_input_index", arguments=True)
    def get_input_index(self, name: str) -> int:
        """Index of an input by name, -1 if there is none."""
        return self.module.get_input_index(name)

    def get_input_info(self) -> tuple[dict[str, Shape], dict[str, DType]]:
        """Shapes and dtypes of the inputs by name; what was set by `params` is left out.

        A dimension that is open is a text over the names of sizes: "batch", "2*seq + 1".
        """
        types = {name: self.module.input_type(name) for name in self.module.free_inputs}
        open_sizes = open_shapes(self.module)
        shapes = {name: open_sizes.inputs[name] if open_sizes is not None else row[0] for name, row in types.items()}
        return shapes, {name: row[1] for name, row in types.items()}

    def get_output_info(self) -> tuple[dict[int, Shape], dict[int, DType]]:
        """Shapes and dtypes of the outputs by number, before and after a run; open dimensions as `get_input_info`."""
        types = {index: self.module.output_type(index) for index in range(self.get_num_outputs())}
        open_sizes = open_shapes(self.module)
        shapes = {
            index: open_sizes.outputs[index] if open_sizes is not None else row[0] for index, row in types.items()
        }
        return shapes, {index: row[1] for index, row in types.items()}

    @boundary("get_output", arguments=True)
    def get_output(self, index: int | str, out: NDArray | Array | None = None) -> NDArray:
        """An output, as a view (the next run overwrites it) or copied into `out` (numpy's, too) and that.

        ExecutionError before the first run: there is no value yet.
        """
        number = index if isinstance(index, int) else _output_index(index)
        if not getattr(self.module, "has_outputs", True) and 0 <= number < self.get_num_outputs():
            raise ExecutionError(
                f"output {index} has no value yet: the graph has not run",
                hint="call run() first; get_output_info() tells shapes and types",
            )
        value = self.module.get_output(number)
        return value if out is None else value.copyto(out)

    def debug_get_output(self, node: str | int, out: NDArray | None = None, index: int = 0) -> NDArray:
        """Only the debug executor keeps the outputs of inner nodes."""
        raise UnsupportedError("debug_get_output needs the debug executor", hint="use contrib.debug_executor")

    @boundary("load_params", arguments=True)
    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Copy in the parameters of a blob."""
        self.module.load_params(params_bytes)

    @boundary("share_params", arguments=True)
    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Use the parameter memory of another graph module."""
        self.module.share_params(other.module, bytes(params_bytes))

    def __getitem__(self, key: str) -> Any:  # Any: a bound function
        """A function of the executor by name."""
        return self.module[key]

    @boundary("benchmark", arguments=True)
    def benchmark(
        self,
        device: Device | None = None,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: float | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        **kwargs: object,
    ) -> BenchmarkResult:  # Any: inputs
        """Time the graph; `kwargs` are inputs, set once before."""
        self._set_all(kwargs)
        timer = self.module.time_evaluator(
            "run_from_inputs" if end_to_end else func_name,
            device or runtime.cpu(),
            number,
            repeat,
            min_repeat_ms=min_repeat_ms or 0,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
        )
        return timer()


def _size(value: object) -> int:
    return int(getattr(value, "size", 0))


def _ndarray(value: Any) -> NDArray:  # Any: NDArray or numpy array
    return value if isinstance(value, runtime.NDArray) else runtime.NDArray(value)


def _output_index(key: str | int) -> int:
    text = str(key).removeprefix("output_")
    if not text.isdigit():
        raise ExecutionError(f"Could not find '{key}' in graph's outputs", hint="outputs are numbered from 0")
    return int(text)


class AotModule(GraphModule):
    """`runtime.executor.AotModule(lib["default"](device))`: what was compiled for Executor("aot"), run here."""
