"""Several compiled networks in a row, each in a thread of its own: while one works on an input, the next one is begun.

In: what `pipeline_executor_build.build` made, or the folder that it exported. Out: `PipelineModule`: set inputs, run,
get outputs. Invariant: outputs come in the order of the runs, each from the inputs and parameters that were set when
its run began; a stage has at most `DEPTH` runs waiting, then `run` waits; what fails in a stage is raised by the
`get_output` of that run. The runtime alone can do this: nothing here imports the compiler.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, TypedDict, TypeVar

from armillary.base.boundary import boundary
from armillary.base.files import read_regular, write_atomic
from armillary.base.json_types import JsonObject
from armillary.base.record import record
from armillary.contrib.graph_executor import GraphModule
from armillary.errors import ArtifactError, ConfigError, ExecutionError, TypeMismatch
from armillary.runtime.device import Device, cpu
from armillary.runtime.executor import GraphExecutor
from armillary.runtime.module import load_module
from armillary.runtime.ndarray import NDArray, array

DEPTH = 16  # runs that wait for a stage
_T = TypeVar("_T")
_Values = dict[str, NDArray]


class Library(Protocol):
    """What a build returns: a graph for a device by name, and its own export."""

    def __getitem__(self, name: str) -> Callable[[Device], GraphExecutor]: ...

    @property
    def export_library(self) -> Callable[..., None]: ...


class Part(TypedDict):
    """A compiled network of a pipeline, its device, and how it is exported."""

    lib: Library
    dev: Device
    fcompile: object
    export_cc: object


def pipeline_executor_enabled() -> bool:
    """Whether pipelines can be run: always."""
    return True


@record
class _Failed:
    """What travels on instead of values after a stage has failed."""

    error: Exception


class _Stage(threading.Thread):
    """One network and what it waits for; an output goes to `readers`: (output, the queue of an input or result)."""

    def __init__(self, index: int, graph: GraphModule, cpus: Sequence[int]) -> None:
        super().__init__(name=f"pipeline stage {index}", daemon=True)
        self.index, self.graph, self.cpus = index, graph, cpus
        self.begun: SimpleQueue[_Values | None] = (
            SimpleQueue()
        )  # a run's own inputs and parameters; None ends the thread
        self.inputs: dict[str, SimpleQueue[NDArray | _Failed]] = {}  # from other stages
        self.readers: list[tuple[int, SimpleQueue[NDArray | _Failed]]] = []
        self.missing: list[str] = []  # inputs that have no value
        self.room = threading.Semaphore(DEPTH)

    def run(self) -> None:
        """Serve runs until the pipeline ends."""
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)  # of this thread
        while (values := self.begun.get()) is not None:
            inputs = {name: queue.get() for name, queue in self.inputs.items()}
            results = self._results(values, inputs)
            for (_, queue), value in zip(self.readers, results, strict=True):
                queue.put(value)
            self.room.release()

    def _results(self, values: _Values, inputs: Mapping[str, NDArray | _Failed]) -> Sequence[NDArray | _Failed]:
        failed = next((value for value in inputs.values() if isinstance(value, _Failed)), None)
        if failed is None:
            try:
                outputs = self.graph({**values, **inputs})
                return [NDArray(outputs[output]) for output, _ in self.readers]
            except Exception as error:  # of a thread: whoever asks for the outputs raises it
                failed = _Failed(error)
        return [failed] * len(self.readers)


class Pipeline:
    """The stages that a configuration connects. `PipelineModule` is its interface."""

    def __init__(self, graphs: Sequence[GraphModule], config: JsonObject) -> None:
        try:
            self._connect(graphs, config)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            message = f"the configuration of the pipeline is damaged: {type(error).__name__} {error}"
            raise ArtifactError(message, hint="take the one that pipeline_executor_build.build makes") from error
        self._check_inputs()
        self._now: dict[int, _Values] = {stage.index: {} for stage in self.stages}  # set for runs to come
        self._params: dict[int, _Values] = {stage.index: {} for stage in self.stages}
        self._begin, self._end = threading.Lock(), threading.Lock()
        self.started = self.fetched = 0
        self._finish = weakref.finalize(self, _finish, self.stages)
        for stage in self.stages:
            stage.start()

    def _connect(self, graphs: Sequence[GraphModule], config: JsonObject) -> None:
        modules = sorted(config["module_connection"], key=lambda m: int(m["mod_idx"]))
        self.stages = [_Stage(i, graphs[i], _cpus(m["cpu_affinity"])) for i, m in enumerate(modules)]
        self.inputs: dict[str, tuple[int, str]] = {
            str(c["global_interface_name"]): (self.stages[c["mod_idx"]].index, str(c["module_interface_name"]))
            for c in config["input_connection"]
        }
        self.groups = {str(c["global_param_name"]): self.stages[c["mod_idx"]].index for c in config["param_connection"]}
        results: dict[int, SimpleQueue[NDArray | _Failed]] = {}
        for stage, module in zip(self.stages, modules, strict=True):
            for output in module["output"]:
                for reader in output["dependencies"]:
                    queue: SimpleQueue[NDArray | _Failed] = SimpleQueue()
                    if "global_output_index" in reader:
                        results[int(reader["global_output_index"])] = queue
                    else:
                        self.stages[reader["mod_idx"]].inputs[str(reader["input_name"])] = queue
                    stage.readers.append((int(output["output_idx"]), queue))
        if sorted(results) != list(range(len(results))) or not results:
            raise ValueError(f"outputs {sorted(results)} of the pipeline, wanted 0, 1, …")
        self.results = [results[index] for index in range(len(results))]

    def _check_inputs(self) -> None:
        """Every input of a network comes from somewhere, and what is named exists."""
        for stage in self.stages:
            free, there = set(stage.graph.module.free_inputs), stage.graph.module.input_names
            fed = [*stage.inputs, *(name for index, name in self.inputs.values() if index == stage.index)]
            for name in fed:
                if name not in there:
                    raise ArtifactError(f"module {stage.index} of the pipeline has no input {name!r}; it has {there}")
            for output, _ in stage.readers:
                if not 0 <= output < stage.graph.get_num_outputs():
                    raise ArtifactError(f"module {stage.index} of the pipeline has no output {output}")
            stage.missing = sorted(free - set(fed))

    def set_input(self, name: str, value: object) -> None:  # array-likes
        """Keep an input for the runs that begin from now on."""
        index, inner = self.input_of(name)
        self._keep(self._now[index], index, inner, value)

    def set_param(self, group: str, name: str, value: object) -> None:  # array-likes
        """Give a parameter of a group another value, for the runs that begin from now on."""
        index = self.group_of(group)
        self._keep(self._params[index], index, name, value)

    def _keep(self, where: _Values, index: int, name: str, value: object) -> None:
        graph = self.stages[index].graph.module
        shape, dtype = graph.input_type(name)
        held = array(value, dtype=str(dtype))
        if held.shape != tuple(shape):
            raise TypeMismatch(f"{name} of module {index} has the shape {tuple(shape)}, got {held.shape}")
        with self._begin:
            where[name] = held

    def input_of(self, name: str) -> tuple[int, str]:
        """The module and its input that an input of the pipeline feeds."""
        return _one_of(self.inputs, name, "input")

    def group_of(self, name: str) -> int:
        """The module that a group of parameters belongs to."""
        index: int = _one_of(self.groups, name, "group of parameters")
        return index

    def get_input(self, name: str) -> NDArray:
        """A copy of what was set last."""
        index, inner = self.input_of(name)
        if inner not in self._now[index]:
            raise ExecutionError(f"input {name!r} of the pipeline was not set")
        return self._now[index][inner].copyto(cpu(0))

    def run(self) -> None:
        """Begin a run."""
        with self._begin:
            for name, (index, inner) in self.inputs.items():
                if inner not in self._now[index]:
                    raise ExecutionError(f"input {name!r} of the pipeline was not set", hint="set_input(name, array)")
            for stage in self.stages:
                stage.missing = [name for name in stage.missing if name not in self._params[stage.index]]
                if missing := stage.missing:
                    message = f"input {missing[0]!r} of module {stage.index} comes from nowhere"
                    raise ExecutionError(message, hint="connect it, or set it as a parameter of a connected group")
            for stage in self.stages:
                stage.room.acquire()
                stage.begun.put({**self._now[stage.index], **self._params[stage.index]})
                self._params[stage.index] = {}
            self.started += 1

    def get_output(self, wait: bool) -> list[NDArray]:
        """The outputs of the next run; an empty list where they are not there yet and nobody wants to wait."""
        with self._end:
            if self.fetched == self.started:
                if not wait:
                    return []
                raise ExecutionError("there are no outputs to wait for: no run is under way", hint="call run() first")
            if not wait and any(queue.empty() for queue in self.results):
                return []
            values = [queue.get() for queue in self.results]
            self.fetched += 1
        outputs = [value for value in values if not isinstance(value, _Failed)]
        if len(outputs) < len(values):
            error = next(value.error for value in values if isinstance(value, _Failed))
            raise ExecutionError(f"a stage of the pipeline failed: {error}") from error
        return outputs


def _finish(stages: Sequence[_Stage]) -> None:
    """Let the threads end once they have done what is begun."""
    for stage in stages:
        stage.begun.put(None)


def _one_of(table: Mapping[str, _T], name: str, what: str) -> _T:
    if name not in table:
        raise ExecutionError(f"the pipeline has no {what} {name!r}", hint=f"it has {', '.join(table) or 'none'}")
    return table[name]


def _cpus(text: str) -> list[int]:
    """CPU numbers of a text such as "0,2"; an empty one leaves a stage where it is."""
    cpus = [int(number) for number in text.split(",") if number.strip()]
    known = os.sched_getaffinity(0)
    if not known.issuperset(cpus):
        raise ConfigError(f"cpu_affinity {text!r}: this process may use {sorted(known)}")
    return cpus


class PipelineExecutorFactoryModule:
    """Compiled networks by number (each a dict with `lib`, `dev` and how to export it) and how they are connected."""

    def __init__(self, pipeline_mods: Mapping[int, Part], mods_config: JsonObject) -> None:
        self.pipeline_mods = pipeline_mods
        self.mods_config = mods_config
        self.module: Pipeline | None = None

    @boundary("get_pipeline_executor_module", arguments=True)
    def get_pipeline_executor_module(self) -> Pipeline:
        """The pipeline, made at the first call."""
        if self.module is None:
            graphs, text = self.graph_executor_create(self.pipeline_mods, self.mods_config)
            self.module = Pipeline(graphs, json.loads(text))
        return self.module

    @boundary("graph_executor_create", arguments=True)
    def graph_executor_create(
        self,
        pipeline_mods: Mapping[int, Part],
        mod_config: JsonObject,
    ) -> tuple[list[GraphModule], str]:
        """The executors in order, and the configuration as JSON."""
        mods = [pipeline_mods[index] for index in sorted(pipeline_mods)]
        return [GraphModule(mod["lib"]["default"](mod["dev"])) for mod in mods], json.dumps(mod_config)

    @boundary("export_library", arguments=True)
    def export_library(self, directory_path: str | os.PathLike[str]) -> str:
        """Write libraries and configuration to a folder; the path of the file that `load_library` takes.

        Files are named relative to the folder, so that it can be moved or sent to a device.
        """
        if not self.pipeline_mods:
            raise ExecutionError("the pipeline has no modules")
        folder = Path(directory_path).expanduser()
        if not folder.is_dir():
            raise ArtifactError(f"{folder}: there is no such folder", hint="make it first")
        rows = []
        for index, mod in sorted(self.pipeline_mods.items()):
            device: Device = mod["dev"]
            rows.append(
                {"mod_idx": index, "lib_name": f"lib{index}.so", "dev": f"{device.device_type},{device.device_id}"}
            )
            how = {"cc": mod["export_cc"]} if mod.get("export_cc") else {"fcompile": mod.get("fcompile")}
            mod["lib"].export_library(folder / f"lib{index}.so", **how)
        names = {"load_config": rows, "pipeline_config": self.mods_config, "config": None}
        for name, data in names.items():
            message = {n: n for n in ("load_config", "pipeline_config")} if data is None else data
            write_atomic(folder / name, json.dumps(message).encode())
        return str(folder / "config")


class PipelineModule:
    """Runs a pipeline: `set_input`, `run`, `get_output`; several runs may be under way."""

    def __init__(self, module: PipelineExecutorFactoryModule | Pipeline) -> None:
        if isinstance(module, PipelineExecutorFactoryModule):
            module = module.get_pipeline_executor_module()
        if not isinstance(module, Pipeline):
            raise TypeMismatch(
                f"PipelineModule takes what pipeline_executor_build.build returns, got {type(module).__name__}"
            )
        self.module = module

    def run(self) -> None:
        """Begin a run with the inputs that are set; waits only while a stage has `DEPTH` runs before it."""
        self.module.run()

    @boundary("set_input", arguments=True)
    def set_input(self, key: str, value: object) -> None:  # array-likes
        """Set an input by its name, for the runs that begin from now on."""
        self.module.set_input(key, value)

    @boundary("set_params", arguments=True)
    def set_params(self, params_group_name: str, params_data: Mapping[str, object]) -> None:  # array-likes
        """Set parameters by name, of a group that is connected to a module, for the runs that begin from now on."""
        if not params_data:
            raise TypeMismatch(f"set_params: no parameters for group {params_group_name!r}")
        for name, value in params_data.items():
            self.module.set_param(params_group_name, name, value)

    @boundary("get_input", arguments=True)
    def get_input(self, key: str) -> NDArray:
        """What an input was set to last."""
        return self.module.get_input(key)

    @boundary("get_output", arguments=True)
    def get_output(self, synchronize: bool = True, sleep_interval: float = 0.001) -> list[NDArray]:
        """Outputs of the runs, one run a call; without `synchronize` an empty list if they are not there yet.

        Nothing polls, so `sleep_interval` has no effect. ExecutionError if no run is under way, or this one failed.
        """
        del sleep_interval
        return self.module.get_output(synchronize)

    @boundary("get_input_pipeline_map", arguments=True)
    def get_input_pipeline_map(self, name: str) -> list[str]:
        """The number of the module and the name of its input that an input of the pipeline feeds."""
        index, inner = self.module.input_of(name)
        return [str(index), inner]

    @boundary("get_params_group_pipeline_map", arguments=True)
    def get_params_group_pipeline_map(self, name: str) -> int:
        """The number of the module that a group of parameters belongs to."""
        return self.module.group_of(name)

    @property
    def num_executing_pipeline(self) -> int:
        """Runs that were begun."""
        return self.module.started

    @property
    def num_outputs(self) -> int:
        """Outputs of the pipeline."""
        return len(self.module.results)

    @property
    def num_inputs(self) -> int:
        """Inputs of the pipeline."""
        return len(self.module.inputs)

    @staticmethod
    @boundary("load_library", arguments=True)
    def load_library(config_file_name: str | os.PathLike[str]) -> PipelineModule:
        """A pipeline from the files that `export_library` wrote; needs the runtime only."""
        path = Path(config_file_name).expanduser()
        config = _read(path, dict)
        for name in ("load_config", "pipeline_config"):
            if not isinstance(config.get(name), str):
                raise ArtifactError(f"{path}: {name} is missing", hint="load the file that export_library returned")
        rows = _read(path.parent / config["load_config"], list)
        try:
            places = {int(row["mod_idx"]): (row["lib_name"], Device(*map(int, row["dev"].split(",")))) for row in rows}
            files = [places[index] for index in range(len(places))]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError(f"{path.parent / config['load_config']} is damaged: {error!r}") from error
        modules = [load_module(path.parent / file) for file, _ in files]
        graphs = [GraphModule(module["default"](d)) for module, (_, d) in zip(modules, files, strict=True)]
        return PipelineModule(Pipeline(graphs, _read(path.parent / config["pipeline_config"], dict)))


def _read(path: Path, kind: type[_T]) -> _T:
    if not path.is_file():
        raise ArtifactError(f"{path}: there is no such file")
    try:
        read = json.loads(read_regular(path))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: it is no JSON: {error}") from error
    if not isinstance(read, kind):
        raise ArtifactError(f"{path}: it holds a {type(read).__name__}, wanted a {kind.__name__}")
    return read
