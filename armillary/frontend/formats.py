"""The files that models come in: what each form is called, the suffixes of its files, and what reads it.

In: the name of a file, or of a form (`armc compile --model-format keras`). Out: the form. Invariant: who wants to know
which files are read asks this table: the command line, `tvmc.load`, and `from_onnx` for a hint.
"""

from __future__ import annotations

from pathlib import Path

from armillary.base.record import record
from armillary.errors import ConfigError


@record
class ModelFormat:
    """A form of models: its name on the command line, the suffixes of its files (the usual one first), its importer."""

    name: str
    suffixes: tuple[str, ...]
    importer: str


FORMATS = {
    row.name: row
    for row in (
        ModelFormat("onnx", (".onnx",), "relay.frontend.from_onnx"),
        ModelFormat("keras", (".h5", ".keras"), "relay.frontend.from_keras"),
        ModelFormat("mxnet", (".json",), "relay.frontend.from_mxnet"),
        ModelFormat("relay", (".relay", ".txt"), "relay.parse"),
        ModelFormat(
            "pytorch", (".pt2", ".pt", ".pth"), "relay.frontend.from_exported_program(torch.export.load(FILE))"
        ),
        ModelFormat("tflite", (".tflite",), "relay.frontend.from_tflite"),
        ModelFormat("pb", (".pb",), "relay.frontend.from_tensorflow"),
        ModelFormat("darknet", (".cfg", ".weights"), "relay.frontend.from_darknet"),
    )
}
MODEL_FILES = "the model: .onnx, .pt2 or TorchScript, .keras, .h5, .tflite, .pb, -symbol.json, .cfg or .relay"


def format_of(path: str) -> ModelFormat | None:
    """The form of a file, by its suffix; None where that does not tell."""
    suffix = Path(path).suffix.lower()
    return next((row for row in FORMATS.values() if suffix in row.suffixes), None)


def format_named(name: str) -> ModelFormat:
    """The form of that name. Raises ConfigError for one that there is not."""
    if name not in FORMATS:
        raise ConfigError(f"there is no form {name!r} of models", hint=f"it may be any of {', '.join(FORMATS)}")
    return FORMATS[name]
