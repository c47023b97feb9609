"""Reading a model: `tvmc.load`.

In: a file, its form where the suffix does not tell, shapes by input name. Out: a TVMCModel. Invariant: a form that
cannot be imported is refused with the way through ONNX. Importers: `armillary/frontend`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.cli.options.models import load_model as _read
from armillary.driver.tvmc.model import TVMCModel
from armillary.errors import ModelError, Span
from armillary.frontend.formats import FORMATS, MODEL_FILES, format_named, format_of
from armillary.ir import IRModule
from armillary.relay.binding import bind_params_by_name


class Frontend:
    """A form of models: its name, the suffixes of its files, and how one is read."""

    form: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """What `model_format` calls it."""
        return cls.form

    @classmethod
    def suffixes(cls) -> list[str]:
        """Suffixes without a dot."""
        return [suffix.removeprefix(".") for suffix in FORMATS[cls.form].suffixes]

    def load(
        self, path: str | Path, shape_dict: Mapping[str, Sequence[int]] | None = None
    ) -> tuple[IRModule, dict[str, Array]]:
        """The module and its parameters by name."""
        shapes = {name: tuple(int(size) for size in shape) for name, shape in (shape_dict or {}).items()}
        return _read(str(path), shapes, form=self.form)


class OnnxFrontend(Frontend):
    """Reads ONNX files."""

    form = "onnx"


class KerasFrontend(Frontend):
    """Keras, as HDF5 or as an archive."""

    form = "keras"


class PyTorchFrontend(Frontend):
    """Programs of torch.export, and TorchScript."""

    form = "pytorch"


class TfliteFrontend(Frontend):
    """Reads TFLite files."""

    form = "tflite"


class TensorflowFrontend(Frontend):
    """Frozen graphs of TensorFlow."""

    form = "pb"


class MxnetFrontend(Frontend):
    """Reads MXNet's -symbol.json, with the .params beside it."""

    form = "mxnet"


class DarknetFrontend(Frontend):
    """Darknet's .cfg, with the .weights beside it."""

    form = "darknet"


class RelayFrontend(Frontend):
    """Reads modules in Relay's text form."""

    form = "relay"


ALL_FRONTENDS = tuple(Frontend.__subclasses__())


def get_frontend_names() -> list[str]:
    """What `model_format` may be."""
    return [frontend.name() for frontend in ALL_FRONTENDS]


def get_frontend_by_name(name: str) -> Frontend:
    """The form of that name. Raises ConfigError for one that there is not."""
    form = format_named(name)
    return next(frontend() for frontend in ALL_FRONTENDS if frontend.form == form.name)


def guess_frontend(path: str | Path) -> Frontend:
    """The form of a file, by its suffix. Raises ModelError where that does not tell."""
    form = format_of(str(path))
    if form is None:
        message = f"the form of the model is not known from its suffix {Path(path).suffix!r}"
        raise ModelError(message, span=Span(str(path)), hint=MODEL_FILES)
    return get_frontend_by_name(form.name)


@boundary("tvmc.load")
def load(
    path: str | Path,
    model_format: str | None = None,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    freeze_params: bool = False,
) -> TVMCModel:
    """Import a model by the suffix of its file; `model_format` ("onnx", …) says its form where that does not.

    With `freeze_params` weights are constants of the module and `params` is empty, as it always is with ONNX.
    """
    shapes = {name: tuple(int(size) for size in shape) for name, shape in (shape_dict or {}).items()}
    mod, params = _read(str(path), shapes, form=model_format or "")
    if freeze_params and params:
        mod, constants = mod.copy(), params
        mod["main"], params = bind_params_by_name(mod["main"], constants), {}
    return TVMCModel(mod, params)


load_model = load
