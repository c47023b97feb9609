"""What the steps hand on: a model, a package, what a run gave.

In: a module with parameters, or a file. Out: `TVMCModel`, `TVMCPackage`, `TVMCResult`. Invariant: a file is read as
bytes in memory, never unpacked into a folder; one that is no such file is a ModelError or ArtifactError that names it.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from armillary.artifact import load_params, save_params
from armillary.artifact.package import Package, load_package
from armillary.base.aliases import Array
from armillary.base.files import regular, write_atomic
from armillary.cli.run import write_npz
from armillary.contrib.utils import TempDirectory
from armillary.errors import ArmillaryError, ConfigError, ExecutionError, ModelError, Span
from armillary.ir import IRModule
from armillary.relay.printer import astext
from armillary.relay.stored.json_form import load_json, save_json
from armillary.runtime import BenchmarkResult

TVMCException = ArmillaryError
_MEMBERS = ("model.json", "model.params")
_LARGEST = 1 << 34


class TVMCModel:
    """A module and its parameters; `tvmc.load` makes one, `save` keeps it, `TVMCModel(model_path=…)` reads it back."""

    def __init__(
        self,
        mod: IRModule | None = None,
        params: Mapping[str, Array] | None = None,
        model_path: str | Path | None = None,
    ) -> None:
        if (mod is None) == (model_path is None):
            raise ConfigError("a TVMCModel is made of a module or of a file", hint="TVMCModel(mod, params)")
        self._folder: TempDirectory | None = None
        if mod is not None:
            self.mod, self.params = mod, dict(params or {})
        elif model_path is not None:
            self.mod, self.params = _read_model(Path(model_path))

    def save(self, model_path: str | Path) -> None:
        """Write a tar of the module (model.json) and its parameters (model.params)."""
        held = (save_json(self.mod).encode(), save_params(self.params))
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w") as archive:
            for name, data in zip(_MEMBERS, held, strict=True):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        write_atomic(model_path, whole.getbuffer())

    def summary(self, file: TextIO | None = None) -> None:
        """Print the module."""
        print(astext(self.mod), file=file or sys.stdout)

    def default_tuning_records_path(self) -> str:
        """Where `tvmc.tune` writes without being told: a temporary file, which goes with the model."""
        return self._temporary("tuning_records.log")

    def default_package_path(self) -> str:
        """Where `tvmc.compile` writes without being told: a temporary file, which goes with the model."""
        return self._temporary("model_package.tar")

    def _temporary(self, name: str) -> str:
        if self._folder is None:
            self._folder = TempDirectory()
        return str(self._folder.relpath(name))


def _read_model(path: Path) -> tuple[IRModule, dict[str, Array]]:
    hint = "TVMCModel.save writes such a file; tvmc.load reads .onnx, .h5 and .relay"
    try:
        with open(path, "rb", opener=regular) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            module, params = (_member(archive, name) for name in _MEMBERS)
    except KeyError as error:
        raise ModelError(f"the tar holds no model: {error.args[0]}", span=Span(str(path)), hint=hint) from None
    except (tarfile.TarError, OSError) as error:
        raise ModelError(f"cannot be read as a saved model: {error}", span=Span(str(path)), hint=hint) from None
    content = load_json(module)
    if not isinstance(content, IRModule):
        raise ModelError("model.json is no module", span=Span(str(path)), hint=hint)
    return content, load_params(params)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    info = archive.getmember(name)
    stream = archive.extractfile(info)
    if stream is None or info.size > _LARGEST:
        raise tarfile.TarError(f"member {name} is no plain file, or too large")
    return stream.read()


class TVMCPackage:
    """A compiled network in a file: a tar of mod.so, mod.json and mod.params."""

    type = "classic"

    def __init__(self, package_path: str | Path) -> None:
        self.package_path = str(package_path)
        self._read: Package | None = None
        self._folder: TempDirectory | None = None
        if Path(package_path).suffix != ".so":
            self._read = load_package(package_path)

    @property
    def lib_name(self) -> str:
        """The file of the kernels in the tar."""
        return "mod.so"

    @property
    def lib_path(self) -> str:
        """The kernels as a file: the package itself, or a copy of its member, which goes with this object."""
        if self._read is None:
            return self.package_path
        if self._folder is None:
            self._folder = TempDirectory()
            write_atomic(self._folder.relpath(self.lib_name), self._read.library)
        return str(self._folder.relpath(self.lib_name))

    @property
    def graph(self) -> str:
        """The graph, as JSON text."""
        return self._package().graph_json

    @property
    def params(self) -> bytearray:
        """The parameters, as a blob (`relay.load_param_dict` reads it)."""
        return bytearray(self._package().params)

    def _package(self) -> Package:
        if self._read is None:
            message = f"{self.package_path}: graph and parameters of a shared library are not read one by one"
            raise ConfigError(message, hint='compile with package_path="network.tar"')
        return self._read


class TVMCResult:
    """Outputs by name (`output_0`, …), and times where they were asked for, else an empty list."""

    def __init__(self, outputs: Mapping[str, Array] | None, times: BenchmarkResult | None = None) -> None:
        self.outputs: dict[str, Array] = dict(outputs or {})
        self.times: BenchmarkResult | list[BenchmarkResult] = times if times is not None else []

    def format_times(self) -> str:
        """The times as a table."""
        if not isinstance(self.times, BenchmarkResult):
            raise ExecutionError("the run was not timed", hint="tvmc.run(…, benchmark=True)")
        return str(self.times)

    def get_output(self, name: str) -> Array:
        """An output by its name."""
        if name not in self.outputs:
            raise ExecutionError(f"there is no output {name!r}", hint=f"outputs: {', '.join(self.outputs)}")
        return self.outputs[name]

    def save(self, output_path: str | Path) -> None:
        """Write the outputs to an .npz file."""
        write_npz(Path(output_path), list(self.outputs.values()))

    def __str__(self) -> str:
        shapes = [f"{name}: {a.dtype}{list(a.shape)}" for name, a in self.outputs.items()]
        return "\n".join(
            [
                *([str(self.times)] if isinstance(self.times, BenchmarkResult) else []),
                f"Output Names: {', '.join(shapes)}",
            ]
        )
