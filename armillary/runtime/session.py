"""A session over a package with ONNX Runtime's interface: `InferenceSession("net.tar").run(None, {"input": array})`.

In: what `armc compile` or export_library wrote (.tar, its folder, .so), or a model where the compiler is installed, and
numpy inputs by name. Out: numpy outputs that belong to the caller. Invariant: any number of threads may call `run`; as
many runs as the process has CPUs go on at a time, each on an executor of its own, and all executors have the parameters
in memory once. What runs models: `backend/session.py`. Bindings and values: `session_binding.py`.
"""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeGuard

import numpy as np

from armillary.artifact import MAX_JSON
from armillary.artifact.outputs import outputs_of
from armillary.base.aliases import Array, NumpyDtype
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.errors import ExecutionError, TypeMismatch, UnsupportedError
from armillary.runtime.executor_pool import ExecutorPool, Profile
from armillary.runtime.module import Module, load_module
from armillary.runtime.open_shapes import open_shapes
from armillary.runtime.session_binding import IOBinding
from armillary.runtime.session_options import RunOptions, SessionOptions, no_effect
from armillary.runtime.threads import config_threadpool

with deferred():  # `run_async` alone needs it
    from concurrent.futures import ThreadPoolExecutor

PROVIDER = "CPUExecutionProvider"
PACKAGES = (".tar", ".so", ".o")
_ONNX_NAMES = {"float32": "float", "float64": "double"}
Provider = str | tuple[str, Mapping[str, object]]
Callback = Callable[[list[Array], object, str], object]  # results, the caller's own object, "" or what went wrong


@record(eq=False)
class NodeArg:
    """An input or output of a session: `shape` has numbers, names of symbolic dimensions, or None."""

    name: str
    type: str  # as ONNX Runtime writes it: "tensor(float)"
    shape: list[int | str | None]


@record
class ModelMetadata:
    """What a model says of itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Engine(Protocol):
    """What a session runs: a package, or a model that is compiled."""

    inputs: list[NodeArg]
    outputs: list[NodeArg]
    metadata: ModelMetadata
    profile: Profile | None

    def dtype(self, name: str) -> DType | None:
        """The type of an input's elements; None for one that is no tensor, and for an unknown name."""

    def run(self, feed: Mapping[str, object]) -> list[Array]:
        """All outputs, in the model's order; any thread may call it."""


EngineOf = Callable[[object, SessionOptions], Engine]
_OF_MODELS: list[EngineOf] = []  # filled by armillary/session.py


def register_engine(make: EngineOf) -> None:
    """Say what opens models that are no packages."""
    _OF_MODELS[:] = [make]


def type_name(dtype: object) -> str:
    """A tensor's type as ONNX Runtime writes it."""
    return f"tensor({_ONNX_NAMES.get(str(dtype), str(dtype))})"


class InferenceSession:
    """A package, or a model, that is ready to run."""

    @boundary("InferenceSession", arguments=True)
    def __init__(
        self,
        path_or_bytes: object,  # a path; of models also bytes or a ModelProto
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, object]] | None = None,
        **options: object,
    ) -> None:
        """Open the package, or read the model: ready for the first run.

        Raises ArtifactError or ModelError if it is damaged, UnsupportedError naming unknown operators.

        `providers` other than the CPU's are ignored with a warning, as are options of ONNX Runtime that mean nothing
        here; options that it does not have either are refused.
        """
        del provider_options
        no_effect("InferenceSession", options)
        self.set_providers(providers or [PROVIDER])
        self._options = sess_options or SessionOptions()
        if self._options.intra_op_num_threads:
            config_threadpool(nthreads=self._options.intra_op_num_threads)
        self._engine = self._open(path_or_bytes)
        if self._options.enable_profiling:
            self._engine.profile = Profile()
        self._inputs = {arg.name: arg for arg in self._engine.inputs}
        self._accepted: dict[str, tuple[tuple[int, ...], NumpyDtype]] = {}  # shape and type of the last array
        self._outputs = {arg.name: arg for arg in self._engine.outputs}
        self._callers: ThreadPoolExecutor | None = None

    def _open(self, source: object) -> Engine:
        if is_package(source):
            return PackageEngine(load_module(os.fspath(source)), Path(source))
        if _OF_MODELS:
            return _OF_MODELS[0](source, self._options)
        raise UnsupportedError(
            f"armillary-runtime opens packages (.tar, .so, a folder), got {str(source)[:200]!r}",
            hint="compile the model on a machine with `pip install armillary`: armc compile net.onnx -o net.tar",
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._inputs)} -> {', '.join(self._outputs)})"

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that `run` wants."""
        return list(self._inputs.values())

    def get_outputs(self) -> list[NodeArg]:
        """The outputs that `run` gives."""
        return list(self._outputs.values())

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        return self._engine.metadata

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """Where it runs: this CPU."""
        return [PROVIDER]

    @boundary("set_providers", arguments=True, first=1)
    def set_providers(self, providers: Sequence[Provider], *_options: object) -> None:
        """Accept a list of providers; those that are not this CPU are ignored with a warning."""
        names = [item if isinstance(item, str) else item[0] for item in providers]
        others = [name for name in names if name != PROVIDER]
        if others:
            warnings.warn(
                f"providers {', '.join(others)} are ignored: the model is compiled for this CPU", stacklevel=5
            )

    @boundary("InferenceSession.run", arguments=True)
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        run_options: RunOptions | None = None,
    ) -> list[Array]:
        """The outputs of these names (None: all). Raises ExecutionError for wrong names, TypeMismatch for types."""
        del run_options
        if not isinstance(input_feed, Mapping):
            raise TypeMismatch(f"run wants a dict of inputs by name, got {type(input_feed).__name__}")
        wanted = list(self._outputs) if output_names is None else list(output_names)
        strangers = [name for name in wanted if name not in self._outputs]
        if strangers:
            known = ", ".join(self._outputs)
            raise ExecutionError(f"the model has no output {strangers[0]!r}", hint=f"outputs: {known}")
        feed = {name: self._checked(name, value) for name, value in input_feed.items()}
        outputs = dict(zip(self._outputs, self._engine.run(feed), strict=True))
        return [outputs[name] for name in wanted]

    @boundary("InferenceSession.run_async", arguments=True)
    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        callback: Callback,
        user_data: object = None,
        run_options: RunOptions | None = None,
    ) -> None:
        """As `run`, in another thread, which then calls `callback(results, user_data, error)`.

        `error` is "" or the message of what went wrong; then `results` is empty.
        """
        if not callable(callback):
            raise TypeMismatch(f"run_async: the callback is {type(callback).__name__}, which cannot be called")
        if self._callers is None:
            self._callers = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="InferenceSession")
        self._callers.submit(self._run_and_call, output_names, input_feed, callback, user_data, run_options)

    def _run_and_call(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        callback: Callback,
        user_data: object,
        run_options: RunOptions | None,
    ) -> None:
        try:
            results, error = self.run(output_names, input_feed, run_options), ""
        except Exception as raised:  # whatever it is, the callback is told: nobody waits for this thread
            results, error = [], str(raised) or type(raised).__name__
        callback(results, user_data, error)

    def io_binding(self) -> IOBinding:
        """A binding of inputs and outputs to memory, for `run_with_iobinding`."""
        return IOBinding(self)

    @boundary("InferenceSession.run_with_iobinding", arguments=True)
    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with the inputs of the binding; its outputs receive the values."""
        del run_options
        feed = {name: self._checked(name, value) for name, value in iobinding.feed().items()}
        iobinding.take(dict(zip(self._outputs, self._engine.run(feed), strict=True)))

    def end_profiling(self) -> str:
        """Write what was recorded with `enable_profiling` as a trace of Chrome's format; returns the file's name."""
        profile = self._engine.profile
        if profile is None:
            raise ExecutionError("profiling was not enabled", hint="set enable_profiling in the SessionOptions")
        self._engine.profile = None
        path = f"{self._options.profile_file_prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        profile.write(path)
        return path

    def _checked(self, name: str, value: object) -> object:
        if type(value) is np.ndarray and (value.shape, value.dtype) == self._accepted.get(name):
            return value
        wanted = self._engine.dtype(name)
        if wanted is None or isinstance(value, list):  # a sequence; or an unknown name, which the engine refuses
            return value
        array = np.asarray(value)
        if array.dtype != wanted.numpy:
            raise TypeMismatch(
                f"input {name!r} is {array.dtype}, wanted {wanted}", hint=f"array.astype({str(wanted)!r})"
            )
        shape = self._inputs[name].shape
        fits = len(shape) == array.ndim and all(w == g for w, g in zip(shape, array.shape) if isinstance(w, int))
        if shape and not fits:
            raise TypeMismatch(f"input {name!r} has shape {list(array.shape)}, wanted {shape}")
        self._accepted[name] = array.shape, array.dtype
        return array


def is_package(source: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether this names a package: by its suffix, or because it is a folder."""
    if not isinstance(source, str | os.PathLike):
        return False
    return Path(source).suffix in PACKAGES or Path(source).is_dir()


class PackageEngine:
    """Runs the network of a package."""

    def __init__(self, module: Module, path: Path) -> None:
        if module.graph_json is None:
            raise ExecutionError(f"{path}: the package holds functions and no network", hint="load_module opens it")
        self.pool = ExecutorPool(module.create_executor)
        self.profile: Profile | None = None
        named = outputs_of(module.graph_json, MAX_JSON)
        with self.pool.executor() as first:
            several = len(set(first.input_names)) < len(first.input_names)
            places: dict[str, list[int]] = {}
            for index, name in enumerate(first.input_names):
                if not first.is_parameter(name):
                    places.setdefault(name, []).append(index)
            kinds = {name: [first.input_type(index) for index in rows] for name, rows in places.items()}
            self.inputs = [_input(rows, name) for name, rows in kinds.items()]
            types = [first.output_type(i) for i in range(first.get_num_outputs())]
            shapes = open_shapes(first)
        names = named.names or tuple(f"output_{i}" for i in range(len(types)))
        self._sizes = {k: (axis, size) for k, axis, size in named.sizes}
        self.outputs = []
        for k, (name, (shape, dtype)) in enumerate(zip(names, types)):
            open_axes = range(len(shape)) if several else [self._sizes[k][0]] if k in self._sizes else []
            dims: list[int | str | None] = [None if axis in open_axes else dim for axis, dim in enumerate(shape)]
            self.outputs.append(NodeArg(name, type_name(dtype), dims))
        if shapes is not None:  # names of sizes, or expressions over them
            self.inputs = [NodeArg(arg.name, arg.type, list(shapes.inputs[arg.name])) for arg in self.inputs]
            self.outputs = [NodeArg(a.name, a.type, list(s)) for a, s in zip(self.outputs, shapes.outputs, strict=True)]
        self._shown = len(types) - len(self._sizes)
        self.outputs = self.outputs[: self._shown]
        self._dtypes = {name: rows[0][1] for name, rows in kinds.items()}
        self.metadata = ModelMetadata(
            "armillary", path.stem, custom_metadata_map={"target": module.descriptor.target, "package": str(path)}
        )

    def dtype(self, name: str) -> DType | None:
        """The type of an input's elements; None for an unknown name."""
        return self._dtypes.get(name)

    def run(self, feed: Mapping[str, object]) -> list[Array]:
        """All outputs, in the order of the network."""
        if feed.keys() != self._dtypes.keys():
            raise ExecutionError(f"the package's inputs are {list(self._dtypes)}, got {sorted(feed)}")
        outputs = self.pool.run(feed, self.profile)
        for k, (axis, size) in self._sizes.items():
            outputs[k] = outputs[k].take(range(int(outputs[size])), axis)
        return outputs[: self._shown]


def _input(types: Sequence[tuple[tuple[int, ...], DType]], name: str) -> NodeArg:
    """An input of one shape, or of several, whose sizes that differ are open."""
    shapes = [shape for shape, _ in types]
    is_one_rank = len({len(shape) for shape in shapes}) == 1
    dims = [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes)] if is_one_rank else []
    return NodeArg(name, type_name(types[0][1]), list(dims))


__all__ = ["InferenceSession", "ModelMetadata", "NodeArg", "PackageEngine", "RunOptions", "SessionOptions"]
