"""Which networks a pipeline has, what is connected to what, and how each is compiled: `PipelineConfig` and `build`.

In: modules, connected by `config[module]["output"][0].connect(config[other]["input"]["x"])`; the pipeline's own ends
are `config["input"]`, `config["output"]`, `config["param_group"]`. Out: `PipelineExecutorFactoryModule`
(`pipeline_executor.py`), which runs or is exported. Invariant: connections make no cycle, and types at their two ends
are equal; modules are numbered so that each comes after those that it reads from. A function is cut into modules by
`graph_split`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeVar, cast, overload

from armillary.base.boundary import boundary
from armillary.base.json_types import JsonObject
from armillary.contrib.graph_split import graph_split
from armillary.contrib.pipeline_executor import Library, Part, PipelineExecutorFactoryModule, pipeline_executor_enabled
from armillary.driver.build import build as build_module
from armillary.errors import ConfigError, TypeMismatch
from armillary.ir import IRModule
from armillary.relay.expr import Function
from armillary.relay.infer import check_module
from armillary.relay.types import TupleType, Type
from armillary.runtime.device import Device, cpu

_End = TypeVar("_End")
__all__ = ["PipelineConfig", "build", "export_library", "graph_split", "pipeline_executor_build_enabled"]


def pipeline_executor_build_enabled() -> bool:
    """Whether pipelines can be built: always."""
    return pipeline_executor_enabled()


class Binding:
    """One end of a connection: an input or output of a module or of the pipeline, or parameters."""

    def __init__(
        self, owner: ModuleWrapper | PipelineConfig, kind: str, name: object, type: Type | None = None
    ) -> None:
        self.io_owner, self.io_type, self.name, self.data_type = owner, kind, str(name), type
        self.bindings: list[Binding] = []  # that read this one
        self.parents: list[Binding] = []  # modules' outputs that this one reads

    def __repr__(self) -> str:
        owner = self.io_owner.name if isinstance(self.io_owner, ModuleWrapper) else "the pipeline"
        return f"{self.io_type} {self.name} of {owner or 'a module'}"

    def is_pipeline_executor_interface(self) -> bool:
        """Whether it is one of the pipeline's own ends."""
        return not isinstance(self.io_owner, ModuleWrapper)

    @boundary("connect", arguments=True, first=1)
    def connect(self, binding: Binding) -> None:
        """Let `binding` read this end: ConfigError where their kinds, types or the order of modules do not allow it."""
        if not isinstance(binding, Binding):
            raise TypeMismatch(
                f"connect: got {type(binding).__name__}, wanted an input or output such as config['output'][0]"
            )
        inside, into_module = not self.is_pipeline_executor_interface(), not binding.is_pipeline_executor_interface()
        allowed = {
            ("output", True): ("input",) if into_module else ("output",),
            ("input", False): ("input",) if into_module else (),
            ("param", False): ("param",) if into_module else (),
        }
        if self.io_owner is binding.io_owner or binding.io_type not in allowed.get((self.io_type, inside), ()):
            hint = "inputs of the pipeline feed inputs of modules, outputs of modules feed inputs of others or outputs"
            raise ConfigError(f"{self} cannot feed {binding}", hint=f"{hint} of the pipeline, groups feed parameters")
        if inside and into_module:
            if self.data_type != binding.data_type:
                raise ConfigError(f"{self} is {self.data_type}, {binding} wants {binding.data_type}")
            if isinstance(self.io_owner, ModuleWrapper) and binding.io_owner in self.io_owner.sources():
                raise ConfigError(f"{self} cannot feed {binding}: it is computed from it, the connections make a cycle")
        self._check_free(binding, into_module)
        self.bindings.append(binding)
        if inside:
            binding.parents.append(self)

    def _check_free(self, binding: Binding, into_module: bool) -> None:
        """Each end is fed once, and an end of the pipeline feeds one module."""
        if binding.parents or (into_module and binding.io_type == "input" and binding.is_fed):
            raise ConfigError(f"{binding} is connected already")
        if self.is_pipeline_executor_interface() and self.bindings:
            raise ConfigError(
                f"{self} is connected already", hint="give each module an input of the pipeline of its own"
            )
        binding.is_fed = True

    is_fed = False


class BindingList:
    """The inputs, outputs or groups of parameters of a module or of the pipeline, by name."""

    def __init__(self, owner: ModuleWrapper | PipelineConfig, kind: str) -> None:
        self.bindings: dict[str, Binding] = {}
        self.io_owner, self.binding_type = owner, kind

    def __getitem__(self, key: str | int) -> Binding:
        name = str(key)
        if name not in self.bindings:
            kind: Type | None = None
            if isinstance(self.io_owner, ModuleWrapper):
                kind = self.io_owner.get_data_type(name, self.binding_type)
            elif self.binding_type == "output" and not name.isdecimal():
                raise ConfigError(f"outputs of a pipeline have numbers, got {name!r}")
            self.bindings[name] = Binding(self.io_owner, self.binding_type, name, kind)
        return self.bindings[name]

    def connected(self) -> Iterator[tuple[str, Binding]]:
        """The name of each end and the one end of a module that it feeds."""
        for name, binding in self.bindings.items():
            if not binding.bindings:
                raise ConfigError(f"{binding} feeds nothing", hint="connect it, or do not name it")
            yield name, binding.bindings[0]


class ModuleWrapper:
    """A module of the pipeline: how it is compiled (`target`, `dev`, `build_func`, …) and its ends."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.target: object = None
        self.target_host: object = None
        self.build_func: Callable[..., object] | None = None  # makes a library, as relay.build does
        self.params: Mapping[str, object] | None = None  # arrays
        self.fcompile: object = None
        self.export_cc: object = None
        self.dev: Device | None = None
        self.cpu_affinity = ""
        self.idx: int | None = None
        self.name: str | None = None
        main = check_module(mod)["main"]
        if not isinstance(main, Function):
            raise TypeMismatch("a module of a pipeline needs a relay function called main")
        self._inputs = {p.name_hint: p.checked_type for p in main.params}
        result = main.body.checked_type
        self._outputs = result.fields if isinstance(result, TupleType) else (result,)
        self.input_bindings = BindingList(self, "input")
        self.output_bindings = BindingList(self, "output")
        self.param_binding = Binding(self, "param", "param")

    @overload
    def __getitem__(self, key: Literal["input", "output"]) -> BindingList: ...

    @overload
    def __getitem__(self, key: Literal["param"]) -> Binding: ...

    def __getitem__(self, key: str) -> Binding | BindingList:
        """The list of its inputs or outputs, or the end of its parameters."""
        lists = {"input": self.input_bindings, "output": self.output_bindings}
        ends: dict[str, Binding | BindingList] = {**lists, "param": self.param_binding}
        return _of(ends, key, "a module of a pipeline")

    def get_data_type(self, key: str, interface_type: str) -> Type:
        """The type of an input or output; ConfigError where there is none."""
        if interface_type == "output" and key.isdecimal() and int(key) < len(self._outputs):
            return self._outputs[int(key)]
        if interface_type == "input" and key in self._inputs:
            return self._inputs[key]
        there = list(self._inputs) if interface_type == "input" else list(range(len(self._outputs)))
        raise ConfigError(f"the module has no {interface_type} {key!r}; it has {there}")

    def sources(self) -> set[ModuleWrapper]:
        """The module itself and all that it is computed from."""
        result, rest = {self}, [self]
        while rest:
            for wrapper in rest.pop().parents():
                if wrapper not in result:
                    result.add(wrapper)
                    rest.append(wrapper)
        return result

    def parents(self) -> list[ModuleWrapper]:
        """The modules that it reads from."""
        ends = (parent.io_owner for b in self.input_bindings.bindings.values() for parent in b.parents)
        return [owner for owner in ends if isinstance(owner, ModuleWrapper)]


class PipelineConfig:
    """The modules of a pipeline and their connections; printing it shows them."""

    def __init__(self) -> None:
        self.mod_wrapper: dict[IRModule, ModuleWrapper] = {}
        self.input_bindings = BindingList(self, "input")
        self.output_bindings = BindingList(self, "output")
        self.param_group_bindings = BindingList(self, "param")

    @overload
    def __getitem__(self, key: IRModule) -> ModuleWrapper: ...

    @overload
    def __getitem__(self, key: str) -> BindingList: ...

    def __getitem__(self, key: IRModule | str) -> ModuleWrapper | BindingList:
        """A module's wrapper, made when it is first asked for, or the ends of the pipeline."""
        if isinstance(key, IRModule):
            if key not in self.mod_wrapper:
                self.mod_wrapper[key] = ModuleWrapper(key)
            return self.mod_wrapper[key]
        ends = {"input": self.input_bindings, "output": self.output_bindings, "param_group": self.param_group_bindings}
        return _of(ends, key, "a pipeline")

    def pipe_input(self, name: str) -> Binding:
        """An input of the pipeline."""
        return self.input_bindings[name]

    def pipe_output(self, idx: str | int) -> Binding:
        """An output of the pipeline."""
        return self.output_bindings[idx]

    def get_mod_idx(self, mod: IRModule) -> int | None:
        """The number of a module, once `dag_topology_sort` has given numbers."""
        return self.mod_wrapper[mod].idx

    def dag_topology_sort(self) -> None:
        """Number the modules, each after those that it reads from."""
        rest, done = dict(self.mod_wrapper), dict[IRModule, ModuleWrapper]()
        while rest:
            ready = [mod for mod, w in rest.items() if all(p.mod in done for p in w.parents())]
            for mod in ready:
                wrapper = done[mod] = rest.pop(mod)
                wrapper.idx = len(done) - 1
                wrapper.name = f"mod{wrapper.idx}"
        self.mod_wrapper = done

    def get_config(self) -> JsonObject:
        """The connections as dictionaries: of modules, of inputs, of groups of parameters."""
        self.dag_topology_sort()
        inputs = [
            {"global_interface_name": name, "mod_idx": _index(end), "module_interface_name": end.name}
            for name, end in self.input_bindings.connected()
        ]
        params = [
            {"global_param_name": name, "mod_idx": _index(end)} for name, end in self.param_group_bindings.connected()
        ]
        modules = {mod: _described(wrapper) for mod, wrapper in self.mod_wrapper.items()}
        return {"module_connection": modules, "input_connection": inputs, "param_connection": params}

    def __str__(self) -> str:
        self.dag_topology_sort()
        lines, outputs, inner = ["Params"], dict[int, str](), []
        lines += [f"  |{name}: {_shown(b)}" for name, b in self.param_group_bindings.bindings.items()]
        lines += ["", "Inputs"] + [f"  |{name}: {_shown(b)}" for name, b in self.input_bindings.bindings.items()]
        for wrapper in self.mod_wrapper.values():
            for number, binding in wrapper.output_bindings.bindings.items():
                for end in binding.bindings:
                    if isinstance(end.io_owner, ModuleWrapper):
                        inner.append(f"  |{wrapper.name}.output({number})-> {end.io_owner.name}.{end.name}")
                    else:
                        outputs[int(end.name)] = f"  |output({end.name}) : {wrapper.name}.output({number})"
        lines += ["", "output", *(outputs[number] for number in sorted(outputs)), "", "connections", *inner]
        return "\n".join(lines) + "\n"


def _of(ends: Mapping[str, _End], key: object, what: str) -> _End:
    if not isinstance(key, str) or key not in ends:
        raise ConfigError(f"{what} has no {key!r}", hint=f"it has {', '.join(ends)}")
    return ends[key]


def _index(end: Binding) -> int | None:
    return end.io_owner.idx if isinstance(end.io_owner, ModuleWrapper) else None


def _shown(binding: Binding) -> str:
    ends = ((b.io_owner, b.name) for b in binding.bindings)
    return " ".join(f"{owner.name}:{name}" for owner, name in ends if isinstance(owner, ModuleWrapper))


def _described(wrapper: ModuleWrapper) -> JsonObject:
    outputs = [
        {"output_idx": int(b.name), "dependencies": [_reader(end) for end in b.bindings]}
        for b in wrapper.output_bindings.bindings.values()
    ]
    return {
        "pipeline": {"mod_idx": wrapper.idx, "cpu_affinity": wrapper.cpu_affinity, "output": outputs},
        "target_host": wrapper.target_host,
        "mod_name": "default",
        "build": wrapper.build_func,
        "params": wrapper.params,
        "target": wrapper.target,
        "fcompile": wrapper.fcompile,
        "dev": wrapper.dev,
        "export_cc": wrapper.export_cc,
    }


def _reader(end: Binding) -> dict[str, object]:
    if end.is_pipeline_executor_interface():
        return {"global_output_index": int(end.name)}
    return {"mod_idx": _index(end), "input_name": end.name}


@boundary("pipeline_executor_build.build", arguments=True)
def build(pipe_configs: PipelineConfig) -> PipelineExecutorFactoryModule:
    """Compile each module for its target (by its `build_func`, if it has one), and put the pipeline together."""
    if not isinstance(pipe_configs, PipelineConfig):
        raise TypeMismatch(f"build: got {type(pipe_configs).__name__}, wanted a PipelineConfig")
    config = pipe_configs.get_config()
    if not pipe_configs.output_bindings.bindings:
        raise ConfigError(
            "the pipeline has no outputs", hint='config[module]["output"][0].connect(config["output"][0])'
        )
    libraries, modules = dict[int, Part](), []
    for mod, how in config["module_connection"].items():
        device = how["dev"] or cpu(0)
        build_one = how["build"] or build_module
        library = build_one(
            mod, how["target"], params=how["params"], target_host=how["target_host"], mod_name=how["mod_name"]
        )
        modules.append({**how["pipeline"], "dev": f"{device.device_type},{device.device_id}"})
        libraries[how["pipeline"]["mod_idx"]] = {
            "lib": cast("Library", library),
            "dev": device,
            "fcompile": how["fcompile"],
            "export_cc": how["export_cc"],
        }
    return PipelineExecutorFactoryModule(libraries, {**config, "module_connection": modules})


def export_library(factory: PipelineExecutorFactoryModule, directory_path: str | os.PathLike[str]) -> str:
    """As `factory.export_library(directory_path)`."""
    return factory.export_library(directory_path)
